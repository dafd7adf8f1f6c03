//! A scenario: one host, its VMs and host tasks, and the runs that vary them.

use crate::{
    Bytes, ChangeSpec, GuestSpec, GuestTask, HardwareSpec, LessWork, LimitSetting, LlcChoice,
    NumaSpec, OfflineSpec, ProfileSpec, Published, RealtimeSpec, SharesSetting, Window, Workload,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Shape, Topology};
use units::{CpuAmount, PcpuSet, Span};

/// A scenario file with all its runs resolved: what the simulator and the lab take.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Short name: the folder's or the file's.
    pub name: String,
    /// One sentence for people.
    pub title: String,
    /// The document and figure it comes from, if any.
    pub source: String,
    /// The runs, at least one.
    pub runs: Vec<Run>,
    /// What its document has published.
    pub published: Vec<Published>,
    /// Why Tandem does less work in some runs than another policy.
    pub less_work: Vec<LessWork>,
}

/// One run of a scenario: everything the engine or the lab needs.
#[derive(Clone, Debug)]
pub struct Run {
    /// Label among the scenario's runs; empty when there is only one.
    pub label: String,
    /// The resolved description.
    pub spec: RunSpec,
    /// The host's topology.
    pub topology: Topology,
}

/// The description of one run as the file gives it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// One sentence for people.
    #[serde(default)]
    pub title: String,
    /// The document and figure it comes from.
    #[serde(default)]
    pub source: String,
    /// Seed of everything random; `--seed` overrides it.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Simulated time; `--duration` overrides it.
    #[serde(default = "default_duration")]
    pub duration: Span,
    /// Time at the start that is run but not counted.
    #[serde(default)]
    pub warmup: Span,
    /// The host.
    pub host: HostSpec,
    /// Resource pools; without any, all VMs are children of the root.
    #[serde(default, rename = "pool")]
    pub pools: Vec<PoolSpec>,
    /// VMs.
    #[serde(default, rename = "vm")]
    pub vms: Vec<VmSpec>,
    /// Worlds of the `system` group.
    #[serde(default, rename = "host_task")]
    pub host_tasks: Vec<HostTask>,
    /// Settings of VMs and pools that change while it runs.
    #[serde(default, rename = "change")]
    pub changes: Vec<ChangeSpec>,
    /// pCPUs that are off line for a time.
    #[serde(default)]
    pub offline: Vec<OfflineSpec>,
    /// Real-time tasks, which take pCPUs away from the scheduler.
    #[serde(default)]
    pub realtime: Vec<RealtimeSpec>,
    /// The hardware that is simulated; a pCPU is a pCPU if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareSpec>,
    /// Memory of the nodes, and home nodes; memory is near everywhere if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaSpec>,
    /// What workloads ask of the hardware, beside the profiles that are built in.
    #[serde(default, rename = "profile", skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ProfileSpec>,
    /// Knobs of the scheduler for this run, by name; `--set` overrides them.
    #[serde(default, deserialize_with = "crate::knobs::read")]
    pub knobs: BTreeMap<String, u64>,
    /// How the lab runs it.
    #[serde(default)]
    pub lab: Lab,
    /// What must come out; tests hold the runs to it.
    #[serde(default)]
    pub expect: Expect,
}

fn default_seed() -> u64 {
    1
}

fn default_duration() -> Span {
    Span::from_secs(60)
}

