/* The tick of limits: unparks worlds that their limits admit, stops worlds beyond their budgets.
 *
 * Promise	a parked world goes on within LIMIT_TICK_NS of the moment when its limits admit it
 *		(LIMIT_IDLE_NS where no limit of its part was used), the earliest deadline first;
 *		one parked for ready_bound_us goes on in any case, and so does one that holds a
 *		lock of the kernel for which others sleep (account/lock.h)
 * Law		law/budget.h; of the worlds below a limit the one of the latest deadline stops if
 *		the level ends before half the next tick, or if a parked world has an earlier
 *		deadline by the margin of preemption: one a tick; all stop in debt, or where twice
 *		as many run as the limit pays for (a gang); the first tick of a new limit stops
 *		the worlds that started before it, to go on below it
 * Example	3 vCPUs below 128 %: two run for a quarter of the time and one for the rest
 * Limits	PARKED_SCAN_MAX worlds of each limiter are looked at in a tick. With more than
 *		LIMITS_OF_PART limits the tick has parts, each with a timer of its own: limiter i
 *		belongs to part i modulo their number. While that number changes two timers may
 *		come to the same limiter: one of them passes over it
 */
#ifndef TANDEM_LIMITS_H
#define TANDEM_LIMITS_H

#include "../place/pick.h"
#include "../place/requeue.h"
#include "blocks.h"

/* more than 1,024 pCPUs can start in a tick is not looked at */
#define PARKED_SCAN_MAX 256

/* Parts of the tick: one for LIMITS_OF_PART limiters, but no more than blocks of pCPUs. */
INLINE u32 limits_parts(const struct host *h)
{
	u32 parts = (h->limiters + LIMITS_OF_PART - 1) / LIMITS_OF_PART;

	return (u32)max_u64(min_u64(parts, blocks_of(h)), 1);
}

struct limits_look {
	/* worlds looked at; in memory, where a BPF verifier does not count along */
	u32 seen;
	/* whose they are */
	u32 limiter;
	/* a world parked since before this goes on in any case; 0: none does */
	u64 overdue_ns;
	/* so does one that holds a lock for which others sleep: all are looked at */
	u32 wanted;
};

/* Unparks worlds of a limiter while its budget lasts. */
SUBPROG u32 limits_unpark(NONNULL(struct host *h), NONNULL(struct limits_look *look))
{
	plat_task *t;

	look->seen = 0;
	plat_queue_each(h, t, QUEUE_PARKED(look->limiter)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;
		struct budget_ask a = { .vm = w ? w->vm : 0, .unparking = 1 };
		struct requeue r = {};
		u64 since;
		u32 refused;

		if (!v || look->seen++ >= PARKED_SCAN_MAX)
			break;
		since = plat_read(w->parked_ns);
		refused = parked_ask(h, plat_read(v->limiter), &a);
		if (refused && ((with(GUARD_PARKED) && since && since < look->overdue_ns) ||
				lock_wanted(w))) {
			budget_overdraw(h, v, w);
			refused = 0;
		}
		if (refused == look->limiter) {
			if (!look->overdue_ns && !look->wanted)
				break; /* the next one is refused too */
			continue;
		}
		if (refused) {
			parked_move(h, t, w, refused);
			continue;
		}
		if (!requeue_choose(h, t, w, v, &r))
			break;
		if (!count_out(h, w)) { /* another pCPU takes it just now */
			if (r.idle >= 0)
				idle_return(h, (u32)r.idle);
			continue;
		}
		trace_unqueued(h, w);
		count_unparked(h, w, plat_read(v->limiter));
		requeue_enter(h, w, &r, plat_queue_key(t, h->v_ns));
		if (!plat_queue_move(h, t, QUEUE_VM(r.pcpu)))
			count_out_waiting(h, w); /* gone; a reserved idle pCPU looks for itself */
		requeue_kick(h, &r);
	}
	return 0;
}

