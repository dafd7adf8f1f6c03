/* The tick of co-scheduling: measures the skew of each VM, asks leaders to stop, and lets those go on whose siblings have caught up.
 *
 * Promise	a vCPU that leads by more than costop_us is asked within cosched_poll_us; one that is co-stopped goes on within as
 *		much of when it may; whoever has been for ready_bound goes on in any case
 * Law		policy/cosched.h; as many leaders stop as there are siblings that can take their pCPUs, and all if one of these
 *		can take none
 * Example	A and B run, C waits; at 3 ms A stops and C takes its pCPU, being the next of their turn; B goes on, for the slowest runs now
 * Limits	cost: each vCPU of a VM in which two or more want to run is looked at twice a tick, about 20 ns each, and when the VM's
 *		turn ends or begins; the hot path looks at a word of its pCPU, one of the world that runs there, and the key of its VM's turn
 */
#ifndef TANDEM_COSTART_H
#define TANDEM_COSTART_H

#include "landing.h"
#include "policy/cosched.h"

#define GATHERS 4	/* of a turn; after that its VM takes what comes: turns would be cut short for each other again and again */

/* The vCPUs of a VM, and the one looked at just now; in memory, where a BPF verifier does not count along. */
struct crew {
	u64 now_ns;
	u64 slowest_ns;		/* stalled most of those that want to run */
	u64 waits_ns;		/* and of those that are READY */
	u64 stuck_ns;		/* and of those that are READY and held to pCPUs that they cannot have */
	u64 ahead_ns;		/* stalled least of those that want to run */
	u64 stalled_ns;		/* of the one looked at */
	u32 state;
	u32 world;
	u32 vm;
	u32 count;		/* numbers end here */
	u32 waiting;		/* READY, by number */
	u32 busy;		/* that want to run, by number */
	u32 next;		/* where the search for one that can take a pCPU goes on */
	u32 seen;
	u32 ended;		/* the VM's turn has just been found to be over */
};

/* Looks at a vCPU; false if it does not want to run, or is just changing its state. */
cold bool crew_look(THE(struct host *h), THE(struct crew *c), u32 number)
{
	struct siblings *s = plat_siblings(h, c->vm);
	struct world *w = s ? plat_world(h, s->world[number & (VCPUS_MAX - 1)]) : NULL;
	u64 seq, since;

	if (!w || w->vm != c->vm || w->index != number || !cosched_is_vcpu(w) || plat_read(w->outside))
		return false;
	seq = plat_read(w->seq);
	plat_barrier();
	c->world = w->id;
	c->state = plat_read(w->state);
	since = plat_read(w->state_since_ns);
	c->stalled_ns = cosched_stalled(w);
	plat_barrier();
	if (seq & 1 || plat_read(w->seq) != seq)
		return false;
	if (c->state == STATE_READY || c->state == STATE_COSTOP)
		c->stalled_ns += c->now_ns > since ? c->now_ns - since : 0;
	return c->state == STATE_RUN || c->state == STATE_READY || c->state == STATE_COSTOP;
}

/* Whether a READY vCPU can take the pCPU of a sibling: it waits in a pCPU's queue and may run anywhere. */
hot bool crew_can_take(const struct world *w)
{
	u32 queued = plat_read(w->queued_on);

	return queued && queued < QUEUED_PARKED && !(w->flags & WORLD_RESTRICTED);
}

