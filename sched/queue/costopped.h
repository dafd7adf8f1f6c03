/* The queue of a VM's co-stopped vCPUs.
 *
 * Promise	a co-stopped vCPU is in no pCPU's queue; one in its emulator's code is never
 *		co-stopped, for its siblings may wait for a lock that it holds (C3)
 */
#ifndef TANDEM_COSTOPPED_H
#define TANDEM_COSTOPPED_H

#include "../law/skew.h"
#include "count.h"

/* Whether a world may not run because its VM is stopped whole (strict co-scheduling). */
INLINE bool costopped_whole(const struct vm *v, const struct world *w)
{
	return PLAT_STRICT && plat_read(v->stopped) && skew_is_vcpu(w) && !plat_read(w->outside);
}

/* Queues a vCPU that is co-stopped, or whose VM is stopped whole; called from enqueue. */
INLINE void costopped_insert(struct host *h, plat_task *t, struct vm *v, struct world *w)
{
	const struct knobs *k = plat_knobs(h);

	count_costopped(h, v, w);
	plat_queue_insert(h, t, QUEUE_COSTOP(w->vm), share_quantum(k, w), share_queued(h, k, v, w));
}

#endif
