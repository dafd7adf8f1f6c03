//! One line of the textual log and one event, in both directions; it knows no order and no time but
//! the line's own.
//!
//! RDY's lines are `number pCPU time EVENT arguments`, time in µs. Its seven events have its
//! arguments; in the full style they are followed by what RDY does not print, and there are events
//! that RDY does not have:
//!
//! | event | arguments |
//! |---|---|
//! | SETRUNSTATE | world, state; full: reason, state before or `?`, pCPU or `-` if it is not the
//! line's |
//! | QUEUEADD | world; full: key; then `LIMIT` and its number, or a pCPU if it is not the line's |
//! | QUEUEREMOVE | world |
//! | MIGRATE | world, to which pCPU, reason; full: from which pCPU or `-`, if it is not the line's
//! |
//! | SWITCH | from world, to world; 0 is idling |
//! | SETWAITSTATE | world, number of the resource, its class |
//! | VTIMESET | world, stride, virtual time before and after, the host's, reason |
//! | WAKE | woken world; waker, `IRQ` or `?` |
//! | IDLE | `BEGIN` or `END` |
//! | KICK | pCPU, `IDLE` or `PREEMPT` |
//! | ACCOUNT | VM, used ns, entitled in 2^-20 pCPU |
//! | WORLD, VM, HOST, PCPU, AFFINITY | world, VM, role, name; VM, name, pool; pCPUs; thread, core,
//! LLC, node; world, pCPUs |
//! | LOST | how many events, or `?` |
//! | MARK | text |
//!
//! Texts have no spaces: every byte outside `!`..`~` and `%` itself is written `%xx`; the empty
//! text is `%`.

use crate::flat::{fits, pcpu_of};
use crate::{Event, HOME_ANY, Kick, Kind, Move, Place, Queue, Role, State, Waker, Why};
use std::fmt::Write;
use std::str::{FromStr, SplitAsciiWhitespace};
use units::{PcpuId, VmId, WorldId};

/// A parsed line: its number, its event, and whether it has the reason of a state.
pub(crate) struct Line {
    pub(crate) number: u64,
    pub(crate) event: Event,
    pub(crate) full: bool,
}

/// The line of an event in RDY's fields; none if RDY has no such event.
pub(crate) fn rdy(number: u64, event: &Event) -> Option<String> {
    let (pcpu, text) = match &event.kind {
        Kind::State { world, to, on, .. } => {
            let name = if *to == State::WaitIdle { State::Wait.name() } else { to.name() };
            (on.or(event.pcpu), format!("SETRUNSTATE {} {name}", world.0))
        }
        Kind::Queued { world, queue: Queue::Pcpu(p), .. } => {
            (Some(*p), format!("QUEUEADD {}", world.0))
        }
        Kind::Queued { world, queue: Queue::Limit(l), .. } => {
            (event.pcpu, format!("QUEUEADD {} LIMIT {l}", world.0))
        }
        Kind::Migrate { world, from, to, why } => {
            (from.or(event.pcpu), format!("MIGRATE {} {} {}", world.0, to.0, why.name()))
        }
        Kind::Unqueued { .. } | Kind::Switch { .. } | Kind::WaitOn { .. } | Kind::Vtime { .. } => {
            (event.pcpu, arguments(event))
        }
        _ => return None,
    };
    Some(format!("{number} {} {} {text}", maybe(pcpu), event.ns / 1000))
}

/// The line of an event with all that it tells.
pub(crate) fn full(number: u64, event: &Event) -> String {
    let (us, ns) = (event.ns / 1000, event.ns % 1000);
    let fraction = if ns == 0 { String::new() } else { format!(".{ns:03}") };
    format!("{number} {} {us}{fraction} {}", maybe(event.pcpu), arguments(event))
}

fn maybe(p: Option<PcpuId>) -> String {
    p.map_or("-".to_owned(), |p| p.0.to_string())
}

/// ` p` if it is not the line's own pCPU.
fn other(p: Option<PcpuId>, own: Option<PcpuId>) -> String {
    if p == own { String::new() } else { format!(" {}", maybe(p)) }
}

