//! Speed of the engine at 8, 64, 160 and 512 pCPUs with 6.4 vCPUs a pCPU, by CPU time; it prints
//! and asserts nothing, since it is timed.
//!
//! What grows with the host: the heap of timers (logarithm to base 4), the bytes that one event
//! touches (they leave the caches), the scheduler's search for idle pCPUs and its pulls (bounded by
//! NEAR_MAX and PROBE_MAX), and housekeeping, a pass over all VMs each `housekeep_us`. Events a
//! simulated second grow with worlds and pCPUs alone.
//!
//! `cargo bench -p sim` runs it; arguments are the simulated time, one number of pCPUs and one name
//! of the column `oracle`: `cargo bench -p sim -- 10s 512 on`.

use settings::{Dist, HardwareSpec, Run, RunSpec, VmSpec, Workload, built_in_profiles};
use sim::{Options, run};
use topology::{Shape, Topology};
use units::Span;

/// A mix: burners, RDY's 15 % burners, timers, and I/O of exponential lengths.
fn workload(i: u32) -> Workload {
    match i % 4 {
        0 => Workload::Burn,
        1 => Workload::Duty { work: Span::from_ms(15), sleep: Span::from_ms(85) },
        2 => Workload::Periodic { period: Span::from_ms(10), work: Span::from_ms(1) },
        _ => Workload::Io {
            work: Span::from_ns(200_000),
            sleep: Span::from_ms(2),
            dist: Dist::Exponential,
            halts: true,
        },
    }
}

fn vm(i: u32, vcpus: u32) -> VmSpec {
    VmSpec {
        name: format!("vm{i}"),
        count: 1,
        vcpus,
        shares: Default::default(),
        pool: None,
        reservation: None,
        limit: None,
        burst: None,
        affinity: None,
        cpuset: None,
        vcpu_affinity: None,
        workload: Some(workload(i)),
        profile: None,
        vcpu_workloads: None,
        memory: None,
        vnuma: None,
        vnuma_node: None,
        prefer_ht: false,
        llc: None,
        watchdog: None,
        guest: None,
        tasks: vec![],
        hot_add: vec![],
        active: vec![],
        start: Span::ZERO,
        stop: None,
    }
}

/// A host of `sockets` × `cores` × 2 threads with 6.4 vCPUs a pCPU in at most 1,000 VMs.
fn host(sockets: u32, cores: u32, duration: Span) -> Run {
    let shape = Shape {
        sockets,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: cores,
        threads_per_core: 2,
    };
    let topology = Topology::regular(shape).expect("a host");
    let vcpus = topology.pcpus() as u32 * 64 / 10;
    let vms = (vcpus / 2).min(1000);
    let spec = RunSpec {
        title: String::new(),
        source: String::new(),
        seed: 1,
        duration,
        warmup: Span::ZERO,
        host: settings::HostSpec {
            sockets,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: cores,
            threads_per_core: 2,
            hz: 250,
            timer_late: Span::ZERO,
            pause_exits: true,
            wake_path: None,
            idle_exit: None,
            idle_residency: settings::HostSpec::IDLE_RESIDENCY,
            mhz: 2000,
        },
        pools: vec![],
        vms: (0..vms).map(|i| vm(i, vcpus / vms + u32::from(i < vcpus % vms))).collect(),
        host_tasks: vec![],
        changes: vec![],
        offline: vec![],
        realtime: vec![],
        hardware: None,
        numa: None,
        profiles: vec![],
        knobs: Default::default(),
        lab: Default::default(),
        expect: Default::default(),
    };
    Run { label: String::new(), spec, topology }
}

/// Simulated hardware, with workloads of all profiles: in each LLC worlds are in each other's way.
fn simulate_hardware(spec: &mut RunSpec) {
    spec.hardware = Some(HardwareSpec::default());
    for (vm, profile) in spec.vms.iter_mut().zip(built_in_profiles().iter().cycle()) {
        vm.profile = Some(profile.name.clone());
    }
}

/// Resident memory of this process in KiB, 0 where /proc does not say.
fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4)
}

/// CPU time of this thread, in s, so that other work on the machine counts little; 0 where /proc
/// does not say.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(0.0, |ns| ns / 1e9)
}

fn main() {
    let duration =
        std::env::args().skip(1).find_map(|a| a.parse::<Span>().ok()).unwrap_or(Span::from_secs(5));
    let mut table = views::Table::new(&[
        "pCPUs",
        "VMs",
        "vCPUs",
        "<oracle",
        "events",
        "events/s",
        "ns/event",
        "sim s/s",
        "calls/event",
        "RSS KiB",
    ]);
    let only = std::env::args().skip(1).find_map(|a| a.parse::<u32>().ok());
    let modes = [("off", false, false), ("off+hardware", false, true), ("on", true, false)];
    let mode = modes.map(|m| m.0).into_iter().find(|m| std::env::args().any(|a| a == *m));
    for (sockets, cores) in [(1, 4), (2, 16), (2, 40), (8, 32)] {
        if only.is_some_and(|n| n != sockets * cores * 2) {
            continue;
        }
        for (oracle, check, hardware) in modes {
            if mode.is_some_and(|m| m != oracle) {
                continue;
            }
            let mut run_of = host(
                sockets,
                cores,
                if check { Span::from_ns(duration.ns() / 5) } else { duration },
            );
            if hardware {
                simulate_hardware(&mut run_of.spec);
            }
            let options = Options { check, ..Options::default() };
            let begun = cpu_seconds();
            let outcome = match run(&run_of, &options) {
                Ok(outcome) => outcome,
                Err(e) => return println!("{} pCPUs: {e}", run_of.topology.pcpus()),
            };
            let secs = cpu_seconds() - begun;
            let events = outcome.stats.events as f64;
            table.row([
                run_of.topology.pcpus().to_string(),
                run_of.spec.vms.len().to_string(),
                run_of.spec.vms.iter().map(|v| v.vcpus).sum::<u32>().to_string(),
                oracle.to_owned(),
                outcome.stats.events.to_string(),
                format!("{:.0}", events / secs),
                format!("{:.0}", secs * 1e9 / events),
                format!("{:.2}", run_of.spec.duration.as_secs_f64() / secs),
                format!("{:.2}", outcome.stats.calls as f64 / events),
                resident_kib().to_string(),
            ]);
        }
    }
    print!("{}", table.text());
}
