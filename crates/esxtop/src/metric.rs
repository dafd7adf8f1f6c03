//! What the declaration of a counter consists of, for help, panels, batch file and JSON; and the
//! numbers of one object by counter.

/// A counter. The order is that of `COUNTERS`, and of the columns in the batch file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Metric {
    /// Load average over 1 minute.
    Load1,
    /// Load average over 5 minutes.
    Load5,
    /// Load average over 15 minutes.
    Load15,
    /// PCPU USED.
    PcpuUsed,
    /// PCPU UTIL.
    PcpuUtil,
    /// CORE UTIL.
    CoreUtil,
    /// NWLD.
    Worlds,
    /// %USED.
    Used,
    /// %RUN.
    Run,
    /// %SYS.
    System,
    /// %WAIT.
    Wait,
    /// %VMWAIT.
    VmWait,
    /// %RDY.
    Ready,
    /// %IDLE.
    Idle,
    /// %OVRLP.
    Overlap,
    /// %CSTP.
    CoStop,
    /// %MLMTD.
    MaxLimited,
    /// %SWPWT.
    SwapWait,
    /// SWTCH/s.
    Switches,
    /// MIG/s.
    Migrations,
    /// QEXP/s.
    QuantumExpiries,
    /// WAKE/s.
    Wakeups,
    /// AMIN.
    AllocMin,
    /// AMAX.
    AllocMax,
    /// ASHRS.
    AllocShares,
    /// %LAT_C.
    Latency,
    /// %DMD.
    Demand,
    /// EMIN.
    EffectiveMin,
    /// TIMER/s.
    Timers,
    /// MEMSZ.
    MemorySize,
    /// NMIG, since the VM was powered on.
    HomeMigrations,
    /// The same over the interval; in the batch file only.
    HomeMigrationsDelta,
    /// NRMEM.
    RemoteMemory,
    /// NLMEM.
    LocalMemory,
    /// N%L.
    LocalPercent,
}

impl Metric {
    /// How many there are.
    pub const COUNT: usize = Metric::LocalPercent as usize + 1;

    /// Its declaration.
    #[must_use]
    pub fn counter(self) -> &'static Counter {
        &crate::COUNTERS[self as usize]
    }
}

/// Unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Percent of one pCPU's time over the interval: a world has at most about 100, a group as
    /// often 100 as it has worlds.
    Percent,
    /// Events a second.
    PerSecond,
    /// Worlds.
    Count,
    /// pCPUs' worth of work that runs or waits, by pCPU: 1.00 is a host just full.
    Load,
    /// MHz.
    Mhz,
    /// What AUNITS says: MHz, or percent of the host.
    Alloc,
    /// Shares, or a negative code of a level.
    Shares,
    /// MiB.
    Mib,
    /// Percent of the memory.
    OfMemory,
    /// Changes.
    Changes,
}

impl Unit {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Percent => "% of one pCPU",
            Unit::PerSecond => "a second",
            Unit::Count => "worlds",
            Unit::Load => "1.00 = host full",
            Unit::Mhz => "MHz",
            Unit::Alloc => "MHz or %, see AUNITS",
            Unit::Shares => "shares",
            Unit::Mib => "MiB",
            Unit::OfMemory => "% of its memory",
            Unit::Changes => "changes",
        }
    }
}

/// What a counter is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The host, `Physical Cpu Load`.
    Load,
    /// A pCPU, or all: `Physical Cpu`.
    Pcpu,
    /// A pool, VM or the system group: `Group Cpu`.
    Group,
    /// A world: `Vcpu`.
    World,
    /// Memory of a VM: `Group Memory`.
    Memory,
}

impl Object {
    /// As the batch file names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Object::Load => "Physical Cpu Load",
            Object::Pcpu => "Physical Cpu",
            Object::Group => "Group Cpu",
            Object::World => "Vcpu",
            Object::Memory => "Group Memory",
        }
    }

    /// Its counters, in order.
    pub fn metrics(self) -> impl Iterator<Item = Metric> {
        crate::COUNTERS.iter().filter(move |c| c.on.contains(&self)).map(|c| c.metric)
    }
}

/// Where a counter is seen on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    /// Lines above the CPU panel.
    CpuHead,
    /// A line for each group, `c`.
    Cpu,
    /// A line for each world, where a group is expanded by `e`.
    CpuWorlds,
    /// A line for each VM, `m`.
    Memory,
}

/// Fields that `f` switches on and off, under esxtop's letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// E: number of worlds.
    Nwld,
    /// F: %STATE TIMES.
    StateTimes,
    /// G: EVENTS/s.
    Events,
    /// H: CPU ALLOC.
    Alloc,
    /// I: SUMMARY.
    Summary,
    /// K: the lines above.
    Physical,
    /// G of the memory panel: NUMA STATS.
    Numa,
    /// H of the memory panel: SIZE.
    Size,
}

