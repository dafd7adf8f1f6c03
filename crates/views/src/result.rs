//! The result document (`--json`): the same for a simulated run, the lab and a live host.
//! docs/result.md explains it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a result was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Where {
    /// In the simulator, virtual time.
    Sim,
    /// On a real kernel under emulation, booted by the lab.
    Lab,
    /// On a live host.
    Live,
}

/// One result document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// Name of the scenario; empty on a live host.
    pub scenario: String,
    /// Where it was measured.
    #[serde(rename = "where")]
    pub place: Where,
    /// Scheduler: `tandem`, `eevdf`, or a mutant's name.
    pub policy: String,
    /// Seed of the run; 0 where nothing is random by seed.
    pub seed: u64,
    /// The command that measures the runs again, as a shell takes it, without `--run` and outputs;
    /// where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// One entry a run of the scenario.
    pub runs: Vec<RunResult>,
}

/// The result of one run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Label among the scenario's runs.
    pub label: String,
    /// Time measured, in ns.
    pub duration_ns: u64,
    /// The host's size.
    pub host: HostCounts,
    /// Each pCPU.
    pub pcpus: Vec<Pcpu>,
    /// Each resource pool, parents before children.
    pub pools: Vec<Pool>,
    /// Each VM.
    pub vms: Vec<Vm>,
    /// How late VMs ran after they should have woken, where it was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakeups: Vec<Wakeups>,
    /// What the oracle says, where it watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
}

/// What the oracle says of a run: of all of it in the simulator, of a trace in the lab.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// Number of violations.
    pub violated: u64,
    /// The first of them, in words.
    pub violations: Vec<String>,
    /// Longest time any world was READY without interruption, in ns.
    pub ready_max_ns: u64,
    /// Longest time any pCPU idled while a world that may run there was READY, in ns; 0 if never
    /// for longer than allowed.
    pub idle_while_waiting_max_ns: u64,
    /// Most that any running vCPU led its slowest sibling that wanted to run, in ns; 0 where vCPUs
    /// are not held together.
    pub skew_max_ns: u64,
    /// Longest time any vCPU was co-stopped without interruption, in ns.
    pub costop_max_ns: u64,
    /// Time that real-time tasks took of each pCPU, in ns, in the order of `pcpus` and of the same
    /// time; empty where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub realtime_ns: Vec<u64>,
}

/// What measured wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MeasuredBy {
    /// The workload itself: from the moment that its timer was due to its own next work.
    Workload,
    /// The scheduler: from READY to RUN.
    Scheduler,
}

/// Wake-ups of a VM's vCPUs, or of a host task that others wake: how many, and how late they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wakeups {
    /// Name of the VM, or of the host task.
    pub vm: String,
    /// What measured.
    pub by: MeasuredBy,
    /// How many there were.
    pub count: u64,
    /// The least of them, in ns.
    pub min_ns: u64,
    /// Their mean, in ns.
    pub mean_ns: u64,
    /// What 99 of 100 do not pass, in ns; at most an eighth too large.
    pub p99_ns: u64,
    /// The most, in ns.
    pub max_ns: u64,
}

/// The size of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostCounts {
    /// Logical processors.
    pub pcpus: usize,
    /// Cores.
    pub cores: usize,
    /// Last-level caches.
    pub llcs: usize,
    /// NUMA nodes.
    pub nodes: usize,
    /// Packages.
    pub sockets: usize,
}

impl From<&topology::Topology> for HostCounts {
    fn from(t: &topology::Topology) -> HostCounts {
        let (cores, llcs, nodes, sockets) = t.counts();
        HostCounts { pcpus: t.online().len(), cores, llcs, nodes, sockets }
    }
}

/// One pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pcpu {
    /// Its id.
    pub id: usize,
    /// Time it ran a world, in ns.
    pub busy_ns: u64,
}

/// A resource pool: sums over everything inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pool {
    /// Path from the root, `/`; host tasks are `/system`.
    pub path: String,
    /// CPU time charged, in ns.
    pub used_ns: u64,
    /// CPU time that an ideal fluid scheduler would have given it, in ns.
    pub entitled_ns: u64,
    /// Time its worlds were ready, in ns; `limited_ns` is inside it.
    pub ready_ns: u64,
    /// Time its worlds were co-stopped, in ns.
    pub costop_ns: u64,
    /// Time its worlds were held back by a limit, in ns.
    pub limited_ns: u64,
    /// Most CPU time used in any second, in ns, where a limit stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_ns: Option<u64>,
}