fn arguments(event: &Event) -> String {
    let own = event.pcpu;
    match &event.kind {
        Kind::State { world, from, to, why, on } => {
            let from = from.map_or("?", State::name);
            format!(
                "SETRUNSTATE {} {} {} {from}{}",
                world.0,
                to.name(),
                why.name(),
                other(*on, own)
            )
        }
        Kind::Wake { world, by: Waker::World(w) } => format!("WAKE {} {}", world.0, w.0),
        Kind::Wake { world, by } => {
            format!("WAKE {} {}", world.0, if *by == Waker::Interrupt { "IRQ" } else { "?" })
        }
        Kind::Queued { world, queue: Queue::Pcpu(p), key } => {
            format!("QUEUEADD {} {key}{}", world.0, other(Some(*p), own))
        }
        Kind::Queued { world, queue: Queue::Limit(l), key } => {
            format!("QUEUEADD {} {key} LIMIT {l}", world.0)
        }
        Kind::Unqueued { world } => format!("QUEUEREMOVE {}", world.0),
        Kind::Migrate { world, from, to, why } => {
            format!("MIGRATE {} {} {}{}", world.0, to.0, why.name(), other(*from, own))
        }
        Kind::Switch { from, to } => {
            format!("SWITCH {} {}", from.map_or(0, |w| w.0), to.map_or(0, |w| w.0))
        }
        Kind::Kept => "IDLE KEPT".to_owned(),
        Kind::Offline => "OFFLINE".to_owned(),
        Kind::Idle { begins } => format!("IDLE {}", if *begins { "BEGIN" } else { "END" }),
        Kind::Kick { target, how } => format!("KICK {} {}", target.0, how.name()),
        Kind::WaitOn { world, event, class } => {
            format!("SETWAITSTATE {} {event} {}", world.0, escaped(class))
        }
        Kind::Vtime { world, stride, from, to, host, why } => {
            format!("VTIMESET {} {stride} {from} {to} {host} {}", world.0, escaped(why))
        }
        Kind::Account { vm, used_ns, entitled } => format!("ACCOUNT {} {used_ns} {entitled}", vm.0),
        Kind::World { world, vm, role, name } => {
            format!("WORLD {} {} {} {}", world.0, vm.0, role.name(), escaped(name))
        }
        Kind::Vm { vm, name, pool } => format!("VM {} {} {}", vm.0, escaped(name), escaped(pool)),
        Kind::Host { pcpus } => format!("HOST {pcpus}"),
        Kind::Pcpu { place: p } => format!("PCPU {} {} {} {}", p.smt, p.core, p.llc, p.node),
        Kind::Affinity { world, allowed } => {
            format!("AFFINITY {} {}", world.0, escaped(&allowed.to_string()))
        }
        Kind::Lost { events } => {
            format!("LOST {}", events.map_or("?".to_owned(), |n| n.to_string()))
        }
        Kind::Mark { text } => format!("MARK {}", escaped(text)),
        Kind::Guest { world, inside } => {
            format!("GUEST {} {}", world.0, if *inside { "ENTER" } else { "LEAVE" })
        }
        Kind::Home { world, domains: HOME_ANY } => format!("HOME {} ANY", world.0),
        Kind::Home { world, domains } => {
            format!("HOME {} {}", world.0, escaped(&listed(*domains)))
        }
        Kind::Memory { vm, bytes, homes, places, migrations } => {
            let places =
                places.map_or("? ?".to_owned(), |(local, remote)| format!("{local} {remote}"));
            let homes = escaped(&listed(*homes));
            format!("MEMORY {} {bytes} {homes} {places} {migrations}", vm.0)
        }
    }
}

/// The bits of a word that are set, such as "0,2".
fn listed(bits: u64) -> String {
    let all = (0..64).filter(|n| bits >> n & 1 != 0).map(|n: u32| n.to_string());
    all.collect::<Vec<_>>().join(",")
}

/// A word with these bits, such as "0,2".
fn bits(list: &str) -> Option<u64> {
    let bit = |n: &str| n.parse().ok().filter(|n: &u32| *n < 64).map(|n| 1 << n);
    let mut each = list.split(',').filter(|n| !n.is_empty()).map(bit);
    each.try_fold(0, |all: u64, n| n.map(|n: u64| all | n))
}

fn escaped(text: &str) -> String {
    if text.is_empty() {
        return "%".to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if (b'!'..=b'~').contains(&b) && b != b'%' {
            out.push(char::from(b));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{b:02x}");
        }
    }
    out
}

fn unescaped(text: &str) -> Option<String> {
    if text == "%" {
        return Some(String::new());
    }
    let (mut out, mut bytes) = (vec![], text.bytes());
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let digits = [bytes.next()?, bytes.next()?].map(|d| char::from(d).to_digit(16));
            out.push((digits[0]? * 16 + digits[1]?) as u8);
        } else {
            out.push(b);
        }
    }
    String::from_utf8(out).ok()
}

