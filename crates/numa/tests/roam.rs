//! What asks for a change of homes: loads by entitlement, those of the last round, and VMs that no
//! node has room for.

use crate::host::{GIB, Host, ROUND_NS, id};
use numa::{Client, ClientId, Knobs, Load, Reason, Refusal};

/// What each wants is the same; those in the one node are entitled to most of it, and those in the
/// other to an eighth.
#[test]
fn a_client_that_is_entitled_to_little_is_little_load() {
    let mut host = Host::new(2, 4, Knobs::default());
    (1..=4).for_each(|vm| _ = host.start(vm, 4));
    assert_eq!([1, 2, 3, 4].map(|vm| host.home(vm)), [0, 1, 0, 1]);
    let load = |vm: u32| Load {
        id: id(vm),
        wanted: 4_000,
        used: 2_000,
        entitled: if vm % 2 == 0 { 3_500 } else { 500 },
        memory: vec![0; 2],
        talks: vec![],
    };
    let loads: Vec<Load> = (1..=4).map(load).collect();
    (1..=20).for_each(|round| _ = host.planner.round(round * ROUND_NS, &loads));
    assert_ne!(host.home(2), host.home(4));
}

/// Tasks of a higher class take three of the four cores of node 0 from then on.
#[test]
fn what_is_taken_of_a_node_is_load_that_cannot_move() {
    let knobs = Knobs { locality_weight: 0, ..Knobs::default() };
    let mut host = Host::new(2, 4, knobs);
    (1..=2).for_each(|vm| _ = host.start(vm, 2));
    host.rounds(20);
    assert_eq!([1, 2].map(|vm| host.home(vm)), [0, 1]);
    host.planner.set_taken(vec![3_000, 0]);
    assert_eq!(host.start(3, 1), 1, "a VM that comes has its home elsewhere");
    host.planner.remove(3);
    host.vms.retain(|v| v.id != id(3));
    host.round();
    assert_eq!([1, 2].map(|vm| host.home(vm)), [1, 1]);
    let last = host.planner.decisions(id(1)).last().expect("it moved").to_string();
    assert!(last.contains("loads 125.0 % and 50.0 %, expected 75.0 % and 100.0 %"), "{last}");
    host.planner.set_taken(vec![0, 3_000]);
    host.rounds(20);
    assert_eq!([1, 2].map(|vm| host.home(vm)), [0, 0]);
}

/// VMs 1 and 3 begin to burn at once. While half of what they want has been seen, VM 3 would be
/// best in the other node, where VM 1 is.
#[test]
fn a_load_that_is_seen_in_part_moves_nothing() {
    let mut host = Host::new(2, 4, Knobs { fairness_periods: 0, ..Knobs::default() });
    for (vm, vcpus) in [(1, 4), (2, 3), (3, 4)] {
        host.start(vm, vcpus);
    }
    assert_eq!([1, 2, 3].map(|vm| host.home(vm)), [0, 1, 1]);
    for vm in [1, 3] {
        host.vm(vm).wants = 0;
    }
    host.rounds(60);
    for vm in [1, 3] {
        host.vm(vm).wants = 4_000;
    }
    host.rounds(2);
    assert_eq!(host.planner.refused(), Some(Refusal::Passing));
    host.rounds(20);
    assert_eq!(host.count(Reason::Imbalance), 0, "{:#?}", host.decisions);
}

/// VMs below a limit that a node has enough for gain nothing without a home.
#[test]
fn a_vm_that_its_limit_keeps_waiting_keeps_its_home() {
    let mut host = Host::new(2, 8, Knobs::default());
    (1..=3).for_each(|vm| _ = host.start(vm, 6));
    let load = |vm: u32| Load {
        id: id(vm),
        wanted: if vm == 2 { 2_000 } else { 6_000 },
        used: 1_500,
        entitled: if vm == 2 { 2_000 } else { 1_500 },
        memory: vec![0; 2],
        talks: vec![],
    };
    let loads: Vec<Load> = (1..=3).map(load).collect();
    for round in 1..=40 {
        let out = host.planner.round(round * ROUND_NS, &loads);
        assert!(out.is_empty(), "{out:?}");
    }
}

