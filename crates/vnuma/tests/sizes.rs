//! Properties that hold for every size of VM and host: all small ones, and many that seeds draw.

use crate::{host, vm};
use dice::Draw;
use std::collections::BTreeMap;
use vnuma::{
    Case, Host, Mib, Options, Plan, Refused, VIRTUAL_NODES_MAX, Vcpus, Vm, balanced, decide, plan,
    recommend,
};

/// Each vCPU of `vm` is in exactly one of these.
fn each_once(vm: &Vm, parts: impl Iterator<Item = Vcpus>) {
    let mut seen: Vec<u32> = parts.flat_map(Vcpus::ids).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..vm.vcpus).collect::<Vec<_>>(), "{vm:?}");
}

/// What holds of every plan.
fn holds(plan: &Plan) {
    let (vm, host, o) = (&plan.vm, &plan.host, &plan.vm.options);
    let (nodes, clients) = (&plan.decision.nodes, &plan.mapping.clients);
    each_once(vm, nodes.iter().map(|n| n.vcpus));
    each_once(vm, clients.iter().map(|c| c.vcpus));
    let memory: u64 = nodes.iter().map(|n| n.memory.0).sum();
    assert_eq!(memory, vm.memory.0, "{vm:?}");
    let counts: Vec<u32> = nodes.iter().map(|n| n.vcpus.count).collect();
    assert_eq!(counts[0], plan.decision.size);
    assert!(counts[0] - counts.last().unwrap() <= 1 && counts.is_sorted_by(|a, b| a >= b));
    assert!(counts.len() as u32 <= VIRTUAL_NODES_MAX);
    // No client is larger than its home, nor than any other node.
    let room = |id| {
        let node = host.node(id).unwrap();
        if o.prefer_ht { node.threads() } else { node.cores }
    };
    assert!(clients.iter().all(|c| host.nodes.iter().all(|n| c.vcpus.count <= room(n.id))));
    let most = o.max_per_machine_node.unwrap_or(u32::MAX);
    assert!(clients.iter().all(|c| c.vcpus.count <= most));
    each_case(plan);
    // Where sizes allow it, no node has more vCPUs of the VM than room.
    let on = plan.mapping.vcpus_on();
    if clients.len() <= host.nodes.len() {
        assert!(on.iter().all(|(id, n)| *n <= room(*id).min(most)), "{plan:?}");
    }
    assert_eq!(plan.guest.sockets * plan.guest.cores, vm.vcpus);
}

/// Clients and memory as the case has them.
fn each_case(plan: &Plan) {
    let (nodes, clients) = (&plan.decision.nodes, &plan.mapping.clients);
    let inside = |i: usize| clients.iter().filter(move |c| c.virtual_nodes == [i]);
    match plan.mapping.case {
        Case::Fits => {
            assert_eq!(clients.len(), nodes.len());
            for (i, node) in nodes.iter().enumerate() {
                assert_eq!(inside(i).map(|c| c.vcpus).collect::<Vec<_>>(), [node.vcpus]);
                assert_eq!(clients[i].memory_on, [clients[i].home]);
            }
        }
        Case::Multiple { clients: k } => {
            assert!(k >= 2 && k * plan.mapping.room == plan.decision.size);
            assert!(clients.len() as u32 <= k * nodes.len() as u32);
            for i in 0..nodes.len() {
                let mut homes: Vec<u32> = inside(i).map(|c| c.home).collect();
                homes.sort_unstable();
                homes.dedup();
                assert_eq!(plan.mapping.memory_on(i), homes);
            }
        }
        Case::Irreconcilable => {
            assert!(plan.decision.size > plan.mapping.room);
            assert_ne!(plan.decision.size % plan.mapping.room, 0);
            let all = plan.mapping.all_memory_on();
            assert!(clients.iter().all(|c| c.memory_on == all));
        }
    }
}

/// A host of these nodes, all alike.
fn alike(nodes: u32, cores: u32, threads: u32) -> Host {
    host(&format!("{nodes}x1x{cores}x{threads}:64G"))
}

#[test]
fn every_vcpu_is_in_one_node_and_one_client_and_no_client_is_larger_than_a_node() {
    let hosts: Vec<Host> = [1, 2, 3, 4, 8]
        .iter()
        .flat_map(|n| (1..=16).flat_map(move |c| [1, 2].map(|t| alike(*n, c, t))))
        .collect();
    for vcpus in 1..=72 {
        for host in &hosts {
            for prefer_ht in [false, true] {
                let vm = vm(vcpus, Options { prefer_ht, ..Options::default() });
                holds(&plan(&vm, host, None).unwrap());
            }
        }
    }
}

