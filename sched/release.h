/* The tick of limits: fills them up, ends grants on time and lets parked worlds go, in the order of what they are owed.
 *
 * Promise	a parked world that is owed time goes on within LIMIT_TICK_NS of the moment when its limits have a grant for it, and
 *		whoever has been parked for ready_bound goes on in any case; a limit's time is used evenly, not by all its worlds at once,
 *		and not at all by who is owed nothing where those who are owed time can use all of it
 * Law		the smallest key first, as many as there are grants; half a grant will do while fewer run than the limit has pCPUs
 * Example	3 vCPUs below 128 %: two run for a quarter of the time and one for the rest, so that the others on a full host
 *		find it as full in each ms; all three at once and then none leave pCPUs to whoever is not entitled to them
 * Limits	PARKED_SCAN_MAX worlds of each limit are looked at in a tick; scarce is a limit for those who are parked there, not for
 *		those of a limit below it
 */
#ifndef TANDEM_RELEASE_H
#define TANDEM_RELEASE_H

#include "landing.h"

#define PARKED_SCAN_MAX 256	/* more grants than 1,024 pCPUs use up in a tick of limits are not asked for at once */

struct release {
	u32 seen;	/* worlds looked at; in memory, where a BPF verifier does not count along */
	u32 limiter;	/* whose they are */
	u32 scarce;	/* not for those who are owed nothing */
	u64 overdue_ns;	/* one parked since before goes on in any case; 0: nobody does */
};

/* Whether a parked world may go on now; one that waits for too long makes a debt. */
hot bool release_may_go(struct host *h, struct vm *v, struct world *w, u64 overdue_ns)
{
	u64 since = plat_read(w->parked_ns);

	if (limit_grant(h, plat_read(v->limiter), w, GRANT_NS, LIMIT_TURN) || plat_read(w->grant_ns))
		return true;
	if (!since || since >= overdue_ns || !with(GUARD_PARKED))
		return false;
	w->grant_ns = GRANT_MIN_NS;
	limit_move(h, plat_read(v->limiter), -(s64)GRANT_MIN_NS);
	return true;
}

/* Lets parked worlds of a limit go while it lasts. */
cold u32 release_parked(THE(struct host *h), THE(struct release *r))
{
	plat_task *t;

	r->seen = 0;
	plat_queue_each(h, t, QUEUE_PARKED(r->limiter)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;
		struct landing l = {};
		u32 by;

		if (!v || r->seen++ >= PARKED_SCAN_MAX)
			break;
		if (r->scarce && plat_queue_key(t) > h->v_ns && (!r->overdue_ns || plat_read(w->parked_ns) >= r->overdue_ns)) {
			if (!r->overdue_ns)
				break;
			continue;
		}
		if (!release_may_go(h, v, w, r->overdue_ns)) {
			by = limit_parking(h, plat_read(v->limiter));
			if (by == r->limiter && !r->overdue_ns)
				break; /* nothing left for anybody */
			if (by != r->limiter) {
				queue_leave(h, w);
				queue_enter_parked(h, w, by, plat_queue_key(t));
				if (!plat_queue_move(h, t, QUEUE_PARKED(by)))
					queue_leave(h, w);
			}
			continue;
		}
		if (!landing_choose(h, t, w, v, &l))
			break;
		queue_leave(h, w);
		queue_let_go(h, w, plat_read(v->limiter));
		landing_enter(h, w, &l, plat_queue_key(t));
		if (!plat_queue_move(h, t, QUEUE_VM(l.pcpu)))
			queue_leave(h, w); /* gone; an idle pCPU that was claimed looks for itself */
		landing_kick(h, &l);
	}
	return 0;
}

/* What those who run are about to take, by the counts of release_grants; the least that somebody who is parked goes on with. Scarce is
 * what those who are owed time can use whole: their next grants, for some of which end at this tick, and what is left then is not worth
 * a switch. */
hot s64 release_pace(struct limiter *l)
{
	u64 least = limit_size(l), whole = l->rate >> RATE_SHIFT;

	if (l->running < whole && with(LIMIT_HALF))
		least /= 2;
	l->scarce = l->rate && l->owed > whole && plat_read(l->tokens_ns) < (s64)(l->owed * limit_size(l) + GRANT_MIN_NS);
	if (!with(LIMIT_SCARCE))
		l->scarce = 0;
	if (l->rate && plat_read(l->let_go) > whole + 1 && with(LIMIT_UNPARKED)) /* and on a full host, where they hold grants that they all may use in the same second */
		l->scarce = 1;
	l->running = l->owed = 0;
	return (s64)least;
}