/// One VM alone may use the idle cores, for it may take all of them; none is left for the next.
/// What it has reserved is not kept for it: while others have, it waits for that.
#[test]
fn what_idles_is_for_one_vm_and_its_reservation_is_not_kept() {
    let mut host = Host::new(3, 8, Knobs::default());
    (1..=5).for_each(|vm| _ = host.start(vm, 6));
    host.rounds(60);
    let roams: Vec<u32> = (1..=5).filter(|vm| host.planner.roams(*vm)).collect();
    let &[one] = &roams[..] else { panic!("{roams:?}") };
    for vm in (1..=5).filter(|vm| *vm != one) {
        host.planner.reserve(vm, 6, 4_000);
    }
    host.planner.reserve(one, 6, 6_000);
    host.round();
    assert!(!host.planner.roams(one) && host.planner.is_homeless(one), "4, 4 + 4 and 4 of 8");
    let home = |host: &Host, vm: u32| host.planner.home(id(vm));
    let alone = (1..=5).find(|vm| {
        let home = home(&host, *vm);
        home.is_some() && host.planner.homes().filter(|h| Some(h.1) == home).count() == 1
    });
    let alone = alone.expect("two are");
    host.planner.remove(alone);
    host.vms.retain(|v| v.id.vm != alone);
    host.round();
    assert!(home(&host, one).is_some(), "{:#?}", host.decisions);
}

/// Three VMs of six vCPUs on two nodes of eight cores: four vCPUs would wait beside two idle cores.
#[test]
fn a_vm_that_waits_beside_idle_cores_of_another_node_has_no_home_until_there_is_room() {
    let mut host = Host::new(2, 8, Knobs { fairness_periods: 0, ..Knobs::default() });
    (1..=3).for_each(|vm| _ = host.start(vm, 6));
    host.rounds(60);
    assert_eq!(host.count(Reason::Roams), 1, "{:#?}", host.decisions);
    let roams: Vec<u32> = (1..=3).filter(|vm| host.planner.roams(*vm)).collect();
    let &[one] = &roams[..] else { panic!("{roams:?}") };
    assert_eq!(host.planner.homes().map(|h| h.1).sum::<u32>(), 1, "the others have a node each");
    let said = host.planner.decisions(id(one)).last().expect("it left").to_string();
    assert!(said.contains("to none: others could give it 25.0 % of its cores more"), "{said}");
    // It finds room where another wants less, once that has lasted.
    let other = (1..=3).find(|vm| *vm != one).expect("three");
    host.vm(other).wants = 2_000;
    host.rounds(3);
    assert_eq!(host.planner.home(id(one)), None, "not for a moment");
    host.rounds(40);
    assert_eq!(host.home(one), host.home(other));
    assert_eq!(host.count(Reason::Roams), 1);
    let texts: Vec<String> = host.planner.decisions(id(one)).map(ToString::to_string).collect();
    let left = texts.iter().find(|t| t.contains("to none")).expect("it left");
    assert!(left.ends_with(" %, and it has a home again") && !left.contains("local"), "{left}");
    let all: Vec<_> = host.planner.decisions(id(one)).collect();
    let left = all.iter().find(|d| d.reason == Reason::Roams).expect("it left");
    let back = all.last().expect("it came");
    assert_eq!(back.to_string().contains("where it was before"), back.to == left.to, "{texts:?}");
    // Other thresholds count at once.
    let mut host = Host::new(2, 8, Knobs::default());
    (1..=3).for_each(|vm| _ = host.start(vm, 6));
    host.rounds(60);
    host.planner.set_knobs(Knobs { roam_percent: 0, ..Knobs::default() });
    host.round();
    assert!((1..=3).all(|vm| host.planner.home(id(vm)).is_some()));
    // Nothing idles that would be worth it, or it is not to be.
    for (vcpus, knobs) in [
        (8, Knobs::default()),
        (6, Knobs { roam_percent: 0, ..Knobs::default() }),
        (6, Knobs { roam_percent: 26, ..Knobs::default() }),
    ] {
        let mut host = Host::new(2, 8, knobs);
        (1..=3).for_each(|vm| _ = host.start(vm, vcpus));
        host.rounds(60);
        assert_eq!(host.count(Reason::Roams), 0, "{vcpus} {knobs:?}");
    }
}

