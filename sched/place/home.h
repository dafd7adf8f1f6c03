/* A world's home changes.
 *
 * Promise	its worlds leave a node that is home no longer at once (VS51 "NUMA Migration"): one
 *		that runs there is interrupted, one that waits there waits in its home
 * Limits	one that is parked or co-stopped goes there when it is released
 */
#ifndef TANDEM_PLACE_HOME_H
#define TANDEM_PLACE_HOME_H

#include "requeue.h"

/* Moves a world from the queue of a pCPU to one of its home. */
SUBPROG u32 home_requeue(NONNULL(struct host *h), u32 world, u32 pcpu)
{
	plat_task *t;

	plat_queue_each(h, t, QUEUE_VM(pcpu)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;
		struct requeue r = {};

		if (!v || w->id != world)
			continue;
		if (!count_out(h, w))
			break; /* a pCPU takes it just now */
		if (!requeue_choose(h, t, w, v, &r)) {
			r.pcpu = pcpu;
			requeue_enter(h, w, &r, plat_queue_key(t, h->v_ns));
		} else {
			requeue_enter(h, w, &r, plat_queue_key(t, h->v_ns));
			if (!plat_queue_move(h, t, QUEUE_VM(r.pcpu)))
				count_out_waiting(h, w);
			requeue_kick(h, &r);
		}
		break;
	}
	return 0;
}

/* A world has this home from now on, 0 for none. */
INLINE void core_home(struct host *h, struct world *w, u64 home)
{
	u32 queued = plat_read(w->queued_on), on = queued - 1;
	struct pcpu *p;

	w->home = home;
	if (home)
		h->homes = 1;
	plat_barrier();
	if (w->state == STATE_RUN && w->last_pcpu >= 0) {
		p = plat_pcpu(h, (u32)w->last_pcpu);
		if (p && !home_lets(w, p->node))
			trace_kick(h, p->id, KICK_PREEMPT, WHY_MIGRATED);
	} else if (queued && queued < QUEUED_PARKED && !(on & 1)) {
		p = plat_pcpu(h, on / 2);
		if (p && !home_lets(w, p->node))
			home_requeue(h, w->id, p->id);
	}
}

#endif
