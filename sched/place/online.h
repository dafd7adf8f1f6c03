/* pCPUs that go off line and come on line again.
 *
 * Promise	no world is placed on a pCPU that is off line, and none stays in its queues for
 *		longer than a round of housekeeping
 * Law		cluster.present: the pCPUs on line, by which idle ones and queues are searched.
 *		What waits at one that is not goes to the local queue of the pCPU that it belongs
 *		to. If that is off line too the kernel moves it, to a pCPU that its affinity
 *		allows, and hands it to enqueue; else it preempts there, for nothing else looks
 *		into a local queue before the running world's slice ends. A world whose home is
 *		elsewhere by now is left to the pCPUs of that, which pull it: of a node that goes
 *		whole all would wait in one local queue
 * Limits	a pCPU that was off line at the load has no cluster: worlds that the kernel puts
 *		there run in its own order, without a queue, until the daemon loads anew. The
 *		kernel waits with taking a pCPU off line until the worlds that are parked or
 *		co-stopped there have run elsewhere
 */
#ifndef TANDEM_ONLINE_H
#define TANDEM_ONLINE_H

#include "../queue/count.h"
#include "whole.h"

/* What has just come to the local queue of a pCPU on line preempts there. */
RARE_SUBPROG u32 online_preempt(NONNULL(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (c && idle_online(c, p->bit))
		trace_kick(h, pcpu, KICK_PREEMPT, WHY_MIGRATED);
	return 0;
}

/* Hands worlds that wait in `queue` of `domain` back to the kernel, but for those whose home is
 * elsewhere; `seen` counts those looked at. */
SUBPROG u32 online_return(NONNULL(struct host *h), u64 queue, u32 domain, NONNULL(u32 *seen))
{
	plat_task *t;

	plat_queue_each(h, t, queue) {
		struct world *w = plat_world_of(h, t);
		u32 at;

		if (!w || (*seen)++ >= QUEUE_SCAN_MAX)
			break;
		if (!home_lets(w, domain))
			continue;
		at = (u32)plat_task_pcpu(t);
		count_out_waiting(h, w);
		plat_queue_return(h, t);
		online_preempt(h, at);
	}
	return 0;
}

/* No world waits at a pCPU that is off line. */
RARE_SUBPROG u32 online_drain(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	u32 seen = 0;

	online_return(h, QUEUE_SYSTEM(p->id), p->domain, &seen);
	online_return(h, QUEUE_VM(p->id), p->domain, &seen);
	return 0;
}

/* Whether idle pCPUs look for what was on its way to one that has gone: the kernel puts such a
 * world where none is kicked for it. */
INLINE bool online_left(struct host *h)
{
	return h->left_ns && plat_now(h) - h->left_ns < SEC_NS;
}

/* The pCPUs on line, and the cores that have one, change. */
INLINE void online_count(struct host *h, const struct pcpu *p, bool online)
{
	struct pcpu *core = plat_pcpu(h, p->core_first);
	u32 others;

	plat_add(&h->online, online ? 1 : -1);
	if (!core)
		return;
	others = online ? plat_fetch_add(&core->core_online, 1)
			: plat_fetch_add(&core->core_online, -1) - 1;
	if (!others)
		plat_add(&h->cores, online ? 1 : -1);
}

/* A pCPU comes on line or goes off line. */
INLINE void core_online(struct host *h, u32 pcpu, bool online)
{
	struct pcpu *p = pcpu < h->pcpus ? plat_pcpu(h, pcpu) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 one = p ? 1ull << (p->bit & 63) : 0;

	if (!c || idle_online(c, p->bit) == online)
		return;
	if (cores_granted(h, plat_knobs(h)))
		whole_end(h, pcpu);
	if (holder_on(h))
		holder_leave(h, pcpu, HOLDER_SERVES);
	if (online) {
		plat_or(&c->present, one);
		online_count(h, p, true);
		p->left_ns = 0;
		trace_kick(h, pcpu, KICK_IDLE, WHY_UNKNOWN); /* it looks for work */
	} else {
		plat_fetch_and(&c->present, ~one);
		plat_fetch_and(&c->idle, ~one);
		online_count(h, p, false);
		h->left_ns = plat_now(h);
	}
}

#endif
