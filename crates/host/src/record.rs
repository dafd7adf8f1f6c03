//! Records a trace of the running scheduler: empties the rings of all pCPUs into a file of raw
//! records, and makes the trace of it when the recording has ended, with the names of worlds and
//! VMs.
//!
//! It decides nothing. While it records it does as little as it can, for its CPU time is taken from
//! the observed host. Memory: the rings and `spool::KEEP`. Records that find no room in a ring are
//! counted by the kernel's side, exactly. After the kill of a recorder the scheduler stops
//! recording by itself after `LEASE`, and the raw records remain.

mod names;
mod online;
mod rings;
mod spool;

use crate::{
    Accounts, HomesFile, HostError, Names, RUN_DIR, VmHomes, loaded, run_dir,
    view::{Records, monotonic_ns, pinned},
};
use names::Namer;
use online::Online;
use rings::{Born, Rings};
use sched_core::{HostRecord, QUEUED_PARKED, TRACE_RECORDS, World};
use spool::{Merged, Spool};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    path::Path,
    time::{Duration, Instant},
};
use topology::Topology;
use trace::{Event, Kind, Queue, State, Why};
use units::{PcpuId, VmId, WorldId, caps::LIMITERS_MAX};

/// How long the scheduler goes on recording without a renewal.
const LEASE: Duration = Duration::from_secs(1);
/// How often the rings are emptied: at 200,000 records a second of a pCPU three quarters of its
/// ring fill meanwhile.
const READ: Duration = Duration::from_millis(30);
/// And where a ring fills faster than that.
const READ_OFTEN: Duration = Duration::from_millis(2);
/// How often VMs and worlds are looked at for new names, and whether the scheduler is still there.
const NAMES: Duration = Duration::from_millis(500);
/// What a recorder that is killed may take with it.
const FLUSH: Duration = Duration::from_millis(500);
/// Longer than a program of the scheduler takes to write its record after it has seen that a
/// recorder runs.
const IN_FLIGHT: Duration = Duration::from_millis(20);

/// What to record and when to end.
pub struct Options<'a> {
    /// For so long; until stopped if there is none.
    pub duration: Option<Duration>,
    /// Until there are so many bytes of raw records.
    pub most_bytes: u64,
    /// Where they are kept while it records; the file is gone when the trace has been written.
    pub raw: &'a Path,
    /// Whether to stop now.
    pub stop: &'a dyn Fn() -> bool,
    /// Called a few times a second.
    pub progress: &'a dyn Fn(&Recorded),
}

/// What was recorded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Time it took.
    pub time: Duration,
    /// Records of the scheduler that were written.
    pub events: u64,
    /// Records that found no room in a ring; the file says where.
    pub lost: u64,
    /// Bytes of raw records.
    pub bytes: u64,
    /// Why it ended.
    pub end: End,
    /// Bytes of raw records of which the trace has been made since.
    pub merged_bytes: u64,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It goes on.
    #[default]
    Not,
    /// A signal or the command line ended it.
    Stopped,
    /// Its time was over.
    Time,
    /// The file had its size.
    Size,
    /// The scheduler was unloaded.
    Unloaded,
    /// The recorder has left it unfinished.
    Left,
}

/// No other recorder runs meanwhile: a ring has one reader.
fn alone() -> Result<File, HostError> {
    let path = Path::new(RUN_DIR).join("trace.lock");
    let file = run_dir::to_lock(&path)?;
    if crate::live::lock(&file) {
        Ok(file)
    } else {
        Err(HostError::object(
            path.display().to_string(),
            "lock it",
            "another 'tandem trace record' runs",
            "end that first: a ring has one reader",
        ))
    }
}

/// Records of traces that found no room since the scheduler was loaded.
///
/// # Errors
/// `HostError` when no daemon runs.
pub(crate) fn lost_so_far() -> Result<u64, HostError> {
    Ok(rings::Rings::open()?.lost().0)
}

