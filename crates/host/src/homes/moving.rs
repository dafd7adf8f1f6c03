//! Memory that follows: how much of it when, between two rounds of the planner. A thread of its own
//! moves the pages, one call after the other: the kernel may let a call wait for all pCPUs, and the
//! daemon has other work. It comes after all ordinary threads.

use super::{
    Homes,
    guest::Guest,
    pages::{self, Pages},
    policy::{self, Bound},
};
use crate::{discover::Roots, live, slots::Slots, view::monotonic_ns};
use numa::{ClientId, Order};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader},
    mem,
    ops::Range,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// A node keeps this part of its memory free of what follows.
const RESERVE: u64 = 16;
/// Longest time for one client before it is another's turn, but for the last batch.
const TURN_NS: u64 = 25_000_000;
/// Time between two looks at what is due.
const LOOK: Duration = Duration::from_millis(20);

/// A process and its start.
pub(super) type Process = (i32, u64);

/// Memory of a client that is to follow until the next round.
#[derive(Clone)]
pub(super) struct Job {
    client: ClientId,
    process: Process,
    guest: Arc<Guest>,
    part: Range<u64>,
    /// The kernel's number of the home.
    node: u32,
    pub(super) bytes: u64,
    moved: u64,
    /// Bytes looked at in a row that were at home already.
    passed: u64,
}

/// What the daemon and the thread share.
#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    /// Counts the sets of jobs.
    round: u64,
    begin_ns: u64,
    period_ns: u64,
    ended: bool,
    /// Guests of which it is to be found out what binds their memory, and what was found.
    asked: Vec<(Process, Arc<Guest>)>,
    bound: Vec<(Process, Arc<Guest>, Bound)>,
    /// Bytes that have followed since the daemon looked.
    moved: BTreeMap<ClientId, u64>,
    /// Jobs of which nothing moved, and why.
    failed: Vec<(Job, String)>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is moved.
pub(super) struct Moving {
    shared: Arc<Shared>,
    /// VMs of which it was printed that some memory did not move.
    stuck: BTreeSet<Process>,
}

impl Moving {
    /// Nothing is to follow yet.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn new(roots: &Roots) -> io::Result<Moving> {
        let shared = Arc::<Shared>::default();
        let (of_thread, proc_fs) = (Arc::clone(&shared), roots.proc_fs.clone());
        let run = move || {
            live::come_last();
            work(&of_thread, &proc_fs);
        };
        thread::Builder::new().name("tandem-memory".to_owned()).spawn(run)?;
        Ok(Moving { shared, stuck: BTreeSet::new() })
    }

    /// Asks what binds a guest's memory.
    pub(super) fn ask(&self, process: Process, guest: &Arc<Guest>) {
        let mut state = self.shared.lock();
        state.asked.retain(|(other, _)| *other != process);
        state.asked.push((process, Arc::clone(guest)));
        self.shared.changed.notify_one();
    }

    /// What was found since the last call, and of which mappings.
    pub(super) fn bound(&self) -> Vec<(Process, Arc<Guest>, Bound)> {
        mem::take(&mut self.shared.lock().bound)
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        // The daemon does not wait for it: a call of the kernel may take seconds.
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
    }
}

