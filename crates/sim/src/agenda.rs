//! What a scenario lets happen to VMs and pCPUs, and when; it does nothing of it.

use settings::{RunSpec, pcpu_changes};

/// Time between the beginnings of VMs that the scenario lets begin at one moment: a few interrupts.
const OPEN_APART_NS: u64 = 10_000;

/// Something that happens to a VM, or to the host, at a time the scenario gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) what: What,
    pub(crate) vm: u32,
}

/// At one instant, what ends comes before what begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Close,
    Stop,
    /// A pCPU goes off line.
    Offline(u16),
    /// A pCPU comes on line.
    Online(u16),
    /// Settings change, by this change of `settings::changes`.
    Set(u32),
    Start,
    /// The vCPU of this number is added.
    Add(u32),
    Open,
}

/// All changes of a run, and which comes next.
#[derive(Debug)]
pub(crate) struct Agenda {
    changes: Vec<Change>,
    next: usize,
}

impl Agenda {
    pub(crate) fn new(spec: &RunSpec, settings: &[settings::Change]) -> Agenda {
        Agenda { changes: changes(spec, settings), next: 0 }
    }

    /// VMs that are powered on at the start.
    pub(crate) fn on_at_start(&self) -> impl Iterator<Item = u32> + '_ {
        self.changes.iter().filter(|c| c.at == 0 && c.what == What::Start).map(|c| c.vm)
    }

    /// The change that comes next.
    pub(crate) fn peek(&self) -> Option<Change> {
        self.changes.get(self.next).copied()
    }

    /// The change that comes next has been taken up.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }
}

/// Everything that the scenario lets happen to VMs, in order.
fn changes(spec: &RunSpec, settings: &[settings::Change]) -> Vec<Change> {
    let set =
        |(i, c): (u32, &settings::Change)| Change { at: c.at.ns(), what: What::Set(i), vm: 0 };
    let mut all: Vec<Change> = (0..).zip(settings).map(set).collect();
    all.extend(pcpu_changes(spec).into_iter().map(|c| {
        let what = if c.online { What::Online(c.pcpu.0) } else { What::Offline(c.pcpu.0) };
        Change { at: c.at.ns(), what, vm: 0 }
    }));
    for (vm, v) in spec.vms.iter().enumerate() {
        let mut push = |at: u64, what| all.push(Change { at, what, vm: vm as u32 + 1 });
        push(v.start.ns(), What::Start);
        v.stop.iter().for_each(|s| push(s.ns(), What::Stop));
        for (i, at) in v.hot_add.iter().enumerate() {
            push(at.ns(), What::Add(v.vcpus - (v.hot_add.len() - i) as u32));
        }
        for window in v.active.iter().filter(|w| w.to.is_none_or(|t| t > v.start)) {
            push(window.from.ns().max(v.start.ns()), What::Open);
            window.to.iter().for_each(|t| push(t.ns(), What::Close));
        }
        if v.active.is_empty() {
            push(v.start.ns(), What::Open);
        }
    }
    all.sort();
    // VMs do not begin in the same ns: each sees what the one before it has made of the host.
    let mut rank = 0;
    let mut last = None;
    for change in all.iter_mut().filter(|c| c.what == What::Open) {
        rank = if last.replace(change.at) == Some(change.at) { rank + 1 } else { 0 };
        change.at += rank * OPEN_APART_NS;
    }
    all.sort();
    all
}
