//! What is said beside a plan, and where homes are.

use crate::{host, ht, sockets_of, vm};
use topology::{NodeFacts, Shape, Topology};
use vnuma::{Host, Mib, Note, Options, Plan, Unfit, Vm, plan};

fn planned(vm: &Vm, shape: &str) -> Plan {
    plan(vm, &host(shape), None).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_plan_without_trouble_has_no_notes() {
    assert_eq!(planned(&vm(16, Options::default()), "2x1x8x2:64G").notes, []);
}

#[test]
fn each_trouble_is_noted_with_what_to_do() {
    let base = Options::default();
    let notes = |vcpus, options, shape| planned(&vm(vcpus, options), shape).notes;
    let unfit = Unfit::TooLarge { room: 8 };
    assert_eq!(notes(16, sockets_of(16), "2x1x8x2:64G"), [Note::CoresPerSocket(16, unfit)]);
    let auto = Options { autosize: true, ..sockets_of(4) };
    assert_eq!(notes(16, auto, "2x1x8x2:64G"), [Note::Autosize]);
    assert_eq!(notes(8, base, "2x1x4x2:64G"), [Note::Unseen(2)]);
    assert_eq!(notes(24, base, "2x1x8x2:64G"), [Note::Crowded(0, 16, 8, true)]);
    assert_eq!(notes(24, ht(), "2x1x8x2:64G"), []);
    let few = Options { max_per_machine_node: Some(2), ..base };
    assert_eq!(notes(16, few, "2x1x8x2:64G"), [Note::Above(0, 8, 2)]);
    assert_eq!(notes(40, base, "2x1x8x2:64G"), [Note::Threads(40, 32)]);
    assert_eq!(
        notes(16, base, "2x1x8x2:31G"),
        [
            Note::Memory(0, Mib(32 << 10), Mib(31 << 10)),
            Note::Memory(1, Mib(32 << 10), Mib(31 << 10)),
        ]
    );
    assert_eq!(notes(16, base, "1x1x8x2:64G+1x1x9x2:64G"), [Note::Uneven(8)]);
    assert_eq!(notes(256, base, "4x1x64x1:64G"), [Note::ManyVcpus(256)]);
    let most = Options { max_per_virtual_node: Some(16), ..base };
    let said = |vcpus, options, shape| notes(vcpus, options, shape)[0].to_string();
    let crowded = said(24, base, "2x1x8x2:64G");
    assert!(crowded.contains("; give it numa.vcpu.preferHT (--prefer-ht), by which"), "{crowded}");
    // Threads of the smaller node count.
    let crowded = said(12, base, "1x1x2x2:64G+1x1x4x4:64G");
    assert!(crowded.contains("; give it fewer vCPUs, or virtual nodes"), "{crowded}");
    assert!(said(32, most, "4x1x8x2:64G").contains("memory of each is interleaved"));
    let most = Options { max_per_virtual_node: Some(12), ..base };
    assert!(said(24, most, "4x1x8x2:64G").contains("vNUMA has no effect here"));
}

#[test]
fn what_is_decided_anew_says_what_was_before() {
    let base = Options::default();
    let kept = planned(&vm(16, base), "2x1x8x2:64G").decision.remember;
    let note = |vcpus, options| {
        let plan = plan(&vm(vcpus, options), &host("4x1x4x2:64G"), kept.as_ref()).unwrap();
        plan.notes.first().map(ToString::to_string)
    };
    assert!(note(12, base).unwrap().starts_with("decided anew: it had 16 vCPUs; the guest sees"));
    let auto = Options { autosize: true, autosize_once: false, ..base };
    assert!(note(16, auto).unwrap().ends_with("it had virtual nodes of 8 vCPUs"));
    let many = planned(&vm(1024, sockets_of(2)), "8x1x64x2:64G").notes[0].to_string();
    assert!(many.ends_with("it makes too many virtual nodes; set more"), "{many}");
    let third = planned(&vm(16, sockets_of(3)), "2x1x8x2:64G").notes[0].to_string();
    assert!(third.ends_with("it does not divide the vCPUs; choose one that does"), "{third}");
}

#[test]
fn on_a_host_of_one_node_nothing_is_interleaved_and_nothing_is_lost() {
    for (vcpus, size) in [(8, 8), (16, 8), (18, 6)] {
        let most = Options { max_per_virtual_node: Some(size), ..Options::default() };
        let plan = planned(&vm(vcpus, most), "1x1x4x8:64G");
        assert!(!plan.is_void() && plan.notes.iter().all(|n| matches!(n, Note::Crowded(..))));
        assert_eq!(plan.cost(), "all its memory is on one node");
    }
    let most = Options { max_per_virtual_node: Some(6), ..Options::default() };
    assert!(planned(&vm(18, most), "3x1x4x8:64G").is_void());
}

/// A machine whose node 1 has pCPUs and no memory, and whose node 2 has memory and no pCPUs.
fn bare() -> Host {
    let shape = Shape {
        sockets: 2,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 8,
        threads_per_core: 1,
    };
    let fact = |id, pcpus: &str, kib| NodeFacts {
        id,
        pcpus: pcpus.parse().unwrap_or_else(|_| units::PcpuSet::empty()),
        memory_kib: Some(kib),
        distances: vec![],
    };
    let facts = [fact(0, "0-7", 128 << 20), fact(1, "8-15", 0), fact(2, "", 128 << 20)];
    Host::new("bare", &Topology::regular(shape).unwrap(), &facts).unwrap()
}

#[test]
fn memory_is_never_bound_to_a_node_that_has_none() {
    let plan = plan(&vm(16, Options::default()), &bare(), None).unwrap();
    let homes: Vec<u32> = plan.mapping.clients.iter().map(|c| c.home).collect();
    assert_eq!(homes, [0, 1]);
    assert_eq!((plan.mapping.memory_on(0), plan.mapping.memory_on(1)), (&[0][..], &[0][..]));
    assert_eq!(plan.notes, [Note::Bare(vec![1])]);
}

#[test]
fn a_vm_that_fits_anywhere_goes_where_its_memory_fits() {
    let small = vm(4, Options::default());
    let home = |shape| planned(&small, shape).mapping.clients[0].home;
    assert_eq!(home("1x1x8x1:32G+1x1x8x1:128G"), 1);
    assert_eq!(home("2x1x8x1:128G"), 0, "the lowest number of equals");
    assert_eq!(plan(&small, &bare(), None).unwrap().mapping.clients[0].home, 0);
}

#[test]
fn clients_spread_over_nodes() {
    let plan = planned(&vm(12, sockets_of(3)), "2x1x16x2:64G");
    let homes: Vec<u32> = plan.mapping.clients.iter().map(|c| c.home).collect();
    assert_eq!(homes, [0, 1, 0, 1]);
}
