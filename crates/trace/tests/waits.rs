//! Waits and their judgement, each of the five; and the state of the host behind it.

use crate::common;

use common::{host, state};
use trace::waits::{Judgement, Wait, WaitOptions, analyse};
use trace::{
    End, Event, Kind, Latency, Move, Now, Place, Queue, Replay, Role, State, Waker, Why, between,
};
use units::{CoreSharing, PcpuId, PcpuSet, VmId, WorldId};

const US: u64 = 1000;

fn at(us: u64, pcpu: u16, kind: Kind) -> Event {
    Event { ns: us * US, pcpu: Some(PcpuId(pcpu)), kind }
}

fn idle(us: u64, pcpu: u16, begins: bool) -> Event {
    at(us, pcpu, Kind::Idle { begins })
}

fn wake(us: u64, pcpu: u16, world: u32, by: u32) -> Event {
    at(us, pcpu, Kind::Wake { world: WorldId(world), by: Waker::World(WorldId(by)) })
}

fn goes(us: u64, world: u32, from: State, to: State, on: u16) -> Event {
    state(us * US, world, from, to, on)
}

fn queued(us: u64, world: u32, queue: Queue) -> Event {
    at(us, 0, Kind::Queued { world: WorldId(world), queue, key: 7 })
}

use State::{Costop, Ready, Run, WaitIdle};

/// World 1 runs on pCPU 0, and pCPU 1 idles from `idle` µs to `busy` µs; world 2 is woken at 100 µs
/// by 1 and runs at 900 µs.
fn beside(from: u64, to: u64) -> Vec<Event> {
    let mut out = vec![
        goes(0, 1, Ready, Run, 0),
        goes(0, 3, Ready, Run, 1),
        wake(99, 0, 2, 1),
        goes(100, 2, WaitIdle, Ready, 0),
        goes(900, 1, Run, Ready, 0),
        goes(900, 2, Ready, Run, 0),
        goes(from, 3, Run, WaitIdle, 1),
        goes(to, 4, WaitIdle, Ready, 1),
        goes(to, 4, Ready, Run, 1),
        at(1000, 0, Kind::Mark { text: "end".to_owned() }),
    ];
    out.sort_by_key(|e| e.ns);
    out
}

#[test]
fn a_pcpu_rightly_idles_beside_a_world_whose_home_is_elsewhere() {
    let place = |core, node| Kind::Pcpu { place: Place { smt: 0, core, llc: node, node } };
    let home = |us, domains| at(us, 0, Kind::Home { world: WorldId(2), domains });
    // pCPU 1, which is in node 1, idles from 200 to 800 us beside world 2.
    let seen = |homes: &[Event]| {
        let mut events = vec![at(0, 0, place(0, 0)), at(0, 1, place(1, 1))];
        events.extend(beside(200, 800));
        events.extend_from_slice(homes);
        events.sort_by_key(|e| e.ns);
        let report = analyse(&events, &WaitOptions::default());
        let of = report.waits.iter().find(|w| w.world == WorldId(2)).expect("it waits");
        (of.judgement, of.longest_idle_ns / US)
    };
    assert_eq!(seen(&[]), (Judgement::WrongIdle, 600));
    assert_eq!(seen(&[home(50, 0b01)]), (Judgement::Fine, 0));
    assert_eq!(seen(&[home(50, 0b10)]), (Judgement::WrongIdle, 600));
    assert_eq!(seen(&[home(50, 0b01), home(60, u64::MAX)]), (Judgement::WrongIdle, 600));
    assert_eq!(seen(&[home(50, 0b01), home(750, 0b11)]), (Judgement::Brief, 50));
}

#[test]
fn a_thread_rightly_idles_while_its_core_is_another_vms() {
    let place = |core| Kind::Pcpu { place: Place { smt: 0, core, llc: 0, node: 0 } };
    let named = |world, vm| Kind::World {
        world: WorldId(world),
        vm: VmId(vm),
        role: Role::Vcpu,
        name: String::new(),
    };
    let judged = |core, vm_beside, core_sharing| {
        let mut events = vec![
            at(0, 0, place(0)),
            at(0, 1, place(core)),
            at(0, 0, named(1, vm_beside)),
            at(0, 0, named(2, 2)),
        ];
        events.extend(beside(300, 700));
        let options = WaitOptions { core_sharing, ..WaitOptions::default() };
        let waits = analyse(&events, &options).waits;
        waits.into_iter().find(|w| w.world == WorldId(2)).unwrap().judgement
    };
    let wrong = Judgement::WrongIdle;
    assert_eq!(judged(0, 1, CoreSharing::Any), wrong, "any may run beside any");
    assert_eq!(judged(0, 1, CoreSharing::Vm), Judgement::Fine);
    assert_eq!(judged(0, 2, CoreSharing::Vm), wrong, "of its own VM");
    assert_eq!(judged(0, 2, CoreSharing::None), Judgement::Fine);
    assert_eq!(judged(0, 0, CoreSharing::None), wrong, "a host task");
    assert_eq!(judged(1, 1, CoreSharing::None), wrong, "another core");
}

