//! What the declaration of a metric consists of, by the rules of OpenMetrics 1.0.

/// A metric. The order is that of `METRICS`, and of the exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Metric {
    /// Which Tandem this is.
    Build,
    /// Whether the scheduler is loaded.
    Loaded,
    /// How often the kernel has ended the scheduler.
    Ejections,
    /// Settings files read again.
    Reloads,
    /// Generation of the plan in force.
    PlanGeneration,
    /// pCPUs that are online.
    HostPcpus,
    /// Worlds.
    HostWorlds,
    /// VMs that are followed.
    HostVms,
    /// Failed assertions of the scheduler.
    AssertionFailures,
    /// Threads that found no free world.
    OverflowedThreads,
    /// Trace records that found no room.
    TraceLost,
    /// Time of a VM's worlds in each state.
    VmState,
    /// CPU time charged to a VM.
    VmUsed,
    /// CPU time of a VM that was lost to a cause.
    VmLost,
    /// What a VM is entitled to now.
    VmEntitlement,
    /// What a VM asks for now.
    VmDemand,
    /// vCPUs of a VM.
    VmVcpus,
    /// Shares of a VM.
    VmShares,
    /// Reservation of a VM.
    VmReservation,
    /// Limit of a VM.
    VmLimit,
    /// Migrations of a VM's worlds.
    VmMigrations,
    /// Switches to a VM's worlds.
    VmSwitches,
    /// Wake-ups of a VM's worlds.
    VmWakeups,
    /// Quanta of a VM's worlds that ended.
    VmExpiries,
    /// vCPUs of a VM that have their home in a node.
    VmHomeVcpus,
    /// Changes of a VM's homes.
    VmHomeMigrations,
    /// Memory of a VM in a node.
    VmMemory,
    /// Memory of a VM at home.
    VmMemoryLocal,
    /// Memory of a VM that has followed.
    VmMemoryMoved,
    /// CPU time charged to a pool.
    PoolUsed,
    /// Ready time in a pool.
    PoolReady,
    /// Time that limits held back in a pool.
    PoolLimited,
    /// What a pool is entitled to now.
    PoolEntitlement,
    /// What a pool asks for now.
    PoolDemand,
    /// Shares of a pool.
    PoolShares,
    /// Reservation of a pool.
    PoolReservation,
    /// Limit of a pool.
    PoolLimit,
    /// Time that a pCPU ran worlds.
    PcpuBusy,
    /// Time in which a pCPU neither ran worlds nor idled.
    PcpuTaken,
    /// Switches of a pCPU.
    PcpuSwitches,
    /// Worlds that a pCPU took from others.
    PcpuPulls,
    /// Kicks that asked a pCPU to preempt.
    PcpuPreempts,
}

impl Metric {
    /// How many there are.
    pub const COUNT: usize = Metric::PcpuPreempts as usize + 1;

    /// Its declaration.
    #[must_use]
    pub fn declared(self) -> &'static Declared {
        &crate::METRICS[self as usize]
    }
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A total that only grows, and begins at 0 when the scheduler is loaded anew.
    Counter,
    /// What is so now.
    Gauge,
    /// Always 1: its labels tell.
    Info,
}

impl Kind {
    /// As OpenMetrics names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        }
    }

    /// What the name of a sample has behind that of its metric.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        }
    }
}

/// Unit of a metric; its name ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, or a flag.
    None,
    /// Seconds.
    Seconds,
    /// pCPUs: 1 is one pCPU all the time.
    Pcpus,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// As the name of a metric ends; empty for a count.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Seconds => "seconds",
            Unit::Pcpus => "pcpus",
            Unit::Bytes => "bytes",
        }
    }
}

/// The declaration of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Which.
    pub metric: Metric,
    /// Name of the family, without `_total`.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Unit.
    pub unit: Unit,
    /// Labels of each sample, in order.
    pub labels: &'static [&'static str],
    /// What it says.
    pub meaning: &'static str,
    /// What an admin does about it.
    pub advice: &'static str,
}

impl Declared {
    /// Name of its samples, as queries write it.
    #[must_use]
    pub fn sample(&self) -> String {
        format!("{}{}", self.name, self.kind.suffix())
    }
}