/// Moves what is due until the end, client by client; finds out what binds memory first.
fn work(shared: &Shared, proc_fs: &Path) {
    let mut pages = Pages::default();
    let mut next = 0;
    let mut state = shared.lock();
    while !state.ended {
        if let Some((process, guest)) = state.asked.pop() {
            drop(state);
            let maps = File::open(proc_fs.join(format!("{}/numa_maps", process.0)));
            // What cannot be read now is asked again later.
            let bound = maps.ok().and_then(|m| policy::bound(BufReader::new(m), &guest));
            state = shared.lock();
            state.bound.extend(bound.map(|bound| (process, guest, bound)));
            continue;
        }
        let Some((i, due)) = state.due(next) else {
            let wait = shared.changed.wait_timeout(state, LOOK);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        };
        next = i + 1;
        let (job, round) = (state.jobs[i].clone(), state.round);
        drop(state);
        let at = (job.client, job.part.clone());
        let until = monotonic_ns() + TURN_NS;
        let done = pages.move_to(job.process.0, &job.guest, at, (job.node, due), until);
        state = shared.lock();
        let bytes = *done.as_ref().unwrap_or(&0);
        *state.moved.entry(job.client).or_default() += bytes;
        if state.round == round {
            let of = &mut state.jobs[i];
            of.moved += bytes;
            of.passed = if bytes == 0 { of.passed + pages::PASSED } else { 0 };
            // What fails, or has been passed by whole, comes again with the next round.
            if done.is_err() || of.passed >= of.part.end - of.part.start {
                of.bytes = 0;
            }
        }
        let failed = done.is_err();
        state.failed.extend(done.err().map(|seen| (job, seen)));
        if bytes == 0 && !failed {
            // Looking costs too: memory that is nearly all at home is searched in small steps.
            let wait = shared.changed.wait_timeout(state, LOOK);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// A job of which some is due, from the number `from` on, and how many bytes.
    fn due(&self, from: usize) -> Option<(usize, u64)> {
        let part = monotonic_ns().saturating_sub(self.begin_ns).min(self.period_ns);
        let due = |i: usize| {
            let job = &self.jobs[i];
            let all = u128::from(job.bytes) * u128::from(part) / u128::from(self.period_ns.max(1));
            (i, (all as u64).saturating_sub(job.moved))
        };
        let count = self.jobs.len();
        (0..count).map(|i| due((from + i) % count)).find(|(_, due)| *due >= pages::SIZE)
    }
}

impl Homes {
    /// Orders what is to follow until the next round.
    pub(super) fn order(&mut self, roots: &Roots) {
        let jobs = self.jobs(roots);
        let mut state = self.moving.shared.lock();
        state.jobs = jobs;
        state.round += 1;
        state.begin_ns = monotonic_ns();
        state.period_ns = self.planner.knobs().period_ms * 1_000_000;
        self.moving.shared.changed.notify_one();
    }

    /// What is to follow until the next round: no more than the nodes have room for.
    pub(super) fn jobs(&self, roots: &Roots) -> Vec<Job> {
        let mut room: Vec<u64> = self
            .nodes
            .iter()
            .map(|n| {
                let free = topology::free_kib(&roots.sys, n.kernel).map_or(0, |kib| kib * 1024);
                free.saturating_sub(n.memory / RESERVE)
            })
            .collect();
        // Which pages are hot is not known: none is moved at once.
        let capped = |order: Order| {
            let room = &mut room[order.to as usize];
            let bytes = order.cold.min(*room);
            *room -= bytes;
            (order, bytes)
        };
        // Memory that is bound takes no part of the rate, nor of the room.
        let moves = |id: ClientId| self.vms.get(&id.vm).is_some_and(super::Homed::is_free);
        let orders = self.planner.memory_orders_of(moves).into_iter();
        let orders: Vec<_> = orders.map(capped).collect();
        let job = |(order, bytes): &(Order, u64)| {
            let vm = self.vms.get(&order.client.vm)?;
            let part = vm.parts.get(order.client.part as usize)?;
            Some(Job {
                client: order.client,
                process: (vm.pid, vm.started),
                guest: Arc::clone(&vm.guest),
                part: vm.memory(part),
                node: self.nodes.get(order.to as usize)?.kernel,
                bytes: *bytes,
                moved: 0,
                passed: 0,
            })
        };
        orders.iter().filter_map(job).filter(|j| j.bytes > 0).collect()
    }

    /// Takes down what has followed, and prints what did not, once for each VM.
    pub(super) fn followed(&mut self, slots: &Slots, say: &dyn Fn(&str)) {
        // The thread comes after all others: one that holds the lock is not waited for.
        let Ok(mut state) = self.moving.shared.state.try_lock() else { return };
        let moved = mem::take(&mut state.moved);
        let failed = mem::take(&mut state.failed);
        drop(state);
        for (client, bytes) in moved {
            let vm = self.vms.get_mut(&client.vm);
            if let Some(part) = vm.and_then(|vm| vm.parts.get_mut(client.part as usize)) {
                part.moved += bytes;
            }
        }
        for (job, seen) in failed {
            if self.moving.stuck.insert(job.process) {
                let found = slots.found().find(|f| f.pid == job.process.0);
                say(&format!(
                    "VM {}: some of its memory does not follow to node {}: {seen}; pages that \
                        devices or other processes have stay where they are",
                    found.map_or("?", |f| &f.name),
                    job.node
                ));
            }
        }
    }
}
