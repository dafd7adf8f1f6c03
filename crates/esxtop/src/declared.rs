//! Every counter that Tandem shows under esxtop's names, declared once: screen, batch file, JSON,
//! help and documents come from here.
//!
//! Sources: columns, fields and batch names as public lists of esxtop have them; meanings by
//! Broadcom KB 382249 and isvara.net "vSphere metrics"; thresholds are the rules of thumb that
//! admins pass on (5 and 10 % ready a vCPU, 3 % co-stop, 5 % swap wait, no limit at all). Of NWLD
//! and ASHRS no public list has the batch name, so they have none here. AMLMT is not offered.

use crate::metric::{Counter, Field, Metric, Object, Panel, Thresholds, Unit};

const NONE: Thresholds = Thresholds { least: None, look: None, bad: None };
const FULL: Thresholds = Thresholds { look: Some(0.8), bad: Some(1.0), ..NONE };
const BOTH: &[Object] = &[Object::Group, Object::World];
const ROWS: &[Panel] = &[Panel::Cpu, Panel::CpuWorlds];

/// A line above the panel.
const fn head(
    metric: Metric,
    column: &'static str,
    batch: &'static str,
    key: &'static str,
) -> Counter {
    let (on, unit): (&[Object], Unit) = if (metric as usize) <= Metric::Load15 as usize {
        (&[Object::Load], Unit::Load)
    } else {
        (&[Object::Pcpu], Unit::Percent)
    };
    let thresholds = if matches!(unit, Unit::Load) { FULL } else { NONE };
    let panels = &[Panel::CpuHead];
    Counter {
        metric,
        column,
        batch: Some(batch),
        key,
        unit,
        meaning: "",
        advice: "",
        thresholds,
        on,
        panels,
        field: Field::Physical,
    }
}

/// A column of %STATE TIMES.
const fn state(
    metric: Metric,
    column: &'static str,
    batch: &'static str,
    key: &'static str,
) -> Counter {
    let (unit, thresholds) = (Unit::Percent, NONE);
    let field = Field::StateTimes;
    Counter {
        metric,
        column,
        batch: Some(batch),
        key,
        unit,
        meaning: "",
        advice: "",
        thresholds,
        on: BOTH,
        panels: ROWS,
        field,
    }
}

/// A column of EVENTS/s.
const fn events(
    metric: Metric,
    column: &'static str,
    batch: &'static str,
    key: &'static str,
) -> Counter {
    Counter { unit: Unit::PerSecond, field: Field::Events, ..state(metric, column, batch, key) }
}

/// A column of CPU ALLOC or SUMMARY.
const fn setting(
    metric: Metric,
    column: &'static str,
    batch: Option<&'static str>,
    key: &'static str,
    unit: Unit,
    field: Field,
) -> Counter {
    Counter { batch, unit, field, ..state(metric, column, "", key) }
}

/// A column of the memory panel.
const fn memory(
    metric: Metric,
    column: &'static str,
    batch: Option<&'static str>,
    key: &'static str,
    unit: Unit,
) -> Counter {
    let (on, panels): (&[Object], &[Panel]) = (&[Object::Memory], &[Panel::Memory]);
    Counter { on, panels, ..setting(metric, column, batch, key, unit, Field::Numa) }
}

