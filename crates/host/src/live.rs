//! Loads and attaches the scheduler and carries the daemon's few calls into it.
#![allow(unsafe_code)]

use crate::{
    Accounts, HostError, PIN_DIR, threads,
    view::{self, Records, monotonic_ns},
};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, OpenObject, ProgramInput, RingBuffer, RingBufferBuilder,
    btf::{Btf, types::Var},
    skel::{OpenSkel, Skel, SkelBuilder},
};
use sched_core::{Cluster, HostRecord, Knobs, Vm};
use std::{
    cell::RefCell,
    fs,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::DirBuilderExt,
    },
    path::Path,
    rc::Rc,
    time::Duration,
};
use topology::Topology;
use units::{PcpuId, PcpuSet};

mod trial;
pub(crate) use trial::{Refused, trial};

mod skeleton {
    #![allow(missing_docs, clippy::all, clippy::pedantic)]
    include!(concat!(env!("OUT_DIR"), "/tandem.skel.rs"));
}
pub(crate) use skeleton::TandemMaps;
use skeleton::{TandemSkel, TandemSkelBuilder};

/// Puts this process before all other host tasks: it uses little, and what it plans is waited for.
pub(crate) fn come_first() {
    const MOST: i32 = -20;
    // SAFETY: changes this process's own nice value; where that is refused it is only slower.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, MOST) };
}

/// Gives this thread, and those that it starts, a lower priority than ordinary host tasks: nothing
/// waits for its work.
pub(crate) fn come_last() {
    const BEHIND: i32 = 10;
    // SAFETY: changes the nice value of the calling thread, which Linux keeps for each; raising it
    // is always allowed.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, BEHIND) };
}

/// Locks a file; false if another process has.
pub(crate) fn lock(file: &fs::File) -> bool {
    // SAFETY: a descriptor that is open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Virtual time of an empty host (`V_START` in sched/law/share.h).
const V_START: u64 = 1 << 50;

/// Bit of the kernel's exit code that asks for a fresh load (`SCX_ECODE_ACT_RESTART`).
const ACT_RESTART: u64 = 1 << 48;

/// What the scheduler tells the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A thread of process `tgid` took a vCPU's name.
    Named {
        /// The process.
        tgid: i32,
    },
    /// The kernel ended the scheduler.
    Gone,
    /// A pCPU has come on line or gone off line.
    Pcpus,
}

/// Why the kernel ended the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitReason {
    /// The kernel's kind; 0 when it still runs.
    pub kind: i32,
    /// The kernel asks for a fresh load: pCPUs have come or gone.
    pub restart: bool,
    /// The kernel's words.
    pub text: String,
}

/// The plan's word on one VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// Entitlement in 2^-20 pCPU.
    pub weight: u64,
    /// It competes within a few pCPUs.
    pub held: bool,
    /// Added to its virtual time, in ns.
    pub shift: i64,
}

/// The scheduler, loaded and, after `attach`, attached. Dropping it gives every task back to the
/// kernel's own scheduler.
pub struct Live {
    // Order matters: the link goes before the hooks and the maps, the skeleton before the object it
    // borrows.
    link: Option<Link>,
    hooks: Vec<Link>,
    events: RingBuffer<'static>,
    received: Rc<RefCell<Vec<Event>>>,
    accounts: Accounts,
    clusters: Records<Cluster>,
    skel: TandemSkel<'static>,
    _object: Box<MaybeUninit<OpenObject>>,
}

fn load_error(e: impl std::fmt::Display) -> HostError {
    HostError::Load {
        seen: e.to_string(),
        next: "run 'tandem doctor' to see what this kernel lacks".to_owned(),
    }
}

