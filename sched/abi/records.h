/* Records shared by the scheduler (BPF and native) and Rust: one layout, written down once here.
 * crates/sched-core/build.rs reads this file line by line: only u8..u64, s32, s64, char, and arrays of them. */
#ifndef TANDEM_RECORDS_H
#define TANDEM_RECORDS_H

#include "caps.h"

enum world_state { STATE_NONE, STATE_RUN, STATE_READY, STATE_COSTOP, STATE_WAIT, STATE_WAIT_IDLE, STATES };
enum world_kind { KIND_TASK, KIND_VCPU, KIND_HELPER };
enum world_flag {
	WORLD_LIVE = 1,		/* the slot is in use */
	WORLD_RESTRICTED = 2,	/* its affinity leaves out a pCPU of the host */
	WORLD_PCPU_KTHREAD = 4,	/* a kernel thread bound to one pCPU: always first there */
};
enum vm_flag {
	VM_LIVE = 1,
	VM_HELD = 2,	/* competes within a few pCPUs: the planner keeps its virtual time near the host's, the hot path does not */
};

/* The knobs in force; one writer (user space), read everywhere. Fields in the order of knobs.def. */
struct knobs {
	u64 quantum_us;
	u64 slice_min_us;
	u64 system_slice_us;
	u64 wake_credit_us;
	u64 lag_bound_us;
	u64 ready_bound_us;
	u64 preempt_margin_us;
	u64 migrate_margin_us;
	u64 housekeep_us;
	u64 system_shares;
};

/* The host: one record. */
struct host {
	u64 now_ns;		/* virtual time of the simulator; unused by the kernel build */
	u64 v_ns;		/* host's virtual time: weighted mean of the active VMs' (housekeep writes) */
	u64 v_at_ns;		/* when v_ns was brought forward last */
	u64 rate;		/* virtual ns per ns at which an active VM is served now, 20 fraction bits (housekeep writes) */
	u64 generation;		/* of the plan in force (user space writes) */
	u64 asserts;		/* failed assertions, counted where they cannot stop the run */
	u64 overflows;		/* threads that found no free world */
	u32 pcpus;		/* ids end here, those that are not online included */
	u32 clusters;
	u32 vms;		/* slots in use end here */
	u32 world_cursor;	/* the search for a free world begins after it (init_task and exit_task write; a hint) */
	u32 online;		/* pCPUs that can run something; fewer allowed means restricted */
	u32 smt;		/* hardware threads of a core */
	u32 worlds;		/* slots that were ever in use end here (init_task writes) */
	u32 pad32;
};

/* Up to 64 pCPUs that share a last-level cache; threads of a core are neighbouring bits. */
struct cluster {
	u64 idle;		/* pCPUs that run nothing and are not claimed (atomic and/or) */
	u64 queued;		/* pCPUs in whose queues worlds wait (atomic and/or; queue_enter, queue_leave) */
	u64 present;		/* bits that stand for a pCPU */
	u32 pcpus;
	u32 llc;
	u32 node;
	u32 nears;		/* entries of near */
	u16 pcpu[CLUSTER_PCPUS];	/* pCPU of each bit */
	u16 near[CLUSTERS_MAX];	/* other clusters: same LLC first, then node, socket, host */
};

/* One pCPU; its own CPU writes it, others read hints. */
struct pcpu {
	u64 wait_key;		/* lower bound of the keys in its VM queue, ~0 when empty (a hint) */
	u64 current_key;	/* key of the running world when it was dispatched */
	u64 current_since_ns;
	u64 busy_ns;		/* time it ran worlds, completed stays only */
	u64 switches;
	u64 pulls;		/* worlds taken from other pCPUs' queues */
	u64 preempts;		/* kicks that asked it to preempt */
	u64 system_v_ns;	/* task virtual time of the system group last served here */
	u64 rescued_ns;		/* when worlds that wait too long were looked for last */
	u32 id;
	u32 cluster;
	u32 bit;		/* bit within the cluster */
	u32 current_vm;
	u32 current_world;	/* 0 when idle */
	u32 probe;		/* rotates the remote pCPUs looked at */
	u32 waits_vm;		/* worlds in its queue of VMs (atomic; queue_enter, queue_leave) */
	u32 waits_system;	/* and of host tasks */
	u32 node;
	u32 core;
};

/* One VM (or the system group): shared by its worlds on all pCPUs; counters are atomic adds. */
struct vm {
	u64 vt_ns;		/* consumed / entitled: virtual time, settled */
	u64 committed_ns;	/* virtual time of slices being run, taken back when they end */
	u64 weight;		/* entitlement of the plan, in 2^-20 pCPU (user space writes) */
	u64 inverse;		/* 2^40 / weight: virtual ns per CPU ns, 20 fraction bits */
	u64 skew_inverse;	/* 2^37 * (vcpus, 8 at most) / weight: the weight of a world's lead over its siblings */
	u64 progress_ns;	/* mean CPU time of its busy worlds, in ns */
	u64 used_ns;		/* CPU time charged */
	u64 past_ns[8];		/* state times of worlds that are gone, by enum world_state */
	u64 past_used_ns;
	u64 past_migrations;
	u32 runnable;		/* worlds that run or are ready */
	u32 restricted;		/* worlds with WORLD_RESTRICTED */
	u32 worlds;
	u32 vcpus;
	u32 shares;
	u32 flags;
};

/* One world. Its callbacks are serialised by the kernel (its runqueue's lock), so it has one
 * writer at a time; readers outside use seq: odd while a change is under way. */
struct world {
	u64 seq;
	u64 state_since_ns;
	u64 time_ns[8];		/* time in each state, by enum world_state, completed stays only */
	u64 used_ns;		/* CPU time charged */
	u64 born_ns;
	u64 run_since_ns;	/* start of the stretch not charged yet */
	u64 exec_ns;		/* its thread's own CPU time when it was charged last */
	u64 commit_ns;		/* virtual time committed for the slice it runs */
	u64 lead_ns;		/* own CPU time on the scale of its VM's progress_ns */
	u64 remainder;		/* of the division in charge */
	u64 migrations;
	u64 switches;
	u64 wakeups;
	u32 id;
	u32 vm;
	u32 state;
	u32 kind;
	u32 index;		/* number of the vCPU within its VM */
	u32 flags;
	u32 nice_weight;	/* of a host task, 100 is the default */
	u32 queued_on;		/* queue it waits in, plus 1; 0 for none */
	s32 last_pcpu;
	s32 bind_vm;		/* VM to move to at the next safe point, -1 for none */
	u32 bind_kind;
	u32 bind_index;
	u32 pid;
	u32 tgid;
	char comm[16];
};

#endif
