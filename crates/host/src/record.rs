//! Records a trace of the running scheduler: reads the kernel's ring buffer, adds the names of worlds and VMs, writes the file.
//!
//! It decides nothing. Memory: the ring buffer and `SETTLE` of records. What finds no room is counted by the kernel's side, exactly.
//! Whoever records is killed: the scheduler stops recording by itself after `LEASE`.

mod names;

use crate::{
    Accounts, HostError, RUN_DIR,
    view::{Records, monotonic_ns, pinned},
};
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use names::Namer;
use sched_core::{HostRecord, TraceLost};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};
use topology::Topology;
use trace::{Event, Kind, RAW_BYTES, State, Why, Writer};
use units::{PcpuId, WorldId};

/// How long the scheduler goes on recording unless it is told again.
const LEASE: Duration = Duration::from_secs(1);
/// How often the ring buffer is emptied: an eighth of it fills meanwhile on a busy host of 64 pCPUs.
const READ: Duration = Duration::from_millis(20);
/// Records of different pCPUs come in the order in which they were put into the ring buffer; by the clock they are sorted within
/// this time. A pCPU can be interrupted between both.
const SETTLE_NS: u64 = 50_000_000;
/// How often VMs and worlds are looked at for new names.
const NAMES: Duration = Duration::from_millis(500);

/// What to record and when to end.
pub struct Options<'a> {
    /// For so long; until stopped if there is none.
    pub duration: Option<Duration>,
    /// Until the file has so many bytes.
    pub most_bytes: u64,
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
    /// Records that found no room in the ring buffer; the file says where.
    pub lost: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Why it ended.
    pub end: End,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It goes on.
    #[default]
    Not,
    /// It was told to.
    Stopped,
    /// Its time was over.
    Time,
    /// The file had its size.
    Size,
    /// The scheduler was unloaded.
    Unloaded,
}

/// Counts what is written.
struct Counted<W> {
    to: W,
    bytes: Rc<RefCell<u64>>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.to.write(buf)?;
        *self.bytes.borrow_mut() += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The ring buffer and the counters of what it could not hold, as the daemon has pinned them.
struct Ring {
    buffer: RingBuffer<'static>,
    came: Rc<RefCell<Vec<[u8; RAW_BYTES]>>>,
    lost: Records<TraceLost>,
}

impl Ring {
    fn open() -> Result<Ring, HostError> {
        let bad =
            |e: libbpf_rs::Error| HostError::object("trace ring buffer", "read it", e, "run tandem of the same version as the daemon");
        let came = Rc::new(RefCell::new(vec![]));
        let queue = Rc::clone(&came);
        // The map lives as long as the ring buffer: to the end of the process.
        let map: &'static MapHandle = Box::leak(Box::new(pinned("trace_ring")?));
        let take = move |bytes: &[u8]| {
            queue.borrow_mut().extend(<[u8; RAW_BYTES]>::try_from(bytes));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(map, take).map_err(bad)?;
        let buffer = builder.build().map_err(bad)?;
        let ring = Ring { buffer, came, lost: Records::new(&pinned("trace_lost_map")?, "trace_lost_map", false)? };
        ring.take(); // what somebody who was killed has left there
        Ok(ring)
    }

    fn take(&self) -> Vec<[u8; RAW_BYTES]> {
        let _ = self.buffer.consume();
        self.came.take()
    }

    /// Lost so far, and of these so many that no record tells of yet.
    fn lost(&self) -> (u64, u64) {
        let all = (0..self.lost.len()).map(|i| self.lost.get(i));
        all.fold((0, 0), |sum, l| (sum.0 + l.lost, sum.1 + l.lost.saturating_sub(l.told)))
    }
}

/// Nobody else records meanwhile: the ring buffer has one reader.
fn alone() -> Result<File, HostError> {
    let path = Path::new(RUN_DIR).join("trace.lock");
    let bad = |seen: String, next: &str| HostError::object(path.display().to_string(), "lock it", seen, next);
    let file = fs::create_dir_all(RUN_DIR).and_then(|()| File::create(&path)).map_err(|e| bad(e.to_string(), "run it as root"))?;
    if crate::live::lock(&file) {
        Ok(file)
    } else {
        Err(bad("another 'tandem trace record' runs".to_owned(), "end that first: a ring buffer has one reader"))
    }
}

/// Records the scheduler that is loaded now into `out`.
///
/// # Errors
/// `HostError` when no daemon runs, somebody else records, or `out` cannot be written.
pub fn record(topology: &Topology, out: impl Write, options: &Options<'_>) -> Result<Recorded, HostError> {
    let accounts = Accounts::open()?;
    let _alone = alone()?;
    let host: Records<HostRecord> = Records::new(&pinned("host_map")?, "host_map", true)?;
    let bytes = Rc::new(RefCell::new(0));
    let writer = Writer::new(Counted { to: out, bytes: Rc::clone(&bytes) }).map_err(written)?;
    let ring = Ring::open()?;
    let before = ring.lost();
    let mut session =
        Session { accounts, host, ring, writer, bytes, before, done: Recorded::default(), waiting: BTreeMap::new(), seq: 0, newest_ns: 0 };
    session.head(topology)?;
    let ended = session.run(options);
    session.trace(false);
    ended?;
    session.finish()
}

fn written(e: trace::WriteError) -> HostError {
    HostError::object("trace", "write it", e, "look at the disk; what was written so far can be read")
}

struct Session<W: Write> {
    accounts: Accounts,
    host: Records<HostRecord>,
    ring: Ring,
    writer: Writer<Counted<W>>,
    bytes: Rc<RefCell<u64>>,
    /// Lost when it began, by others.
    before: (u64, u64),
    done: Recorded,
    /// Events by time and the order in which they came, until they are old enough.
    waiting: BTreeMap<(u64, u64), Event>,
    seq: u64,
    newest_ns: u64,
}

impl<W: Write> Session<W> {
    /// Has the scheduler record for another `LEASE`, or no more.
    fn trace(&self, on: bool) {
        let until = if on { monotonic_ns() + LEASE.as_nanos() as u64 } else { 0 };
        crate::board::set_tracing(&self.host, on, until);
    }

