//! A reader may close the pipe before a command has printed all (`tandem … | head`): that is no
//! failure, and never a panic.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A pipe without a reader.
fn nobody() -> Stdio {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    drop::<OwnedFd>(reader);
    writer.into()
}

#[test]
fn a_reader_that_is_gone_is_no_failure() {
    let json = concat!(env!("CARGO_TARGET_TMPDIR"), "/reader-gone.json");
    let _ = std::fs::remove_file(json);
    let all: [&[&str]; 9] = [
        &["knobs"],
        &["knobs", "--json"],
        &["metrics", "--list"],
        &["metrics", "--list", "--json"],
        &["metrics", "--dashboard"],
        &["top", "--sim", "demo", "--batch", "-n", "2"],
        &["sim", "sleepers", "--duration", "4s"],
        &["sim", "smoke", "--trace", "-"],
        &["sim", "smoke", "--trace", "-", "--json", json],
    ];
    for words in all {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
        let status = command
            .args(words)
            .current_dir(ROOT)
            .stdout(nobody())
            .stderr(nobody())
            .status()
            .expect("it starts");
        assert_eq!(status.code(), Some(0), "{words:?}: {status}");
    }
    let document = std::fs::read_to_string(json).expect("the result needs no reader of the trace");
    assert!(document.contains("\"scenario\": \"smoke\""), "{document}");
}