/// Bits of this kernel's `preempt_count` that count interrupts and NMIs: kernels that count how
/// often interrupts are switched off have these counts above that one.
fn hard_interrupts() -> u32 {
    let counted = "local_interrupt_disable_state";
    let kernel = Btf::from_vmlinux();
    let moved = kernel.is_ok_and(|k| k.type_by_name::<Var<'_>>(counted).is_some());
    if moved { 0x1f00_0000 } else { 0x00ff_0000 }
}

impl Live {
    /// Loads it into the kernel, where it does nothing yet.
    ///
    /// # Errors
    /// `HostError::Load` with the kernel's words.
    pub fn load(topology: &Topology, knobs: Knobs, verbose: bool) -> Result<Live, HostError> {
        if !verbose {
            libbpf_rs::set_print(None);
        }
        let mut object = Box::new(MaybeUninit::<OpenObject>::uninit());
        // SAFETY: the box outlives the skeleton: both are fields of Live, dropped in that order.
        let place: &'static mut MaybeUninit<OpenObject> =
            unsafe { &mut *std::ptr::from_mut(object.as_mut()) };
        let mut open = TandemSkelBuilder::default().open(place).map_err(load_error)?;
        let rodata = open
            .maps
            .rodata_data
            .as_deref_mut()
            .ok_or_else(|| load_error("the object has no read-only data"))?;
        // SAFETY: both are the C struct knobs: u64s only, in the same order (sched-core's layout
        // test).
        rodata.knobs_now = unsafe { std::mem::transmute_copy(&knobs) };
        let slots = threads::slots()?;
        rodata.world_slots = slots;
        rodata.hard_interrupts = hard_interrupts();
        open.maps.worlds_map.set_max_entries(slots).map_err(load_error)?;
        open.maps.free_worlds.set_max_entries(slots).map_err(load_error)?;
        open.maps.trace_rings.set_max_entries(topology.pcpus() as u32).map_err(load_error)?;
        let skel = open.load().map_err(load_error)?;
        fill(&skel, topology)?;
        let received = Rc::new(RefCell::new(vec![]));
        let events = listen(&skel, &received)?;
        let accounts = accounts(&skel)?;
        let clusters = Records::new(&skel.maps.clusters_map, "clusters_map", false)?;
        Ok(Live {
            link: None,
            hooks: vec![],
            events,
            received,
            accounts,
            clusters,
            skel,
            _object: object,
        })
    }

    /// Instructions that the kernel's verifier went through to load it, each as often as there are
    /// ways to it.
    #[must_use]
    pub fn verified_instructions(&self) -> u64 {
        self.verified().iter().map(|(_, count)| count).sum()
    }

    /// The same by program; a function that several programs call counts in each.
    #[must_use]
    pub fn verified(&self) -> Vec<(String, u64)> {
        let of = |program: &libbpf_rs::Program<'_>| -> u64 {
            let mut info = libbpf_sys::bpf_prog_info::default();
            let mut size = size_of_val(&info) as u32;
            // SAFETY: the kernel writes `size` bytes at most.
            let code = unsafe {
                libbpf_sys::bpf_prog_get_info_by_fd(
                    program.as_fd().as_raw_fd(),
                    &raw mut info,
                    &raw mut size,
                )
            };
            if code == 0 { info.verified_insns.into() } else { 0 }
        };
        let named = |p: libbpf_rs::Program<'_>| (p.name().to_string_lossy().into_owned(), of(&p));
        self.skel.object().progs().map(named).collect()
    }

    /// Attaches it: from now on it has every task of the fair class.
    ///
    /// # Errors
    /// `HostError::Load` with the kernel's words, or that its maps cannot be pinned.
    pub fn attach(&mut self) -> Result<(), HostError> {
        // A pCPU that goes while the scheduler is attached is seen by its hooks.
        let progs = &self.skel.progs;
        for hook in [&progs.tandem_pcpu_steps, &progs.tandem_pcpu_stepped, &progs.tandem_rename] {
            self.hooks.push(hook.attach().map_err(load_error)?);
        }
        self.link = Some(self.skel.maps.tandem_ops.attach_struct_ops().map_err(load_error)?);
        pin(&mut self.skel)
    }

    /// The scheduler's records.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Waits up to `wait` for events.
    pub(crate) fn poll(&self, wait: Duration) -> Vec<Event> {
        // interrupted by a signal: the caller looks at its flags anyway
        let _ = self.events.poll(wait);
        self.received.take()
    }

    /// Why it was ended; kind 0 while it runs.
    #[must_use]
    pub fn exit_reason(&self) -> ExitReason {
        let Some(data) = self.skel.maps.bss_data.as_deref() else { return ExitReason::default() };
        let record = &data.exit_record;
        let text = |bytes: &[i8]| {
            bytes.iter().take_while(|b| **b != 0).map(|b| *b as u8 as char).collect::<String>()
        };
        ExitReason {
            kind: record.kind,
            restart: record.code as u64 & ACT_RESTART != 0,
            text: [text(&record.reason), text(&record.message)].join(": "),
        }
    }

    /// Says that thread `tid` belongs to `vm`.
    ///
    /// # Errors
    /// The kernel's error number: the thread may be gone, or is another VM's (`EBUSY`).
    pub(crate) fn bind(&self, tid: i32, vm: u32, kind: u32, index: u32) -> Result<(), i32> {
        let mut call = [tid as u32, vm, kind, index];
        // SAFETY: four u32 as the C struct bind_call.
        let bytes = unsafe { std::slice::from_raw_parts_mut(call.as_mut_ptr().cast::<u8>(), 16) };
        run_call(&self.skel.progs.tandem_bind, bytes)
    }

    /// Says that thread `tid` runs only in these nodes, a bit each.
    ///
    /// # Errors
    /// The kernel's error number: the thread may be gone, or is no VM's yet (`EAGAIN`).
    pub(crate) fn home(&self, tid: i32, nodes: u64) -> Result<(), i32> {
        let mut call = [nodes, u64::from(tid as u32)];
        // SAFETY: the C struct home_call: u64, s32 and an unused u32, little-endian.
        let bytes = unsafe { std::slice::from_raw_parts_mut(call.as_mut_ptr().cast::<u8>(), 16) };
        run_call(&self.skel.progs.tandem_home, bytes)
    }

    /// Takes over the plan's weight of one VM.
    ///
    /// # Errors
    /// The kernel's error number.
    pub(crate) fn weight(&self, vm: u32, vcpus: u32, shares: u32, word: Word) -> Result<(), i32> {
        weigh(&self.skel, vm, vcpus, shares, word)
    }

    /// The pCPUs that the scheduler has on line, of those that it was loaded with.
    pub(crate) fn online(&self) -> PcpuSet {
        let clusters = self.accounts.host().clusters as usize;
        view::present((0..clusters).map(|c| self.clusters.get(c)))
    }

    /// Says that a pCPU is off line, where the kernel has not.
    ///
    /// # Errors
    /// The kernel's error number.
    pub(crate) fn set_offline(&self, pcpu: PcpuId) -> Result<(), i32> {
        let mut call = u32::from(pcpu.0).to_ne_bytes();
        run_call(&self.skel.progs.tandem_offline, &mut call)
    }

    /// Clears a VM's record after the end of its last world.
    pub(crate) fn forget(&self, vm: u32) {
        self.accounts.vms.set(vm as usize, Vm::ZERO);
    }

    /// Takes over what a pCPU has counted under another load; before `attach`.
    ///
    /// # Errors
    /// `HostError::Load` with the kernel's words.
    pub(crate) fn set_counters(
        &self,
        pcpu: usize,
        past: &sched_core::Pcpu,
    ) -> Result<(), HostError> {
        if pcpu >= self.accounts.host().pcpus as usize {
            return Ok(());
        }
        let now = sched_core::Pcpu {
            busy_ns: past.busy_ns,
            taken_ns: past.taken_ns,
            switches: past.switches,
            pulls: past.pulls,
            preempts: past.preempts,
            ..self.accounts.pcpu(pcpu)
        };
        let key = (pcpu as u32).to_ne_bytes();
        self.skel.maps.pcpus_map.update(&key, bytes_of(&now), MapFlags::ANY).map_err(load_error)
    }

    /// Its maps, for another object to share.
    pub(crate) fn maps(&self) -> &TandemMaps<'static> {
        &self.skel.maps
    }

    /// Detaches: every task goes back to the kernel's own scheduler. The accounts can still be
    /// read.
    pub fn detach(&mut self) {
        if self.link.take().is_some() {
            unpin();
        }
    }
}