/// Records the scheduler that is loaded now into `out`.
///
/// # Errors
/// `HostError` when no daemon runs, another recorder runs, or a file cannot be written.
pub fn record(
    topology: &Topology,
    out: impl Write,
    options: &Options<'_>,
) -> Result<Recorded, HostError> {
    let accounts = Accounts::open()?;
    let _alone = alone()?;
    let host: Records<HostRecord> = Records::new(&pinned("host_map")?, "host_map", true)?;
    let rings = Rings::open()?;
    let all = (0..topology.pcpus()).map(|i| PcpuId(i as u16)).collect();
    let online = Online::open(host.get(0).clusters as usize, all)?;
    let raw = |e: io::Error| HostError::Unwritten {
        file: options.raw.display().to_string(),
        what: "raw records",
        seen: e.to_string(),
        next: "name another file with -o",
    };
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(options.raw)
        .map_err(raw)?;
    let mut session = Session {
        accounts,
        host,
        rings,
        online,
        spool: Spool::new(file),
        born: vec![],
        lost_before: 0,
        done: Recorded::default(),
    };
    session.trace(false);
    std::thread::sleep(IN_FLIGHT);
    session.rings.clear(); // what a killed recorder has left there
    session.lost_before = session.rings.lost().0;
    let ended = session.head(topology).and_then(|()| session.run(options));
    session.trace(false);
    ended.map_err(|e| e.in_file(options.raw))?;
    let mut done = session.done;
    drop(session);
    let show = |m: &Merged| (options.progress)(&Recorded { merged_bytes: m.bytes, ..done });
    let merged = salvage_with(File::open(options.raw).map_err(raw)?, out, show)?;
    (done.events, done.merged_bytes) = (merged.records, merged.bytes);
    let _ = fs::remove_file(options.raw); // what stays is only in the way
    Ok(done)
}

/// Makes the trace of raw records that a recorder which was killed has left.
///
/// # Errors
/// `HostError` when they are none, or `out` cannot be written.
pub fn salvage(
    raw: impl Read,
    out: impl Write,
    progress: &dyn Fn(&Recorded),
) -> Result<Recorded, HostError> {
    salvage_with(raw, out, |m| progress(&salvaged(m))).map(|m| salvaged(&m))
}

/// What a recorder had recorded that has left these records.
fn salvaged(m: &Merged) -> Recorded {
    let (first, last) = m.span_ns;
    Recorded {
        time: Duration::from_nanos(last.saturating_sub(first)),
        events: m.records,
        lost: m.lost,
        bytes: m.bytes,
        end: End::Left,
        merged_bytes: m.bytes,
    }
}

/// Calls `look` a few times a second.
fn salvage_with(
    raw: impl Read,
    out: impl Write,
    mut look: impl FnMut(&Merged),
) -> Result<Merged, HostError> {
    let mut looked = Instant::now();
    let rarely = |m: &Merged| {
        if looked.elapsed() >= NAMES {
            looked = Instant::now();
            look(m);
        }
    };
    let (merged, mut out) = spool::merge(BufReader::with_capacity(1 << 20, raw), out, rarely)?;
    out.flush().map_err(|e| written(&e))?;
    Ok(merged)
}

fn written(e: &impl std::fmt::Display) -> HostError {
    HostError::Unwritten {
        file: String::new(),
        what: "the trace",
        seen: e.to_string(),
        next: "look at the disk; make the trace of what was written so far by --salvage",
    }
}

struct Session {
    accounts: Accounts,
    host: Records<HostRecord>,
    rings: Rings,
    online: Online,
    spool: Spool<File>,
    born: Vec<Born>,
    /// Lost when it began, by others.
    lost_before: u64,
    done: Recorded,
}

impl Session {
    /// Has the scheduler record for another `LEASE`, or no more.
    fn trace(&self, on: bool) {
        let until = if on { monotonic_ns() + LEASE.as_nanos() as u64 } else { 0 };
        crate::board::set_tracing(&self.host, on, until);
    }

    /// Names and places.
    fn head(&mut self, topology: &Topology) -> Result<(), HostError> {
        let ns = monotonic_ns();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let text =
            format!("recorded by tandem {} on Linux {}", env!("CARGO_PKG_VERSION"), kernel.trim());
        let all = names::host(topology).into_iter().chain([(None, Kind::Mark { text })]);
        let events: Vec<Event> = all.map(|(pcpu, kind)| Event { ns, pcpu, kind }).collect();
        self.spool.events(ns, &events)
    }

    /// Names, and what every world does as the recording begins.
    fn begin(&mut self, namer: &mut Namer) -> Result<(), HostError> {
        let (before, first_ns) = (self.states(), monotonic_ns());
        self.trace(true);
        // A program that was about to change a state before this was seen does not record it: it
        // has done so by then.
        std::thread::sleep(IN_FLIGHT);
        // A world without a change meanwhile was in that state when the recording began; the first
        // record of the others has theirs.
        let after = self.states();
        let mut events = namer.look(&self.accounts, first_ns);
        let same = before.iter().filter(|(id, w)| after.get(id).is_some_and(|a| a.seq == w.seq));
        events.extend(same.flat_map(|(_, w)| told(w, first_ns)));
        events.extend(before.values().filter_map(|w| home(w, first_ns)));
        events.extend(memory(first_ns));
        events.extend(self.online.look(first_ns, |pcpu| self.rings.recorded(pcpu)));
        self.spool.events(first_ns, &events)
    }