/* Who is stalled most. */
cold u32 crew_measure(THE(struct host *h), THE(struct crew *c))
{
	c->slowest_ns = c->waits_ns = c->stuck_ns = 0;
	c->waiting = c->busy = 0;
	c->ahead_ns = KEY_NONE;
	plat_for(i, VCPUS_MAX) {
		struct world *w;

		if (i >= c->count)
			break;
		if (!crew_look(h, c, i))
			continue;
		c->busy++;
		if (c->stalled_ns > c->slowest_ns)
			c->slowest_ns = c->stalled_ns;
		if (c->stalled_ns < c->ahead_ns)
			c->ahead_ns = c->stalled_ns;
		w = plat_world(h, c->world);
		if (c->state != STATE_READY || !w || !plat_read(w->queued_on)) /* one in no queue is about to run */
			continue;
		c->waiting++;
		if (c->stalled_ns > c->waits_ns)
			c->waits_ns = c->stalled_ns;
		/* For one that a limit has parked, whose turn comes there by its key, they stop a period later: by the slowest. */
		if (!crew_can_take(w) && plat_read(w->queued_on) < QUEUED_PARKED && c->stalled_ns > c->stuck_ns)
			c->stuck_ns = c->stalled_ns;
	}
	return 0;
}

/* The next READY vCPU that is stalled by more than `above` and can take a pCPU; 0 if there is none left. */
cold u32 crew_laggard(THE(struct host *h), THE(struct crew *c), u64 above)
{
	u32 from = c->next;

	plat_for(i, VCPUS_MAX) {
		u32 number = from + i;
		struct world *w;

		if (number >= c->count)
			break;
		c->next = number + 1;
		if (!crew_look(h, c, number) || c->state != STATE_READY || c->stalled_ns <= above)
			continue;
		w = plat_world(h, c->world);
		if (w && crew_can_take(w))
			return w->id;
	}
	return WORLD_NONE;
}

/* Asks a vCPU to stop, at once if it runs, else as soon as it does: it may run for less than a period each time. */
hot void crew_ask(struct host *h, struct world *w, bool runs)
{
	w->costop = COSTOP_ASKED;
	if (runs && w->last_pcpu >= 0)
		trace_kick(h, (u32)w->last_pcpu, KICK_PREEMPT, WHY_SKEWED);
}

/* Asks those to stop who lead by too much. While all that lag run, the skew does not grow: then a period's more is let pass. */
cold u32 crew_stop(THE(struct host *h), THE(struct crew *c))
{
	const struct knobs *k = plat_knobs(h);
	u64 most = k->costop_us * US, more = most + k->cosched_poll_us * US;

	c->next = 0;
	plat_for(i, VCPUS_MAX) {
		struct world *w;
		bool runs, asks;
		u64 stalled;

		if (i >= c->count)
			break;
		w = with(COSTOP) && crew_look(h, c, i) ? plat_world(h, c->world) : NULL;
		if (!w || c->state == STATE_COSTOP)
			continue;
		stalled = c->stalled_ns;
		runs = c->state == STATE_RUN;
		asks = runs && c->waits_ns > stalled + most && crew_laggard(h, c, stalled + most); /* which looks at others */
		if (asks || (with(COSTOP_STUCK) && c->stuck_ns > stalled + most) ||
		    (with(COSTOP_SLOWEST) && c->slowest_ns > stalled + more))
			crew_ask(h, w, runs);
		else if (!runs)
			w->costop = COSTOP_NOT; /* it was asked, could not stop, and leads no more */
	}
	return 0;
}

/* Whether a co-stopped vCPU may go on: it leads none that waits by costart_us or more, and none by far. One that it leads and that runs
 * comes nearer. */
hot bool crew_may_start(const struct knobs *k, const struct crew *c, const struct world *w)
{
	u64 since = plat_read(w->state_since_ns), stay = c->now_ns > since ? c->now_ns - since : 0;
	u64 stalled = cosched_stalled(w) + stay;

	if (k->cosched == COSCHED_STRICT || (with(GUARD_COSTOP) && stay > k->ready_bound_us * US))
		return true;
	return c->waits_ns < stalled + k->costart_us * US &&
	       (!with(COSTART_FAR) || c->slowest_ns < stalled + 2 * k->costop_us * US);
}