/// A VM and two hosts that a seed draws: uneven hosts, any options.
fn drawn(draw: &mut Draw) -> (Vm, Host, Host) {
    let maybe =
        |draw: &mut Draw, below: u64| (draw.below(4) == 0).then(|| draw.below(below) as u32 + 1);
    let vcpus = draw.of(&[8, 12, 16, 24, 32, 48, 64, 96, 128]) + draw.of(&[0, 0, 0, 1, 3, 7]);
    let max_per_virtual_node = maybe(draw, 20);
    let sockets = if max_per_virtual_node.is_some() { 1 } else { draw.below(20) as u32 + 1 };
    let options = Options {
        vcpu_min: draw.of(&[1, 9, 9, 9, 16]),
        max_per_virtual_node,
        max_per_machine_node: maybe(draw, 20),
        prefer_ht: draw.below(2) == 0,
        autosize: draw.below(3) == 0,
        autosize_once: draw.below(3) != 0,
        cores_per_socket: sockets,
    };
    let host = |draw: &mut Draw| {
        let part = |draw: &mut Draw| {
            let (nodes, cores) = (draw.below(4) + 1, draw.below(16) + 1);
            format!("{nodes}x1x{cores}x{}", draw.of(&["1", "2", "2:48G"]))
        };
        let parts: Vec<String> = (0..draw.of(&[1, 1, 1, 2])).map(|_| part(draw)).collect();
        host(&parts.join("+"))
    };
    let memory = Mib(u64::from(vcpus) + draw.below(1 << 20));
    (Vm { name: "x".into(), vcpus, memory, options }, host(draw), host(draw))
}

#[test]
fn it_holds_for_options_and_hosts_that_seeds_draw_before_and_after_a_move() {
    let mut cases: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..20_000 {
        let (vm, first, second) = drawn(&mut Draw::new(seed));
        let made = match plan(&vm, &first, None) {
            Ok(made) => made,
            Err(Refused::TooManyNodes { .. }) => continue,
            Err(e) => panic!("seed {seed}: {e}"),
        };
        holds(&made);
        let kept = made.decision.remember.clone();
        let Ok(moved) = plan(&vm, &second, kept.as_ref()) else { continue };
        holds(&moved);
        let anew = vm.options.autosize && !vm.options.autosize_once;
        if kept.is_some() && !anew {
            assert_eq!(moved.decision.nodes, made.decision.nodes, "seed {seed}");
            assert_eq!(moved.decision.remember, kept, "seed {seed}");
        }
        *cases
            .entry(match moved.mapping.case {
                Case::Fits => "fits",
                Case::Multiple { .. } => "multiple",
                Case::Irreconcilable => "irreconcilable",
            })
            .or_default() += 1;
    }
    assert!(cases.len() == 3 && cases.values().all(|n| *n > 1000), "{cases:?}");
}

#[test]
fn a_size_that_is_remembered_gives_the_same_nodes_again() {
    for vcpus in 1..=256 {
        for most in 1..=256 {
            let sizes = balanced(vcpus, most);
            assert_eq!(balanced(vcpus, sizes[0]), sizes, "{vcpus} by {most}");
            assert!(sizes[0] <= most && sizes.iter().sum::<u32>() == vcpus);
        }
    }
}

#[test]
fn the_recommended_size_fits_on_all_hosts_and_no_larger_one_does() {
    for seed in 0..3000 {
        let (vm, first, second) = drawn(&mut Draw::new(seed));
        let hosts = [first, second];
        let found = recommend(&vm, &hosts).unwrap();
        let fits =
            |size: u32| hosts.iter().all(|h| Case::of(size, h.room(&vm.options)) == Case::Fits);
        let best = (2..=vm.vcpus)
            .filter(|c| vm.vcpus % c == 0 && fits(*c) && vm.vcpus / c <= VIRTUAL_NODES_MAX)
            .max();
        assert_eq!(found.cores_per_socket, best, "seed {seed}");
        let Some(most) = found.max_per_virtual_node else { continue };
        let fewer = balanced(vm.vcpus, most).len() as u32 - 1;
        assert!(fits(most) && (fewer == 0 || !fits(vm.vcpus.div_ceil(fewer))), "seed {seed}");
    }
}

#[test]
fn memory_goes_by_vcpus_to_a_mib() {
    let vm = |vcpus, mib| Vm { memory: Mib(mib), ..vm(vcpus, Options::default()) };
    let memory = |vcpus, mib| -> Vec<u64> {
        let decision = decide(&vm(vcpus, mib), &host("4x1x8x2"), None).unwrap();
        decision.nodes.iter().map(|n| n.memory.0).collect()
    };
    assert_eq!(memory(32, 65_537), [16_384, 16_384, 16_384, 16_385]);
    assert_eq!(memory(15, 15_000), [8000, 7000]);
    assert_eq!(memory(24, 100), [33, 33, 34]);
    assert_eq!(memory(16, Mib::MAX.0), [1 << 31, 1 << 31]);
    let refused = decide(&vm(32, 3), &host("4x1x8x2"), None).unwrap_err().to_string();
    assert!(refused.starts_with("VM 'db': cannot divide 3 MiB among 4 virtual nodes"), "{refused}");
}

#[test]
fn too_many_nodes_and_sizes_that_no_decision_has_are_refused() {
    let many = decide(&vm(1024, Options::default()), &host("2x1x7x1"), None).unwrap_err();
    assert_eq!(
        many.to_string(),
        "VM 'db': cannot have 147 virtual nodes of 7 vCPUs: seen 147, allowed 1..128; give it \
         larger virtual nodes"
    );
    let mut kept =
        decide(&vm(12, Options::default()), &host("2x1x8x1"), None).unwrap().remember.unwrap();
    for size in [0, 5, 7, 13] {
        kept.size = size;
        let refused = decide(&vm(12, Options::default()), &host("2x1x8x1"), Some(&kept));
        let said = refused.unwrap_err().to_string();
        assert!(said.starts_with("VM 'db': cannot use its remembered topology"), "{said}");
    }
}