/// The event of a line; else what was allowed where it could not be understood.
pub(crate) fn parse(text: &str) -> Result<Line, &'static str> {
    let mut words = Words(text.split_ascii_whitespace());
    let number = words.number().ok_or("a sequence number first")?;
    let pcpu = words.maybe_pcpu().ok_or("a pCPU below 1024 or '-' as second field")?;
    let ns = words.time().ok_or("a time in us as third field")?;
    let name = words.0.next().ok_or("an event as fourth field")?;
    let (kind, full) = words.kind(name, pcpu)?;
    if words.0.next().is_some() {
        return Err("nothing behind the event's arguments");
    }
    let event = Event { ns, pcpu, kind };
    if fits(&event) { Ok(Line { number, event, full }) } else { Err("ids that a host may have") }
}

struct Words<'a>(SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn number<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn pcpu(&mut self) -> Option<PcpuId> {
        self.number().and_then(pcpu_of)
    }

    fn maybe_pcpu(&mut self) -> Option<Option<PcpuId>> {
        match self.0.next()? {
            "-" => Some(None),
            p => Some(Some(pcpu_of(p.parse().ok()?)?)),
        }
    }

    /// A pCPU, or the line's own if the line ends here.
    fn pcpu_or(&mut self, own: Option<PcpuId>) -> Option<Option<PcpuId>> {
        if self.0.clone().next().is_none() { Some(own) } else { self.maybe_pcpu() }
    }

    fn world(&mut self) -> Option<WorldId> {
        self.number().map(WorldId)
    }

    fn maybe_world(&mut self) -> Option<Option<WorldId>> {
        self.world().map(|w| Some(w).filter(|w| w.0 != 0))
    }

    fn time(&mut self) -> Option<u64> {
        let word = self.0.next()?;
        let (us, fraction) = word.split_once('.').unwrap_or((word, "000"));
        let ns: u64 = fraction.parse().ok().filter(|_| fraction.len() == 3)?;
        us.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(ns)
    }

    fn text(&mut self) -> Option<String> {
        self.0.next().and_then(unescaped)
    }

    fn kind(&mut self, name: &str, own: Option<PcpuId>) -> Result<(Kind, bool), &'static str> {
        let plain = |kind: Option<Kind>, allowed| kind.map(|k| (k, true)).ok_or(allowed);
        match name {
            "SETRUNSTATE" => self.state(own).ok_or(
                "SETRUNSTATE world state, and reason, state before and pCPU or none of them",
            ),
            "QUEUEADD" => plain(
                self.queued(own),
                "QUEUEADD world, on a line with a pCPU or with LIMIT and its number",
            ),
            "QUEUEREMOVE" => {
                plain(self.world().map(|world| Kind::Unqueued { world }), "QUEUEREMOVE world")
            }
            "MIGRATE" => plain(self.migrate(own), "MIGRATE world pCPU reason"),
            "SWITCH" => plain(self.switch(), "SWITCH world world"),
            "SETWAITSTATE" => plain(self.wait_on(), "SETWAITSTATE world number class"),
            "VTIMESET" => plain(self.vtime(), "VTIMESET world and four numbers and a reason"),
            "WAKE" => plain(self.wake(), "WAKE world, and world or IRQ or ?"),
            "IDLE" => plain(self.idle(), "IDLE BEGIN or IDLE END"),
            "OFFLINE" => Ok((Kind::Offline, true)),
            "KICK" => plain(self.kick(), "KICK pCPU, and IDLE or PREEMPT"),
            "LOST" => plain(self.lost(), "LOST number, or LOST ?"),
            "GUEST" => plain(self.guest(), "GUEST world, and ENTER or LEAVE"),
            "HOME" => plain(self.home(), "HOME world, and domains such as 0,2, or ANY"),
            "MEMORY" => plain(
                self.memory(),
                "MEMORY vm, bytes, homes such as 0,2, bytes there and elsewhere or ? ?, changes",
            ),
            "ACCOUNT" | "WORLD" | "VM" | "HOST" | "PCPU" | "AFFINITY" | "MARK" => {
                plain(self.named(name), "the arguments that this event has")
            }
            _ => Err("one of RDY's seven events, or one of Tandem's own"),
        }
    }

    fn state(&mut self, own: Option<PcpuId>) -> Option<(Kind, bool)> {
        let (world, to) = (self.world()?, State::of_name(self.0.next()?)?);
        let Some(why) = self.0.next() else {
            return Some((
                Kind::State { world, from: None, to, why: Why::Unknown, on: own },
                false,
            ));
        };
        let from = match self.0.next()? {
            "?" => None,
            name => Some(State::of_name(name)?),
        };
        Some((
            Kind::State { world, from, to, why: Why::of_name(why)?, on: self.pcpu_or(own)? },
            true,
        ))
    }

    fn queued(&mut self, own: Option<PcpuId>) -> Option<Kind> {
        let world = self.world()?;
        let mut rest = self.0.clone();
        let key = rest.next().filter(|k| *k != "LIMIT").map_or(Some(0), |k| k.parse().ok())?;
        if self.0.clone().next().is_some_and(|k| k != "LIMIT") {
            self.0.next();
        }
        let queue = if self.0.clone().next() == Some("LIMIT") {
            self.0.next();
            Queue::Limit(self.number()?)
        } else {
            Queue::Pcpu(self.pcpu_or(own)??)
        };
        Some(Kind::Queued { world, queue, key })
    }

    fn migrate(&mut self, own: Option<PcpuId>) -> Option<Kind> {
        let (world, to, why) = (self.world()?, self.pcpu()?, Move::of_name(self.0.next()?)?);
        Some(Kind::Migrate { world, from: self.pcpu_or(own)?, to, why })
    }

    fn switch(&mut self) -> Option<Kind> {
        Some(Kind::Switch { from: self.maybe_world()?, to: self.maybe_world()? })
    }

    fn guest(&mut self) -> Option<Kind> {
        let (world, how) = (self.world()?, self.0.next()?);
        (how == "ENTER" || how == "LEAVE").then_some(Kind::Guest { world, inside: how == "ENTER" })
    }

    fn home(&mut self) -> Option<Kind> {
        let (world, list) = (self.world()?, self.text()?);
        if list == "ANY" {
            return Some(Kind::Home { world, domains: HOME_ANY });
        }
        Some(Kind::Home { world, domains: bits(&list)? })
    }

    fn memory(&mut self) -> Option<Kind> {
        let (vm, bytes) = (self.number().map(VmId)?, self.number()?);
        let homes = bits(&self.text()?)?;
        let places = match (self.0.next()?, self.0.next()?) {
            ("?", "?") => None,
            (local, remote) => Some((local.parse().ok()?, remote.parse().ok()?)),
        };
        Some(Kind::Memory { vm, bytes, homes, places, migrations: self.number()? })
    }

    fn wait_on(&mut self) -> Option<Kind> {
        Some(Kind::WaitOn { world: self.world()?, event: self.number()?, class: self.text()? })
    }

    fn vtime(&mut self) -> Option<Kind> {
        let world = self.world()?;
        let (stride, from, to, host) =
            (self.number()?, self.number()?, self.number()?, self.number()?);
        Some(Kind::Vtime { world, stride, from, to, host, why: self.text()? })
    }

    fn wake(&mut self) -> Option<Kind> {
        let world = self.world()?;
        let by = match self.0.next()? {
            "?" => Waker::Unknown,
            "IRQ" => Waker::Interrupt,
            w => Waker::World(WorldId(w.parse().ok()?)),
        };
        Some(Kind::Wake { world, by })
    }

    fn idle(&mut self) -> Option<Kind> {
        match self.0.next()? {
            "BEGIN" => Some(Kind::Idle { begins: true }),
            "END" => Some(Kind::Idle { begins: false }),
            "KEPT" => Some(Kind::Kept),
            _ => None,
        }
    }

    fn kick(&mut self) -> Option<Kind> {
        Some(Kind::Kick { target: self.pcpu()?, how: Kick::of_name(self.0.next()?)? })
    }

    fn lost(&mut self) -> Option<Kind> {
        let events = match self.0.next()? {
            "?" => None,
            n => Some(n.parse().ok()?),
        };
        Some(Kind::Lost { events })
    }

    fn named(&mut self, name: &str) -> Option<Kind> {
        Some(match name {
            "ACCOUNT" => Kind::Account {
                vm: self.number().map(VmId)?,
                used_ns: self.number()?,
                entitled: self.number()?,
            },
            "WORLD" => {
                let (world, vm) = (self.world()?, self.number().map(VmId)?);
                Kind::World { world, vm, role: Role::of_name(self.0.next()?)?, name: self.text()? }
            }
            "VM" => {
                Kind::Vm { vm: self.number().map(VmId)?, name: self.text()?, pool: self.text()? }
            }
            "HOST" => Kind::Host { pcpus: self.number()? },
            "PCPU" => {
                let (smt, core) = (self.number()?, self.number()?);
                Kind::Pcpu { place: Place { smt, core, llc: self.number()?, node: self.number()? } }
            }
            "AFFINITY" => {
                let (world, list) = (self.world()?, self.text()?);
                let allowed =
                    if list.is_empty() { units::PcpuSet::empty() } else { list.parse().ok()? };
                Kind::Affinity { world, allowed: Box::new(allowed) }
            }
            _ => Kind::Mark { text: self.text()? },
        })
    }
}