/* Which worlds below the limiter stop, and which deadlines are late enough for that. In debt none
 * may run: their own slices end as soon, but a pCPU may be late. */
INLINE void limits_decide(struct host *h, struct limiter *l, u32 id, u64 now)
{
	u64 running = budget_running(l);
	s64 drain = budget_drain(l, running), level;
	u64 margin = plat_knobs(h)->preempt_margin_us * US, first;
	u32 waits = plat_read(l->unparked);

	l->stops = STOPS_NONE;
	l->stop_pcpu = 0;
	l->stop_key = 0;
	if (!l->rate || !(running | waits))
		return;
	level = budget_level(l, now);
	if (waits && level >= (s64)budget_most(l))
		l->missed = LIMIT_MISSED;
	if (!running)
		return;
	plat_assert_alone(h, level <= (s64)budget_most(l));
	plat_assert(h, budget_running(l) <= PCPUS_MAX);
	if (with(LIMIT_STOP) && level < 0) {
		l->stops = STOPS_ALL;
	} else if (with(LIMIT_STOP) && drain > 0 &&
		   level < (drain * (s64)LIMIT_TICK_NS >> RATE_SHIFT) / 2) {
		l->stops = drain > (s64)l->rate ? STOPS_ALL : STOPS_LATEST;
	} else if (with(LIMIT_PREEMPT) && plat_read(l->parked)) {
		first = parked_deadline(h, id);
		l->stops = first != KEY_NONE ? STOPS_LATEST : STOPS_NONE;
		l->stop_key = first + margin;
	}
}

/* What a limiter has of the one above it: worlds that may start at once, and whether it binds, as
 * it also does by what it parks. A function of its own, for the verifier walks what follows anew
 * for every path. */
SUBPROG u32 limits_above(NONNULL(struct host *h), NONNULL(struct limiter *l), u32 parked)
{
	struct limiter *above = l->parent ? plat_limiter(h, l->parent) : NULL;
	u32 own = parked ? LIMIT_BINDS : l->binds >> 1;

	l->gang = (u32)min_u64(budget_gang(l), above ? plat_read(above->gang) : PCPUS_MAX);
	l->binds = above ? above->binds | own : own;
	own = l->missed ? l->missed - 1 : 0;
	l->missed = above ? (u32)max_u64(above->missed, own) : own;
	return 0;
}

/* What is found at the limiters of a part: the tick is to come soon; worlds are to stop. */
enum limits_found { FOUND_BUSY = 1, FOUND_STOPS = 2 };

/* Serves one limiter; enum limits_found. */
SUBPROG u32 limits_serve(NONNULL(struct host *h), u32 id, u64 now)
{
	struct limiter *l = plat_limiter(h, id);
	struct limits_look look = { .limiter = id };
	u32 served = l ? plat_read(l->served) : SERVED_NOW, parked;
	bool stops, used, overdue;

	if (!l || served & SERVED_NOW || !plat_cas(&l->served, served, served | SERVED_NOW))
		return 0;
	overdue = now > l->rescued_ns + GUARD_NS;
	parked = plat_read(l->parked);
	if (parked || overdue) { /* the guard does not trust the count */
		if (overdue) {
			l->rescued_ns = now;
			if (now > plat_knobs(h)->ready_bound_us * US)
				look.overdue_ns = now - plat_knobs(h)->ready_bound_us * US;
		}
		look.wanted = plat_read(l->wanted);
		if (look.wanted)
			l->wanted = look.wanted - 1;
		limits_unpark(h, &look);
	}
	limits_above(h, l, parked);
	limits_decide(h, l, id, now);
	used = l->tat_seen_ns != plat_read(l->tat_ns);
	l->tat_seen_ns = plat_read(l->tat_ns);
	/* a new limit: worlds that started before it go on below it */
	stops = l->stops || (l->rate && !(l->served & SERVED_ONCE));
	l->served = SERVED_ONCE;
	used |= plat_read(l->parked) + plat_read(l->unparked) + budget_running(l) != 0;
	return (used ? FOUND_BUSY : 0) | (stops ? FOUND_STOPS : 0);
}