fn of(events: &[Event], world: u32) -> Wait {
    analyse(events, &WaitOptions::default())
        .waits
        .into_iter()
        .find(|w| w.world == WorldId(world))
        .unwrap()
}

#[test]
fn a_wait_without_an_idle_pcpu_is_fine() {
    let w = of(&beside(950, 960), 2);
    assert_eq!((w.judgement, w.since_ns, w.ns), (Judgement::Fine, 100 * US, 800 * US));
    assert_eq!(
        (w.ran_on, w.queued_on, w.end, w.slept),
        (Some(PcpuId(0)), Some(PcpuId(0)), End::Became(Run), true)
    );
    assert_eq!(
        (w.waker.as_deref(), w.instead.clone()),
        (Some("1"), Some(("1".to_owned(), 800 * US)))
    );
    assert_eq!((w.seen_idle, w.idle_ns, w.longest_idle_ns, w.idle_pcpu), (0, 0, 0, None));
    assert_eq!(w.because, "no pCPU that it may use was seen idle");
}

#[test]
fn idling_is_brief_up_to_the_bound_and_wrong_above_it() {
    let brief = of(&beside(300, 400), 2);
    assert_eq!(
        (brief.judgement, brief.idle_ns, brief.seen_idle, brief.idle_pcpu),
        (Judgement::Brief, 100 * US, 1, Some(PcpuId(1)))
    );
    assert_eq!(
        brief.because,
        "pCPU 1 idled for 100.000 us without a break, no more than 100.000 us"
    );
    let wrong = of(&beside(300, 401), 2);
    assert_eq!((wrong.judgement, wrong.longest_idle_ns), (Judgement::WrongIdle, 101 * US));
    // Only what is beside the wait counts: it began at 100 us.
    assert_eq!(of(&beside(10, 200), 2).judgement, Judgement::Brief);
    assert_eq!(of(&beside(10, 201), 2).longest_idle_ns, 101 * US);
    assert_eq!(of(&beside(800, 950), 2).longest_idle_ns, 100 * US);
}

#[test]
fn two_stretches_are_not_one() {
    let mut events = beside(300, 390);
    events.push(goes(400, 4, Run, WaitIdle, 1));
    events.push(goes(490, 5, Ready, Run, 1));
    events.sort_by_key(|e| e.ns);
    let w = of(&events, 2);
    assert_eq!(
        (w.judgement, w.idle_stretches, w.idle_ns, w.longest_idle_ns),
        (Judgement::Brief, 2, 180 * US, 90 * US)
    );
    assert_eq!(w.seen_idle, 2, "of the five changes meanwhile a pCPU idled at two");
}

#[test]
fn a_pcpu_that_a_world_may_not_use_is_no_reason() {
    let mut events = beside(300, 800);
    let only = |p: u16| {
        at(
            0,
            0,
            Kind::Affinity {
                world: WorldId(2),
                allowed: Box::new([PcpuId(p)].into_iter().collect::<PcpuSet>()),
            },
        )
    };
    events.insert(0, only(0));
    assert_eq!((of(&events, 2).judgement, of(&events, 2).seen_idle), (Judgement::Fine, 0));
    events.insert(1, only(1));
    assert_eq!(of(&events, 2).judgement, Judgement::WrongIdle, "the later word counts");
}

