//! An event's kind as a row of numbers and texts in the order of the table of kinds, and back; it
//! knows no bytes and no time.

use crate::raw::KEPT;
use crate::{Event, Kick, Kind, Move, Place, Queue, Role, State, Waker, Why};
use units::{PcpuId, PcpuSet, VmId, WorldId, caps::PCPUS_MAX};

/// Fields of one event: numbers in order, texts in order. A missing number is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flat {
    pub(crate) code: u16,
    pub(crate) nums: Vec<u64>,
    pub(crate) texts: Vec<String>,
}

/// Number of an option: 0 for none, else one more.
fn some(v: Option<impl Into<u64>>) -> u64 {
    v.map_or(0, |v| v.into() + 1)
}

fn pcpu(v: Option<PcpuId>) -> u64 {
    some(v.map(|p| p.0))
}

/// The fields of a kind.
pub(crate) fn flatten(kind: &Kind) -> Flat {
    let (code, nums, texts): (u16, Vec<u64>, Vec<String>) = match kind {
        Kind::State { world, from, to, why, on } => (
            1,
            vec![
                world.0.into(),
                some(from.map(State::code)),
                to.code().into(),
                why.code().into(),
                pcpu(*on),
            ],
            vec![],
        ),
        Kind::Wake { world, by } => {
            let (how, waker) = match by {
                Waker::Unknown => (0, world.0),
                Waker::Interrupt => (1, world.0),
                Waker::World(w) => (2, w.0),
            };
            (2, vec![world.0.into(), how, waker.into()], vec![])
        }
        Kind::Queued { world, queue, key } => {
            let (p, limit) = match queue {
                Queue::Pcpu(p) => (Some(*p), None),
                Queue::Limit(l) => (None, Some(*l)),
            };
            (3, vec![world.0.into(), pcpu(p), some(limit), *key], vec![])
        }
        Kind::Unqueued { world } => (4, vec![world.0.into()], vec![]),
        Kind::Migrate { world, from, to, why } => {
            (5, vec![world.0.into(), pcpu(*from), pcpu(Some(*to)), why.code().into()], vec![])
        }
        Kind::Switch { from, to } => {
            (6, vec![some(from.map(|w| w.0)), some(to.map(|w| w.0))], vec![])
        }
        Kind::Idle { begins } => (7, vec![u64::from(*begins)], vec![]),
        Kind::Kept => (7, vec![KEPT], vec![]),
        Kind::Kick { target, how } => (8, vec![pcpu(Some(*target)), how.code().into()], vec![]),
        Kind::WaitOn { world, event, class } => {
            (9, vec![world.0.into(), *event], vec![class.clone()])
        }
        Kind::Vtime { world, stride, from, to, host, why } => {
            (10, vec![world.0.into(), *stride, *from, *to, *host], vec![why.clone()])
        }
        Kind::Account { vm, used_ns, entitled } => {
            (11, vec![vm.0.into(), *used_ns, *entitled], vec![])
        }
        Kind::World { world, vm, role, name } => {
            (12, vec![world.0.into(), vm.0.into(), role.code().into()], vec![name.clone()])
        }
        Kind::Vm { vm, name, pool } => (13, vec![vm.0.into()], vec![name.clone(), pool.clone()]),
        Kind::Host { pcpus } => (14, vec![u64::from(*pcpus)], vec![]),
        Kind::Pcpu { place: p } => {
            (15, [p.smt, p.core, p.llc, p.node].map(u64::from).to_vec(), vec![])
        }
        Kind::Affinity { world, allowed } => (16, vec![world.0.into()], vec![allowed.to_string()]),
        Kind::Lost { events } => (17, vec![some(*events)], vec![]),
        Kind::Mark { text } => (18, vec![], vec![text.clone()]),
        Kind::Guest { world, inside } => (19, vec![world.0.into(), u64::from(*inside)], vec![]),
        Kind::Home { world, domains } => (20, vec![world.0.into(), *domains], vec![]),
        Kind::Memory { vm, bytes, homes, places, migrations } => {
            let local = places.map_or(0, |at| at.0.saturating_add(1));
            let remote = places.map_or(0, |at| at.1);
            (21, vec![vm.0.into(), *bytes, *homes, local, remote, *migrations], vec![])
        }
        Kind::Offline => (22, vec![], vec![]),
    };
    Flat { code, nums, texts }
}

impl Flat {
    fn num(&self, i: usize) -> u64 {
        self.nums.get(i).copied().unwrap_or(0)
    }

    fn text(&self, i: usize) -> String {
        self.texts.get(i).cloned().unwrap_or_default()
    }

    fn world(&self, i: usize) -> Option<WorldId> {
        self.num(i).try_into().ok().map(WorldId)
    }

    fn vm(&self, i: usize) -> Option<VmId> {
        self.num(i).try_into().ok().map(VmId)
    }