fn run_call(
    program: &libbpf_rs::ProgramImpl<'_, libbpf_rs::Mut>,
    bytes: &mut [u8],
) -> Result<(), i32> {
    let input = ProgramInput { context_in: Some(bytes), ..ProgramInput::default() };
    match program.test_run(input) {
        Ok(out) if out.return_value == 0 => Ok(()),
        Ok(out) => Err(-(out.return_value as i32)),
        Err(_) => Err(libc::EIO),
    }
}

fn weigh(skel: &TandemSkel<'_>, vm: u32, vcpus: u32, shares: u32, word: Word) -> Result<(), i32> {
    let shift = word.shift as u64;
    let mut call = [
        word.weight as u32,
        (word.weight >> 32) as u32,
        vm,
        vcpus,
        shares,
        u32::from(word.held),
        shift as u32,
        (shift >> 32) as u32,
    ];
    // SAFETY: the C struct weight_call: u64, four u32, s64, in the little-endian order of this
    // target.
    let bytes = unsafe { std::slice::from_raw_parts_mut(call.as_mut_ptr().cast::<u8>(), 32) };
    run_call(&skel.progs.tandem_weight, bytes)
}

fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: T is one of the generated records: plain integers without padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

fn fill(skel: &TandemSkel<'_>, topology: &Topology) -> Result<(), HostError> {
    let (pcpus, clusters) = sched_core::layout(topology);
    let put = |map: &dyn MapCore, i: usize, bytes: &[u8]| {
        map.update(&(i as u32).to_ne_bytes(), bytes, MapFlags::ANY).map_err(load_error)
    };
    let places = topology.places();
    let smt = places.iter().map(|p| p.thread + 1).max().unwrap_or(1);
    let host = HostRecord {
        v_ns: V_START,
        v_at_ns: monotonic_ns(),
        pcpus: pcpus.len() as u32,
        clusters: clusters.len() as u32,
        vms: 1,
        worlds: 1,
        smt,
        online: topology.online().len() as u32,
        cores: sched_core::cores_online(topology),
        ..HostRecord::ZERO
    };
    put(&skel.maps.host_map, 0, bytes_of(&host))?;
    for (i, p) in pcpus.iter().enumerate() {
        let p = sched_core::Pcpu { system_v_ns: V_START, ..*p };
        put(&skel.maps.pcpus_map, i, bytes_of(&p))?;
    }
    for (i, c) in clusters.iter().enumerate() {
        put(&skel.maps.clusters_map, i, bytes_of(c))?;
    }
    // The system group needs a weight before the first task is charged; the first plan corrects it.
    weigh(skel, 0, pcpus.len() as u32, 1000, Word { weight: units::Rate::ONE.0, ..Word::default() })
        .map_err(|e| load_error(format!("the first plan was refused with error {e}")))
}

