//! Limits, reservations and parking: each broken once by events made by hand, with its numbers.

use check::{Bounds, Invariant, Oracle, PoolTerms, State, Verdict, VmTerms};
use entitlement::TreePool;
use topology::{Shape, Topology};
use units::{PcpuId, Rate, VmId, WorldId};

const MS: u64 = 1_000_000;

/// One pCPU; a quantum of 10 ms, ticks and windows of 1 ms; a limit may be passed by 5 permille, or
/// by 12 ms.
fn oracle(pool_limit: Option<u64>, vms: &[VmTerms]) -> Oracle {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 1,
        threads_per_core: 1,
    };
    let mut o = Oracle::new(&Topology::regular(shape).unwrap(), Bounds::of(10 * MS, MS, MS));
    let limit = pool_limit.map(|percent| Rate(Rate::ONE.0 * percent / 100));
    let pool = |limit| TreePool {
        parent: 0,
        shares: 1000,
        reservation: Rate(0),
        limit,
        expandable: true,
        scalable: false,
    };
    let terms = |name: &str, limit| PoolTerms { name: name.into(), pool: pool(limit), burst_ns: 0 };
    o.pools(0, vec![terms("/", None), terms("/p", limit)]);
    for (i, terms) in vms.iter().enumerate() {
        let (vm, world) = (VmId(i as u16 + 1), WorldId(i as u32 + 1));
        o.vm_added(0, vm, &format!("vm{}", i + 1), *terms);
        o.world_added(0, world, vm, None);
        o.state(0, world, State::Ready, None);
    }
    o
}

fn vm(pool: usize, limit: Option<u64>, reservation: u64) -> VmTerms {
    let rate = |percent: u64| Rate(Rate::ONE.0 * percent / 100);
    VmTerms { pool, limit: limit.map(rate), reservation: rate(reservation), ..VmTerms::from(1000) }
}

/// World `w` runs from one time to another, and is READY again; charges are exact.
fn stint(o: &mut Oracle, w: u32, from: u64, to: u64) {
    o.state(from, WorldId(w), State::Run, Some(PcpuId(0)));
    o.state(to, WorldId(w), State::Ready, None);
    o.charged(to, WorldId(w), to - from);
    o.pcpu_busy(to, PcpuId(0), to - from);
}

fn count(v: &Verdict, invariant: Invariant) -> (u64, String) {
    (
        v.count(invariant),
        v.violations
            .iter()
            .find(|x| x.invariant == invariant)
            .map(ToString::to_string)
            .unwrap_or_default(),
    )
}

#[test]
fn a_limit_is_held_over_any_second_and_not_over_the_run() {
    // 50 % allowed, and 12 ms: 512 ms in a second may be, 513 may not, wherever the second begins.
    for (over, found) in [(12, 0), (13, 1)] {
        for terms in [(None, vm(0, Some(50), 0)), (Some(50), vm(1, None, 0))] {
            let mut o = oracle(terms.0, &[terms.1]);
            o.held_back(0, WorldId(1), true);
            stint(&mut o, 1, 700 * MS, 950 * MS);
            o.held_back(950 * MS, WorldId(1), true);
            stint(&mut o, 1, 1300 * MS, (1550 + over) * MS);
            o.held_back((1550 + over) * MS, WorldId(1), true);
            let (n, text) = count(&o.finish(3000 * MS), Invariant::Limit);
            assert_eq!(n, found, "{over} ms more: {text}");
            let object = if terms.0.is_some() {
                "host: at 1563000000 ns: limit: seen pool /p: "
            } else {
                "VM 1 (vm1): at 1563000000 ns: limit: seen "
            };
            assert!(
                n == 0 || text == format!("{object}513000000 ns in a second, allowed 512000000 ns"),
                "{text}"
            );
        }
    }
}

#[test]
fn what_is_reserved_and_asked_for_but_not_given_adds_up() {
    // VM 1 is sure of half of the pCPU and asks for all; VM 2 has it for 100 ms. Allowed: 13 + 11 +
    // 2 * 10 ms.
    let run = |until: u64| {
        let mut o = oracle(None, &[vm(0, None, 50), vm(0, None, 0)]);
        stint(&mut o, 2, 0, until * MS);
        count(&o.finish(until * MS), Invariant::Reservation)
    };
    assert_eq!(run(80).0, 0);
    let (n, text) = run(100);
    assert_eq!(n, 1);
    assert!(
        text.contains("VM 1 (vm1): at ")
            && text.contains("ns less than reserved, allowed 44000000 ns"),
        "{text}"
    );
}

#[test]
fn a_reservation_is_held_only_where_the_tree_admits_it() {
    // The VM in the pool asks for all from the begin, and gets nothing: its pool's limit of 40 % is
    // less than the 50 % that it reserves. The one outside reserves as much, and is sure of it.
    let late = |pool_limit, first: VmTerms| {
        let mut o = oracle(pool_limit, &[first, vm(0, None, 0)]);
        stint(&mut o, 2, 0, 200 * MS);
        count(&o.finish(200 * MS), Invariant::Reservation).0
    };
    assert_eq!([late(Some(40), vm(1, None, 50)), late(Some(50), vm(1, None, 50))], [0, 1]);
    assert_eq!([late(Some(40), vm(0, None, 50)), late(None, vm(0, None, 101))], [1, 0]);
    // A VM that is off reserves nothing.
    let mut o = oracle(None, &[vm(0, None, 60), vm(0, None, 60), vm(0, None, 0)]);
    o.vm_removed(0, VmId(2));
    stint(&mut o, 3, 0, 200 * MS);
    assert_eq!(count(&o.finish(200 * MS), Invariant::Reservation).0, 1);
}

#[test]
fn a_pcpu_may_idle_beside_one_that_is_held_back_and_beside_no_other() {
    let mut o = oracle(None, &[vm(0, Some(50), 0)]);
    o.held_back(0, WorldId(1), true);
    o.held_back(50 * MS, WorldId(1), false);
    stint(&mut o, 1, 51 * MS, 60 * MS);
    o.held_back(60 * MS, WorldId(1), true);
    assert_eq!(count(&o.clone().finish(100 * MS), Invariant::IdleWhileWaiting).0, 0);
    o.held_back(100 * MS, WorldId(1), false);
    let (n, text) = count(&o.finish(103 * MS), Invariant::IdleWhileWaiting);
    assert_eq!(
        (n, text.contains("idle beside the READY world for 3000000 ns, allowed 1000000 ns")),
        (1, true),
        "{text}"
    );
}

#[test]
fn worlds_that_wake_together_do_not_ask_for_more_pcpus_than_there_are() {
    // Two worlds want the only pCPU in the second half of each ms, and none does in the first: they
    // get all the time that there is.
    let mut o = oracle(None, &[vm(0, None, 90)]);
    o.world_added(0, WorldId(2), VmId(1), None);
    o.state(0, WorldId(1), State::WaitIdle, None);
    for begin in (0..200).map(|ms| ms * MS + MS / 2) {
        (1..=2).for_each(|w| o.state(begin, WorldId(w), State::Ready, None));
        stint(&mut o, 1, begin, begin + MS / 4);
        stint(&mut o, 2, begin + MS / 4, begin + MS / 2);
        (1..=2).for_each(|w| o.state(begin + MS / 2, WorldId(w), State::WaitIdle, None));
    }
    let (n, text) = count(&o.finish(200 * MS), Invariant::Reservation);
    assert_eq!(n, 0, "{text}");
}
