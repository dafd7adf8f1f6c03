//! Files that a command reads, with a bound on how much: a device or a pipe without end is an error
//! in place of all memory. It knows no format.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Most bytes of what people write, such as a scenario, and of a device.
pub const TEXT_MAX: u64 = 16 << 20;
/// Most bytes of what a program writes: a trace, or result documents.
pub const RECORD_MAX: u64 = 4 << 30;
/// Most bytes of that from a pipe, whose length nothing says beforehand.
pub const PIPE_MAX: u64 = 1 << 30;

/// Passes bytes on up to a number, and fails where there are more.
#[derive(Debug)]
pub struct Bounded<R> {
    input: R,
    left: u64,
    most: u64,
}

impl<R: Read> Bounded<R> {
    /// At most so many bytes of `input`.
    pub fn new(input: R, most: u64) -> Bounded<R> {
        Bounded { input, left: most, most }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buf.is_empty() {
            return match self.input.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(too_long(self.most)),
            };
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        let n = self.input.read(&mut buf[..most])?;
        self.left -= n as u64;
        Ok(n)
    }
}

fn too_long(most: u64) -> io::Error {
    let text = format!("more than {} MiB, which is the most that is read", most >> 20);
    io::Error::new(ErrorKind::FileTooLarge, text)
}

/// Opens a file, a pipe or a device, of which at most so many bytes are read: of a pipe
/// [`PIPE_MAX`], of a device [`TEXT_MAX`] where that is less.
///
/// # Errors
/// When it cannot be opened, and for a folder and a file that is longer.
pub fn open(path: &Path, most: u64) -> io::Result<Bounded<File>> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let kind = meta.file_type();
    let most = match kind {
        _ if kind.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        _ if kind.is_file() && meta.len() > most => return Err(too_long(most)),
        _ if kind.is_file() => most,
        _ if kind.is_fifo() || kind.is_socket() => most.min(PIPE_MAX),
        _ => most.min(TEXT_MAX),
    };
    Ok(Bounded::new(file, most))
}

/// Text of a file that people write.
///
/// # Errors
/// As of [`open`], and where it is not UTF-8.
pub fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path, TEXT_MAX)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Bytes of a file that a program writes.
///
/// # Errors
/// As of [`open`].
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    open(path, RECORD_MAX)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_an_error_and_what_is_just_as_long_is_read() {
        let zero = Path::new("/dev/zero");
        for error in [text(zero).map(drop), bytes(zero).map(drop)] {
            let error = error.expect_err("it has no end");
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            let want = "more than 16 MiB, which is the most that is read";
            assert_eq!(error.to_string(), want);
        }
        let mut all = vec![];
        Bounded::new(&b"abcd"[..], 4).read_to_end(&mut all).expect("it is as long");
        assert_eq!(all, b"abcd");
        assert!(Bounded::new(&b"abcde"[..], 4).read_to_end(&mut all).is_err());
        assert_eq!(text(Path::new("/dev/null")).expect("nothing"), "");
    }

    #[test]
    fn a_folder_is_said_to_be_one() {
        let error = text(Path::new("/")).expect_err("a folder");
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
    }
}
