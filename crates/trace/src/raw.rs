//! The 32 bytes of an event in a ring, the layout that kernel and simulator share; it knows no
//! ring.
//!
//! Little endian, no padding: `{ u64 ns; u32 world; u16 kind; u16 pcpu; u64 a; u64 b; }`. `pcpu` is
//! 0xffff where there is none. Numbers of kinds, states and reasons are those of the file's table
//! of kinds; `sched/abi/trace.h` is to be made from this.
//!
//! | kind | world | a | b |
//! |---|---|---|---|
//! | 1 state | the world | from (0xff: unknown) \| to << 8 \| why << 16 \| also << 24 \| pCPU it is
//! on << 32 (0xffff: none) | 0, or by also |
//! | also & 1 | | it was woken | the waker, if a world \| unknown, interrupt, world << 32 \| pCPU
//! of the waker << 48 |
//! | also & 2 | | it runs on another pCPU than before | from \| why << 16 |
//! | also & 4 | | it was taken out of its queue | |
//! | 2 wake | the woken | 0 unknown, 1 an interrupt, 2 a world | the waker, if a world |
//! | 3 queued | the world | deadline | pCPU, or limit \| 1 << 32; with a kick: from << 16 \|
//! how + 1 << 40 \| the pCPU kicked << 48 |
//! | 4 unqueued | the world | 0 | 0 |
//! | 5 migrate | the world | from (0xffff: unknown) \| to << 16 \| why << 32 | 0 |
//! | 6 switch | 0 | world that ran, with 1 << 32 if one did | world that runs, likewise |
//! | 7 idle | 0 | 1 begins, 0 ends | 0 |
//! | 8 kick | 0 | the pCPU kicked \| how << 16 | 0 |
//! | 11 account | the VM | used ns | entitled, 2^-20 pCPU |
//! | 14 host | 0 | pCPUs | 0 |
//! | 15 pcpu | 0 | smt \| core << 16 \| llc << 32 \| node << 48 | 0 |
//! | 17 lost | 0 | how many, with 1 << 32 if that is known | 0 |
//! | 18 mark | length of the text | its first 8 bytes | the other 8 |
//! | 19 guest | the vCPU | 1 it enters its guest, 0 leaves it | 0 |
//! | 20 home | the world | a bit for each domain, or all | 0 |
//!
//! A record of the scheduler may tell of several events (`expand`); an event made here never does.
//! The kinds that need more room (names, wait-on, vtime, affinity) are made by user space and have
//! no raw form.

use crate::flat::{fits, pcpu_of};
use crate::{Event, Kick, Kind, Move, Place, Queue, State, Waker, Why};
use units::{PcpuId, VmId, WorldId};

/// Length of a raw record in bytes.
pub const RAW_BYTES: usize = 32;

/// Bytes that are no raw record, or an event that has no raw form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RawError {
    /// No kind has this number, or none with a raw form.
    #[error(
        "raw record: cannot read: seen kind {seen}, allowed 1..8, 11, 14, 15 and 17..20; build \
            kernel side and reader from one tree"
    )]
    Kind {
        /// The number.
        seen: u16,
    },
    /// A number outside what its field allows.
    #[error(
        "raw record: cannot read kind {kind}: seen a = {a:#x}, b = {b:#x}, allowed what raw.rs \
            lists; build kernel side and reader from one tree"
    )]
    Value {
        /// Number of the kind.
        kind: u16,
        /// The first argument.
        a: u64,
        /// The second argument.
        b: u64,
    },
    /// The event does not fit.
    #[error(
        "raw record: cannot hold a {kind} event: seen names or text, allowed numbers and texts of \
            16 bytes; write it to the file instead"
    )]
    TooLong {
        /// Name of the kind.
        kind: &'static str,
    },
}

/// Of an idle event: the pCPU idles so that a world has the core alone.
pub(crate) const KEPT: u64 = 3;
const NONE: u64 = 0xffff;
const KNOWN: u64 = 1 << 32;
const ALSO_WOKEN: u64 = 1;
const ALSO_MOVED: u64 = 2;
const ALSO_LEFT: u64 = 4;

fn id(p: Option<PcpuId>) -> u64 {
    p.map_or(NONE, |p| p.0.into())
}

fn known(v: Option<u32>) -> u64 {
    v.map_or(0, |v| u64::from(v) | KNOWN)
}

