//! What the timers of co-scheduling and housekeeping cost in instructions of the native scheduler,
//! by the size of the host: no tick of a block grows with the host, and no part of housekeeping.
//!
//! All vCPUs of two 4-vCPU VMs a pCPU want to run, up to 1,000 VMs: the busiest that a host is.
//! The plan's tree has all VMs in one pool, for which its rounds are the longest, with demands and
//! reservations of many sizes.
#[path = "big_hosts/callbacks.rs"]
mod callbacks;
#[path = "count/mod.rs"]
mod count;

use count::{begins, counted};
use entitlement::{Tree, TreeLeaf, TreePool};
use sched_core::{
    BLOCK_PCPUS, BlockTimers, ENQUEUE_WAKEUP, Host, KIND_VCPU, NoKernel, PLAN_DONE, plan_nodes,
};
use topology::{Shape, Topology};
use units::Rate;

const VCPUS: u32 = 4;
const VMS_MOST: u32 = 1_000;
/// Between two ticks of a block, a quarter of cosched_poll_us at its default.
const SOON_NS: u64 = 250_000;
/// Ticks of a block in a second, at most.
const LOOKS_A_SECOND: u64 = 4_000;
/// Ticks of limits in a second, while one binds.
const LIMIT_TICKS_A_SECOND: u64 = 1_000;
/// Rounds of housekeeping in a second.
const ROUNDS_A_SECOND: u64 = 100;
/// Instructions of a pCPU in a second, at 3 GHz and an instruction a cycle.
const A_SECOND: u64 = 3_000_000_000;
/// 20 us.
const PART_MOST: u64 = A_SECOND / 50_000;

/// A host of so many pCPUs in LLCs of eight, on each of which a vCPU runs; the others wait.
fn host(pcpus: u32) -> Host {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: pcpus / 8,
        cores_per_llc: 8,
        threads_per_core: 1,
    };
    let vms = (2 * pcpus).min(VMS_MOST);
    let worlds = vms * VCPUS;
    let topology = Topology::regular(shape).expect("a host");
    let mut host = Host::new(&topology, vms as usize + 1, worlds as usize + 1, 8).expect("it fits");
    let mut kernel = NoKernel;
    host.set_now(1_000_000_000);
    for vm in 1..=vms {
        host.vm_weight(vm, Rate::ONE.0 / 2, VCPUS, 1000);
    }
    for world in 1..=worlds {
        let task = host.task_mut(world);
        task.allowed = [u64::MAX; 16];
        (task.allowed_count, task.pcpu) = (pcpus, (world % pcpus) as i32);
        let record = host.world_mut(world);
        // Neighbours in number are of different VMs.
        (record.vm, record.index) = (1 + (world - 1) % vms, (world - 1) / vms);
        (record.kind, record.nice_weight) = (KIND_VCPU, 100);
        host.world_start(&mut kernel, world);
    }
    for world in 1..=worlds {
        host.runnable(&mut kernel, world);
        host.enqueue(&mut kernel, world, ENQUEUE_WAKEUP);
    }
    for world in 1..=pcpus {
        let task = host.task_mut(world);
        (task.pcpu, task.slice_ns) = (world as i32 - 1, 50_000_000);
        host.running(&mut kernel, world);
    }
    host
}

/// A tree of all its VMs, put into force.
fn plan(host: &mut Host, pcpus: u32, vms: u32) {
    let pool = |reservation| TreePool {
        parent: 0,
        shares: 1000,
        reservation,
        limit: None,
        expandable: true,
        scalable: false,
    };
    let leaf = |vm: u32| TreeLeaf {
        pool: usize::from(vm > 0),
        shares: u64::from(100 + vm * 37 % 4000),
        reservation: Rate(Rate::ONE.0 / 100 * u64::from(vm % 7)),
        limit: None,
        vcpus: VCPUS,
    };
    let pools = vec![pool(Rate(0)), pool(Rate(0))];
    let tree = Tree::new(pcpus.into(), pools, (0..=vms).map(leaf).collect());
    host.plan(&plan_nodes(&tree, &(0..=vms).collect::<Vec<u32>>()), 1);
    for id in 0..=vms {
        let vm = host.vm_mut(id);
        // Unknown: the demand stays.
        (vm.demand, vm.demand_seen_ns) = (Rate::ONE.0 / 50 * u64::from(id * 13 % 100), u64::MAX);
    }
}

/// Parts of the tick of limits, with a limit for each VM; mean of the instructions of a part, and
/// the most.
fn limits(pcpus: u32) -> (u32, u64, u64) {
    let (mut host, mut kernel, mut now) = (host(pcpus), NoKernel, 1_000_000_000u64);
    let vms = (2 * pcpus).min(VMS_MOST);
    host.limiters(vms + 1);
    for id in 1..=vms {
        host.limiter_mut(id).rate = Rate::ONE.0 / 2;
        host.vm_mut(id).limiter = id;
    }
    for world in 1..=pcpus {
        host.stopping(&mut kernel, world, true);
        host.running(&mut kernel, world);
    }
    let (looks, parts) = (1, host.limit_parts());
    let counts = counted(|| {
        for look in 0..looks {
            now += 1_000_000;
            host.set_now(now);
            for part in 0..parts {
                begins((look * parts + part) as usize + 1);
                let _ = host.limits(&mut kernel, part);
            }
        }
    });
    let of = &counts[1..=(looks * parts) as usize];
    (parts, of.iter().sum::<u64>() / of.len() as u64, *of.iter().max().unwrap_or(&0))
}

