//! Each invariant is violated once by a stream of events made by hand, and caught with its numbers;
//! clean streams are silent.

use check::{Bounds, Invariant, Oracle, State, StateTimes, Verdict};
use topology::{Shape, Topology};
use units::{PcpuId, PcpuSet, VmId, WorldId};

const MS: u64 = 1_000_000;

fn host(pcpus: u32) -> Topology {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: pcpus,
        threads_per_core: 1,
    };
    Topology::regular(shape).unwrap()
}

/// Bounds of a quantum of 10 ms; lag never fades, so that the numbers are plain.
fn bounds() -> Bounds {
    Bounds { lag_memory_ns: u64::MAX, ..Bounds::of(10 * MS, MS, MS) }
}

/// A host whose VM `i` (from 1) has one world `i`, all with 1000 shares.
fn oracle(pcpus: u32, vms: u16) -> Oracle {
    let mut o = Oracle::new(&host(pcpus), bounds());
    for i in 1..=vms {
        o.vm_added(0, VmId(i), &format!("vm{i}"), 1000);
        o.world_added(0, WorldId(u32::from(i)), VmId(i), None);
    }
    o
}

fn run(o: &mut Oracle, now: u64, world: u32, pcpu: u16) {
    o.state(now, WorldId(world), State::Run, Some(PcpuId(pcpu)));
}

fn turn(o: &mut Oracle, now: u64, world: u32, state: State) {
    o.state(now, WorldId(world), state, None);
}

/// Pays for a run that has ended, to world and pCPU.
fn pay(o: &mut Oracle, now: u64, world: u32, pcpu: u16, ns: u64) {
    o.charged(now, WorldId(world), ns);
    o.pcpu_busy(now, PcpuId(pcpu), ns);
}

/// The only violation's invariant and text.
fn only(v: &Verdict) -> (Invariant, String) {
    let all: Vec<String> = v.violations.iter().map(ToString::to_string).collect();
    assert_eq!((v.violated(), all.len()), (1, 1), "{all:#?}");
    (v.violations[0].invariant, all[0].clone())
}