/// The raw record of an event.
///
/// # Errors
/// `RawError::TooLong` if it has none.
pub fn to_raw(event: &Event) -> Result<[u8; RAW_BYTES], RawError> {
    let flat = crate::flat::flatten(&event.kind);
    let too_long =
        || RawError::TooLong { kind: crate::kinds::spec(flat.code).map_or("", |s| s.name) };
    let world = event.kind.world().map_or(0, |w| w.0);
    let (world, a, b) = match &event.kind {
        Kind::State { from, to, why, on, .. } => {
            let from = from.map_or(0xff, |s| u64::from(s.code()));
            (
                world,
                from | u64::from(to.code()) << 8 | u64::from(why.code()) << 16 | id(*on) << 32,
                0,
            )
        }
        Kind::Wake { by, .. } => match by {
            Waker::Unknown => (world, 0, 0),
            Waker::Interrupt => (world, 1, 0),
            Waker::World(w) => (world, 2, w.0.into()),
        },
        Kind::Queued { queue: Queue::Pcpu(p), key, .. } => (world, *key, p.0.into()),
        Kind::Queued { queue: Queue::Limit(l), key, .. } => (world, *key, u64::from(*l) | KNOWN),
        Kind::Unqueued { .. } => (world, 0, 0),
        Kind::Migrate { from, to, why, .. } => {
            (world, id(*from) | u64::from(to.0) << 16 | u64::from(why.code()) << 32, 0)
        }
        Kind::Switch { from, to } => (0, known(from.map(|w| w.0)), known(to.map(|w| w.0))),
        Kind::Idle { begins } => (0, u64::from(*begins), 0),
        Kind::Kept => (0, KEPT, 0),
        Kind::Kick { target, how } => (0, u64::from(target.0) | u64::from(how.code()) << 16, 0),
        Kind::Account { vm, used_ns, entitled } => (vm.0.into(), *used_ns, *entitled),
        Kind::Host { pcpus } => (0, u64::from(*pcpus), 0),
        Kind::Pcpu { place: p } => (
            0,
            u64::from(p.smt)
                | u64::from(p.core) << 16
                | u64::from(p.llc) << 32
                | u64::from(p.node) << 48,
            0,
        ),
        Kind::Lost { events } => (0, known(*events), 0),
        Kind::Guest { inside, .. } => (world, u64::from(*inside), 0),
        Kind::Home { domains, .. } => (world, *domains, 0),
        Kind::Mark { text } if text.len() <= 16 => {
            let mut bytes = [0; 16];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            (text.len() as u32, word(&bytes, 0), word(&bytes, 8))
        }
        _ => return Err(too_long()),
    };
    let mut out = [0; RAW_BYTES];
    out[..8].copy_from_slice(&event.ns.to_le_bytes());
    out[8..12].copy_from_slice(&world.to_le_bytes());
    out[12..14].copy_from_slice(&flat.code.to_le_bytes());
    out[14..16].copy_from_slice(&(id(event.pcpu) as u16).to_le_bytes());
    out[16..24].copy_from_slice(&a.to_le_bytes());
    out[24..].copy_from_slice(&b.to_le_bytes());
    Ok(out)
}

