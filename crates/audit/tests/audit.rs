//! The oracle's result for a trace equals its result for the traced run; faults show in a trace
//! too, and lost events hide none of the others.

use audit::{Audit, Terms, audit};
use check::Invariant;
use sim::{Mutant, Options, Policy, Ticks, run_traced, scheduler_terms};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use trace::{Event, Kind, State, Trace, Why};
use units::Span;

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
const HALF_LOADED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/data/half-loaded.toml");
const THREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/data/three-vms.toml");
const REALTIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/data/realtime.toml");
const OFF_LINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/data/off-line.toml");

/// Cores of one VM at a time.
const APART: [(&str, u64); 1] = [("core_sharing", 1)];

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("one thread").write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The last run of a scenario with these knobs: what its oracle says, its trace, and what that is
/// held to.
fn traced(
    name: &str,
    policy: Policy,
    knobs: &[(&str, u64)],
) -> (check::Verdict, Vec<Event>, Terms) {
    let path = if name.ends_with(".toml") { name.to_owned() } else { format!("{SCENARIOS}{name}") };
    let scenario = settings::load(&path).expect("the scenario loads");
    let run = scenario.runs.last().expect("a run");
    let out = Shared::default();
    // Of odd ticks, so that instants are not shared by all pCPUs.
    let options = Options {
        policy,
        ticks: Ticks::Staggered,
        duration: Some(Span::from_secs(15)),
        knobs: knobs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        ..Options::default()
    };
    let outcome = run_traced(run, &options, Box::new(out.clone())).expect("it runs");
    let bytes = std::mem::take(&mut *out.0.lock().expect("one thread"));
    let terms = Terms::from(&scheduler_terms(&outcome.knobs, run.spec.host.hz));
    (
        outcome.verdict.expect("it was watched"),
        Trace::read(&bytes[..]).expect("a trace").events,
        terms,
    )
}

fn times(a: &Audit) -> [u64; 4] {
    [a.ready_max_ns, a.idle_while_waiting_max_ns, a.skew_max_ns, a.costop_max_ns]
}

#[test]
fn a_trace_is_judged_as_the_run_itself() {
    for name in [
        "demo",
        THREE,
        "confined",
        "coming-and-going",
        "pools-nested",
        "up-smp-mix",
        "sleepers",
        "held-wakes",
        "shares-busy-host",
        "whole-cores",
        "cores-apart",
        REALTIME,
        OFF_LINE,
    ] {
        let apart: &[_] = if name == "cores-apart" { &APART } else { &[] };
        let (verdict, events, terms) = traced(name, Policy::Tandem, apart);
        let found = audit(&events, &terms);
        let want = [
            verdict.ready_max_ns,
            verdict.idle_while_waiting_max_ns,
            verdict.skew_max_ns,
            verdict.costop_max_ns,
        ];
        assert_eq!((found.violations.first(), times(&found)), (None, want), "{name}");
        assert_eq!((found.span_ns > 14_000_000_000, found.lost), (true, 0), "{name}");
    }
}

#[test]
fn a_pcpu_that_is_off_line_does_not_idle_beside_what_waits() {
    for policy in ["tandem", "cfs"] {
        let (_, events, _) = traced(OFF_LINE, policy.parse().expect("a policy"), &[]);
        let mut replay = trace::Replay::new();
        let mut idle = [[0; 8]; 3];
        let mut add = |ended: &trace::Ended| {
            for s in ended.stretches.iter().filter(|s| s.now == trace::Now::Idle) {
                for (sums, (from, to)) in
                    idle.iter_mut().zip([(2_000, 6_000), (9_500, 10_000), (11_000, 15_000)])
                {
                    let (from, to) = (s.from_ns.max(from * 1_000_000), s.to_ns.min(to * 1_000_000));
                    sums[usize::from(s.pcpu.0)] += to.saturating_sub(from);
                }
            }
        };
        events.iter().for_each(|event| add(replay.step(event)));
        add(replay.finish());
        assert_eq!((&idle[0][4..], idle[1][3]), (&[0; 4][..], 0), "{policy}: {idle:?}");
        assert!(idle[2].iter().all(|ns| *ns > 2_000_000_000), "{policy}: {idle:?}");
    }
    let (_, events, _) = traced(OFF_LINE, Policy::Tandem, &[]);
    let report = trace::waits::analyse(&events, &trace::waits::WaitOptions::default());
    assert_eq!((report.all.wrong_idle, report.all.waits > 1_000), (0, true));
}

