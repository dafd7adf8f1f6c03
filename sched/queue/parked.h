/* Admission by limits, and the queues of parked worlds.
 *
 * Promise	a world starts only with a use of the budgets of all its limiters; a world that one
 *		of them refuses waits in that limiter's queue, in the order of deadlines
 * Law		law/budget.h; and no world starts before a parked one of an earlier deadline
 * Limits	a kept use (account/budget.h) starts without asking
 */
#ifndef TANDEM_PARKED_H
#define TANDEM_PARKED_H

#include "../account/lock.h"
#include "count.h"

/* What a world asks of its limiters; in memory, where a BPF verifier does not count along. */
struct budget_ask {
	/* time for which it may run: as asked, less where the level lasts for less */
	u64 span_ns;
	/* whose world it is */
	u32 vm;
	/* unparked worlds that wait for a pCPU count as running */
	u16 unparking;
	/* worlds that start with it, itself included; 0: it joins its siblings (tick/gang.h) */
	u16 starts;
	/* its deadline: it does not start before a parked world of an earlier one; 0: it may */
	u64 deadline;
};

/* Deadline that the first parked world of a limiter has now; KEY_NONE where none is parked. */
SUBPROG u64 parked_deadline(NONNULL(struct host *h), u32 limiter)
{
	u64 deadline = KEY_NONE;
	plat_task *t;

	plat_queue_each(h, t, QUEUE_PARKED(limiter)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;

		if (v)
			deadline = share_deadline(v, w);
		break;
	}
	return deadline;
}

/* Asks one limiter. */
SUBPROG bool parked_admits(NONNULL(struct limiter *l), u64 now, NONNULL(struct budget_ask *a))
{
	u32 more = a->unparking && with(LIMIT_UNPARKED) ? plat_read(l->unparked) : 0;
	s64 level;

	if (!l->rate)
		return true;
	level = budget_level(l, now);
	if (level < (a->starts ? budget_needed(l, more + a->starts) : 0) ||
	    (!a->starts && plat_read(l->stops) == STOPS_ALL))
		return false;
	a->span_ns = budget_lasts(l, level, a->span_ns);
	return true;
}

/* Asks every limiter above a world, from the lowest up. Returns the one that refuses it, 0 if none
 * does. */
SUBPROG u32 parked_ask(NONNULL(struct host *h), u32 first, NONNULL(struct budget_ask *a))
{
	struct vm *v = plat_vm(h, a->vm);
	u64 now = plat_now(h);
	u32 id = first;

	a->starts = 1;
	if (v && plat_read(v->gang_starts) > 1) {
		a->starts = plat_read(v->committed_ns) ? 0 : v->gang_starts;
		a->unparking = 0;
	}
	plat_for(i, BUDGET_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		if ((with(LIMIT_LINE) && plat_read(l->parked) && a->deadline &&
		     parked_deadline(h, id) < a->deadline) ||
		    !parked_admits(l, now, a))
			return id;
		id = l->parent;
	}
	return 0;
}

/* The limiter that keeps a world from starting, 0 if none does. */
SUBPROG u32 parked_refused(NONNULL(struct host *h), NONNULL(struct vm *v), NONNULL(struct world *w),
			   u64 deadline)
{
	struct budget_ask a = { .vm = w->vm, .deadline = deadline };
	u32 first = plat_read(v->limiter);

	if (!first || plat_read(w->budget) || plat_read(v->kept) || lock_wanted(w))
		return 0;
	return parked_ask(h, first, &a);
}

/* Admits a world: it uses the budgets of its limiters from now on. Returns its slice, at most
 * `want`; 0 if a limiter refuses it. With a deadline it lines up with the parked worlds. */
INLINE u64 parked_admit(struct host *h, struct vm *v, struct world *w, u64 want, u64 deadline)
{
	struct budget_ask a = { .span_ns = want, .vm = w->vm, .deadline = deadline };
	u32 first = plat_read(v->limiter);
	u64 token;

	if (!first)
		return want;
	if (plat_read(w->budget))
		return min_u64(w->budget_ns, want);
	if (lock_wanted(w)) {
		budget_overdraw(h, v, w);
		return min_u64(want, BUDGET_MIN_NS);
	}
	token = plat_read(v->kept);
	if (token && plat_cas(&v->kept, token, 0)) {
		w->budget_ns = BUDGET_SPAN_NS;
		if (plat_cas(&w->budget, 0, token))
			return min_u64(want, BUDGET_SPAN_NS);
		budget_end(h, token, 0);
		return 0;
	}
	if (parked_ask(h, first, &a))
		return 0;
	token = budget_token(first, plat_now(h));
	if (!budget_start(h, w, token))
		return 0; /* another pCPU takes it just now */
	plat_assert(h, a.span_ns && a.span_ns <= want);
	w->budget_ns = a.span_ns;
	return a.span_ns;
}

/* A world below a limit runs: its budget ends the slice. */
SUBPROG u32 parked_runs(NONNULL(struct host *h), TRUSTED_TASK(t), NONNULL(struct vm *v),
			NONNULL(struct world *w))
{
	if (!plat_read(w->budget))
		budget_overdraw(h, v, w);
	plat_assert(h, w->budget_ns);
	if (plat_slice(t) > w->budget_ns)
		plat_set_slice(t, w->budget_ns);
	return 0;
}

/* Parks a world that `limiter` refuses; called from enqueue. With 0 it was refused a moment ago. */
INLINE void parked_insert(struct host *h, plat_task *t, const struct vm *v, struct world *w,
			  u32 limiter)
{
	u64 key = share_queued(h, plat_knobs(h), v, w);

	if (!limiter)
		limiter = plat_read(v->limiter);
	plat_assert(h, limiter);
	count_parked(h, w, 0, limiter, key);
	plat_queue_insert(h, t, QUEUE_PARKED(limiter), BUDGET_SPAN_NS, key);
	if (lock_wanted(w))
		lock_serve(h, w);
}

/* Parks a world that a walk of another queue has met, unless another CPU is taking it: a macro, for
 * the walk is the caller's. */
#define parked_move(h, t, w, limiter)                                              \
	({                                                                         \
		u32 from = plat_read(w->queued_on);                                \
		if (from && count_parked(h, w, from, limiter,                      \
					 plat_queue_key(t, h->v_ns)))              \
			plat_queue_move(h, t, QUEUE_PARKED(limiter));              \
	})

#endif
