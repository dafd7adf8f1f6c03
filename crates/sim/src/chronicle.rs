//! The trace of a policy that writes none: changes of state, wake-ups, migrations and idle pCPUs,
//! as the engine saw them. What only a scheduler knows it does not have: queues of pCPUs,
//! deadlines, kicks, and most reasons.

use check::State;
use trace::{Event, Kind, Move, Queue, Waker, Why};
use units::{PcpuId, WorldId};

/// Number of the limit in whose queue a parked world is: the engine does not know which it is.
const SOME_LIMIT: u16 = 0;

/// Events that are not in a trace yet.
#[derive(Debug, Default)]
pub(crate) struct Chronicle {
    events: Vec<Event>,
}

fn state(of: State) -> trace::State {
    match of {
        State::Run => trace::State::Run,
        State::Ready => trace::State::Ready,
        State::Costop => trace::State::Costop,
        State::Wait => trace::State::Wait,
        State::WaitIdle => trace::State::WaitIdle,
    }
}

/// Why a world enters a state in which it does not run.
fn why(from: State, to: State) -> Why {
    match (from, to) {
        (State::Wait | State::WaitIdle, State::Ready) => Why::Woken,
        (State::Costop, State::Ready) => Why::CaughtUp,
        (_, State::Costop) => Why::Skewed,
        (_, State::Wait | State::WaitIdle) => Why::Slept,
        _ => Why::Unknown,
    }
}

impl Chronicle {
    fn tell(&mut self, ns: u64, pcpu: Option<u32>, kind: Kind) {
        self.events.push(Event { ns, pcpu: pcpu.map(|p| PcpuId(p as u16)), kind });
    }

    fn change(
        &mut self,
        ns: u64,
        world: u32,
        (from, to): (Option<trace::State>, trace::State),
        why: Why,
        pcpu: Option<u32>,
    ) {
        let on = pcpu.map(|p| PcpuId(p as u16));
        self.tell(ns, pcpu, Kind::State { world: WorldId(world), from, to, why, on });
    }

    pub(crate) fn born(&mut self, ns: u64, world: u32, asleep: State) {
        self.change(ns, world, (None, state(asleep)), Why::Born, None);
    }

    pub(crate) fn woken(&mut self, ns: u64, world: u32) {
        self.tell(ns, None, Kind::Wake { world: WorldId(world), by: Waker::Unknown });
    }

    /// A world enters a state in which it does not run; `last` is where it ran last.
    pub(crate) fn enters(
        &mut self,
        ns: u64,
        world: u32,
        from: State,
        to: State,
        last: Option<u32>,
    ) {
        let on = last.filter(|_| from == State::Run);
        self.change(ns, world, (Some(state(from)), state(to)), why(from, to), on);
    }

    pub(crate) fn runs(&mut self, ns: u64, world: u32, from: State, last: Option<u32>, pcpu: u32) {
        if let Some(last) = last.filter(|last| *last != pcpu) {
            let (from, to) = (Some(PcpuId(last as u16)), PcpuId(pcpu as u16));
            let kind = Kind::Migrate { world: WorldId(world), from, to, why: Move::Other };
            self.tell(ns, Some(pcpu), kind);
        }
        let states = (Some(state(from)), trace::State::Run);
        self.change(ns, world, states, Why::Picked, Some(pcpu));
    }

    pub(crate) fn idle(&mut self, ns: u64, pcpu: u32, begins: bool) {
        self.tell(ns, Some(pcpu), Kind::Idle { begins });
    }

    pub(crate) fn guest(&mut self, ns: u64, world: u32, inside: bool) {
        self.tell(ns, None, Kind::Guest { world: WorldId(world), inside });
    }

    /// A limit parks a world, or does so no longer: then it waits for a pCPU, as far as is known
    /// for that on which it ran `last`.
    pub(crate) fn parked(&mut self, ns: u64, world: u32, parked: bool, last: Option<u32>) {
        let pcpu = PcpuId(last.unwrap_or(0) as u16);
        let queue = if parked { Queue::Limit(SOME_LIMIT) } else { Queue::Pcpu(pcpu) };
        self.tell(ns, None, Kind::Queued { world: WorldId(world), queue, key: 0 });
    }

    pub(crate) fn gone(&mut self, ns: u64, world: u32, from: State) {
        self.change(ns, world, (Some(state(from)), trace::State::None), Why::Gone, None);
    }

    /// What has happened since the last call, in order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }
}
