//! VMs that ask for few LLCs of their home node, or for all.

use numa::{Asks, ClientId, Knobs, Llc, Llcs, Reason, VcpuLoads};
use settings::LlcChoice::{Consolidate, Spread};
use std::collections::BTreeMap;

const ROUND_NS: u64 = 2_000_000_000;

/// Two nodes, each of four LLCs of four cores with two threads.
fn host() -> Llcs {
    let llcs = (0..8).map(|i| Llc { node: i / 4, cores: 4, threads: 8 }).collect();
    Llcs::new(llcs, Knobs::default()).expect("there are several")
}

fn id(vm: u32) -> ClientId {
    ClientId { vm, part: 0 }
}

fn asks(choice: settings::LlcChoice, vcpus: u32, node: u32) -> Asks {
    Asks { choice, vcpus, node, prefer_ht: false, llcs: 0 }
}

/// How many vCPUs of a VM have each LLC.
fn llcs(of: &Llcs, vm: u32, vcpus: u32) -> Vec<(u32, u32)> {
    let mut all = BTreeMap::new();
    for llc in (0..vcpus).filter_map(|v| of.of(id(vm), v)) {
        *all.entry(llc).or_insert(0) += 1;
    }
    all.into_iter().collect()
}

/// A VM each of whose vCPUs wants so many thousandths of a pCPU, and gets them.
fn load(vm: u32, vcpus: usize, node: u32, wants: u64) -> VcpuLoads {
    let entitled = wants * vcpus as u64;
    VcpuLoads { id: id(vm), node, entitled, vcpus: vec![(wants, wants); vcpus] }
}

#[test]
fn few_llcs_are_as_many_as_its_vcpus_have_cores_in_and_all_are_all_of_the_node() {
    for (choice, vcpus, seen) in [
        (Consolidate, 3, vec![(4, 3)]),
        (Consolidate, 4, vec![(4, 4)]),
        (Consolidate, 9, vec![(4, 3), (5, 3), (6, 3)]),
        (Consolidate, 18, vec![(4, 4), (5, 5), (6, 4), (7, 5)]),
        (Spread, 2, vec![(4, 1), (5, 1)]),
        (Spread, 4, vec![(4, 1), (5, 1), (6, 1), (7, 1)]),
        (Spread, 10, vec![(4, 2), (5, 3), (6, 2), (7, 3)]),
    ] {
        let mut host = host();
        host.seat(0, id(1), asks(choice, vcpus, 1));
        assert_eq!(llcs(&host, 1, vcpus), seen, "{choice:?} {vcpus}");
        assert!(host.of(id(2), 0).is_none(), "it has no choice");
    }
    let mut host = host();
    host.seat(0, id(1), Asks { prefer_ht: true, ..asks(Consolidate, 8, 0) });
    assert_eq!(llcs(&host, 1, 8), [(0, 8)], "threads count");
    host.seat(0, id(2), Asks { llcs: 0b1100_1111, ..asks(Spread, 4, 1) });
    assert_eq!(llcs(&host, 2, 4), [(6, 2), (7, 2)], "its affinity leaves it two");
}

#[test]
fn vms_that_are_consolidated_have_llcs_of_their_own_while_there_are_some() {
    let mut host = host();
    (1..=4).for_each(|vm| _ = host.seat(0, id(vm), asks(Consolidate, 4, 0)));
    let all: Vec<_> = (1..=4).flat_map(|vm| llcs(&host, vm, 4)).collect();
    assert_eq!(all, [(0, 4), (1, 4), (2, 4), (3, 4)]);
    host.remove(2);
    host.seat(0, id(5), asks(Consolidate, 4, 0));
    assert_eq!(llcs(&host, 5, 4), [(1, 4)]);
}

#[test]
fn a_vm_follows_its_home_and_stays_while_that_does() {
    let mut host = host();
    host.seat(0, id(1), asks(Consolidate, 4, 0));
    assert_eq!(host.seat(1, id(1), asks(Consolidate, 4, 0)), [], "nothing has changed");
    host.seat(2, id(1), asks(Consolidate, 4, 1));
    assert_eq!(llcs(&host, 1, 4), [(4, 4)]);
    host.leave(id(1));
    assert!(llcs(&host, 1, 4).is_empty());
}

#[test]
fn load_that_others_bring_moves_a_vm_that_is_consolidated() {
    let mut host = host();
    for vm in 1..=5 {
        host.seat(0, id(vm), asks(Consolidate, 4, 0));
    }
    let crowded = llcs(&host, 5, 4);
    assert_eq!(crowded, llcs(&host, 1, 4), "the fifth shares one");
    let mut moved = vec![];
    for round in 1..=20 {
        // VM 2 is idle: its LLC has room.
        let loads: Vec<VcpuLoads> =
            (1..=5).map(|vm| load(vm, 4, 0, if vm == 2 { 0 } else { 900 })).collect();
        moved.extend(host.round(round * ROUND_NS, &loads));
    }
    assert_eq!(moved.len(), 1, "{moved:#?}");
    assert_eq!((moved[0].reason, moved[0].to), (Reason::Imbalance, llcs(&host, 2, 4)[0].0));
}