/* Lets co-stopped vCPUs go on. */
cold u32 crew_start(THE(struct host *h), THE(struct crew *c))
{
	plat_task *t;

	c->seen = 0;
	plat_queue_each(h, t, QUEUE_COSTOP(c->vm)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;
		struct landing l = {};

		if (!v || c->seen++ >= VCPUS_MAX)
			break;
		if (!crew_may_start(plat_knobs(h), c, w) || !queue_left(h, w))
			continue;
		if (!landing_choose(h, t, w, v, &l)) {
			queue_enter_costop(v, w);
			continue;
		}
		if (w->state == STATE_COSTOP)
			state_change(h, w, STATE_READY, plat_now(h), WHY_CAUGHT_UP, l.pcpu); /* not c->now_ns: it may have stopped since */
		landing_enter(h, w, &l, plat_queue_key(t));
		if (!plat_queue_move(h, t, QUEUE_VM(l.pcpu)))
			queue_leave(h, w);
		landing_kick(h, &l);
	}
	return 0;
}

/* Whether the world that runs on `p` makes room for a vCPU of a VM whose turn has `key`: one of a VM whose own turn came later and is
 * not complete; or, where it has no siblings that run with it, one that is owed less. So of several VMs of which each has a part of the
 * pCPUs one comes to have all it can use, in an order that lasts as long as their turns. Nobody who has no more than is reserved. */
hot bool crew_makes_room(struct host *h, const struct crew *c, const struct pcpu *p, u64 key)
{
	u32 vm = plat_read(p->current_vm);
	struct vm *v = plat_read(p->current_world) && vm != VM_SYSTEM && vm != c->vm ? plat_vm(h, vm) : NULL;
	u64 turn = v ? plat_read(v->turn_key) : 0;

	if (!v || v->flags & VM_RESERVED)
		return false;
	if (turn && plat_read(v->runnable) > 1 && plat_knobs(h)->cosched != COSCHED_STRICT)
		return v->waiting && turn > key;
	return preempt_current_key(h, p, c->now_ns) > key;
}

/* Invites the READY vCPUs of a VM whose turn has begun just now to pCPUs that make room for them: those that lag. */
cold u32 crew_gather(THE(struct host *h), THE(struct crew *c))
{
	struct vm *v = plat_vm(h, c->vm);
	u64 key = v ? plat_read(v->turn_key) : 0, near = plat_knobs(h)->costop_us * US;

	c->next = 0;
	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = i < h->pcpus ? plat_pcpu(h, i) : NULL;
		u32 world;

		if (!p || !key || !with(GANG_PLACE))
			break;
		if (!crew_makes_room(h, c, p, key))
			continue;
		world = crew_laggard(h, c, c->waits_ns - near);
		if (!world)
			break;
		p->invited = world;
		p->preempts++;
		trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
	}
	return 0;
}

/* A turn ends for all vCPUs of a VM at once where somebody waits: by the ticks of their pCPUs it would take a tick's time, and so would
 * the next VM's turn to begin. */
cold u32 crew_end_turn(THE(struct host *h), THE(struct crew *c))
{
	plat_for(i, VCPUS_MAX) {
		struct world *w = NULL;
		struct pcpu *p = NULL;
		struct cluster *on = NULL;

		if (i >= c->count)
			break;
		if (crew_look(h, c, i) && c->state == STATE_RUN)
			w = plat_world(h, c->world);
		if (w && w->last_pcpu >= 0)
			p = plat_pcpu(h, (u32)w->last_pcpu);
		if (p)
			on = plat_cluster(h, p->cluster);
		if (on && plat_read(on->queued))
			trace_kick(h, p->id, KICK_PREEMPT, WHY_QUANTUM);
	}
	return 0;
}

/* --- strict co-scheduling --- */

