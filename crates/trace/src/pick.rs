//! Picks what concerns some VMs, worlds or pCPUs out of a trace, by name or number; it never
//! changes an event.

use crate::waits::Wait;
use crate::{Event, Kind, Names};
use std::collections::{BTreeMap, BTreeSet};
use units::{PcpuId, PcpuSet, VmId, WorldId};

/// Most names that an error lists.
const LISTED: usize = 12;

/// A selection of worlds and pCPUs; an empty one is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// VMs by name or number.
    pub vms: Vec<String>,
    /// Worlds by number, by name, or as `VM/name`.
    pub worlds: Vec<String>,
    /// pCPUs.
    pub pcpus: Option<PcpuSet>,
}

/// A name that is not in the trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("trace: cannot find {what} '{seen}': allowed {allowed}; give one of them")]
pub struct PickError {
    /// `VM`, `world` or `pCPU`.
    pub what: &'static str,
    /// What was asked for.
    pub seen: String,
    /// What there is.
    pub allowed: String,
}

/// What was asked for, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    vms: Option<BTreeSet<VmId>>,
    worlds: Option<BTreeSet<WorldId>>,
    pcpus: Option<PcpuSet>,
}

impl Pick {
    /// The numbers behind the names of a trace.
    ///
    /// # Errors
    /// `PickError` for what the trace does not have.
    pub fn of(&self, events: &[Event]) -> Result<Chosen, PickError> {
        let host = Known::of(events);
        if let Some(p) =
            self.pcpus.iter().flat_map(PcpuSet::iter).find(|p| !host.pcpus.contains(*p))
        {
            let allowed = match &host.pcpus {
                none if none.is_empty() => "none, the trace names no pCPU".to_owned(),
                all => all.to_string(),
            };
            return Err(PickError { what: "pCPU", seen: p.0.to_string(), allowed });
        }
        if self.vms.is_empty() && self.worlds.is_empty() {
            return Ok(Chosen { vms: None, worlds: None, pcpus: self.pcpus.clone() });
        }
        let mut vms = BTreeSet::new();
        for name in &self.vms {
            vms.extend(host.vms(name)?);
        }
        let mut worlds: BTreeSet<WorldId> = host
            .worlds
            .iter()
            .filter(|w| w.1.0.is_some_and(|vm| vms.contains(&vm)))
            .map(|w| *w.0)
            .collect();
        for name in &self.worlds {
            worlds.extend(host.worlds(name)?);
        }
        Ok(Chosen { vms: Some(vms), worlds: Some(worlds), pcpus: self.pcpus.clone() })
    }
}

impl Chosen {
    /// Whether a column of this pCPU is wanted.
    #[must_use]
    pub fn pcpu(&self, p: PcpuId) -> bool {
        self.pcpus.as_ref().is_none_or(|set| set.contains(p))
    }

    /// Whether an event concerns a VM or world that is wanted.
    #[must_use]
    pub fn who(&self, event: &Event) -> bool {
        let (Some(worlds), Some(vms)) = (&self.worlds, &self.vms) else { return true };
        match &event.kind {
            Kind::Switch { from, to } => {
                [from, to].into_iter().flatten().any(|w| worlds.contains(w))
            }
            Kind::Vm { vm, .. } | Kind::Account { vm, .. } | Kind::Memory { vm, .. } => {
                vms.contains(vm)
            }
            Kind::Lost { .. } | Kind::Mark { .. } => true,
            kind => kind.world().is_some_and(|w| worlds.contains(&w)),
        }
    }

    /// Whether an event concerns a selected world, and a selected pCPU.
    #[must_use]
    pub fn event(&self, event: &Event) -> bool {
        let on = match &event.kind {
            Kind::State { on, .. } => on.or(event.pcpu),
            Kind::Queued { queue: crate::Queue::Pcpu(p), .. } => Some(*p),
            Kind::Migrate { to, .. } => Some(*to),
            Kind::Kick { target, .. } => Some(*target),
            _ => event.pcpu,
        };
        let lasts = matches!(event.kind, Kind::Lost { .. } | Kind::Mark { .. });
        self.who(event) && (self.pcpus.is_none() || lasts || on.is_some_and(|p| self.pcpu(p)))
    }

