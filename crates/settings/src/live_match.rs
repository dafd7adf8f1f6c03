//! Which `[[vm]]` entry of the live host's settings file a VM matches; it knows nothing of
//! processes, and takes the caller's word on whether a name is a VM's own choice.

use crate::{LiveSettings, LiveVm};

/// What entries match: a VM, or a process that may be one.
#[derive(Clone, Copy, Debug)]
pub struct Called<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether entries may go by that name: a process gives itself any name that it likes.
    pub named: bool,
    /// Path of its cgroup, as `/proc/PID/cgroup` shows it.
    pub cgroup: &'a str,
}

impl LiveSettings {
    /// The first entry that matches.
    #[must_use]
    pub fn vm(&self, vm: Called<'_>) -> Option<&LiveVm> {
        self.vms.iter().find(|entry| entry.is_of(vm))
    }

    /// Whether an entry says by the cgroup that this is a VM; one that has a name alone never does.
    #[must_use]
    pub fn is_vm(&self, vm: Called<'_>) -> bool {
        self.vms.iter().any(|entry| entry.cgroup.is_some() && entry.is_of(vm))
    }
}

impl LiveVm {
    /// What messages call it: its name, else its cgroup.
    #[must_use]
    pub fn title(&self) -> &str {
        self.name.as_deref().or(self.cgroup.as_deref()).unwrap_or_default()
    }

    /// Whether it matches. Within a cgroup that the entry has, any name counts; without one, a name
    /// that the process gave itself matches `*` only.
    fn is_of(&self, vm: Called<'_>) -> bool {
        let pattern = self.name.as_deref();
        let fits = pattern.is_none_or(|pattern| matches(pattern, vm.name));
        fits && match &self.cgroup {
            Some(path) => within(path, vm.cgroup),
            None => vm.named || pattern.is_some_and(|p| p.bytes().all(|b| b == b'*')),
        }
    }
}

/// Whether a cgroup is the one at `path` or below it.
fn within(path: &str, cgroup: &str) -> bool {
    cgroup.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether `name` fits `pattern`, in which `*` stands for any text; in time that grows with the
/// length of the name, which a process chooses.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let (Some(head), Some(tail)) = (parts.next(), parts.next_back()) else {
        return pattern == name;
    };
    let Some(mut rest) = name.strip_prefix(head) else { return false };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called<'a>(name: &'a str, named: bool, cgroup: &'a str) -> Called<'a> {
        Called { name, named, cgroup }
    }

    fn title(s: &LiveSettings, vm: Called<'_>) -> String {
        s.vm(vm).map_or_else(String::new, |entry| entry.title().to_owned())
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, fits) in [
            ("web", "web", true),
            ("web", "web1", false),
            ("", "", true),
            ("*", "", true),
            ("*", "web", true),
            ("web*", "web", true),
            ("*b", "web", true),
            ("a*c*e", "abcde", true),
            ("a*c", "abcd", false),
            ("ab*ba", "aba", false),
            ("*é*", "café au lait", true),
            ("**x**", "axb", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} and {name}");
        }
    }

    #[test]
    fn a_long_name_is_matched_at_once() {
        let begin = std::time::Instant::now();
        assert!(!matches("*a*a*a*a*b", &"a".repeat(100_000)));
        assert!(begin.elapsed().as_secs() < 2, "{:?}", begin.elapsed());
    }

    #[test]
    fn a_cgroup_matches_what_is_in_it_and_below_it_and_a_name_beside_it_both() {
        let text = "[[vm]]\nname = \"db*\"\ncgroup = \"/vms\"\n[[vm]]\ncgroup = \
            \"/vms/a\"\n[[vm]]\nname = \"db*\"\nshares = 7\n";
        let s = LiveSettings::parse("t.toml", text).unwrap();
        assert_eq!(title(&s, called("db1", true, "/vms/b")), "db*");
        assert_eq!(s.vm(called("db1", true, "/vms/b")).unwrap().cgroup.as_deref(), Some("/vms"));
        assert_eq!(title(&s, called("web", true, "/vms/a")), "/vms/a");
        assert_eq!(title(&s, called("web", true, "/vms/a/x")), "/vms/a");
        assert_eq!(title(&s, called("web", true, "/vms/ab")), "");
        assert!(s.vm(called("db1", true, "/vms2")).unwrap().cgroup.is_none());
        assert!(s.is_vm(called("db1", false, "/vms/b")) && s.is_vm(called("x", false, "/vms/a")));
        assert!(!s.is_vm(called("db1", true, "/vms2")), "a name alone makes nothing a VM");
    }

    #[test]
    fn a_name_that_a_process_gave_itself_matches_nothing_but_what_matches_all() {
        let text = "[[vm]]\nname = \"web*\"\nreservation = \"50%\"\n[[vm]]\nname = \"*\"\nlimit = \
            \"100%\"\n";
        let s = LiveSettings::parse("t.toml", text).unwrap();
        assert_eq!(title(&s, called("web1", true, "/")), "web*");
        assert_eq!(title(&s, called("web1", false, "/")), "*");
        let one = LiveSettings::parse("t.toml", "[[vm]]\nname = \"web1\"\n").unwrap();
        assert!(one.vm(called("web1", true, "/")).is_some());
        assert!(one.vm(called("web1", false, "/")).is_none());
    }
}
