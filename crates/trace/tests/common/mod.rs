//! Events for tests, from a seed: any event at all, and a host that schedules; no test is in here.
#![allow(dead_code, reason = "each test binary uses a part")]

pub use dice::Draw;
use trace::{
    Event, HOME_ANY, Item, Kick, Kind, Move, Place, Queue, Reader, Role, State, Waker, Why, Writer,
};
use units::{PcpuId, PcpuSet, VmId, WorldId};

/// A name with letters that a log has to escape.
fn text(r: &mut Draw) -> String {
    let letters = ['a', 'Z', ' ', '"', '\\', 'ä', '世', '\n', '0'];
    (0..r.below(12)).map(|_| r.of(&letters)).collect()
}

/// What a pCPU does that runs nothing.
fn idles(drawn: u64) -> Kind {
    match drawn {
        0 | 1 => Kind::Idle { begins: drawn == 0 },
        2 | 3 => Kind::Kept,
        _ => Kind::Offline,
    }
}

/// Any event that a file can hold.
pub fn any(r: &mut Draw) -> Event {
    let world = WorldId(if r.below(4) == 0 { r.bits() as u32 } else { r.below(300) as u32 });
    let other = WorldId(r.below(300) as u32);
    let p = PcpuId(r.below(1024) as u16);
    let (maybe_p, maybe_w) = ((r.below(3) > 0).then_some(p), (r.below(2) == 0).then_some(other));
    let number = if r.below(3) == 0 { r.bits() } else { r.below(1 << 40) };
    let kind = match r.below(21) {
        0 => {
            let from = (r.below(4) > 0).then(|| r.of(State::ALL));
            Kind::State { world, from, to: r.of(State::ALL), why: r.of(Why::ALL), on: maybe_p }
        }
        1 => {
            Kind::Wake { world, by: r.of(&[Waker::Unknown, Waker::Interrupt, Waker::World(other)]) }
        }
        2 => Kind::Queued {
            world,
            queue: r.of(&[Queue::Pcpu(p), Queue::Limit(number as u16)]),
            key: number,
        },
        3 => Kind::Unqueued { world },
        4 => Kind::Migrate {
            world,
            from: maybe_p,
            to: PcpuId(r.below(1024) as u16),
            why: r.of(Move::ALL),
        },
        5 => Kind::Switch { from: maybe_w, to: (r.below(2) == 0).then_some(world) },
        6 => idles(r.below(6)),
        7 => Kind::Kick { target: p, how: r.of(Kick::ALL) },
        8 => Kind::WaitOn { world, event: number, class: text(r) },
        9 => Kind::Vtime {
            world,
            stride: r.below(99999),
            from: number,
            to: number.wrapping_add(77),
            host: r.bits(),
            why: text(r),
        },
        10 => Kind::Account { vm: VmId(r.bits() as u16), used_ns: number, entitled: r.bits() },
        11 => Kind::World {
            world,
            vm: VmId(r.below(1024) as u16),
            role: r.of(Role::ALL),
            name: text(r),
        },
        12 => Kind::Vm { vm: VmId(r.below(1024) as u16), name: text(r), pool: text(r) },
        13 => Kind::Host { pcpus: r.below(1025) as u16 },
        14 => Kind::Pcpu {
            place: Place { smt: r.bits() as u16, core: r.bits() as u16, llc: 0, node: u16::MAX },
        },
        15 => Kind::Affinity {
            world,
            allowed: Box::new(
                (0..r.below(50)).map(|_| PcpuId(r.below(1024) as u16)).collect::<PcpuSet>(),
            ),
        },
        17 => Kind::Guest { world, inside: r.below(2) == 0 },
        18 => Kind::Home { world, domains: if r.below(4) == 0 { HOME_ANY } else { r.bits() } },
        19 => Kind::Memory {
            vm: VmId(r.below(1024) as u16),
            bytes: number,
            homes: r.bits(),
            places: (r.below(2) == 0).then(|| (r.bits() >> 1, r.bits())),
            migrations: r.below(1000),
        },
        16 => Kind::Lost { events: (r.below(2) == 0).then_some(r.bits() as u32) },
        _ => Kind::Mark { text: text(r) },
    };
    let own = if r.below(2) == 0 { maybe_p } else { Some(PcpuId(r.below(1024) as u16)) };
    Event { ns: 1 << 50 | r.below(1 << 30), pcpu: own, kind }
}

