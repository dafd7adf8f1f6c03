/* Running worlds that share a core while a whole one idles.
 *
 * Promise	while a whole core that they may use idles in their node, two worlds share one for
 *		a quantum and spread_us at most (VS51 "Hyper-Threading", H1)
 * Law		at the end of its quantum a world whose core has another busy thread is placed anew,
 *		if a whole core has been idle for longer than spread_us: what it gains there for a
 *		quantum is more than its caches cost
 * Units	us of the clock
 * Limits	NEAR_MAX clusters of the node are looked at
 */
#ifndef TANDEM_SPREAD_H
#define TANDEM_SPREAD_H

#include "place.h"

/* Whether a whole core of the cluster that the thread may use has been idle since `before`. */
SUBPROG bool spread_in(NONNULL(struct host *h), u32 cluster, TRUSTED_TASK(t), u64 before)
{
	struct cluster *c = plat_cluster(h, cluster);
	u64 mask = c ? idle_cores(c, h->smt, plat_read(c->idle)) : 0;

	plat_for(i, CLUSTER_PCPUS) {
		struct pcpu *q = mask ? plat_pcpu(h, c->pcpu[plat_first_bit(mask) & 63]) : NULL;
		struct pcpu *core = q ? plat_pcpu(h, q->core_first) : NULL;

		if (!core)
			break;
		mask &= mask - 1;
		if (plat_read(core->core_idle_since_ns) < before && plat_may_run(t, q->id))
			return true;
	}
	return false;
}

/* Whether the running world is to leave its pCPU for a whole core. */
SUBPROG bool spread_leaves(NONNULL(struct host *h), u32 pcpu, TRUSTED_TASK(prev))
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 before = plat_now(h) - plat_knobs(h)->spread_us * US;

	if (!core || !c || plat_read(core->core_awake) < 2 || !with(SPREAD))
		return false;
	if (spread_in(h, p->cluster, prev, before))
		return true;
	plat_for(i, NEAR_MAX) {
		u32 near = i < c->nears ? c->near[i & (CLUSTERS_MAX - 1)] : p->cluster;
		struct cluster *other = plat_cluster(h, near);

		if (i >= c->nears || !other || other->node != c->node)
			break;
		if (plat_read(other->idle) && spread_in(h, near, prev, before))
			return true;
	}
	return false;
}

#endif