fn listen(
    skel: &TandemSkel<'_>,
    received: &Rc<RefCell<Vec<Event>>>,
) -> Result<RingBuffer<'static>, HostError> {
    let queue = Rc::clone(received);
    let mut builder = RingBufferBuilder::new();
    let map = MapHandle::try_from(&skel.maps.events).map_err(load_error)?;
    let take = move |bytes: &[u8]| {
        let word = |i: usize| {
            bytes
                .get(i * 4..i * 4 + 4)
                .and_then(|b| b.try_into().ok())
                .map_or(0, i32::from_ne_bytes)
        };
        match word(0) {
            1 => queue.borrow_mut().push(Event::Named { tgid: word(2) }),
            2 => queue.borrow_mut().push(Event::Gone),
            3 => queue.borrow_mut().push(Event::Pcpus),
            _ => {}
        }
        0
    };
    // SAFETY: the map handle is leaked, so that it lives as long as the ring buffer.
    let map: &'static MapHandle = Box::leak(Box::new(map));
    builder.add(map, take).map_err(load_error)?;
    builder.build().map_err(load_error)
}

fn accounts(skel: &TandemSkel<'_>) -> Result<Accounts, HostError> {
    Ok(Accounts {
        host: Records::new(&skel.maps.host_map, "host_map", true)?,
        pcpus: Records::new(&skel.maps.pcpus_map, "pcpus_map", false)?,
        vms: Records::new(&skel.maps.vms_map, "vms_map", true)?,
        worlds: Records::new(&skel.maps.worlds_map, "worlds_map", false)?,
        nodes: Records::new(&skel.maps.nodes_map, "nodes_map", true)?,
        limiters: Records::new(&skel.maps.limiters_map, "limiters_map", true)?,
    })
}

fn unpin() {
    // Leftovers of a killed daemon: nothing else lives there.
    let _ = fs::remove_dir_all(PIN_DIR);
}

fn pin(skel: &mut TandemSkel<'_>) -> Result<(), HostError> {
    unpin();
    let bad = |e: String| {
        HostError::object(
            PIN_DIR,
            "pin the scheduler's maps",
            e,
            "mount bpffs: mount -t bpf bpf /sys/fs/bpf",
        )
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(PIN_DIR)
        .map_err(|e| bad(e.to_string()))?;
    let path = |name: &str| Path::new(PIN_DIR).join(name);
    skel.maps.host_map.pin(path("host_map")).map_err(|e| bad(e.to_string()))?;
    skel.maps.pcpus_map.pin(path("pcpus_map")).map_err(|e| bad(e.to_string()))?;
    skel.maps.clusters_map.pin(path("clusters_map")).map_err(|e| bad(e.to_string()))?;
    skel.maps.vms_map.pin(path("vms_map")).map_err(|e| bad(e.to_string()))?;
    skel.maps.worlds_map.pin(path("worlds_map")).map_err(|e| bad(e.to_string()))?;
    skel.maps.nodes_map.pin(path("nodes_map")).map_err(|e| bad(e.to_string()))?;
    skel.maps.limiters_map.pin(path("limiters_map")).map_err(|e| bad(e.to_string()))?;
    skel.maps.trace_rings.pin(path("trace_rings")).map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    /// Nice value of the calling thread.
    fn nice() -> i32 {
        // SAFETY: reads a number.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn a_thread_that_comes_last_leaves_others_as_they_are_and_its_own_inherit_it() {
        let before = nice();
        let last = thread::spawn(|| {
            super::come_last();
            (nice(), thread::spawn(nice).join().unwrap())
        });
        assert_eq!((last.join().unwrap(), nice()), ((10, 10), before));
    }
}
