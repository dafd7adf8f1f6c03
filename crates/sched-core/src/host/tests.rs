//! A new host as the scheduler finds it, sizes that are refused, and worlds that are gone.

use super::*;
use crate::NoKernel;
use topology::Shape;

#[test]
fn a_new_host_keeps_the_virtual_times_that_the_scheduler_set() {
    let shape = Shape {
        sockets: 2,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 2,
        threads_per_core: 2,
    };
    let host = Host::new(&Topology::regular(shape).expect("a topology"), 2, 3, 1).expect("a host");
    let v = host.record().v_ns;
    for id in 0..8 {
        let p = host.pcpu(id);
        assert_eq!((p.id, p.system_v_ns, p.wait_key), (id, v, u64::MAX));
    }
    assert_eq!((host.record().pcpus, host.record().clusters, host.record().smt), (8, 2, 2));
    assert_eq!((host.cluster(1).pcpu[0], host.task(2).world), (4, 2));
}

#[test]
fn sizes_beyond_the_caps_are_refused_with_the_cap() {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 1,
        threads_per_core: 1,
    };
    let topology = Topology::regular(shape).expect("a topology");
    let text = |vms, worlds| Host::new(&topology, vms, worlds, 1).err().map(|e| e.to_string());
    assert_eq!(text(1025, 1).as_deref(), Some("host: cannot hold 1025 VMs: allowed 1..1024"));
    assert_eq!(text(1, 0).as_deref(), Some("host: cannot hold 0 worlds: allowed 1..16384"));
}
#[test]
fn what_worlds_did_that_are_gone_stays_in_their_vm() {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 1,
        threads_per_core: 1,
    };
    let mut host =
        Host::new(&Topology::regular(shape).expect("a topology"), 1, 3, 1).expect("a host");
    for world in [1, 2] {
        host.world_start(&mut NoKernel, world);
        let w = host.world_mut(world);
        (w.migrations, w.switches, w.wakeups, w.limited_ns, w.used_ns) = (1, 20, 300, 4000, 50_000);
        host.world_exit(&mut NoKernel, world);
    }
    let v = host.vm(0);
    let past =
        (v.past_migrations, v.past_switches, v.past_wakeups, v.past_limited_ns, v.past_used_ns);
    assert_eq!(past, (2, 40, 600, 8000, 100_000));
}
