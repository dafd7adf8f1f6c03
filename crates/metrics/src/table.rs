//! The one list of metrics. A total begins at 0 when the scheduler is loaded; Prometheus knows how
//! to read that.

use crate::declared::{Declared, Kind, Metric, Unit};

const VM: &[&str] = &["vm", "pool", "id"];
const POOL: &[&str] = &["pool"];
const PCPU: &[&str] = &["pcpu"];

const fn metric(metric: Metric, name: &'static str, kind: Kind, unit: Unit) -> Declared {
    Declared { metric, name, kind, unit, labels: &[], meaning: "", advice: "" }
}

const fn counter(which: Metric, name: &'static str, unit: Unit) -> Declared {
    metric(which, name, Kind::Counter, unit)
}

const fn gauge(which: Metric, name: &'static str, unit: Unit) -> Declared {
    metric(which, name, Kind::Gauge, unit)
}

impl Declared {
    const fn of(self, labels: &'static [&'static str]) -> Declared {
        Declared { labels, ..self }
    }

    const fn says(self, meaning: &'static str, advice: &'static str) -> Declared {
        Declared { meaning, advice, ..self }
    }
}

/// Every metric, in the order of `Metric`.
pub const METRICS: [Declared; Metric::COUNT] = [
    metric(Metric::Build, "tandem_build", Kind::Info, Unit::None)
        .of(&["version"])
        .says("Version of Tandem.", "Compare hosts after an update."),
    gauge(Metric::Loaded, "tandem_scheduler_loaded", Unit::None).says(
        "1 while the kernel schedules by Tandem, else 0; then the metrics of VMs, pools and pCPUs \
            are absent.",
        "At 0 the kernel's own scheduler runs, without Tandem's shares, reservations and limits: \
            read the daemon's last messages, then start it.",
    ),
    counter(Metric::Ejections, "tandem_scheduler_ejections", Unit::None).of(&["cause"]).says(
        "How often the kernel has ended the scheduler since the host was booted: cause is pcpus \
            when it asked for a fresh load because pCPUs came or went, which known ones no longer \
            do, else other.",
        "Unless an administrator caused it, other is a bug: read the daemon's last messages and \
            dmesg, and report it. After pcpus the daemon has loaded the scheduler again.",
    ),
    counter(Metric::Reloads, "tandem_reloads", Unit::None).of(&["outcome"]).says(
        "How often this daemon has read its settings file again: outcome is taken or refused.",
        "When refused grows, the old settings are in force: 'tandem reload' prints every reason.",
    ),
    gauge(Metric::PlanGeneration, "tandem_plan_generation", Unit::None).says(
        "Generation of the plan in force; each change of VMs, pools or settings makes another.",
        "If it changes all the time, look for a program that starts VMs or writes cgroups.",
    ),
    gauge(Metric::HostPcpus, "tandem_host_pcpus", Unit::Pcpus).says("pCPUs that are \
        online.", "None."),
    gauge(Metric::HostWorlds, "tandem_host_worlds", Unit::None).says(
        "Threads that the scheduler accounts, host tasks included.",
        "The most is a little above kernel.threads-max and kernel.pid_max at the load, and \
            1,048,575: beyond that tandem_overflowed_threads_total grows.",
    ),
    gauge(Metric::HostVms, "tandem_host_vms", Unit::None)
        .says("VMs that the daemon follows.", "Fewer than run here: the daemon names those that \
            it cannot follow, and they run as host tasks."),
    counter(Metric::AssertionFailures, "tandem_assertion_failures", Unit::None)
        .says("Failed assertions of the scheduler, which does not stop for them.", "Each is a \
            bug: please report it with a trace."),
    counter(Metric::OverflowedThreads, "tandem_overflowed_threads", Unit::None).says(
        "Threads that could not start (EAGAIN), for the scheduler's table was full: it has room \
            for as many as the kernel allowed when it was loaded.",
        "Find the program with so many threads; if kernel.threads-max was raised, start the daemon \
            again.",
    ),
    counter(Metric::TraceLost, "tandem_trace_lost_records", Unit::None)
        .says("Records of traces that found no room in the ring buffer; the trace marks the \
            gaps.", "Record for a shorter time, or on a quieter host."),
    counter(Metric::VmState, "tandem_vm_state_seconds", Unit::Seconds).of(&["vm", "pool", "id", "state"]).says(
        "Time of all worlds of a VM in a state: run, ready (waits for a pCPU), costop, limited \
            (parked by a limit), wait, idle (a \
         vCPU that is halted). They exclude each other, so esxtop's %RDY is ready and limited, its %WAIT wait and idle.",
        "ready above 0.1 for each vCPU: the host is overcommitted, raise shares or reservation, or \
            move VMs. limited: raise the limit.",
    ),
    counter(Metric::VmUsed, "tandem_vm_used_seconds", Unit::Seconds)
        .of(VM)
        .says("CPU time charged to a VM, its helper threads included, as esxtop's %USED: the time \
            in run without what is lost.", "Compare it with tandem_vm_entitlement_pcpus."),
    counter(Metric::VmLost, "tandem_vm_lost_seconds", Unit::Seconds)
        .of(&["vm", "pool", "id", "cause"])
        .says("CPU time of a VM's worlds that was lost, by cause, and is not charged: smt, to busy \
            threads of the same core; with ready and costop it is esxtop's %LAT_C. Absent on cores \
            of several threads with shared_charge 1000 (the default), which leaves it unknown.",
            "Far above that of VMs of the same load: it waits for a whole core that others have \
            more shares of."),
    gauge(Metric::VmEntitlement, "tandem_vm_entitlement_pcpus", Unit::Pcpus).of(VM).says(
        "Entitlement of a VM now, for the demand of all.",
        "Less than tandem_vm_demand_pcpus: its worlds must wait. Give it shares or a reservation \
            if that matters.",
    ),
    gauge(Metric::VmDemand, "tandem_vm_demand_pcpus", Unit::Pcpus)
        .of(VM)
        .says("Demand of a VM now: worlds that run or wait for a pCPU, smoothed over a few times \
            10 ms.", "Compare it with its vCPUs: it may need more, or fewer."),
    gauge(Metric::VmVcpus, "tandem_vm_vcpus", Unit::None)
        .of(VM)
        .says("vCPUs that the daemon found.", "Fewer than the VM has: see 'What is found' in \
            operating.md."),
    gauge(Metric::VmShares, "tandem_vm_shares", Unit::None).of(VM).says("CPU shares in \
        force.", "'tandem plan' shows their source."),
    gauge(Metric::VmReservation, "tandem_vm_reservation_pcpus", Unit::Pcpus)
        .of(VM)
        .says("CPU that a VM gets whatever the others want.", "'tandem plan' shows its source, \
            'tandem admit' whether it can be guaranteed."),
    gauge(Metric::VmLimit, "tandem_vm_limit_pcpus", Unit::Pcpus)
        .of(VM)
        .says("CPU that a VM never exceeds; absent for a VM without a limit of its \
            own.", "'tandem plan' shows its source."),
    counter(Metric::VmMigrations, "tandem_vm_migrations", Unit::None)
        .of(VM)
        .says("Migrations of a VM's worlds from one pCPU to another.", "Thousands a second refill \
            caches: record a trace and look for the cause."),
    counter(Metric::VmSwitches, "tandem_vm_switches", Unit::None)
        .of(VM)
        .says("How often a pCPU began to run a world of the VM.", "Far more than wake-ups: it is \
            preempted often."),
    counter(Metric::VmWakeups, "tandem_vm_wakeups", Unit::None)
        .of(VM)
        .says("How often a world of the VM woke.", "Tens of thousands a second: look for a guest \
            that polls or a timer that is too fine."),
    counter(Metric::VmExpiries, "tandem_vm_quantum_expiries", Unit::None)
        .of(VM)
        .says("How often a slice of a VM's worlds ended while they could go on: used up, or cut \
            short for another world.", "Alone on a pCPU it is one a quantum; many more: others \
            take the pCPU from it."),
    gauge(Metric::VmHomeVcpus, "tandem_vm_home_vcpus", Unit::None)
        .of(&["vm", "pool", "id", "node"])
        .says("vCPUs of a VM that have their home in a NUMA node; this and the next four are \
            absent unless the daemon gives VMs homes.", "More than the node has cores, all VMs \
            together: it is contended."),
    counter(Metric::VmHomeMigrations, "tandem_vm_home_migrations", Unit::None)
        .of(&["vm", "pool", "id", "reason"])
        .says("How often a home node of the VM changed, by reason; esxtop's NMIG is their \
            sum.", "'tandem numa explain' has each with what was seen and expected."),
    gauge(Metric::VmMemory, "tandem_vm_memory_bytes", Unit::Bytes)
        .of(&["vm", "pool", "id", "node"])
        .says("Memory that a VM has used of a NUMA node, estimated from samples.", "Compare it \
            with the node of its home."),
    gauge(Metric::VmMemoryLocal, "tandem_vm_memory_local_bytes", Unit::Bytes)
        .of(VM)
        .says("Part of it that is in the home of its part of the VM.", "Below 80 % of all for \
            minutes: it is bound, or the home is full, or homes change too often."),
    counter(Metric::VmMemoryMoved, "tandem_vm_memory_moved_bytes", Unit::Bytes)
        .of(VM)
        .says("Memory that has followed a VM to its home.", "Grows all the time: homes change too \
            often."),
    counter(Metric::PoolUsed, "tandem_pool_used_seconds", Unit::Seconds).of(POOL).says(
        "CPU time charged in a pool, pools in it included; the pool /system is the host's own \
            tasks.",
        "Compare it with the pool's limit and entitlement. Do not sum it over pools: a pool \
            includes the pools in it.",
    ),
    counter(Metric::PoolReady, "tandem_pool_ready_seconds", Unit::Seconds)
        .of(POOL)
        .says("Time that worlds of VMs in a pool waited for a pCPU and were not \
            parked.", "Grows fast: the pool's demand exceeds what its shares give."),
    counter(Metric::PoolLimited, "tandem_pool_limited_seconds", Unit::Seconds)
        .of(POOL)
        .says("Time that worlds of VMs in a pool were parked by a limit, theirs or that of a pool \
            above.", "Raise the limit if that was not wanted."),
    gauge(Metric::PoolEntitlement, "tandem_pool_entitlement_pcpus", Unit::Pcpus).of(POOL).says(
        "Entitlement of a pool now, for the demand of all.",
        "Less than its demand: its VMs must wait.",
    ),
    gauge(Metric::PoolDemand, "tandem_pool_demand_pcpus", Unit::Pcpus)
        .of(POOL)
        .says("Demand of a pool now, at most what it may use.", "Above the entitlement for long: \
            the host is too small for it."),
    gauge(Metric::PoolShares, "tandem_pool_shares", Unit::None).of(POOL).says("CPU shares of a \
        pool among its siblings, as they are set.", "'tandem plan' shows their source."),
    gauge(Metric::PoolReservation, "tandem_pool_reservation_pcpus", Unit::Pcpus)
        .of(POOL)
        .says("CPU that a pool gets whatever others want.", "'tandem admit' shows how much is \
            left."),
    gauge(Metric::PoolLimit, "tandem_pool_limit_pcpus", Unit::Pcpus)
        .of(POOL)
        .says("CPU that the VMs of a pool never exceed together; absent without a \
            limit.", "'tandem plan' shows its source."),
    counter(Metric::PcpuBusy, "tandem_pcpu_busy_seconds", Unit::Seconds)
        .of(PCPU)
        .says("Time that a pCPU ran worlds.", "Near 1 a second on all pCPUs: the host is full."),
    counter(Metric::PcpuTaken, "tandem_pcpu_taken_seconds", Unit::Seconds)
        .of(PCPU)
        .says("Time in which a pCPU neither ran worlds nor idled: real-time and deadline tasks, \
            and the kernel's own.", "More than a hundredth of the time: look for real-time tasks \
            ('ps -eLo cls,rtprio,psr,comm'); VMs divide what is left."),
    counter(Metric::PcpuSwitches, "tandem_pcpu_switches", Unit::None).of(PCPU).says("How often a \
        pCPU began to run a world.", "Tens of thousands a second: look for a VM that wakes so \
        often."),
    counter(Metric::PcpuPulls, "tandem_pcpu_pulls", Unit::None)
        .of(PCPU)
        .says("Worlds that a pCPU took from the queues of others.", "Normal on a busy host; far \
            more than elsewhere: record a trace."),
    counter(Metric::PcpuPreempts, "tandem_pcpu_preempts", Unit::None)
        .of(PCPU)
        .says("Kicks that asked a pCPU to preempt for a world with an earlier deadline.", "Far \
            more than elsewhere: raise the knob preempt_margin_us."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn declarations_are_in_order_named_by_the_rules_and_complete() {
        let word = |s: &str| {
            !s.is_empty()
                && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        let mut names = BTreeSet::new();
        for (i, d) in METRICS.iter().enumerate() {
            assert_eq!(d.metric as usize, i, "{}", d.name);
            assert!(names.insert(d.name), "{} is there twice", d.name);
            assert!(d.name.starts_with("tandem_") && word(d.name), "{}", d.name);
            let reserved = ["_total", "_created", "_count", "_sum", "_bucket", "_info"];
            assert!(
                !reserved.iter().any(|r| d.name.ends_with(r)),
                "{} ends with what the format adds",
                d.name
            );
            let unit = d.unit.name();
            assert!(
                unit.is_empty() || d.name.ends_with(&format!("_{unit}")),
                "{} does not end with {unit}",
                d.name
            );
            let ends = ["_ms", "_us", "_ns", "_percent", "_minutes", "_seconds", "_pcpus"]
                .iter()
                .filter(|e| d.name.ends_with(**e));
            assert!(
                ends.map(|e| &e[1..]).all(|e| e == unit),
                "{} ends with a unit that it does not declare",
                d.name
            );
            assert!(d.labels.iter().all(|l| word(l) && !l.starts_with("__")), "{}", d.name);
            assert_eq!(
                d.labels.iter().collect::<BTreeSet<_>>().len(),
                d.labels.len(),
                "{}",
                d.name
            );
            assert!(d.meaning.ends_with('.') && d.advice.ends_with('.'), "{}: sentences", d.name);
            assert!(
                d.kind != Kind::Info || (d.unit == Unit::None && !d.labels.is_empty()),
                "{}",
                d.name
            );
        }
    }
}
