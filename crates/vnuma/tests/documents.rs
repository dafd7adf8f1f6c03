//! The examples of ESXi's documents, with their numbers.

use crate::{host, ht, sockets_of, vm};
use vnuma::{
    Case, Decision, Mapping, Options, Plan, Reason, Recommended, Remembered, Renewed, Unfit, Vm,
    decide, plan, recommend,
};

fn sizes(decision: &Decision) -> Vec<u32> {
    decision.nodes.iter().map(|n| n.vcpus.count).collect()
}

fn decided(vm: &Vm, shape: &str) -> Decision {
    decide(vm, &host(shape), None).unwrap_or_else(|e| panic!("{e}"))
}

fn planned(vm: &Vm, shape: &str, remembered: Option<&Remembered>) -> Plan {
    plan(vm, &host(shape), remembered).unwrap_or_else(|e| panic!("{e}"))
}

/// vCPUs and home of each client.
fn clients(mapping: &Mapping) -> Vec<(String, u32)> {
    mapping.clients.iter().map(|c| (c.vcpus.to_string(), c.home)).collect()
}

/// VS51: "a 32-vCPU virtual machine was created on a system with eight cores per NUMA node and
/// later moved to a different system with four cores per NUMA node".
#[test]
fn a_vm_of_32_vcpus_made_on_nodes_of_8_cores_has_two_clients_a_virtual_node_on_nodes_of_4() {
    let vm = vm(32, Options::default());
    let made = planned(&vm, "4x1x8x1:64G", None);
    assert_eq!((sizes(&made.decision), made.mapping.case), (vec![8; 4], Case::Fits));
    let kept = made.decision.remember.unwrap();
    let moved = planned(&vm, "8x1x4x1:64G", Some(&kept));
    assert_eq!(sizes(&moved.decision), [8; 4]);
    assert_eq!(moved.mapping.case, Case::Multiple { clients: 2 });
    assert_eq!(
        clients(&moved.mapping),
        [("0-3", 0), ("4-7", 1), ("8-11", 2), ("12-15", 3), ("16-19", 4), ("20-23", 5)]
            .into_iter()
            .chain([("24-27", 6), ("28-31", 7)])
            .map(|(v, n)| (v.to_owned(), n))
            .collect::<Vec<_>>()
    );
    // Memory of a virtual node is on the nodes of its own clients only.
    let on: Vec<&[u32]> = (0..4).map(|i| moved.mapping.memory_on(i)).collect();
    assert_eq!(on, [&[0, 1], &[2, 3], &[4, 5], &[6, 7]]);
    assert!(moved.mapping.clients.iter().all(|c| c.virtual_nodes.len() == 1));
}

/// VS51: "an 8-vCPU virtual machine on a 4-core per node system is associated with two NUMA clients
/// with 4 vCPUs each"; below 9 vCPUs the guest sees no NUMA, and memory is interleaved.
#[test]
fn a_wide_vm_of_8_vcpus_has_two_clients_and_no_virtual_topology_by_default() {
    let plan = planned(&vm(8, Options::default()), "2x1x4x2:64G", None);
    assert_eq!(sizes(&plan.decision), [8]);
    assert_eq!(plan.decision.reason, Reason::BelowMin { vcpu_min: 9 });
    assert_eq!(plan.decision.remember, None);
    assert_eq!(clients(&plan.mapping), [("0-3".into(), 0), ("4-7".into(), 1)]);
    assert_eq!(plan.mapping.memory_on(0), [0, 1]);
    // numa.vcpu.min = 8 shows it two nodes, as in figure 2 (b).
    let shown = planned(&vm(8, Options { vcpu_min: 8, ..Options::default() }), "2x1x4x2:64G", None);
    assert_eq!((sizes(&shown.decision), shown.mapping.case), (vec![4, 4], Case::Fits));
    assert_eq!((shown.mapping.memory_on(0), shown.mapping.memory_on(1)), (&[0][..], &[1][..]));
}

/// VS51: with preferHT "the 8-vCPU virtual machine would not be considered wide and assigned only
/// one home node" of 4 cores and 8 logical processors.
#[test]
fn with_prefer_ht_a_vm_of_8_vcpus_has_one_home_of_4_cores_and_8_threads() {
    let plan = planned(&vm(8, ht()), "2x1x4x2:64G", None);
    assert_eq!(clients(&plan.mapping), [("0-7".into(), 0)]);
    assert_eq!((plan.mapping.case, plan.mapping.memory_on(0)), (Case::Fits, &[0][..]));
    assert_eq!(sizes(&decided(&vm(16, ht()), "2x1x4x2:64G")), [8, 8]);
    assert_eq!(sizes(&decided(&vm(16, Options::default()), "2x1x4x2:64G")), [4; 4]);
}

