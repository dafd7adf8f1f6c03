//! What the kernel allows a scheduler to do; a breach ends the run, as a kernel ejects the
//! scheduler.

use std::fmt;

/// A rule of the kernel's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A runnable world is running, or in exactly one queue.
    Custody,
    /// A call is made only from the callbacks that may make it.
    Context,
    /// A local queue holds only worlds that may run on its pCPU.
    Affinity,
    /// A pCPU that is named exists.
    UnknownPcpu,
    /// A queue that is named exists.
    UnknownQueue,
    /// A world that is named exists.
    UnknownWorld,
    /// A runnable world runs within 30 s.
    Watchdog,
    /// The scheduler's own assertions hold.
    Assertion,
    /// The scheduler's counts of a VM agree with the kernel's.
    Counts,
    /// A lock is kept by one pCPU at a time.
    Lock,
}

impl Rule {
    /// Name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rule::Custody => "custody",
            Rule::Context => "context",
            Rule::Affinity => "affinity",
            Rule::UnknownPcpu => "unknown-pcpu",
            Rule::UnknownQueue => "unknown-queue",
            Rule::UnknownWorld => "unknown-world",
            Rule::Watchdog => "watchdog",
            Rule::Assertion => "assertion",
            Rule::Counts => "counts",
            Rule::Lock => "lock",
        }
    }
}

/// A rule that was broken: by what, where and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The rule.
    pub rule: Rule,
    /// What was seen and what is allowed.
    pub what: String,
    /// The world concerned.
    pub world: Option<u32>,
    /// The pCPU concerned.
    pub pcpu: Option<u32>,
    /// When, in ns of virtual time.
    pub at_ns: u64,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world.map(|w| format!("world {w}"));
        let pcpu = self.pcpu.map(|p| format!("pCPU {p}"));
        let object: Vec<String> = [world, pcpu].into_iter().flatten().collect();
        let object = if object.is_empty() { "host".to_owned() } else { object.join(", ") };
        write!(f, "{object}: at {} ns: contract {}: {}", self.at_ns, self.rule.name(), self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_names_its_objects_time_and_rule() {
        let breach = Breach {
            rule: Rule::Affinity,
            what: "seen 1, allowed 2".to_owned(),
            world: Some(7),
            pcpu: Some(3),
            at_ns: 12,
        };
        assert_eq!(
            breach.to_string(),
            "world 7, pCPU 3: at 12 ns: contract affinity: seen 1, allowed 2"
        );
        let host = Breach { world: None, pcpu: None, ..breach };
        assert!(host.to_string().starts_with("host: at 12 ns"));
    }
}