    fn run(&mut self, options: &Options<'_>) -> Result<(), HostError> {
        let (begin, mut namer, mut pause) = (Instant::now(), Namer::default(), READ);
        let (mut named, mut flushed) = (begin, begin);
        self.begin(&mut namer)?;
        self.take(&mut namer)?; // what has come meanwhile is not to fill the rings
        while self.done.end == End::Not {
            std::thread::sleep(pause);
            self.trace(true);
            let fullest = self.take(&mut namer)?;
            let ns = monotonic_ns();
            let off = self.online.look(ns, |pcpu| self.rings.recorded(pcpu));
            self.spool.events(ns, &off)?;
            pause = next_pause(pause, fullest);
            self.done.end = self.end(options, begin);
            if named.elapsed() >= NAMES {
                let ns = monotonic_ns();
                self.spool.events(ns, &namer.look(&self.accounts, ns))?;
                self.spool.events(ns, &memory(ns))?;
                named = Instant::now();
                self.count(begin);
                (options.progress)(&self.done);
                if flushed.elapsed() >= FLUSH {
                    self.spool.flush().map_err(|e| written(&e))?;
                    flushed = Instant::now();
                }
                if !runs() && self.done.end == End::Not {
                    self.done.end = End::Unloaded;
                }
            }
        }
        self.trace(false);
        std::thread::sleep(IN_FLIGHT);
        self.take(&mut namer)?;
        let (ns, untold) = (monotonic_ns(), self.rings.lost().1);
        if untold > 0 {
            let events = Some(u32::try_from(untold).unwrap_or(u32::MAX));
            self.spool.events(ns, &[Event { ns, pcpu: None, kind: Kind::Lost { events } }])?;
        }
        self.count(begin);
        self.spool.flush().map_err(|e| written(&e))
    }

    fn end(&self, options: &Options<'_>, begin: Instant) -> End {
        if (options.stop)() {
            End::Stopped
        } else if options.duration.is_some_and(|d| begin.elapsed() >= d) {
            End::Time
        } else if self.spool.bytes() >= options.most_bytes {
            End::Size
        } else {
            End::Not
        }
    }

    fn count(&mut self, begin: Instant) {
        self.done.time = begin.elapsed();
        self.done.lost = self.rings.lost().0 - self.lost_before;
        self.done.bytes = self.spool.bytes();
    }

    /// Sequence number, state and pCPU of each world.
    fn states(&self) -> BTreeMap<u32, World> {
        (1..self.accounts.worlds_len())
            .filter_map(|i| self.accounts.settled(i))
            .map(|w| (w.id, w))
            .collect()
    }

    /// Takes what has come; a world that has just begun is named at once, for it may be gone soon.
    fn take(&mut self, namer: &mut Namer) -> Result<usize, HostError> {
        let (rings, born) = (&self.rings, &mut self.born);
        let before = self.spool.bytes();
        let ns = monotonic_ns();
        let fullest = self.spool.records(ns, |to| rings.take(to, born)).map_err(|e| written(&e))?;
        self.done.events += (self.spool.bytes() - before) / 32;
        if !self.born.is_empty() {
            // A name comes before the events of its world.
            let named = self
                .born
                .drain(..)
                .flat_map(|b| namer.world(&self.accounts, b.world, b.ns.saturating_sub(1)));
            let events: Vec<Event> = named.collect();
            self.spool.events(ns, &events)?;
        }
        Ok(fullest)
    }
}

/// What a world does as a recording begins: its state, the limit that parks it, and whether it is
/// outside its guest.
fn told(w: &World, ns: u64) -> Vec<Event> {
    let Some(to) = State::of_code(u64::from(w.state)) else { return vec![] };
    let (world, on) =
        (WorldId(w.id), u16::try_from(w.last_pcpu).ok().map(PcpuId).filter(|_| to == State::Run));
    let mut kinds = vec![Kind::State { world, from: None, to, why: Why::Told, on }];
    let limit = w.queued_on.checked_sub(QUEUED_PARKED).filter(|l| *l < LIMITERS_MAX as u32);
    if let Some(limit) = limit.and_then(|l| u16::try_from(l).ok()).filter(|_| to == State::Ready) {
        kinds.push(Kind::Queued { world, queue: Queue::Limit(limit), key: 0 });
    }
    if w.outside != 0 {
        kinds.push(Kind::Guest { world, inside: false });
    }
    kinds.into_iter().map(|kind| Event { ns, pcpu: on, kind }).collect()
}

