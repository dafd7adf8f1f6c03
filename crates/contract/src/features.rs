//! What a scenario may ask of a scheduler, by name, so that one that cannot do it is not run with
//! it. It reads no scenario.

/// A thing that a scenario may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// VMs with different shares per vCPU.
    Shares,
    /// VMs in resource pools.
    Pools,
    /// Guaranteed CPU time.
    Reservations,
    /// CPU time that is never exceeded.
    Limits,
    /// CPU time saved up while a limit is not used.
    Bursts,
    /// Tandem's knobs, co-scheduling among them.
    Knobs,
    /// Decisions with their reasons in a trace; of a policy without, a trace has what the simulator
    /// sees.
    Traces,
    /// pCPUs that come on line and go off line.
    Hotplug,
    /// NUMA home nodes.
    Homes,
    /// Host tasks of other nice values than 0.
    Nice,
    /// VMs with more vCPUs than pCPUs that they may use.
    WideVms,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 11] = [
        Feature::Shares,
        Feature::Pools,
        Feature::Reservations,
        Feature::Limits,
        Feature::Bursts,
        Feature::Knobs,
        Feature::Traces,
        Feature::Hotplug,
        Feature::Homes,
        Feature::Nice,
        Feature::WideVms,
    ];

    /// Name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Feature::Shares => "shares",
            Feature::Pools => "pools",
            Feature::Reservations => "reservations",
            Feature::Limits => "limits",
            Feature::Bursts => "bursts",
            Feature::Knobs => "knobs",
            Feature::Traces => "traces",
            Feature::Hotplug => "pCPUs that go off line",
            Feature::Homes => "NUMA home nodes",
            Feature::Nice => "nice values",
            Feature::WideVms => "VMs with more vCPUs than pCPUs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_names_of_their_own() {
        let mut names = Feature::ALL.map(Feature::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Feature::ALL.len());
    }
}
