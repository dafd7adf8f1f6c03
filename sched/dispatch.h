/* What a pCPU runs next, decision by decision; core_dispatch has their order. It moves worlds and decides nothing about who is owed.
 *
 * Promise	whoever has waited too long, then who is owed more elsewhere by a margin, then the best of its own queues, then the
 *		running world; one whose limit has run out makes way for whose turn it is there
 * Limits	as for queue.h and pull.h
 */
#ifndef TANDEM_DISPATCH_H
#define TANDEM_DISPATCH_H

#include "account/charge.h"
#include "policy/cosched.h"
#include "policy/pull.h"

/* Lets the running world go on for another slice, or for what it was granted. */
hot void dispatch_keep(struct host *h, plat_task *prev, struct world *w, struct vm *v, struct pcpu *p, u64 now)
{
	u64 slice = w->grant_ns ? w->grant_ns : share_slice(h, plat_knobs(h), v, w);

	plat_set_slice(prev, slice);
	if (!w->grant_ns)
		cosched_turn(plat_knobs(h), prev, v, w, now);
	p->grant_end_ns = w->grant_ns ? now + slice : 0;
	p->current_key = share_key(v, w);
	p->current_since_ns = now;
	trace_note_stop(h, p, WHY_UNKNOWN);
	charge_commit(w, v, slice);
}

/* Takes the best of this pCPU's queues if better than `limit` (of VMs) and, of host tasks, than `prev`; or one of another pCPU
 * that is owed more by a margin than all of these. */
cold bool dispatch_local(THE(struct host *h), u32 pcpu, u64 limit, u32 prev_world)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct world *prev = prev_world ? plat_world(h, prev_world) : NULL;
	struct vm *system = plat_vm(h, VM_SYSTEM);
	u64 system_key = system ? share_vm_key(system) : KEY_NONE, system_limit = KEY_NONE;
	u64 own;
	bool system_waits = p && plat_read(p->waits_system);
	struct pick best = {}, task = {};

	if (!p)
		return false;
	queue_best(h, QUEUE_VM(pcpu), pcpu, limit, &best);
	p->wait_key = best.next;
	own = best.world ? best.key : limit;
	if (system_waits && system_key < own)
		own = system_key;
	if (own != KEY_NONE && pull_owed(h, pcpu, own)) {
		if (best.world && best.key < p->wait_key)
			p->wait_key = best.key;
		return true;
	}
	if (system_waits && system_key <= best.key && system_key <= limit) {
		if (prev && prev->vm == VM_SYSTEM)
			system_limit = prev->lead_ns;
		queue_best(h, QUEUE_SYSTEM(p->id), p->id, system_limit, &task);
		if (task.world && queue_take(h, QUEUE_SYSTEM(p->id), task.world)) {
			if (best.world && best.key < p->wait_key)
				p->wait_key = best.key;
			return true;
		}
	}
	if (best.world && prev && prev->vm == VM_SYSTEM && system_key < best.key) {
		p->wait_key = best.key < p->wait_key ? best.key : p->wait_key;
		return false; /* the running host task is owed more */
	}
	if (!best.world || !queue_take(h, QUEUE_VM(p->id), best.world))
		return false;
	pull_took(p, queue_waiting(p) - 1);
	return true;
}

/* Runs a world that has waited longer than the bound, whatever it is owed. */
hot bool dispatch_rescue(struct host *h, struct pcpu *p, u64 now)
{
	u64 since = now - plat_knobs(h)->ready_bound_us * US;
	u32 world;

	if (!with(GUARD_READY) || now < p->rescued_ns + RESCUE_NS || now < plat_knobs(h)->ready_bound_us * US)
		return false;
	p->rescued_ns = now;
	world = queue_waited(h, QUEUE_VM(p->id), p->id, since);
	if (!world || !queue_take(h, QUEUE_VM(p->id), world)) {
		world = queue_waited(h, QUEUE_SYSTEM(p->id), p->id, since);
		if (!world || !queue_take(h, QUEUE_SYSTEM(p->id), world))
			return false;
	}
	trace_note_pick(h, p, WHY_RESCUED);
	return true;
}

/* Takes a held world that waits here if `prev` can go on at an idle pCPU, where that world may not run. */
cold bool dispatch_swap(THE(struct host *h), u32 pcpu, TASK(prev))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 idle = c ? plat_read(c->idle) : 0;
	u32 held;

	if (!with(SWAP) || !idle || !plat_may_run(prev, c->pcpu[plat_first_bit(idle) & 63]))
		return false;
	held = queue_held(h, QUEUE_VM(pcpu), pcpu);
	if (!held || !queue_take(h, QUEUE_VM(pcpu), held))
		return false;
	if (trace_on(h)) {
		struct world *w = plat_world_of(h, prev);

		if (w)
			w->flags |= WORLD_SWAPPED;
		trace_note_stop(h, p, WHY_MIGRATED);
	}
	return true;
}

/* Gives this pCPU to the vCPU `to`, wherever that waits, for what is left of its VM's turn; after that only if it waits in another cluster
 * and nobody in this one: those whose turn is over line up. */
