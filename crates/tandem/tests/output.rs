//! What a command writes arrives whole or its absence is reported: standard output that takes
//! nothing, files that cannot be written, old files under a run that fails.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SIM: [&str; 4] = ["sim", "sleepers", "--duration", "4s"];

fn tandem(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command.args(words).current_dir(ROOT).env_remove("COLUMNS");
    command
}

/// Exit code, standard output and standard error.
fn ends(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// An empty folder of a test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("output-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    path
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Names of what is in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// A trace and a result of a short run in `folder`.
fn recorded(folder: &Path) -> (String, String) {
    let (trace, json) = (folder.join("x.trace"), folder.join("x.json"));
    let words = ["--trace", text(&trace), "--json", text(&json)];
    let (code, _, error) = ends(tandem(&SIM).args(words));
    assert_eq!((code, names(folder)), (0, vec!["x.json".to_owned(), "x.trace".to_owned()]));
    assert_eq!(error, "");
    (text(&trace).to_owned(), text(&json).to_owned())
}

#[test]
fn a_standard_output_that_is_full_ends_every_command_with_1_and_says_so() {
    let folder = folder("full");
    let (trace, json) = recorded(&folder);
    let (trace, json) = (trace.as_str(), json.as_str());
    let page = folder.join("x.html");
    let all: [&[&str]; 27] = [
        &["--help"],
        &["--version"],
        &["sim", "--help"],
        &["knobs"],
        &["knobs", "--json"],
        &["metrics", "--list"],
        &["metrics", "--list", "--json"],
        &["metrics", "--dashboard"],
        &["plan", "--scenario", "demo"],
        &["plan", "--scenario", "demo", "--json"],
        &["admit", "--scenario", "demo"],
        &["vnuma", "plan", "--vcpus", "4", "--memory", "1G", "--host", "1x1x4x1", "--xml"],
        &["vnuma", "plan", "--vcpus", "4", "--memory", "1G", "--host", "1x1x4x1", "--json"],
        &["vnuma", "check", "--vcpus", "4", "1x1x4x1"],
        &["top", "--sim", "demo", "--batch", "-n", "2"],
        &["top", "--sim", "demo", "--json", "-n", "2"],
        &["top", "--sim", "demo", "--once"],
        &["sim", "sleepers", "--duration", "4s"],
        &["sim", "sleepers", "--duration", "4s", "--json", "-"],
        &["trace", "log", trace, "--to", "1ms"],
        &["trace", "table", trace, "--to", "1ms"],
        &["trace", "waits", trace],
        &["trace", "waits", trace, "--json", "-"],
        &["trace", "check", trace],
        &["trace", "check", trace, "--json", "-"],
        &["report", json, "-o", "-"],
        &["report", json, "-o", text(&page)],
    ];
    for words in all {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let (code, _, error) = ends(tandem(words).stdout(full));
        assert_eq!(code, 1, "{words:?}: {error}");
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with("tandem: standard output: cannot write "), "{words:?}: {error}");
        let cause = ": No space left on device (os error 28); free space there, or send it ";
        assert_eq!(error.matches(cause).count(), 1, "{words:?}: {error}");
    }
    assert!(page.exists(), "the page is written all the same");
}

#[test]
fn the_documents_of_a_run_are_written_also_where_nothing_can_be_said() {
    let json = folder("unsaid").join("x.json");
    let full = || File::options().write(true).open("/dev/full").expect("/dev/full");
    let (code, _, error) = ends(tandem(&SIM).args(["--json", text(&json)]).stdout(full()));
    assert_eq!(code, 1, "{error}");
    assert!(fs::read_to_string(&json).unwrap().ends_with("\n}\n"));
    // A check that fails outranks it, and both are said.
    let mutant = ["sim", "demo", "--duration", "15s", "--policy", "mutant:wrong-slowest"];
    let (code, _, error) = ends(tandem(&mutant).stdout(full()));
    assert_eq!(code, 6, "{error}");
    assert!(error.starts_with("tandem: standard output: cannot write the output: "), "{error}");
    assert!(error.contains("\nreplay: tandem sim demo "), "{error}");
}

#[test]
fn a_reader_of_help_that_is_gone_is_no_failure() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    drop(reader);
    let (code, _, error) = ends(tandem(&["--help"]).stdout(Stdio::from(writer)));
    assert_eq!((code, error.as_str()), (0, ""));
}

