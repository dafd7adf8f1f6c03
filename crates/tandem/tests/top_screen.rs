//! `tandem top` on a terminal of its own: it takes the screen, obeys keys, and puts everything back
//! when it ends, however it ends.

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A program on a terminal of 80x24.
struct Terminal {
    keyboard: File,
    line: File,
    child: Child,
    seen: Arc<Mutex<String>>,
    before: LocalModes,
}

impl Terminal {
    fn run(words: &[&str]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, vec![]).expect("a name").into_string().expect("text");
        let line = OpenOptions::new().read(true).write(true).open(name).expect("it opens");
        tcsetwinsize(&line, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("a size");
        let before = tcgetattr(&line).expect("modes").local_modes;
        let end = || line.try_clone().expect("another end");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
        command
            .args(words)
            .current_dir(ROOT)
            .env("TERM", "xterm")
            .env("HOME", env!("CARGO_TARGET_TMPDIR"));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().expect("another end");
        let seen = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n) = screen.read(&mut bytes) {
                into.lock().expect("not poisoned").push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Terminal { keyboard, line, child, seen, before }
    }

    fn seen(&self) -> String {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// Waits until this is on the screen.
    fn until(&self, text: &str) {
        let begin = Instant::now();
        while !self.seen().contains(text) {
            assert!(begin.elapsed() < Duration::from_secs(60), "no '{text}' in {:?}", self.seen());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("typed");
    }

    fn raw(&self) -> bool {
        !tcgetattr(&self.line).expect("modes").local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the end; the terminal must be restored.
    fn ended(&mut self) -> ExitStatus {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it goes on: {:?}", self.seen());
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(
            tcgetattr(&self.line).expect("modes").local_modes,
            self.before,
            "lines and echo are back"
        );
        self.until("\x1b[?1049l");
        self.until("\x1b[?25h");
        status
    }
}

#[test]
fn it_takes_the_screen_and_gives_it_back_on_q() {
    let mut t = Terminal::run(&["top", "--sim", "demo", "--fast", "--duration", "20s"]);
    t.until("\x1b[?1049h");
    t.until("ended");
    assert!(
        t.raw()
            && t.seen().contains("CPU panel") == t.seen().contains("Keys (")
            && t.seen().contains("build")
    );
    t.press("h");
    t.until("Keys (");
    t.press("x");
    t.press("q");
    assert!(t.ended().success());
}

#[test]
fn a_signal_ends_it_and_gives_the_screen_back() {
    let mut t = Terminal::run(&["top", "--sim", "demo", "--pace", "1000"]);
    t.until("build");
    assert!(t.raw());
    kill_process(Pid::from_child(&t.child), Signal::TERM).expect("sent");
    assert!(t.ended().success());
}

#[test]
fn control_c_ends_it_while_a_line_is_asked_for() {
    let mut t = Terminal::run(&["top", "--sim", "demo", "--fast"]);
    t.until("ended");
    t.press("/we");
    t.until("Only names with");
    t.press("\x03");
    assert!(t.ended().success());
}

#[test]
fn a_terminal_that_is_gone_ends_it() {
    let master =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&master).expect("granted");
    unlockpt(&master).expect("unlocked");
    let name = ptsname(&master, vec![]).expect("a name").into_string().expect("text");
    let line = OpenOptions::new().read(true).write(true).open(name).expect("it opens");
    let end = || line.try_clone().expect("another end");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command
        .args(["top", "--sim", "demo", "--fast"])
        .current_dir(ROOT)
        .env("TERM", "xterm")
        .env("HOME", env!("CARGO_TARGET_TMPDIR"));
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
    let begin = Instant::now();
    let late = |what: &str| assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
    while tcgetattr(&line).expect("modes").local_modes.contains(LocalModes::ICANON) {
        late("it does not take the terminal");
        std::thread::sleep(Duration::from_millis(10));
    }
    // No signal tells it: the terminal is not one that controls it.
    drop(master);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(50) {
            child.kill().expect("it ends");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    // 0, or 4 where it was just drawing: never a panic, and never killed.
    assert!(matches!(status.code(), Some(0 | 4)), "{status}");
}