/* pCPUs that a VM could have at once: idle ones, and those that make room for it. */
cold u32 crew_room(THE(struct host *h), THE(struct crew *c))
{
	struct vm *v = plat_vm(h, c->vm);

	c->seen = 0;
	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = v && i < h->pcpus ? plat_pcpu(h, i) : NULL;
		struct cluster *on = p ? plat_cluster(h, p->cluster) : NULL;

		if (!p)
			break;
		if (on && (plat_read(on->idle) >> (p->bit & 63) & 1 || crew_makes_room(h, c, p, share_vm_key(v))))
			c->seen++;
	}
	return c->seen;
}

/* A VM whose vCPUs have drifted apart stops whole. */
cold u32 crew_stop_all(THE(struct host *h), THE(struct crew *c))
{
	struct vm *v = plat_vm(h, c->vm);

	if (!v)
		return 0;
	if (!v->stopped)
		v->stopped_ns = c->now_ns;
	v->stopped = 1;
	v->turn_key = 0;
	plat_for(i, VCPUS_MAX) {
		struct world *w;

		if (i >= c->count)
			break;
		w = crew_look(h, c, i) && c->state == STATE_RUN ? plat_world(h, c->world) : NULL;
		if (w)
			crew_ask(h, w, true);
	}
	return 0;
}

/* A stopped VM starts whole, none of its vCPUs ahead of another. One that has been stopped for too long starts with what there is, and is
 * forgiven what it is owed, for it cannot use it: it would take pCPUs from those who are entitled to them. */
cold u32 crew_start_all(THE(struct host *h), THE(struct crew *c), bool whole)
{
	struct vm *v = plat_vm(h, c->vm);

	if (!v)
		return 0;
	v->stopped = 0;
	plat_for(i, VCPUS_MAX) {
		struct world *w;

		if (i >= c->count)
			break;
		w = crew_look(h, c, i) ? plat_world(h, c->world) : NULL;
		if (w)
			w->stalled_base_ns += c->slowest_ns - c->stalled_ns;
	}
	if (!whole) {
		share_forgive(v, h->v_ns);
		return 0;
	}
	cosched_turn_begin(v, c->vm, c->now_ns + cosched_turn_ns(plat_knobs(h), v, c->busy));
	return 0;
}

/* Idle pCPUs look for those that were READY when their VM was stopped: they are where they waited, or on their way. */
cold u32 crew_wake(THE(struct host *h))
{
	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = i < h->pcpus ? plat_pcpu(h, i) : NULL;
		struct cluster *on = p ? plat_cluster(h, p->cluster) : NULL;

		if (!p)
			break;
		if (on && plat_read(on->queued) && place_claim(on, p->bit))
			trace_kick(h, p->id, KICK_IDLE, WHY_UNKNOWN);
	}
	return 0;
}

/* What becomes of a VM: its co-stopped vCPUs may go on, and are gathered. */
enum { CREW_STAYS, CREW_STARTS, CREW_STARTS_WHOLE };

/* All stop when one leads another by more than the threshold, and start when each can have a pCPU; or when they have been stopped for
 * longer than anybody may wait. */
cold u32 crew_strict(THE(struct host *h), THE(struct crew *c))
{
	struct vm *v = plat_vm(h, c->vm);
	u64 most = plat_knobs(h)->costop_us * US;

	if (!v)
		return CREW_STAYS;
	if (!v->stopped && c->waiting && c->slowest_ns - c->ahead_ns > most) {
		crew_stop_all(h, c);
	} else if (v->stopped && c->now_ns - v->stopped_ns > plat_knobs(h)->ready_bound_us * US) {
		crew_start_all(h, c, false);
		return CREW_STARTS;
	} else if (v->stopped && c->busy && crew_room(h, c) >= c->busy) {
		crew_start_all(h, c, true);
		return CREW_STARTS_WHOLE;
	} else if (v->stopped) {
		crew_stop_all(h, c); /* those that run still */
	} else if (plat_read(v->costopped)) {
		return CREW_STARTS; /* those that came when it had just been started */
	}
	return CREW_STAYS;
}

/* --- the tick --- */

