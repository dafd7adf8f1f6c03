//! VMs as they were found when they were looked at last, and what tells that they have not changed
//! since; `discover` looks.

use crate::{found::FoundVm, kept::Kept};
use std::{collections::BTreeMap, path::Path};

/// What is different after most changes of a process: it is another, has executed another program,
/// has started or lost threads, or is in another cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Start of the process in clock ticks.
    pub(crate) started: u64,
    /// Its cgroup, below the cgroup root.
    pub(crate) own: String,
    /// The name that its program has given it.
    comm: Vec<u8>,
    threads: u64,
}

impl Mark {
    /// The mark of the process in the folder `dir`; `None` if it has ended.
    pub(crate) fn read(kept: &mut Kept, dir: &Path) -> Option<Mark> {
        let stat = kept.read(dir.join("stat")).ok()?;
        // The name may hold spaces and brackets; these are the fields 3, 20 and 22.
        let begin = stat.iter().position(|b| *b == b'(')? + 1;
        let end = stat.iter().rposition(|b| *b == b')').filter(|end| *end >= begin)?;
        let comm = stat[begin..end].to_vec();
        let mut fields = std::str::from_utf8(&stat[end + 1..]).ok()?.split_whitespace();
        fields.next().filter(|state| !matches!(*state, "Z" | "X"))?;
        let threads = fields.nth(16)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        let own = std::str::from_utf8(kept.read(dir.join("cgroup")).ok()?).ok()?;
        let own = own.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/");
        let own = own.trim_end_matches(" (deleted)").to_owned();
        Some(Mark { started, own, comm, threads })
    }
}

/// VMs by process, each with its mark of before it was looked at.
#[derive(Debug, Default)]
pub(crate) struct FoundBefore(BTreeMap<i32, (Mark, FoundVm)>);

impl FoundBefore {
    /// Takes note of a VM. One without vCPUs is just starting, or its threads have no names by
    /// which a new one is noticed: it is looked at with every scan.
    pub(crate) fn put(&mut self, mark: Mark, vm: &FoundVm) {
        if vm.vcpus() > 0 {
            self.0.insert(vm.pid, (mark, vm.clone()));
        } else {
            self.0.remove(&vm.pid);
        }
    }

    /// The VM of a process whose mark is `now` what it was.
    pub(crate) fn same(&self, pid: i32, now: impl FnOnce() -> Option<Mark>) -> Option<FoundVm> {
        let (mark, vm) = self.0.get(&pid)?;
        (now()? == *mark).then(|| vm.clone())
    }

    /// What was known of a process, which is known no more.
    pub(crate) fn take(&mut self, pid: i32) -> Option<FoundVm> {
        Some(self.0.remove(&pid)?.1)
    }

    /// Forgets all that are not `kept`.
    pub(crate) fn retain(&mut self, kept: impl Fn(i32) -> bool) {
        self.0.retain(|pid, _| kept(*pid));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Which, discover::Finder, made_up::MadeUp};
    use std::fs;

    /// A VM that was found, and whose program no look could find again.
    fn hidden(name: &str) -> (MadeUp, Finder) {
        let t = MadeUp::new(name);
        t.vm(8, "web", "/web.scope", 1);
        let mut finder = Finder::default();
        assert_eq!(finder.scan(&t.roots(), Which::All).len(), 1);
        fs::remove_file(t.path("proc/8/exe")).unwrap();
        (t, finder)
    }

    fn vms(t: &MadeUp, finder: &mut Finder) -> usize {
        finder.scan(&t.roots(), Which::All).len()
    }

    #[test]
    fn a_vm_that_has_not_changed_is_looked_at_every_16th_scan_alone() {
        let (t, mut finder) = hidden("before-same");
        let found = [0; 16].map(|_| vms(&t, &mut finder));
        // The 8th scan looks at the process 8.
        let expected = (0..16).map(|i| usize::from(i < 6));
        assert_eq!(found.to_vec(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_change_that_its_mark_tells_is_seen_with_the_next_scan() {
        for (name, old, new) in [
            ("thread", " 20 21 777 ", " 21 21 777 "),
            ("process", " 777 ", " 778 "),
            ("program", "(a b) c)", "(a b) d)"),
            ("end", ") S ", ") Z "),
        ] {
            let (t, mut finder) = hidden(&format!("before-{name}"));
            t.stat_says(8, old, new);
            assert_eq!(vms(&t, &mut finder), 0, "{name}");
        }
        let (t, mut finder) = hidden("before-cgroup");
        t.put("proc/8/cgroup", b"0::/db.scope\n");
        assert_eq!(vms(&t, &mut finder), 0);
    }

    #[test]
    fn what_tells_of_a_vm_in_other_ways_has_it_looked_at() {
        let (t, mut finder) = hidden("before-event");
        assert_eq!(finder.look(&t.roots(), Which::All, 8), None, "a thread has taken a name");
        assert_eq!(vms(&t, &mut finder), 0);
        let (t, mut finder) = hidden("before-settings");
        let (trust, settings) = Default::default();
        assert_eq!(finder.scan(&t.roots(), Which::Trusted(&trust, &settings)).len(), 0);
        // One without vCPUs has no mark.
        let t = MadeUp::new("before-start");
        t.vm(8, "web", "/web.scope", 0);
        let mut finder = Finder::default();
        assert_eq!(finder.scan(&t.roots(), Which::All)[0].vcpus(), 0);
        t.put("proc/8/task/9/comm", b"CPU 0/KVM\n");
        assert_eq!(finder.scan(&t.roots(), Which::All)[0].vcpus(), 1);
    }
}
