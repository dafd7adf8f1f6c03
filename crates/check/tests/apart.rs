//! What the threads of a core may not run at once.

use check::{Bounds, CoreSharing, Invariant, Oracle, State};
use topology::{Shape, Topology};
use units::{PcpuId, VmId, WorldId};

#[test]
fn worlds_that_a_core_may_not_run_at_once_are_found_after_the_time_of_a_kick() {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 2,
        threads_per_core: 2,
    };
    // VM 1 has worlds 1 and 2, VM 2 has world 3; `beside` runs on the other thread of 1's core.
    let found = |core_sharing, beside: u32, ns: Option<u64>, until: u64| {
        let terms = Bounds { core_sharing, ..Bounds::default() };
        let mut o = Oracle::new(&Topology::regular(shape).unwrap(), terms);
        for (world, vm) in [(1, 1), (2, 1), (3, 2)] {
            if world != 2 {
                o.vm_added(0, VmId(vm), &format!("vm{vm}"), 1000);
            }
            o.world_added(0, WorldId(world), VmId(vm), None);
        }
        o.state(0, WorldId(1), State::Run, Some(PcpuId(0)));
        o.state(0, WorldId(beside), State::Run, Some(PcpuId(1)));
        if let Some(ns) = ns {
            o.state(ns, WorldId(beside), State::Wait, None);
        }
        o.finish(until).count(Invariant::CoreSharing)
    };
    let late = 100_001;
    assert_eq!(found(CoreSharing::Vm, 3, Some(late - 1), 5_000_000), 0, "as long as a kick takes");
    assert_eq!(found(CoreSharing::Vm, 3, Some(late), 5_000_000), 1);
    assert_eq!(found(CoreSharing::Vm, 3, None, 5_000_000), 1, "once, though it goes on");
    assert_eq!(found(CoreSharing::Vm, 2, Some(late), 5_000_000), 0, "both of one VM");
    assert_eq!(found(CoreSharing::None, 2, Some(late), 5_000_000), 1);
    assert_eq!(found(CoreSharing::Any, 3, None, 5_000_000), 0);
}