/* What a tick does for one VM; whether its turn has ended. */
cold u32 crew_tick(THE(struct host *h), THE(struct crew *c))
{
	struct vm *v = plat_vm(h, c->vm);
	u32 starts;

	if (!v)
		return 0;
	crew_measure(h, c);
	if (c->slowest_ns)
		v->slowest_ns = c->slowest_ns;
	v->waiting = c->waiting;
	c->ended = cosched_turn_ends(v, c->now_ns);
	if (c->ended && with(GANG_END))
		crew_end_turn(h, c);
	if (plat_knobs(h)->cosched == COSCHED_STRICT) { /* starts here, not there: a BPF program's calls have 512 bytes of stack together */
		starts = crew_strict(h, c);
		if (starts != CREW_STAYS)
			crew_start(h, c);
		if (starts == CREW_STARTS_WHOLE) {
			crew_gather(h, c);
			crew_wake(h);
		}
		return c->ended;
	}
	crew_stop(h, c);
	if (plat_read(v->costopped))
		crew_start(h, c);
	if (c->waiting && v->gathers < GATHERS && plat_read(v->turn_key)) {
		v->gathers++;
		crew_gather(h, c);
	}
	return c->ended;
}

/* Whether a VM is to be looked at between two ticks: its turn is over, or has begun and does not have all of it yet. */
hot bool crew_turns(const struct vm *v, u64 now)
{
	return plat_read(v->turn_key) && (now >= plat_read(v->turn_end_ns) || (v->waiting && v->gathers < GATHERS));
}

#define COSCHED_SOON(k) ((k)->cosched_poll_us * (US / 4))	/* the least between two looks */

/* How long until such a look: when a turn ends all its vCPUs stop at once, and those of the next begin together. */
hot u64 crew_turns_in(const struct knobs *k, const struct vm *v, u64 now)
{
	u64 end = plat_read(v->turn_end_ns);

	if (!plat_read(v->turn_key))
		return KEY_NONE;
	return now < end && !(v->waiting && v->gathers < GATHERS) ? end - now : COSCHED_SOON(k);
}

/* The tick; ns until the next one, 0 while there is nothing to be co-scheduled. It looks at all VMs every cosched_poll_us, and in between,
 * four times as often at most, at those whose turn ends or has just begun. */
cold u64 core_cosched(THE(struct host *h))
{
	const struct knobs *k = plat_knobs(h);
	struct crew c = { .now_ns = plat_now(h) };
	bool busy = false;

	if (k->cosched == COSCHED_OFF)
		return 0;
	if (!h->smp)
		return k->housekeep_us * US;
	if (c.now_ns >= h->looked_ns + k->cosched_poll_us * US)
		h->looked_ns = c.now_ns;
	h->look_in_ns = h->looked_ns + k->cosched_poll_us * US - c.now_ns;
	plat_for(i, VMS_MAX) {
		struct vm *v = i < h->vms ? plat_vm(h, i) : NULL;
		u64 in;

		if (!v)
			break;
		if (v->indices < 2 || !plat_read(v->runnable)) /* one alone is looked at too: those that wake are measured by it */
			continue;
		if (plat_read(v->runnable) > 1)
			busy = true;
		c.vm = i;
		c.count = v->indices;
		if ((h->looked_ns == c.now_ns || crew_turns(v, c.now_ns)) && crew_tick(h, &c))
			in = COSCHED_SOON(k); /* another VM's turn begins */
		else
			in = crew_turns_in(k, v, c.now_ns);
		if (in < h->look_in_ns)
			h->look_in_ns = in;
	}
	/* While no two vCPUs of a VM want to run, one that wakes may lead by costart_us, and grow that lead until the next tick. */
	if (!busy)
		return (k->cosched_poll_us + k->costop_us - k->costart_us) * US;
	return h->look_in_ns > COSCHED_SOON(k) ? h->look_in_ns : COSCHED_SOON(k);
}

#endif
