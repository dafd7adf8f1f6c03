//! All events as one enum, shared by ring buffer, simulator, file, log and exports; it knows no
//! bytes.

use crate::{Kick, Move, Role, State, Why};
use units::{PcpuId, PcpuSet, VmId, WorldId};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in ns of a clock that does not go back.
    pub ns: u64,
    /// The pCPU that it happened on or that it concerns, as far as there is one.
    pub pcpu: Option<PcpuId>,
    /// What happened.
    pub kind: Kind,
}

/// Where a READY world was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Into the queue of a pCPU.
    Pcpu(PcpuId),
    /// Into the queue of a limit, by its number: it is parked until the limit unparks it.
    Limit(u16),
}

/// The waker of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// Unknown.
    Unknown,
    /// An interrupt or timer.
    Interrupt,
    /// Another world.
    World(WorldId),
}

/// Place of a pCPU in the host: the numbers of what it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Place {
    /// Which thread of its core it is.
    pub smt: u16,
    /// Its core, counted over the host.
    pub core: u16,
    /// Its last-level cache, counted over the host.
    pub llc: u16,
    /// Its NUMA node.
    pub node: u16,
}

/// Kind of an event, with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A world changed its state.
    State {
        /// The world.
        world: WorldId,
        /// State before, as far as it is known.
        from: Option<State>,
        /// State from now on.
        to: State,
        /// Why.
        why: Why,
        /// Where it runs, ran or waits.
        on: Option<PcpuId>,
    },
    /// A world was woken.
    Wake {
        /// The woken world.
        world: WorldId,
        /// The waker.
        by: Waker,
    },
    /// A READY world was put into a queue.
    Queued {
        /// The world.
        world: WorldId,
        /// Where.
        queue: Queue,
        /// Its deadline: the earliest of a queue comes next. Virtual time in ns.
        key: u64,
    },
    /// A world was taken out of its queue.
    Unqueued {
        /// The world.
        world: WorldId,
    },
    /// A world went to another pCPU.
    Migrate {
        /// The world.
        world: WorldId,
        /// From where, as far as it is known.
        from: Option<PcpuId>,
        /// To where.
        to: PcpuId,
        /// Why.
        why: Move,
    },
    /// The event's pCPU went from one world to another; none stands for idling. RDY's SWITCH.
    Switch {
        /// The world that ran.
        from: Option<WorldId>,
        /// The world that runs.
        to: Option<WorldId>,
    },
    /// The event's pCPU begins (or ends) to idle.
    Idle {
        /// Whether it begins.
        begins: bool,
    },
    /// The event's pCPU idles from now on so that a world has the core alone.
    Kept,
    /// The event's pCPU is off line from now on, until it idles or runs something again.
    Offline,
    /// A pCPU was kicked by the event's pCPU.
    Kick {
        /// The pCPU that was kicked.
        target: PcpuId,
        /// How.
        how: Kick,
    },
    /// What a world blocks on. RDY's SETWAITSTATE.
    WaitOn {
        /// The world.
        world: WorldId,
        /// Number of the resource.
        event: u64,
        /// Its class, such as RPC or IDLE.
        class: String,
    },
    /// A world's virtual time was set. RDY's VTIMESET, whose numbers it does not explain.
    Vtime {
        /// The world.
        world: WorldId,
        /// A number of the world, in RDY's sample constant for each: how fast its virtual time
        /// passes.
        stride: u64,
        /// Virtual time before, in ns.
        from: u64,
        /// Virtual time from now on, in ns.
        to: u64,
        /// The host's virtual time, in ns.
        host: u64,
        /// Why, such as RUN or VTLIMIT.
        why: String,
    },
    /// What a VM has used so far, and what it is entitled to now.
    Account {
        /// Which VM.
        vm: VmId,
        /// CPU time charged since it began, in ns.
        used_ns: u64,
        /// What it is entitled to, in 2^-20 of a pCPU (`units::Rate`).
        entitled: u64,
    },
    /// Name of a world.
    World {
        /// Which.
        world: WorldId,
        /// Its VM.
        vm: VmId,
        /// What it is.
        role: Role,
        /// Its name.
        name: String,
    },
    /// Name of a VM.
    Vm {
        /// Which.
        vm: VmId,
        /// Its name.
        name: String,
        /// Path of its pool.
        pool: String,
    },
    /// How many pCPUs the host has.
    Host {
        /// Their number.
        pcpus: u16,
    },
    /// Where the event's pCPU is in the host.
    Pcpu {
        /// Its place.
        place: Place,
    },
    /// The pCPUs that a world may use; a world without such an event may use all.
    Affinity {
        /// Which world.
        world: WorldId,
        /// Its pCPUs.
        allowed: Box<PcpuSet>,
    },
    /// Events are missing from here on: what was known of states is known no longer.
    Lost {
        /// How many, as far as that is known.
        events: Option<u32>,
    },
    /// A vCPU that runs enters its guest, or leaves it for its emulator; it counts as inside until
    /// it has left.
    Guest {
        /// The world.
        world: WorldId,
        /// Whether it enters.
        inside: bool,
    },
    /// A world has another home from now on: it runs in its domains alone, within its affinity.
    Home {
        /// The world.
        world: WorldId,
        /// A bit for each domain, which is an LLC, or a node where nodes share an LLC or the host
        /// has more than 64; `HOME_ANY`: it has none, and runs anywhere.
        domains: u64,
    },
    /// Where the memory of a VM is, at its start and at each look.
    Memory {
        /// Which VM.
        vm: VmId,
        /// Its size, in bytes.
        bytes: u64,
        /// Its home nodes, a bit each; 0: it has none.
        homes: u64,
        /// Of what it has used, bytes in the home of its part, and in other nodes; where a part has
        /// no home that is not known.
        places: Option<(u64, u64)>,
        /// How often a home has changed.
        migrations: u64,
    },
    /// A remark of the recorder.
    Mark {
        /// Its text.
        text: String,
    },
}

/// Domains of a world that has no home.
pub const HOME_ANY: u64 = u64::MAX;

impl Kind {
    /// The world that it is about, if it is about one.
    #[must_use]
    pub fn world(&self) -> Option<WorldId> {
        match self {
            Kind::State { world, .. }
            | Kind::Wake { world, .. }
            | Kind::Queued { world, .. }
            | Kind::Unqueued { world }
            | Kind::Migrate { world, .. }
            | Kind::WaitOn { world, .. }
            | Kind::Vtime { world, .. }
            | Kind::Guest { world, .. }
            | Kind::Home { world, .. }
            | Kind::World { world, .. }
            | Kind::Affinity { world, .. } => Some(*world),
            _ => None,
        }
    }

    /// Whether it names or describes something that lasts, and is repeated in a file so that a part
    /// of it can be read alone.
    #[must_use]
    pub fn is_name(&self) -> bool {
        matches!(
            self,
            Kind::World { .. }
                | Kind::Vm { .. }
                | Kind::Host { .. }
                | Kind::Pcpu { .. }
                | Kind::Affinity { .. }
        )
    }
}