/// State times and counts, the same for a world and for a VM (there, sums over its worlds).
/// `run_ns + ready_ns + costop_ns + wait_ns` is the world's life within the run, to the ns;
/// `limited_ns` is inside `ready_ns` and `idle_ns` inside `wait_ns`, as in esxtop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// CPU time charged, in ns.
    pub used_ns: u64,
    /// Time in RUN, in ns.
    pub run_ns: u64,
    /// Time in READY, in ns.
    pub ready_ns: u64,
    /// Time in COSTOP, in ns.
    pub costop_ns: u64,
    /// Part of `ready_ns` that a limit caused.
    pub limited_ns: u64,
    /// Time in WAIT or WAIT_IDLE, in ns.
    pub wait_ns: u64,
    /// Part of `wait_ns` in WAIT_IDLE (a halted vCPU).
    pub idle_ns: u64,
    /// CPU time that an ideal fluid scheduler would have given it, in ns; of a world, its equal
    /// part of the VM's by its own demand.
    pub entitled_ns: u64,
    /// Times it was put on another pCPU than its last.
    pub migrations: u64,
    /// Work completed, in ns of CPU work at full speed.
    pub work: u64,
    /// What was lost meanwhile, where hardware is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// `migrations` by distance, where hardware is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
}

/// Migrations by what the two pCPUs share, each counted once; together they are `migrations`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// To another thread of the same core.
    pub twin: u64,
    /// To another core of the same LLC.
    pub core: u64,
    /// To another LLC of the same node.
    pub llc: u64,
    /// To another node.
    pub node: u64,
}

impl Moved {
    /// All of them.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.twin + self.core + self.llc + self.node
    }

    /// Adds `other` field by field.
    pub fn add(&mut self, other: &Moved) {
        self.twin += other.twin;
        self.core += other.core;
        self.llc += other.llc;
        self.node += other.node;
    }

    /// What came after an earlier moment.
    #[must_use]
    pub fn since(&self, before: &Moved) -> Moved {
        Moved {
            twin: self.twin - before.twin,
            core: self.core - before.core,
            llc: self.llc - before.llc,
            node: self.node - before.node,
        }
    }
}

/// Time in RUN that was no work, by cause, in ns; together with `work` it is `run_ns`, to the ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// To busy threads of the same core.
    pub smt_ns: u64,
    /// To caches that did not hold the working set.
    pub refill_ns: u64,
    /// To other worlds' use of memory.
    pub bandwidth_ns: u64,
    /// To memory that was in other NUMA nodes.
    #[serde(default)]
    pub remote_ns: u64,
    /// To switches and interrupts.
    pub switch_ns: u64,
    /// Spinning for siblings, and the emulator's work.
    pub guest_ns: u64,
}

impl Lost {
    /// All of it.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let hardware = self.smt_ns + self.refill_ns + self.bandwidth_ns + self.remote_ns;
        hardware + self.switch_ns + self.guest_ns
    }

    /// Adds `other` field by field.
    pub fn add(&mut self, other: &Lost) {
        self.smt_ns += other.smt_ns;
        self.refill_ns += other.refill_ns;
        self.bandwidth_ns += other.bandwidth_ns;
        self.remote_ns += other.remote_ns;
        self.switch_ns += other.switch_ns;
        self.guest_ns += other.guest_ns;
    }

    /// What came after an earlier moment.
    #[must_use]
    pub fn since(&self, before: &Lost) -> Lost {
        Lost {
            smt_ns: self.smt_ns - before.smt_ns,
            refill_ns: self.refill_ns - before.refill_ns,
            bandwidth_ns: self.bandwidth_ns - before.bandwidth_ns,
            remote_ns: self.remote_ns - before.remote_ns,
            switch_ns: self.switch_ns - before.switch_ns,
            guest_ns: self.guest_ns - before.guest_ns,
        }
    }
}

impl Times {
    /// Time that it wanted to run over its work: 1 on a whole core without others, 2 where an
    /// operation takes twice as long. None without work.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let wanted = self.run_ns + self.ready_ns + self.costop_ns;
        (self.work > 0).then(|| wanted as f64 / self.work as f64)
    }

    /// Adds `other` field by field.
    pub fn add(&mut self, other: &Times) {
        self.used_ns += other.used_ns;
        self.run_ns += other.run_ns;
        self.ready_ns += other.ready_ns;
        self.costop_ns += other.costop_ns;
        self.limited_ns += other.limited_ns;
        self.wait_ns += other.wait_ns;
        self.idle_ns += other.idle_ns;
        self.entitled_ns += other.entitled_ns;
        self.migrations += other.migrations;
        self.work += other.work;
        if let Some(lost) = &other.lost {
            self.lost.get_or_insert_default().add(lost);
        }
        if let Some(moved) = &other.moved {
            self.moved.get_or_insert_default().add(moved);
        }
    }
}

