/* Records shared by the scheduler (BPF and native) and Rust: one layout, written down once here.
 * crates/sched-core/build.rs reads this file line by line: only u8..u64, s32, s64, char, and arrays of them. */
#ifndef TANDEM_RECORDS_H
#define TANDEM_RECORDS_H

#include "caps.h"

enum world_state { STATE_NONE, STATE_RUN, STATE_READY, STATE_COSTOP, STATE_WAIT, STATE_WAIT_IDLE, STATES };
enum world_kind {
	KIND_TASK,
	KIND_VCPU,		/* of KVM */
	KIND_HELPER,
	KIND_EMULATED,		/* a vCPU that its process emulates (TCG): it halts there, where nobody else sees it */
};
enum world_flag {
	WORLD_LIVE = 1,		/* the slot is in use */
	WORLD_RESTRICTED = 2,	/* its affinity leaves out a pCPU of the host */
	WORLD_PCPU_KTHREAD = 4,	/* a kernel thread bound to one pCPU: always first there */
	WORLD_WOKEN = 8,	/* it woke and has not run since (kept while a trace is recorded) */
	WORLD_SWAPPED = 16,	/* it made room for a held world and has not run since (likewise) */
	WORLD_SERVICE = 32,	/* a thread of the kernel, without user space: one of its own, or its worker within a process (vhost, io_uring) */
};
enum vm_flag {
	VM_LIVE = 1,
	VM_CONTENDED = 4,	/* gets less than it asks for, by the plan's tree (housekeep writes) */
	VM_RESERVED = 8,	/* gets no more than its reservation (housekeep writes) */
	VM_HELD = 2,	/* competes within a few pCPUs: the planner keeps its virtual time near the host's, the hot path does not */
};

enum node_flag {
	NODE_EXPANDABLE = 1,	/* a pool that borrows from its parent what its children reserve beyond its own reservation */
	NODE_CUT = 2,		/* its children's reservations are more than it has: each gets its part */
};
enum node_state { NODE_OPEN, NODE_FLOOR, NODE_CEILING };

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
	u64 cosched;
	u64 costop_us;
	u64 costart_us;
	u64 cosched_poll_us;
};

/* The host: one record. */
struct host {
	u64 now_ns;		/* virtual time of the simulator; unused by the kernel build */
	u64 v_ns;		/* host's virtual time: weighted mean of the active VMs' (housekeep writes) */
	u64 v_at_ns;		/* when v_ns was brought forward last */
	u64 rate;		/* virtual ns per ns at which an active VM is served now, 20 fraction bits (housekeep writes) */
	u64 generation;		/* of the plan in force (user space writes) */
	u64 plan;		/* first node of the plan's tree << 32 | number of nodes: one word, so that a new plan comes at once (user space writes) */
	u64 planned_ns;		/* when the tree was divided last (housekeep writes) */
	u64 plan_outside;	/* not 0: user space weighs VMs itself, because some are held to a few pCPUs (user space writes) */
	u64 asserts;		/* failed assertions, counted where they cannot stop the run */
	u64 overflows;		/* threads that found no free world */
	u64 looked_ns;		/* when the tick of co-scheduling looked at all VMs last, */
	u64 look_in_ns;		/* and how long until it looks at some of them again (cosched writes) */
	u64 trace_until_ns;	/* when tracing ends unless the recorder puts it off: it may have been killed (user space writes) */
	u32 pcpus;		/* ids end here, those that are not online included */
	u32 clusters;
	u32 vms;		/* slots in use end here */
	u32 world_cursor;	/* the search for a free world begins after it (init_task and exit_task write; a hint) */
	u32 online;		/* pCPUs that can run something; fewer allowed means restricted */
	u32 smt;		/* hardware threads of a core */
	u32 worlds;		/* slots that were ever in use end here (init_task writes) */
	u32 limiters;		/* slots in use end here; 0 when nothing is limited (user space writes) */
	u32 tracing;		/* not 0: somebody records, see trace.h (user space writes, housekeep clears) */
	u32 smp;		/* not 0: a VM of several vCPUs has been seen (cosched_join writes) */
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
	u64 core_busy_ns;	/* of the core that it stands for: a thread was awake for this + now while core_awake is not 0 (atomic adds) */
	u64 core_shared_ns;	/* and two or more were for this + now while it is above 1 (atomic adds) */
	u64 chose_ns;		/* when it began to choose whom to run next; 0 when somebody runs, or it idles */
	u64 grant_paid_ns;	/* what ran beyond a grant is paid for up to here (core_limits writes) */
	u64 grant_end_ns;	/* when what the running world was granted ends; 0 where nothing limits it */
	u64 claimed_ns;		/* when somebody woke who is owed so much more than who ran then that it was to preempt */
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
	u32 limit_look;		/* a limit at which a world was parked here just now, or that got something back: whose turn is it? 0 for none */
	u32 core_first;		/* the pCPU that stands for its core */
	u32 core_awake;		/* threads of the core that it stands for that are not idle (atomic adds; account/busy.h) */
	u32 awake;		/* it was not idle when it was seen last (hosts with hyper-threads only) */
	u32 woken;		/* whether a world was queued while nobody ran (queue/queue.h; what it takes next clears it) */
	u32 yield_to;		/* world to which the running one yields the pCPU, 0 for none */
	u32 invited;		/* world whose siblings run, and that is to run here with them, 0 for none (cosched writes) */
	u32 trace_note;		/* four bytes of trace.h for the next records (each written alone, while a trace is recorded) */
};

