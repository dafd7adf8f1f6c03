/* Counts of the worlds that wait in queues.
 *
 * Promise	a world counts as waiting from before it is put into a queue (the kernel does so
 *		only after enqueue has returned) until it runs or is taken off; so a count may be
 *		too high for a moment, and is never too low
 * Law		world.queued_on names the one queue that counts it; the CPU that changes that
 *		word moves the count, for a timer moves parked worlds without the lock of their
 *		runqueue
 */
#ifndef TANDEM_COUNT_H
#define TANDEM_COUNT_H

#include "../account/budget.h"
#include "../account/state.h"
#include "../law/share.h"

/* Worlds that wait at `p`. */
INLINE u32 count_waiting(const struct pcpu *p)
{
	return plat_read(p->waits_vm) + plat_read(p->waits_system);
}

/* pcpu.kicked: no world was queued while the pCPU was idle; one was; one was, but the pCPU has
 * taken another, so the kick is spent. */
enum kick_state { KICK_STATE_NONE, KICK_STATE_SENT, KICK_STATE_SPENT };

/* A world waits at `p`: `key` is its queued deadline, a lower bound of `deadline` now. */
INLINE void count_ready(struct host *h, struct world *w, struct pcpu *p, u64 key, u64 deadline)
{
	struct cluster *c = plat_cluster(h, p->cluster);
	bool system = w->vm == VM_SYSTEM;

	plat_assert(h, !w->queued_on);
	if (!plat_read(p->current_world))
		p->kicked = KICK_STATE_SENT;
	w->queued_on = p->id * 2 + system + 1;
	if (system)
		plat_add(&p->waits_system, 1);
	else
		plat_add(&p->waits_vm, 1);
	if (!system && key < p->wait_key)
		p->wait_key = key;
	if (!system && deadline < p->best_key)
		p->best_key = deadline;
	if (!c || plat_read(c->queued) >> (p->bit & 63) & 1)
		return;
	p->waits_since_ns = plat_now(h);
	plat_or(&c->queued, 1ull << (p->bit & 63));
}

/* A vCPU is among the co-stopped of its VM. */
INLINE void count_costopped(struct host *h, struct vm *v, struct world *w)
{
	plat_assert(h, !w->queued_on);
	w->queued_on = QUEUED_COSTOP + w->vm;
	plat_add(&v->costopped, 1);
}

/* A parked world was unparked by limiter `first`: it counts there and at the limiters above while
 * it waits for a pCPU; no longer with `first` 0. */
SUBPROG u32 count_unparked(NONNULL(struct host *h), NONNULL(struct world *w), u32 first)
{
	u32 id = first ? first : w->unparked_by;

	plat_assert(h, !first || !w->unparked_by);
	w->unparked_by = first;
	plat_for(i, BUDGET_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		id = l->parent;
		if (first)
			plat_add(&l->unparked, 1);
		else if (plat_read(l->unparked)) /* a slot that is used again begins at 0 */
			plat_add(&l->unparked, -1);
	}
	return 0;
}

SUBPROG u32 count_out_parked(NONNULL(struct host *h), NONNULL(struct world *w), u32 limiter)
{
	struct limiter *l = plat_limiter(h, limiter);
	u64 now = plat_now(h), since = w->parked_ns;

	w->parked_ns = 0;
	if (since && now > since)
		w->limited_ns += now - since;
	if (l) {
		plat_assert(h, plat_read(l->parked) > 0);
		plat_add(&l->parked, -1);
	}
	return 0;
}

RARE_INLINE void count_out_costopped(struct host *h, u32 vm)
{
	struct vm *v = plat_vm(h, vm);

	if (!v)
		return;
	plat_assert(h, plat_read(v->costopped) > 0);
	plat_add(&v->costopped, -1);
}

/* One world less waits at `p`. */
INLINE void count_out_ready(struct host *h, struct pcpu *p, bool system)
{
	struct cluster *c = plat_cluster(h, p->cluster);

	if (!c)
		return;
	plat_assert(h, (system ? plat_read(p->waits_system) : plat_read(p->waits_vm)) > 0);
	if (system)
		plat_add(&p->waits_system, -1);
	else
		plat_add(&p->waits_vm, -1);
	if (count_waiting(p))
		return;
	plat_fetch_and(&c->queued, ~(1ull << (p->bit & 63)));
	p->wait_key = p->best_key = KEY_NONE;
	if (count_waiting(p)) /* one came meanwhile, and may have found the bit still set */
		plat_or(&c->queued, 1ull << (p->bit & 63));
}

/* A world no longer waits where `queued`, its queued_on until a moment ago, says. */
SUBPROG u32 count_left(NONNULL(struct host *h), NONNULL(struct world *w), u32 queued)
{
	struct pcpu *p;

	if (queued >= QUEUED_COSTOP) {
		count_out_costopped(h, queued - QUEUED_COSTOP);
		return 0;
	}
	if (queued >= QUEUED_PARKED) {
		count_out_parked(h, w, queued - QUEUED_PARKED);
		return 0;
	}
	if (plat_read(w->unparked_by))
		count_unparked(h, w, 0);
	p = plat_pcpu(h, (queued - 1) / 2);
	if (p)
		count_out_ready(h, p, (queued - 1) & 1);
	return 0;
}

/* A world runs, or is taken off; false, and nothing happens, if it did not wait. */
INLINE bool count_out(struct host *h, struct world *w)
{
	u32 queued = plat_read(w->queued_on);

	if (!queued || !plat_cas(&w->queued_on, queued, 0))
		return false;
	count_left(h, w, queued);
	return true;
}

/* A world that waited where `from`, 0 for nowhere, says is parked at a limiter: from now on that
 * limit holds it back. False, and nothing happens, if another CPU is taking it: that one counts it
 * out. */
INLINE bool count_parked(struct host *h, struct world *w, u32 from, u32 limiter, u64 key)
{
	struct limiter *l = plat_limiter(h, limiter);

	if (!l)
		return false;
	plat_add(&l->parked, 1); /* first: never too low */
	if (!plat_cas(&w->queued_on, from, QUEUED_PARKED + limiter)) {
		plat_add(&l->parked, -1);
		return false;
	}
	if (from)
		count_left(h, w, from);
	plat_assert_alone(h, !plat_read(w->budget));
	w->parked_ns = plat_now(h);
	trace_parked(h, w, limiter, key);
	return true;
}

RARE_SUBPROG u32 count_out_early(NONNULL(struct host *h), NONNULL(struct world *w))
{
	if (count_out(h, w))
		trace_unqueued(h, w);
	return 0;
}

/* The same for a world that does not run now; it seldom waits. */
INLINE void count_out_waiting(struct host *h, struct world *w)
{
	if (plat_read(w->queued_on))
		count_out_early(h, w);
}

#endif