#[test]
fn a_file_that_cannot_be_written_is_found_out_before_the_work_begins() {
    let folder = folder("before");
    let file = folder.join("file");
    fs::write(&file, "old").unwrap();
    let bad = [
        "/no/such/folder/x".to_owned(),
        text(&folder).to_owned(),
        format!("{}/new/", text(&folder)),
        format!("{}/x", text(&file)),
    ];
    for bad in &bad {
        // Inputs that are not there, and a run of hours, show that nothing has begun.
        let all: [(&[&str], &str); 6] = [
            (&["sim", "sleepers", "--duration", "9000s", "--json", bad], "the result"),
            (&["sim", "sleepers", "--duration", "9000s", "--trace", bad], "the trace"),
            (&["report", "none", "-o", bad], "the page"),
            (&["trace", "waits", "none", "--json", bad], "the waits"),
            (&["trace", "check", "none", "--json", bad], "what came out"),
            (&["trace", "export", "none", bad], "the picture"),
        ];
        for (words, what) in all {
            let (code, out, error) = ends(&mut tandem(words));
            assert_eq!((code, out.as_str()), (1, ""), "{words:?}: {error}");
            let begin = format!("tandem: {bad}: cannot write {what}: ");
            assert!(error.starts_with(&begin), "{words:?}: {error}");
            assert!(error.ends_with("; name a file that can be written\n"), "{words:?}: {error}");
        }
    }
    assert_eq!(
        (names(&folder), fs::read_to_string(file).unwrap()),
        (vec!["file".into()], "old".into())
    );
}

#[test]
fn an_old_file_stays_as_it_is_until_the_new_one_is_whole() {
    let inputs = folder("inputs");
    let (trace, json) = recorded(&inputs);
    let folder = folder("old");
    let old = folder.join("old");
    let all: [&[&str]; 6] = [
        &["sim", "sleepers", "--duration", "4s", "--json"],
        &["sim", "sleepers", "--duration", "4s", "--trace"],
        &["report", &json, "-o"],
        &["trace", "waits", &trace, "--json"],
        &["trace", "export", &trace],
        &["sim", "sleepers", "--duration", "1ms", "--trace"],
    ];
    for words in all {
        fs::write(&old, "old").unwrap();
        // No file grows above a block: a disk that becomes full while it is written.
        let limited = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_tandem")]);
        let (code, _, error) = ends(command.args(words).arg(&old).current_dir(ROOT));
        let refused = words.contains(&"1ms");
        assert_eq!(code, if refused { 3 } else { 1 }, "{words:?}: {error}");
        assert!(refused || error.contains(&format!("{}: cannot write", text(&old))), "{error}");
        assert_eq!(fs::read_to_string(&old).unwrap(), "old", "{words:?}: {error}");
        assert_eq!(names(&folder), ["old"], "{words:?}: nothing else is left");
    }
}

#[test]
fn a_new_file_takes_the_place_of_the_old_one_with_its_mode_and_behind_its_link() {
    let folder = folder("new");
    let (old, link) = (folder.join("old"), folder.join("link"));
    fs::write(&old, "old".repeat(100_000)).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("old", &link).unwrap();
    let (code, _, error) = ends(tandem(&SIM).args(["--json", text(&link)]));
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(link.is_symlink());
    assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(names(&folder), ["link", "old"]);
    let (_, out, _) = ends(tandem(&SIM).args(["--json", "-"]));
    assert_eq!(fs::read_to_string(&old).unwrap(), out, "the same bytes");
    // A link to a file that is not there yet.
    fs::remove_file(&old).unwrap();
    assert_eq!(ends(tandem(&SIM).args(["--json", text(&link)])).0, 0);
    assert_eq!(fs::read_to_string(&old).unwrap(), out);
}

#[test]
fn devices_and_pipes_are_written_where_they_are() {
    let json = ends(tandem(&SIM).args(["--json", "-"])).1;
    let said = ends(&mut tandem(&SIM)).1;
    let (code, out, error) = ends(tandem(&SIM).args(["--json", "/dev/stdout"]));
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!(out, format!("{said}{json}"));
    // A file behind standard output holds the document alone.
    let path = folder("devices").join("out");
    let out = File::create(&path).unwrap();
    let (code, _, error) = ends(tandem(&SIM).args(["--json", "/dev/stdout"]).stdout(out));
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!(fs::read_to_string(&path).unwrap(), json);
    let (code, _, error) = ends(tandem(&SIM).args(["--json", "/dev/full"]));
    let want = "tandem: /dev/full: cannot write the result: No space left on device (os error 28); \
        name a file that can be written\n";
    assert_eq!((code, error.as_str()), (1, want));
    let (code, _, error) = ends(tandem(&SIM).args(["--trace", "/dev/full"]));
    assert_eq!(code, 1);
    assert!(error.starts_with("tandem: /dev/full: cannot write the trace: "), "{error}");
    assert_eq!(ends(tandem(&SIM).args(["--trace", "/dev/null"])).0, 0);
}