fn clean(v: &Verdict) {
    assert_eq!(
        v.violated(),
        0,
        "{:#?}",
        v.violations.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
}

#[test]
fn a_day_in_the_life_of_a_world_is_clean() {
    let mut o = oracle(1, 1);
    run(&mut o, 0, 1, 0);
    pay(&mut o, 2 * MS, 1, 0, 2 * MS); // a tick in mid-run
    turn(&mut o, 3 * MS, 1, State::WaitIdle);
    pay(&mut o, 3 * MS, 1, 0, MS);
    turn(&mut o, 5 * MS, 1, State::Ready);
    run(&mut o, 5 * MS, 1, 0);
    turn(&mut o, 6 * MS, 1, State::Costop);
    pay(&mut o, 6 * MS, 1, 0, MS);
    turn(&mut o, 8 * MS, 1, State::Ready);
    run(&mut o, 8 * MS + 500, 1, 0);
    turn(&mut o, 9 * MS, 1, State::Wait);
    pay(&mut o, 9 * MS, 1, 0, MS - 500);
    let times = StateTimes {
        run_ns: 5 * MS - 500,
        ready_ns: 500,
        costop_ns: 2 * MS,
        wait_ns: MS,
        wait_idle_ns: 2 * MS,
    };
    o.reported(10 * MS, WorldId(1), &times);
    assert_eq!((o.times(10 * MS, WorldId(1)), times.lifetime_ns()), (Some(times), 10 * MS));
    o.world_removed(10 * MS, WorldId(1));
    o.vm_removed(10 * MS, VmId(1));
    let v = o.finish(11 * MS);
    clean(&v);
    assert_eq!((v.vms[0].used_ns, v.ready_max_ns), (5 * MS - 500, 500));
}

#[test]
fn two_worlds_on_one_pcpu_are_seen() {
    let mut o = oracle(2, 2);
    run(&mut o, 0, 1, 0);
    run(&mut o, MS, 2, 0);
    turn(&mut o, MS, 1, State::Wait);
    o.charged(MS, WorldId(1), MS);
    let text = "VM 2 (vm2), world 2, pCPU 0: at 1000000 ns: one-world-a-pcpu: seen worlds 1 and 2, \
        allowed one world";
    assert_eq!(only(&o.finish(MS)), (Invariant::OneWorldAPcpu, text.to_owned()));
}

#[test]
fn a_world_on_two_pcpus_is_seen() {
    let mut o = oracle(2, 1);
    run(&mut o, 0, 1, 0);
    run(&mut o, MS, 1, 1);
    pay(&mut o, MS, 1, 0, MS);
    let text = "VM 1 (vm1), world 1, pCPU 1: at 1000000 ns: one-pcpu-a-world: seen RUN on pCPU 1 \
        as well, allowed pCPU 0 alone";
    assert_eq!(only(&o.finish(MS)), (Invariant::OnePcpuAWorld, text.to_owned()));
}

#[test]
fn a_world_where_it_may_not_be_is_seen() {
    let mut o = oracle(4, 1);
    o.affinity(0, WorldId(1), Some("1-2".parse().unwrap()));
    run(&mut o, 0, 1, 3);
    let text =
        "VM 1 (vm1), world 1, pCPU 3: at 0 ns: affinity: seen RUN on pCPU 3, allowed pCPUs 1-2";
    assert_eq!(only(&o.finish(MS)), (Invariant::Affinity, text.to_owned()));
}

#[test]
fn a_world_that_stays_where_it_may_no_longer_be_is_seen() {
    for (stay, violated) in [(100_000, 0), (100_001, 1)] {
        let mut o = oracle(4, 1);
        run(&mut o, 0, 1, 3);
        o.affinity(MS, WorldId(1), Some("1-2".parse().unwrap()));
        turn(&mut o, MS + stay, 1, State::Ready);
        pay(&mut o, MS + stay, 1, 3, MS + stay);
        run(&mut o, MS + stay, 1, 2);
        assert_eq!(o.finish(2 * MS).count(Invariant::Affinity), violated);
    }
}

#[test]
fn an_illegal_transition_is_seen() {
    let mut o = oracle(1, 1);
    run(&mut o, 0, 1, 0);
    turn(&mut o, MS, 1, State::WaitIdle);
    pay(&mut o, MS, 1, 0, MS);
    run(&mut o, 2 * MS, 1, 0);
    let text = "VM 1 (vm1), world 1, pCPU 0: at 2000000 ns: transition: seen WAIT_IDLE to RUN, \
        allowed what VS51's figure 1 shows";
    assert_eq!(only(&o.finish(2 * MS)), (Invariant::Transition, text.to_owned()));
}

#[test]
fn an_account_of_state_times_one_ns_off_is_seen() {
    let mut o = oracle(1, 1);
    turn(&mut o, 0, 1, State::Ready);
    run(&mut o, 10, 1, 0);
    o.reported(20, WorldId(1), &StateTimes { run_ns: 11, ready_ns: 9, ..StateTimes::default() });
    let text = "VM 1 (vm1), world 1: at 20 ns: state-times: seen RUN 11 ns, allowed 10 ns";
    assert_eq!(only(&o.finish(20)), (Invariant::StateTimes, text.to_owned()));
}

#[test]
fn a_charge_too_many_and_one_missing_are_seen() {
    let mut o = oracle(1, 1);
    run(&mut o, 0, 1, 0);
    o.charged(10, WorldId(1), 11);
    let text =
        "VM 1 (vm1), world 1: at 10 ns: charge: seen 11 ns in all, allowed 0..10 ns, the time run";
    assert_eq!(only(&o.finish(10)), (Invariant::Charge, text.to_owned()));

    let mut o = oracle(1, 1);
    run(&mut o, 0, 1, 0);
    turn(&mut o, 10, 1, State::Wait);
    pay(&mut o, 10, 1, 0, 10);
    turn(&mut o, 20, 1, State::Ready);
    run(&mut o, 20, 1, 0);
    turn(&mut o, 30, 1, State::Wait);
    o.pcpu_busy(30, PcpuId(0), 10);
    o.world_removed(40, WorldId(1));
    let text =
        "VM 1 (vm1), world 1: at 40 ns: charge: seen 10 ns in all, allowed 20 ns, the time run";
    assert_eq!(only(&o.finish(40)), (Invariant::Charge, text.to_owned()));
}

#[test]
fn a_pcpu_that_counts_its_idling_as_busy_is_seen() {
    let mut o = oracle(1, 1);
    run(&mut o, 0, 1, 0);
    turn(&mut o, 10, 1, State::Wait);
    o.charged(10, WorldId(1), 10);
    o.pcpu_busy(20, PcpuId(0), 20);
    let text = "pCPU 0: at 20 ns: busy: seen 20 ns in all, allowed 0..10 ns, the time run";
    assert_eq!(only(&o.finish(20)), (Invariant::Busy, text.to_owned()));
}

#[test]
fn an_idle_pcpu_beside_a_waiting_world_is_seen_once_whether_it_ends_or_not() {
    let ends: [fn(&mut Oracle, u64); 4] = [
        |_, _| {},
        |o, now| run(o, now, 1, 1), // dispatched on the idle one
        |o, now| o.affinity(now, WorldId(1), Some("0".parse().unwrap())), // no longer allowed there
        |o, now| {
            turn(o, now, 3, State::Ready);
            run(o, now, 3, 1); // another takes the pCPU
        },
    ];
    for end in ends {
        for (waits, violated) in [(MS, 0), (MS + 1, 1)] {
            let mut o = oracle(2, 3);
            run(&mut o, 0, 2, 0);
            turn(&mut o, 100, 1, State::Ready);
            end(&mut o, 100 + waits);
            let v = o.finish(100 + waits);
            assert_eq!(v.count(Invariant::IdleWhileWaiting), violated, "{:?}", v.violations);
            if violated == 1 {
                let text = "VM 1 (vm1), world 1, pCPU 1: at 1000101 ns: idle-while-waiting: \
                            seen idle beside the READY world for 1000001 ns, allowed 1000000 ns";
                assert_eq!(v.violations[0].to_string(), text);
            }
        }
    }
}

#[test]
fn a_pcpu_may_idle_beside_a_world_that_may_not_run_there() {
    let mut o = oracle(2, 2);
    o.affinity(0, WorldId(1), Some("0".parse().unwrap()));
    run(&mut o, 0, 2, 0);
    turn(&mut o, 0, 1, State::Ready);
    assert_eq!(o.finish(5 * MS).count(Invariant::IdleWhileWaiting), 0);
}

#[test]
fn a_world_ready_for_too_long_is_seen_once() {
    for ends in [false, true] {
        let mut o = oracle(1, 2);
        o.vm_shares(0, VmId(1), 1);
        o.vm_shares(0, VmId(2), 262_144);
        run(&mut o, 0, 2, 0);
        turn(&mut o, 0, 1, State::Ready);
        let bound = 10_000 * MS;
        o.vm_shares(bound, VmId(2), 262_144);
        let seen = bound + MS + 1; // the first event after a window's end
        o.vm_shares(seen, VmId(2), 262_144);
        if ends {
            turn(&mut o, seen + 3, 2, State::Ready);
            pay(&mut o, seen + 3, 2, 0, seen + 3);
            run(&mut o, seen + 3, 1, 0);
        }
        let text = "VM 1 (vm1), world 1: at 10001000001 ns: ready-too-long: seen READY for \
            10001000001 ns, allowed 10000000000 ns";
        assert_eq!(only(&o.finish(seen + 3)), (Invariant::ReadyTooLong, text.to_owned()));
    }
}

#[test]
fn a_vm_that_gets_less_than_its_shares_is_seen_when_its_bound_is_passed() {
    // A and B of equal shares on one pCPU; A runs on and on. The bound is 13 + 11 ms, so B is
    // behind by more at the end of the window at 49 ms; at the same time A is ahead by as much.
    let mut o = oracle(1, 2);
    run(&mut o, 0, 1, 0);
    turn(&mut o, 0, 2, State::Ready);
    for ms in 1..=60 {
        pay(&mut o, ms * MS, 1, 0, MS);
    }
    let v = o.finish(60 * MS);
    let texts: Vec<String> = v.violations.iter().map(ToString::to_string).collect();
    let text = [
        "VM 1 (vm1): at 49000000 ns: lag: seen 24500000 ns ahead of the ideal, allowed 24000000 ns",
        "VM 2 (vm2): at 49000000 ns: lag: seen 24500000 ns behind the ideal, allowed 24000000 ns",
    ];
    assert_eq!(texts, text);
    assert_eq!(
        (v.entitled, v.vms[1].owed_max_ns),
        (vec![(VmId(1), 30 * MS), (VmId(2), 30 * MS)], 30 * MS)
    );
}

#[test]
fn lag_fades_with_its_memory_and_entitlement_does_not() {
    // As above, with a memory of 10 ms: B falls behind by 0.5 of a pCPU, which shows as 5 ms.
    let mut o = Oracle::new(&host(1), Bounds { lag_memory_ns: 10 * MS, ..bounds() });
    for i in 1..=2 {
        o.vm_added(0, VmId(i), "", 1000);
        o.world_added(0, WorldId(u32::from(i)), VmId(i), None);
        turn(&mut o, 0, u32::from(i), State::Ready);
    }
    run(&mut o, 0, 1, 0);
    for ms in 1..=1000 {
        pay(&mut o, ms * MS, 1, 0, MS);
    }
    let v = o.finish(1000 * MS);
    clean(&v);
    assert!((4_400_000..=5_000_000).contains(&v.vms[1].owed_max_ns), "{:?}", v.vms);
    assert_eq!(v.entitled[1], (VmId(2), 500 * MS));
}

#[test]
fn events_that_make_no_sense_are_seen_and_counted_beyond_what_is_kept() {
    let mut o = oracle(1, 1);
    for _ in 0..150 {
        turn(&mut o, 7, 99, State::Ready);
    }
    o.charged(6, WorldId(1), 0);
    let v = o.finish(10);
    assert_eq!((v.violations.len(), v.count(Invariant::Events), v.violated()), (100, 151, 151));
    assert_eq!(
        v.violations[0].to_string(),
        "world 99: at 7 ns: events: seen a state of an unknown world, allowed a world added"
    );
}

/// Two VMs of `pcpus` worlds each, every pCPU going round `a` ms of A, `b` ms of B.
fn round_robin(pcpus: u16, shares: (u32, u32), ms: (u64, u64), rounds: u64) -> Verdict {
    let mut o = Oracle::new(&host(u32::from(pcpus)), bounds());
    o.vm_added(0, VmId(1), "a", shares.0);
    o.vm_added(0, VmId(2), "b", shares.1);
    for p in 0..u32::from(pcpus) {
        o.world_added(0, WorldId(p), VmId(1), None);
        o.world_added(0, WorldId(1000 + p), VmId(2), None);
        turn(&mut o, 0, p, State::Ready);
        turn(&mut o, 0, 1000 + p, State::Ready);
    }
    let mut now = 0;
    for round in 0..rounds {
        for (base, ns) in [(0, ms.0 * MS), (1000, ms.1 * MS)] {
            for p in 0..pcpus {
                if round > 0 || base > 0 {
                    turn(&mut o, now, u32::from(p) + 1000 - base, State::Ready);
                }
                run(&mut o, now, u32::from(p) + base, p);
            }
            now += ns;
            (0..pcpus).for_each(|p| pay(&mut o, now, u32::from(p) + base, p, ns));
        }
    }
    o.finish(now)
}

#[test]
fn ideal_round_robin_is_clean_at_every_ratio_and_ends_without_lag() {
    // VS51 figure 3: two 8-vCPU VMs on 8 pCPUs, 1:7 to 7:1.
    for a in 1..=7 {
        let v = round_robin(8, (a * 1000, (8 - a) * 1000), (u64::from(a), u64::from(8 - a)), 50);
        clean(&v);
        let part = u64::from(a) * 8 * 50 * MS;
        assert_eq!(v.entitled, [(VmId(1), part), (VmId(2), 8 * 400 * MS - part)]);
        // The most it is off is one world's turn on all pCPUs at once: a·(8-a)/8 ms on each of 8.
        assert_eq!(v.vms[1].owed_max_ns, u64::from(a * (8 - a)) * MS);
    }
}

#[test]
fn round_robin_that_ignores_shares_is_seen_at_every_ratio_but_its_own() {
    for a in 1..=7 {
        let v = round_robin(8, (a * 1000, (8 - a) * 1000), (4, 4), 60);
        assert_eq!(v.count(Invariant::Lag) > 0, a != 4, "{a}: {:?}", v.vms);
    }
}

#[test]
fn a_vm_held_to_some_pcpus_is_measured_by_what_those_can_give() {
    // A (100) and B (300) held to pCPU 0, C (400) alone on pCPU 1: C is entitled to a whole pCPU.
    let mut o = oracle(2, 3);
    o.vm_shares(0, VmId(1), 100);
    o.vm_shares(0, VmId(2), 300);
    o.vm_shares(0, VmId(3), 400);
    let pin = |p: u16| Some([PcpuId(p)].into_iter().collect::<PcpuSet>());
    o.affinity(0, WorldId(1), pin(0));
    o.affinity(0, WorldId(2), pin(0));
    run(&mut o, 0, 3, 1);
    turn(&mut o, 0, 2, State::Ready);
    run(&mut o, 0, 1, 0);
    let mut now = 0;
    for _ in 0..100 {
        for (from, to, ns) in [(1, 2, MS), (2, 1, 3 * MS)] {
            now += ns;
            turn(&mut o, now, from, State::Ready);
            pay(&mut o, now, from, 0, ns);
            run(&mut o, now, to, 0);
        }
    }
    let v = o.finish(now);
    clean(&v);
    assert_eq!(v.entitled, [(VmId(1), 100 * MS), (VmId(2), 300 * MS), (VmId(3), 400 * MS)]);
}

#[test]
fn a_lead_is_judged_when_its_vcpu_leaves_the_guest_and_not_while_it_is_outside() {
    // Two vCPUs: one runs for 20 ms while the other waits, in its guest or outside. Allowed: 3 * 3
    // - 2 + 5 + 0.1 ms, and with timers late by 1.5 ms, 1.6 ms each: 5 of them, 7.5 or 8 ms.
    let run_for_20_ms = |inside: bool, timer_late_ns: u64| {
        let mut o = Oracle::new(&host(1), Bounds { timer_late_ns, ..bounds() });
        o.vm_added(0, VmId(1), "vm1", 1000);
        o.world_added(0, WorldId(1), VmId(1), None);
        o.world_added(0, WorldId(2), VmId(1), None);
        o.vcpu(WorldId(1));
        o.vcpu(WorldId(2));
        o.cosched(check::CoschedTerms {
            costop_ns: 3 * MS,
            costart_ns: 2 * MS,
            poll_ns: MS,
            apart_ns: 0,
        });
        turn(&mut o, 0, 2, State::Ready);
        run(&mut o, 0, 1, 0);
        if !inside {
            o.guest(0, WorldId(1), false);
        }
        o.guest(20 * MS, WorldId(1), !inside);
        turn(&mut o, 20 * MS, 1, State::WaitIdle);
        pay(&mut o, 20 * MS, 1, 0, 20 * MS);
        o.finish(20 * MS)
    };
    let (all, seen) = only(&run_for_20_ms(true, 0));
    assert_eq!(all, Invariant::Skew);
    assert!(seen.contains("seen a lead of 20000000 ns, allowed 12100000 ns"), "{seen}");
    clean(&run_for_20_ms(false, 0));
    let (all, seen) = only(&run_for_20_ms(true, 1_500_000));
    assert_eq!(all, Invariant::Skew);
    assert!(seen.contains("allowed 19600000 ns"), "{seen}");
    clean(&run_for_20_ms(true, 1_600_000));
}

#[test]
fn a_run_on_a_shared_core_counts_from_the_change_of_its_affinity_on() {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 2,
        threads_per_core: 2,
    };
    let of = |pcpus: Option<&str>| {
        let sharing = Bounds { sharing_max_ns: Some(10 * MS), ..bounds() };
        let mut o = Oracle::new(&Topology::regular(shape).unwrap(), sharing);
        for i in 1..=2 {
            o.vm_added(0, VmId(i), &format!("vm{i}"), 1000);
            o.world_added(0, WorldId(u32::from(i)), VmId(i), Some("0-1".parse().unwrap()));
            run(&mut o, 0, u32::from(i), i - 1);
        }
        if let Some(pcpus) = pcpus {
            o.affinity(5 * MS, WorldId(1), Some(pcpus.parse().unwrap()));
        }
        move |until: u64| {
            let mut o = o.clone();
            o.charged(until, WorldId(1), until);
            o.finish(until).count(Invariant::SharedCore)
        }
    };
    assert_eq!(of(None)(30 * MS), 0, "both may use the one core only");
    let wider = of(Some("0-3"));
    assert_eq!((wider(15 * MS), wider(17 * MS)), (0, 1), "10 ms after 5");
}

