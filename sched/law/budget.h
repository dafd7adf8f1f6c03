/* The budget of a limit: how much CPU time the worlds below it may use.
 *
 * Promise	a VM or pool under a limit uses no more than rate * time and its burst over any
 *		time, on an idle host too (VS51 "CPU Limit", P6); a limit that binds is used whole
 * Law		level = rate * (now - tat) - sum over the running worlds (now - their start), at
 *		most budget_most; tat += used / rate as worlds stop (GCRA, ITU-T I.371: the token
 *		bucket kept as one time)
 *		a world may start if level + rate * BUDGET_SPAN_NS pays for all that run, itself
 *		included, over that span, at each limit above it: about ceil(rate) run at once,
 *		the last of them part of the time. Of a VM whose vCPUs spin for each other all
 *		start at once, or as many as the level can pay for (tick/gang.h), and one joins
 *		its running siblings while the level is above 0 and the tick does not stop them
 * Units	ns of CPU time; rate in 2^-20 pCPU
 * Example	150 %: one world may always run; a second one starts at a level of 1 ms and has
 *		used that up after 2 ms; 2 ms later it may start again
 * Limits	a world beyond the level is stopped at the next tick of limits (LIMIT_TICK_NS);
 *		while worlds are parked, budget that a late tick could not hand out is saved, up
 *		to LIMIT_SLACK_NS a pCPU; a world that the kernel runs without asking is charged
 *		and makes a debt
 */
#ifndef TANDEM_BUDGET_LAW_H
#define TANDEM_BUDGET_LAW_H

#include "units.h"

/* period of the tick while a limit binds: a thousandth of the second for which limits hold */
#define LIMIT_TICK_NS 1000000ull
/* period of the tick while no limit binds: a timer tick at 250 Hz */
#define LIMIT_IDLE_NS 4000000ull
/* for each pCPU of a limit: half a percent of a second, the accuracy of limits */
#define LIMIT_SLACK_NS 5000000ull
/* a world that starts may run for so long, if the limit allows whole pCPUs */
#define BUDGET_SPAN_NS 2000000ull
/* a shorter run is not worth a switch */
#define BUDGET_MIN_NS 500000ull
/* a limit that has parked a world parks others soon: it binds for 16 ticks, a bit each */
#define LIMIT_BINDS (1u << 15)
/* ticks for which it counts that a limit was missed: the second for which limits hold */
#define LIMIT_MISSED 1000
/* burst of small limits: one start, and what a limit of half a pCPU accrues while a tick is 4 ms
 * late, as ticks of the lab are; 4 of the 12 ms by which the oracle lets a small limit be passed */
#define BUDGET_LEAST_NS (2 * BUDGET_SPAN_NS)
/* of the clock: debt beyond it is written off */
#define BUDGET_DEBT_NS SEC_NS
/* limiters above a world: of its VM and of every pool above it */
#define BUDGET_CHAIN (POOL_DEPTH_MAX + 2)
#define BUDGET_ONE (1ull << BUDGET_COUNT_SHIFT)

_Static_assert(PCPUS_MAX <= 1 << (BUDGET_COUNT_SHIFT - BUDGET_STAMP_BITS), "all stamps fit");

/* limiter.stops: which of the running worlds below it stop at this tick */
enum limits_stops { STOPS_NONE, STOPS_LATEST, STOPS_ALL };

/* CPU time of `rate` over `ns`. */
INLINE u64 budget_over(const struct limiter *l, u64 ns)
{
	return l->rate * ns >> RATE_SHIFT;
}

INLINE u64 budget_stamp(u64 now)
{
	return now & ((1ull << BUDGET_STAMP_BITS) - 1);
}

/* Worlds that use the budget now. */
INLINE u32 budget_running(const struct limiter *l)
{
	return (u32)(plat_read(l->inflight) >> BUDGET_COUNT_SHIFT);
}

/* CPU time that these have used since they started. */
INLINE s64 budget_in_flight(const struct limiter *l, u64 now)
{
	u64 inflight = plat_read(l->inflight);
	u64 sum = (inflight >> BUDGET_COUNT_SHIFT) * now - inflight;

	return (s64)(sum << (64 - BUDGET_STAMP_BITS)) >> (64 - BUDGET_STAMP_BITS);
}

/* The highest level. While worlds wait, parked or unparked, it holds what a late tick could not
 * give them. */
INLINE u64 budget_most(const struct limiter *l)
{
	u64 most = max_u64(budget_over(l, BUDGET_SPAN_NS), BUDGET_LEAST_NS);
	u64 late = budget_over(l, LIMIT_SLACK_NS);

	if (with(LIMIT_SLACK) && plat_read(l->parked) + plat_read(l->unparked) &&
	    late > BUDGET_SPAN_NS)
		most = max_u64(most, late - BUDGET_SPAN_NS);
	return most + l->burst_ns;
}

/* The least level at which `more` worlds may start beside those that run. */
INLINE s64 budget_needed(const struct limiter *l, u32 more)
{
	if (!with(LIMIT_SPAN))
		return (s64)BUDGET_MIN_NS;
	return (s64)((budget_running(l) + more) * BUDGET_SPAN_NS) -
	       (s64)budget_over(l, BUDGET_SPAN_NS);
}

/* Worlds that may start at once: the level that can be saved up between two ticks pays for
 * BUDGET_SPAN_NS of each. */
INLINE u32 budget_gang(const struct limiter *l)
{
	u64 most = budget_most(l) - budget_over(l, LIMIT_TICK_NS);

	return (u32)((most + budget_over(l, BUDGET_SPAN_NS)) / BUDGET_SPAN_NS);
}

/* Whether a limit holds though `running` worlds run from one tick to the next. In a tick, 1 ms,
 * they use `running` ms where `rate` accrues; a second may be passed by 6 ms for each pCPU of the
 * limit, by 12 ms if that is more (check/bounds.rs). 2 ms of these are for a stop that is late. */
INLINE bool budget_bears(const struct limiter *l, u64 running)
{
	u64 most = max_u64(6 * l->rate, 12ull << RATE_SHIFT) - (2ull << RATE_SHIFT);

	return running << RATE_SHIFT <= l->rate + most;
}

/* By how much the level falls in 2^20 ns while `running` worlds run. */
INLINE s64 budget_drain(const struct limiter *l, u64 running)
{
	return (s64)(running << RATE_SHIFT) - (s64)l->rate;
}

/* How long a level lasts for one running world more, at least BUDGET_MIN_NS; `span_ns` at most. */
INLINE u64 budget_lasts(const struct limiter *l, s64 level, u64 span_ns)
{
	s64 drain = budget_drain(l, budget_running(l) + 1);
	u64 lasts = level > 0 && drain > 0 ? ((u64)level << RATE_SHIFT) / (u64)drain : 0;

	if (drain <= 0 || lasts >= span_ns)
		return span_ns;
	return max_u64(lasts, BUDGET_MIN_NS);
}

/* A world's use of a budget in one word: the lowest of its limiters, and the start stamp. */
INLINE u64 budget_token(u32 first, u64 now)
{
	return (u64)first << BUDGET_STAMP_BITS | budget_stamp(now);
}

INLINE u32 budget_first(u64 token)
{
	return (u32)(token >> BUDGET_STAMP_BITS);
}

#endif
