//! Homes of a made-up host.

use super::*;
use crate::{discover::Thread, made_up::MadeUp};
use numa::Load;
use topology::{NodeFacts, Place};
use units::{PcpuId, Rate};

#[test]
fn nodes_are_numbered_as_the_scheduler_does_and_keep_the_kernels_numbers() {
    // The first pCPU is in the kernel's node 1.
    let place = |core, node| Place { socket: 0, node, llc: node, core, thread: 0 };
    let places = vec![place(0, 0), place(1, 1), place(2, 0)];
    let topology = Topology::from_places(places).unwrap();
    let set = |text: &str| text.parse::<PcpuSet>().unwrap();
    let fact =
        |id, pcpus| NodeFacts { id, pcpus, memory_kib: Some(u64::from(id) + 1), distances: vec![] };
    let facts = [fact(0, set("1")), fact(1, set("0,2")), fact(4, PcpuSet::empty())];
    let seen: Vec<_> = nodes(&topology, &facts)
        .into_iter()
        .map(|n| (n.kernel, n.pcpus.to_string(), n.core_of.len(), n.cores, n.memory / 1024))
        .collect();
    let node =
        |kernel, pcpus: &str, count, kib| (kernel, pcpus.to_owned(), count as usize, count, kib);
    assert_eq!(seen, [node(1, "0,2", 2, 2), node(0, "1", 1, 1), node(4, "", 0, 5)]);
    let mut facts = facts;
    let rows = |facts: &[NodeFacts]| places::distances(&nodes(&topology, facts), facts);
    assert_eq!(rows(&facts), Vec::<Vec<u64>>::new(), "the kernel says none");
    // From the kernel's nodes 0, 1 and 4 to each of them.
    for (fact, row) in facts.iter_mut().zip([[10, 21, 17], [21, 10, 31], [17, 31, 10]]) {
        fact.distances = row.to_vec();
    }
    assert_eq!(rows(&facts), [[10, 21, 31], [21, 10, 17], [31, 17, 10]]);
}

#[test]
fn what_is_taken_of_pcpus_is_summed_by_node() {
    let t = MadeUp::new("homes-taken");
    let half = Rate(Rate::ONE.0 / 2);
    let of = [(PcpuId(0), half), (PcpuId(1), Rate::ONE), (PcpuId(3), half)];
    assert_eq!(places::taken(&host(&t).nodes, &of.into()), [1_500, 500, 0]);
}

/// Two nodes of two pCPUs, and one that has memory alone.
fn host(t: &MadeUp) -> Homes {
    let node = "sys/devices/system/node";
    t.put(&format!("{node}/online"), b"0-2");
    for (n, pcpus) in ["0-1", "2-3", ""].iter().enumerate() {
        t.put(&format!("{node}/node{n}/cpulist"), pcpus.as_bytes());
        let text = format!("Node {n} MemTotal: 1048576 kB\nNode {n} MemFree: 524288 kB\n");
        t.put(&format!("{node}/node{n}/meminfo"), text.as_bytes());
    }
    let place = |core: u32| Place { socket: 0, node: core / 2, llc: core / 2, core, thread: 0 };
    let topology = Topology::from_places((0..4).map(place).collect()).unwrap();
    Homes::new(&topology, &t.roots(), Knobs::default()).unwrap()
}

/// A VM whose vCPUs have these numbers and may use these pCPUs and memory.
fn vm(t: &MadeUp, vcpus: &[(u32, &str, &str)]) -> FoundVm {
    let thread = |(i, (vcpu, pcpus, mems)): (i32, &(u32, &str, &str))| {
        let text = format!("Cpus_allowed_list:\t{pcpus}\nMems_allowed_list:\t{mems}\n");
        t.put(&format!("proc/7/task/{}/status", 70 + i), text.as_bytes());
        Thread { tid: 70 + i, pid: 7, vcpu: Some(*vcpu), comm: String::new() }
    };
    let threads = (0..).zip(vcpus).map(thread).collect();
    let (name, cgroup) = ("vm".to_owned(), "/vm".to_owned());
    FoundVm { pid: 7, started: 1, name, cgroup, threads, uid: None, named: true }
}

