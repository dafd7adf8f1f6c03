/* Gangs at the tick: the rest of a gang is placed when its slice begins, and all its vCPUs stop
 * when the slice ends.
 *
 * Promise	as law/gang.h
 * Limits	each pCPU of the host is looked at when a gang slice has just begun
 */
#ifndef TANDEM_GANG_TICK_H
#define TANDEM_GANG_TICK_H

#include "siblings.h"

/* Names READY vCPUs that lag as the next of pCPUs where they preempt. */
SUBPROG u32 gang_place(NONNULL(struct host *h), NONNULL(struct siblings_look *s))
{
	struct vm *v = plat_vm(h, s->vm);
	u64 key = v ? plat_read(v->gang_key) : 0, near = plat_knobs(h)->costop_us * US;

	s->next = 0;
	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = i < h->pcpus ? plat_pcpu(h, i) : NULL;
		u32 world;

		if (!p || !key || !with(GANG_PLACE))
			break;
		if (!gang_preempts(h, p, s->vm, key, s->now_ns))
			continue;
		world = siblings_lagging(h, s, s->waits_ns - near);
		if (!world)
			break;
		p->gang_next = world;
		p->preempts++;
		trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
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
