/* Running worlds that share a core while a whole one idles.
 *
 * Promise	while a whole core that it may use idles in its node, a world shares its own for a
 *		quantum, spread_us and a tick at most (VS51 "Hyper-Threading", H1; the oracle's
 *		crates/check/src/sharing.rs)
 * Law		when a world is to go on whose core has another busy thread, and nothing else is to
 *		run there, it leaves for a whole core that has been idle for longer than
 *		spread_us, if its own has been shared for as long: what it gains there in a
 *		quantum is more than its caches cost. That core is reserved for it until enqueue
 * Units	us of the clock
 * Limits	NEAR_MAX clusters are looked at. The worlds of a core may both leave at once, for
 *		two idle cores
 */
#ifndef TANDEM_SPREAD_H
#define TANDEM_SPREAD_H

#include "place.h"

/* A pCPU of this node that the thread may use, on a core that has been idle since before `before`:
 * it is reserved. -1 if there is none. */
SUBPROG s32 spread_in(NONNULL(struct host *h), u32 cluster, TRUSTED_TASK(t), u64 before,
		      u32 node)
{
	struct cluster *c = plat_cluster(h, cluster);
	u64 idle = c ? plat_read(c->idle) : 0, mask = 0;

	if (!idle)
		return -1;
	mask = idle_whole(c, h->smt, idle);
	plat_for(i, CLUSTER_PCPUS) {
		u32 bit = mask ? plat_first_bit(mask) & 63 : 0;
		struct pcpu *q = mask ? plat_pcpu(h, c->pcpu[bit]) : NULL;
		struct pcpu *core = q ? plat_pcpu(h, q->core_first) : NULL;

		if (!core)
			break;
		mask &= mask - 1;
		if (!plat_read(core->core_awake) && q->node == node &&
		    (s64)(before - plat_read(core->core_idle_since_ns)) > 0 &&
		    plat_may_run(t, q->id) && idle_reserve(c, bit))
			return (s32)q->id;
	}
	return -1;
}

/* Reserves a whole core for the running world, if it is to leave its pCPU; -1 if not. */
SUBPROG s32 spread_find(NONNULL(struct host *h), u32 pcpu, TRUSTED_TASK(prev))
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 before = plat_now(h) - plat_knobs(h)->spread_us * US;
	s32 found;

	if (!core || !c || plat_read(core->core_awake) < 2 || !with(SPREAD) ||
	    (s64)(before - plat_read(core->core_shared_since_ns)) <= 0)
		return -1;
	found = spread_in(h, p->cluster, prev, before, p->node);
	if (found >= 0)
		return found;
	plat_for(i, NEAR_MAX) {
		if (i >= c->nears)
			break;
		found = spread_in(h, c->near[i & (CLUSTERS_MAX - 1)], prev, before, p->node);
		if (found >= 0)
			return found;
	}
	return -1;
}

/* Whether the running world leaves its pCPU; if so, the kernel hands it to enqueue next. */
INLINE bool spread_leaves(struct host *h, struct pcpu *p, plat_task *prev, struct world *w)
{
	s32 found = h->smt > 1 ? spread_find(h, p->id, prev) : -1;

	if (found < 0)
		return false;
	w->spread_to = (u32)found + 1;
	plat_set_slice(prev, 0);
	trace_note_stop(h, p, WHY_MIGRATED);
	if (trace_on(h))
		w->flags |= WORLD_SPREAD;
	return true;
}

/* The pCPU that is reserved for a world which left a shared core, -1 if there is none: the caller
 * inserts it there, or returns the pCPU. */
INLINE s32 spread_take(struct world *w)
{
	s32 to = (s32)w->spread_to - 1;

	w->spread_to = 0;
	return to;
}

#endif
