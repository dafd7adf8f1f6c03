/* Virtual runtimes of host tasks. Each pCPU has a clock of its own for them: the virtual runtime of
 * the task that it served last, when its slice began.
 *
 * Promise	host tasks of one pCPU share it by nice weight; one that sleeps or comes from
 *		another pCPU waits there no longer, and no less, than its lag says
 * Law		on another pCPU a task is as far from the clock as it was from that of the pCPU
 *		which it left; a new one is at the clock. One that is queued is behind by
 *		wake_credit_us at most
 * Units	ns of CPU time at nice 0
 * Example	a task at 10.00 s leaves a pCPU whose clock is at 9.99 s for one at 4.00 s: it
 *		goes on there at 4.01 s
 */
#ifndef TANDEM_TASK_H
#define TANDEM_TASK_H

#include "../platform/platform.h"
#include "../law/units.h"

/* The virtual runtime of a host task is one of this pCPU's clock from now on. */
INLINE void task_arrive(struct host *h, struct world *w, struct pcpu *p)
{
	struct pcpu *from;
	u64 ahead = 0;

	if (w->clock_of == p->id + 1 || !with(TASK_CLOCK))
		return;
	from = w->clock_of ? plat_pcpu(h, w->clock_of - 1) : NULL;
	if (from)
		ahead = w->runtime_ns - plat_read(from->system_v_ns); /* negative: behind */
	w->runtime_ns = p->system_v_ns + ahead;
	w->clock_of = p->id + 1;
}

/* This pCPU serves a host task from now on, for one slice. */
INLINE void task_served(struct host *h, struct world *w, struct pcpu *p)
{
	task_arrive(h, w, p);
	p->system_v_ns = max_u64(p->system_v_ns, w->runtime_ns);
}

/* The virtual runtime with which it is queued at this pCPU. */
INLINE u64 task_key(struct host *h, struct world *w, struct pcpu *p)
{
	u64 least = p->system_v_ns - plat_knobs(h)->wake_credit_us * US;

	task_arrive(h, w, p);
	if (with(TASK_CREDIT) && (s64)(w->runtime_ns - least) < 0)
		w->runtime_ns = least;
	return w->runtime_ns;
}

#endif