/// A VM that its affinity keeps from the idle cores has a home.
#[test]
fn a_vm_that_cannot_use_idle_cores_keeps_its_home() {
    let mut host = Host::new(2, 8, Knobs::default());
    host.start(1, 6);
    let client = |vm, nodes| Client { id: id(vm), vcpus: 6, memory: GIB, nodes, siblings_most: 0 };
    host.planner.add(0, &[client(2, 0b10), client(3, 0b10)]);
    let load = |vm| Load {
        id: id(vm),
        wanted: 6_000,
        used: 4_000,
        entitled: 5_333,
        memory: vec![0, GIB],
        talks: vec![],
    };
    for round in 1..=40 {
        host.planner.round(round * ROUND_NS, &[load(1), load(2), load(3)]);
    }
    assert_eq!([1, 2, 3].map(|vm| host.planner.home(id(vm))), [Some(0), Some(1), Some(1)]);
}

/// Part of the wide VM shares its node with the narrow one, and its other part waits for that: it
/// has no homes until the narrow one ends.
#[test]
fn a_wide_vm_that_a_crowded_node_holds_back_has_no_homes_while_that_lasts() {
    let mut host = Host::new(2, 4, Knobs::default());
    host.start_parts(1, &[4, 4]);
    host.start(2, 4);
    host.rounds(40);
    assert!(host.planner.roams(1) && !host.planner.roams(2), "{:#?}", host.decisions);
    assert_eq!(host.count(Reason::Roams), 2, "both parts: {:#?}", host.decisions);
    host.vm(2).wants = 0;
    host.rounds(40);
    assert!(!host.planner.roams(1));
    let home = |part| host.planner.home(ClientId { vm: 1, part });
    assert!(home(0).is_some() && home(1).is_some() && home(0) != home(1));
}

/// A narrow VM leaves a crowded node for cores that the parts of a wide one cannot use, where the
/// wide one is pinned to its homes.
#[test]
fn what_parts_of_a_wide_vm_cannot_use_idles() {
    let mut host = Host::new(2, 4, Knobs::default());
    let client = |vm, part, nodes| Client {
        id: ClientId { vm, part },
        vcpus: 4,
        memory: GIB,
        nodes,
        siblings_most: 0,
    };
    let parts = [client(1, 0, 0b01), client(1, 1, 0b10)];
    host.planner.add(0, &parts);
    host.planner.add(0, &[client(2, 0, 0)]);
    let load = |id, entitled| Load {
        id,
        wanted: 4_000,
        used: 2_000,
        entitled,
        memory: vec![0; 2],
        talks: vec![],
    };
    let loads = [load(parts[0].id, 2_667), load(parts[1].id, 2_667), load(id(2), 2_667)];
    for round in 1..=40 {
        host.planner.round(round * ROUND_NS, &loads);
    }
    assert!(host.planner.roams(2) && !host.planner.roams(1));
}

/// VM 3 burns after a long rest: by the smoothed loads alone it would leave its home within 12 s.
#[test]
fn a_vm_that_waits_for_a_moment_keeps_its_home() {
    let mut host = Host::new(2, 8, Knobs { fairness_periods: 0, ..Knobs::default() });
    (1..=3).for_each(|vm| _ = host.start(vm, 6));
    host.vm(3).wants = 0;
    host.rounds(100);
    host.vm(3).wants = 6_000;
    host.rounds(9);
    assert_eq!(host.count(Reason::Roams), 0, "{:#?}", host.decisions);
    host.rounds(20);
    assert_eq!(host.count(Reason::Roams), 1);
}
