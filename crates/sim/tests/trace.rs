//! The trace of a run says what its accounts say, to the nanosecond, is the same for the same seed,
//! and judges a planted fault.

use ::trace::waits::{Judgement, WaitOptions, analyse};
use ::trace::{Event, Kind, Move, Now, Replay, State, Stay, Stretch, Trace, Waker, Why};
use sim::{Mutant, Options, Outcome, Policy, SimError, Ticks, run, run_traced};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use units::{Span, WorldId};
use views::{RunResult, Times};

const TWO_AT_5: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/two-at-5.toml");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");

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

fn scenario(name: &str) -> settings::Scenario {
    let path = if name.ends_with(".toml") { name.to_owned() } else { format!("{ROOT}{name}") };
    settings::load(&path).expect("the scenario loads")
}

/// What the first run of a scenario gives, and the bytes of its trace.
fn traced(name: &str, options: &Options) -> (Result<Outcome, SimError>, Vec<u8>) {
    traced_run(name, 0, options)
}

fn traced_run(name: &str, run: usize, options: &Options) -> (Result<Outcome, SimError>, Vec<u8>) {
    let out = Shared::default();
    let outcome = run_traced(&scenario(name).runs[run], options, Box::new(out.clone()));
    let bytes = std::mem::take(&mut *out.0.lock().expect("one thread"));
    (outcome, bytes)
}

fn read(bytes: &[u8]) -> Vec<Event> {
    let trace = Trace::read(bytes).expect("it is a trace");
    assert_eq!((trace.gaps, trace.skipped), (vec![], 0));
    trace.events
}

/// Every stay of every world.
fn stays(events: &[Event]) -> Vec<Stay> {
    let mut replay = Replay::new();
    let mut out: Vec<Stay> = events.iter().flat_map(|e| replay.step(e).stays.clone()).collect();
    out.extend(replay.finish().stays.clone());
    assert_eq!(replay.late(), 0, "events are in the order of time");
    out
}

/// Times by the trace between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    run_ns: u64,
    ready_ns: u64,
    costop_ns: u64,
    wait_ns: u64,
    idle_ns: u64,
    limited_ns: u64,
    migrations: u64,
}

fn clip((a, b): (u64, u64), from: u64, to: u64) -> u64 {
    b.min(to).saturating_sub(a.max(from))
}

fn told(events: &[Event], from: u64, to: u64) -> BTreeMap<WorldId, Told> {
    let mut out: BTreeMap<WorldId, Told> = BTreeMap::new();
    for stay in stays(events) {
        let times = out.entry(stay.world).or_default();
        let ns = clip((stay.was.since_ns, stay.to_ns), from, to);
        match stay.was.state {
            State::Run => times.run_ns += ns,
            State::Ready => times.ready_ns += ns,
            State::Costop => times.costop_ns += ns,
            State::Wait => times.wait_ns += ns,
            State::WaitIdle => {
                (times.wait_ns, times.idle_ns) = (times.wait_ns + ns, times.idle_ns + ns)
            }
            State::None => panic!("a stay in no state"),
        }
        // Parked at ns 0 counts as not parked: 0 stands for that, and no clock but the simulator's
        // shows it.
        times.limited_ns +=
            stay.held.iter().filter(|h| h.0 > 0).map(|h| clip(*h, from, to)).sum::<u64>();
    }
    // The counts at the end of the warm-up are taken before whatever else happens at that ns.
    let migrates =
        |e: &&Event| matches!(e.kind, Kind::Migrate { .. }) && (from..to).contains(&e.ns);
    for event in events.iter().filter(migrates) {
        out.entry(event.kind.world().expect("a world")).or_default().migrations += 1;
    }
    out
}

fn of(t: &Times) -> Told {
    let Times { run_ns, ready_ns, costop_ns, wait_ns, idle_ns, limited_ns, migrations, .. } = *t;
    Told { run_ns, ready_ns, costop_ns, wait_ns, idle_ns, limited_ns, migrations }
}

