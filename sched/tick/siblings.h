/* The look at the vCPUs of a VM: their stall, and which co-stop and co-start (relaxed).
 *
 * Promise	as law/skew.h; as many leading vCPUs stop as there are siblings that can take their
 *		pCPUs, and no more where these would idle
 * Example	A and B run, C waits; at 3 ms A co-stops and C takes its pCPU, being the earliest of
 *		their gang; B goes on, for the slowest runs now
 * Limits	each vCPU of a VM in which two or more want to run is looked at twice a tick
 */
#ifndef TANDEM_SIBLINGS_H
#define TANDEM_SIBLINGS_H

#include "../account/gang.h"
#include "../place/requeue.h"
#include "../queue/costopped.h"

/* Looks at a vCPU; false if it does not want to run, or is just changing its state. */
SUBPROG bool siblings_see(NONNULL(struct host *h), NONNULL(struct siblings_look *s), u32 number)
{
	struct siblings *all = plat_siblings(h, s->vm);
	struct world *w = all ? plat_world(h, all->world[number & (VCPUS_MAX - 1)]) : NULL;
	u64 seq, since;

	if (!w || w->vm != s->vm || w->index != number || !skew_is_vcpu(w) || plat_read(w->outside))
		return false;
	seq = plat_read(w->seq);
	plat_barrier();
	s->world = w->id;
	s->state = plat_read(w->state);
	since = plat_read(w->state_since_ns);
	s->stalled_ns = skew_stall(w);
	plat_barrier();
	if (seq & 1 || plat_read(w->seq) != seq)
		return false;
	if (s->state == STATE_READY || s->state == STATE_COSTOP)
		s->stalled_ns += s->now_ns > since ? s->now_ns - since : 0;
	return state_wants_pcpu(s->state);
}

/* Whether a READY vCPU can take the pCPU of a sibling: it waits in a pCPU's queue and is not
 * pinned. */
INLINE bool siblings_movable(const struct world *w)
{
	u32 queued = plat_read(w->queued_on);

	return queued && queued < QUEUED_PARKED && !(w->flags & WORLD_RESTRICTED);
}

SUBPROG u32 siblings_measure(NONNULL(struct host *h), NONNULL(struct siblings_look *s))
{
	s->slowest_ns = s->waits_ns = 0;
	s->waiting = s->busy = s->stuck = 0;
	s->ahead_ns = KEY_NONE;
	plat_for(i, VCPUS_MAX) {
		struct world *w;

		if (i >= s->count)
			break;
		if (!siblings_see(h, s, i))
			continue;
		s->busy++;
		s->slowest_ns = max_u64(s->slowest_ns, s->stalled_ns);
		s->ahead_ns = min_u64(s->ahead_ns, s->stalled_ns);
		w = plat_world(h, s->world);
		if (s->state != STATE_READY || !w || !plat_read(w->queued_on))
			continue; /* one in no queue is about to run */
		s->waiting++;
		s->waits_ns = max_u64(s->waits_ns, s->stalled_ns);
		s->stuck += !siblings_movable(w);
	}
	plat_assert(h, s->waiting <= s->busy && s->waits_ns <= s->slowest_ns);
	return 0;
}

/* The next READY vCPU with a stall above `above` that can take a pCPU of `domain`; 0 if there is
 * none left. */
SUBPROG u32 siblings_lagging(NONNULL(struct host *h), NONNULL(struct siblings_look *s), u64 above,
			     u32 domain)
{
	u32 from = s->next;

	plat_for(i, VCPUS_MAX) {
		u32 number = from + i;
		struct world *w;

		if (number >= s->count)
			break;
		s->next = number + 1;
		if (!siblings_see(h, s, number) || s->state != STATE_READY ||
		    s->stalled_ns <= above)
			continue;
		w = plat_world(h, s->world);
		if (w && siblings_movable(w) && home_lets(w, domain) && w->named_ns != s->now_ns)
			return w->id;
	}
	return WORLD_NONE;
}