    fn u16(&self, i: usize) -> Option<u16> {
        self.num(i).try_into().ok()
    }

    fn maybe_world(&self, i: usize) -> Option<Option<WorldId>> {
        self.num(i)
            .checked_sub(1)
            .map_or(Some(None), |w| u32::try_from(w).ok().map(|w| Some(WorldId(w))))
    }

    fn pcpu(&self, i: usize) -> Option<Option<PcpuId>> {
        self.num(i).checked_sub(1).map_or(Some(None), |p| pcpu_of(p).map(Some))
    }

    /// The kind that these fields tell; none if a number is outside what its field allows.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Some(match self.code {
            1 => {
                let from = self
                    .num(1)
                    .checked_sub(1)
                    .map_or(Some(None), |s| State::of_code(s).map(Some))?;
                let why = Why::of_code(self.num(3)).unwrap_or(Why::Unknown);
                Kind::State {
                    world: self.world(0)?,
                    from,
                    to: State::of_code(self.num(2))?,
                    why,
                    on: self.pcpu(4)?,
                }
            }
            2 => {
                let by = match self.num(1) {
                    1 => Waker::Interrupt,
                    2 => Waker::World(self.world(2)?),
                    _ => Waker::Unknown,
                };
                Kind::Wake { world: self.world(0)?, by }
            }
            3 => {
                let limit =
                    self.num(2).checked_sub(1).map(|l| u16::try_from(l).ok().map(Queue::Limit));
                let queue =
                    if let Some(limit) = limit { limit? } else { Queue::Pcpu(self.pcpu(1)??) };
                Kind::Queued { world: self.world(0)?, queue, key: self.num(3) }
            }
            4 => Kind::Unqueued { world: self.world(0)? },
            5 => {
                let why = Move::of_code(self.num(3)).unwrap_or(Move::Other);
                Kind::Migrate {
                    world: self.world(0)?,
                    from: self.pcpu(1)?,
                    to: self.pcpu(2)??,
                    why,
                }
            }
            6 => Kind::Switch { from: self.maybe_world(0)?, to: self.maybe_world(1)? },
            7 if self.num(0) == KEPT => Kind::Kept,
            7 => Kind::Idle { begins: self.num(0) != 0 },
            8 => Kind::Kick { target: self.pcpu(0)??, how: Kick::of_code(self.num(1))? },
            9 => Kind::WaitOn { world: self.world(0)?, event: self.num(1), class: self.text(0) },
            _ => return self.rarer_kind(),
        })
    }

    fn rarer_kind(&self) -> Option<Kind> {
        Some(match self.code {
            10 => {
                let [stride, from, to, host] = [1, 2, 3, 4].map(|i| self.num(i));
                Kind::Vtime { world: self.world(0)?, stride, from, to, host, why: self.text(0) }
            }
            11 => Kind::Account { vm: self.vm(0)?, used_ns: self.num(1), entitled: self.num(2) },
            12 => Kind::World {
                world: self.world(0)?,
                vm: self.vm(1)?,
                role: Role::of_code(self.num(2))?,
                name: self.text(0),
            },
            13 => Kind::Vm { vm: self.vm(0)?, name: self.text(0), pool: self.text(1) },
            14 => Kind::Host { pcpus: self.u16(0).filter(|n| usize::from(*n) <= PCPUS_MAX)? },
            15 => Kind::Pcpu {
                place: Place {
                    smt: self.u16(0)?,
                    core: self.u16(1)?,
                    llc: self.u16(2)?,
                    node: self.u16(3)?,
                },
            },
            16 => {
                let text = self.text(0);
                let allowed = if text.is_empty() { PcpuSet::empty() } else { text.parse().ok()? };
                Kind::Affinity { world: self.world(0)?, allowed: Box::new(allowed) }
            }
            17 => Kind::Lost {
                events: self.num(0).checked_sub(1).map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            },
            18 => Kind::Mark { text: self.text(0) },
            19 => Kind::Guest { world: self.world(0)?, inside: self.num(1) != 0 },
            20 => Kind::Home { world: self.world(0)?, domains: self.num(1) },
            21 => Kind::Memory {
                vm: self.vm(0)?,
                bytes: self.num(1),
                homes: self.num(2),
                places: self.num(3).checked_sub(1).map(|local| (local, self.num(4))),
                migrations: self.num(5),
            },
            22 => Kind::Offline,
            _ => return None,
        })
    }
}

/// A pCPU id, if a host may have it.
pub(crate) fn pcpu_of(id: u64) -> Option<PcpuId> {
    u16::try_from(id).ok().filter(|p| usize::from(*p) < PCPUS_MAX).map(PcpuId)
}

/// Whether every id of the event is one that this format can hold.
pub(crate) fn fits(event: &Event) -> bool {
    event.pcpu.is_none_or(|p| usize::from(p.0) < PCPUS_MAX)
        && flatten(&event.kind).kind().as_ref() == Some(&event.kind)
}
