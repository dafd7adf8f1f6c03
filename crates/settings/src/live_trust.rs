//! The users that the live host's settings file trusts as it trusts root, by name or number;
//! `crates/host` decides what that lets them do. It reads no file: the caller has /etc/passwd.

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use std::{collections::BTreeSet, fmt};

/// What the file says of trust; nothing if left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveTrust {
    /// Users whose cgroups count like root's.
    #[serde(default)]
    pub users: Vec<LiveUser>,
}

/// A user as the file names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveUser {
    /// By number (uid).
    Uid(u32),
    /// By name.
    Name(String),
}

/// The kernel has no user of a higher number: -1 is none.
const UID_MAX: u32 = u32::MAX - 1;
/// What a reason shows of a name.
const SHOWN: usize = 40;

impl LiveTrust {
    /// Whether a name needs /etc/passwd.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.users.iter().any(|user| matches!(user, LiveUser::Name(_)))
    }

    /// Numbers of the users; `passwd` is the text of /etc/passwd.
    ///
    /// # Errors
    /// A reason for each name that is none there.
    pub fn uids(&self, passwd: &str) -> Result<BTreeSet<u32>, Vec<String>> {
        let (mut uids, mut reasons) = (BTreeSet::new(), vec![]);
        for user in &self.users {
            match user {
                LiveUser::Uid(uid) => {
                    uids.insert(*uid);
                }
                LiveUser::Name(name) => match uid_of(passwd, name) {
                    Some(uid) => {
                        uids.insert(uid);
                    }
                    None => reasons.push(unknown(name)),
                },
            }
        }
        if reasons.is_empty() { Ok(uids) } else { Err(reasons) }
    }
}

fn unknown(name: &str) -> String {
    let shown: String = name.chars().take(SHOWN).collect();
    format!(
        "trust.users: cannot find '{}': seen no such user in /etc/passwd, allowed one that is \
            there, or a number 0..{UID_MAX} without quotes; correct the name, or write the number \
            that `id -u` prints",
        shown.escape_debug()
    )
}

/// Number of a user by the first line that has the name: `name:password:uid:gid:…`. Other lines,
/// such as comments and `+` of NIS, have other names.
fn uid_of(passwd: &str, name: &str) -> Option<u32> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    let mut rest = lines.find_map(|mut f| (f.next() == Some(name)).then_some(f))?;
    rest.nth(1)?.parse().ok().filter(|uid| *uid <= UID_MAX)
}

impl<'de> Deserialize<'de> for LiveUser {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LiveUser, D::Error> {
        from.deserialize_any(UserVisitor)
    }
}

struct UserVisitor;

impl Visitor<'_> for UserVisitor {
    type Value = LiveUser;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "a user: a name in quotes, or a number 0..{UID_MAX}")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<LiveUser, E> {
        let uid = u32::try_from(number).ok().filter(|uid| *uid <= UID_MAX);
        uid.map(LiveUser::Uid).ok_or_else(|| {
            E::custom(format!(
                "trust.users: seen {number}, allowed a number 0..{UID_MAX}, or a name in quotes"
            ))
        })
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<LiveUser, E> {
        Ok(LiveUser::Name(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveSettings;

    const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\n# a comment\n+::::::\n\
        libvirt-qemu:x:64055:994:Libvirt:/var/lib/libvirt:/usr/sbin/nologin\n\
        odd:x:many:1::/:\nnone:x:4294967295:1::/:\nodd2\nroot:x:7:7::/:\n";

    fn trust(users: &str) -> Result<LiveTrust, String> {
        LiveSettings::parse("t.toml", &format!("[trust]\nusers = {users}\n"))
            .map(|s| s.trust)
            .map_err(|e| e.reasons.join("; "))
    }

    #[test]
    fn users_are_names_and_numbers_and_nobody_is_trusted_unless_it_is_said() {
        let uids = |users: &str| trust(users).unwrap().uids(PASSWD).unwrap();
        assert_eq!(uids("[\"libvirt-qemu\", 1000, 1000]"), [1000, 64_055].into());
        assert_eq!(uids("[\"root\"]"), [0].into());
        assert_eq!((uids("[]"), uids("[4294967294]")), ([].into(), [4_294_967_294].into()));
        assert_eq!(LiveTrust::default(), trust("[]").unwrap());
        let none = LiveSettings::parse("t.toml", "[trust]\n").unwrap().trust;
        assert_eq!((none.has_names(), none.uids("")), (false, Ok([].into())));
        assert!(trust("[3, \"bob\"]").unwrap().has_names());
    }

    #[test]
    fn a_user_that_is_not_there_is_refused_by_name_and_every_one_is() {
        let all = "[\"libvirt-qem\", \"odd\", \"odd2\", \"none\", \"\", \"1000\", \"+\", 5]";
        let reasons = trust(all).unwrap().uids(PASSWD).unwrap_err();
        assert_eq!(reasons.len(), 7);
        assert_eq!(
            reasons[0],
            "trust.users: cannot find 'libvirt-qem': seen no such user in /etc/passwd, allowed \
                one that is there, or a number 0..4294967294 without quotes; correct the name, or \
                write the number that `id -u` prints"
        );
        assert!(reasons[5].starts_with("trust.users: cannot find '1000': "), "{}", reasons[5]);
    }

    #[test]
    fn what_is_no_user_is_refused_with_its_place() {
        for (users, part) in [
            ("[-1]", "trust.users: seen -1, allowed a number 0..4294967294, or a name in quotes"),
            ("[4294967295]", "seen 4294967295, allowed a number 0..4294967294"),
            ("[true]", "expected a user: a name in quotes, or a number 0..4294967294"),
            ("\"bob\"", "expected a sequence"),
        ] {
            let seen = trust(users).unwrap_err();
            assert!(seen.contains(part) && seen.contains("line 2, column "), "{seen}");
        }
        assert!(LiveSettings::parse("t.toml", "[trust]\nuser = []\n").is_err());
    }
}
