//! Scheduling domains of a vCPU, made from the topology that its guest is shown; they say nothing
//! of where vCPUs run.
//!
//! Linux builds a level for the threads of a core (SMT), one for the cores of an LLC (MC) and one
//! above (DIE), and drops a level whose span is that of the level below. A guest with its topology
//! hidden has one level of single vCPUs that share no cache, as the flat hierarchy that was
//! proposed for guests of Xen has it ("flatten the scheduling domain hierarchy", linux-kernel,
//! 2015).

use std::ops::Range;

/// The topology that a guest is shown. vCPUs are numbered through: threads, cores, LLCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Threads of a core, 1 or more.
    pub threads_per_core: u32,
    /// vCPUs that share an LLC, a multiple of `threads_per_core`.
    pub vcpus_per_llc: u32,
}

/// A level of balancing, as one vCPU has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    /// vCPUs in it.
    pub(crate) span: Range<u32>,
    /// vCPUs of each of its groups.
    pub(crate) group: u32,
    /// Whether they share a cache.
    pub(crate) shares_cache: bool,
    /// Whether its groups are cores with several threads.
    pub(crate) of_cores: bool,
}

impl Domain {
    /// The group of a vCPU in it.
    pub(crate) fn group_of(&self, vcpu: u32) -> Range<u32> {
        let at = self.span.start + (vcpu - self.span.start) / self.group * self.group;
        at..(at + self.group).min(self.span.end)
    }

    /// All groups, in order.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.span.clone().step_by(self.group as usize).map(|v| self.group_of(v))
    }
}

/// The domains of a vCPU of so many, the smallest first.
pub(crate) fn of(vcpu: u32, vcpus: u32, shown: Option<&Shown>) -> Vec<Domain> {
    let Some(shown) = shown else {
        let all = Domain { span: 0..vcpus, group: 1, shares_cache: false, of_cores: false };
        return if vcpus > 1 { vec![all] } else { vec![] };
    };
    let (threads, llc) = (shown.threads_per_core, shown.vcpus_per_llc);
    let mut out: Vec<Domain> = vec![];
    for (size, shares_cache) in [(threads, true), (llc, true), (vcpus, false)] {
        let group = out.last().map_or(1, |below| below.span.len() as u32);
        if size > group {
            let at = vcpu / size * size;
            let of_cores = group == threads && threads > 1;
            out.push(Domain { span: at..(at + size).min(vcpus), group, shares_cache, of_cores });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_threads_cores_and_llcs_and_those_that_add_nothing_are_left_out() {
        let spans = |vcpu, threads_per_core, vcpus_per_llc| -> Vec<(Range<u32>, u32, bool)> {
            of(vcpu, 8, Some(&Shown { threads_per_core, vcpus_per_llc }))
                .into_iter()
                .map(|d| (d.span, d.group, d.shares_cache))
                .collect()
        };
        assert_eq!(spans(5, 2, 4), [(4..6, 1, true), (4..8, 2, true), (0..8, 4, false)]);
        assert_eq!(spans(5, 1, 4), [(4..8, 1, true), (0..8, 4, false)]);
        assert_eq!(spans(5, 1, 8), [(0..8, 1, true)]);
        assert_eq!(spans(5, 2, 8), [(4..6, 1, true), (0..8, 2, true)]);
    }

    #[test]
    fn a_guest_whose_topology_is_hidden_has_one_level_without_a_shared_cache() {
        let flat = of(3, 4, None);
        assert_eq!((flat.len(), flat[0].span.clone(), flat[0].shares_cache), (1, 0..4, false));
        assert_eq!(flat[0].groups().collect::<Vec<_>>(), [0..1, 1..2, 2..3, 3..4]);
        assert!(of(0, 1, None).is_empty());
    }
}
