//! Small files of the kernel that are read again and again. Each stays open between two rounds, so
//! that a reading is one call; a file that has gone, and come again, is opened anew. It knows no
//! file's meaning.
#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Larger than almost every file that is read here.
const USUAL: usize = 4096;
/// No file that is read here is longer; what is behind that is left out.
const MOST: usize = 1 << 20;

/// Open files, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    files: BTreeMap<OsString, (File, u32)>,
    round: u32,
    /// So many stay open at most.
    room: usize,
    buffer: Vec<u8>,
}

impl Kept {
    /// Keeps up to `room` files open; `default` keeps none.
    pub(crate) fn with_room(room: usize) -> Kept {
        Kept { room, ..Kept::default() }
    }

    /// The content of a file.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn read(&mut self, path: PathBuf) -> io::Result<&[u8]> {
        let name = path.into_os_string();
        if let Some((file, round)) = self.files.get_mut(&name) {
            if let Ok(len) = whole(file, &mut self.buffer) {
                *round = self.round;
                return Ok(&self.buffer[..len]);
            }
            self.files.remove(&name);
        }
        let file = File::open(&name)?;
        let len = whole(&file, &mut self.buffer)?;
        if self.files.len() < self.room {
            self.files.insert(name, (file, self.round));
        }
        Ok(&self.buffer[..len])
    }

    /// A round is over: files that were not read in it are closed.
    pub(crate) fn sweep(&mut self) {
        let round = self.round;
        self.files.retain(|_, (_, last)| *last == round);
        self.round = round.wrapping_add(1);
    }
}

/// Lets this process have as many files open as the kernel allows it to ask for; so many.
pub(crate) fn allowed() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and sets a limit of this process by a record of ours; where raising it is
    // refused, it is what it was.
    let soft = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 {
            limit.rlim_cur
        } else {
            soft
        }
    };
    usize::try_from(soft).unwrap_or(usize::MAX)
}

/// The content of a file that is read once.
///
/// # Errors
/// What the kernel says.
pub(crate) fn once(path: &Path) -> io::Result<Vec<u8>> {
    let mut buffer = vec![];
    let len = whole(&File::open(path)?, &mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}

/// The same as text.
pub(crate) fn text(path: &Path) -> Option<String> {
    String::from_utf8(once(path).ok()?).ok()
}

/// Reads a file from its beginning: the kernel gives such a file whole, as far as there is room.
fn whole(file: &File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    if buffer.is_empty() {
        buffer.resize(USUAL, 0);
    }
    loop {
        let len = file.read_at(buffer, 0)?;
        if len < buffer.len() || len >= MOST {
            return Ok(len);
        }
        buffer.resize(2 * len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;
    use std::fs;

    #[test]
    fn a_file_is_read_as_it_is_now_whatever_its_length() {
        let t = MadeUp::new("kept");
        let mut kept = Kept::with_room(1);
        for len in [0, 1, USUAL - 1, USUAL, 5 * USUAL, 3] {
            for name in ["a", "b"] {
                t.put(name, &vec![b'x'; len]);
                assert_eq!(kept.read(t.path(name)).unwrap().len(), len, "{name}");
                assert_eq!(once(&t.path(name)).unwrap().len(), len);
            }
            assert_eq!(kept.files.len(), 1, "there is room for one");
        }
        assert!(kept.read(t.path("none")).is_err() && once(&t.path("none")).is_err());
    }

    #[test]
    fn what_is_read_no_more_is_closed_after_a_round() {
        let t = MadeUp::new("kept-sweep");
        ["a", "b"].iter().for_each(|name| t.put(name, b"1"));
        let mut kept = Kept::with_room(9);
        for names in [&["a", "b"][..], &["b"], &["a"]] {
            names.iter().for_each(|name| assert_eq!(kept.read(t.path(name)).unwrap(), b"1"));
            kept.sweep();
            assert_eq!(kept.files.len(), names.len());
        }
        assert!(allowed() > 9);
        let mut none = Kept::default();
        none.read(t.path("a")).unwrap();
        assert_eq!(none.files.len(), 0);
    }

    /// Of this machine's kernel: a file of a process, kept open, is not another process's.
    #[test]
    fn a_file_of_a_process_that_has_ended_cannot_be_read() {
        let child = std::process::Command::new("sleep").arg("9").spawn();
        let mut child = child.expect("it starts");
        let stat = PathBuf::from(format!("/proc/{}/stat", child.id()));
        let mut kept = Kept::with_room(9);
        for _ in 0..2 {
            assert!(
                kept.read(stat.clone()).unwrap().starts_with(child.id().to_string().as_bytes())
            );
        }
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(kept.read(stat.clone()).is_err());
        fs::metadata(stat).expect_err("gone");
    }
}
