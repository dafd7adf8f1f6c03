/* Use of budgets: a world starts and stops to use those of its limiters.
 *
 * Promise	each use ends once; CPU time charged to limiters = CPU time used - what runs now -
 *		what is unpaid
 * Law		law/budget.h; a use is one word of the world (or, between two wake-ups, of its VM),
 *		so it changes hands at once
 * Units	ns of CPU time
 * Limits	a limiter in use never changes its parent: user space gives a moved limit a new slot
 */
#ifndef TANDEM_BUDGET_H
#define TANDEM_BUDGET_H

#include "../law/budget.h"

/* Level of a limit. Time beyond the highest level is lost, and so is debt beyond BUDGET_DEBT_NS. */
INLINE s64 budget_level(struct limiter *l, u64 now)
{
	u64 tat = plat_read(l->tat_ns);
	s64 used = budget_in_flight(l, now), most = (s64)budget_most(l), level;
	s64 gone;

	if (!tat && plat_cas(&l->tat_ns, 0, now))
		tat = now; /* a new limit has saved up nothing */
	gone = (s64)(now - tat);
	gone = clamp_s64(gone, with(LIMIT_DEBT) ? -(s64)BUDGET_DEBT_NS : gone, BUDGET_DEBT_NS);
	level = (gone * (s64)l->rate >> RATE_SHIFT) - used;
	if (level > most) {
		gone -= (s64)(((u64)(level - most) << RATE_SHIFT) / l->rate);
		level = most;
	}
	if (gone != (s64)(now - tat))
		plat_cas(&l->tat_ns, tat, now - gone);
	return level;
}

/* A world starts to use the budgets from `token` on. */
SUBPROG u32 budget_begin(NONNULL(struct host *h), u64 token)
{
	u32 id = budget_first(token);

	plat_for(i, BUDGET_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		plat_add(&l->inflight, BUDGET_ONE + budget_stamp(token));
		id = l->parent;
	}
	return 0;
}

/* A use ends after `used` ns. Returns the lowest limiter with parked worlds, 0 for none. */
SUBPROG u32 budget_end(NONNULL(struct host *h), u64 token, u64 used)
{
	u32 id = budget_first(token), serve = 0;
	u64 left;

	plat_for(i, BUDGET_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		if (l->rate)
			plat_add(&l->tat_ns, ((used << RATE_SHIFT) + l->rate - 1) / l->rate);
		/* what has begun ends with its own stamp: none is left where nothing runs */
		left = plat_fetch_add(&l->inflight, -(BUDGET_ONE + budget_stamp(token))) -
		       (BUDGET_ONE + budget_stamp(token));
		plat_assert(h, !left || (s64)(left - BUDGET_ONE) >= 0);
		if (!serve && plat_read(l->parked))
			serve = id;
		id = l->parent;
	}
	return serve;
}

/* A world starts with a use of its own; false if another pCPU has just begun one for it. A use is
 * counted at its limiters before any may end it. */
INLINE bool budget_start(struct host *h, struct world *w, u64 token)
{
	budget_begin(h, token);
	if (plat_cas(&w->budget, 0, token))
		return true;
	budget_end(h, token, 0);
	return false;
}

/* A world stops, having used `used` ns. Returns a limiter as budget_end does. Time after the use
 * has ended, until the kernel has switched, is charged with the next use of its VM. */
INLINE u32 budget_stop(struct host *h, struct vm *v, struct world *w, u64 used)
{
	u64 token = plat_read(w->budget);

	if (!token || !plat_cas(&w->budget, token, 0)) {
		if (used && plat_read(v->limiter))
			plat_add(&v->unpaid_ns, used);
		return 0;
	}
	if (plat_read(v->unpaid_ns))
		used += plat_fetch_and(&v->unpaid_ns, 0);
	return budget_end(h, token, used);
}

/* A world stops to sleep, and the next world of its VM that starts takes the use over, until the
 * next tick of limits: a wake-up then asks no limiter. Not where a limit binds: a use that is
 * kept counts as running, and keeps others from starting. */
INLINE u32 budget_keep(struct host *h, struct vm *v, struct world *w, u64 used)
{
	u64 token = plat_read(w->budget);
	u32 first = budget_first(token);
	struct limiter *l = token ? plat_limiter(h, first) : NULL;

	if (!with(LIMIT_KEPT) || !l || plat_read(l->binds) || first != plat_read(v->limiter) ||
	    plat_read(v->kept))
		return budget_stop(h, v, w, used);
	if (!plat_cas(&w->budget, token, 0))
		return 0;
	plat_add(&v->unpaid_ns, used);
	if (!plat_cas(&v->kept, 0, token))
		return budget_end(h, token, plat_fetch_and(&v->unpaid_ns, 0));
	return 0;
}

/* A kept use ends at the tick. */
INLINE void budget_end_kept(struct host *h, struct vm *v)
{
	u64 token = plat_read(v->kept);

	if (token && plat_cas(&v->kept, token, 0))
		budget_end(h, token, plat_fetch_and(&v->unpaid_ns, 0));
}

/* A world starts against the law and makes a debt: the kernel runs it without asking, or it has
 * waited for too long. */
INLINE void budget_overdraw(struct host *h, const struct vm *v, struct world *w)
{
	u64 token = budget_token(plat_read(v->limiter), plat_now(h));

	plat_assert(h, budget_first(token));
	if (budget_start(h, w, token))
		w->budget_ns = BUDGET_MIN_NS;
}

#endif