    fn push(&mut self, ns: u64, pcpu: Option<PcpuId>, kind: Kind) -> Result<(), HostError> {
        self.writer.push(&Event { ns, pcpu, kind }).map_err(written)
    }

    /// Names, places, and what every world does as the recording begins.
    fn head(&mut self, topology: &Topology) -> Result<(), HostError> {
        let ns = monotonic_ns();
        for (pcpu, kind) in names::host(topology) {
            self.push(ns, pcpu, kind)?;
        }
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let text = format!("recorded by tandem {} on Linux {}", env!("CARGO_PKG_VERSION"), kernel.trim());
        self.push(ns, None, Kind::Mark { text })
    }

    fn run(&mut self, options: &Options<'_>) -> Result<(), HostError> {
        let (begin, mut namer) = (Instant::now(), Namer::default());
        let before = self.states();
        self.trace(true);
        // Who did not change meanwhile was in that state when the recording began; of the others their first record tells.
        let after = self.states();
        let ns = monotonic_ns();
        for event in namer.look(&self.accounts, ns) {
            self.writer.push(&event).map_err(written)?;
        }
        for (id, (seq, state, pcpu)) in &before {
            let Some(to) = after.get(id).filter(|a| a.0 == *seq).and_then(|_| State::of_code(u64::from(*state))) else { continue };
            let on = u16::try_from(*pcpu).ok().map(PcpuId).filter(|_| to == State::Run);
            self.push(ns, on, Kind::State { world: WorldId(*id), from: None, to, why: Why::Told, on })?;
        }
        let mut named = Instant::now();
        loop {
            std::thread::sleep(READ);
            self.trace(true);
            self.take(&mut namer)?;
            if named.elapsed() >= NAMES {
                namer.look(&self.accounts, self.newest_ns).into_iter().for_each(|e| self.wait(e));
                named = Instant::now();
                self.count(begin);
                (options.progress)(&self.done);
            }
            self.settle(self.newest_ns.saturating_sub(SETTLE_NS))?;
            self.done.end = self.end(options, begin);
            if self.done.end != End::Not {
                break;
            }
        }
        self.trace(false);
        std::thread::sleep(READ);
        self.take(&mut namer)?;
        self.count(begin);
        Ok(())
    }

    fn end(&self, options: &Options<'_>, begin: Instant) -> End {
        let ops = || fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
        if (options.stop)() {
            End::Stopped
        } else if options.duration.is_some_and(|d| begin.elapsed() >= d) {
            End::Time
        } else if *self.bytes.borrow() >= options.most_bytes {
            End::Size
        } else if ops().trim() != "tandem" {
            End::Unloaded
        } else {
            End::Not
        }
    }

    fn count(&mut self, begin: Instant) {
        self.done.time = begin.elapsed();
        self.done.lost = self.ring.lost().0 - self.before.0;
        self.done.bytes = *self.bytes.borrow();
    }

    /// Sequence number, state and pCPU of each world.
    fn states(&self) -> BTreeMap<u32, (u64, u32, i32)> {
        let worlds = (1..self.accounts.worlds_len()).filter_map(|i| self.accounts.settled(i));
        worlds.map(|w| (w.id, (w.seq, w.state, w.last_pcpu))).collect()
    }

    /// Takes what has come; a world that has just begun is named at once, for it may be gone soon.
    fn take(&mut self, namer: &mut Namer) -> Result<(), HostError> {
        for raw in self.ring.take() {
            let bad = |e| HostError::object("trace ring buffer", "read a record", e, "run tandem of the same version as the daemon");
            let event = trace::from_raw(&raw).map_err(bad)?;
            self.done.events += u64::from(!matches!(event.kind, Kind::Lost { .. }));
            self.newest_ns = self.newest_ns.max(event.ns);
            if let Kind::State { world, why: Why::Born, .. } = event.kind {
                namer.world(&self.accounts, world.0, event.ns).into_iter().for_each(|e| self.wait(e));
            }
            self.wait(event);
        }
        Ok(())
    }

    fn wait(&mut self, event: Event) {
        self.seq += 1;
        self.waiting.insert((event.ns, self.seq), event);
    }

    /// Writes what is older than `ns`.
    fn settle(&mut self, ns: u64) -> Result<(), HostError> {
        let later = self.waiting.split_off(&(ns, 0));
        for event in std::mem::replace(&mut self.waiting, later).values() {
            self.writer.push(event).map_err(written)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Recorded, HostError> {
        self.settle(u64::MAX)?;
        let untold = self.ring.lost().1;
        if untold > 0 {
            self.push(self.newest_ns, None, Kind::Lost { events: Some(u32::try_from(untold).unwrap_or(u32::MAX)) })?;
        }
        let Session { writer, bytes, mut done, .. } = self;
        writer.finish().map_err(written)?.flush().map_err(|e| written(e.into()))?;
        done.bytes = *bytes.borrow();
        Ok(done)
    }
}