/// VS51: "vNUMA is actually enabled only for a virtual machine with 9 or more vCPUs".
#[test]
fn a_virtual_topology_begins_at_9_vcpus() {
    for (vcpus, nodes) in [(8, 1), (9, 3)] {
        assert_eq!(decided(&vm(vcpus, Options::default()), "4x1x4x1:64G").nodes.len(), nodes);
    }
    // A VM that fits into a node has one virtual node.
    let decision = decided(&vm(12, Options::default()), "2x1x16x2:64G");
    assert_eq!((sizes(&decision), decision.size), (vec![12], 12));
}

/// VS51: cores of a virtual socket come before the cores of the host's node, if acceptable.
#[test]
fn cores_of_a_virtual_socket_are_the_size_if_they_divide_and_fit() {
    let of = |vcpus, cores| decided(&vm(vcpus, sockets_of(cores)), "2x1x8x2:64G");
    let four = of(16, 4);
    assert_eq!((sizes(&four), four.reason), (vec![4; 4], Reason::CoresPerSocket { cores: 4 }));
    let not_set = of(16, 1);
    assert_eq!((sizes(&not_set), not_set.unfit), (vec![8, 8], None));
    let uneven = of(16, 3);
    assert_eq!((sizes(&uneven), uneven.unfit), (vec![8, 8], Some(Unfit::Divides)));
    let large = of(16, 16);
    assert_eq!((sizes(&large), large.unfit), (vec![8, 8], Some(Unfit::TooLarge { room: 8 })));
    // Threads count with preferHT.
    let ht = Options { prefer_ht: true, ..sockets_of(16) };
    assert_eq!(sizes(&decided(&vm(32, ht), "2x1x8x2:64G")), [16, 16]);
    let many = decide(&vm(1024, sockets_of(2)), &host("8x1x64x1:64G"), None).unwrap();
    assert_eq!((sizes(&many), many.unfit), (vec![64; 16], Some(Unfit::TooManyNodes)));
}

/// Denneman 2021: 11 to 20 vCPUs on two nodes of 10 cores are divided evenly.
#[test]
fn nodes_are_as_few_as_fit_and_as_even_as_can_be() {
    let of = |vcpus, shape: &str| sizes(&decided(&vm(vcpus, Options::default()), shape));
    assert_eq!(of(12, "2x1x8x2:64G"), [6, 6]);
    assert_eq!(of(15, "2x1x8x2:64G"), [8, 7]);
    assert_eq!(of(11, "2x1x10x2:64G"), [6, 5]);
    assert_eq!(of(20, "2x1x10x2:64G"), [10, 10]);
    assert_eq!(of(10, "4x1x4x1:64G"), [4, 3, 3]);
}

/// "Virtual NUMA Controls": numa.vcpu.maxPerVirtualNode is for sizes that sockets cannot have.
#[test]
fn a_most_for_a_virtual_node_is_its_size_divided_evenly() {
    let most = |n| Options { max_per_virtual_node: Some(n), ..Options::default() };
    let decision = decided(&vm(12, most(5)), "2x1x8x2:64G");
    assert_eq!(sizes(&decision), [4, 4, 4]);
    assert_eq!(decision.reason, Reason::MaxPerVirtualNode { most: 5 });
    assert_eq!(sizes(&decided(&vm(12, most(1000)), "2x1x8x2:64G")), [12]);
    assert_eq!(sizes(&decided(&vm(8, most(2)), "2x1x8x2:64G")), [8], "numa.vcpu.min comes first");
}

/// "Virtual NUMA Controls": numa.vcpu.maxPerMachineNode forces clients on different nodes.
#[test]
fn a_most_for_a_machine_node_makes_more_clients_on_more_nodes() {
    let most = Options { max_per_machine_node: Some(2), ..Options::default() };
    let plan = planned(&vm(8, most), "4x1x8x2:64G", None);
    let homes: Vec<u32> = plan.mapping.clients.iter().map(|c| c.home).collect();
    assert_eq!(homes, [0, 1, 2, 3]);
}

