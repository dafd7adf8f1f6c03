//! Every wait of a world for a pCPU, and whether a pCPU that idled meanwhile was wrong to: RDY's
//! judgement, made by rule.
//!
//! RDY found a world that waited 10.795 ms while a pCPU was seen idle 31 times, and judged that
//! correct: each idled very briefly, and the world that had run there came back soon. So the law is
//! about single idle times: a pCPU that the world may use by its affinity and its home, idle for
//! longer than `brief_ns` without interruption, while the world was READY and not parked, idled
//! wrongly.

use crate::homes::Homes;
use crate::idle::{Closed, Past};
use crate::replay::{End, Replay, Stay};
use crate::report::{self, Report};
use crate::{Event, Kind, Now, State, Waker};
use schemars::JsonSchema;
use serde::Serialize;
use units::{CoreSharing, PcpuId, VmId, WorldId};

/// What is looked at, and what is brief.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitOptions {
    /// Waits that ended before this are left out, in ns of the trace's clock.
    pub from_ns: u64,
    /// Waits that began at or after this are left out, in ns.
    pub to_ns: u64,
    /// How long a pCPU may idle beside a wait, in ns: what a kick takes until a world runs.
    pub brief_ns: u64,
    /// What the threads of a core may run at once: a thread rightly idles while another thread of
    /// its core runs a world beside which the waiting one may not.
    pub core_sharing: CoreSharing,
}

impl Default for WaitOptions {
    fn default() -> WaitOptions {
        WaitOptions {
            from_ns: 0,
            to_ns: u64::MAX,
            brief_ns: 100_000,
            core_sharing: CoreSharing::Any,
        }
    }
}

/// What a wait is judged to be; the last is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// No pCPU that the world may use idled meanwhile.
    Fine,
    /// One did, for no longer than is brief.
    Brief,
    /// A limit or co-scheduling held the world back.
    HeldBack,
    /// Events are missing: nothing can be said.
    Cut,
    /// A pCPU was wrong to idle.
    WrongIdle,
}

impl Judgement {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Judgement::Fine => "fine",
            Judgement::Brief => "brief",
            Judgement::HeldBack => "held-back",
            Judgement::Cut => "cut",
            Judgement::WrongIdle => "WRONG-IDLE",
        }
    }
}

/// A wait: a stay in READY or COSTOP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Wait {
    /// The world.
    pub world: WorldId,
    /// Its name, or its number.
    pub name: String,
    /// Its VM, if it is known.
    pub vm: Option<VmId>,
    /// Name of the VM, or empty.
    pub vm_name: String,
    /// READY or COSTOP.
    pub state: State,
    /// Since when, in ns of the trace's clock.
    pub since_ns: u64,
    /// How long, in ns.
    pub ns: u64,
    /// How it ended.
    pub end: End,
    /// The pCPU that it ran on then, if it did.
    pub ran_on: Option<PcpuId>,
    /// The pCPU in whose queue it was last.
    pub queued_on: Option<PcpuId>,
    /// Its waker: a world's name with its VM's, `interrupt`, `?`; none if no wake-up led to the
    /// wait.
    pub waker: Option<String>,
    /// Whether it slept before: the wait is the latency of a wake-up.
    pub slept: bool,
    /// At how many state changes a pCPU that it may use was seen idle. RDY's NumberIdle.
    pub seen_idle: u32,
    /// Number of idle times during it.
    pub idle_stretches: u32,
    /// How long at least one pCPU idled beside it, in ns.
    pub idle_ns: u64,
    /// The longest of these idle times, in ns.
    pub longest_idle_ns: u64,
    /// Which pCPU that was.
    pub idle_pcpu: Option<PcpuId>,
    /// How long a limit held it back, in ns.
    pub held_ns: u64,
    /// The world that ran most meanwhile where it was queued, named with its VM, and for how long
    /// in ns.
    pub instead: Option<(String, u64)>,
    /// pCPUs of which it was not known at the end what they do.
    pub unseen_pcpus: usize,
    /// The judgement.
    pub judgement: Judgement,
    /// Why it is judged so.
    pub because: String,
}

impl Wait {
    /// RDY's words: `pr=1172 Wt=10795 Frm=203817, NumberIdle=31 WtOnCou=3`, times in µs, `Frm`
    /// since `zero_ns`.
    #[must_use]
    pub fn rdy(&self, zero_ns: u64) -> String {
        let from = self.since_ns.saturating_sub(zero_ns) / 1000;
        let on = self.queued_on.map_or("?".to_owned(), |p| p.0.to_string());
        format!(
            "pr={} Wt={} Frm={from}, NumberIdle={} WtOnCou={on}",
            self.world.0,
            self.ns / 1000,
            self.seen_idle
        )
    }

    /// What it costs, to be sorted by: idling that was wrong, else the wait itself, in ns.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        if self.judgement == Judgement::WrongIdle { self.longest_idle_ns } else { self.ns }
    }
}

/// All waits of a trace, worst first.
#[must_use]
pub fn analyse(events: &[Event], options: &WaitOptions) -> Report {
    analyse_some(events, options, |_| true)
}