    /// Whether a wait is of a selected world, and was spent on a selected pCPU or ended there.
    #[must_use]
    pub fn wait(&self, wait: &Wait) -> bool {
        let who = self.worlds.as_ref().is_none_or(|worlds| worlds.contains(&wait.world));
        who && (self.pcpus.is_none()
            || [wait.queued_on, wait.ran_on].into_iter().flatten().any(|p| self.pcpu(p)))
    }
}

/// The worlds and pCPUs of a trace.
struct Known {
    names: Names,
    /// All of its host up to the last that is named.
    pcpus: PcpuSet,
    vms: BTreeSet<VmId>,
    worlds: BTreeMap<WorldId, (Option<VmId>, String)>,
}

impl Known {
    fn of(events: &[Event]) -> Known {
        let mut known = Known {
            names: Names::default(),
            pcpus: PcpuSet::empty(),
            vms: BTreeSet::new(),
            worlds: BTreeMap::new(),
        };
        let mut pcpus = 0;
        for event in events {
            pcpus = pcpus.max(pcpus_by(event));
            known.names.take(event);
            match &event.kind {
                Kind::Vm { vm, .. } | Kind::Account { vm, .. } | Kind::Memory { vm, .. } => {
                    known.vms.insert(*vm);
                }
                Kind::World { world, vm, name, .. } => {
                    known.vms.insert(*vm);
                    known.worlds.insert(*world, (Some(*vm), name.clone()));
                }
                kind => {
                    if let Some(w) = kind.world() {
                        known.worlds.entry(w).or_insert((None, String::new()));
                    }
                }
            }
        }
        known.pcpus = PcpuSet::first(pcpus);
        known
    }

    fn vms(&self, name: &str) -> Result<Vec<VmId>, PickError> {
        let named: Vec<VmId> =
            self.vms.iter().copied().filter(|vm| self.names.vm(*vm) == name).collect();
        let number = name.parse().ok().map(VmId).filter(|vm| self.vms.contains(vm));
        let found: Vec<VmId> = if named.is_empty() { number.into_iter().collect() } else { named };
        let all = self.vms.iter().map(|vm| self.names.vm(*vm));
        if found.is_empty() { Err(missing("VM", name, all)) } else { Ok(found) }
    }

    fn worlds(&self, name: &str) -> Result<Vec<WorldId>, PickError> {
        let full =
            |w: &(Option<VmId>, String)| w.0.map(|vm| format!("{}/{}", self.names.vm(vm), w.1));
        let is = |w: &(&WorldId, &(Option<VmId>, String))| {
            (!w.1.1.is_empty() && w.1.1 == name) || full(w.1).is_some_and(|f| f == name)
        };
        let named: Vec<WorldId> = self.worlds.iter().filter(is).map(|w| *w.0).collect();
        let number = name.parse().ok().map(WorldId).filter(|w| self.worlds.contains_key(w));
        let found: Vec<WorldId> =
            if named.is_empty() { number.into_iter().collect() } else { named };
        let all = self.worlds.iter().map(|(id, w)| full(w).unwrap_or_else(|| id.0.to_string()));
        if found.is_empty() { Err(missing("world", name, all)) } else { Ok(found) }
    }
}

/// How many pCPUs a host has at least of which that is reported.
fn pcpus_by(event: &Event) -> usize {
    let on = match event.kind {
        Kind::Host { pcpus } => return usize::from(pcpus),
        Kind::State { on, .. } => on,
        Kind::Queued { queue: crate::Queue::Pcpu(p), .. } => Some(p),
        Kind::Migrate { from, to, .. } => from.max(Some(to)),
        Kind::Kick { target, .. } => Some(target),
        _ => None,
    };
    event.pcpu.max(on).map_or(0, |p| usize::from(p.0) + 1)
}

