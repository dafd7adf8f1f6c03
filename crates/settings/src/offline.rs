//! pCPUs that go off line while a run goes on: when, and why that cannot be.

use crate::{HostTask, RunSpec, VmSpec};
use serde::{Deserialize, Serialize};
use units::{PcpuId, PcpuSet, Span};

/// pCPUs that are off line for a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfflineSpec {
    /// Which.
    pub pcpus: PcpuSet,
    /// From when on, from the start of the run.
    pub from: Span,
    /// When they come on line again; never if left out.
    pub to: Option<Span>,
}

/// A pCPU comes on line or goes off line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PcpuChange {
    /// When, from the start of the run.
    pub at: Span,
    /// It is on line from then on. At one moment what goes comes first.
    pub online: bool,
    /// Which.
    pub pcpu: PcpuId,
}

/// All such changes of a run, in order.
#[must_use]
pub fn pcpu_changes(spec: &RunSpec) -> Vec<PcpuChange> {
    let mut out = vec![];
    for off in &spec.offline {
        for pcpu in off.pcpus.iter() {
            out.push(PcpuChange { at: off.from, online: false, pcpu });
            out.extend(off.to.map(|at| PcpuChange { at, online: true, pcpu }));
        }
    }
    out.sort();
    out
}

/// What is wrong with the times when pCPUs are off line, on a host of so many. The run's VMs are
/// counted out.
#[must_use]
pub fn offline_reasons(spec: &RunSpec, pcpus: usize) -> Vec<String> {
    let host = PcpuSet::first(pcpus);
    let mut out = vec![];
    for (i, off) in spec.offline.iter().enumerate() {
        let title = format!("offline {} (pCPUs {})", i + 1, off.pcpus);
        if let Some(p) = off.pcpus.iter().find(|p| !host.contains(*p)) {
            out.push(format!("{title}: seen pCPU {}, allowed 0..{}", p.0, pcpus - 1));
        }
        if off.from == Span::ZERO {
            out.push(format!("{title}: from: seen 0s, allowed 1ns or more; make the host smaller"));
        }
        if let Some(to) = off.to.filter(|to| *to <= off.from) {
            out.push(format!("{title}: to: seen {to}, allowed more than from ({})", off.from));
        }
    }
    if out.is_empty() {
        let mut online = host;
        for change in pcpu_changes(spec) {
            if online.contains(change.pcpu) == change.online {
                let p = change.pcpu.0;
                let at = change.at;
                out.push(format!(
                    "offline: pCPU {p} at {at}: seen two times that meet, allowed one; join them"
                ));
            }
            let one = PcpuSet::from_iter([change.pcpu]);
            online = if change.online { online.or(&one) } else { minus(&online, &one) };
            out.extend(stranded(spec, &online, change.at));
        }
        out.dedup();
    }
    out
}

fn minus(all: &PcpuSet, but: &PcpuSet) -> PcpuSet {
    all.iter().filter(|p| !but.contains(*p)).collect()
}

/// Worlds that may run on no pCPU that is on line. A kernel would widen their affinity for good.
fn stranded(spec: &RunSpec, online: &PcpuSet, at: Span) -> Option<String> {
    let nowhere = |set: &PcpuSet| set.and(online).is_empty();
    let of_vm = |vm: &VmSpec| {
        let allowed = (0..vm.vcpus as usize).find_map(|i| vm.allowed(i).filter(&nowhere));
        allowed.map(|set| format!("vm '{}'", vm.name) + &may(&set))
    };
    let of_task = |task: &HostTask| {
        let set = task.affinity.as_ref().filter(|set| nowhere(set));
        set.map(|set| format!("host task '{}'", task.name) + &may(set))
    };
    let found = if online.is_empty() {
        Some("the host has none".to_owned())
    } else {
        let vm = spec.vms.iter().find_map(of_vm);
        vm.or_else(|| spec.host_tasks.iter().find_map(of_task))
    };
    found.map(|who| format!("offline: at {at}: {who}, allowed one pCPU on line or more"))
}

fn may(set: &PcpuSet) -> String {
    format!(" may use pCPUs {set}, none of which is on line")
}

#[cfg(test)]
mod tests {
    use crate::raw::parse;
    use units::{PcpuId, Span};

    const HOST: &str = "[host]\ncores_per_llc = 4\n[[vm]]\nname = 'a'\nvcpus = 2\n";

    fn run(offline: &str) -> Result<crate::Scenario, String> {
        parse("t.toml", "t", &format!("{HOST}{offline}")).map_err(|e| e.to_string())
    }

    #[test]
    fn pcpus_go_before_others_come_and_each_change_is_one() {
        let text = "[[offline]]\npcpus = '1-2'\nfrom = '1s'\nto = '3s'\n\
            [[offline]]\npcpus = '3'\nfrom = '3s'\n";
        let run = run(text).unwrap();
        let changes = super::pcpu_changes(&run.runs[0].spec);
        let all: Vec<_> = changes.iter().map(|c| (c.at, c.pcpu.0, c.online)).collect();
        let s = Span::from_secs;
        assert_eq!(
            all,
            [
                (s(1), 1, false),
                (s(1), 2, false),
                (s(3), 3, false),
                (s(3), 1, true),
                (s(3), 2, true)
            ]
        );
        assert_eq!(changes[0].pcpu, PcpuId(1));
    }

    #[test]
    fn times_that_cannot_be_are_refused_with_their_reason() {
        let off = |pcpus: &str, more: &str| format!("[[offline]]\npcpus = '{pcpus}'\n{more}\n");
        for (text, part) in [
            (off("2-5", "from = '1s'"), "offline 1 (pCPUs 2-5): seen pCPU 4, allowed 0..3"),
            (off("1", "from = '0s'"), "from: seen 0s, allowed 1ns or more"),
            (off("1", "from = '2s'\nto = '2s'"), "to: seen 2s, allowed more than from (2s)"),
            (off("0-3", "from = '2s'"), "at 2s: the host has none, allowed one pCPU on line"),
            (
                off("1", "from = '2s'") + &off("1", "from = '3s'\nto = '4s'"),
                "pCPU 1 at 3s: seen two times that meet, allowed one",
            ),
            (
                off("1", "from = '2s'") + "[[host_task]]\nname = 't'\naffinity = '1'\n",
                "host task 't' may use pCPUs 1, none of which is on line",
            ),
            (
                off("2,3", "from = '2s'") + "[[vm]]\nname = 'b'\nvcpus = 1\ncpuset = '2-3'\n",
                "vm 'b' may use pCPUs 2-3, none of which is on line",
            ),
        ] {
            let text = run(&text).expect_err("must be refused");
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