#[test]
fn vms_without_a_choice_count_where_there_is_least_load() {
    // One consolidated VM fills its LLC; the others' load has three that are empty.
    for wants in [900, 1400] {
        let mut host = host();
        host.seat(0, id(1), asks(Consolidate, 4, 0));
        let mut moved = vec![];
        for round in 1..=40 {
            let loads = [load(1, 4, 0, 910), load(2, 8, 0, wants)];
            moved.extend(host.round(round * ROUND_NS, &loads));
        }
        assert!(moved.is_empty(), "{wants}: {moved:#?}");
    }
}

#[test]
fn clients_are_divided_anew_when_cores_come_and_go() {
    let mut host = host();
    host.seat(0, id(1), asks(Consolidate, 4, 0));
    host.seat(0, id(2), asks(Spread, 4, 0));
    host.seat(0, id(3), asks(Spread, 4, 1));
    assert_eq!(host.take_said().len(), 9);
    let moved = host.set_cores(1, &[0, 4, 4, 4, 4, 4, 4, 4]);
    assert_eq!(llcs(&host, 1, 4), [(1, 4)], "in its home");
    assert_eq!(llcs(&host, 2, 4).len(), 3, "all that are left");
    assert_eq!((moved.len(), host.take_said().len()), (4, 4), "the other node stays");
    host.set_cores(2, &[4, 4, 4, 2, 4, 4, 4, 4]);
    assert_eq!(llcs(&host, 2, 4), [(0, 1), (1, 1), (2, 1), (3, 1)]);
    let said = host.take_said();
    let of: Vec<u32> = said.iter().filter(|s| s.0 == id(2)).map(|s| s.1).collect();
    assert_eq!(of, [0, 1, 2, 3], "the first vCPU of each part");
    assert_eq!(llcs(&host, 1, 4).len(), 1, "it fits into one of the larger ones");
    host.set_cores(3, &[2, 2, 2, 2, 4, 4, 4, 4]);
    assert_eq!(llcs(&host, 1, 4).len(), 2, "none has cores for four");
}

#[test]
fn a_vm_that_is_spread_stays_so_whatever_the_load() {
    let mut host = host();
    host.seat(0, id(1), asks(Spread, 5, 0));
    host.seat(0, id(2), asks(Consolidate, 4, 0));
    for round in 1..=40 {
        host.round(round * ROUND_NS, &[load(1, 5, 0, 900), load(2, 4, 0, 1000)]);
        assert_eq!(llcs(&host, 1, 5).len(), 4, "round {round}");
    }
}

#[test]
fn load_without_a_choice_is_gone_with_its_vm() {
    let mut host = host();
    host.seat(0, id(1), asks(Consolidate, 4, 0));
    for round in 1..=20 {
        host.round(round * ROUND_NS, &[load(1, 4, 0, 250), load(2, 8, 0, 500)]);
    }
    for round in 21..=60 {
        host.round(round * ROUND_NS, &[load(1, 4, 0, 125)]);
    }
    host.seat(61 * ROUND_NS, id(3), asks(Consolidate, 1, 0));
    let (one, other) = (llcs(&host, 1, 4)[0].0, llcs(&host, 3, 1)[0].0);
    assert_ne!(one, other, "three LLCs have nothing");
}

#[test]
fn where_a_node_has_one_llc_there_is_nothing_to_choose() {
    let llc = |node| Llc { node, cores: 4, threads: 4 };
    assert!(Llcs::new(vec![llc(0), llc(1)], Knobs::default()).is_none());
    assert!(Llcs::new((0..66).map(|i| llc(i / 33)).collect(), Knobs::default()).is_none());
}

/// Five VMs of three vCPUs on four LLCs of four cores: two share one, and the others have idle
/// cores. Where homes are nodes one would have none; LLCs are what a VM has asked for.
#[test]
fn a_client_keeps_the_llcs_that_it_asks_for() {
    let mut host = host();
    (1..=5).for_each(|vm| _ = host.seat(0, id(vm), asks(Consolidate, 3, 0)));
    let loads: Vec<VcpuLoads> = (1..=5).map(|vm| load(vm, 3, 0, 1000)).collect();
    for round in 1..=40 {
        host.round(round * ROUND_NS, &loads);
        assert!((1..=5).all(|vm| llcs(&host, vm, 3).len() == 1), "round {round}");
    }
}