/// The host of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Sockets (packages).
    #[serde(default = "one")]
    pub sockets: u32,
    /// NUMA nodes of a socket.
    #[serde(default = "one")]
    pub nodes_per_socket: u32,
    /// LLCs of a node.
    #[serde(default = "one")]
    pub llcs_per_node: u32,
    /// Cores that share an LLC.
    pub cores_per_llc: u32,
    /// Hardware threads of a core.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// Timer ticks per second of the kernel (CONFIG_HZ).
    #[serde(default = "default_hz")]
    pub hz: u32,
    /// How late the scheduler's own timers may be: each by anything up to this, at random; at most
    /// `TIMER_LATE_MAX`. Hardware's are late by microseconds, those of an emulated or very busy
    /// host by milliseconds.
    #[serde(default)]
    pub timer_late: Span,
    /// Whether the hardware takes a vCPU that spins out of its guest (pause-loop exits of Intel,
    /// the pause filter of AMD); an emulated host has none.
    #[serde(default = "yes")]
    pub pause_exits: bool,
    /// What passes from a timer of a vCPU to the moment that it is READY, least and most; none
    /// where nothing does.
    pub wake_path: Option<[Span; 2]>,
    /// What a pCPU takes to leave a deep idle state, least and most; none where nothing.
    pub idle_exit: Option<[Span; 2]>,
    /// How long a pCPU idles until it is in that state.
    #[serde(default = "default_idle_residency")]
    pub idle_residency: Span,
    /// Speed of a pCPU in MHz, to resolve reservations and limits that are given in MHz or GHz.
    #[serde(default = "default_mhz")]
    pub mhz: u32,
}

fn one() -> u32 {
    1
}

fn default_hz() -> u32 {
    250
}

fn default_mhz() -> u32 {
    HostSpec::MHZ
}

fn default_idle_residency() -> Span {
    HostSpec::IDLE_RESIDENCY
}

fn yes() -> bool {
    true
}

impl HostSpec {
    /// Speed of a pCPU in MHz where nothing is said.
    pub const MHZ: u32 = 2_000;

    /// Latest that timers may be.
    pub const TIMER_LATE_MAX: Span = Span::from_ms(20);

    /// C6 of Skylake-SP (`target_residency` of Linux's intel_idle).
    pub const IDLE_RESIDENCY: Span = Span::from_ns(600_000);

    /// Longest path of a wake-up.
    pub const WAKE_PATH_MAX: Span = Span::from_ms(10);

    /// Longest exit from idle: five times that of the deepest states.
    pub const IDLE_EXIT_MAX: Span = Span::from_ms(1);

    /// Longest residency.
    pub const IDLE_RESIDENCY_MAX: Span = Span::from_secs(1);

    /// The shape of the host.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape {
            sockets: self.sockets,
            nodes_per_socket: self.nodes_per_socket,
            llcs_per_node: self.llcs_per_node,
            cores_per_llc: self.cores_per_llc,
            threads_per_core: self.threads_per_core,
        }
    }
}

/// A resource pool of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Name; no VM or host task has the same.
    pub name: String,
    /// Name of the pool it is in; the root if left out.
    pub parent: Option<String>,
    /// `low`, `normal`, `high` (2000, 4000, 8000) or a number.
    #[serde(default)]
    pub shares: SharesSetting,
    /// What it gets whatever the load; nothing if left out.
    pub reservation: Option<CpuAmount>,
    /// What it and all below it never exceed; unlimited if left out.
    pub limit: Option<LimitSetting>,
    /// CPU time that may be saved up while the limit is not used (cpu.max.burst); none if left out.
    pub burst: Option<Span>,
    /// Whether reservations below it may borrow from its parent.
    #[serde(default = "yes")]
    pub expandable: bool,
    /// Whether its shares grow with those of its children (vSphere 7's scalable shares).
    #[serde(default)]
    pub scalable: bool,
}