/// The waits of a trace that are to be kept, worst first; each is judged by all that happened.
#[must_use]
pub fn analyse_some(
    events: &[Event],
    options: &WaitOptions,
    keep: impl Fn(&Wait) -> bool,
) -> Report {
    let mut replay = Replay::new();
    let (mut past, mut homes) = (Past::default(), Homes::default());
    let (mut waits, mut unseen_begin) = (vec![], 0);
    let mut take = |replay: &Replay, past: &Past, homes: &Homes, stays: &[Stay]| {
        for stay in stays.iter().filter(|s| matches!(s.was.state, State::Ready | State::Costop)) {
            if stay.to_ns < options.from_ns || stay.was.since_ns >= options.to_ns {
                continue;
            }
            if stay.was.begun {
                waits.push(wait(replay, past, homes, stay, options));
            } else {
                unseen_begin += 1;
            }
        }
    };
    let mut unknown_before = 0;
    for event in events {
        if let Kind::State { world, to: State::Run, .. } = event.kind {
            let known = replay.world(world).is_some()
                || event.ns < options.from_ns
                || event.ns >= options.to_ns;
            unknown_before += u64::from(!known);
        }
        let ended = replay.step(event).clone();
        ended.stretches.iter().for_each(|s| past.add(s));
        take(&replay, &past, &homes, &ended.stays);
        homes.take(event);
        if matches!(event.kind, Kind::State { .. }) {
            past.change(replay.ns());
        }
    }
    let ended = replay.finish().clone();
    ended.stretches.iter().for_each(|s| past.add(s));
    take(&replay, &past, &homes, &ended.stays);
    waits.retain(keep);
    let begin_ns = events.iter().find(|e| !e.kind.is_name()).map_or(0, |e| e.ns);
    report::report(waits, unseen_begin + unknown_before, options.brief_ns, begin_ns)
}

fn wait(replay: &Replay, past: &Past, homes: &Homes, stay: &Stay, options: &WaitOptions) -> Wait {
    let (world, was, names) = (stay.world, &stay.was, replay.names());
    let (allowed, home_ns) = homes.allowed(names, world);
    let (allowed, from) = (allowed.as_ref(), was.since_ns);
    let closed = Closed { to: names.vm_of(world).map(|v| v.0), by: options.core_sharing };
    // Before its home changed others were right to idle there.
    let beside = past.beside(replay, from.max(home_ns), allowed, &stay.held, closed);
    let longest = beside.longest.map_or(0, |l| l.0);
    let ran_on = if stay.end == End::Became(State::Run) { stay.next_on } else { None };
    let queued_on = was.on.or(ran_on);
    let instead = queued_on.and_then(|p| past.ran_most(replay, p, from));
    let vm = names.vm_of(world).map(|v| v.0);
    let waker = was.waker.map(|w| match w {
        Waker::World(w) => names.full(w),
        Waker::Interrupt => "interrupt".to_owned(),
        Waker::Unknown => "?".to_owned(),
    });
    let may = |p: usize| allowed.is_none_or(|a| a.contains(PcpuId(p as u16)));
    let unseen = replay
        .pcpus()
        .iter()
        .enumerate()
        .filter(|(p, now)| may(*p) && matches!(now.0, Now::Unknown))
        .count();
    let mut wait = Wait {
        world,
        name: names.world(world),
        vm,
        vm_name: vm.map_or(String::new(), |v| names.vm(v)),
        state: was.state,
        since_ns: from,
        ns: stay.to_ns - from,
        end: stay.end,
        ran_on,
        queued_on,
        waker,
        slept: was.state == State::Ready
            && matches!(was.before, Some(State::Wait | State::WaitIdle)),
        seen_idle: beside.seen,
        idle_stretches: beside.stretches,
        idle_ns: beside.ns,
        longest_idle_ns: longest,
        idle_pcpu: beside.longest.map(|l| l.1),
        held_ns: stay.held.iter().map(|h| h.1 - h.0).sum(),
        instead: instead.map(|(w, ns)| (names.full(w), ns)),
        // At the end of the trace or of what is known, every pCPU is unknown.
        unseen_pcpus: if matches!(stay.end, End::Became(_)) { unseen } else { 0 },
        judgement: Judgement::Fine,
        because: String::new(),
    };
    (wait.judgement, wait.because) = judge(&wait, options.brief_ns);
    wait
}

fn judge(w: &Wait, brief_ns: u64) -> (Judgement, String) {
    let us = |ns: u64| format!("{}.{:03} us", ns / 1000, ns % 1000);
    let idle = || {
        let p = w.idle_pcpu.map_or("a pCPU".to_owned(), |p| format!("pCPU {}", p.0));
        let own = if w.idle_pcpu.is_some() && w.idle_pcpu == w.queued_on {
            ", in whose queue it was,"
        } else {
            ""
        };
        format!("{p}{own} idled for {} without a break", us(w.longest_idle_ns))
    };
    if w.state == State::Costop {
        return (Judgement::HeldBack, "co-stopped so that its siblings catch up".to_owned());
    }
    if w.longest_idle_ns > brief_ns {
        let free = if w.held_ns > 0 { ", outside of what a limit held it back" } else { "" };
        return (
            Judgement::WrongIdle,
            format!("{} beside it, more than {}{free}", idle(), us(brief_ns)),
        );
    }
    if w.end == End::Lost {
        return (Judgement::Cut, "events were lost while it waited".to_owned());
    }
    if w.held_ns > 0 {
        return (Judgement::HeldBack, format!("a limit held it back for {} of it", us(w.held_ns)));
    }
    let (judgement, mut because) = if w.idle_stretches > 0 {
        (Judgement::Brief, format!("{}, no more than {}", idle(), us(brief_ns)))
    } else {
        (Judgement::Fine, "no pCPU that it may use was seen idle".to_owned())
    };
    if w.unseen_pcpus > 0 {
        because.push_str(&format!("; of {} pCPUs it is not known", w.unseen_pcpus));
    }
    (judgement, because)
}