/// The events as a file.
pub fn file(events: &[Event]) -> Vec<u8> {
    let mut w = Writer::new(vec![]).unwrap();
    events.iter().for_each(|e| w.push(e).unwrap());
    w.finish().unwrap()
}

/// What a reader yields of a file.
pub fn items(file: &[u8]) -> Vec<Item> {
    Reader::new(file).map(|i| i.unwrap()).collect()
}

/// A state event.
pub fn state(ns: u64, world: u32, from: State, to: State, on: u16) -> Event {
    let kind = Kind::State {
        world: WorldId(world),
        from: Some(from),
        to,
        why: Why::Unknown,
        on: Some(PcpuId(on)),
    };
    Event { ns, pcpu: Some(PcpuId(on)), kind }
}

/// What a busy host records: worlds that wake each other, queue, run for some time and sleep. The
/// oldest waiter runs next, and an idle pCPU takes a world that wakes at once.
pub fn host(seed: u64, pcpus: u16, worlds: u32, events: usize) -> Vec<Event> {
    let mut r = Draw::new(seed);
    let mut out = vec![Event { ns: 1_000_000, pcpu: None, kind: Kind::Host { pcpus } }];
    for w in 1..=worlds {
        let vm = VmId((1 + w / 4) as u16);
        let kind = Kind::World {
            world: WorldId(w),
            vm,
            role: Role::Vcpu,
            name: format!("vm{}:{}", vm.0, w % 4),
        };
        out.push(Event { ns: 1_000_000, pcpu: None, kind });
    }
    let mut host = Host {
        ns: 1_000_000,
        key: 1 << 40,
        running: vec![None; pcpus.into()],
        asleep: (1..=worlds).collect(),
        queue: vec![],
    };
    for p in 0..pcpus {
        out.push(Event { ns: host.ns, pcpu: Some(PcpuId(p)), kind: Kind::Idle { begins: true } });
    }
    while out.len() < events {
        host.ns += 200 + r.below(60_000);
        host.step(&mut r, &mut out);
    }
    out
}

struct Host {
    ns: u64,
    key: u64,
    running: Vec<Option<u32>>,
    asleep: Vec<u32>,
    queue: Vec<(u32, u16)>,
}

impl Host {
    fn step(&mut self, r: &mut Draw, out: &mut Vec<Event>) {
        let p = r.below(self.running.len() as u64) as u16;
        let add = |out: &mut Vec<Event>, ns: u64, p: u16, kind: Kind| {
            out.push(Event { ns, pcpu: Some(PcpuId(p)), kind })
        };
        if r.below(2) == 0 && !self.asleep.is_empty() {
            let at = r.below(self.asleep.len() as u64) as usize;
            let world = self.asleep.swap_remove(at);
            let by =
                self.running[usize::from(p)].map_or(Waker::Interrupt, |w| Waker::World(WorldId(w)));
            add(out, self.ns, p, Kind::Wake { world: WorldId(world), by });
            let idle = self.running.iter().position(Option::is_none).map(|i| i as u16);
            out.push(state(self.ns + 300, world, State::Wait, State::Ready, idle.unwrap_or(p)));
            self.key += r.below(90_000);
            if let Some(i) = idle {
                add(out, self.ns + 900, i, Kind::Idle { begins: false });
                self.run(out, self.ns + 1000, i, world);
            } else {
                add(
                    out,
                    self.ns + 500,
                    p,
                    Kind::Queued {
                        world: WorldId(world),
                        queue: Queue::Pcpu(PcpuId(p)),
                        key: self.key,
                    },
                );
                self.queue.push((world, p));
            }
        } else if let Some(world) = self.running[usize::from(p)].take() {
            out.push(state(self.ns, world, State::Run, State::Wait, p));
            self.asleep.push(world);
            if self.queue.is_empty() {
                add(out, self.ns + 100, p, Kind::Idle { begins: true });
            } else {
                let (next, from) = self.queue.remove(0);
                if from != p {
                    let kind = Kind::Migrate {
                        world: WorldId(next),
                        from: Some(PcpuId(from)),
                        to: PcpuId(p),
                        why: Move::Pull,
                    };
                    add(out, self.ns + 200, p, kind);
                }
                self.run(out, self.ns + 400, p, next);
            }
        }
        self.ns += 1000;
    }

    fn run(&mut self, out: &mut Vec<Event>, ns: u64, p: u16, world: u32) {
        out.push(state(ns, world, State::Ready, State::Run, p));
        self.running[usize::from(p)] = Some(world);
    }
}