/// Holds the trace of so many seconds of a scenario's run to its result.
fn exact((name, run): (&str, usize), secs: u64, ticks: Ticks, policy: Policy) {
    let options = Options {
        ticks,
        policy,
        duration: Some(Span::from_secs(secs)),
        check: false,
        ..Options::default()
    };
    let (outcome, bytes) = traced_run(name, run, &options);
    let result = outcome.expect("it runs").result;
    let events = read(&bytes);
    let (from, to) = (secs * 1_000_000_000 - result.duration_ns, secs * 1_000_000_000);
    let told = told(&events, from, to);
    let worlds = result.vms.iter().flat_map(|v| v.worlds.iter().map(|w| (&v.name, w)));
    let mut count = 0;
    for (i, (vm, world)) in worlds.enumerate() {
        let seen = told.get(&WorldId(i as u32 + 1)).copied().unwrap_or_default();
        assert_eq!(seen, of(&world.times), "{name} {ticks:?}: {vm}/{}", world.name);
        count += 1;
    }
    let system: Vec<&Told> = told.iter().filter(|(w, _)| w.0 > count).map(|t| t.1).collect();
    let pool = result.pools.iter().find(|p| p.path == "/system").expect("the system group");
    let sum = |f: fn(&Told) -> u64| system.iter().map(|t| f(t)).sum::<u64>();
    assert_eq!(
        (sum(|t| t.run_ns), sum(|t| t.ready_ns)),
        (pool.used_ns, pool.ready_ns),
        "{name} {ticks:?}: host tasks"
    );
    let wrong_idle = waits_are_ready_time(name, &events, from, to, &told);
    assert!(wrong_idle == 0 || policy != Policy::Tandem, "{name}: no pCPU is wrong to idle");
    pcpus_are_busy_or_idle(name, &events, from, to, &result);
}

/// What each pCPU does is known at every moment, and the time that it runs worlds is its busy time.
fn pcpus_are_busy_or_idle(name: &str, events: &[Event], from: u64, to: u64, result: &RunResult) {
    let mut replay = Replay::new();
    let mut stretches: Vec<Stretch> =
        events.iter().flat_map(|e| replay.step(e).stretches.clone()).collect();
    stretches.extend(replay.finish().stretches.clone());
    for p in &result.pcpus {
        let sum = |is: fn(&Now) -> bool| {
            let own = stretches.iter().filter(|s| usize::from(s.pcpu.0) == p.id && is(&s.now));
            own.map(|s| clip((s.from_ns, s.to_ns), from, to)).sum::<u64>()
        };
        assert_eq!(sum(|now| matches!(now, Now::World(_))), p.busy_ns, "{name}: pCPU {}", p.id);
        assert_eq!(
            sum(|now| matches!(now, Now::Idle | Now::Kept)),
            result.duration_ns - p.busy_ns,
            "{name}: pCPU {}",
            p.id
        );
    }
}

/// What `trace waits` lists sums to the ready time of each world. Waits beside a pCPU that was
/// wrong to idle.
fn waits_are_ready_time(
    name: &str,
    events: &[Event],
    from: u64,
    to: u64,
    told: &BTreeMap<WorldId, Told>,
) -> usize {
    let report = analyse(events, &WaitOptions::default());
    assert_eq!(report.unknown_begin, 0, "{name}: every wait is seen from its begin");
    let mut sums: BTreeMap<WorldId, u64> = BTreeMap::new();
    for w in &report.waits {
        *sums.entry(w.world).or_default() += clip((w.since_ns, w.since_ns + w.ns), from, to);
    }
    for (world, times) in told {
        assert_eq!(
            sums.get(world).copied().unwrap_or(0),
            times.ready_ns + times.costop_ns,
            "{name}: world {}",
            world.0
        );
    }
    report.all.wrong_idle as usize
}

macro_rules! exact {
    ($($test:ident $policy:literal $name:literal $run:literal $secs:literal;)*) => {
        $(#[test]
        fn $test() {
            let policy = $policy.parse().expect("a policy");
            for ticks in [Ticks::Aligned, Ticks::Staggered] {
                exact(($name, $run), $secs, ticks, policy);
            }
        })*
    };
}

