//! Which cgroups count: those of root and of users that the settings file trusts, from the root of
//! the tree down. `cgroups` and `eligible` go by it; it changes nothing.
//!
//! What is written into a cgroup is believed if no other user could write it. The owner of a folder
//! can, and so can the owner of one above, by making another in its place.

use crate::found::{Roots, chain, folder};
use settings::LiveSettings;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
};

/// Users that are trusted beside root; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    users: BTreeSet<u32>,
}

/// Owners of cgroups that are allowed, as messages have it.
pub(crate) const ALLOWED: &str = "root or a user of [trust] users";

/// The outermost folder of a cgroup's path that belongs to no trusted user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Path of that folder, below the cgroup root.
    pub cgroup: String,
    /// Its owner, or why that cannot be read.
    pub owner: Result<u32, String>,
}

/// Owners of cgroups, each asked for once: most VMs have the same cgroups above them.
#[derive(Debug, Default)]
pub(crate) struct Owners(BTreeMap<String, Result<u32, String>>);

impl Owners {
    fn of(&mut self, roots: &Roots, path: &str) -> &Result<u32, String> {
        let ask = || (roots.owner)(&folder(roots, path)).map_err(|e| e.to_string());
        self.0.entry(path.to_owned()).or_insert_with(ask)
    }
}

impl Trust {
    /// The users that the settings trust, on this host.
    ///
    /// # Errors
    /// A reason for each name that is no user of this host.
    pub fn of(settings: &LiveSettings, roots: &Roots) -> Result<Trust, Vec<String>> {
        let passwd = if settings.trust.has_names() {
            fs::read_to_string(&roots.passwd).map_err(|e| {
                vec![format!(
                    "trust.users: cannot read {}: {e}; write numbers in place of names",
                    roots.passwd.display()
                )]
            })?
        } else {
            String::new()
        };
        Ok(Trust { users: settings.trust.uids(&passwd)? })
    }

    /// Whether what belongs to this user counts.
    pub(crate) fn trusts(&self, uid: u32) -> bool {
        uid == 0 || self.users.contains(&uid)
    }

    /// The owner by which the cgroup at `path` does not count; `None` if it does.
    pub(crate) fn stranger(&self, roots: &Roots, path: &str) -> Option<Stranger> {
        self.stranger_by(&mut Owners::default(), roots, path)
    }

    /// The same by owners that are known already.
    pub(crate) fn stranger_by(
        &self,
        owners: &mut Owners,
        roots: &Roots,
        path: &str,
    ) -> Option<Stranger> {
        ["/"].into_iter().chain(chain(path)).find_map(|above| {
            let owner = owners.of(roots, above);
            let trusted = owner.as_ref().is_ok_and(|uid| self.trusts(*uid));
            (!trusted).then(|| Stranger { cgroup: above.to_owned(), owner: owner.clone() })
        })
    }
}

impl Stranger {
    /// What to do so that the cgroup counts.
    pub(crate) fn next(&self) -> String {
        match &self.owner {
            Ok(uid) => format!("add {uid} to [trust] users"),
            Err(_) => "make it readable".to_owned(),
        }
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Ok(uid) => write!(to, "uid {uid} as owner of '{}'", self.cgroup),
            Err(e) => write!(to, "no owner of '{}' ({e})", self.cgroup),
        }
    }
}

/// The owner of a folder.
///
/// # Errors
/// What the kernel says.
pub(crate) fn owner(folder: &Path) -> io::Result<u32> {
    fs::symlink_metadata(folder).map(|meta| meta.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    fn trust(t: &MadeUp, users: &str) -> Result<Trust, Vec<String>> {
        let text = format!("[trust]\nusers = {users}\n");
        Trust::of(&LiveSettings::parse("t.toml", &text).unwrap(), &t.roots())
    }

    #[test]
    fn a_cgroup_counts_if_root_or_a_trusted_user_owns_it_and_all_above_it() {
        let t = MadeUp::new("trust");
        t.cgroup("/a/b/c/d", "cpu.weight", "100\n");
        let stranger = |users: &str, path: &str| {
            trust(&t, users).unwrap().stranger(&t.roots(), path).map(|s| (s.cgroup, s.owner))
        };
        let other = |path: &str, uid: u32| Some((path.to_owned(), Ok(uid)));
        assert_eq!((stranger("[]", "/a/b/c/d"), stranger("[]", "/")), (None, None));
        t.owner("/a/b", 1000);
        assert_eq!((stranger("[]", "/a"), stranger("[]", "/a/b")), (None, other("/a/b", 1000)));
        assert_eq!(stranger("[]", "/a/b/c/d"), other("/a/b", 1000), "though root owns c and d");
        assert_eq!(stranger("[1000]", "/a/b/c/d"), None);
        t.owner("/a/b/c", 1001);
        assert_eq!(stranger("[1000]", "/a/b/c/d"), other("/a/b/c", 1001));
        assert_eq!(stranger("[1000, 1001]", "/a/b/c/d"), None);
        t.owner("/", 5);
        assert_eq!(stranger("[]", "/a"), other("/", 5));
    }

    #[test]
    fn a_cgroup_whose_owner_cannot_be_read_does_not_count() {
        let t = MadeUp::new("trust-gone");
        let seen = Trust::default().stranger(&t.roots(), "/gone").unwrap();
        assert!(seen.to_string().starts_with("no owner of '/gone' (No such file"), "{seen}");
        assert_eq!(seen.next(), "make it readable");
    }

    #[test]
    fn names_are_those_of_this_host_and_are_looked_up_only_if_there_are_some() {
        let t = MadeUp::new("trust-names");
        let error = trust(&t, "[\"bob\"]").unwrap_err();
        assert!(error[0].starts_with("trust.users: cannot read /") && error.len() == 1);
        assert!(error[0].ends_with("; write numbers in place of names"), "{error:?}");
        assert!(trust(&t, "[7]").unwrap().trusts(7));
        t.put("passwd", b"bob:x:1007:1007::/:\n");
        let seen = trust(&t, "[\"bob\", 8]").unwrap();
        assert_eq!([0, 7, 8, 1007].map(|uid| seen.trusts(uid)), [true, false, true, true]);
        assert!(trust(&t, "[\"eve\"]").unwrap_err()[0].contains("cannot find 'eve'"));
        assert_eq!([0, 7].map(|uid| Trust::default().trusts(uid)), [true, false]);
    }

    #[test]
    fn the_owner_of_a_folder_is_the_kernels_word() {
        let t = MadeUp::new("owner");
        assert_eq!(owner(&t.path("cgroup")).ok(), crate::process::effective_uid());
        assert!(owner(&t.path("gone")).is_err());
    }
}