#[test]
fn faults_show_in_the_trace() {
    let table = [
        (Mutant::Starve, "up-smp-mix", Invariant::ReadyTooLong),
        (Mutant::NoPull, HALF_LOADED, Invariant::IdleWhileWaiting),
        (Mutant::LostKick, HALF_LOADED, Invariant::IdleWhileWaiting),
        // the record says that it goes on, and it does not
        (Mutant::LostCostart, "demo", Invariant::ReadyTooLong),
        (Mutant::WrongSlowest, "demo", Invariant::Skew),
        (Mutant::Stays, "whole-cores", Invariant::SharedCore),
        (Mutant::CoreShared, "cores-apart", Invariant::CoreSharing),
    ];
    for (mutant, name, invariant) in table {
        let apart: &[_] = if mutant == Mutant::CoreShared { &APART } else { &[] };
        let (_, events, terms) = traced(name, Policy::Mutant(mutant), apart);
        let found = audit(&events, &terms);
        assert!(found.counts[invariant as usize] > 0, "{mutant:?}: {:?}", found.counts);
    }
}

#[test]
fn a_thread_that_idles_for_its_core_is_seen_idle() {
    let (_, events, _) = traced("cores-apart", Policy::Tandem, &APART);
    let cores = trace::cores::analyse(&events, 0, u64::MAX);
    for vm in cores.vms.iter().filter(|vm| vm.name.starts_with("one")) {
        let b = vm.beside;
        assert!(b.alone_ns * 1000 > b.run_ns * 998 && b.run_ns > 5_000_000_000, "{vm:?}");
        assert!(b.others_ns < 1_000_000, "while it is kicked: {vm:?}");
    }
}

/// A trace in which nothing is wrong, with what `spoil` makes of it.
fn spoilt(spoil: impl Fn(&mut Vec<Event>)) -> Audit {
    let (_, mut events, terms) = traced("sleepers", Policy::Tandem, &[]);
    spoil(&mut events);
    audit(&events, &terms)
}

#[test]
fn what_cannot_be_is_named() {
    let runs = |e: &Event| matches!(e.kind, Kind::State { to: State::Run, .. });
    // A world that stops without a record runs on, beside the next one.
    let found = spoilt(|events| {
        let at = events
            .iter()
            .rposition(|e| matches!(e.kind, Kind::State { from: Some(State::Run), .. }))
            .expect("one stops");
        let at = events[..at]
            .iter()
            .rposition(|e| matches!(e.kind, Kind::State { from: Some(State::Run), .. }))
            .expect("one stops");
        events.remove(at);
    });
    assert!(
        found.counts[Invariant::OneWorldAPcpu as usize]
            + found.counts[Invariant::Transition as usize]
            > 0,
        "{found:?}"
    );
    // One that ran from its sleep.
    let found = spoilt(|events| {
        let at = events.iter().rposition(runs).expect("one runs");
        if let Kind::State { to, .. } = &mut events[at].kind {
            *to = State::Costop;
        }
    });
    assert!(found.counts[Invariant::Transition as usize] > 0, "{found:?}");
}

#[test]
fn where_events_are_lost_the_oracle_begins_anew_and_pcpus_of_which_nothing_is_known_do_not_idle() {
    let whole = spoilt(|_| ());
    let found = spoilt(|events| {
        let middle = events.len() / 2;
        let ns = events[middle].ns;
        events[middle] = Event { ns, pcpu: None, kind: Kind::Lost { events: Some(1) } };
    });
    assert_eq!((found.violations.first(), found.lost, whole.lost), (None, 1, 0));
    // From the middle on, as a recorder on a running host sees it: initial states first.
    let found = spoilt(|events| {
        let middle = events.len() / 2;
        let names: Vec<Event> =
            events[..middle].iter().filter(|e| e.kind.is_name()).cloned().collect();
        let mut replay = trace::Replay::new();
        for event in &events[..middle] {
            replay.step(event);
        }
        let ns = replay.ns();
        let told = |(world, now): (units::WorldId, &trace::WorldNow)| {
            let kind = Kind::State { world, from: None, to: now.state, why: Why::Told, on: now.on };
            Event { ns, pcpu: None, kind }
        };
        let told: Vec<Event> = replay.worlds().map(told).collect();
        let rest = events.split_off(middle);
        *events = names.into_iter().chain(told).chain(rest).collect();
    });
    assert_eq!((found.violations.first(), found.lost), (None, 0));
    assert!(
        found.span_ns < whole.span_ns && found.span_ns > whole.span_ns / 4,
        "{} {}",
        found.span_ns,
        whole.span_ns
    );
}

#[test]
fn worlds_are_held_to_the_homes_that_a_trace_has() {
    let (_, mut events, terms) = traced(THREE, Policy::Tandem, &[]);
    let clean = audit(&events, &terms);
    assert_eq!((clean.violations.first(), clean.counts[Invariant::Affinity as usize]), (None, 0));
    let homes = events.iter_mut().filter_map(|e| match &mut e.kind {
        Kind::Home { domains, .. } => Some(domains),
        _ => None,
    });
    let last = homes.last().expect("worlds have homes");
    *last ^= 0b11;
    let found = audit(&events, &terms);
    assert!(found.counts[Invariant::Affinity as usize] > 0, "{:?}", found.counts);
}
