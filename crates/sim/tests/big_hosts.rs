//! What the timers of co-scheduling and housekeeping cost in instructions of the native scheduler,
//! by the size of the host: no tick of a block grows with the host.
//!
//! All vCPUs of two 4-vCPU VMs a pCPU want to run, up to 1,000 VMs: the busiest that a host is.
#[path = "count/mod.rs"]
mod count;

use count::{PARTS, begins, counted};
use sched_core::{BLOCK_PCPUS, ENQUEUE_WAKEUP, Host, KIND_VCPU, NoKernel};
use topology::{Shape, Topology};
use units::Rate;

const VCPUS: u32 = 4;
const VMS_MOST: u32 = 1_000;
/// Between two ticks of a block, a quarter of cosched_poll_us at its default.
const SOON_NS: u64 = 250_000;
/// Ticks of a block in a second, at most.
const LOOKS_A_SECOND: u64 = 4_000;
/// Instructions of a pCPU in a second, at 3 GHz and an instruction a cycle.
const A_SECOND: u64 = 3_000_000_000;

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

/// Mean and most of the instructions of a block's ticks, and those of one turn of housekeeping.
fn ticks(pcpus: u32) -> (u64, u64, u64) {
    let (mut host, mut kernel, mut now) = (host(pcpus), NoKernel, 1_000_000_000u64);
    let looks = 20; // 5 ms
    let counts = counted(|| {
        for look in 0..looks {
            now += SOON_NS;
            host.set_now(now);
            begins(look + 1);
            let _ = host.cosched(&mut kernel, 0);
        }
        now += 10_000_000;
        host.set_now(now);
        begins(PARTS - 1);
        host.housekeep(&mut kernel);
    });
    let of = &counts[1..=looks];
    (of.iter().sum::<u64>() / looks as u64, *of.iter().max().unwrap_or(&0), counts[PARTS - 1])
}

#[test]
fn the_tick_of_a_block_does_not_grow_with_the_host() {
    for pcpus in [8, 64, 160, 512] {
        let (mean, most, housekeeping) = ticks(pcpus);
        let blocks = u64::from(pcpus.div_ceil(BLOCK_PCPUS));
        let percent = |n: u64| (n * LOOKS_A_SECOND) as f64 / A_SECOND as f64 * 100.0;
        let vcpus = (2 * pcpus).min(VMS_MOST) * VCPUS;
        println!("{pcpus} pCPUs, {vcpus} vCPUs: {blocks} blocks, housekeeping {housekeeping}");
        println!("  a tick: {mean} instructions, {most} at most, {:.2} % of a pCPU", percent(mean));
        assert!(percent(mean) <= 2.0, "{pcpus} pCPUs: {mean} instructions");
        assert!(most <= A_SECOND / 50_000, "{pcpus} pCPUs: {most} instructions, over 20 us");
    }
}