/// A VM of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmSpec {
    /// Name; with `count` above 1 it gets -1, -2, … appended.
    pub name: String,
    /// How many VMs like this.
    #[serde(default = "one")]
    pub count: u32,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// `low`, `normal`, `high` (500, 1000, 2000 per vCPU) or a number for the whole VM.
    #[serde(default)]
    pub shares: SharesSetting,
    /// Name of the pool it is in; the root if left out.
    pub pool: Option<String>,
    /// What it gets whatever the load; nothing if left out.
    pub reservation: Option<CpuAmount>,
    /// What it never exceeds; unlimited if left out.
    pub limit: Option<LimitSetting>,
    /// CPU time that may be saved up while the limit is not used (cpu.max.burst); none if left out.
    pub burst: Option<Span>,
    /// pCPUs its threads may use, set by sched_setaffinity in the lab.
    pub affinity: Option<PcpuSet>,
    /// pCPUs its cgroup may use, set by cpuset.cpus in the lab.
    pub cpuset: Option<PcpuSet>,
    /// pCPUs of each vCPU alone; as long as `vcpus` when given.
    pub vcpu_affinity: Option<Vec<PcpuSet>>,
    /// What every vCPU does; that of the profile, else to burn, if left out.
    pub workload: Option<Workload>,
    /// What each vCPU does, instead of `workload`; as long as `vcpus` when given.
    pub vcpu_workloads: Option<Vec<Workload>>,
    /// Name of the profile that says what its vCPUs ask of the hardware; the first built in if left
    /// out.
    pub profile: Option<String>,
    /// Its memory; 1 GiB for each vCPU if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Whether its guest knows of its NUMA nodes; from 9 vCPUs on if left out (`numa.vcpu.min`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnuma: Option<bool>,
    /// vCPUs of each node that its guest knows of, as they were made where it was powered on first;
    /// by the nodes of this host if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnuma_node: Option<u32>,
    /// Whether it is to fit into a node by hardware threads in place of cores
    /// (`numa.vcpu.preferHT`).
    #[serde(default)]
    pub prefer_ht: bool,
    /// LLCs of its home node that it is to use; where the scheduler sees fit if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc: Option<LlcChoice>,
    /// How long a vCPU may be silent before its guest reports a soft lockup; no watchdog if left
    /// out.
    pub watchdog: Option<Span>,
    /// Windows in which the workload is active; outside, its vCPUs are halted. None: always.
    #[serde(default)]
    pub active: Vec<Window>,
    /// When the VM is powered on.
    #[serde(default)]
    pub start: Span,
    /// When the VM is powered off; never if left out.
    pub stop: Option<Span>,
    /// When its last vCPUs are added, one each; the others are there from the start.
    #[serde(default)]
    pub hot_add: Vec<Span>,
    /// The kernel of its guest; what vCPUs do is `workload` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestSpec>,
    /// Tasks of its guest.
    #[serde(default, rename = "task", skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<GuestTask>,
}

/// Worlds of the `system` group: tasks of the host itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTask {
    /// Name; with `count` above 1 it gets -1, -2, … appended.
    pub name: String,
    /// How many tasks like this.
    #[serde(default = "one")]
    pub count: u32,
    /// pCPUs the task may use.
    pub affinity: Option<PcpuSet>,
    /// Name of the profile that says what it asks of the hardware.
    pub profile: Option<String>,
    /// A kernel thread that belongs to one pCPU: it runs before everything else there.
    #[serde(default)]
    pub per_cpu_kthread: bool,
    /// Nice value, -20 to 19: each level more is a weight of four fifths among host tasks.
    #[serde(default)]
    pub nice: i8,
    /// What it does.
    #[serde(default)]
    pub workload: Workload,
}

/// How the lab runs a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lab {
    /// Time of one run in the lab; the run's own duration if left out.
    pub duration: Option<Span>,
    /// Labels of the runs that the lab does; all if left out.
    pub runs: Option<Vec<String>>,
    /// The lab's clock counts instructions, so that no pCPU stands still while it runs on, as
    /// emulated ones otherwise do for 5 to 20 ms; slower by half, and a pCPU is slow. On unless the
    /// scenario says otherwise.
    #[serde(default = "yes")]
    pub exact_clock: bool,
    /// Records a trace under Tandem after the measured time, for as long again, of which the result
    /// has the scheduler's own word on wake-ups.
    #[serde(default)]
    pub trace: bool,
    /// Why the lab cannot run it; then only the simulator does.
    pub skip: Option<String>,
}

impl Default for Lab {
    fn default() -> Lab {
        Lab { duration: None, runs: None, exact_clock: true, trace: false, skip: None }
    }
}

