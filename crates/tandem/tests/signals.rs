//! Signals that come while `tandem run` starts do not kill it.

use rustix::{
    fs::{OFlags, fcntl_setfl},
    process::{Pid, Signal, kill_process},
};
use std::{
    fs,
    io::Read,
    process::{Child, Command},
    time::{Duration, Instant},
};

/// Whether a process has a handler for SIGHUP, the signal 1.
fn catches_hup(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|bits| u64::from_str_radix(bits.trim(), 16).is_ok_and(|b| b & 1 == 1))
}

/// It is refused, and held up in saying so: standard error is a pipe that is full.
#[test]
fn a_signal_does_not_kill_a_daemon_that_starts() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("it is ours");
    while rustix::io::write(&writer, &[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).expect("it is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    let started = command.args(["run", "--set", "no_such_knob=1"]).stderr(writer).spawn();
    let mut child = started.expect("it starts");
    drop(command);
    let begin = Instant::now();
    while !catches_hup(&child) && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    for signal in [Signal::HUP, Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(Pid::from_child(&child), signal).expect("it is there");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut said = vec![];
    fs::File::from(reader).read_to_end(&mut said).expect("its words");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(3), "{status}");
    assert!(String::from_utf8_lossy(&said).contains("no_such_knob"));
}
