/* Running worlds that share a core while another is idle, or is one world's alone.
 *
 * Promise	while a whole core that it may use idles in its node, a world shares its own for a
 *		quantum, spread_us and a tick at most (VS51 "Hyper-Threading", H1; the oracle's
 *		crates/check/src/sharing.rs). Where cores are divided (shared_charge below
 *		1,000) and there are fewer than worlds, these alternate in having one alone (VS51
 *		"Policy on Hyper-Threading", H3)
 * Law		when a world is to go on whose core has another busy thread, and nothing else is to
 *		run there, it leaves for a whole core that has been idle for longer than
 *		spread_us, if its own has been shared for as long: what it gains there in a
 *		quantum is more than its caches cost. That core is reserved for it until enqueue. In
 *		another node both must have lasted for a quantum.
 *		If there is none, it changes places with a world that has a core alone and is less
 *		behind than it by lag_bound_us: two caches are filled again for each 270 ms or more
 * Units	us of the clock; ns of CPU time
 * Limits	NEAR_MAX clusters are looked at. The worlds of a core may both leave at once, for
 *		two idle cores. A world that may not use all pCPUs keeps the core that it has alone
 */
#ifndef TANDEM_SPREAD_H
#define TANDEM_SPREAD_H

#include "../law/cores.h"
#include "place.h"

/* of spread_to: the world there makes room */
#define SPREAD_PREEMPTS (1u << 31)

/* Since before when a core of a cluster must have idled for a world on a core that has been shared
 * since `shared`; 0: it does not come there. */
INLINE u64 spread_before(struct host *h, const struct pcpu *p, const struct cluster *c, u64 shared)
{
	const struct knobs *k = plat_knobs(h);
	u64 before = plat_now(h) - (c->node == p->node ? k->spread_us : k->quantum_us) * US;

	return (s64)(before - shared) > 0 ? before : 0;
}

/* Reserves a whole core for the running world, if it is to leave its pCPU; -1 if not. */
SUBPROG s32 spread_find(NONNULL(struct host *h), u32 pcpu, TRUSTED_TASK(prev))
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL, *other;
	u64 shared = core ? plat_read(core->core_shared_since_ns) : 0, before;
	s32 found;

	if (!core || !c || plat_read(core->core_awake) < 2 || !with(SPREAD))
		return -1;
	before = spread_before(h, p, c, shared);
	if (!before)
		return -1;
	found = place_in(h, p->cluster, prev, before);
	if (found >= 0)
		return found;
	plat_for(i, NEAR_MAX) {
		u32 near = i < c->nears ? c->near[i & (CLUSTERS_MAX - 1)] : CLUSTERS_MAX;

		other = near < CLUSTERS_MAX ? plat_cluster(h, near) : NULL;
		before = other ? spread_before(h, p, other, shared) : 0;
		if (!before)
			break;
		found = place_in(h, near, prev, before);
		if (found >= 0)
			return found;
	}
	return -1;
}

/* Whether the world of `q` has its core alone, may run anywhere and is to make room for one that is
 * so far behind: then it is the only one that comes there. */
SUBPROG u32 spread_leads(NONNULL(struct host *h), NONNULL(struct pcpu *q), s64 behind, u32 comes)
{
	struct pcpu *core = plat_pcpu(h, q->core_first);
	u32 runs = plat_read(q->current_world);
	struct world *w = runs ? plat_world(h, runs) : NULL;
	s64 lead = (s64)(plat_knobs(h)->lag_bound_us * US);

	if (!core || !w || plat_read(core->core_awake) != 1 ||
	    w->flags & WORLD_RESTRICTED)
		return false;
	if (behind - plat_read(w->behind_ns) < lead)
		return false;
	return plat_cas(&q->comes, 0, comes);
}

SUBPROG s32 spread_leader_in(NONNULL(struct host *h), u32 cluster, TRUSTED_TASK(t), s64 behind,
			     u32 comes)
{
	struct cluster *c = plat_cluster(h, cluster);
	u64 mask = c ? plat_read(c->present) & ~plat_read(c->idle) : 0;

	if (!c || !home_has(home_mask(h, t), c->domain))
		return -1;
	plat_for(i, CLUSTER_PCPUS) {
		u32 bit = mask ? plat_first_bit(mask) & 63 : 0;
		struct pcpu *q = mask ? plat_pcpu(h, c->pcpu[bit]) : NULL;

		if (!q)
			break;
		mask &= mask - 1;
		if (plat_may_run(t, q->id) && spread_leads(h, q, behind, comes))
			return (s32)q->id;
	}
	return -1;
}

/* A pCPU whose world makes room for the running one; -1 if there is none. */
SUBPROG s32 spread_leader(NONNULL(struct host *h), u32 pcpu, TRUSTED_TASK(prev), s64 behind,
			  u32 comes)
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	s32 found;

	if (!core || !c || plat_read(core->core_awake) < 2 || !with(SPREAD_LEADER))
		return -1;
	found = spread_leader_in(h, p->cluster, prev, behind, comes);
	if (found >= 0)
		return found;
	plat_for(i, NEAR_MAX) {
		if (i >= c->nears)
			break;
		found = spread_leader_in(h, c->near[i & (CLUSTERS_MAX - 1)], prev, behind, comes);
		if (found >= 0)
			return found;
	}
	return -1;
}

/* Whether the running world leaves its pCPU; if so, the kernel hands it to enqueue next. */
INLINE bool spread_leaves(struct host *h, struct pcpu *p, plat_task *prev, struct world *w)
{
	s32 found = h->smt > 1 ? spread_find(h, p->id, prev) : -1;
	u32 preempts = 0;

	if (found < 0 && cores_granted(h, plat_knobs(h))) {
		found = spread_leader(h, p->id, prev, w->behind_ns, w->id);
		preempts = SPREAD_PREEMPTS;
	}
	if (found < 0)
		return false;
	w->spread_to = ((u32)found + 1) | preempts;
	plat_set_slice(prev, 0);
	trace_note_stop(h, p, WHY_MIGRATED);
	if (trace_on(h))
		w->flags |= WORLD_SPREAD;
	return true;
}

/* Where a world goes that left a shared core, and whether it preempts there; -1 if it did not. */
INLINE s32 spread_take(struct world *w, bool *preempts)
{
	u32 to = w->spread_to;

	w->spread_to = 0;
	*preempts = to & SPREAD_PREEMPTS;
	return (s32)(to & ~SPREAD_PREEMPTS) - 1;
}

/* It does not come there after all. */
INLINE void spread_return(struct host *h, const struct world *w, s32 pcpu, bool preempts)
{
	struct pcpu *q = pcpu >= 0 ? plat_pcpu(h, (u32)pcpu) : NULL;

	if (q && preempts)
		plat_cas(&q->comes, w->id, 0);
	else if (q)
		idle_return(h, (u32)pcpu);
}

#endif