#[test]
fn a_world_that_a_limit_holds_back_is_no_fault_of_an_idle_pcpu() {
    let mut events = beside(300, 800);
    events.push(queued(250, 2, Queue::Limit(3)));
    events.push(queued(790, 2, Queue::Pcpu(PcpuId(0))));
    events.sort_by_key(|e| e.ns);
    let held = of(&events, 2);
    assert_eq!((held.judgement, held.held_ns), (Judgement::HeldBack, 540 * US));
    assert_eq!(
        (held.longest_idle_ns, held.idle_stretches),
        (10 * US, 1),
        "from 790 to 800 us it was free"
    );
    let release = events.iter().position(|e| e.ns == 790 * US).unwrap();
    events[release].ns = 650 * US;
    events.sort_by_key(|e| e.ns);
    let free = of(&events, 2);
    assert_eq!((free.judgement, free.longest_idle_ns), (Judgement::WrongIdle, 150 * US));
    assert!(free.because.ends_with(", outside of what a limit held it back"), "{}", free.because);
}

#[test]
fn co_stop_is_holding_back() {
    let mut events = beside(300, 800);
    events.extend([
        goes(910, 2, Run, Costop, 0),
        goes(930, 2, Costop, Ready, 0),
        goes(990, 2, Ready, Run, 0),
    ]);
    events.sort_by_key(|e| e.ns);
    let report = analyse(&events, &WaitOptions::default());
    let costop = report.waits.iter().find(|w| w.state == Costop).unwrap();
    assert_eq!(
        (costop.judgement, costop.ns, costop.end),
        (Judgement::HeldBack, 20 * US, End::Became(Ready))
    );
    assert!(
        report.waits.iter().any(|w| w.world == WorldId(2) && w.since_ns == 930 * US && !w.slept)
    );
}

#[test]
fn what_is_lost_is_not_judged_and_what_is_open_is_counted_so_far() {
    let lost = Event { ns: 500 * US, pcpu: None, kind: Kind::Lost { events: Some(9) } };
    let mut events = beside(950, 960);
    events.push(lost);
    events.sort_by_key(|e| e.ns);
    let report = analyse(&events, &WaitOptions::default());
    let w = report.waits.iter().find(|w| w.world == WorldId(2)).unwrap();
    assert_eq!((w.judgement, w.end, w.ns), (Judgement::Cut, End::Lost, 400 * US));
    assert_eq!(
        report.unknown_begin, 3,
        "1 and 3 ran from the first, and 2 began to wait before anything is known"
    );
    let open = analyse(&beside(950, 960)[..4], &WaitOptions::default());
    assert_eq!((open.waits[0].end, open.waits[0].ns, open.all.waits), (End::Open, 0, 0));
}

#[test]
fn the_worst_comes_first() {
    let mut events = beside(300, 401);
    // World 5 waits longer, and no pCPU idles for long beside it.
    events.push(goes(402, 5, WaitIdle, Ready, 1));
    events.push(goes(5000, 1, Run, WaitIdle, 0));
    events.push(goes(5000, 5, Ready, Run, 0));
    events.sort_by_key(|e| e.ns);
    let report = analyse(&events, &WaitOptions::default());
    let order: Vec<(u32, Judgement)> =
        report.waits.iter().map(|w| (w.world.0, w.judgement)).collect();
    assert_eq!(order[..2], [(2, Judgement::WrongIdle), (5, Judgement::Fine)]);
    assert_eq!((report.all.wrong_idle, report.waits[1].ns), (1, 4598 * US));
    let text = report.text(1);
    assert!(
        text.starts_with(
            "4 waits, 9498.000 us: 3 until the world ran, 1 until another state; 1 beside a \
                pCPU that was wrong to idle; begun unseen: 2\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "WRONG-IDLE 2, woken by 1, instead 1 for 800.000 us: pCPU 1 idled for 101.000 us"
        ),
        "{text}"
    );
    assert!(text.contains("\nand 3 more\n"), "{text}");
}

#[test]
fn the_head_counts_the_waits_of_the_list_by_how_they_ended() {
    let mut events = vec![
        goes(0, 1, WaitIdle, Ready, 0),
        goes(10, 1, Ready, Run, 0),
        goes(20, 1, Run, Costop, 0),
        goes(50, 1, Costop, Ready, 0),
        Event { ns: 60 * US, pcpu: None, kind: Kind::Lost { events: Some(1) } },
    ];
    let head = |events: &[Event]| {
        let text = analyse(events, &WaitOptions::default()).text(1);
        let more = text.lines().find(|l| l.starts_with("and ")).unwrap_or("").to_owned();
        (text.split(';').next().unwrap().to_owned(), more)
    };
    let cut = ", 1 until another state, 1 until events were lost";
    let want = format!("3 waits, 50.000 us: 1 until the world ran{cut}");
    assert_eq!(head(&events), (want, "and 2 more".to_owned()));
    events.extend([goes(70, 2, WaitIdle, Ready, 0), goes(75, 3, WaitIdle, Ready, 0)]);
    let want =
        format!("5 waits, 55.000 us: 1 until the world ran{cut}, 2 not ended when the trace did");
    assert_eq!(head(&events), (want, "and 4 more".to_owned()));
}