/// Mean and most of the instructions of a block's ticks.
fn ticks(pcpus: u32) -> (u64, u64) {
    let (mut host, mut kernel, mut now) = (host(pcpus), NoKernel, 1_000_000_000u64);
    let looks = 20; // 5 ms
    let counts = counted(|| {
        for look in 0..looks {
            now += SOON_NS;
            host.set_now(now);
            begins(look + 1);
            let _ = host.cosched(&mut kernel, 0);
        }
    });
    let of = &counts[1..=looks];
    (of.iter().sum::<u64>() / looks as u64, *of.iter().max().unwrap_or(&0))
}

/// Parts of a round of housekeeping, instructions of the longest and of the round, and the rounds
/// that the division of the tree takes.
fn parts(pcpus: u32) -> (usize, u64, u64, usize) {
    let vms = (2 * pcpus).min(VMS_MOST);
    let parts = vms.div_ceil(32).max(pcpus.div_ceil(16)) as usize;
    let (mut rounds, mut now) = (0, 1_000_000_000u64);
    let mut round = |host: &mut Host, counted: bool| {
        for part in 0..parts {
            begins(if counted { 1 + part } else { 0 });
            now += host.housekeep(&mut NoKernel);
            begins(0);
            host.set_now(now);
        }
    };
    let mut dry = host(pcpus);
    plan(&mut dry, pcpus, vms);
    while rounds == 0 || dry.record().plan_phase != PLAN_DONE {
        round(&mut dry, false);
        rounds += 1;
    }
    let mut host = host(pcpus);
    plan(&mut host, pcpus, vms);
    let counts = counted(|| round(&mut host, true));
    let of = &counts[1..];
    (parts, *of.iter().max().unwrap_or(&0), of.iter().sum::<u64>(), rounds)
}

/// The largest sum of the timers of a pCPU, given the percent of a pCPU that each takes: all pCPUs
/// ask what to run, the first of each block most often.
fn most_of_a_pcpu(pcpus: u32, [tick, limits, house]: [f64; 3], parts: u32) -> f64 {
    let mut most: f64 = 0.0;
    // Housekeeping begins where a pCPU asks first, whichever it is.
    for at in [0, 1, pcpus / 2 + 3, pcpus - 1] {
        let mut sums = vec![0.0; pcpus as usize];
        sums[at as usize] += house;
        for block in 0..pcpus.div_ceil(BLOCK_PCPUS) {
            let mut timers = BlockTimers::started(true, block < parts);
            let own = block * BLOCK_PCPUS..pcpus.min((block + 1) * BLOCK_PCPUS);
            for pcpu in own.flat_map(|p| [p; 3]) {
                timers.asked(pcpu, at);
            }
            for (of, share) in [(timers.cosched, tick), (timers.limits, limits)] {
                if of > 0 {
                    sums[usize::from(of) - 1] += share;
                }
            }
            assert!(timers.cosched > 0, "block {block}: no pCPU has its tick");
            assert_eq!(timers.limits > 0, block < parts, "block {block}: its part of limits");
        }
        most = sums.into_iter().fold(most, f64::max);
    }
    most
}

#[test]
fn the_timers_do_not_grow_with_the_host() {
    let percent = |n: u64, a_second: u64| (n * a_second) as f64 / A_SECOND as f64 * 100.0;
    for pcpus in [8, 64, 160, 512] {
        let (mean, most) = ticks(pcpus);
        let blocks = u64::from(pcpus.div_ceil(BLOCK_PCPUS));
        let vcpus = (2 * pcpus).min(VMS_MOST) * VCPUS;
        let tick = percent(mean, LOOKS_A_SECOND);
        println!("{pcpus} pCPUs, {vcpus} vCPUs: {blocks} blocks");
        println!("  a tick: {mean} instructions, {most} at most, {tick:.2} % of a pCPU");
        assert!(tick <= 2.0, "{pcpus} pCPUs: {mean} instructions");
        assert!(most <= PART_MOST, "{pcpus} pCPUs: {most} instructions, over 20 us");
        let (of_limits, mean, most) = limits(pcpus);
        let limits = percent(mean, LIMIT_TICKS_A_SECOND);
        println!("  limits: {of_limits} parts, {mean} instructions, {most} at most, {limits:.2} %");
        assert!(limits <= 2.0, "{pcpus} pCPUs: {mean} instructions");
        assert!(most <= PART_MOST, "{pcpus} pCPUs: {most} instructions, over 20 us");
        let (parts, most, sum, rounds) = parts(pcpus);
        let round = percent(sum, ROUNDS_A_SECOND);
        println!("  housekeeping: {parts} parts, {most} instructions at most, {sum} in all");
        println!("  {round:.2} % of a pCPU; the tree is divided in {rounds} rounds");
        assert!(rounds <= 3, "{pcpus} pCPUs: {rounds} rounds");
        assert!(most <= PART_MOST, "{pcpus} pCPUs: {most} instructions, over 20 us");
        assert!(round <= 1.25, "{pcpus} pCPUs: {sum} instructions a round");
        let most = most_of_a_pcpu(pcpus, [tick, limits, round], of_limits);
        println!("  all of them: {most:.2} % of a pCPU at most");
        assert!(most <= 2.0, "{pcpus} pCPUs: {most:.2} % of a pCPU");
    }
}
