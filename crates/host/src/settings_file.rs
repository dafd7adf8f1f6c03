//! Reads the daemon's settings file, at its start and on a reload. A daemon of root takes none that
//! another user can write; `reload` decides when one is taken over.

use crate::{Speed, Trust, discover::Roots, process};
use settings::{LiveSettings, LiveSettingsError};
use std::{
    fs::{self, File, FileType},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Bits of a mode by which group and others may write.
const OTHERS_WRITE: u32 = 0o022;
/// Bits of a mode that say what users may do.
const MODE_BITS: u32 = 0o7777;

/// The settings file of a daemon.
#[derive(Clone, Debug)]
pub struct SettingsFile {
    path: PathBuf,
    /// The only user that may write it; `None` if any may.
    owner: Option<u32>,
}

impl SettingsFile {
    /// The file at `path`. Where this process is root's, only root may write it: what it says is
    /// done with root's rights.
    #[must_use]
    pub fn new(path: &Path) -> SettingsFile {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let owner = process::effective_uid().unwrap_or(0);
        SettingsFile { path, owner: (owner == 0).then_some(owner) }
    }

    /// Its path, from the root of the file system on.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says, and the users of this host that it trusts.
    ///
    /// # Errors
    /// `LiveSettingsError` with every reason against it; nothing of it is to be used then.
    pub fn load(&self, roots: &Roots) -> Result<(LiveSettings, Trust), LiveSettingsError> {
        let path = self.path.display().to_string();
        let refused = |reasons| LiveSettingsError { path: path.clone(), reasons };
        let text = self.text().map_err(refused)?;
        let settings = LiveSettings::parse(&path, &text)?;
        let trust = of_host(&settings, roots).map_err(refused)?;
        Ok((settings, trust))
    }

    /// Its text, unless another user can write it.
    pub(crate) fn text(&self) -> Result<String, Vec<String>> {
        let unreadable =
            |e: io::Error| vec![format!("cannot read it: {e}; give a file that is there")];
        // The daemon must not wait for a writer of a pipe.
        let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&self.path);
        let file = opened.map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        let mut reasons = self.reasons(meta.uid(), meta.mode());
        reasons.extend(no_file(meta.file_type()));
        if !reasons.is_empty() {
            return Err(reasons);
        }
        let mut text = String::new();
        let mut file = files::Bounded::new(file, files::TEXT_MAX);
        file.read_to_string(&mut text).map_err(unreadable)?;
        Ok(text)
    }

    /// What lets other users write it.
    fn reasons(&self, uid: u32, mode: u32) -> Vec<String> {
        let Some(owner) = self.owner else { return vec![] };
        let path = self.path.display();
        let mut out = vec![];
        if uid != owner {
            out.push(format!(
                "owner: cannot use it: seen uid {uid}, allowed {owner}, so that no other user can \
                    write it; chown {owner} {path}"
            ));
        }
        if mode & OTHERS_WRITE != 0 {
            out.push(format!(
                "mode: cannot use it: seen {:04o}, allowed one by which only the owner can write; \
                    chmod go-w {path}",
                mode & MODE_BITS
            ));
        }
        out
    }

    /// How long ago it was changed; one that is not there may come in a moment.
    pub(crate) fn age(&self) -> Duration {
        let changed = fs::metadata(&self.path).and_then(|m| m.modified());
        let since = |at| SystemTime::now().duration_since(at).unwrap_or_default();
        changed.map_or(Duration::ZERO, since)
    }

    /// A file that `owner` alone may write.
    #[cfg(test)]
    pub(crate) fn of(path: PathBuf, owner: Option<u32>) -> SettingsFile {
        SettingsFile { path, owner }
    }
}

/// Why what is open is no file that can be read at any time, and read again.
fn no_file(kind: FileType) -> Option<String> {
    let seen = match kind {
        _ if kind.is_file() => return None,
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a pipe",
        _ => "a device",
    };
    Some(format!("kind: cannot use it: seen {seen}, allowed a regular file; name one"))
}

