//! Thresholds, by the names of ESXi's advanced settings.

use settings::NumaSpec;

/// The thresholds of the planner; defaults are those of the settings, which are ESXi's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Time between two rounds, in ms (`Numa.RebalancePeriod`).
    pub period_ms: u64,
    /// By how many percent of their cores the loads of two nodes must differ before a client moves
    /// for it (`Numa.MigImbalanceThreshold`).
    pub imbalance_percent: u64,
    /// How many percent a change must improve at least (`Numa.MigThreshold`).
    pub improvement_percent: u64,
    /// How much of an imbalance a change may leave, in percent of it: more is thrashing
    /// (`Numa.MigThrashThreshold`).
    pub thrash_percent: u64,
    /// Rounds between two looks at long-term fairness; 0: none
    /// (`Numa.LTermFairnessInterval`).
    pub fairness_periods: u64,
    /// By how many percent of its entitlement a client must have got too little for such a change
    /// (`Numa.LTermMigImbalThreshold`).
    pub unfair_percent: u64,
    /// What the whole communication of a client is worth, in percent; 0: none
    /// (`Numa.LocalityWeightActionAffinity`).
    pub action_affinity: u64,
    /// What one percent of its memory is worth, in percent (`Numa.LocalityWeightMem`); 0: a client
    /// does not go back to its memory.
    pub locality_weight: u64,
    /// What may be wanted of a node, in percent of its cores, for clients to come for their memory
    /// or for another client (`Numa.CoreCapRatioPct`).
    pub core_cap_percent: u64,
    /// Rounds for which no move has narrowed an imbalance before clients change places for it
    /// (`Numa.SwapInterval`); 0: they do not.
    pub swap_periods: u64,
    /// What a VM that waits must gain without a home by idle cores of other nodes, in percent of
    /// its node's cores; 0: all have homes.
    pub roam_percent: u64,
    /// Most memory that all clients together move in a second, in bytes
    /// (`Numa.PageMigRateMax`, in pages of 4 KiB).
    pub memory_rate: u64,
}

impl Knobs {
    /// What is wanted of a contended node, or the load of one that asks for a change, in permille
    /// of its cores: all of them, and what a change must improve.
    #[must_use]
    pub fn contended_permille(&self) -> u64 {
        1000 + 10 * self.improvement_percent
    }
}

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs::from(&NumaSpec::default())
    }
}

impl From<&NumaSpec> for Knobs {
    fn from(spec: &NumaSpec) -> Knobs {
        Knobs {
            period_ms: spec.period.ns() / 1_000_000,
            imbalance_percent: spec.imbalance_percent,
            improvement_percent: spec.improvement_percent,
            thrash_percent: spec.thrash_percent,
            fairness_periods: spec.fairness_periods,
            unfair_percent: spec.unfair_percent,
            action_affinity: spec.action_affinity,
            locality_weight: spec.locality_weight,
            core_cap_percent: spec.core_cap_percent,
            swap_periods: spec.swap_periods,
            roam_percent: spec.roam_percent,
            memory_rate: spec.memory_rate.0,
        }
    }
}