fn missing(what: &'static str, seen: &str, all: impl Iterator<Item = String>) -> PickError {
    let all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(LISTED);
    let mut allowed =
        all.iter().take(LISTED).map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ");
    if all.is_empty() {
        "none, the trace names no one".clone_into(&mut allowed);
    } else if more > 0 {
        allowed.push_str(&format!(" and {more} more"));
    }
    PickError { what, seen: seen.to_owned(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::{WaitOptions, analyse_some};
    use crate::{Role, State, Why};

    fn events() -> Vec<Event> {
        let at = |ns, kind| Event { ns, pcpu: None, kind };
        let mut out = vec![];
        for (vm, name) in [(0, "system"), (1, "web"), (2, "db")] {
            out.push(at(0, Kind::Vm { vm: VmId(vm), name: name.to_owned(), pool: "/".to_owned() }));
        }
        for (world, vm, name) in
            [(1, 1, "vcpu0"), (2, 1, "vcpu1"), (3, 2, "vcpu0"), (4, 0, "backup")]
        {
            out.push(at(
                0,
                Kind::World {
                    world: WorldId(world),
                    vm: VmId(vm),
                    role: Role::Vcpu,
                    name: name.to_owned(),
                },
            ));
        }
        for (ns, world, to, on) in [
            (5, 1, State::Ready, 0),
            (6, 3, State::Ready, 1),
            (9, 1, State::Run, 0),
            (12, 3, State::Run, 1),
            (13, 9, State::Ready, 1),
        ] {
            let kind = Kind::State {
                world: WorldId(world),
                from: None,
                to,
                why: Why::Unknown,
                on: Some(PcpuId(on)),
            };
            out.push(Event { ns, pcpu: Some(PcpuId(on)), kind });
        }
        out
    }

    fn states(pick: &Pick) -> Vec<u64> {
        let all = events();
        let chosen = pick.of(&all).unwrap();
        all.iter().filter(|e| !e.kind.is_name() && chosen.event(e)).map(|e| e.ns).collect()
    }

    fn pick(vms: &[&str], worlds: &[&str], pcpus: Option<&str>) -> Pick {
        let own = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect();
        Pick { vms: own(vms), worlds: own(worlds), pcpus: pcpus.map(|p| p.parse().unwrap()) }
    }

    #[test]
    fn vms_and_worlds_are_found_by_name_and_by_number() {
        assert_eq!(states(&pick(&[], &[], None)), [5, 6, 9, 12, 13]);
        assert_eq!(states(&pick(&["web"], &[], None)), [5, 9]);
        assert_eq!(states(&pick(&["2"], &[], None)), [6, 12]);
        assert_eq!(states(&pick(&[], &["vcpu0"], None)), [5, 6, 9, 12]);
        assert_eq!(states(&pick(&["web"], &["db/vcpu0", "9"], None)), [5, 6, 9, 12, 13]);
        assert_eq!(states(&pick(&[], &[], Some("1"))), [6, 12, 13]);
        assert_eq!(states(&pick(&["web"], &[], Some("1"))), [0; 0]);
    }

    #[test]
    fn what_the_trace_does_not_have_is_refused_with_what_it_has() {
        let error = pick(&["mail"], &[], None).of(&events()).unwrap_err().to_string();
        assert_eq!(
            error,
            "trace: cannot find VM 'mail': allowed 'system', 'web', 'db'; give one of them"
        );
        let error = pick(&[], &["web/vcpu7"], None).of(&events()).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "trace: cannot find world 'web/vcpu7': allowed 'web/vcpu0', \
                'web/vcpu1', 'db/vcpu0', 'system/backup', '9';"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_pcpu_that_the_host_lacks_is_refused_and_one_that_did_nothing_is_not() {
        let refused = |p, events: &[Event]| {
            pick(&[], &[], Some(p)).of(events).map(drop).map_err(|e| e.to_string())
        };
        let mut all = events();
        let want = "trace: cannot find pCPU '99': allowed 0-1; give one of them".to_owned();
        assert_eq!(refused("0,99", &all), Err(want));
        assert!(refused("3", &all).is_err());
        all.push(Event { ns: 0, pcpu: None, kind: Kind::Host { pcpus: 4 } });
        assert_eq!(refused("3", &all), Ok(()));
        let none = "trace: cannot find pCPU '0': allowed none, the trace names no pCPU; give one \
            of them";
        assert_eq!(refused("0", &[]), Err(none.to_owned()));
    }

    #[test]
    fn waits_are_judged_by_everything_and_then_picked() {
        let all = events();
        let of = |p: &Pick| {
            let chosen = p.of(&all).unwrap();
            let report = analyse_some(&all, &WaitOptions::default(), |w| chosen.wait(w));
            (
                report.waits.iter().map(|w| w.ns).collect::<Vec<_>>(),
                report.all.waits,
                report.vms.len(),
            )
        };
        assert_eq!(of(&pick(&["db"], &[], None)), (vec![6], 1, 1));
        assert_eq!(of(&pick(&[], &[], Some("0"))), (vec![4], 1, 1));
        assert_eq!(of(&pick(&[], &[], None)), (vec![6, 4, 0], 2, 3));
    }
}
