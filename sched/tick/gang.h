/* Gangs at the tick: the rest of a gang is placed when its slice begins, and all its vCPUs stop
 * when the slice ends.
 *
 * Promise	as law/gang.h
 * Limits	GANG_PCPUS pCPUs are looked at in each attempt, first those from the LLC on where
 *		the VM's first vCPU ran last, then the next ones
 */
#ifndef TANDEM_GANG_TICK_H
#define TANDEM_GANG_TICK_H

#include "siblings.h"

/* pCPUs that one attempt to place the rest of a gang looks at: some 1,000 instructions */
#define GANG_PCPUS 48

/* First pCPU of an attempt, whose number counts from 1. */
INLINE u32 gang_from(struct host *h, const struct siblings_look *s, u32 attempt)
{
	struct siblings *all = plat_siblings(h, s->vm);
	struct world *first = all ? plat_world(h, all->world[0]) : NULL;
	struct pcpu *p = first && first->last_pcpu > 0 ? plat_pcpu(h, (u32)first->last_pcpu) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	return ((c ? c->pcpu[0] : 0) + (attempt - 1) * GANG_PCPUS) % (h->pcpus ? h->pcpus : 1);
}

/* Whether the gang for which the pCPU is named has an earlier deadline. */
SUBPROG bool gang_named(NONNULL(struct host *h), NONNULL(struct pcpu *p), u64 key)
{
	struct world *w = with(GANG_NAMED) ? plat_world(h, p->gang_next) : NULL;
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;

	return v && plat_read(v->gang_key) <= key;
}

/* Names a READY vCPU that lags as the next of a pCPU, if the gang preempts there; false if none is
 * left. A function of its own, for the verifier walks a loop anew for every path through its
 * body. */
SUBPROG bool gang_name(NONNULL(struct host *h), NONNULL(struct siblings_look *s),
		       NONNULL(struct pcpu *p), u64 key)
{
	u64 homes = plat_read(h->homes), near = plat_knobs(h)->costop_us * US;
	struct world *w;
	u32 world;

	if ((plat_read(p->gang_next) && gang_named(h, p, key)) ||
	    !gang_preempts(h, p, s->vm, key, s->now_ns))
		return true;
	if (p->domain != s->domain && homes)
		s->next = 0; /* others have their homes here */
	s->domain = p->domain;
	world = siblings_lagging(h, s, s->waits_ns - near, p->domain);
	w = world ? plat_world(h, world) : NULL;
	if (!w)
		return homes;
	w->named_ns = s->now_ns;
	p->gang_next = world;
	p->preempts++;
	trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
	return true;
}

/* Below limits the vCPUs of a gang start together, once the level pays for BUDGET_SPAN_NS of each,
 * or is all that can be saved up: one by one they would spin for those that are parked. Not where
 * the debt of a tick would pass the limit. */
INLINE void gang_budget(struct host *h, const struct siblings_look *s, struct vm *v)
{
	struct limiter *l = plat_limiter(h, plat_read(v->limiter));
	bool whole = l && gang_spins(v, s->now_ns) && budget_bears(l, s->busy);
	u32 starts = whole ? plat_read(l->gang) : 0;

	v->gang_starts = (u32)min_u64(starts, s->busy);
}

/* Names READY vCPUs that lag as the next of pCPUs where they preempt. */
SUBPROG u32 gang_place(NONNULL(struct host *h), NONNULL(struct siblings_look *s))
{
	struct vm *v = plat_vm(h, s->vm);
	u64 key = v ? plat_read(v->gang_key) : 0;
	u32 from = v ? gang_from(h, s, v->gang_tries) : 0;

	s->next = s->domain = 0;
	plat_for(i, GANG_PCPUS) {
		u32 id = from + i < h->pcpus ? from + i : from + i - h->pcpus;
		struct pcpu *p = i < h->pcpus ? plat_pcpu(h, id) : NULL;

		if (!p || !key || !with(GANG_PLACE) || !gang_name(h, s, p, key))
			break;
	}
	return 0;
}

/* All vCPUs of a gang stop at once where another world waits: by the ticks of their pCPUs it would
 * take a timer tick, and so would the next gang's begin. */
SUBPROG u32 gang_stop(NONNULL(struct host *h), NONNULL(struct siblings_look *s))
{
	plat_for(i, VCPUS_MAX) {
		struct world *w = NULL;
		struct pcpu *p = NULL;
		struct cluster *on = NULL;

		if (i >= s->count)
			break;
		if (siblings_see(h, s, i) && s->state == STATE_RUN)
			w = plat_world(h, s->world);
		if (w && w->last_pcpu >= 0)
			p = plat_pcpu(h, (u32)w->last_pcpu);
		if (p)
			on = plat_cluster(h, p->cluster);
		if (on && plat_read(on->queued))
			trace_kick(h, p->id, KICK_PREEMPT, WHY_QUANTUM);
	}
	return 0;
}

#endif