/// What must come out of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Largest |used ÷ entitled − 1| of any VM in the simulator, in permille.
    pub sim_permille: Option<u32>,
    /// The same in the lab.
    pub lab_permille: Option<u32>,
    /// VMs whose used times shall be in the ratio of their shares, in simulator and lab.
    #[serde(default)]
    pub ratio_of: Vec<String>,
    /// By how much, in permille, one of them may have more for each of its shares than another.
    #[serde(default)]
    pub ratio_permille: u32,
    /// The same in the lab; `ratio_permille` if left out.
    pub lab_ratio_permille: Option<u32>,
    /// VMs whose used times shall be equal, in simulator and lab.
    #[serde(default)]
    pub equal_of: Vec<String>,
    /// By how much, in permille, one of them may have used more than another.
    #[serde(default)]
    pub equal_permille: u32,
    /// The same in the lab; `equal_permille` if left out.
    pub lab_equal_permille: Option<u32>,
    /// VM by VM, how much in permille of what it wanted (run and ready, a pCPU for each vCPU at
    /// most) it gets at least, in the simulator.
    #[serde(default)]
    pub at_least: BTreeMap<String, u32>,
    /// The same in the lab.
    #[serde(default)]
    pub lab_at_least: BTreeMap<String, u32>,
    /// By how much, in permille of its limit, any limited VM or pool may use more than the limit in
    /// any second in the simulator.
    pub limit_permille: Option<u32>,
    /// The same in the lab.
    pub lab_limit_permille: Option<u32>,
    /// What the VMs together may lose to filling caches again in the simulator, in permille of the
    /// time that they run.
    pub refill_permille: Option<u32>,
    /// VM by VM, and host task of kind pipe by host task, how late in us it may run after it should
    /// have woken, by its own clock: on average, in the simulator.
    #[serde(default)]
    pub late_mean_us: BTreeMap<String, u64>,
    /// The same, at most.
    #[serde(default)]
    pub late_max_us: BTreeMap<String, u64>,
    /// On average in the lab.
    #[serde(default)]
    pub lab_late_mean_us: BTreeMap<String, u64>,
    /// At most in the lab.
    #[serde(default)]
    pub lab_late_max_us: BTreeMap<String, u64>,
}

impl VmSpec {
    /// vCPUs from which on a guest knows of its NUMA nodes (`numa.vcpu.min`).
    pub const VNUMA_MIN: u32 = 9;

    /// Its memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.map_or(u64::from(self.vcpus) << 30, |m| m.0)
    }

    /// Whether its guest knows of its NUMA nodes.
    #[must_use]
    pub fn has_vnuma(&self) -> bool {
        self.vnuma.unwrap_or(self.vcpus >= VmSpec::VNUMA_MIN)
    }

    /// pCPUs that vCPU `i` may use, `None` for all.
    #[must_use]
    pub fn allowed(&self, i: usize) -> Option<PcpuSet> {
        let own = self.vcpu_affinity.as_ref().and_then(|a| a.get(i).cloned());
        [own, self.affinity.clone(), self.cpuset.clone()]
            .into_iter()
            .flatten()
            .reduce(|a, b| a.and(&b))
    }

    /// What each vCPU does of which nothing else is said.
    #[must_use]
    pub fn every_workload(&self) -> Workload {
        self.workload.unwrap_or_default()
    }

    /// What vCPU `i` does.
    #[must_use]
    pub fn workload_of(&self, i: usize) -> Workload {
        self.vcpu_workloads
            .as_ref()
            .and_then(|w| w.get(i).copied())
            .unwrap_or(self.every_workload())
    }

    /// The VMs this stands for, each with `count` 1 and a name of its own.
    #[must_use]
    pub fn expand(&self) -> Vec<VmSpec> {
        (1..=self.count)
            .map(|i| VmSpec { name: numbered(&self.name, self.count, i), count: 1, ..self.clone() })
            .collect()
    }
}

impl HostTask {
    /// The tasks this stands for, each with `count` 1 and a name of its own.
    #[must_use]
    pub fn expand(&self) -> Vec<HostTask> {
        (1..=self.count)
            .map(|i| HostTask {
                name: numbered(&self.name, self.count, i),
                count: 1,
                ..self.clone()
            })
            .collect()
    }
}

fn numbered(name: &str, count: u32, i: u32) -> String {
    if count == 1 { name.to_owned() } else { format!("{name}-{i}") }
}
