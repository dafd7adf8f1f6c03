//! Two ideals and what lies between them: C wants 2 pCPUs for 10 of each 20 ms; A, which has one
//! vCPU and three times the shares of B, cannot use its three quarters of what is left while C is
//! away. By the moment it gets half a pCPU, on average three quarters.

use check::{Bounds, Invariant, Oracle, State, VmTerms};
use topology::{Shape, Topology};
use units::{PcpuId, Rate, VmId, WorldId};

const MS: u64 = 1_000_000;
const A: u32 = 1;
const B: [u32; 2] = [2, 3];
const C: [u32; 2] = [4, 5];

/// Two pCPUs and these VMs; a limit that does not bind makes it a host whose weights follow demand.
fn host(limit: bool) -> Oracle {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 2,
        threads_per_core: 1,
    };
    let bounds = Bounds { lag_replanned_ns: 40 * MS, ..Bounds::of(10 * MS, MS, MS) };
    let mut o = Oracle::new(&Topology::regular(shape).unwrap(), bounds);
    let limit = limit.then_some(Rate(2 * Rate::ONE.0));
    for (i, (name, shares, worlds)) in
        [("a", 3000, &[A][..]), ("b", 1000, &B), ("c", 1_000_000, &C)].into_iter().enumerate()
    {
        let vm = VmId(i as u16 + 1);
        o.vm_added(
            0,
            vm,
            name,
            VmTerms { limit: limit.filter(|_| name == "b"), ..VmTerms::from(shares) },
        );
        worlds.iter().for_each(|w| o.world_added(0, WorldId(*w), vm, None));
    }
    [A, B[0], B[1]].into_iter().for_each(|w| o.state(0, WorldId(w), State::Ready, None));
    o
}

/// How far A was ahead and behind at most in four seconds, in ms, and the VMs beyond their bounds.
/// In each 20 ms A runs for `first` ms before C's second vCPU may, and for `second` ms when C's
/// first has slept; B has the rest.
fn off(limit: bool, first: u64, second: u64) -> (u64, u64, Vec<String>) {
    let mut o = host(limit);
    for t in (0..4000).step_by(20) {
        C.into_iter().for_each(|w| o.state(t * MS, WorldId(w), State::Ready, None));
        let stints = [
            (C[0], 0, 0, 10, State::Wait),
            (A, 1, 0, first, State::Ready),
            (C[1], 1, first, 10 + first, State::Wait),
            (A, 0, 10, 10 + second, State::Ready),
            (B[0], 0, 10 + second, 20, State::Ready),
            (B[1], 1, 10 + first, 20, State::Ready),
        ];
        let run = |s: &(u32, u16, u64, u64, State)| s.2 < s.3;
        let mut events: Vec<(u64, bool, _)> = stints
            .into_iter()
            .filter(run)
            .flat_map(|s| [(s.2, true, s), (s.3, false, s)])
            .collect();
        events.sort_by_key(|e| (e.0, e.1));
        for (at, begins, (w, pcpu, from, to, then)) in events {
            if begins {
                o.state((t + at) * MS, WorldId(w), State::Run, Some(PcpuId(pcpu)));
            } else {
                o.state((t + at) * MS, WorldId(w), then, None);
                o.charged((t + at) * MS, WorldId(w), (to - from) * MS);
                o.pcpu_busy((t + at) * MS, PcpuId(pcpu), (to - from) * MS);
            }
        }
    }
    let v = o.finish(4000 * MS);
    assert_eq!(v.violated(), v.count(Invariant::Lag), "{:?}", v.violations);
    let mut names: Vec<String> =
        v.violations.iter().filter_map(|x| x.vm.clone()).map(|(_, name)| name).collect();
    names.sort();
    names.dedup();
    (v.vms[0].surplus_max_ns / MS, v.vms[0].owed_max_ns / MS, names)
}

#[test]
fn where_a_plan_goes_by_averages_what_lies_between_both_ideals_is_right() {
    let nobody: Vec<String> = vec![];
    // Half a pCPU, 0.6 and three quarters.
    for (first, second) in [(0, 10), (2, 10), (5, 7), (5, 10)] {
        assert_eq!(
            off(true, first, second),
            (0, if first == 0 { 1 } else { 0 }, nobody.clone()),
            "{first} {second}"
        );
    }
    // 0.1 above the average, which fades with 400 ms; its bound is 64 ms, B's 115. Then as much as
    // it can run: a quarter above.
    assert_eq!(off(true, 7, 10), (37, 0, nobody));
    let (alone, both) = (vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(off(true, 10, 10), (94, 0, alone.clone()));
    // 0.2 and 0.4 below what it gets by the moment.
    assert_eq!(off(true, 0, 6), (0, 81, alone));
    assert_eq!(off(true, 0, 2), (0, 160, both));
}

#[test]
fn so_it_is_on_a_host_of_shares_alone_within_a_tighter_bound() {
    let both = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(off(false, 0, 10), (0, 1, vec![]));
    assert_eq!(off(false, 2, 10), (0, 0, vec![]));
    assert_eq!(off(false, 5, 10), (0, 0, vec![]));
    // 0.1 above the average and 0.2 below the moment: a quantum and a tick are 24 ms.
    assert_eq!(off(false, 7, 10), (37, 0, both.clone()));
    assert_eq!(off(false, 0, 8), (0, 41, both.clone()));
    assert_eq!(off(false, 0, 2), (0, 160, both));
}
