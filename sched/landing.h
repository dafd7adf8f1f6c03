/* Where a world goes that a timer lets go on, after a limit or its siblings held it back: to the queue of an idle pCPU, else to the one
 * where it waits least. Not to a local queue of the kernel: from a timer, that makes 7.2 skip the update of the pCPU's clock, and the
 * world is charged all the time that its pCPU was idle before. The walk of the queue that it leaves is the caller's. */
#ifndef TANDEM_LANDING_H
#define TANDEM_LANDING_H

#include "policy/place.h"

struct landing {
	struct claim claim;
	u32 pcpu;
	s32 found;	/* an idle pCPU that has been claimed, or -1 */
};

/* Chooses the pCPU; false if there is none. */
cold bool landing_choose(THE(struct host *h), TASK(t), THE(struct world *w), THE(struct vm *v), THE(struct landing *l))
{
	u32 pcpu = (u32)plat_task_pcpu(t);

	l->claim = preempt_claim(w, share_key(v, w));
	l->found = place_idle(h, t, pcpu);
	l->pcpu = l->found >= 0 ? (u32)l->found : place_busy(h, t, w, l->claim.key, pcpu);
	return plat_pcpu(h, l->pcpu) != NULL;
}

/* Counts the world in there; it has left where it was. */
hot void landing_enter(struct host *h, struct world *w, const struct landing *l, u64 key)
{
	struct pcpu *p = plat_pcpu(h, l->pcpu);

	if (!p)
		return;
	queue_enter(h, w, p, key);
	trace_queued(h, w, p->id, key);
}

/* Wakes the pCPU, or has it preempt. */
hot void landing_kick(struct host *h, const struct landing *l)
{
	struct pcpu *p = plat_pcpu(h, l->pcpu);

	if (!p)
		return;
	if (l->found >= 0) {
		trace_kick(h, p->id, KICK_IDLE, WHY_UNKNOWN);
	} else if (preempt_gain(h, p, &l->claim, plat_now(h))) {
		p->preempts++;
		trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
	}
}

#endif
