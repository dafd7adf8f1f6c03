//! A running QEMU and the logs it writes: follows them until it ends, its time is up or the
//! emulator has died, and never leaves a QEMU behind.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{Stream, died_of_the_emulator, lost_cpu};
use crate::archive::Archive;
use crate::error::{LabError, OnPath, Result};
use crate::tool;

/// How often logs are looked at; short against a boot, long against the cost of looking.
const POLL: Duration = Duration::from_millis(25);
/// What the guest's init writes to the kernel log when it takes over.
const USER_SPACE: &str = "lab: user space reached";

/// A running QEMU, killed when dropped.
pub(crate) struct Running {
    child: Child,
    since: Instant,
}

impl Running {
    pub(crate) fn start(archive: &Archive, arguments: &[String], log: &Path) -> Result<Self> {
        let sink = File::create(log).on(log, "create QEMU's log")?;
        let mut command = with_parent(archive.qemu()?.command());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(sink);
        let child = command.spawn().map_err(|e| {
            LabError::new(
                "QEMU",
                "be started",
                e.to_string(),
                "delete the cache folder and fetch again",
            )
        })?;
        Ok(Running { child, since: Instant::now() })
    }

    /// Follows both logs until QEMU ends, its time is up, or the emulator has died or lost a CPU.
    pub(crate) fn watch(
        &mut self,
        kernel_log: &mut Tail,
        console: &mut Tail,
        time_limit: Duration,
        on_output: &mut dyn FnMut(Stream, &str),
    ) -> Result<Seen> {
        let (mut user_space, mut lost) = (None, false);
        loop {
            // Asked before the logs are read, so that nothing written before the end is missed.
            let ended = self.ended()?.is_some();
            if let Some(text) = kernel_log.more()? {
                on_output(Stream::Kernel, &text);
                if user_space.is_none() && kernel_log.text.contains(USER_SPACE) {
                    user_space = Some(self.since.elapsed());
                }
                lost =
                    died_of_the_emulator(&kernel_log.text) || lost_cpu(&kernel_log.text).is_some();
            }
            if let Some(text) = console.more()? {
                on_output(Stream::Command, &text);
            }
            let wall = self.since.elapsed();
            let cut_off = !ended && wall > time_limit;
            if ended || cut_off || lost {
                return Ok(Seen { user_space, wall, cut_off });
            }
            std::thread::sleep(POLL);
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .map_err(|e| LabError::new("QEMU", "be waited for", e.to_string(), "try again"))
    }
}

/// What was seen of a run while it lasted.
pub(crate) struct Seen {
    pub user_space: Option<Duration>,
    pub wall: Duration,
    pub cut_off: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Lets the kernel kill QEMU should this process die without cleaning up, where util-linux's
/// setpriv is there.
fn with_parent(command: Command) -> Command {
    let Some(setpriv) = tool::find_program(&["setpriv"]) else {
        return command;
    };
    let mut wrapped = Command::new(setpriv);
    wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    wrapped.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    wrapped
}

/// A growing text file, read as it grows. Terminal line ends become plain ones.
pub(crate) struct Tail {
    pub path: PathBuf,
    file: File,
    at: u64,
    half: Vec<u8>,
    pub text: String,
}

impl Tail {
    pub(crate) fn new(path: PathBuf) -> Result<Self> {
        File::create(&path).on(&path, "create the log")?;
        let file = File::open(&path).on(&path, "open the log")?;
        Ok(Tail { path, file, at: 0, half: Vec::new(), text: String::new() })
    }

    /// What came since the last call, if anything; a character cut in two waits for its other half.
    fn more(&mut self) -> Result<Option<String>> {
        self.file.seek(SeekFrom::Start(self.at)).on(&self.path, "read the log")?;
        let count = self.file.read_to_end(&mut self.half).on(&self.path, "read the log")?;
        self.at += count as u64;
        let bytes = std::mem::take(&mut self.half);
        let (whole, rest) = split_utf8(&bytes);
        self.half = rest.to_vec();
        let fresh = String::from_utf8_lossy(whole).replace("\r\n", "\n");
        self.text.push_str(&fresh);
        Ok((!fresh.is_empty()).then_some(fresh))
    }
}

/// Splits off an incomplete character or half a terminal line end; invalid bytes elsewhere stay in
/// the first part.
fn split_utf8(bytes: &[u8]) -> (&[u8], &[u8]) {
    if bytes.ends_with(b"\r") {
        return bytes.split_at(bytes.len() - 1);
    }
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let wanted = match bytes[at] {
            0xf0..=0xf7 => 4,
            0xe0..=0xef => 3,
            0xc0..=0xdf => 2,
            _ => continue,
        };
        return bytes.split_at(if back < wanted { at } else { bytes.len() });
    }
    bytes.split_at(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_or_line_end_cut_in_two_waits_for_its_other_half() {
        assert_eq!(split_utf8("abé".as_bytes()), ("abé".as_bytes(), &b""[..]));
        let cut = &"ab│".as_bytes()[..4];
        assert_eq!(split_utf8(cut), (&b"ab"[..], &cut[2..]));
        assert_eq!(split_utf8(b"line\r"), (&b"line"[..], &b"\r"[..]));
        assert_eq!(split_utf8(b"plain"), (&b"plain"[..], &b""[..]));
    }
}