fn word(data: &[u8], at: usize) -> u64 {
    data[at..at + 8].iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// The event of a raw record. Reasons that this version does not know become unknown.
///
/// # Errors
/// `RawError` if a number is outside what its field allows.
pub fn from_raw(raw: &[u8; RAW_BYTES]) -> Result<Event, RawError> {
    let kind = u16::from_le_bytes([raw[12], raw[13]]);
    let world = u32::from_le_bytes([raw[8], raw[9], raw[10], raw[11]]);
    let pcpu = u64::from(u16::from_le_bytes([raw[14], raw[15]]));
    let (a, b) = (word(raw, 16), word(raw, 24));
    if !matches!(kind, 1..=8 | 11 | 14 | 15 | 17..=20) {
        return Err(RawError::Kind { seen: kind });
    }
    let event = pcpu_or_none(pcpu)
        .and_then(|pcpu| Some(Event { ns: word(raw, 0), pcpu, kind: kind_of(kind, world, a, b)? }));
    event.filter(fits).ok_or(RawError::Value { kind, a, b })
}

/// Every event that a raw record tells of, in their order: a change of state can say that the world
/// was woken, left its queue or came from another pCPU, and being queued that a pCPU was kicked for
/// it.
///
/// # Errors
/// `RawError` if a number is outside what its field allows; `each` has been given nothing then.
pub fn expand(raw: &[u8; RAW_BYTES], mut each: impl FnMut(Event)) -> Result<(), RawError> {
    let event = from_raw(raw)?;
    let (a, b) = (word(raw, 16), word(raw, 24));
    let also = |pcpu: u64, kind: Option<Kind>| {
        let made =
            pcpu_or_none(pcpu).and_then(|pcpu| Some(Event { ns: event.ns, pcpu, kind: kind? }));
        made.filter(fits).ok_or(RawError::Value {
            kind: u16::from_le_bytes([raw[12], raw[13]]),
            a,
            b,
        })
    };
    let mut before = [None, None, None];
    let mut after = None;
    match event.kind {
        Kind::State { world, on, .. } => {
            if a >> 24 & ALSO_LEFT != 0 {
                before[0] = Some(also(NONE, Some(Kind::Unqueued { world }))?);
            }
            if a >> 24 & ALSO_WOKEN != 0 {
                before[1] = Some(also(
                    b >> 48,
                    waker(b >> 32 & NONE, b & 0xffff_ffff).map(|by| Kind::Wake { world, by }),
                )?);
            }
            if a >> 24 & ALSO_MOVED != 0 {
                let why = Move::of_code(b >> 16 & 0xff).unwrap_or(Move::Other);
                let from = pcpu_or_none(b & NONE);
                let migrate =
                    from.and_then(|from| Some(Kind::Migrate { world, from, to: on?, why }));
                before[2] = Some(also(id(on), migrate)?);
            }
        }
        Kind::Queued { queue: Queue::Pcpu(_), .. } if b >> 40 & 0xff != 0 => {
            let kick = Kick::of_code((b >> 40 & 0xff) - 1)
                .and_then(|how| Some(Kind::Kick { target: pcpu_of(b >> 48)?, how }));
            after = Some(also(b >> 16 & NONE, kick)?);
        }
        _ => {}
    }
    before.into_iter().flatten().chain([event]).chain(after).for_each(&mut each);
    Ok(())
}

fn waker(by: u64, world: u64) -> Option<Waker> {
    Some(match by {
        0 => Waker::Unknown,
        1 => Waker::Interrupt,
        2 => Waker::World(WorldId(world.try_into().ok()?)),
        _ => return None,
    })
}

fn pcpu_or_none(id: u64) -> Option<Option<PcpuId>> {
    if id == NONE { Some(None) } else { pcpu_of(id).map(Some) }
}

fn known_of(v: u64) -> Option<u32> {
    (v & KNOWN != 0).then_some(v as u32)
}

fn kind_of(kind: u16, id: u32, a: u64, b: u64) -> Option<Kind> {
    let world = WorldId(id);
    Some(match kind {
        1 => {
            let from = if a & 0xff == 0xff { None } else { Some(State::of_code(a & 0xff)?) };
            let why = Why::of_code(a >> 16 & 0xff).unwrap_or(Why::Unknown);
            Kind::State {
                world,
                from,
                to: State::of_code(a >> 8 & 0xff)?,
                why,
                on: pcpu_or_none(a >> 32 & NONE)?,
            }
        }
        2 => Kind::Wake { world, by: waker(a, b)? },
        3 if b & KNOWN != 0 => Kind::Queued { world, queue: Queue::Limit(b as u16), key: a },
        3 => Kind::Queued { world, queue: Queue::Pcpu(pcpu_of(b & NONE)?), key: a },
        4 => Kind::Unqueued { world },
        5 => {
            let why = Move::of_code(a >> 32 & 0xff).unwrap_or(Move::Other);
            Kind::Migrate {
                world,
                from: pcpu_or_none(a & NONE)?,
                to: pcpu_of(a >> 16 & NONE)?,
                why,
            }
        }
        6 => Kind::Switch { from: known_of(a).map(WorldId), to: known_of(b).map(WorldId) },
        7 if a == KEPT => Kind::Kept,
        7 => Kind::Idle { begins: a != 0 },
        8 => Kind::Kick { target: pcpu_of(a & NONE)?, how: Kick::of_code(a >> 16 & 0xff)? },
        11 => Kind::Account { vm: VmId(id.try_into().ok()?), used_ns: a, entitled: b },
        14 => Kind::Host { pcpus: a.try_into().ok()? },
        15 => {
            let [smt, core, llc, node] = [0, 16, 32, 48].map(|s| (a >> s) as u16);
            Kind::Pcpu { place: Place { smt, core, llc, node } }
        }
        17 => Kind::Lost { events: known_of(a) },
        19 => Kind::Guest { world, inside: a != 0 },
        20 => Kind::Home { world, domains: a },
        18 => {
            let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
            Kind::Mark { text: std::str::from_utf8(bytes.get(..id as usize)?).ok()?.to_owned() }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_one_that_the_kernel_writes() {
        let kind = Kind::State {
            world: WorldId(0x0102_0304),
            from: Some(State::Ready),
            to: State::Run,
            why: Why::Picked,
            on: Some(PcpuId(7)),
        };
        let raw = to_raw(&Event { ns: 0x1122, pcpu: Some(PcpuId(3)), kind }).unwrap();
        let want = [
            0x22, 0x11, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 1, 0, 3, 0, 2, 1, 10, 0, 7, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0,
        ];
        assert_eq!(raw, want);
    }

    fn expanded(raw: &[u8; RAW_BYTES]) -> Result<Vec<Event>, RawError> {
        let mut out = vec![];
        expand(raw, |e| out.push(e)).map(|()| out)
    }

    fn with_ab(kind: Kind, also: u8, b: u64) -> [u8; RAW_BYTES] {
        let mut raw = to_raw(&Event { ns: 77, pcpu: Some(PcpuId(4)), kind }).unwrap();
        raw[19] = also;
        let old = word(&raw, 24);
        raw[24..].copy_from_slice(&(old | b).to_le_bytes());
        raw
    }

    #[test]
    fn a_change_of_state_tells_of_the_wake_up_the_queue_and_the_migration_that_came_with_it() {
        let world = WorldId(9);
        let state = |to, on| Kind::State {
            world,
            from: Some(State::Wait),
            to,
            why: Why::Woken,
            on: Some(PcpuId(on)),
        };
        let at = |pcpu: Option<u16>, kind| Event { ns: 77, pcpu: pcpu.map(PcpuId), kind };
        let woken = with_ab(state(State::Ready, 4), 1, 5 | 2 << 32 | 3 << 48);
        let wake = Kind::Wake { world, by: Waker::World(WorldId(5)) };
        assert_eq!(
            expanded(&woken),
            Ok(vec![at(Some(3), wake), at(Some(4), state(State::Ready, 4))])
        );
        let ran = with_ab(state(State::Run, 4), 6, 8 | 2 << 16);
        let moved = Kind::Migrate { world, from: Some(PcpuId(8)), to: PcpuId(4), why: Move::Pull };
        let want = vec![
            at(None, Kind::Unqueued { world }),
            at(Some(4), moved),
            at(Some(4), state(State::Run, 4)),
        ];
        assert_eq!(expanded(&ran), Ok(want));
        assert_eq!(from_raw(&ran), Ok(at(Some(4), state(State::Run, 4))));
        for bad in [
            with_ab(state(State::Ready, 4), 1, 3 << 32),
            with_ab(state(State::Ready, 4), 1, 1024 << 48),
        ] {
            assert!(matches!(expanded(&bad), Err(RawError::Value { kind: 1, .. })), "{bad:?}");
        }
    }

    #[test]
    fn being_queued_tells_of_the_kick_that_came_with_it() {
        let queued = Kind::Queued { world: WorldId(9), queue: Queue::Pcpu(PcpuId(4)), key: 100 };
        let at = |pcpu, kind| Event { ns: 77, pcpu: Some(PcpuId(pcpu)), kind };
        let plain = with_ab(queued.clone(), 0, 0);
        assert_eq!(expanded(&plain), Ok(vec![at(4, queued.clone())]));
        let kick = |target, how| Kind::Kick { target: PcpuId(target), how };
        let kicked = with_ab(queued.clone(), 0, 1 << 16 | 2 << 40 | 6 << 48);
        assert_eq!(
            expanded(&kicked),
            Ok(vec![at(4, queued.clone()), at(1, kick(6, Kick::Preempt))])
        );
        assert!(
            expanded(&with_ab(queued, 0, 1 << 16 | 9 << 40 | 6 << 48)).is_err(),
            "no kick has the number 8"
        );
    }

    #[test]
    fn numbers_outside_their_range_are_refused_with_what_was_seen() {
        let good = to_raw(&Event { ns: 5, pcpu: None, kind: Kind::Unqueued { world: WorldId(9) } })
            .unwrap();
        let with = |at: usize, v: u8| {
            let mut raw = good;
            raw[at] = v;
            from_raw(&raw)
        };
        assert!(with(0, 6).is_ok());
        assert_eq!(with(12, 9), Err(RawError::Kind { seen: 9 }), "wait-on has no raw form");
        assert_eq!(with(15, 4), Err(RawError::Value { kind: 4, a: 0, b: 0 }), "pCPU 0x4ff");
        let mut state = good;
        (state[12], state[17]) = (1, 6);
        assert_eq!(from_raw(&state), Err(RawError::Value { kind: 1, a: 6 << 8, b: 0 }));
        let long =
            Event { ns: 0, pcpu: None, kind: Kind::Mark { text: "seventeen letters".to_owned() } };
        assert_eq!(to_raw(&long), Err(RawError::TooLong { kind: "mark" }));
    }
}
