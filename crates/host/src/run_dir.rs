//! Writes the daemon's files in `RUN_DIR`: in a folder that is ours and no link, each file whole or
//! not at all, through no link. It reads none of them.

use crate::{HostError, process};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Where the daemon keeps its files.
pub const RUN_DIR: &str = "/run/tandem";

/// Its owner's alone: the files have the names of VMs, and what they do.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Bits of a mode that say what users may do.
const MODE_BITS: u32 = 0o7777;

/// Writes a file of ours whole or not at all; a link in its place is replaced.
///
/// # Errors
/// `HostError::Object` if its folder cannot be used, or the kernel refuses.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), HostError> {
    let bad = |e: io::Error| {
        HostError::object(path.display().to_string(), "write it", e, "make /run writable")
    };
    folder(path.parent().unwrap_or(path))?;
    let part = path.with_extension("part");
    // A daemon that was killed may have left one, and another user a link.
    match fs::remove_file(&part) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(bad(e)),
        _ => {}
    }
    let mut file = new_file(&part).map_err(bad)?;
    file.write_all(text.as_bytes()).map_err(bad)?;
    fs::rename(&part, path).map_err(bad)
}

/// A file where there is nothing, not even a link.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true) // O_EXCL
        .mode(FILE_MODE)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// A file in the folder to be locked; what it says stays.
///
/// # Errors
/// `HostError::Object` if the folder cannot be used, the file is a link, or the kernel refuses.
pub(crate) fn to_lock(path: &Path) -> Result<File, HostError> {
    folder(path.parent().unwrap_or(path))?;
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    open.map_err(|e| {
        HostError::object(
            path.display().to_string(),
            "lock it",
            e,
            "run it as root; if the file is a link, remove it",
        )
    })
}

/// Makes the folder unless it is there: of this process's user, and no other may write there.
fn folder(dir: &Path) -> Result<(), HostError> {
    folder_of(dir, process::effective_uid())
}

fn folder_of(dir: &Path, uid: Option<u32>) -> Result<(), HostError> {
    let bad = |seen: String, next: &str| {
        Err(HostError::object(dir.display().to_string(), "use it as a folder", seen, next))
    };
    const NEXT: &str = "make /run writable; if it is a link or a file, remove it";
    match DirBuilder::new().mode(FOLDER_MODE).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return bad(e.to_string(), NEXT),
        _ => {}
    }
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(dir)
        .and_then(|folder| Ok((folder.metadata()?, folder)));
    let (meta, folder) = match open {
        Ok(open) => open,
        Err(e) => return bad(e.to_string(), NEXT),
    };
    if Some(meta.uid()) != uid {
        let own = uid.map_or("unknown".to_owned(), |uid| uid.to_string());
        return bad(
            format!("uid {} as owner, allowed {own}, which this process has", meta.uid()),
            "remove it",
        );
    }
    // The umask may have taken bits away, and an older daemon may have left some.
    if meta.mode() & MODE_BITS != FOLDER_MODE {
        if let Err(e) = folder.set_permissions(Permissions::from_mode(FOLDER_MODE)) {
            return bad(e.to_string(), NEXT);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & MODE_BITS
    }

    #[test]
    fn a_file_is_whole_and_its_owners_alone() {
        let t = MadeUp::new("run-dir");
        let (dir, file) = (t.path("run"), t.path("run/vms.json"));
        write_whole(&file, "one").unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        write_whole(&file, "two").unwrap();
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn a_folder_that_is_a_link_a_file_or_another_users_is_refused_and_left_as_it_is() {
        let t = MadeUp::new("run-link");
        fs::create_dir(t.path("target")).unwrap();
        fs::set_permissions(t.path("target"), Permissions::from_mode(0o700)).unwrap();
        symlink(t.path("target"), t.path("run")).unwrap();
        let error = write_whole(&t.path("run/vms.json"), "x").unwrap_err().to_string();
        assert!(error.contains("/run: cannot use it as a folder: "), "{error}");
        assert!(error.ends_with("; make /run writable; if it is a link or a file, remove it"));
        assert!(to_lock(&t.path("run/trace.lock")).is_err());
        assert_eq!(fs::read_dir(t.path("target")).unwrap().count(), 0);
        assert_eq!(mode(&t.path("target")), 0o700);
        t.put("file", b"");
        assert!(write_whole(&t.path("file/vms.json"), "x").is_err());
        let me = process::effective_uid().unwrap();
        let error = folder_of(&t.path("target"), Some(me + 1)).unwrap_err().to_string();
        let seen = format!(
            "seen uid {me} as owner, allowed {}, which this process has; remove it",
            me + 1
        );
        assert!(error.ends_with(&seen.replace("seen ", "")), "{error}");
        assert_eq!(mode(&t.path("target")), 0o700);
    }

    #[test]
    fn files_that_are_links_are_replaced_and_what_they_lead_to_is_left_as_it_is() {
        let t = MadeUp::new("run-links");
        t.put("passwd", b"root");
        fs::create_dir(t.path("run")).unwrap();
        for name in ["vms.json", "vms.part", "trace.lock"] {
            symlink(t.path("passwd"), t.path("run").join(name)).unwrap();
        }
        // One that comes back at once is not followed either.
        assert!(new_file(&t.path("run/vms.part")).is_err());
        write_whole(&t.path("run/vms.json"), "x").unwrap();
        assert_eq!(fs::read_to_string(t.path("run/vms.json")).unwrap(), "x");
        assert!(fs::symlink_metadata(t.path("run/vms.json")).unwrap().is_file());
        assert!(fs::symlink_metadata(t.path("run/vms.part")).is_err());
        let error = to_lock(&t.path("run/trace.lock")).unwrap_err().to_string();
        assert!(error.contains("/run/trace.lock: cannot lock it: "), "{error}");
        assert_eq!(fs::read_to_string(t.path("passwd")).unwrap(), "root");
        fs::remove_file(t.path("run/trace.lock")).unwrap();
        t.put("run/trace.lock", b"kept");
        to_lock(&t.path("run/trace.lock")).unwrap();
        assert_eq!(fs::read_to_string(t.path("run/trace.lock")).unwrap(), "kept");
    }
}
