/* Times when threads of a core were busy, as esxtop's CORE UTIL and PCPU USED need them: they do
 * not follow from the threads' own times.
 *
 * Promise	at any moment the core's time is that of at least one (or two) of its threads not
 *		being idle, since the scheduler was loaded (crates/sim/tests/looks.rs)
 * Law		time = base + now while so many are awake; base -= now at the begin, += now at
 *		the end
 * Units	ns of the scheduler's clock
 * Limits	hosts with hyper-threads only. A reader between count and base sees a time that
 *		cannot be, and reads again
 */
#ifndef TANDEM_BUSY_H
#define TANDEM_BUSY_H

#include "../platform/platform.h"

/* A pCPU of a core with several threads begins or ends to idle. */
RARE_SUBPROG u32 busy_change(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	struct pcpu *core = plat_pcpu(h, p->core_first);
	u64 now = plat_now(h);
	u32 others;

	if (!core)
		return 0;
	p->awake = !p->awake;
	if (!p->awake)
		core->core_idle_since_ns = now; /* before the count: a reader of 0 sees it */
	others = p->awake ? plat_fetch_add(&core->core_awake, 1)
			  : plat_fetch_add(&core->core_awake, -1) - 1;
	plat_assert(h, others < h->smt);
	if (others == 0) {
		plat_add(&core->core_busy_ns, p->awake ? -now : now);
	} else if (others == 1) {
		if (p->awake)
			core->core_shared_since_ns = now;
		plat_add(&core->core_shared_ns, p->awake ? -now : now);
	}
	return 0;
}

/* Called at each change, and where a pCPU runs a world that started before the load. */
INLINE void busy_seen(struct host *h, struct pcpu *p, bool awake)
{
	if (h->smt > 1 && !p->awake == awake)
		busy_change(h, p);
}

#endif