impl Field {
    /// The letter.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Field::Nwld => 'E',
            Field::StateTimes => 'F',
            Field::Events | Field::Numa => 'G',
            Field::Alloc | Field::Size => 'H',
            Field::Summary => 'I',
            Field::Physical => 'K',
        }
    }
}

/// How bad a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Nothing to do.
    Fine,
    /// Worth a look.
    Look,
    /// People notice.
    Bad,
}

/// From where on a number is worth a look, and from where on it is bad; beyond it, not at it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// Bad below this; of a whole, not of one vCPU.
    pub least: Option<f64>,
    /// Worth a look.
    pub look: Option<f64>,
    /// Bad.
    pub bad: Option<f64>,
}

impl Thresholds {
    /// How bad `value` is for an object of so many vCPUs: thresholds of percentages are for one
    /// vCPU, and a VM's row is a sum.
    #[must_use]
    pub fn level(&self, value: f64, vcpus: u32) -> Level {
        let each = value / f64::from(vcpus.max(1));
        if self.least.is_some_and(|least| value < least)
            || self.bad.is_some_and(|limit| each > limit)
        {
            Level::Bad
        } else if self.look.is_some_and(|limit| each > limit) {
            Level::Look
        } else {
            Level::Fine
        }
    }
}

/// The declaration of a counter.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Which.
    pub metric: Metric,
    /// esxtop's column or line on the screen.
    pub column: &'static str,
    /// Name in the batch file; `None` where ESXi's is not publicly known, and the counter is left
    /// out of that file.
    pub batch: Option<&'static str>,
    /// Key in a line of JSON.
    pub key: &'static str,
    /// Unit.
    pub unit: Unit,
    /// What it says.
    pub meaning: &'static str,
    /// What an admin does about it.
    pub advice: &'static str,
    /// Where admins begin to act.
    pub thresholds: Thresholds,
    /// What it is of.
    pub on: &'static [Object],
    /// Where it is seen.
    pub panels: &'static [Panel],
    /// What switches it on and off.
    pub field: Field,
}

/// The numbers of one object; what is not known, or makes no sense for it, is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Values([Option<f64>; Metric::COUNT]);

impl Default for Values {
    fn default() -> Self {
        Values([None; Metric::COUNT])
    }
}

impl Values {
    /// A number.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0[metric as usize]
    }

    /// Sets a number. What is no finite number is absent.
    pub fn set(&mut self, metric: Metric, value: Option<f64>) {
        self.0[metric as usize] = value.filter(|v| v.is_finite());
    }

    /// A number as the batch file has it: two decimals, and zero has no sign.
    #[must_use]
    pub fn text(&self, metric: Metric) -> Option<String> {
        let text = format!("{:.2}", self.get(metric)?);
        Some(if text == "-0.00" { "0.00".to_owned() } else { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_for_one_vcpu_and_are_passed_only_above() {
        let ready = Metric::Ready.counter().thresholds;
        let seen = [5.0, 5.1, 10.0, 10.1].map(|v| ready.level(v, 1));
        assert_eq!(seen, [Level::Fine, Level::Look, Level::Look, Level::Bad]);
        assert_eq!(
            [19.9, 20.1, 40.1].map(|v| ready.level(v, 4)),
            [Level::Fine, Level::Look, Level::Bad]
        );
        assert_eq!(ready.level(10.1, 0), Level::Bad, "a group without vCPUs counts as one");
        assert_eq!(
            [3.0, 3.1].map(|v| Metric::CoStop.counter().thresholds.level(v, 1)),
            [Level::Fine, Level::Bad]
        );
        assert_eq!(
            [0.0, 0.1].map(|v| Metric::MaxLimited.counter().thresholds.level(v, 1)),
            [Level::Fine, Level::Look]
        );
        assert_eq!(Metric::Used.counter().thresholds.level(1e9, 1), Level::Fine, "no thresholds");
        let local = Metric::LocalPercent.counter().thresholds;
        assert_eq!(
            [80.0, 79.9].map(|v| local.level(v, 8)),
            [Level::Fine, Level::Bad],
            "not divided by vCPUs"
        );
    }

    #[test]
    fn numbers_have_two_decimals_and_what_is_no_number_is_absent() {
        let mut v = Values::default();
        let mut shown = |value| {
            v.set(Metric::Run, value);
            v.text(Metric::Run)
        };
        assert_eq!(shown(Some(12.345)).as_deref(), Some("12.35"));
        assert_eq!(shown(Some(-0.001)).as_deref(), Some("0.00"));
        assert_eq!(shown(Some(-1.0)).as_deref(), Some("-1.00"));
        assert_eq!([None, Some(f64::NAN), Some(f64::INFINITY)].map(shown), [None, None, None]);
    }
}