#[test]
fn a_thread_may_idle_beside_a_world_that_is_entitled_to_more_than_a_shared_core_gives() {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 1,
        threads_per_core: 2,
    };
    // vm1 runs on one thread, vm2 waits, and the other thread idles; `later` are vm1's shares from
    // 20 ms on.
    let idles = |shared_charge: u64, shares: u32, later: u32, until: u64| {
        let terms = Bounds { shared_charge, whole_core_ns: 800 * MS, ..bounds() };
        let mut o = Oracle::new(&Topology::regular(shape).unwrap(), terms);
        for (i, shares) in [(1, shares), (2, 1000)] {
            o.vm_added(0, VmId(i), &format!("vm{i}"), shares);
            o.world_added(0, WorldId(u32::from(i)), VmId(i), None);
        }
        run(&mut o, 0, 1, 0);
        turn(&mut o, 0, 2, State::Ready);
        for ms in 1..until {
            if ms == 20 {
                o.vm_shares(ms * MS, VmId(1), later);
            }
            o.charged(ms * MS, WorldId(1), MS); // an event in each window
        }
        o.finish(until * MS).count(Invariant::IdleWhileWaiting)
    };
    // Of the one core that is left 2:1 gives 0.667, more than 0.625; 1:1 gives 0.5.
    assert_eq!(idles(625, 2000, 2000, 200), 0);
    assert_eq!(idles(625, 1000, 1000, 200), 1);
    assert_eq!(idles(1000, 2000, 2000, 200), 1, "where threads are divided none may");
    // Four quanta later, which plan and scheduler may be late, and a tick.
    assert_eq!((idles(625, 2000, 1000, 58), idles(625, 2000, 1000, 65)), (0, 1));
}