/// All of them, in the order of `Metric`.
pub const COUNTERS: [Counter; Metric::COUNT] = [
    Counter {
        meaning: "Worlds that ran or were ready, by pCPU, averaged over the last minute. 1.00 is a \
            host just full.",
        advice: "Above 1 the host has more work than pCPUs: move VMs away, or look for the one \
            that is new.",
        ..head(Metric::Load1, "CPU load average 1", "Cpu Load (1 Minute Avg)", "load_1m")
    },
    Counter {
        meaning: "The same over five minutes.",
        advice: "Below the first number load rises, above it load falls.",
        ..head(Metric::Load5, "CPU load average 5", "Cpu Load (5 Minute Avg)", "load_5m")
    },
    Counter {
        meaning: "The same over fifteen minutes.",
        advice: "Above 1 the overload is no passing one.",
        ..head(Metric::Load15, "CPU load average 15", "Cpu Load (15 Minute Avg)", "load_15m")
    },
    Counter {
        meaning: "Work done by a pCPU: time not idle, by its frequency where that is known, and \
            halved while its partner thread works.",
        advice: "Two busy threads of a core show about 50 each: the core is full then.",
        ..head(Metric::PcpuUsed, "PCPU USED(%)", "% Processor Time", "used_pct")
    },
    Counter {
        meaning: "Time that a pCPU was not idle.",
        advice: "Near 100 on all pCPUs nothing is left; near 100 on some only, look for affinity.",
        ..head(Metric::PcpuUtil, "PCPU UTIL(%)", "% Util Time", "util_pct")
    },
    Counter {
        meaning: "Time that at least one thread of the pCPU's core was not idle.",
        advice: "What is left to 100 are whole cores that are not used.",
        ..head(Metric::CoreUtil, "CORE UTIL(%)", "% Core Util Time", "core_util_pct")
    },
    Counter {
        unit: Unit::Count,
        on: &[Object::Group],
        panels: &[Panel::Cpu],
        meaning: "Worlds of the group. A row of a group is the sum over them, so its states add up \
            to 100 times as much.",
        advice: "Divide a VM's percentages by its vCPUs before you compare them with a threshold.",
        ..setting(Metric::Worlds, "NWLD", None, "nwld", Unit::Count, Field::Nwld)
    },
    Counter {
        meaning: "CPU time charged: %RUN, scaled by frequency and by a busy partner thread where \
            that is known; a VM's with %SYS.",
        advice: "Near 100 for each vCPU the VM wants more: look into the guest, then give it a \
            vCPU more.",
        ..state(Metric::Used, "%USED", "% Used", "used_pct")
    },
    Counter {
        meaning: "Time on a pCPU, by the wall clock.",
        advice: "Far above %USED, the pCPU is slow, or shared with its partner thread.",
        ..state(Metric::Run, "%RUN", "% Run", "run_pct")
    },
    Counter {
        meaning: "Time that the kernel's own threads (vhost, kvm-pit, io_uring's workers) worked \
            for a VM; inside its %USED. Of a world it is not known.",
        advice: "High: that is what the VM's I/O costs the host. Expanded, the VM shows which of \
            these threads.",
        ..state(Metric::System, "%SYS", "% System", "sys_pct")
    },
    Counter {
        meaning: "Time blocked, %IDLE included.",
        advice: "High is normal: an idle VM waits all the time. Look at %VMWAIT.",
        ..state(Metric::Wait, "%WAIT", "% Wait", "wait_pct")
    },
    Counter {
        meaning: "Time that a vCPU was blocked and not halted: in its emulator, for memory of the \
            host, or paused. Absent for worlds that are no vCPU.",
        advice: "High, and the VM is not paused: look at its disks and devices, and whether the \
            host has memory left.",
        ..state(Metric::VmWait, "%VMWAIT", "% VmWait", "vmwait_pct")
    },
    Counter {
        thresholds: Thresholds { look: Some(5.0), bad: Some(10.0), ..NONE },
        meaning: "Time ready to run, and not let run; %MLMTD is inside it.",
        advice: "More than 5 a vCPU is worth a look, 10 is felt: take %MLMTD off, then free pCPUs, \
            or give shares or a reservation.",
        ..state(Metric::Ready, "%RDY", "% Ready", "ready_pct")
    },
    Counter {
        meaning: "Part of %WAIT in which a vCPU was halted by its guest, or not started by it yet.",
        advice: "None: that is capacity which the guest does not need.",
        ..state(Metric::Idle, "%IDLE", "% Idle", "idle_pct")
    },
    Counter {
        meaning: "Part of %RUN that system services took for others. Not known on KVM: interrupts \
            are counted by pCPU, and %RUN less %USED is not them.",
        advice: "Look at the interrupts of the pCPUs that it runs on.",
        ..state(Metric::Overlap, "%OVRLP", "% Overlap", "overlap_pct")
    },
    Counter {
        thresholds: Thresholds { bad: Some(3.0), ..NONE },
        meaning: "Time that a vCPU was stopped so that its slower siblings could catch up.",
        advice: "More than 3 a vCPU: the VM has more vCPUs than it uses, or the host is \
            overcommitted. Take vCPUs away.",
        ..state(Metric::CoStop, "%CSTP", "% CoStop", "costop_pct")
    },
    Counter {
        thresholds: Thresholds { look: Some(0.0), ..NONE },
        meaning: "Part of %RDY in which a limit, of its own or of a pool, held it back.",
        advice: "Not 0: a limit does what it says. Raise it, or take it away, if it is not meant.",
        ..state(Metric::MaxLimited, "%MLMTD", "% Max Limited", "limited_pct")
    },
    Counter {
        thresholds: Thresholds { bad: Some(5.0), ..NONE },
        meaning: "Part of %WAIT for memory that is swapped in. Not known on KVM.",
        advice: "More than 5: the host is short of memory.",
        ..state(Metric::SwapWait, "%SWPWT", "% Swap Wait", "swapwait_pct")
    },
    Counter {
        meaning: "Times that a world was switched to.",
        advice: "Compare with earlier: many more are a guest that sleeps and wakes at a high rate.",
        ..events(Metric::Switches, "SWTCH/s", "Switches/sec", "switches_per_s")
    },
    Counter {
        meaning: "Times that a world came to another pCPU than its last.",
        advice: "Many cost cache: look for affinity that leaves too little room.",
        ..events(Metric::Migrations, "MIG/s", "Migrates/sec", "migrations_per_s")
    },
    Counter {
        meaning: "Times that a world's slice ended while it could go on: used up, or cut short for \
            another world.",
        advice: "Alone on a pCPU it is one a quantum; many more, and others take the pCPU from it.",
        ..events(Metric::QuantumExpiries, "QEXP/s", "Quantum Expires/sec", "quantum_expiries_per_s")
    },
    Counter {
        meaning: "Times that a world woke.",
        advice: "High with little %USED: a guest with a fast timer or much I/O in small pieces.",
        ..events(Metric::Wakeups, "WAKE/s", "Wakeups/sec", "wakeups_per_s")
    },
    Counter {
        meaning: "Reservation.",
        advice: "What it gets however busy the host is; too much of it keeps other VMs from being \
            started.",
        ..setting(
            Metric::AllocMin,
            "AMIN",
            Some("Alloc Min"),
            "alloc_min",
            Unit::Alloc,
            Field::Alloc,
        )
    },
    Counter {
        meaning: "Limit; -1 is none.",
        advice: "Rarely what you want: shares do the same only when others need the time.",
        ..setting(
            Metric::AllocMax,
            "AMAX",
            Some("Alloc Max"),
            "alloc_max",
            Unit::Alloc,
            Field::Alloc,
        )
    },
    Counter {
        meaning: "Shares; -2 is low, -3 normal, -4 high.",
        advice: "They count among siblings of one pool, and only while these compete.",
        ..setting(Metric::AllocShares, "ASHRS", None, "alloc_shares", Unit::Shares, Field::Alloc)
    },
    Counter {
        meaning: "Time lost to contention of any kind, %MLMTD left out.",
        advice: "As %RDY; what it has more than %RDY and %CSTP is lost to busy partner threads and \
            slow pCPUs.",
        ..setting(
            Metric::Latency,
            "%LAT_C",
            Some("% CPU Latency"),
            "latency_pct",
            Unit::Percent,
            Field::Summary,
        )
    },
    Counter {
        meaning: "CPU time asked for, met or not.",
        advice: "Compare with %USED: what is missing is contention or a limit.",
        ..setting(
            Metric::Demand,
            "%DMD",
            Some("% Demand"),
            "demand_pct",
            Unit::Percent,
            Field::Summary,
        )
    },
    Counter {
        meaning: "Its entitlement if all VMs ask for all that they can use.",
        advice: "Below what it needs: more shares, or a reservation, or fewer VMs on the host.",
        ..setting(
            Metric::EffectiveMin,
            "EMIN",
            Some("Effective Min (MHz)"),
            "emin_mhz",
            Unit::Mhz,
            Field::Summary,
        )
    },
    Counter {
        meaning: "Timers that fired for it. Not known on KVM.",
        advice: "Look into the guest for its timer frequency.",
        ..setting(
            Metric::Timers,
            "TIMER/s",
            Some("Timers/sec"),
            "timers_per_s",
            Unit::PerSecond,
            Field::Summary,
        )
    },
    Counter {
        field: Field::Size,
        meaning: "Memory of the guest.",
        advice: "More than a node has is in several, whatever its home.",
        ..memory(Metric::MemorySize, "MEMSZ", Some("Memory Size MBytes"), "memory_mib", Unit::Mib)
    },
    Counter {
        meaning: "How often a home node of the VM changed since it was powered on, or since the \
            daemon knows it.",
        advice: "Grows all the time: 'tandem numa explain' has the reasons; NUMA nodes that no \
            division of these VMs fits, often.",
        ..memory(Metric::HomeMigrations, "NMIG", None, "numa_migrations", Unit::Changes)
    },
    Counter {
        panels: &[],
        meaning: "The same over the interval.",
        advice: "As NMIG.",
        ..memory(
            Metric::HomeMigrationsDelta,
            "(NMIG of the interval)",
            Some("Numa Rebalance Count Delta"),
            "numa_migrations_delta",
            Unit::Changes,
        )
    },
    Counter {
        meaning: "Memory in other nodes than the home of its part.",
        advice: "It follows in time; where it does not, it is bound (numatune), or the home is \
            full.",
        ..memory(Metric::RemoteMemory, "NRMEM", None, "numa_remote_mib", Unit::Mib)
    },
    Counter {
        meaning: "Memory in the home of its part.",
        advice: "None: that is where it should be.",
        ..memory(Metric::LocalMemory, "NLMEM", None, "numa_local_mib", Unit::Mib)
    },
    Counter {
        thresholds: Thresholds { least: Some(80.0), ..NONE },
        meaning: "Part of its memory that is in the home of its part.",
        advice: "Below 80 for minutes: look at NMIG (memory is left behind by each change), and \
            at what binds it.",
        ..memory(
            Metric::LocalPercent,
            "N%L",
            Some("Numa % Local"),
            "numa_local_pct",
            Unit::OfMemory,
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_counter_is_declared_once_in_its_place_and_in_full() {
        for (i, c) in COUNTERS.iter().enumerate() {
            assert_eq!(c.metric as usize, i, "{}", c.column);
            assert_eq!(c.metric.counter().column, c.column);
            assert!(
                !c.column.is_empty()
                    && !c.key.is_empty()
                    && !c.on.is_empty()
                    && (!c.panels.is_empty() || c.batch.is_some()),
                "{}",
                c.column
            );
            assert!(c.meaning.ends_with('.') && c.advice.ends_with('.'), "{}", c.column);
        }
        for object in [Object::Load, Object::Pcpu, Object::Group, Object::World, Object::Memory] {
            let of = || object.metrics().map(Metric::counter);
            let all = of().count();
            assert_eq!(
                of().map(|c| c.key).collect::<BTreeSet<_>>().len(),
                all,
                "{object:?}: keys are told apart"
            );
            assert_eq!(
                of().map(|c| c.column).collect::<BTreeSet<_>>().len(),
                all,
                "{object:?}: columns are told apart"
            );
        }
    }

    #[test]
    fn names_in_the_batch_file_are_those_of_public_lists_in_their_order() {
        let names =
            |object: Object| object.metrics().filter_map(|m| m.counter().batch).collect::<Vec<_>>();
        assert_eq!(
            names(Object::Load),
            ["Cpu Load (1 Minute Avg)", "Cpu Load (5 Minute Avg)", "Cpu Load (15 Minute Avg)"]
        );
        assert_eq!(names(Object::Pcpu), ["% Processor Time", "% Util Time", "% Core Util Time"]);
        let group = "% Used, % Run, % System, % Wait, % VmWait, % Ready, % Idle, % Overlap, % \
            CoStop, % Max Limited, % Swap Wait, \
                     Switches/sec, Migrates/sec, Quantum Expires/sec, Wakeups/sec, Alloc Min, Alloc Max, % CPU Latency, % Demand, \
                     Effective Min (MHz), Timers/sec";
        assert_eq!(names(Object::Group).join(", "), group);
        assert_eq!(names(Object::World), names(Object::Group));
        let memory = ["Memory Size MBytes", "Numa Rebalance Count Delta", "Numa % Local"];
        assert_eq!(names(Object::Memory), memory);
    }

    #[test]
    fn thresholds_are_those_that_admins_use() {
        let of = |m: Metric| (m.counter().thresholds.look, m.counter().thresholds.bad);
        assert_eq!(of(Metric::Ready), (Some(5.0), Some(10.0)));
        assert_eq!(of(Metric::CoStop), (None, Some(3.0)));
        assert_eq!(of(Metric::MaxLimited), (Some(0.0), None));
        assert_eq!(of(Metric::SwapWait), (None, Some(5.0)));
        assert_eq!(of(Metric::Load1), (Some(0.8), Some(1.0)));
        assert_eq!(of(Metric::Used), (None, None));
    }

    #[test]
    fn columns_are_switched_by_esxtops_letters() {
        let of = |letter: char| {
            COUNTERS
                .iter()
                .filter(|c| c.field.letter() == letter && !c.on.contains(&Object::Memory))
                .map(|c| c.column)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(of('E'), "NWLD");
        assert_eq!(of('F'), "%USED %RUN %SYS %WAIT %VMWAIT %RDY %IDLE %OVRLP %CSTP %MLMTD %SWPWT");
        assert_eq!(of('G'), "SWTCH/s MIG/s QEXP/s WAKE/s");
        assert_eq!(of('H'), "AMIN AMAX ASHRS");
        assert_eq!(of('I'), "%LAT_C %DMD EMIN TIMER/s");
        assert_eq!(of('K').matches("UTIL").count(), 2);
    }
}