/* One VM (or the system group): shared by its worlds on all pCPUs; counters are atomic adds. */
struct vm {
	u64 vt_ns;		/* consumed / entitled: virtual time, settled */
	u64 committed_ns;	/* virtual time of slices being run, taken back when they end */
	u64 weight;		/* entitlement of the plan, in 2^-20 pCPU (user space writes) */
	u64 inverse;		/* 2^40 / weight: virtual ns per CPU ns, 20 fraction bits */
	u64 skew_inverse;	/* 2^37 * (vcpus, 8 at most) / weight: the weight of a world's lead over its siblings */
	s64 lead_max_ns;	/* of that lead: half the bound on lag in virtual time, LEAD_MAX_NS at most */
	u64 slowest_ns;		/* stalled time of its slowest vCPU that wants to run, at the last look (cosched writes) */
	u64 turn_key;		/* of all its vCPUs while its turn lasts; 0 when it has none (policy/cosched.h) */
	u64 turn_end_ns;
	u64 stopped_ns;		/* since when it is stopped (cosched writes) */
	u64 progress_ns;	/* mean CPU time of its busy worlds, in ns */
	s64 kept_ns;		/* granted by its limits and left over, for its next worlds (atomic adds) */
	u64 urgent_ns;		/* how much earlier than its virtual time says it comes (housekeep writes) */
	u64 used_ns;		/* CPU time charged */
	u64 past_ns[8];		/* state times of worlds that are gone, by enum world_state */
	u64 past_used_ns;
	u64 past_migrations;
	u64 past_limited_ns;
	u64 past_switches;
	u64 past_expiries;
	u64 past_wakeups;
	u64 wanted_base;	/* wanted CPU time so far = this + runnable * now (atomic adds; plan.h) */
	u64 woke_ns;		/* when its first world woke, */
	u64 woke_used_ns;	/* and what it had used then */
	u64 wanted_ns;		/* wanted CPU time when it was looked at last, or more, where bursts have taken back what they waited (housekeep writes) */
	u64 demand;		/* in 2^-20 pCPU, smoothed (housekeep writes) */
	u32 runnable;		/* worlds that run or are ready */
	u32 restricted;		/* worlds with WORLD_RESTRICTED */
	u32 worlds;
	u32 vcpus;
	u32 shares;
	u32 flags;
	u32 limiter;		/* first of the limits it is under, 0 for none (user space writes) */
	u32 indices;		/* numbers of its vCPUs end here (cosched_join writes) */
	u32 costopped;		/* vCPUs in its queue of co-stopped ones (atomic; queue_costop, queue_left) */
	u32 waiting;		/* of its vCPUs that were READY at the last look (cosched writes) */
	u32 gathers;		/* looks in its present turn at which READY ones were invited (cosched writes; 0 when a turn begins) */
	u32 stopped;		/* not 0: all its vCPUs are to stop, by strict co-scheduling (cosched writes) */
};

/* The vCPUs of a VM by number: ids of worlds, 0 for none. Each writes its own; what is out of date is seen by the world's record. */
struct siblings {
	u32 world[VCPUS_MAX];
};