/// The users that settings trust, if they fit this host: its speed, its users.
///
/// # Errors
/// Every reason why they do not.
pub(crate) fn of_host(settings: &LiveSettings, roots: &Roots) -> Result<Trust, Vec<String>> {
    let mut reasons = settings.reasons_at(Speed::of(roots, settings.host.mhz).mhz);
    match Trust::of(settings, roots) {
        Ok(trust) if reasons.is_empty() => Ok(trust),
        trust => {
            reasons.extend(trust.err().into_iter().flatten());
            Err(reasons)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_another_user_can_write_is_refused_with_the_way_out() {
        let t = MadeUp::new("settings-file");
        t.put("t.toml", b"[host]\nmhz = 3000\n");
        let path = t.path("t.toml");
        let me = process::effective_uid().unwrap();
        let mine = SettingsFile::of(path.clone(), Some(me));
        for (mode, allowed) in [
            (0o600, true),
            (0o644, true),
            (0o755, true),
            (0o664, false),
            (0o646, false),
            (0o666, false),
        ] {
            chmod(&path, mode);
            assert_eq!(mine.load(&t.roots()).is_ok(), allowed, "{mode:o}");
        }
        let others = SettingsFile::of(path.clone(), Some(me + 1));
        let seen = others.load(&t.roots()).unwrap_err().to_string();
        let shown = path.display();
        assert_eq!(
            seen,
            format!(
                "settings {shown}: refused, nothing of it is in force:\n  - owner: cannot use it: \
                    seen uid {me}, allowed {}, so that no other user can write it; chown {} \
                    {shown}\n  - mode: cannot use it: seen 0666, allowed one by which only the \
                    owner can write; chmod go-w {shown}",
                me + 1,
                me + 1
            )
        );
        // Whose process is not root's may only harm itself.
        assert!(SettingsFile::of(path, None).load(&t.roots()).is_ok());
    }

    #[test]
    fn what_a_link_leads_to_is_what_counts() {
        let t = MadeUp::new("settings-link");
        t.put("t.toml", b"");
        std::os::unix::fs::symlink(t.path("t.toml"), t.path("link.toml")).unwrap();
        let link = SettingsFile::of(t.path("link.toml"), process::effective_uid());
        chmod(&t.path("t.toml"), 0o644);
        assert!(link.load(&t.roots()).is_ok());
        chmod(&t.path("t.toml"), 0o666);
        assert!(link.load(&t.roots()).is_err());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let t = MadeUp::new("settings-kind");
        let made = std::process::Command::new("mkfifo").arg(t.path("pipe")).status();
        assert!(made.unwrap().success());
        let seen = [t.path("pipe"), t.path("cgroup"), PathBuf::from("/dev/null")].map(|path| {
            SettingsFile::of(path, None).load(&t.roots()).unwrap_err().reasons.join("; ")
        });
        let want = ["a pipe", "a folder", "a device"].map(|kind| {
            format!("kind: cannot use it: seen {kind}, allowed a regular file; name one")
        });
        assert_eq!(seen, want);
    }

    #[test]
    fn a_process_of_root_reads_root_s_files_only() {
        let file = SettingsFile::new(Path::new("t.toml"));
        let root = process::effective_uid() == Some(0);
        assert_eq!(file.owner, root.then_some(0));
        assert!(file.path().is_absolute());
    }

    #[test]
    fn every_reason_of_this_host_is_given() {
        let t = MadeUp::new("settings-host");
        let text = "[trust]\nusers = [\"eve\", \"bob\"]\n[[vm]]\nname = \"a\"\nreservation = \
            \"2GHz\"\nlimit = \"50%\"\n";
        t.put("t.toml", text.as_bytes());
        t.put("passwd", b"bob:x:7:7::/:\n");
        t.put("sys/devices/system/cpu/cpu0/cpufreq/base_frequency", b"2000000\n");
        let file = SettingsFile::of(t.path("t.toml"), None);
        let reasons = file.load(&t.roots()).unwrap_err().reasons;
        assert_eq!(reasons.len(), 2);
        assert!(reasons[0].starts_with("vm 'a': limit: "), "{reasons:?}");
        assert!(reasons[1].starts_with("trust.users: cannot find 'eve': "), "{reasons:?}");
        t.put("t.toml", text.replace("\"eve\", ", "").replace("50%", "100%").as_bytes());
        let (settings, trust) = file.load(&t.roots()).unwrap();
        assert_eq!((settings.vms.len(), trust.trusts(7), trust.trusts(8)), (1, true, false));
        let gone = SettingsFile::of(t.path("gone"), None).load(&t.roots()).unwrap_err();
        assert!(gone.reasons[0].starts_with("cannot read it: No such file"), "{gone}");
    }
}