#[test]
fn each_vm_has_its_latency_and_histogram() {
    let mut events = beside(950, 960);
    for (world, vm) in [(1, 7), (2, 8), (4, 8)] {
        let kind = Kind::World {
            world: WorldId(world),
            vm: VmId(vm),
            role: Role::Vcpu,
            name: format!("vcpu{world}"),
        };
        events.insert(0, Event { ns: 0, pcpu: None, kind });
    }
    events.insert(
        0,
        Event {
            ns: 0,
            pcpu: None,
            kind: Kind::Vm { vm: VmId(8), name: "db".to_owned(), pool: "/".to_owned() },
        },
    );
    let report = analyse(&events, &WaitOptions::default());
    let db = report.vms.iter().find(|v| v.name == "db").unwrap();
    assert_eq!(db.wakeup, Latency { count: 2, min_ns: 0, mean_ns: 400 * US, max_ns: 800 * US });
    assert_eq!(
        (db.histogram.buckets[0], db.histogram.buckets[10], db.histogram.buckets.len()),
        (1, 1, 11)
    );
    let json = serde_json::to_value(&report).unwrap();
    let worst = &json["waits"][0];
    assert_eq!(
        (worst["vm_name"].as_str(), worst["judgement"].as_str(), worst["state"].as_str()),
        (Some("db"), Some("fine"), Some("READY"))
    );
}

#[test]
fn a_range_leaves_out_what_is_outside_of_it() {
    let all = analyse(&host(4, 4, 12, 4000), &WaitOptions::default());
    let (from_ns, to_ns) = (5_000_000, 9_000_000);
    let some =
        analyse(&host(4, 4, 12, 4000), &WaitOptions { from_ns, to_ns, ..WaitOptions::default() });
    let inside: Vec<&Wait> =
        all.waits.iter().filter(|w| w.since_ns < to_ns && w.since_ns + w.ns >= from_ns).collect();
    assert!(!inside.is_empty() && inside.len() < all.waits.len());
    assert_eq!(some.waits.iter().collect::<Vec<_>>(), inside);
}

/// The host of `common` gives an idle pCPU to a waking world: waits while one idles are as short as
/// its wake-ups.
#[test]
fn a_host_that_leaves_nothing_lying_has_no_wrong_idling() {
    let report = analyse(&host(9, 8, 40, 50_000), &WaitOptions::default());
    assert!(
        report.all.waits > 5000 && report.all.wrong_idle == 0,
        "{} {}",
        report.all.waits,
        report.all.wrong_idle
    );
    let longest = report.waits.iter().map(|w| w.longest_idle_ns).max();
    assert_eq!(longest, Some(700), "from waking up to running, beside another idle pCPU");
    let bound = |brief_ns| {
        analyse(&host(9, 8, 40, 50_000), &WaitOptions { brief_ns, ..WaitOptions::default() })
            .all
            .wrong_idle
    };
    assert!(bound(699) > 0 && bound(700) == 0);
}