/* One node of the plan's tree, a VM or a pool. Nodes come breadth first: the root is the first, the children of a node are
 * neighbours. User space writes a plan whole, into the half of the array that is not in force; then only housekeep writes. */
struct node {
	u64 shares;		/* weight among its siblings */
	u64 reservation;	/* 2^-20 pCPU, like all amounts here */
	u64 sure;		/* what is reserved if everybody asks for all he can use; of a pool that borrows, also below it */
	u64 cap;		/* the most it may use: limit, vCPUs, the host */
	u64 demand;		/* what it asks for, at most cap */
	u64 floor;		/* what of it is reserved */
	u64 gets;		/* what it is entitled to now */
	u64 could;		/* what it would be entitled to if it asked for all it may use: a VM's weight */
	u64 left;		/* of a pool: what its open children divide, */
	u64 open;		/* by their shares, summed up here */
	u64 under;		/* and by how much they are below their floors */
	u64 over;		/* or above what they ask for */
	u32 first;		/* children, by number within the plan */
	u32 count;
	u32 parent;
	u32 vm;			/* its VM plus 1; 0 for a pool */
	u32 flags;
	u32 state;		/* enum node_state */
};

/* One limit in force, of a VM or a pool. */
struct limiter {
	s64 tokens_ns;		/* CPU time that may be taken now; below 0 it is owed (atomic adds) */
	u64 rate;		/* 2^-20 pCPU (user space writes); 0: it is gone and lets everybody pass */
	u64 burst_ns;		/* saved up beyond the usual, cpu.max.burst (user space writes) */
	u64 at_ns;		/* filled up to here (compare and swap) */
	u64 tick_ns;		/* last tick of limits (core_limits writes) */
	u64 rescued_ns;		/* when worlds parked for too long were looked for last (core_limits writes) */
	u64 grant_ns;		/* taken at a time (core_limits writes) */
	u32 parent;		/* limit above it, 0 for none (user space writes) */
	u32 parked;		/* worlds in its queue (atomic; limit_park, queue_leave) */
	u32 closed;		/* nothing left: who asks is parked (limit_grant sets it, core_limits clears it) */
	u32 running;		/* worlds below it that go on running after this tick (core_limits writes, and so below) */
	u32 owed;		/* that run and are owed time by the host */
	u32 let_go;		/* worlds below it that the tick let go and that wait for a pCPU (atomic; queue_let_go) */
	u32 scarce;		/* these want more than comes in: who is owed nothing stays parked */
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
	u64 grant_ns;		/* taken from the limits above it and not used yet */
	u64 limited_ns;		/* part of the time in READY that a limit caused, completed stays only */
	u64 parked_ns;		/* since when it is parked; 0 if it is not */
	u64 ready_before_ns;	/* its time in READY when it woke last, */
	u64 ran_before_ns;	/* and in RUN, */
	u64 slept_ns;		/* and how long it had slept */
	u64 stalled_base_ns;	/* of a vCPU: what it was stalled is this and its time in READY and COSTOP (policy/cosched.h) */
	u64 led_ns;		/* its lead when it left its guest, as of the last look; 0 once it has slept (policy/cosched.h) */
	u64 migrations;
	u64 switches;
	u64 expiries;		/* slices that ended while it could go on: used up, or cut short for another world */
	u64 wakeups;
	u32 id;
	u32 vm;
	u32 state;
	u32 kind;
	u32 index;		/* number of the vCPU within its VM */
	u32 flags;
	u32 nice_weight;	/* of a host task, 100 is the default */
	u32 queued_on;		/* queue it waits in, plus 1; 0 for none; from QUEUED_PARKED on a limiter's, or that of co-stopped siblings */
	u32 let_go;		/* first of the limits whose tick let it go while it waits for a pCPU after that, or 0 (written where queued_on is) */
	u32 outside;		/* of a vCPU: it is in its emulator's code, not in its guest (policy/cosched.h; its own thread writes) */
	u32 costop;		/* whether it is to co-stop (policy/cosched.h; cosched asks, its own pCPU decides) */
	s32 last_pcpu;
	s32 bind_vm;		/* VM to move to at the next safe point, -1 for none */
	u32 bind_kind;
	u32 bind_index;
	u32 pid;
	u32 tgid;
	char comm[16];
};

#endif
