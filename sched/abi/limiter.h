/* The record of a limit in force, of a VM or of a pool. */
#ifndef TANDEM_LIMITER_H
#define TANDEM_LIMITER_H

/* limiter.served */
enum limiter_served {
	/* a tick of limits has served it */
	SERVED_ONCE = 1,
	/* one serves it now: another timer passes over it */
	SERVED_NOW = 2,
};

struct limiter {
	/* --- user space --- */

	/* 2^-20 pCPU; 0: the limit is gone and admits every world */
	u64 rate;
	/* saved up beyond the usual, cpu.max.burst */
	u64 burst_ns;

	/* --- account/budget.h (atomic) --- */

	/* the CPU time that worlds below it have used, at this rate, is paid for up to here */
	u64 tat_ns;
	/* worlds that use its budget now, and when they started (law/budget.h) */
	u64 inflight;

	/* --- tick/limits.h --- */

	/* latest deadline of the running worlds that are to stop at this tick */
	u64 stop_key;
	/* tat_ns when a tick served it last: it has moved if its budget was used since */
	u64 tat_seen_ns;
	/* when the starvation guard looked at its parked worlds last */
	u64 rescued_ns;
	/* pCPU of the world with that deadline, plus 1 */
	u32 stop_pcpu;
	/* which of them stop (enum limits_stops) */
	u32 stops;

	/* limiter above it, 0 for none (user space writes) */
	u32 parent;

	/* --- queue/count.h (atomic adds) --- */

	/* worlds in its queue */
	u32 parked;
	/* worlds below it that were unparked and wait for a pCPU */
	u32 unparked;

	/* --- account/lock.h, which sets it, and tick/limits.h, which counts it down --- */

	/* ticks in which all its parked worlds are looked at: one holds what others sleep for */
	u32 wanted;

	/* --- tick/limits.h --- */

	/* enum limiter_served; 0: it is new (compare and swap) */
	u32 served;
	/* worlds that may start at once, by it and the limiters above */
	u32 gang;
	/* not 0: it, or one above it, binds; shifted right at each tick */
	u32 binds;
	/* ticks until it is forgotten that its budget, or that of one above it, ran over while
	 * worlds waited for pCPUs */
	u32 missed;
};

#endif