/* Stops the world that runs on `p` if all below one of its limiters of the part stop, or if its VM
 * has other limiters now than those whose budgets it uses; notes it at each limiter where one is to
 * stop, if its deadline is the latest so far. */
SUBPROG u32 limits_latest(NONNULL(struct host *h), NONNULL(struct pcpu *p), u64 now, u32 part,
			  u32 parts)
{
	struct world *w = plat_world(h, plat_read(p->current_world));
	u32 id = w ? budget_first(plat_read(w->budget)) : 0;
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;
	u64 key = 0;

	if (with(LIMIT_STOP) && v && plat_read(v->limiter) != id &&
	    plat_read(v->limiter) % parts == part) {
		trace_kick(h, p->id, KICK_PREEMPT, WHY_QUANTUM);
		return 0;
	}
	plat_for(i, BUDGET_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;
		bool ours = id % parts == part;

		if (!l)
			break;
		id = l->parent;
		if (!ours || !l->stops)
			continue;
		if (l->stops == STOPS_ALL) {
			trace_kick(h, p->id, KICK_PREEMPT, WHY_QUANTUM);
			break;
		}
		if (!key)
			key = preempt_current(h, p, now);
		if (key <= l->stop_key)
			continue;
		l->stop_key = key;
		l->stop_pcpu = p->id + 1;
	}
	return 0;
}

SUBPROG u32 limits_stop(NONNULL(struct host *h), u64 now, u32 part)
{
	u32 parts = limits_parts(h);

	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = i < h->pcpus ? plat_pcpu(h, i) : NULL;

		if (!p)
			break;
		if (plat_read(p->current_world))
			limits_latest(h, p, now, part, parts);
	}
	plat_for(k, LIMITERS_MAX) {
		u32 id = part + k * parts;
		struct limiter *l = id < h->limiters ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		if (l->stops && l->stop_pcpu)
			trace_kick(h, l->stop_pcpu - 1, KICK_PREEMPT, WHY_QUANTUM);
	}
	return 0;
}

/* Ends the use that a sleeping VM has kept if its budget is of the part. */
SUBPROG u32 limits_end_of(NONNULL(struct host *h), NONNULL(struct vm *v), u32 part, u32 parts)
{
	if (budget_first(plat_read(v->kept)) % parts == part)
		budget_end_kept(h, v);
	return 0;
}

/* Ends the uses of budgets of the part that sleeping VMs have kept. */
SUBPROG u32 limits_end_kept(NONNULL(struct host *h), u32 part)
{
	u32 parts = limits_parts(h);

	plat_for(i, VMS_MAX) {
		struct vm *v = i < h->vms ? plat_vm(h, i) : NULL;

		if (!v)
			break;
		if (plat_read(v->kept))
			limits_end_of(h, v, part, parts);
	}
	return 0;
}

/* A part of the tick; ns until its next one, 0 while it has nothing to serve. Lower limiters mostly
 * have higher numbers: a world that is unparked there is still in time for the limiter above.
 * Inline, for call chains of BPF share 512 bytes of stack. */
INLINE u64 core_limits(struct host *h, u32 part)
{
	u32 found = 0, id;
	u64 now = plat_now(h);

	if (part >= limits_parts(h) || part >= h->limiters)
		return 0;
	limits_end_kept(h, part);
	id = h->limiters - 1 - (h->limiters - 1 - part) % limits_parts(h);
	plat_for(i, LIMITERS_MAX) {
		found |= limits_serve(h, id, now);
		if (id <= part)
			break;
		id -= limits_parts(h);
	}
	if (found & FOUND_STOPS)
		limits_stop(h, now, part);
	return found & FOUND_BUSY ? LIMIT_TICK_NS : LIMIT_IDLE_NS;
}

#endif