#[test]
fn the_state_at_a_time_is_what_the_events_say() {
    let mut replay = Replay::new();
    let p = |i: usize, r: &Replay| r.pcpus()[i].0;
    replay.step(&at(0, 0, Kind::Host { pcpus: 3 }));
    assert_eq!(
        (p(0, &replay), p(2, &replay), replay.pcpus().len()),
        (Now::Unknown, Now::Unknown, 3)
    );
    replay.step(&idle(1, 0, true));
    replay.step(&idle(2, 0, false));
    assert_eq!((p(0, &replay), replay.idle_pcpus()), (Now::Other, 0));
    replay.step(&goes(3, 9, Ready, Run, 0));
    let ended = replay.step(&goes(5, 9, Run, WaitIdle, 0)).clone();
    assert_eq!(
        (ended.stretches[0].now, ended.stretches[0].from_ns, ended.stretches[0].to_ns),
        (Now::World(WorldId(9)), 3 * US, 5 * US)
    );
    assert_eq!((ended.stays[0].was.state, ended.stays[0].end), (Run, End::Became(WaitIdle)));
    assert_eq!((p(0, &replay), replay.idle_pcpus()), (Now::Idle, 1));

    replay.step(&wake(6, 1, 9, 4));
    replay.step(&goes(7, 9, WaitIdle, Ready, 1));
    replay.step(&at(
        8,
        1,
        Kind::Migrate { world: WorldId(9), from: Some(PcpuId(1)), to: PcpuId(2), why: Move::Pull },
    ));
    let now = replay.world(WorldId(9)).unwrap();
    assert_eq!(
        (now.on, now.waker, now.since_ns),
        (Some(PcpuId(2)), Some(Waker::World(WorldId(4))), 7 * US)
    );
    assert_eq!(replay.ready().collect::<Vec<_>>(), [WorldId(9)]);

    replay.step(&at(4, 1, Kind::Mark { text: String::new() }));
    assert_eq!((replay.ns(), replay.late()), (8 * US, 1), "time does not go back");
    let lost =
        replay.step(&Event { ns: 9 * US, pcpu: None, kind: Kind::Lost { events: None } }).clone();
    assert_eq!((lost.stays.len(), lost.stays[0].end), (1, End::Lost));
    assert!(
        replay.world(WorldId(9)).is_none()
            && replay.ready().len() == 0
            && p(0, &replay) == Now::Unknown
            && replay.idle_pcpus() == 0
    );
}

#[test]
fn a_state_told_again_is_no_change_and_one_told_first_is_of_unknown_age() {
    let told = |us, to| {
        let kind =
            Kind::State { world: WorldId(2), from: None, to, why: Why::Told, on: Some(PcpuId(0)) };
        at(us, 0, kind)
    };
    let events =
        [told(10, Ready), goes(50, 2, Ready, Run, 0), told(60, Run), goes(70, 2, Run, WaitIdle, 0)];
    let report = analyse(&events, &WaitOptions::default());
    assert_eq!((report.waits.len(), report.unknown_begin), (0, 1));
    let mut replay = Replay::new();
    let stays: Vec<u64> = events
        .iter()
        .flat_map(|e| replay.step(e).stays.clone())
        .map(|s| s.to_ns - s.was.since_ns)
        .collect();
    assert_eq!(stays, [40 * US, 20 * US], "RUN lasted from 50 to 70 us");
}

#[test]
fn a_part_of_a_trace_begins_with_what_was_so() {
    let all = host(4, 4, 12, 4000);
    let (from, to) = (20_000_000, 30_000_000);
    let part = between(&all, from, to);
    let (mut whole, mut alone) = (Replay::new(), Replay::new());
    all.iter().filter(|e| e.ns < to).for_each(|e| drop(whole.step(e).clone()));
    part.iter().for_each(|e| drop(alone.step(e).clone()));
    let mut start = Replay::new();
    between(&all, from, from).iter().for_each(|e| drop(start.step(e).clone()));
    let mut until = Replay::new();
    all.iter().filter(|e| e.ns < from).for_each(|e| drop(until.step(e).clone()));
    let states = |r: &Replay| r.worlds().map(|(w, n)| (w, n.state, n.on)).collect::<Vec<_>>();
    let pcpus = |r: &Replay| r.pcpus().iter().map(|p| p.0).collect::<Vec<_>>();
    assert_eq!((states(&alone), pcpus(&alone)), (states(&whole), pcpus(&whole)));
    assert_eq!((states(&start), pcpus(&start)), (states(&until), pcpus(&until)));
    assert!(start.idle_pcpus() + start.ready().len() > 0);
    assert!(part.len() < all.len() && states(&alone).len() == 12);
    let inside = |e: &&Event| !e.kind.is_name() && (from..to).contains(&e.ns);
    assert!(part.iter().rev().zip(all.iter().filter(inside).rev()).all(|(a, b)| a == b));
    let names = |events: &[Event]| events.iter().filter(|e| e.kind.is_name()).count();
    assert_eq!(
        (names(&part), part.iter().filter(|e| !e.kind.is_name() && e.ns < from).count()),
        (names(&all), 0)
    );
}

#[test]
fn a_wake_up_of_a_world_that_runs_is_not_why_it_waits_later() {
    let events = [
        goes(0, 2, Ready, Run, 0),
        wake(5, 1, 2, 9),
        goes(10, 2, Run, Ready, 0),
        goes(30, 2, Ready, Run, 0),
    ];
    let w = of(&events, 2);
    assert_eq!((w.waker, w.slept, w.ns), (None, false, 20 * US));
}
