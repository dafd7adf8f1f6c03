/* Demand: the CPU time that a VM asks for.
 *
 * Promise	a VM that could use more than it gets is known to within two periods (P4)
 * Law		demand = (demand + runnable time since the last look / its length) / 2
 *		of a burst's wait only the duty cycle, run / (run + sleep), counts: without the
 *		wait the world would have alternated between both
 * Units	2^-20 pCPU
 * Example	a world that runs 1 ms, sleeps 9 ms and waits 10 ms asks for 0.1 pCPU and not 0.55
 * Limits	cycles longer than DEMAND_PERIODS are scaled down: a look sees one part of them
 */
#ifndef TANDEM_DEMAND_H
#define TANDEM_DEMAND_H

#include "units.h"

#define DEMAND_UNKNOWN (~0ull)
/* three quarters of demand is of the last two periods */
#define DEMAND_PERIODS 2
/* shortest wait of a burst that is corrected: a hundredth of a period */
#define WAITED_MIN_NS 100000ull
/* longest wait and sleep that count; what is longer ago has had its effect */
#define WAITED_MAX_NS 100000000ull

/* Runnable time that a burst's wait of `waited` ns added without demand behind it. */
INLINE u64 demand_excess(const struct knobs *k, const struct world *w, u64 waited)
{
	u64 ran = w->time_ns[STATE_RUN] - w->ran_before_ns;
	u64 slept = min_u64(w->slept_ns, WAITED_MAX_NS);
	u64 cycle = ran + slept + 1, seen = DEMAND_PERIODS * k->housekeep_us * US;

	waited = min_u64(waited, WAITED_MAX_NS) * slept / cycle;
	return cycle > seen ? waited * seen / cycle : waited;
}

/* Runnable time of a VM so far. Until a VM has run once after it woke, its wait does not count: the
 * timer tick of an idle guest would look busy. */
INLINE u64 demand_wanted(const struct vm *v, u64 now)
{
	bool waits = with(DEMAND_WOKEN) && v->woke_used_ns && !plat_read(v->committed_ns) &&
		     plat_read(v->used_ns) == v->woke_used_ns;

	return plat_read(v->runnable_base_ns) + plat_read(v->runnable) * (waits ? v->woke_ns : now);
}

/* Demand after a look that found `more` ns of runnable time in `gone` ns. Rounded up: a busy world
 * reaches a whole pCPU. */
INLINE u64 demand_next(u64 demand, u64 more, u64 gone)
{
	u64 now = (more << RATE_SHIFT) / gone + 1;

	return with(DEMAND_HALF) ? (demand + now) / 2 : now;
}

#endif
