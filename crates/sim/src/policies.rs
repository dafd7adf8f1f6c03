//! Which schedulers there are by name, and what each can be asked for; the only file here that
//! names one.

use crate::error::SimError;
use crate::faults::Faulty;
use crate::mutant::Mutant;
use contract::{Feature, Scheduler};
use peers::Peer;
use sched_core::Knobs;
use settings::{LimitSetting, Run, VmSpec};
use std::{collections::BTreeMap, fmt, str::FromStr};
use units::PcpuSet;

/// The scheduler of a run, and the fault that is put between it and the kernel, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Tandem itself.
    #[default]
    Tandem,
    /// Tandem with a fault, for the checkers to catch.
    Mutant(Mutant),
    /// A policy to compare with, possibly with a fault.
    Peer(Peer, Option<Mutant>),
}

/// A name that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy: cannot use '{seen}': allowed tandem, {}, {}; after a policy and '+' a fault too",
    Peer::ALL.map(Peer::name).join(", "),
    Mutant::ALL.map(|m| format!("mutant:{}", m.name())).join(", "))]
pub struct PolicyError {
    /// What was given.
    pub seen: String,
}

/// The fault that `mutant:NAME` names.
fn mutant(text: &str) -> Option<Mutant> {
    let name = text.strip_prefix("mutant:")?;
    Mutant::ALL.into_iter().find(|m| m.name() == name)
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let refused = || PolicyError { seen: text.to_owned() };
        if let Some(mutant) = mutant(text) {
            return Ok(Policy::Mutant(mutant));
        }
        let (name, fault) = match text.split_once('+') {
            None => (text, None),
            Some((name, fault)) => (name, Some(mutant(fault).ok_or_else(refused)?)),
        };
        match (Peer::ALL.into_iter().find(|p| p.name() == name), fault) {
            (Some(peer), _) => Ok(Policy::Peer(peer, fault)),
            (None, None) if name == "tandem" => Ok(Policy::Tandem),
            (None, Some(fault)) if name == "tandem" => Ok(Policy::Mutant(fault)),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Tandem => f.write_str("tandem"),
            Policy::Mutant(m) => write!(f, "mutant:{}", m.name()),
            Policy::Peer(peer, None) => f.write_str(peer.name()),
            Policy::Peer(peer, Some(m)) => write!(f, "{}+mutant:{}", peer.name(), m.name()),
        }
    }
}

impl Policy {
    /// Whether it is Tandem, with or without a fault: a policy that what the oracle promises and a
    /// scenario expects is said of.
    #[must_use]
    pub fn is_tandem(self) -> bool {
        !matches!(self, Policy::Peer(..))
    }

    /// Names of the scenario's knobs that it does without: they are Tandem's own.
    #[must_use]
    pub fn unused_knobs(self, run: &Run) -> Vec<&str> {
        let names = run.spec.knobs.keys().filter(|_| !self.is_tandem());
        names.map(String::as_str).collect()
    }
}

impl Policy {
    /// The fault, if there is one.
    pub(crate) fn mutant(self) -> Option<Mutant> {
        match self {
            Policy::Mutant(mutant) | Policy::Peer(_, Some(mutant)) => Some(mutant),
            Policy::Tandem | Policy::Peer(_, None) => None,
        }
    }
}

/// What Tandem goes by: its knobs, but for a fault that is a wrong one. The oracle goes by those of
/// the run.
pub(crate) fn knobs_of(policy: Policy, knobs: Knobs) -> Knobs {
    match policy {
        Policy::Mutant(Mutant::PartnerFree) => Knobs { shared_charge: 1000, ..knobs },
        Policy::Mutant(Mutant::RefillFree) => Knobs { spread_us: 0, migrate_margin_us: 0, ..knobs },
        Policy::Mutant(Mutant::CoreShared) => Knobs { core_sharing: 0, ..knobs },
        Policy::Mutant(Mutant::NeverWhole) => Knobs { whole_core_us: 100_000_000, ..knobs },
        _ => knobs,
    }
}

/// A policy with a fault, on so many pCPUs.
pub(crate) fn faulty(
    policy: Box<dyn Scheduler>,
    mutant: Mutant,
    pcpus: usize,
) -> Box<dyn Scheduler> {
    Box::new(Faulty::new(policy, mutant, pcpus))
}

