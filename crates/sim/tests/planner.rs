//! What the scheduler does off the critical path. The division that it makes every 10 ms
//! (`sched/plan.h`) is the pure planner's (`entitlement::Tree`), for trees drawn at random: two
//! solvers in two languages, one by rounds, one by sorting. The host's virtual time and the tick of
//! limits, by numbers.

use dice::Draw;
use entitlement::{Owner, Tree, TreeLeaf, TreePool};
use sched_core::{BUDGET_COUNT_SHIFT, Host, Limiter, NoKernel, VM_CONTENDED, VM_LIVE, plan_nodes};
use topology::{Shape, Topology};
use units::Rate;

fn tree(draw: &mut Draw, pcpus: u64) -> Tree {
    let rate = |draw: &mut Draw, most: u64| Rate(draw.below(most * Rate::ONE.0 + 1));
    let pools = 1 + draw.below(12) as usize;
    let mut list = vec![];
    for i in 0..pools {
        // Chains of up to six pools come about by themselves.
        let parent = if i == 0 { 0 } else { draw.below(i as u64) as usize };
        let limit = (draw.below(3) == 0).then(|| Rate(rate(draw, pcpus).0 + 10_486));
        let reservation = if draw.below(3) == 0 {
            Rate(rate(draw, 2).0.min(limit.map_or(u64::MAX, |l| l.0)))
        } else {
            Rate(0)
        };
        let shares = 1 + draw.below(10_000);
        list.push(TreePool {
            parent,
            shares,
            reservation,
            limit,
            expandable: draw.below(2) == 0,
            scalable: draw.below(4) == 0,
        });
    }
    let leaf = |draw: &mut Draw| {
        let vcpus = 1 + draw.below(8) as u32;
        let limit = (draw.below(4) == 0).then(|| Rate(rate(draw, u64::from(vcpus)).0 + 10_486));
        let reservation = if draw.below(3) == 0 {
            Rate(rate(draw, 1).0.min(limit.map_or(u64::MAX, |l| l.0)))
        } else {
            Rate(0)
        };
        TreeLeaf {
            pool: draw.below(pools as u64) as usize,
            shares: 1 + draw.below(10_000),
            reservation,
            limit,
            vcpus,
        }
    };
    let leaves = (0..1 + draw.below(20)).map(|_| leaf(draw)).collect();
    Tree::new(pcpus, list, leaves)
}

#[test]
fn the_scheduler_divides_as_the_planner_does() {
    let found = seeds::each(0..3000, |seed| {
        let (mut exact, mut all) = (0, 0);
        let mut draw = Draw::new(seed);
        let pcpus = 1 + draw.below(32);
        let shape = Shape {
            sockets: 1,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: pcpus as u32,
            threads_per_core: 1,
        };
        let tree = tree(&mut draw, pcpus);
        let demands: Vec<u64> = tree
            .leaves()
            .iter()
            .map(|l| draw.below(3) * draw.below(u64::from(l.vcpus) * Rate::ONE.0 / 2 + 2))
            .collect();
        let vms = tree.leaves().len();
        let mut host =
            Host::new(&Topology::regular(shape).expect("a host"), vms, 1, tree.pools().len())
                .expect("it fits");
        let ids: Vec<u32> = (0..vms as u32).collect();
        let nodes = plan_nodes(&tree, &ids);
        for (i, demand) in demands.iter().enumerate() {
            host.vm_weight(i as u32, Rate::ONE.0, 1, 1);
            let vm = host.vm_mut(i as u32);
            (vm.demand, vm.demand_seen_ns) = (*demand, u64::MAX); // unknown: the demand stays
            vm.served = 2 * demand; // what it has used lately is that, after a look in between
        }
        host.plan(&nodes, 1);
        host.set_now(10_000_000);
        host.housekeep(&mut NoKernel);
        let (gets, could) = (tree.divide(Rate::ONE.0, &demands), tree.could(Rate::ONE.0, &demands));
        // Each level rounds down once more than the planner, which gives left-over units away.
        let unit = 2 * tree.leaves().len() as u64 + 2 * tree.pools().len() as u64;
        for (laid, n) in tree.nodes().iter().zip(host.nodes()) {
            let (x, y) = match laid.owner {
                Owner::Pool(p) => (gets.pools[p], could.pools[p]),
                Owner::Leaf(l) => (gets.leaves[l], could.leaves[l]),
            };
            if laid.owner == Owner::Pool(0) {
                continue; // the root is what there is
            }
            let what = format!(
                "seed {seed}: {:?} gets {} and could {}, allowed {x} and {y}",
                laid.owner, n.gets, n.could
            );
            assert!(n.gets.abs_diff(x) <= unit, "{what}");
            // Where a unit decides whether one is contended, it weighs the one or the other: both
            // are within what it gets or could have.
            assert!(n.could.abs_diff(y) <= unit || n.gets.abs_diff(n.demand) <= unit, "{what}");
            exact += u32::from(n.could.abs_diff(y) <= unit);
            all += 1;
        }
        (exact, all)
    });
    let (exact, all) = found.iter().fold((0, 0), |sum, f| (sum.0 + f.0, sum.1 + f.1));
    assert!(all - exact < all / 500, "{} of {all} nodes weigh otherwise", all - exact);
}