/// The home of a world as a recording begins, also of one that is about to change its state.
fn home(w: &World, ns: u64) -> Option<Event> {
    let kind = Kind::Home { world: WorldId(w.id), domains: w.home };
    (w.home != trace::HOME_ANY).then_some(Event { ns, pcpu: None, kind })
}

/// Where the memory of VMs with homes is, as the daemon's last round has found it.
fn memory(ns: u64) -> Vec<Event> {
    let file = Names::read().ok().and_then(|names| HomesFile::read(names.daemon));
    let of = |vm: &VmHomes| {
        let memory = vm.memory();
        let homes = memory.homes.iter().fold(0, |bits, node| bits | 1 << (node & 63));
        let kind = Kind::Memory {
            vm: VmId(u16::try_from(vm.id).ok()?),
            bytes: memory.bytes,
            homes,
            places: memory.places,
            migrations: memory.migrations,
        };
        Some(Event { ns, pcpu: None, kind })
    };
    file.iter().flat_map(|file| &file.vms).filter_map(of).collect()
}

fn runs() -> bool {
    loaded::is_ours(&loaded::name())
}

/// So that the fullest ring, which had so many records after this pause, is about three quarters
/// full after the next.
fn next_pause(pause: Duration, fullest: usize) -> Duration {
    let wanted = TRACE_RECORDS / 4 * 3;
    let next = pause.saturating_mul(wanted) / u32::try_from(fullest.max(1)).unwrap_or(u32::MAX);
    next.clamp(READ_OFTEN, READ)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched_core::{STATE_READY, STATE_RUN, STATE_WAIT};

    #[test]
    fn a_recording_begins_with_who_is_held_back_and_who_is_outside_its_guest() {
        let kinds = |w: World| told(&w, 5).into_iter().map(|e| e.kind).collect::<Vec<_>>();
        let state = |to, on| Kind::State { world: WorldId(3), from: None, to, why: Why::Told, on };
        let parked =
            World { id: 3, state: STATE_READY, queued_on: QUEUED_PARKED + 2, ..World::ZERO };
        let limit = Kind::Queued { world: WorldId(3), queue: Queue::Limit(2), key: 0 };
        assert_eq!(kinds(parked), [state(State::Ready, None), limit]);
        let in_qemu = World { id: 3, state: STATE_RUN, last_pcpu: 1, outside: 1, ..World::ZERO };
        let guest = Kind::Guest { world: WorldId(3), inside: false };
        assert_eq!(kinds(in_qemu), [state(State::Run, Some(PcpuId(1))), guest]);
        let of = |home| super::home(&World { id: 3, home, ..World::ZERO }, 5).map(|e| e.kind);
        let two = Kind::Home { world: WorldId(3), domains: 2 };
        assert_eq!([2, trace::HOME_ANY].map(of), [Some(two), None]);
        let queued = World { id: 3, state: STATE_READY, queued_on: 7, ..World::ZERO };
        assert_eq!(
            kinds(queued),
            [state(State::Ready, None)],
            "at a pCPU, which its next record tells"
        );
        let asleep = World { id: 3, state: STATE_WAIT, ..World::ZERO };
        assert_eq!(kinds(asleep), [state(State::Wait, None)]);
    }

    #[test]
    fn what_was_salvaged_has_the_time_that_was_recorded() {
        let seen =
            salvaged(&Merged { span_ns: (5, 1_000_000_005), records: 7, ..Merged::default() });
        assert_eq!((seen.time, seen.events, seen.end), (Duration::from_secs(1), 7, End::Left));
    }

    #[test]
    fn a_ring_that_fills_fast_is_emptied_more_often_and_half_a_ring_never_fills_at_50_000_records_a_second()
     {
        assert_eq!(
            (next_pause(READ, 0), next_pause(READ, 100), next_pause(READ_OFTEN, 0)),
            (READ, READ, READ)
        );
        assert_eq!(next_pause(READ, TRACE_RECORDS as usize), READ * 3 / 4);
        assert_eq!(next_pause(READ_OFTEN, TRACE_RECORDS as usize), READ_OFTEN);
        assert!(50_000 * READ.as_millis() as u64 / 1000 < u64::from(TRACE_RECORDS) / 2);
    }
}