/// VS51: "the virtual NUMA topology is maintained for the lifetime of the virtual machine", but
/// with autosize and without autosize.once it is "picked up every time".
#[test]
fn a_topology_is_kept_for_life_unless_autosize_is_on_and_once_off() {
    let kept = decided(&vm(16, Options::default()), "2x1x8x2:64G").remember.unwrap();
    let again = |options| decide(&vm(16, options), &host("4x1x4x1:64G"), Some(&kept)).unwrap();
    let base = Options::default();
    let cases = [
        (base, vec![8, 8]),
        (Options { autosize: true, ..base }, vec![8, 8]),
        (Options { autosize_once: false, ..base }, vec![8, 8]),
        (Options { autosize: true, autosize_once: false, ..base }, vec![4; 4]),
        // Neither another size nor a higher minimum changes what the guest has seen.
        (sockets_of(2), vec![8, 8]),
        (Options { vcpu_min: 100, ..base }, vec![8, 8]),
    ];
    for (options, want) in cases {
        assert_eq!(sizes(&again(options)), want, "{options:?}");
    }
    let same = again(base);
    assert_eq!(same.reason, Reason::Remembered { host: "2x1x8x2:64G".into() });
    assert_eq!((same.remember.as_ref(), same.renewed), (Some(&kept), None));
    let anew = again(Options { autosize: true, autosize_once: false, ..base });
    assert_eq!(anew.renewed, Some(Renewed::Autosize { before: 8 }));
    assert_eq!(anew.remember.unwrap().size, 4);
}

/// "Virtual NUMA Controls": the topology is evaluated again "if the configured number of virtual
/// CPUs on the virtual machine is modified".
#[test]
fn another_number_of_vcpus_is_decided_anew() {
    let kept = decided(&vm(16, Options::default()), "2x1x8x2:64G").remember.unwrap();
    let anew = decide(&vm(12, Options::default()), &host("4x1x4x1:64G"), Some(&kept)).unwrap();
    assert_eq!((sizes(&anew), anew.renewed), (vec![4; 3], Some(Renewed::Vcpus { before: 16 })));
}

/// "Virtual NUMA Controls": with numa.autosize a virtual node has as many vCPUs as the host's node
/// has cores.
#[test]
fn autosize_stands_above_sockets_and_the_most_for_a_virtual_node() {
    let sockets = Options { autosize: true, ..sockets_of(4) };
    assert_eq!(sizes(&decided(&vm(16, sockets), "2x1x8x2:64G")), [8, 8]);
    let most = Some(2);
    let most = Options { autosize: true, max_per_virtual_node: most, ..Options::default() };
    assert_eq!(sizes(&decided(&vm(16, most), "2x1x8x2:64G")), [8, 8]);
}

/// VS51: "NUMA clients are created irrespective of virtual nodes and memory is interleaved. This
/// effectively disables vNUMA."
#[test]
fn a_virtual_node_that_is_no_multiple_is_irreconcilable() {
    let vm = vm(16, Options::default());
    let kept = decided(&vm, "2x1x8x2:64G").remember.unwrap();
    let moved = planned(&vm, "3x1x6x2:64G", Some(&kept));
    assert_eq!(moved.mapping.case, Case::Irreconcilable);
    assert_eq!(sizes(&moved.decision), [8, 8], "the guest sees what it saw");
    assert_eq!(
        clients(&moved.mapping),
        [("0-5".into(), 0), ("6-10".into(), 1), ("11-15".into(), 2)]
    );
    assert_eq!(moved.mapping.clients[1].virtual_nodes, [0, 1]);
    assert!(moved.mapping.clients.iter().all(|c| c.memory_on == [0, 1, 2]));
}

/// VS51: "if the DRS cluster consists of ESXi hosts with four cores per NUMA node and eight cores
/// per NUMA node, a wide virtual machine created with four cores per virtual socket would not lose
/// the benefit of vNUMA even after vMotion".
#[test]
fn four_cores_a_socket_fit_on_hosts_of_4_and_of_8_cores_a_node() {
    let hosts = [host("2x1x8x2:64G"), host("4x1x4x2:64G")];
    let found = recommend(&vm(16, Options::default()), &hosts).unwrap();
    assert_eq!(
        found,
        Recommended { room: 4, cores_per_socket: Some(4), max_per_virtual_node: Some(4) }
    );
    let vm = vm(16, sockets_of(4));
    let kept = decided(&vm, "2x1x8x2:64G").remember.unwrap();
    for host in &hosts {
        assert_eq!(plan(&vm, host, Some(&kept)).unwrap().mapping.case, Case::Fits);
    }
}

#[test]
fn where_vcpus_do_not_divide_the_most_for_a_virtual_node_is_recommended() {
    let of = |vcpus| recommend(&vm(vcpus, Options::default()), &[host("2x1x8x1:64G")]).unwrap();
    assert_eq!((of(13).cores_per_socket, of(13).max_per_virtual_node), (None, Some(7)));
    assert_eq!((of(10).cores_per_socket, of(10).max_per_virtual_node), (Some(5), Some(5)));
    assert_eq!((of(14).cores_per_socket, of(22).cores_per_socket), (Some(7), Some(2)));
    assert_eq!(of(22).max_per_virtual_node, Some(8));
    assert_eq!(recommend(&vm(8, Options::default()), &[]), None);
}