fn homes_of(t: &MadeUp, vcpus: &[(u32, &str, &str)]) -> Vec<(Range<u32>, u64, Option<u32>)> {
    let (mut homes, vm) = (host(t), vm(t, vcpus));
    homes.take(1, &vm, &t.roots(), Guest::at(0..64 << 20), false);
    homes.adopt(1, "vm", &[], &|_| {});
    let of = |p: &Part| (p.vcpus.clone(), p.nodes, homes.planner.home(p.id));
    homes.vms[&1].parts.iter().map(of).collect()
}

#[test]
fn parts_of_a_vm_go_where_their_vcpus_may_run_and_nowhere_if_that_is_no_node() {
    let t = MadeUp::new("homes");
    // vCPU 2 is unplugged.
    let pinned = [(0, "2", "0-2"), (1, "3", "0-2"), (3, "0", "0-2"), (4, "0-1", "0-2")];
    let max = u32::MAX;
    assert_eq!(homes_of(&t, &pinned), [(0..3, 0b10, Some(1)), (3..max, 0b01, Some(0))]);
    assert_eq!(homes_of(&t, &[(0, "0-3", "0-2")]), [(0..max, 0b11, Some(0))]);
    assert_eq!(homes_of(&t, &[(0, "0-3", "1")]), [(0..max, 0b10, Some(1))]);
    assert_eq!(homes_of(&t, &[(0, "0", "0-2"), (1, "2", "0-2")]), [(0..max, 0, None)]);
    // A node of which they may use fewer pCPUs than they are is no home if there are others.
    let two = |pcpus| [(0, pcpus, "0-2"), (1, pcpus, "0-2")];
    assert_eq!(homes_of(&t, &two("1-2")), [(0..max, 0, None)]);
    assert_eq!(homes_of(&t, &two("1-3")), [(0..max, 0b10, Some(1))]);
    assert_eq!(homes_of(&t, &two("1")), [(0..max, 0b01, Some(0))]);
}

#[test]
fn what_follows_leaves_a_node_its_reserve() {
    let t = MadeUp::new("homes-room");
    let (mut homes, vm) = (host(&t), vm(&t, &[(0, "2-3", "0-2")]));
    homes.take(1, &vm, &t.roots(), Guest::at(0..64 << 20), false);
    homes.adopt(1, "vm", &[], &|_| {});
    assert!(!homes.vms[&1].is_free(), "what binds its memory is not known yet");
    homes.vms.get_mut(&1).unwrap().known = true;
    let id = ClientId { vm: 1, part: 0 };
    let load = Load {
        id,
        wanted: 1000,
        used: 1000,
        entitled: 1000,
        memory: vec![64 << 20, 0, 0],
        talks: vec![],
    };
    for round in 0..10 {
        homes.planner.round(round, std::slice::from_ref(&load));
    }
    let ordered = |free_kib: u64| {
        let text = format!("Node 1 MemFree: {free_kib} kB\n");
        t.put("sys/devices/system/node/node1/meminfo", text.as_bytes());
        homes.jobs(&t.roots()).iter().map(|j| j.bytes).sum::<u64>()
    };
    assert_eq!([1 << 19, 66 << 10, 64 << 10].map(ordered), [64 << 20, 2 << 20, 0]);
    homes.vms.get_mut(&1).unwrap().bound.all = "0".parse().unwrap();
    t.put("sys/devices/system/node/node1/meminfo", b"Node 1 MemFree: 524288 kB\n");
    assert!(homes.jobs(&t.roots()).is_empty(), "it is bound");
}

#[test]
fn bound_memory_is_found_said_and_holds_the_home() {
    let t = MadeUp::new("homes-bound");
    let (mut homes, vm) = (host(&t), vm(&t, &[(0, "0-3", "0-2")]));
    t.put("proc/7/numa_maps", b"10000 bind:1 anon=9 N1=9\n20000 default\n");
    homes.take(1, &vm, &t.roots(), Guest::at(0x10000..64 << 20), false);
    let may = |homes: &Homes| {
        let vm = &homes.vms[&1];
        homes.may(&t.roots(), vm, true).nodes[0]
    };
    assert_eq!(may(&homes), 0b11);
    let said = std::cell::RefCell::new(String::new());
    while !homes.vms[&1].known {
        homes.bind(&Slots::default(), &|text| *said.borrow_mut() += text);
    }
    assert!(said.borrow().contains("bound to NUMA nodes 1"), "{}", said.borrow());
    assert_eq!((may(&homes), homes.vms[&1].is_free()), (0b10, false));
    homes.vms.get_mut(&1).unwrap().bound.only = "2".parse().unwrap();
    assert_eq!(may(&homes), 0b11, "a node without pCPUs is no home");
    let pinned = [(0, "0-1", "0-2"), (1, "0-1", "0-2"), (2, "0-1", "0-2")];
    homes.take(2, &self::vm(&t, &pinned), &t.roots(), Guest::at(0x10000..64 << 20), false);
    homes.vms.get_mut(&2).unwrap().bound.only = "1".parse().unwrap();
    let vm = &homes.vms[&2];
    assert_eq!((vm.parts.len(), homes.may(&t.roots(), vm, true).nodes[0]), (2, 0b01));
}