/* Asks a vCPU to co-stop, at once if it runs, else as soon as it does: it may run for less than a
 * period each time. */
INLINE void siblings_ask(struct host *h, struct world *w, bool runs, u32 how)
{
	w->costop = how;
	if (runs && w->last_pcpu >= 0)
		trace_kick(h, (u32)w->last_pcpu, KICK_PREEMPT, WHY_SKEWED);
}

/* Asks leading vCPUs to co-stop: one for each sibling that waits, lags and can take its pCPU, and
 * all for the slowest. While all that lag run, the skew does not grow. */
SUBPROG u32 siblings_stop(NONNULL(struct host *h), NONNULL(struct siblings_look *s))
{
	const struct knobs *k = plat_knobs(h);

	s->next = 0;
	plat_for(i, VCPUS_MAX) {
		struct world *w;
		struct pcpu *p;
		bool runs, asks;
		u32 how;
		u64 stall;

		if (i >= s->count)
			break;
		w = with(COSTOP) && siblings_see(h, s, i) ? plat_world(h, s->world) : NULL;
		if (!w || s->state == STATE_COSTOP)
			continue;
		stall = s->stalled_ns; /* the search for a sibling looks at others */
		runs = s->state == STATE_RUN;
		p = w->last_pcpu >= 0 ? plat_pcpu(h, (u32)w->last_pcpu) : NULL;
		asks = runs && p && skew_leads_waiting(k, s, stall) &&
		       siblings_lagging(h, s, stall + k->costop_us * US, p->domain);
		how = asks ? COSTOP_ASKED : skew_must_stop(k, s, stall);
		if (how)
			siblings_ask(h, w, runs, how);
		else if (!runs)
			w->costop = COSTOP_NOT; /* asked before, could not stop, leads no more */
	}
	return 0;
}

/* Where a co-stopped vCPU found an idle pCPU, its stop is no lag of its VM: no other VM had that
 * time. No more than a period, for longer ago the pCPU may have been busy; and not where the VM's
 * limit, its pCPUs or its cores may have kept it from there. */
SUBPROG u32 siblings_spare(NONNULL(struct host *h), NONNULL(struct vm *v),
			   NONNULL(const struct world *w), s32 idle)
{
	const struct knobs *k = plat_knobs(h);
	u64 since = plat_read(w->state_since_ns), now = plat_now(h), stopped;

	if (idle < 0 || plat_read(v->limiter) | h->plan_outside || cores_divided(h, k) ||
	    k->core_sharing != SHARING_ANY || (s64)(h->v_ns - plat_read(v->vt_ns)) <= 0)
		return 0;
	stopped = now > since ? min_u64(now - since, k->cosched_poll_us * US) : 0;
	plat_add(&v->vt_ns, share_virtual(v, stopped));
	return 0;
}

/* Co-starts vCPUs. */
SUBPROG u32 siblings_start(NONNULL(struct host *h), NONNULL(struct siblings_look *s))
{
	plat_task *t;

	s->seen = 0;
	plat_queue_each(h, t, QUEUE_COSTOP(s->vm)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;
		struct requeue r = {};

		if (!v || s->seen++ >= VCPUS_MAX)
			break;
		if ((!lock_wanted(w) && !skew_may_start(plat_knobs(h), s, w)) || !count_out(h, w))
			continue;
		if (!requeue_choose(h, t, w, v, &r)) {
			count_costopped(h, v, w);
			continue;
		}
		siblings_spare(h, v, w, r.idle);
		if (w->state == STATE_COSTOP) /* it may have stopped since s->now_ns */
			state_change(h, w, STATE_READY, plat_now(h), WHY_CAUGHT_UP, r.pcpu);
		requeue_enter(h, w, &r, plat_queue_key(t, h->v_ns));
		if (!plat_queue_move(h, t, QUEUE_VM(r.pcpu)))
			count_out_waiting(h, w);
		requeue_kick(h, &r);
	}
	return 0;
}

#endif
