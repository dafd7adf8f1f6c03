//! Where worlds have their homes, as a trace says it: pCPUs that each may use, by its affinity and
//! its home. It judges nothing.

use crate::{Event, HOME_ANY, Kind, Names, Place, State};
use std::collections::BTreeMap;
use units::{PcpuId, PcpuSet, WorldId};

/// Domains of a word.
const DOMAINS_MAX: u16 = 64;

/// Homes so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    /// Domains of each world that has a home, and since when.
    of: BTreeMap<WorldId, (u64, u64)>,
    places: BTreeMap<PcpuId, Place>,
}

impl Homes {
    /// Takes an event, and keeps what it says of homes.
    pub(crate) fn take(&mut self, event: &Event) {
        match (&event.kind, event.pcpu) {
            (Kind::Home { world, domains }, _) => {
                self.of.insert(*world, (*domains, event.ns));
            }
            (Kind::Pcpu { place }, Some(p)) => {
                self.places.insert(p, *place);
            }
            // Another may get its number.
            (Kind::State { world, to: State::None, .. }, _) => {
                self.of.remove(world);
            }
            _ => {}
        }
    }

    /// pCPUs that a world may use, and since when its home is as it is, in ns; none: all.
    pub(crate) fn allowed(&self, names: &Names, world: WorldId) -> (Option<PcpuSet>, u64) {
        let allowed = names.allowed(world).cloned();
        let Some((domains, since)) = self.of.get(&world).copied() else { return (allowed, 0) };
        if domains == HOME_ANY || self.places.is_empty() {
            return (allowed, since);
        }
        let mut node_of = BTreeMap::new();
        let mut all = self.places.values();
        let by_llc =
            all.all(|p| p.llc < DOMAINS_MAX && *node_of.entry(p.llc).or_insert(p.node) == p.node);
        let is = |p: &Place| domains >> (if by_llc { p.llc } else { p.node } & 63) & 1 != 0;
        let home: PcpuSet = self.places.iter().filter(|(_, p)| is(p)).map(|(id, _)| *id).collect();
        (Some(allowed.map_or(home.clone(), |a| a.and(&home))), since)
    }
}
