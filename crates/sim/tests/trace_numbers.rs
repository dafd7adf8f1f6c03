//! Records of the scheduler and their reader agree: numbers of `sched/abi/trace.h` and what a
//! record tells besides its state.

use ::trace::{Event, Kick, Kind, Move, State, Waker, Why};
use sched_core::records as c;
use units::WorldId;

/// The numbers of `sched/abi/trace.h` are those of crates/trace.
#[test]
fn kernel_side_and_reader_have_the_same_numbers() {
    assert_eq!((size_of::<sched_core::TraceRecord>(), trace::RAW_BYTES), (32, 32));
    let whys = [
        (c::WHY_UNKNOWN, Why::Unknown),
        (c::WHY_QUANTUM, Why::Quantum),
        (c::WHY_PREEMPTED, Why::Preempted),
        (c::WHY_SLEPT, Why::Slept),
        (c::WHY_WOKEN, Why::Woken),
        (c::WHY_YIELDED, Why::Yielded),
        (c::WHY_PARKED, Why::Parked),
        (c::WHY_RELEASED, Why::Released),
        (c::WHY_MIGRATED, Why::Migrated),
        (c::WHY_RESCUED, Why::Rescued),
        (c::WHY_PICKED, Why::Picked),
        (c::WHY_SKEWED, Why::Skewed),
        (c::WHY_BORN, Why::Born),
        (c::WHY_GONE, Why::Gone),
        (c::WHY_CAUGHT_UP, Why::CaughtUp),
        (c::WHY_TAKEN, Why::Taken),
    ];
    assert!(whys.iter().all(|(n, why)| *n == u32::from(why.code())), "{whys:?}");
    let moves = [
        (c::MOVE_OTHER, Move::Other),
        (c::MOVE_WAKE, Move::Wake),
        (c::MOVE_PULL, Move::Pull),
        (c::MOVE_SWAP, Move::Swap),
        (c::MOVE_AFFINITY, Move::Affinity),
        (c::MOVE_SPREAD, Move::Spread),
        (c::MOVE_HOME, Move::Home),
    ];
    assert!(moves.iter().all(|(n, why)| *n == u32::from(why.code())), "{moves:?}");
    let kicks = [(c::TRACE_KICK_IDLE, Kick::Idle), (c::TRACE_KICK_PREEMPT, Kick::Preempt)];
    assert!(kicks.iter().all(|(n, how)| *n == u32::from(how.code())), "{kicks:?}");
    let states = [
        c::STATE_NONE,
        c::STATE_RUN,
        c::STATE_READY,
        c::STATE_COSTOP,
        c::STATE_WAIT,
        c::STATE_WAIT_IDLE,
    ];
    assert!(states.iter().zip(State::ALL).all(|(n, s)| *n == u32::from(s.code())));
    kinds_have_the_numbers_of_the_header();
}

fn kinds_have_the_numbers_of_the_header() {
    let kinds = [
        (
            c::TRACE_STATE,
            Kind::State {
                world: WorldId(1),
                from: None,
                to: State::Run,
                why: Why::Picked,
                on: None,
            },
        ),
        (c::TRACE_WAKE, Kind::Wake { world: WorldId(1), by: Waker::World(WorldId(2)) }),
        (
            c::TRACE_QUEUED,
            Kind::Queued { world: WorldId(1), queue: trace::Queue::Limit(4), key: 9 },
        ),
        (c::TRACE_UNQUEUED, Kind::Unqueued { world: WorldId(1) }),
        (
            c::TRACE_MIGRATE,
            Kind::Migrate { world: WorldId(1), from: None, to: units::PcpuId(3), why: Move::Pull },
        ),
        (c::TRACE_IDLE, Kind::Idle { begins: true }),
        (c::TRACE_IDLE, Kind::Kept),
        (c::TRACE_KICK, Kind::Kick { target: units::PcpuId(3), how: Kick::Preempt }),
        (c::TRACE_ACCOUNT, Kind::Account { vm: units::VmId(3), used_ns: 5, entitled: 6 }),
        (c::TRACE_LOST, Kind::Lost { events: Some(7) }),
        (c::TRACE_GUEST, Kind::Guest { world: WorldId(1), inside: true }),
        (c::TRACE_HOME, Kind::Home { world: WorldId(1), domains: 5 }),
    ];
    for (number, kind) in kinds {
        let raw = trace::to_raw(&Event { ns: 1, pcpu: None, kind }).expect("it has a raw form");
        assert_eq!(u32::from(u16::from_le_bytes([raw[12], raw[13]])), number);
        assert_eq!(u32::from(u16::from_le_bytes([raw[14], raw[15]])), c::TRACE_NOWHERE);
    }
    let by = |by| {
        trace::to_raw(&Event { ns: 1, pcpu: None, kind: Kind::Wake { world: WorldId(1), by } })
            .expect("raw")[16]
    };
    let wakers =
        [Waker::Unknown, Waker::Interrupt, Waker::World(WorldId(2))].map(|w| u32::from(by(w)));
    assert_eq!(wakers, [c::WAKER_UNKNOWN, c::WAKER_INTERRUPT, c::WAKER_WORLD]);
    let unknown =
        Kind::State { world: WorldId(1), from: None, to: State::Run, why: Why::Picked, on: None };
    let raw = trace::to_raw(&Event { ns: 1, pcpu: None, kind: unknown }).expect("raw");
    assert_eq!(u32::from(raw[16]), c::TRACE_STATE_UNKNOWN);
}

/// What else a record of the scheduler tells.
#[test]
fn kernel_side_and_reader_agree_on_what_a_record_tells_besides() {
    let state = |to| Kind::State {
        world: WorldId(1),
        from: Some(State::Wait),
        to,
        why: Why::Woken,
        on: Some(units::PcpuId(2)),
    };
    let told = |to, also: u32, b: u64| {
        let mut raw = trace::to_raw(&Event { ns: 1, pcpu: None, kind: state(to) }).expect("raw");
        raw[19] = also as u8;
        raw[24..].copy_from_slice(&b.to_le_bytes());
        let mut out = vec![];
        trace::expand(&raw, |e| out.push(e.kind)).expect("a record");
        out
    };
    let (world, pull) = (u64::from(c::WAKER_WORLD) << 32, u64::from(c::MOVE_PULL) << 16);
    let woken = Kind::Wake { world: WorldId(1), by: Waker::World(WorldId(5)) };
    assert_eq!(told(State::Ready, c::ALSO_WOKEN, 5 | world), [woken, state(State::Ready)]);
    let moved = Kind::Migrate {
        world: WorldId(1),
        from: Some(units::PcpuId(7)),
        to: units::PcpuId(2),
        why: Move::Pull,
    };
    assert_eq!(told(State::Run, c::ALSO_MOVED, 7 | pull), [moved, state(State::Run)]);
    assert_eq!(
        told(State::Run, c::ALSO_LEFT, 0),
        [Kind::Unqueued { world: WorldId(1) }, state(State::Run)]
    );
}
