//! Keeps the files of one command line apart: what is written is none of those that are read, and
//! no other that is written. Files are compared by device and inode, so that links count.

use crate::{Exit, Failure};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file of the command line: what names it, such as `--json`, and its path.
pub(crate) type Named<'a> = (&'a str, &'a Path);

/// Names of standard output.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Where the bytes of a file are.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Standard output.
    Stdout,
    /// A device that takes any number of writers, such as /dev/null.
    Device,
    /// An inode of a file system.
    Node(u64, u64),
    /// A file that is not there yet.
    New(PathBuf),
}

/// Refuses to write over what is read, or twice to one file; '-' is a standard stream.
///
/// # Errors
/// `Exit::Usage` where `written` has a file of `read`, or one file twice.
pub(crate) fn apart(read: &[Named<'_>], written: &[Named<'_>]) -> Result<(), Failure> {
    for (i, (by, path)) in written.iter().enumerate() {
        let here = place(path);
        if here == Place::Device {
            continue;
        }
        let inputs = read.iter().filter(|r| !is_stdout(r.1)).map(|r| (r, "is read as"));
        let outputs = written[..i].iter().map(|w| (w, "is written by"));
        let both = inputs.chain(outputs).find(|((_, there), _)| here == place(there));
        if let Some(((other, _), how)) = both {
            let text = format!(
                "{by} {}: cannot write there: seen the file that {how} {other} too, allowed \
                    another; name one of its own",
                path.display()
            );
            return Err(Failure::new(Exit::Usage, anyhow::anyhow!(text)));
        }
    }
    Ok(())
}

fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| path == Path::new(name))
}

fn place(path: &Path) -> Place {
    if is_stdout(path) {
        return Place::Stdout;
    }
    match fs::metadata(path) {
        Ok(there) if there.file_type().is_char_device() => Place::Device,
        Ok(there) => Place::Node(there.dev(), there.ino()),
        Err(_) => Place::New(new(path)),
    }
}

/// The path of a file that is not there yet, its folder by the name that it has without links.
fn new(path: &Path) -> PathBuf {
    let folder = |p: &Path| p.parent().unwrap_or(Path::new("")).to_owned();
    let path = match fs::read_link(path) {
        Ok(target) => folder(path).join(target),
        Err(_) => path.to_owned(),
    };
    let within = folder(&path);
    let within = if within.as_os_str().is_empty() { PathBuf::from(".") } else { within };
    match (fs::canonicalize(within), path.file_name()) {
        (Ok(within), Some(name)) => within.join(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tandem-apart-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn said(read: &[Named<'_>], written: &[Named<'_>]) -> Option<String> {
        apart(read, written).err().map(|f| {
            assert_eq!(f.exit, Exit::Usage);
            f.error.to_string()
        })
    }

    #[test]
    fn an_output_that_is_an_input_is_refused_whatever_it_is_called() {
        let folder = folder("input");
        let (file, link, hard) = (folder.join("a"), folder.join("link"), folder.join("hard"));
        fs::write(&file, "x").unwrap();
        symlink("a", &link).unwrap();
        fs::hard_link(&file, &hard).unwrap();
        for name in [&file, &link, &hard, &folder.join("./a")] {
            let want = format!(
                "--json {}: cannot write there: seen the file that is read as the scenario too, \
                    allowed another; name one of its own",
                name.display()
            );
            assert_eq!(said(&[("the scenario", &file)], &[("--json", name)]), Some(want));
        }
        assert_eq!(said(&[("the scenario", &file)], &[("--json", &folder.join("b"))]), None);
        assert_eq!(said(&[("the trace", Path::new("-"))], &[("--json", Path::new("-"))]), None);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn two_outputs_are_two_files_also_where_neither_is_there() {
        let folder = folder("two");
        let (one, link) = (folder.join("one"), folder.join("link"));
        symlink("one", &link).unwrap();
        let both = |a: &Path, b: &Path| said(&[], &[("--trace", a), ("--json", b)]);
        for twin in [&one, &link, &folder.join("../").join(folder.file_name().unwrap()).join("one")]
        {
            let text = both(&one, twin).unwrap_or_else(|| panic!("{twin:?}"));
            assert!(text.contains(": seen the file that is written by --trace too, "), "{text}");
        }
        assert_eq!(both(&one, &folder.join("two")), None);
        assert_eq!(both(Path::new("/dev/null"), Path::new("/dev/null")), None);
        assert!(both(Path::new("-"), Path::new("/dev/stdout")).is_some());
        fs::remove_dir_all(folder).unwrap();
    }
}