/* Fills a limit up and opens it when there is enough; whether it still holds anybody back. */
cold bool release_limit(THE(struct host *h), u32 id, u64 now)
{
	struct limiter *l = plat_limiter(h, id);
	struct release r = { .limiter = id };
	u64 most;
	s64 rest, least;
	bool full;

	if (!l)
		return false;
	l->grant_ns = limit_size(l);
	most = limit_most(l);
	limit_fill(l, now);
	most += limit_late(l, most, l->tick_ns + LIMIT_TICK_NS, now);
	full = !l->rate || plat_read(l->tokens_ns) >= (s64)most;
	l->tick_ns = now;
	least = release_pace(l);
	r.scarce = l->scarce;
	if (!plat_read(l->closed) && !plat_read(l->parked))
		return false;
	if (now > l->rescued_ns + RESCUE_NS) {
		l->rescued_ns = now;
		if (now > plat_knobs(h)->ready_bound_us * US)
			r.overdue_ns = now - plat_knobs(h)->ready_bound_us * US;
	} else if (l->rate && plat_read(l->tokens_ns) < least) {
		return true;
	}
	if (plat_read(l->parked))
		release_parked(h, &r);
	/* Nobody waits any more, and there was all that can be saved up before those who waited took theirs: the limit does not bind.
	 * Were it to open any sooner, those whose grants end when there happens to be something left would never line up; were they
	 * to leave as much, it would stay closed while anybody wakes between two ticks, and each of them waits for the next. */
	if (!plat_read(l->parked) && (full || !with(LIMIT_CLOSED)))
		l->closed = 0;
	rest = plat_read(l->tokens_ns) - (s64)most;
	if (rest > 0)
		plat_add(&l->tokens_ns, -rest);
	return true;
}

/* Takes back what sleeping VMs have kept, and where a limit is closed what any VM has: many that keep a grant each would pass it. */
cold u32 release_kept(THE(struct host *h))
{
	plat_for(i, VMS_MAX) {
		struct vm *v = i < h->vms ? plat_vm(h, i) : NULL;
		s64 kept;

		if (!v)
			break;
		kept = plat_read(v->kept_ns);
		if (kept <= 0 || (plat_read(v->runnable) && !limit_closed_by(h, plat_read(v->limiter))))
			continue;
		if (plat_cas(&v->kept_ns, kept, 0)) /* else it has just been used, or added to: next time */
			limit_move(h, plat_read(v->limiter), kept);
	}
	return 0;
}

/* What runs there has had its grant: what it runs beyond is taken from its limits as it goes, not when it stops, for by then others
 * would have been let go for the same time. */
cold u32 release_overrun(THE(struct host *h), THE(struct pcpu *p), u64 end, u64 now)
{
	struct world *w = plat_world(h, plat_read(p->current_world));
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;
	u64 from = p->grant_paid_ns > end ? p->grant_paid_ns : end;

	if (!v || now <= from)
		return 0;
	p->grant_paid_ns = now;
	plat_add(&w->grant_ns, now - from);
	limit_move(h, plat_read(v->limiter), -(s64)(now - from));
	return 0;
}

/* Counts what runs there at all limits above it; `stays` if it does so beyond this tick. */
cold u32 release_count(THE(struct host *h), THE(struct pcpu *p), bool stays, u64 now)
{
	struct world *w = plat_world(h, plat_read(p->current_world));
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;
	u32 id = v ? plat_read(v->limiter) : 0;
	bool owed = preempt_current_key(h, p, now) <= h->v_ns;

	plat_for(i, LIMIT_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		l->running += stays;
		l->owed += owed;
		id = l->parent;
	}
	return 0;
}

/* Ends grants whose time is nearest to this tick; whether any are under way. */
cold bool release_grants(THE(struct host *h), u64 now)
{
	bool any = false;

	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = i < h->pcpus ? plat_pcpu(h, i) : NULL;
		bool ends;
		u64 end;

		if (!p)
			break;
		end = plat_read(p->grant_end_ns);
		if (!end)
			continue;
		any = true;
		if (now > end && with(LIMIT_OVERRUN))
			release_overrun(h, p, end, now);
		ends = now + LIMIT_TICK_NS / 2 >= end;
		release_count(h, p, !ends, now);
		if (ends)
			trace_kick(h, p->id, KICK_PREEMPT, WHY_QUANTUM);
	}
	return any;
}

/* The tick; ns until the next one, 0 while nothing is limited. */
cold u64 core_limits(THE(struct host *h))
{
	u64 now = plat_now(h);
	bool busy;

	if (!h->limiters)
		return 0;
	release_kept(h);
	busy = release_grants(h, now);
	/* Those below mostly have the higher numbers: whoever may go on there is still in time for the limit above. */
	plat_for(i, LIMITERS_MAX) {
		if (i >= h->limiters)
			break;
		if (release_limit(h, h->limiters - 1 - i, now))
			busy = true;
	}
	return busy ? LIMIT_TICK_NS : LIMIT_IDLE_NS;
}

#endif