// Sleepers and host tasks; births and deaths; pools under limits; pinned worlds, and such as swap.
// Policies that write no trace of their own.
exact! {
    the_trace_of_sleepers_is_their_accounts "tandem" "sleepers" 0 9;
    the_trace_of_vms_that_come_and_go_is_their_accounts "tandem" "coming-and-going" 0 35;
    the_trace_of_limited_pools_is_their_accounts "tandem" "pools-nested" 0 9;
    the_trace_of_one_limited_pool_is_its_accounts "tandem" "pool-limit" 0 9;
    the_trace_of_held_worlds_is_their_accounts "tandem" "confined" 0 9;
    the_trace_of_held_worlds_that_wake_is_their_accounts "tandem" "held-wakes" 0 25;
    the_trace_of_wide_and_narrow_vms_is_their_accounts "tandem" "up-smp-mix" 0 9;
    the_trace_of_two_that_meet_is_their_accounts "tandem" "two-at-20" 0 9;
    the_trace_of_cfs_is_its_accounts "cfs" "pool-limit" 7 9;
    the_trace_of_eevdf_is_its_accounts "eevdf" "sleepers" 0 9;
    the_trace_of_a_co_scheduler_is_its_accounts "esx-3.5" "up-smp-mix" 0 9;
    the_trace_of_credit_is_its_accounts "xen-credit" "coming-and-going" 0 35;
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_or_other_ticks_do_not() {
    let bytes = |seed, ticks| {
        let options = Options {
            seed: Some(seed),
            ticks,
            duration: Some(Span::from_secs(4)),
            check: false,
            ..Options::default()
        };
        traced("sleepers", &options).1
    };
    let one = bytes(1, Ticks::Aligned);
    assert!(one.len() > 100_000);
    assert!(one == bytes(1, Ticks::Aligned));
    assert!(one != bytes(2, Ticks::Aligned));
    assert!(one != bytes(1, Ticks::Staggered));
}

#[test]
fn recording_changes_nothing() {
    for name in ["sleepers", "pools-nested"] {
        let options = Options { duration: Some(Span::from_secs(12)), ..Options::default() };
        let plain = run(&scenario(name).runs[0], &options).expect("it runs");
        let recorded = traced(name, &options).0.expect("it runs");
        assert_eq!(
            (plain.stats, format!("{:?}", plain.result)),
            (recorded.stats, format!("{:?}", recorded.result))
        );
    }
}

#[test]
fn a_trace_names_its_host_its_vms_and_its_worlds() {
    let options =
        Options { duration: Some(Span::from_secs(3)), check: false, ..Options::default() };
    let events = read(&traced("pools-nested", &options).1);
    let mut names = trace::Names::default();
    events.iter().for_each(|e| names.take(e));
    assert_eq!(names.pcpus(), Some(16));
    let vm = names.vm_of(WorldId(1)).expect("a VM").0;
    let pool = events.iter().find_map(|e| match &e.kind {
        Kind::Vm { vm: v, pool, .. } if *v == vm => Some(pool.clone()),
        _ => None,
    });
    let first = &scenario("pools-nested").runs[0].spec.vms[0];
    assert_eq!((names.vm(vm), names.world(WorldId(1))), (first.name.clone(), "vcpu0".to_owned()));
    assert!(pool.expect("it is told").ends_with(first.pool.as_deref().unwrap_or("/")));
    let marks: Vec<&str> = events
        .iter()
        .filter_map(|e| if let Kind::Mark { text } = &e.kind { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(marks, ["the run ends"]);
    let confined = scenario("confined").runs[0].spec.vms.clone();
    let mut names = trace::Names::default();
    read(&traced("confined", &options).1).iter().for_each(|e| names.take(e));
    let allowed: Vec<_> =
        confined.iter().flat_map(|vm| (0..vm.vcpus as usize).map(|i| vm.allowed(i))).collect();
    assert!(allowed.iter().any(Option::is_some));
    for (i, allowed) in allowed.iter().enumerate() {
        assert_eq!(names.allowed(WorldId(i as u32 + 1)), allowed.as_ref(), "world {}", i + 1);
    }
}

#[test]
fn a_trace_tells_wake_ups_migrations_kicks_queues_and_why_each_state_changed() {
    let mut whys: BTreeMap<Why, u32> = BTreeMap::new();
    let mut moves: BTreeMap<Move, u32> = BTreeMap::new();
    for (name, secs) in [
        ("sleepers", 9),
        ("pools-nested", 9),
        ("coming-and-going", 35),
        ("confined", 9),
        ("confined-busy-host", 9),
    ] {
        let options =
            Options { duration: Some(Span::from_secs(secs)), check: false, ..Options::default() };
        let (outcome, bytes) = traced(name, &options);
        let (outcome, events) = (outcome.expect("it runs"), read(&bytes));
        let count = |f: fn(&Kind) -> bool| events.iter().filter(|e| f(&e.kind)).count() as u64;
        assert_eq!(count(|k| matches!(k, Kind::Wake { .. })), outcome.stats.wakeups, "{name}");
        assert_eq!(
            count(|k| matches!(k, Kind::State { to: State::Run, .. })),
            outcome.stats.switches,
            "{name}"
        );
        assert!(count(|k| matches!(k, Kind::Wake { by: Waker::Interrupt, .. })) > 0, "{name}");
        assert!(
            count(|k| matches!(k, Kind::Queued { .. })) > 0
                && count(|k| matches!(k, Kind::Unqueued { .. })) > 0,
            "{name}"
        );
        assert!(count(|k| matches!(k, Kind::Account { .. })) > 50, "{name}");
        assert!(count(|k| matches!(k, Kind::Kick { .. })) > 0, "{name}");
        for event in &events {
            match &event.kind {
                Kind::State { why, .. } => *whys.entry(*why).or_default() += 1,
                Kind::Migrate { why, .. } => *moves.entry(*why).or_default() += 1,
                _ => {}
            }
        }
    }
    // There nothing ever waits in a queue.
    let options = Options { duration: Some(Span::from_secs(12)), ..Options::default() };
    for event in read(&traced("whole-cores", &options).1) {
        if let Kind::Migrate { why, .. } = event.kind {
            *moves.entry(why).or_default() += 1;
        }
    }
    println!("{whys:?}\n{moves:?}");
    for why in [
        Why::Quantum,
        Why::Preempted,
        Why::Slept,
        Why::Woken,
        Why::Parked,
        Why::Migrated,
        Why::Picked,
        Why::Born,
        Why::Gone,
    ] {
        assert!(whys.get(&why).is_some_and(|n| *n > 0), "{why:?} in {whys:?}");
    }
    assert!(!whys.contains_key(&Why::Unknown), "{whys:?}");
    for why in [Move::Other, Move::Wake, Move::Pull, Move::Swap, Move::Spread] {
        assert!(moves.get(&why).is_some_and(|n| *n > 0), "{why:?} in {moves:?}");
    }
}

#[test]
fn whoever_has_waited_too_long_is_said_to_be_rescued_and_the_end_of_the_warm_up_is_marked() {
    let knobs = [("ready_bound_us".to_owned(), 100_000), ("cosched".to_owned(), 0)].into();
    let options =
        Options { knobs, duration: Some(Span::from_secs(30)), check: false, ..Options::default() };
    let events = read(&traced("sleepers", &options).1);
    let rescued =
        |e: &&Event| matches!(e.kind, Kind::State { to: State::Run, why: Why::Rescued, .. });
    let rescues = events.iter().filter(rescued).count();
    assert!(rescues > 3, "{rescues} rescues");
    let marks: Vec<(u64, &Kind)> = events
        .iter()
        .filter(|e| matches!(e.kind, Kind::Mark { .. }))
        .map(|e| (e.ns, &e.kind))
        .collect();
    let mark = |text: &str| Kind::Mark { text: text.to_owned() };
    assert_eq!(
        marks,
        [(2_000_000_000, &mark("the warm-up ends")), (30_000_000_000, &mark("the run ends"))]
    );
}

/// RDY "Interpreting Ready Time": of two that use 20 % each, each waits for the other one time in
/// five.
#[test]
fn two_at_20_each_wait_for_about_20_percent_of_their_wake_ups() {
    let labels: Vec<String> = scenario("two-at-20").runs.iter().map(|r| r.label.clone()).collect();
    assert_eq!(labels, ["to the end", "preempting"]);
    for (run, ticks) in
        [(0, Ticks::Aligned), (0, Ticks::Staggered), (1, Ticks::Aligned), (1, Ticks::Staggered)]
    {
        let (outcome, bytes) =
            traced_run("two-at-20", run, &Options { ticks, check: false, ..Options::default() });
        let result = outcome.expect("it runs").result;
        let report = analyse(&read(&bytes), &WaitOptions::default());
        assert_eq!(report.vms.len(), 2);
        for (vm, sum) in result.vms.iter().zip(&report.vms) {
            let of_wakeups = |n: u64| n * 1000 / sum.wakeup.count;
            let (used, late, behind) = (
                vm.times.used_ns * 1000 / result.duration_ns,
                of_wakeups(sum.late),
                of_wakeups(sum.behind),
            );
            println!(
                "run {run} {ticks:?} {}: used {used}, late {late}, behind {behind} permille of {}",
                vm.name, sum.wakeup.count
            );
            assert!(sum.wakeup.count > 20_000 && (190..=210).contains(&used), "{used}");
            // Where the one that wakes may preempt, the other waits in its stead.
            assert!(
                (185..=215).contains(&behind)
                    && if run == 0 { late == behind } else { late < behind },
                "{late} {behind}"
            );
        }
        assert_eq!(report.all.wrong_idle, 0, "no pCPU idled beside a wait");
    }
}

#[test]
fn a_world_kept_in_its_queue_while_a_pcpu_idles_comes_first_with_the_reason() {
    let judged = |policy| {
        let events =
            read(&traced(TWO_AT_5, &Options { policy, check: false, ..Options::default() }).1);
        (analyse(&events, &WaitOptions::default()), events)
    };
    let (healthy, _) = judged(Policy::Tandem);
    assert_eq!(healthy.all.wrong_idle, 0);
    let (report, events) = judged(Policy::Mutant(Mutant::Withheld));
    let fault = |e: &Event| match &e.kind {
        Kind::Mark { text } => Some((
            e.ns,
            text.strip_prefix("fault: world ")?
                .strip_suffix(" is withheld")?
                .parse::<u32>()
                .ok()?,
        )),
        _ => None,
    };
    let planted: Vec<(u64, u32)> = events.iter().filter_map(fault).collect();
    assert!(planted.len() >= 5, "{planted:?}");
    for w in &report.waits[..planted.len()] {
        let inside =
            |f: &&(u64, u32)| f.1 == w.world.0 && (w.since_ns..w.since_ns + w.ns).contains(&f.0);
        assert!(planted.iter().find(inside).is_some(), "{w:?} is none of the planted faults");
        // Housekeeping sends an idle pCPU to look every 10 ms, so that it lasts for little more
        // than 20 ms at most.
        assert_eq!(w.judgement, Judgement::WrongIdle);
        assert!((10_000_000..40_000_000).contains(&w.ns) && w.longest_idle_ns > 1_000_000, "{w:?}");
        assert!(
            w.because.starts_with("pCPU 0, in whose queue it was, idled for "),
            "{}",
            w.because
        );
    }
    let first = &report.waits[0];
    assert!(first.longest_idle_ns >= 10_000_000, "{first:?}");
    assert!(report.waits.iter().all(|w| w.longest_idle_ns <= first.longest_idle_ns));
    assert_eq!(report.all.wrong_idle, planted.len() as u64, "and no other wait is judged so");
}

#[test]
fn a_run_that_the_contract_ends_leaves_a_whole_trace_that_says_why() {
    let options = Options {
        policy: Policy::Mutant(Mutant::LostEnqueue),
        duration: Some(Span::from_secs(9)),
        ..Options::default()
    };
    let (outcome, bytes) = traced("up-smp-mix", &options);
    assert!(matches!(outcome, Err(SimError::Contract { .. })));
    let last = read(&bytes).pop().expect("events");
    assert!(
        matches!(&last.kind, Kind::Mark { text } if text.contains("seen in no queue after \
            enqueue")),
        "{last:?}"
    );
}

#[test]
fn a_disk_that_is_full_is_an_error() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let options = Options { duration: Some(Span::from_secs(3)), ..Options::default() };
    let error = run_traced(&scenario("sleepers").runs[0], &options, Box::new(Full))
        .expect_err("refused")
        .to_string();
    assert!(error.starts_with("run '': cannot record: trace: cannot write: "), "{error}");
}
