/* The record of a world: a thread that the scheduler runs. */
#ifndef TANDEM_WORLD_H
#define TANDEM_WORLD_H

enum world_state {
	STATE_NONE,
	STATE_RUN,
	STATE_READY,
	STATE_COSTOP,
	STATE_WAIT,
	STATE_WAIT_IDLE,
	STATES
};
enum world_kind {
	KIND_TASK,
	/* of KVM */
	KIND_VCPU,
	KIND_HELPER,
	/* a vCPU that its process emulates (TCG): it halts there, and the kernel sees a sleep */
	KIND_EMULATED,
};
enum world_flag {
	/* the slot is in use */
	WORLD_LIVE = 1,
	/* its affinity leaves out a pCPU of the host */
	WORLD_RESTRICTED = 2,
	/* a kernel thread bound to one pCPU: always first there */
	WORLD_PCPU_KTHREAD = 4,
	/* it woke and has not run since (kept while a trace is recorded) */
	WORLD_WOKEN = 8,
	/* it made room for a pinned world and has not run since (likewise) */
	WORLD_SWAPPED = 16,
	/* a kernel thread: of the kernel, or a process's worker (vhost, io_uring) */
	WORLD_SERVICE = 32,
	/* it left a shared core and has not run since (as WORLD_WOKEN) */
	WORLD_SPREAD = 64,
	/* a thread younger than the scheduler that has not woken in its VM yet */
	WORLD_NEW = 128,
	/* select has found idle pCPUs in other LLCs alone: enqueue asks for a look, and clears
	 * it */
	WORLD_STAYS = 256,
};

/* One world. The kernel serialises its callbacks (the lock of its runqueue), so it has one writer
 * at a time; readers elsewhere use seq, which is odd while a change is under way. */
struct world {
	/* --- account/state.h --- */

	u64 seq;
	u64 state_since_ns;
	/* time in each state, by enum world_state, completed stays only */
	u64 time_ns[8];
	/* part of the time in READY that a limit caused, completed stays only */
	u64 limited_ns;

	/* --- account/charge.h --- */

	/* CPU time */
	u64 used_ns;
	/* part of it that is not charged: lost to the busy thread beside it */
	u64 lost_ns;
	/* how far it is behind its part of what its VM is entitled to, and until when that is
	 * reckoned */
	s64 behind_ns;
	u64 entitled_ns;
	u64 born_ns;
	/* start of the run that is not charged yet */
	u64 run_since_ns;
	/* its thread's CPU time when it was charged last */
	u64 exec_ns;
	/* virtual time committed for the slice that it runs */
	u64 commit_ns;
	/* CPU time on the scale of its VM's progress_ns; of a host task, its virtual runtime */
	u64 runtime_ns;
	/* of the division in charge */
	u64 remainder;

	/* --- account/budget.h --- */

	/* its use of the budget of its limiters, 0 for none (compare and swap) */
	u64 budget;
	/* time for which it may use that */
	u64 budget_ns;
	/* since when it is parked, 0 if it is not */
	u64 parked_ns;

	/* --- callbacks, for demand --- */

	/* time in READY when it woke last */
	u64 ready_before_ns;
	/* time in RUN when it woke last */
	u64 ran_before_ns;
	/* length of the sleep before that */
	u64 slept_ns;

	/* --- account/stall.h --- */

	/* a vCPU's stall is this plus its time in READY and COSTOP */
	u64 stalled_base_ns;
	/* its lead when it left its guest; 0 once it has slept */
	u64 led_ns;

	/* --- counters --- */

	u64 migrations;
	u64 switches;
	/* slices that ended while it could go on: used up, or cut short for another world */
	u64 expiries;
	u64 wakeups;

	/* --- place/home.h --- */

	/* its home, a bit for each domain; all: none (law/home.h) */
	u64 home;
	/* tick at which it was named the next of a pCPU, where worlds have homes (tick/gang.h) */
	u64 named_ns;

	/* --- identity: glue and binding --- */

	u32 id;
	u32 vm;
	u32 state;
	u32 kind;
	/* number of the vCPU within its VM */
	u32 index;
	/* enum world_flag */
	u32 flags;
	/* of a host task, 100 is the default */
	u32 nice_weight;

	/* --- queue/count.h --- */

	/* queue it waits in, plus 1; 0 for none; from QUEUED_PARKED on see ids.h */
	u32 queued_on;
	/* limiter that unparked it, while it waits for a pCPU after that; 0 otherwise */
	u32 unparked_by;

	/* --- account/task.h --- */

	/* pCPU on whose clock a host task's runtime_ns is, plus 1; 0 for none */
	u32 clock_of;

	/* --- co-scheduling --- */

	/* of a vCPU: it runs its emulator's code, not its guest (account/stall.h) */
	u32 outside;
	/* whether it is to co-stop: the tick asks, its own pCPU decides (enum costop) */
	u32 costop;
	s32 last_pcpu;

	/* --- account/lock.h --- */

	/* threads that sleep for a lock which it holds (atomic adds) */
	u32 wanted;
	/* world that holds the lock for which it sleeps, 0 for none */
	u32 waits_for;
	/* first pCPU + 1 of the core that it was given, 0 for none (place/whole.h) */
	u32 whole_on;
	/* world over which it was given a core, until it has caught up; 0 for none (likewise) */
	u32 whole_over;
	/* pCPU + 1 to which dispatch sends it from a shared core, 0 for none (place/spread.h) */
	u32 spread_to;

	/* --- user space --- */

	/* VM to move to at the next safe point, -1 for none */
	s32 bind_vm;
	u32 bind_kind;
	u32 bind_index;
	u32 pid;
	u32 tgid;
	char comm[16];
};

#endif