cold bool dispatch_hand(THE(struct host *h), u32 pcpu, u32 to)
{
	struct world *w = plat_world(h, to);
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;
	u32 queued = w ? plat_read(w->queued_on) : 0, on = queued - 1;
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 least = plat_knobs(h)->slice_min_us * US, end = plat_now(h) + least;

	if (!c || !v || !queued || queued >= QUEUED_PARKED || on & 1 || (with(HANDOVER) && end > plat_read(v->turn_end_ns) && plat_read(c->queued)))
		return false;
	if (end < plat_read(v->turn_end_ns))
		least += plat_read(v->turn_end_ns) - end;
	return queue_find(h, QUEUE_VM(on / 2), to, pcpu, least) && queue_take(h, QUEUE_VM(on / 2), to);
}

/* Whether the world that is to run here with its siblings has been taken: it is owed more than `limit`, that of the running one. */
cold bool dispatch_invited(THE(struct host *h), u32 pcpu, u64 limit)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct world *w = p ? plat_world(h, p->invited) : NULL;
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;

	if (p)
		p->invited = WORLD_NONE;
	if (!p || !w || !v || share_key(v, w) >= limit || !dispatch_hand(h, pcpu, w->id))
		return false;
	trace_note_stop(h, p, WHY_PREEMPTED);
	return true;
}

/* Whether the running world, which the tick has asked to, co-stops: not in its emulator's code, where it may hold what its siblings
 * wait for. */
cold bool dispatch_costops(THE(struct host *h), u32 pcpu, TASK(prev), THE(struct world *w))
{
	struct pcpu *p = plat_pcpu(h, pcpu);

	w->costop = COSTOP_NOT;
	if (!p || (w->kind == KIND_VCPU && !plat_in_guest(prev)))
		return false;
	w->costop = COSTOP_DECIDED;
	plat_set_slice(prev, 0); /* so that the kernel hands it to enqueue, which puts it among its co-stopped siblings */
	trace_note_stop(h, p, WHY_SKEWED);
	return true;
}

/* Whether the sibling that the running world yields to has been given its pCPU: one of another VM was yielded to by who ran here before. */
cold bool dispatch_yields(THE(struct host *h), u32 pcpu, THE(struct world *w))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct world *to = p ? plat_world(h, p->yield_to) : NULL;

	if (p)
		p->yield_to = WORLD_NONE;
	if (!p || !to || to->vm != w->vm || !dispatch_hand(h, pcpu, to->id))
		return false;
	trace_note_stop(h, p, WHY_YIELDED);
	return true;
}

/* What siblings ask of this pCPU before anything else is decided: it is yielded to one, another VM's is invited, or the running world
 * has to stop. Where somebody has woken who preempts, none of them comes before that one. */
enum { SIBLINGS_LET, SIBLINGS_TAKE, SIBLINGS_STOP };
cold u32 dispatch_siblings(THE(struct host *h), u32 pcpu, TASK(prev), THE(struct world *w), u64 limit)
{
	struct pcpu *p = plat_pcpu(h, pcpu);

	if (!p)
		return SIBLINGS_LET;
	if ((!preempt_claimed(p) || !with(PREEMPT_FIRST)) && ((p->yield_to && dispatch_yields(h, pcpu, w)) || (p->invited && dispatch_invited(h, pcpu, limit)))) {
		plat_set_slice(prev, 0); /* so that the kernel hands it back to enqueue */
		return SIBLINGS_TAKE;
	}
	return w->costop == COSTOP_ASKED && dispatch_costops(h, pcpu, prev, w) ? SIBLINGS_STOP : SIBLINGS_LET;
}

/* Whether the running world, whose grant has ended, goes on at once. While its limit is closed it lines up with the others
 * that wait there, and the smallest key is next (dispatch_turn), here or at the next tick of limits; but one that is owed time
 * by the host and by them goes on, for on a busy pCPU it would lose its place each time. */
hot bool dispatch_goes_on(struct host *h, struct vm *v, struct world *w, struct pcpu *p, u64 key)
{
	u32 first = plat_read(v->limiter), limiter;

	if (!first || limit_take(h, v, w, GRANT_NS))
		return true;
	limiter = limit_parking(h, first);
	if (with(LIMIT_RENEW) && key <= h->v_ns && key <= queue_first_key(h, QUEUE_PARKED(limiter)) && limit_grant(h, first, w, GRANT_NS, LIMIT_OWED))
		return true;
	p->limit_look = with(LIMIT_LOOK) ? limiter : 0;
	return false;
}

/* Nothing else is to be done here, and a world was parked here just now, or gave back what it had not used: whose turn is it for that
 * limit? */
cold bool dispatch_turn(THE(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	u32 limiter = p ? p->limit_look : 0;
	struct limiter *l = limiter ? plat_limiter(h, limiter) : NULL;
	struct pick best = {};

	if (!p || !l)
		return false;
	p->limit_look = 0;
	/* What is scarce is for those who are owed time (release_pace). */
	queue_best(h, QUEUE_PARKED(limiter), pcpu, plat_read(l->scarce) ? h->v_ns + 1 : KEY_NONE, &best);
	if (!best.world || !queue_take(h, QUEUE_PARKED(limiter), best.world))
		return false;
	trace_note_pick(h, p, WHY_RELEASED);
	return true;
}

#endif
