//! The scheduler's records, for the daemon and other processes: maps of the kernel, mapped into
//! memory.
#![allow(unsafe_code)]

use crate::{HostError, loaded};
use libbpf_rs::{MapCore, MapHandle};
use sched_core::{Cluster, HostRecord, Limiter, Node, Pcpu, Vm, World};
use std::{
    marker::PhantomData,
    os::fd::AsRawFd,
    path::Path,
    ptr,
    sync::atomic::{Ordering, fence},
};
use units::{PcpuId, PcpuSet};

/// Where the daemon pins the maps that `tandem top` and `tandem plan` read.
pub const PIN_DIR: &str = "/sys/fs/bpf/tandem";

/// An array map mapped into memory: `len` records of `T`.
pub(crate) struct Records<T> {
    base: *mut u8,
    bytes: usize,
    stride: usize,
    len: usize,
    /// The kernel's number of the map; 0 if it gives none.
    id: u32,
    _record: PhantomData<T>,
}

impl<T: Copy> Records<T> {
    /// Maps `map`; `write` asks for a shared writable mapping.
    pub(crate) fn new(
        map: &impl MapCore,
        name: &str,
        write: bool,
    ) -> Result<Records<T>, HostError> {
        let bad = |seen: String| {
            HostError::object(
                format!("map {name}"),
                "map it into memory",
                seen,
                "run tandem of the same version as the daemon",
            )
        };
        let stride = (map.value_size() as usize).next_multiple_of(8);
        if map.value_size() as usize != size_of::<T>() {
            return Err(bad(format!(
                "records of {} bytes, allowed {}",
                map.value_size(),
                size_of::<T>()
            )));
        }
        let len = map.max_entries() as usize;
        let bytes = (stride * len).next_multiple_of(4096);
        let protection = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        // SAFETY: a fresh mapping of a whole map; the result is checked, and unmapped in drop.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(bad(std::io::Error::last_os_error().to_string()));
        }
        let id = map.info().map_or(0, |info| info.info.id);
        Ok(Records { base: base.cast(), bytes, stride, len, id, _record: PhantomData })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, i: usize) -> *mut T {
        assert!(i < self.len, "record {i} of {}", self.len);
        // SAFETY: within the mapping by the line above.
        unsafe { self.base.add(i * self.stride).cast() }
    }

    /// A copy of one record; fields may be torn among each other, never within.
    pub(crate) fn get(&self, i: usize) -> T {
        // SAFETY: `at` is within the mapping, aligned by the map's layout; T is plain integers.
        unsafe { ptr::read_volatile(self.at(i)) }
    }

    /// Address of one record, for the daemon's own fields.
    pub(crate) fn pointer(&self, i: usize) -> *mut T {
        self.at(i)
    }

    /// Overwrites one record that nothing else uses.
    pub(crate) fn set(&self, i: usize, value: T) {
        // SAFETY: as in `get`; only called on writable mappings by the daemon.
        unsafe { ptr::write_volatile(self.at(i), value) }
    }
}

impl<T> Drop for Records<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// The accounts of the scheduler that is loaded now.
pub struct Accounts {
    pub(crate) host: Records<HostRecord>,
    pub(crate) pcpus: Records<Pcpu>,
    pub(crate) vms: Records<Vm>,
    pub(crate) worlds: Records<World>,
    pub(crate) nodes: Records<Node>,
    pub(crate) limiters: Records<Limiter>,
}

impl Accounts {
    /// Opens what a running daemon has pinned.
    ///
    /// # Errors
    /// `HostError::Object` when no daemon runs or it is of another version.
    pub fn open() -> Result<Accounts, HostError> {
        ours(&loaded::name())?;
        Ok(Accounts {
            host: Records::new(&pinned("host_map")?, "host_map", false)?,
            pcpus: Records::new(&pinned("pcpus_map")?, "pcpus_map", false)?,
            vms: Records::new(&pinned("vms_map")?, "vms_map", false)?,
            worlds: Records::new(&pinned("worlds_map")?, "worlds_map", false)?,
            nodes: Records::new(&pinned("nodes_map")?, "nodes_map", false)?,
            limiters: Records::new(&pinned("limiters_map")?, "limiters_map", false)?,
        })
    }

    /// Checks that these are still the accounts of the scheduler that is loaded.
    ///
    /// # Errors
    /// `HostError::Object` when it has been ended, or loaded anew.
    pub(crate) fn check(&self) -> Result<(), HostError> {
        ours(&loaded::name())?;
        let now = pinned("host_map")?.info().map_or(0, |info| info.info.id);
        same(self.host.id, now)
    }

    /// The host's record.
    #[must_use]
    pub fn host(&self) -> HostRecord {
        self.host.get(0)
    }

    /// Record of a pCPU.
    #[must_use]
    pub fn pcpu(&self, i: usize) -> Pcpu {
        self.pcpus.get(i)
    }

    /// Record of a VM.
    #[must_use]
    pub fn vm(&self, i: usize) -> Vm {
        self.vms.get(i)
    }

    /// VMs whose worlds have woken a VM's, and how often, since the last call; of the daemon alone.
    /// What is counted between its two steps is lost.
    pub(crate) fn take_talks(&self, vm: u32) -> Vec<(u32, u64)> {
        let record = self.vms.pointer(vm as usize);
        let seen = self.vm(vm as usize);
        // SAFETY: fields of a record within the mapping, which is writable as the daemon's are,
        // plain and aligned.
        unsafe {
            ptr::write_volatile(&raw mut (*record).talks, [0; _]);
            ptr::write_volatile(&raw mut (*record).talks_with, [0; _]);
        }
        seen.talks().collect()
    }