#[test]
fn a_part_leaves_a_node_whose_pcpus_go_off_line() {
    let t = MadeUp::new("homes-offline");
    let (mut homes, vm) = (host(&t), vm(&t, &[(0, "0-3", "0-2")]));
    homes.take(1, &vm, &t.roots(), Guest::at(0..64 << 20), false);
    homes.adopt(1, "vm", &[], &|_| {});
    let home = |homes: &Homes| homes.planner.home(ClientId { vm: 1, part: 0 });
    assert_eq!((home(&homes), homes.all()), (Some(0), 0b11));
    homes.set_pcpus(&"2-3".parse().unwrap());
    assert_eq!((home(&homes), homes.all()), (Some(1), 0b10));
    homes.set_pcpus(&"0,2-3".parse().unwrap());
    assert_eq!((homes.all(), homes.nodes[0].cores), (0b11, 1));
}

#[test]
fn a_vm_has_the_llcs_that_its_settings_ask_for_and_all_of_its_home_without() {
    let t = MadeUp::new("homes-llcs");
    t.put("sys/devices/system/node/online", b"0");
    t.put("sys/devices/system/node/node0/cpulist", b"0-7");
    t.put("sys/devices/system/node/node0/meminfo", b"Node 0 MemTotal: 1048576 kB\n");
    let place = |core: u32| Place { socket: 0, node: 0, llc: core / 2, core, thread: 0 };
    let topology = Topology::from_places((0..8).map(place).collect()).unwrap();
    let mut homes = Homes::new(&topology, &t.roots(), Knobs::default()).unwrap();
    let vcpus = [(0, "0-7", "0"), (1, "0-7", "0"), (2, "0-7", "0"), (3, "0-7", "0")];
    let found = vm(&t, &vcpus);
    homes.take(1, &found, &t.roots(), Guest::at(0..64 << 20), false);
    homes.adopt(1, "vm", &[], &|_| {});
    let mut asks = |choice| {
        homes.chosen.asks(1, choice);
        homes.choose(&t.roots());
        let of = |index, kind| World { index, kind, vm: 1, ..World::ZERO };
        let vm = &homes.vms[&1];
        let mut all: Vec<u64> =
            (0..4).map(|v| homes.home(vm, &of(v, sched_core::KIND_VCPU))).collect();
        all.push(homes.home(vm, &of(0, sched_core::KIND_HELPER)));
        (all, homes.chosen.of(&vm.parts[0]))
    };
    assert_eq!(asks(None), (vec![0; 5], vec![]), "all of the host is no home");
    let few = Some(LlcChoice::Consolidate);
    assert_eq!(asks(few), (vec![1, 1, 2, 2, 0], vec![0, 1]));
    let all = Some(LlcChoice::Spread);
    assert_eq!(asks(all), (vec![1, 2, 4, 8, 0], vec![0, 1, 2, 3]));
    assert_eq!(asks(None), (vec![0; 5], vec![]));
    let world = World { home: 0b110, ..World::ZERO };
    assert_eq!(homes.pcpus(&world).unwrap().to_string(), "2-5");
    homes.chosen.asks(1, few);
    homes.choose(&t.roots());
    homes.set_pcpus(&"2-7".parse().unwrap());
    let left = homes.chosen.of(&homes.vms[&1].parts[0]);
    assert!(left.len() == 2 && !left.contains(&0), "{left:?}");
    assert_eq!(homes.chosen.note(ClientId { vm: 1, part: 0 }), None);
    // Affinity that leaves the vCPUs no LLC in common.
    let apart = [(0, "2-3", "0"), (1, "2-3", "0"), (2, "4-5", "0"), (3, "4-5", "0")];
    let found = vm(&t, &apart);
    homes.take(1, &found, &t.roots(), Guest::at(0..64 << 20), false);
    homes.adopt(1, "vm", &[], &|_| {});
    homes.choose(&t.roots());
    assert_eq!(homes.chosen.of(&homes.vms[&1].parts[0]), [0; 0]);
    let note = homes.chosen.note(ClientId { vm: 1, part: 0 }).expect("it is said");
    assert!(note.contains("no LLC of its home in common"), "{note}");
    let host = host(&MadeUp::new("homes-no-llcs"));
    assert!(host.chosen.note(ClientId { vm: 1, part: 0 }).is_none(), "it asks for none");
}

