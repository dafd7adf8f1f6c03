/* Placement of worlds that a timer unparks or co-starts.
 *
 * Promise	such a world waits in the ordered queue of an idle pCPU, else where place_busy puts
 *		it
 * Limits	never in a local queue of the kernel: from a timer that makes 7.2 skip the update of
 *		the pCPU's clock, and the world is charged the time that its pCPU was idle before.
 *		The walk of the queue that it leaves is the caller's
 */
#ifndef TANDEM_REQUEUE_H
#define TANDEM_REQUEUE_H

#include "place.h"

struct requeue {
	struct candidate cand;
	u32 pcpu;
	/* an idle pCPU that has been reserved, or -1 */
	s32 idle;
};

/* Chooses the pCPU; false if there is none. */
SUBPROG bool requeue_choose(NONNULL(struct host *h), TRUSTED_TASK(t), NONNULL(struct world *w),
			    NONNULL(struct vm *v), NONNULL(struct requeue *r))
{
	u32 pcpu = (u32)plat_task_pcpu(t);

	r->cand = preempt_candidate(w, share_deadline(v, w));
	r->idle = place_idle(h, t, pcpu);
	if (r->idle >= 0)
		r->pcpu = (u32)r->idle;
	else
		r->pcpu = place_busy(h, t, w, r->cand.deadline, place_from(h, t, w, pcpu));
	return plat_pcpu(h, r->pcpu) != NULL;
}

/* Counts the world in there; it has been counted out where it was. */
SUBPROG u32 requeue_enter(NONNULL(struct host *h), NONNULL(struct world *w),
			  NONNULL(struct requeue *r), u64 key)
{
	struct pcpu *p = plat_pcpu(h, r->pcpu);
	struct vm *v = plat_vm(h, w->vm);

	if (!p)
		return 0;
	plat_assert_alone(h, w->state == STATE_READY);
	count_ready(h, w, p, key, v ? share_deadline(v, w) : key);
	trace_queued(h, w, p->id, key);
	return 0;
}

/* Wakes the pCPU, or has it preempt. */
SUBPROG u32 requeue_kick(NONNULL(struct host *h), NONNULL(struct requeue *r))
{
	struct pcpu *p = plat_pcpu(h, r->pcpu);

	if (!p)
		return 0;
	if (r->idle >= 0) {
		trace_kick(h, p->id, KICK_IDLE, WHY_UNKNOWN);
	} else if (preempt_gain(h, p, &r->cand, plat_now(h))) {
		p->preempts++;
		trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
	}
	return 0;
}

#endif
