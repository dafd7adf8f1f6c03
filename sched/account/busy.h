/* Times when threads of a core were busy, as esxtop's CORE UTIL and PCPU USED need them: it does not follow from the threads' own.
 *
 * Promise	at any moment the core's time is that of at least one (or two) of its threads not being idle, since the scheduler
 *		was loaded and the thread was seen first (crates/sim/tests/looks.rs)
 * Law		time = base + now while so many are awake; base -= now when they begin to be, += now when they end
 * Limits	hosts with hyper-threads only; a thread turns on its own pCPU, in the order that the shared count gives
 * Weakness	a reader between the count and the base sees a time that cannot be, and looks again
 */
#ifndef TANDEM_BUSY_H
#define TANDEM_BUSY_H

#include "../platform.h"

/* A pCPU of a core with several threads begins or ends to idle. */
apart u32 busy_turn(THE(struct host *h), THE(struct pcpu *p))
{
	struct pcpu *core = plat_pcpu(h, p->core_first);
	u64 now = plat_now(h);
	u32 others;

	if (!core)
		return 0;
	p->awake = !p->awake;
	others = p->awake ? plat_fetch_add(&core->core_awake, 1) : plat_fetch_add(&core->core_awake, -1) - 1;
	if (others == 0)
		plat_add(&core->core_busy_ns, p->awake ? -now : now);
	else if (others == 1)
		plat_add(&core->core_shared_ns, p->awake ? -now : now);
	return 0;
}

/* Called where it may have: told of each turn, or running something that began before this was loaded. */
hot void busy_seen(struct host *h, struct pcpu *p, bool awake)
{
	if (h->smt > 1 && !p->awake == awake)
		busy_turn(h, p);
}

#endif