#[test]
fn a_vm_that_prefers_threads_has_a_part_for_as_many_vcpus_as_a_node_has() {
    let t = MadeUp::new("homes-prefer-ht");
    drop(host(&t));
    let thread = |n: u32| Place { socket: 0, node: n / 4, llc: n / 4, core: n / 2, thread: n % 2 };
    let topology = Topology::from_places((0..8).map(thread).collect()).unwrap();
    for (n, pcpus) in ["0-3", "4-7"].iter().enumerate() {
        t.put(&format!("sys/devices/system/node/node{n}/cpulist"), pcpus.as_bytes());
    }
    let vcpus: Vec<_> = (0..4).map(|n| (n, "0-7", "0-2")).collect();
    let found = vm(&t, &vcpus);
    let mut homes = Homes::new(&topology, &t.roots(), Knobs::default()).unwrap();
    let mut homes_of = |by_threads| {
        homes.vms.remove(&1);
        homes.planner.remove(1);
        homes.take(1, &found, &t.roots(), Guest::at(0..64 << 20), by_threads);
        homes.adopt(1, "vm", &[], &|_| {});
        let of = |p: &Part| (p.tids.len(), homes.planner.home(p.id));
        homes.vms[&1].parts.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(homes_of(false), [(2, Some(0)), (2, Some(1))]);
    assert_eq!(homes_of(true), [(4, Some(0))]);
    // Of three threads that are left of a node a part has three at most.
    homes.set_pcpus(&"0-2,4-7".parse().unwrap());
    assert_eq!((homes.most(true), homes.most(false)), (3, 2));
}

#[test]
fn homes_are_in_nodes_or_in_the_llcs_of_one() {
    let t = MadeUp::new("homes-extent");
    assert_eq!(host(&t).extent(), "2 NUMA nodes");
    t.put("sys/devices/system/node/online", b"0");
    t.put("sys/devices/system/node/node0/cpulist", b"0-3");
    let place = |core: u32| Place { socket: 0, node: 0, llc: core / 2, core, thread: 0 };
    let one = Topology::from_places((0..4).map(place).collect()).unwrap();
    let homes = Homes::new(&one, &t.roots(), Knobs::default()).expect("there are LLCs");
    assert_eq!(homes.extent(), "the LLCs of a node");
}

#[test]
fn what_affinity_leaves_a_vm_is_said_when_it_gets_its_home() {
    let t = MadeUp::new("homes-said");
    let said = |vcpus: &[(u32, &str, &str)]| {
        let (mut homes, vm) = (host(&t), vm(&t, vcpus));
        homes.take(1, &vm, &t.roots(), Guest::at(0..64 << 20), false);
        let said = std::cell::RefCell::new(vec![]);
        homes.adopt(1, "vm", &[], &|text| said.borrow_mut().push(text.to_owned()));
        said.into_inner()
    };
    let seen = said(&[(0, "2-3", "0-2")]);
    assert_eq!(seen[0], "VM vm, part 0: affinity, cpuset or bound memory leave it NUMA nodes 1");
    assert!(seen.len() == 2 && seen[1].contains("placed on node 1"), "{seen:?}");
    let none =
        "VM vm, part 0: affinity or cpuset leave no node with room for all its vCPUs: no home";
    assert_eq!(said(&[(0, "0", "0-2"), (1, "2", "0-2")]), [none]);
    assert_eq!(said(&[(0, "0-3", "0-2")]).len(), 1);
}