const MS: u64 = 1_000_000;

fn small_host(vms: usize) -> Host {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 4,
        threads_per_core: 1,
    };
    Host::new(&Topology::regular(shape).expect("a host"), vms, 1, 2).expect("it fits")
}

#[test]
fn what_a_late_tick_of_limits_could_not_give_is_kept_for_parked_worlds() {
    // Level of a limit of `pcpus` when the tick comes after `gone_ms`, in ms of CPU time. One
    // world more than the rate runs, since now, so that the tick reads the level.
    let level = |pcpus: u64, parked: u32, gone_ms: u64| {
        let mut host = small_host(1);
        let now = (100 + gone_ms) * MS;
        *host.limiter_mut(1) = Limiter {
            rate: pcpus * Rate::ONE.0,
            tat_ns: 100 * MS,
            inflight: (pcpus + 1) * ((1 << BUDGET_COUNT_SHIFT) + now),
            parked,
            ..Limiter::ZERO
        };
        host.limiters(2);
        host.set_now(now);
        host.limits(&mut NoKernel, 0);
        (now - host.limiter(1).tat_ns) * pcpus / MS
    };
    // 2 ms of each pCPU, 4 ms at least; with parked worlds 5 ms a pCPU less those 2.
    assert_eq!([1, 3, 4, 11, 50].map(|ms| level(4, 1, ms)), [4, 12, 16, 18, 18]);
    assert_eq!([1, 3, 50].map(|ms| level(4, 0, ms)), [4, 8, 8], "no world is parked");
    assert_eq!([1, 3, 50].map(|ms| level(1, 1, ms)), [1, 3, 4], "a limit of one pCPU");
}

#[test]
fn one_vm_far_ahead_does_not_drag_the_hosts_time_along() {
    let moved = |ahead_ms: u64| {
        let mut host = small_host(3);
        host.set_now(100 * MS);
        host.housekeep(&mut NoKernel);
        let v = host.record().v_ns;
        for vm in [1, 2] {
            host.vm_weight(vm, Rate::ONE.0, 1, 1000);
            let x = host.vm_mut(vm);
            (x.worlds, x.flags, x.runnable, x.vt_ns) = (
                1,
                VM_LIVE | VM_CONTENDED,
                1,
                v + 10 * MS + if vm == 1 { ahead_ms * MS } else { 0 },
            );
        }
        // One round sees the distance, the next one corrects by it.
        for ms in [110, 120] {
            host.set_now(ms * MS);
            host.housekeep(&mut NoKernel);
        }
        (host.record().v_ns - v) / 1000
    };
    // 20 ms of time, and a 16th of the mean: 200 ms ahead counts whole, 20 s as four times the
    // bound on lag of 100 ms.
    assert_eq!(moved(0).abs_diff(20_000), 0);
    assert!(moved(200).abs_diff(20_000 + 200_000 / 2 / 16) <= 20, "{}", moved(200));
    assert!(moved(20_000).abs_diff(20_000 + 400_000 / 2 / 16) <= 20, "{}", moved(20_000));
}
