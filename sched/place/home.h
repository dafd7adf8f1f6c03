/* A world's home changes.
 *
 * Promise	its worlds leave a node that is home no longer at once (VS51 "NUMA Migration"): the
 *		pCPU where one runs or waits is kicked; what runs there goes to enqueue, what waits
 *		there waits in its home. Where a higher class has taken that pCPU no kick arrives:
 *		another one moves what waits there
 * Law		pcpu.strays: worlds may wait there outside their homes. A caller that writes a
 *		home reads the queue after that, and enqueue reads the home after it has counted
 *		the world: one of both sees the other. A walk that has seen fewer worlds than are
 *		counted leaves the word set, for some are on their way into the queue; housekeeping
 *		kicks again
 * Limits	one that is parked or co-stopped goes there when it is released. If the pCPU that
 *		is asked goes off line or is taken before it picks, what waits stays until the
 *		higher class leaves
 */
#ifndef TANDEM_PLACE_HOME_H
#define TANDEM_PLACE_HOME_H

#include "pull.h"
#include "requeue.h"

/* Moves the worlds that wait at a pCPU outside their homes to pCPUs inside; `seen` counts the
 * worlds looked at, in memory, where a BPF verifier does not count along. */
RARE_SUBPROG u32 home_strays(NONNULL(struct host *h), NONNULL(struct pcpu *p), NONNULL(u32 *seen))
{
	u32 waits = plat_read(p->waits_vm);
	plat_task *t;

	p->strays = 0;
	plat_queue_each(h, t, QUEUE_VM(p->id)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;
		struct requeue r = {};

		if (!v || (*seen)++ >= GUARD_SCAN_MAX)
			break;
		if (home_lets(w, p->domain) || !count_out(h, w))
			continue; /* or a pCPU takes it just now */
		if (!requeue_choose(h, t, w, v, &r))
			r.pcpu = p->id;
		requeue_enter(h, w, &r, plat_queue_key(t, h->v_ns));
		if (!plat_queue_move(h, t, QUEUE_VM(r.pcpu)))
			count_out_waiting(h, w);
		requeue_kick(h, &r);
	}
	if (*seen < waits)
		p->strays = 1;
	return 0;
}

/* The pCPU whose strays this one moves now: its own, if it has some, at the next pick. */
RARE_SUBPROG u32 home_asked(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	u32 of = plat_read(p->strays_of);

	/* As all functions take it: without it 7.3 verifies 600 instructions more. */
	(void)h;
	p->strays_of = 0;
	return of ? of - 1 : p->id;
}

/* A pCPU is about to pick: worlds that wait there outside their homes leave. */
INLINE void home_leave(struct host *h, struct pcpu *p)
{
	struct pcpu *q;
	u32 seen = 0;

	if (!plat_read(p->strays))
		return;
	q = plat_pcpu(h, home_asked(h, p));
	if (q)
		home_strays(h, q, &seen);
}

/* Whether a higher class has a pCPU, which cannot pick then. */
INLINE bool home_barred(struct host *h, const struct pcpu *p)
{
	return !plat_read(p->current_world) && holder_taken(h, p);
}

/* The strays of a pCPU are to be moved: by it, or by the next one that can pick. */
INLINE void home_kick(struct host *h, struct pcpu *p)
{
	u32 kicks = p->id;

	plat_for(i, HOME_HELPERS_MAX) {
		u32 id = p->id + i;
		struct pcpu *q = plat_pcpu(h, id < h->pcpus ? id : id - h->pcpus);

		if (i >= h->pcpus || !q)
			break;
		if (home_barred(h, q) || (i && plat_read(q->strays_of)))
			continue;
		if (i) {
			q->strays_of = p->id + 1;
			q->strays = 1;
		}
		kicks = q->id;
		break;
	}
	trace_kick(h, kicks, KICK_PREEMPT, WHY_MIGRATED);
}

/* A world has been counted into the queue of `p`: its home may have changed since it was placed. */
INLINE void home_queued(const struct world *w, struct pcpu *p)
{
	if (!home_lets(w, p->domain))
		p->strays = 1;
}

/* A world runs on `p`: its home may have changed while it was on its way here. */
INLINE void home_runs(struct host *h, const struct world *w, const struct pcpu *p)
{
	if (!home_lets(w, p->domain))
		trace_kick(h, p->id, KICK_PREEMPT, WHY_MIGRATED);
}

/* A world has this home from now on, 0 for none; false for a host task, which has none, for a
 * thread of the kernel that belongs to one pCPU, and for a world that is not bound to its VM
 * yet. */
INLINE bool core_home(struct host *h, struct world *w, u64 home)
{
	struct pcpu *p = NULL;
	u32 queued;

	if (w->vm == VM_SYSTEM || w->bind_vm >= 0 || w->flags & WORLD_PCPU_KTHREAD)
		return false;
	trace_homed(h, w, home ? home : HOME_ANY);
	plat_or(&h->homes, 1); /* a whole barrier too */
	queued = plat_read(w->queued_on);
	if (queued && queued < QUEUED_PARKED)
		p = plat_pcpu(h, (queued - 1) / 2);
	else if (plat_read(w->state) == STATE_RUN && w->last_pcpu >= 0)
		p = plat_pcpu(h, (u32)w->last_pcpu);
	if (!p)
		return true;
	if (home_lets(w, p->domain)) {
		if (queued) /* its home may have idle pCPUs now */
			pull_later(h, p);
		return true;
	}
	p->strays = 1;
	home_kick(h, p);
	return true;
}

#endif
