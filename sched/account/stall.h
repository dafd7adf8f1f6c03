/* Stall of vCPUs: what the law of skew goes by, where a vCPU joins, wakes, or crosses between its
 * guest and its emulator.
 *
 * Promise	a vCPU that made progress without a pCPU (halted, or in its emulator's code) neither
 *		leads nor lags for it (C3, C4)
 * Law		slowest - lead <= stall <= slowest, by moving the base
 * Units	ns of the clock
 * Limits	the slowest is that of the tick's last look, which may be a period ago
 */
#ifndef TANDEM_STALL_H
#define TANDEM_STALL_H

#include "../law/skew.h"
#include "../tell/trace.h"

/* A vCPU comes back to its siblings, ahead of the slowest by at most `lead`. */
INLINE void stall_back(const struct vm *v, struct world *w, u64 lead)
{
	u64 slowest = plat_read(v->slowest_ns), stall = skew_stall(w), least;

	if (!slowest)
		slowest = STALLED_START; /* no tick has looked at this VM yet */
	least = slowest - lead;
	if (stall > slowest)
		w->stalled_base_ns -= stall - slowest;
	else if (stall < least)
		w->stalled_base_ns += least - stall;
}

/* A vCPU joins its siblings, or comes back from sleep. */
INLINE void stall_woken(const struct knobs *k, const struct vm *v, struct world *w)
{
	stall_back(v, w, k->costart_us * US);
	w->led_ns = 0;
}

/* The running vCPU enters its guest, or leaves it for its emulator. It comes back as one that wakes
 * does, but keeps a larger lead that it had when it left: one that leaves often must stop too. */
INLINE void stall_crossed(struct host *h, struct world *w, bool inside)
{
	struct vm *v = plat_vm(h, w->vm);
	u64 least = plat_knobs(h)->costart_us * US, stall = skew_stall(w);
	u64 slowest = v && v->indices > 1 ? plat_read(v->slowest_ns) : 0;

	if (!inside)
		w->led_ns = slowest > stall ? slowest - stall : 0;
	else if (slowest)
		stall_back(v, w, max_u64(w->led_ns, least));
	plat_assert_alone(h, w->state == STATE_RUN);
	w->outside = !inside;
	if (trace_on(h))
		trace_put(h, plat_now(h), trace_head(TRACE_GUEST, w->id, plat_here(h)), inside, 0);
}

/* A vCPU takes its place among its siblings, by its number. Each place has one writer; a race is
 * lost only where user space gives a number twice. */
RARE_SUBPROG u32 stall_join(NONNULL(struct host *h), NONNULL(struct vm *v),
			    NONNULL(struct world *w))
{
	struct siblings *s = plat_siblings(h, w->vm);
	struct world *alone = s && v->indices == 1 ? plat_world(h, s->world[0]) : NULL;
	u64 now = plat_now(h), since;
	u32 index = w->index;

	if (!s || index >= VCPUS_MAX)
		return 0;
	/* The tick looks at no VM of one vCPU, so the stall of that one is the slowest. */
	if (index && alone && alone->vm == w->vm) {
		since = plat_read(alone->state_since_ns);
		v->slowest_ns = skew_stall(alone);
		if (alone->state == STATE_READY && now > since)
			v->slowest_ns += now - since;
	}
	s->world[index] = w->id;
	plat_for(i, 4) { /* at most a few vCPUs join at once */
		u32 end = plat_read(v->indices);

		if (index < end || plat_cas(&v->indices, end, index + 1))
			break;
	}
	if (index)
		h->smp = 1;
	return 0;
}

#endif