/// What a world is to its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorldKind {
    /// A virtual CPU.
    Vcpu,
    /// An emulator or I/O thread of the VM.
    Helper,
    /// A task of the host itself.
    Task,
}

/// One VM, or the `system` group (whose `vcpus` is 0).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Vm {
    /// Name.
    pub name: String,
    /// Path of its pool.
    pub pool: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// CPU shares.
    pub shares: u64,
    /// Sums over its worlds.
    #[serde(flatten)]
    pub times: Times,
    /// On a real kernel: the kernel's own word on the same CPU time, to hold the accounts against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_stat: Option<CpuStat>,
    /// In the simulator: what came of its vCPUs waiting for each other, where they do or a watchdog
    /// looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Guest>,
    /// Each of its worlds.
    pub worlds: Vec<World>,
    /// Its NUMA clients, where memory has a place; in the order of their vCPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaClient>,
}

/// A NUMA client at the end of a run: a VM, or a part of a wide one, that has a home node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NumaClient {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its home node; none where VMs have no homes.
    pub home: Option<u32>,
    /// Its memory by node, in bytes.
    pub bytes: Vec<u64>,
    /// LLCs of its home where its VM has asked for few of them or for all; none if it has not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub llcs: Vec<u32>,
    /// How often it got a home, by reason.
    pub changes: BTreeMap<String, u64>,
    /// Memory that has followed it, in bytes.
    pub moved_bytes: u64,
    /// What was decided of it last, and what came of it, in words.
    pub decisions: Vec<String>,
    /// What holds it or its memory, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How often a second worlds of its VM and of others woke each other in the planner's last
    /// round, by the name of the other: those that do so most, as action affinity takes them. Only
    /// the first client of a VM has them; interrupts do not count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub talks: BTreeMap<String, u64>,
}

impl NumaClient {
    /// How often its home has changed (esxtop's NMIG).
    #[must_use]
    pub fn migrations(&self) -> u64 {
        self.changes.iter().filter(|(reason, _)| *reason != "placed").map(|(_, n)| n).sum()
    }

    /// Part of its memory in its home, in percent (esxtop's N%L); none of one without a home, whose
    /// vCPUs run anywhere.
    #[must_use]
    pub fn local_percent(&self) -> Option<f64> {
        let all: u64 = self.bytes.iter().sum();
        let at = self.bytes.get(self.home? as usize).copied().unwrap_or(0);
        Some(if all == 0 { 100.0 } else { at as f64 * 100.0 / all as f64 })
    }
}

/// What an SMP guest made of the CPU time that it got: what it lost to spinning is not in `work`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Guest {
    /// CPU time burned in spinning, in ns; inside `used_ns`.
    pub spin_ns: u64,
    /// Times the lock was released, all had come to the barrier, or an interrupt was answered; of
    /// a guest with tasks, their pieces of work.
    pub rounds: u64,
    /// Soft lockups that its watchdog reported; 0 without one.
    pub lockups: u64,
    /// Longest time that a vCPU was silent, in ns: spun for its siblings, by the clock, or wanted
    /// to run and did not.
    pub longest_wait_ns: u64,
    /// What its own scheduler did, if the scenario gives it tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<GuestTasks>,
}

/// What the scheduler of a guest did with its tasks; `rounds` has how often their work was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestTasks {
    /// Tasks that came to another vCPU.
    pub migrations: u64,
    /// Of these, by an exec.
    pub exec_migrations: u64,
    /// Of these, by a vCPU that pulled a task that waited.
    pub pulls: u64,
    /// Reschedule interrupts between its vCPUs.
    pub interrupts: u64,
}

/// CPU time and waiting by two accounts, read at the same two moments (not quite those of the run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuStat {
    /// `usage_usec` of the cgroup's cpu.stat, in ns.
    pub kernel_ns: u64,
    /// The same by the accounts that the result is made from.
    pub used_ns: u64,
    /// `run_delay` of its threads in /proc/PID/task/TID/schedstat, in ns: waits that have ended.
    #[serde(default)]
    pub kernel_delay_ns: u64,
    /// The same by the accounts: time in READY and COSTOP of the same threads, without the waits
    /// under way and without CPU time that the kernel charged before RUN began.
    #[serde(default)]
    pub delay_ns: u64,
    /// How often those threads were switched to, by schedstat: so many waits.
    #[serde(default)]
    pub waits: u64,
}

/// One world.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct World {
    /// Name: `vcpu0`, … or the thread's name.
    pub name: String,
    /// What it is.
    pub kind: WorldKind,
    /// State times and counts.
    #[serde(flatten)]
    pub times: Times,
}