    fn is_live(&self, i: usize) -> bool {
        let record = self.worlds.pointer(i);
        // SAFETY: a field of a record within the mapping, plain and aligned.
        let flags = unsafe { ptr::read_volatile(&raw const (*record).flags) };
        flags & sched_core::WORLD_LIVE != 0
    }

    /// A consistent copy of a live world, with the time of its present state added up to `now_ns`.
    #[must_use]
    pub fn world(&self, i: usize, now_ns: u64) -> Option<World> {
        self.settled(i).map(|w| brought_up(w, now_ns))
    }

    /// CPU time in ns until `now_ns` that a world which runs has lost to other threads of its core
    /// since it was charged last, where it is charged so many thousandths on a shared core.
    pub(crate) fn losing_ns(&self, w: &World, now_ns: u64, shared_charge: u64) -> u64 {
        if self.host().smt < 2 || w.state != sched_core::STATE_RUN || w.last_pcpu < 0 {
            return 0;
        }
        let p = self.pcpu(w.last_pcpu as usize);
        p.lost_until(&self.pcpu(p.core_first as usize), shared_charge, now_ns)
    }

    /// A consistent copy of a live world: its time in each state without the present stay.
    #[must_use]
    pub fn settled(&self, i: usize) -> Option<World> {
        if !self.is_live(i) {
            return None; // after a fork storm most slots are empty: one load for each
        }
        for _ in 0..1000 {
            let first = self.worlds.get(i);
            fence(Ordering::Acquire);
            let second = self.worlds.get(i);
            if first.seq % 2 == 0 && first.seq == second.seq {
                return (second.flags & sched_core::WORLD_LIVE != 0 && second.born_ns != 0)
                    .then_some(second);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// The nodes of the plan in force, copied between two of its divisions, and its generation;
    /// `None` if none is in force or the scheduler was just dividing.
    #[must_use]
    pub fn plan(&self) -> Option<(u64, Vec<Node>)> {
        let before = self.host();
        let (first, count) = ((before.plan >> 32) as usize, (before.plan as u32) as usize);
        if count == 0 || first + count > self.nodes.len() {
            return None;
        }
        let nodes = (first..first + count).map(|i| self.nodes.get(i)).collect();
        let after = self.host();
        let same = before.plan == after.plan
            && before.planned_ns == after.planned_ns
            && before.generation == after.generation;
        // A division that has begun meanwhile is seen by its time.
        let done = before.plan_phase == sched_core::PLAN_DONE && before.dividing == before.plan;
        (same && done).then_some((after.generation, nodes))
    }

    /// Slots of worlds; slot 0 stands for no world.
    pub(crate) fn world_slots(&self) -> usize {
        self.worlds.len()
    }

    /// Slots of worlds that were ever in use end here.
    #[must_use]
    pub fn worlds_len(&self) -> usize {
        (self.host().worlds as usize).min(self.worlds.len())
    }
}

/// Checks that the loaded scheduler, of this name, is ours.
fn ours(name: &str) -> Result<(), HostError> {
    match name {
        "" => Err(unreadable("no scheduler is loaded")),
        _ if loaded::is_ours(name) => Ok(()),
        other => Err(unreadable(format!("{other} is loaded"))),
    }
}

/// Checks that the map that was opened is the one that is pinned now.
fn same(opened: u32, now: u32) -> Result<(), HostError> {
    if opened == now {
        return Ok(());
    }
    Err(unreadable("it was loaded anew meanwhile"))
}

fn unreadable(seen: impl ToString) -> HostError {
    HostError::object("scheduler", "read its accounts", seen, "start 'tandem run' first")
}

fn brought_up(mut w: World, now_ns: u64) -> World {
    let more = now_ns.saturating_sub(w.state_since_ns);
    w.time_ns[(w.state & 7) as usize] += more;
    w.state_since_ns += more;
    if w.state == sched_core::STATE_RUN {
        w.used_ns += now_ns.saturating_sub(w.run_since_ns);
    }
    w
}

/// A map that the daemon has pinned.
pub(crate) fn pinned(name: &str) -> Result<MapHandle, HostError> {
    MapHandle::from_pinned_path(Path::new(PIN_DIR).join(name)).map_err(|e| {
        let next = "start 'tandem run' of this version first";
        HostError::object(format!("{PIN_DIR}/{name}"), "open it", e, next)
    })
}

/// pCPUs that are on line, by all clusters.
pub(crate) fn present(clusters: impl Iterator<Item = Cluster>) -> PcpuSet {
    clusters
        .flat_map(|c| {
            let on = (0..64).filter(move |bit| c.present >> bit & 1 == 1);
            on.map(move |bit| PcpuId(c.pcpu[bit]))
        })
        .collect()
}

/// CLOCK_MONOTONIC in ns: the clock of the scheduler's records.
#[must_use]
pub(crate) fn monotonic_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_those_of_the_scheduler_that_is_loaded() {
        let said = |e: Result<(), HostError>| e.expect_err("not ours").to_string();
        assert!(ours("tandem").is_ok() && same(7, 7).is_ok());
        let none = "scheduler: cannot read its accounts: no scheduler is loaded; start 'tandem \
            run' first";
        assert_eq!(said(ours("")), none);
        assert!(said(ours("scx_simple")).contains(": scx_simple is loaded; "));
        assert!(said(same(7, 8)).contains(": it was loaded anew meanwhile; "));
        assert!(same(7, 8).unwrap_err().lacks_daemon());
    }
}