/// Refuses a run that asks for what the policy cannot do, naming all of it.
pub(crate) fn refuse(
    run: &Run,
    policy: Policy,
    knobs: &BTreeMap<String, u64>,
    features: &[Feature],
) -> Result<(), SimError> {
    let mut missing = vec![];
    for (feature, by) in asked(run, knobs) {
        if !features.contains(&feature) {
            missing.push(format!("{} ({by})", feature.name()));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let (label, policy) = (run.label.clone(), policy.to_string());
    Err(SimError::Unsupported { label, policy, missing })
}

/// What a run asks for, each with what asks for it; `knobs` are those that are given beside it.
fn asked(run: &Run, knobs: &BTreeMap<String, u64>) -> Vec<(Feature, String)> {
    let spec = &run.spec;
    let mut out = vec![];
    let mut ask = |feature, by: String| out.push((feature, by));
    for pool in &spec.pools {
        ask(Feature::Pools, format!("pool '{}'", pool.name));
    }
    let shares = |vm: &VmSpec| vm.shares.resolve(vm.vcpus).map_or(0, |s| s.get());
    let first = spec.vms.first().map_or((0, 1), |vm| (shares(vm), vm.vcpus));
    for vm in &spec.vms {
        let by = || format!("VM '{}'", vm.name);
        let of = |shares, vcpus| u64::from(shares) * u64::from(vcpus);
        if of(shares(vm), first.1) != of(first.0, vm.vcpus) {
            ask(Feature::Shares, by());
        }
        if vm.reservation.is_some() {
            ask(Feature::Reservations, by());
        }
        if vm.limit.is_some() {
            ask(Feature::Limits, by());
        }
        if vm.burst.is_some() {
            ask(Feature::Bursts, by());
        }
        let all = || PcpuSet::first(run.topology.pcpus());
        let sets = (0..vm.vcpus as usize).map(|i| vm.allowed(i).unwrap_or_else(all));
        let pcpus = sets.reduce(|a, b| a.or(&b)).map_or(0, |set| set.len());
        if vm.vcpus as usize > pcpus {
            ask(Feature::WideVms, by());
        }
    }
    for change in &spec.changes {
        let parts = [
            (Feature::Shares, change.shares.is_some()),
            (Feature::Reservations, change.reservation.is_some()),
            (Feature::Limits, matches!(change.limit, Some(LimitSetting::Amount(_)))),
            (Feature::Bursts, change.burst.is_some()),
        ];
        for (feature, _) in parts.into_iter().filter(|(_, asks)| *asks) {
            ask(feature, format!("change at {}", change.at));
        }
    }
    for off in &spec.offline {
        ask(Feature::Hotplug, format!("pCPUs {} from {}", off.pcpus, off.from));
    }
    for task in spec.host_tasks.iter().filter(|task| task.nice != 0) {
        ask(Feature::Nice, format!("host task '{}'", task.name));
    }
    if spec.numa().is_some_and(|n| n.on) {
        ask(Feature::Homes, "[numa]; with numa.on = false memory is interleaved".to_owned());
    }
    for name in knobs.keys() {
        ask(Feature::Knobs, format!("'{name}'"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_back_as_written_and_others_refused() {
        let mut all = vec![Policy::Tandem];
        all.extend(Mutant::ALL.map(Policy::Mutant));
        for peer in Peer::ALL {
            all.push(Policy::Peer(peer, None));
            all.push(Policy::Peer(peer, Some(Mutant::LostEnqueue)));
        }
        for policy in all {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("tandem+mutant:fifo".parse(), Ok(Policy::Mutant(Mutant::Fifo)));
        for seen in ["mutant:none", "fifo+none", "credit", "fifo+", "+mutant:fifo"] {
            let text = seen.parse::<Policy>().unwrap_err().to_string();
            let want = format!(
                "cannot use '{seen}': allowed tandem, fifo, vtime, cfs, eevdf, esx-2.5.2, esx-2.5.3, \
                    esx-3.5, esx-4.0, esx-4.1, esx-4.1-tuned, esx-5.1, load-only, \
                    xen-credit, xen-credit2, xen-credit2-all, mutant:lost-kick"
            );
            assert!(text.contains(&want), "{text}");
        }
    }
}
