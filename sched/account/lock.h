/* Sleeping locks of the kernel: a world that holds one which another thread sleeps for.
 *
 * Promise	a world that holds a mutex, or a rw_semaphore to write, for which a thread sleeps is
 *		not kept parked or co-stopped longer than a tick (spec H16)
 * Law		a sleeper counts at the holder until it wakes. What is wanted starts whatever its
 *		limits say, which makes a debt, and does not co-stop
 * Example	a vCPU below a limit of 5 % wakes with a mutex of the kernel for which a host task
 *		sleeps: it runs 1 ms in debt, and not 20 ms later
 * Limits	the holder is the one of the moment when the sleeper began to sleep; readers that
 *		hold a rw_semaphore are not known, nor sleepers that a signal can wake. Any state
 *		but RUN may last while a lock is held: a thread sleeps, waits or is preempted
 *		within the kernel; holders of spinlocks are not preempted there. Kernels without
 *		DETECT_HUNG_TASK_BLOCKER (6.16) do not tell: a holder may be held back as long as
 *		its limit says there, at most ready_bound_us
 */
#ifndef TANDEM_LOCK_H
#define TANDEM_LOCK_H

#include "../platform/platform.h"

/* Whether a thread sleeps for a lock that the world holds. */
INLINE bool lock_wanted(const struct world *w)
{
	return with(LOCK_HOLDER) && plat_read(w->wanted);
}

/* ticks of limits that look for it: it may come into the queue after the first */
#define LOCK_LOOKS 2

/* The limiter where a wanted world is parked unparks it at its next ticks. */
INLINE void lock_serve(struct host *h, const struct world *w)
{
	u32 queued = plat_read(w->queued_on);
	struct limiter *l = NULL;

	if (queued >= QUEUED_PARKED && queued < QUEUED_COSTOP)
		l = plat_limiter(h, queued - QUEUED_PARKED);
	if (l)
		l->wanted = LOCK_LOOKS;
}

/* A world sleeps for a lock that `holder` has. */
INLINE void core_lock_sleeps(struct host *h, struct world *w, struct world *holder)
{
	if (holder->id == w->id || w->waits_for)
		return;
	w->waits_for = holder->id;
	plat_add(&holder->wanted, 1);
	lock_serve(h, holder);
}

/* It sleeps no more. The holder may have ended: its slot is another world's, not wanted. */
RARE_SUBPROG u32 lock_woke(NONNULL(struct host *h), NONNULL(struct world *w))
{
	struct world *holder = plat_world(h, w->waits_for);

	w->waits_for = WORLD_NONE;
	if (holder && plat_read(holder->wanted))
		plat_add(&holder->wanted, -1);
	return 0;
}

#endif
