/* What a pCPU runs next, choice by choice; core_dispatch has their order.
 *
 * Promise	a world that has waited too long; else a parked world of a limiter that has just got
 *		budget back here, if its deadline is earlier than those of its own queue; else one
 *		elsewhere whose deadline is earlier by a margin; else the best of its own queues;
 *		else the running world; before idling, any parked world of that limiter
 * Limits	as for queue/ready.h and pull.h
 */
#ifndef TANDEM_PICK_H
#define TANDEM_PICK_H

#include "../account/charge.h"
#include "../account/task.h"
#include "../account/gang.h"
#include "pull.h"

/* how often the starvation guard looks: a fiftieth of the shortest bound */
#define GUARD_NS 100000000ull

/* The running world goes on for another slice, or for what its budget admits. */
INLINE void pick_keep(struct host *h, plat_task *prev, struct world *w, struct vm *v,
		      struct pcpu *p, u64 now)
{
	u64 slice = share_quantum(plat_knobs(h), w);

	plat_assert_alone(h, w->state == STATE_RUN && p->current_world == w->id);
	plat_set_slice(prev, slice);
	if (w->vm == VM_SYSTEM)
		task_served(h, w, p);
	gang_run(h, prev, v, w, now);
	if (plat_read(v->limiter)) {
		parked_runs(h, prev, v, w);
		slice = plat_slice(prev);
	}
	p->current_key = share_deadline(v, w);
	p->current_since_ns = now;
	trace_note_stop(h, p, WHY_UNKNOWN);
	charge_commit(h, w, v, slice);
}

/* The best of this pCPU's queue of VMs, if there is one, stays. */
INLINE void pick_left(struct pcpu *p, const struct pick *best)
{
	p->wait_key = min_u64(best->key, p->wait_key);
	p->best_key = min_u64(best->key, p->best_key);
}

/* Looks for the best of this pCPU's queue of VMs before `key_max`. Returns the earliest deadline
 * that wants this pCPU, KEY_NONE for none. */
SUBPROG u64 pick_look(NONNULL(struct host *h), u32 pcpu, u64 key_max, NONNULL(struct pick *best))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct vm *system = plat_vm(h, VM_SYSTEM);
	u64 own;

	if (!p)
		return KEY_NONE;
	ready_best(h, QUEUE_VM(pcpu), pcpu, key_max, best);
	p->wait_key = best->next;
	p->best_key = best->rest;
	own = best->world ? best->key : key_max;
	if (system && plat_read(p->waits_system))
		own = min_u64(own, share_vm_deadline(system));
	return own;
}

/* Takes the best of this pCPU's queues, if before `key_max` (of VMs) and, of host tasks, before
 * `prev`. */
SUBPROG bool pick_take(NONNULL(struct host *h), u32 pcpu, u64 key_max, u32 prev_world,
		       NONNULL(struct pick *best))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct world *prev = prev_world ? plat_world(h, prev_world) : NULL;
	struct vm *system = plat_vm(h, VM_SYSTEM);
	u64 system_key = system ? share_vm_deadline(system) : KEY_NONE, system_max = KEY_NONE;
	bool system_runs = prev && prev->vm == VM_SYSTEM;
	struct pick task = {};

	if (!p)
		return false;
	if (plat_read(p->waits_system) && system_key <= best->key && system_key <= key_max) {
		if (system_runs)
			system_max = prev->runtime_ns;
		ready_best(h, QUEUE_SYSTEM(p->id), p->id, system_max, &task);
		if (task.world && ready_take(h, QUEUE_SYSTEM(p->id), task.world)) {
			pick_left(p, best);
			return true;
		}
	}
	if (best->world && system_runs && system_key < best->key) {
		pick_left(p, best);
		return false; /* the running host task goes on */
	}
	if (!best->world || !ready_take(h, QUEUE_VM(p->id), best->world))
		return false;
	pull_took(p, count_waiting(p) - 1);
	return true;
}

/* The best parked world of the limiter that has just got budget back here, if its deadline is
 * before `own`: it takes the place of the world that its limit has refused. Not before one of an
 * earlier queued deadline that may not run here: the tick of limits unparks that one. */
SUBPROG bool pick_parked(NONNULL(struct host *h), u32 pcpu, u64 own)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	u32 limiter = p ? p->serve_limiter : 0;
	struct limiter *l = limiter ? plat_limiter(h, limiter) : NULL;
	struct pick best = {};

	if (!p || !l)
		return false;
	p->serve_limiter = 0;
	ready_best(h, QUEUE_PARKED(limiter), pcpu, own, &best);
	if (!best.world || (with(LIMIT_LINE) && best.rest < best.key) ||
	    !ready_take(h, QUEUE_PARKED(limiter), best.world))
		return false;
	trace_note_pick(h, p, WHY_RELEASED);
	pull_took(p, count_waiting(p));
	return true;
}

/* A woken world that `limiter` refuses preempts at `p` if what runs there uses that budget: it then
 * has it, by pick_parked. Elsewhere the tick of limits finds one. */
SUBPROG u32 parked_preempt(NONNULL(struct host *h), NONNULL(struct pcpu *p),
			   NONNULL(struct candidate *c), u32 limiter)
{
	struct world *w = plat_world(h, plat_read(p->current_world));
	u32 id = w ? budget_first(plat_read(w->budget)) : 0;

	plat_for(i, BUDGET_CHAIN) {
		struct limiter *l = id && id != limiter ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		id = l->parent;
	}
	if (id && id == limiter && preempt_gain(h, p, c, plat_now(h))) {
		p->preempts++;
		trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
	}
	return 0;
}

/* The best of this pCPU's queues, or a world of another pCPU that is earlier than all of these by a
 * margin. Inline, for call chains of BPF share 512 bytes of stack. */
INLINE bool pick_local(struct host *h, struct pcpu *p, u64 key_max, u32 prev_world)
{
	struct pick best = {};
	u64 own = pick_look(h, p->id, key_max, &best);

	if ((p->serve_limiter && pick_parked(h, p->id, own)) ||
	    (own != KEY_NONE && pull_earlier(h, p->id, own))) {
		pick_left(p, &best);
		return true;
	}
	return pick_take(h, p->id, key_max, prev_world, &best);
}

/* A world may have been queued while this pCPU did not look idle yet. One that its limits refuse is
 * parked, and the next is tried. */
SUBPROG bool pick_again(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	plat_for(i, PULL_TRIES) {
		if (!count_waiting(p))
			break;
		if (pick_local(h, p, KEY_NONE, WORLD_NONE))
			return true;
	}
	return false;
}

/* The starvation guard: a world that has been READY since `since` or longer, for the shortest
 * slice. It is to run, not to have a part: forty such worlds with a quantum of 50 ms each would
 * have two of each five seconds. */
SUBPROG bool pick_rescued(NONNULL(struct host *h), NONNULL(struct pcpu *p), u64 since)
{
	u64 slice = plat_knobs(h)->slice_min_us * US;
	u32 seen = 0, world = ready_first(h, QUEUE_VM(p->id), p->id, since, &seen);

	if (!world || !ready_move(h, QUEUE_VM(p->id), world, p->id, slice)) {
		seen = 0;
		world = ready_first(h, QUEUE_SYSTEM(p->id), p->id, since, &seen);
		if (!world || !ready_move(h, QUEUE_SYSTEM(p->id), world, p->id, slice))
			return false;
	}
	trace_note_pick(h, p, WHY_RESCUED);
	return true;
}

/* The same, for longer than ready_bound_us; it looks every GUARD_NS. */
INLINE bool pick_overdue(struct host *h, struct pcpu *p, u64 now)
{
	u64 bound = plat_knobs(h)->ready_bound_us * US;

	if (!with(GUARD_READY) || now < p->rescued_ns + GUARD_NS || now <= bound)
		return false;
	p->rescued_ns = now;
	return pick_rescued(h, p, now - bound);
}

/* A pinned world that waits here, if `prev` can go on at an idle pCPU that it may not use. */
SUBPROG bool pick_swap(NONNULL(struct host *h), u32 pcpu, TRUSTED_TASK(prev))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 idle = c ? plat_read(c->idle) : 0;
	u32 pinned, seen = 0;

	if (!with(SWAP) || !idle || !plat_may_run(prev, c->pcpu[plat_first_bit(idle) & 63]))
		return false;
	pinned = ready_first(h, QUEUE_VM(pcpu), pcpu, 0, &seen);
	if (!pinned || !ready_take(h, QUEUE_VM(pcpu), pinned))
		return false;
	if (trace_on(h)) {
		struct world *w = plat_world_of(h, prev);

		if (w)
			w->flags |= WORLD_SWAPPED;
		trace_note_stop(h, p, WHY_MIGRATED);
	}
	return true;
}

/* The vCPU `to`, wherever it waits, for the rest of its VM's gang slice; after the slice only if it
 * waits in another cluster and no world waits in this one: then queues decide again. */
SUBPROG bool pick_sibling(NONNULL(struct host *h), u32 pcpu, u32 to)
{
	struct world *w = plat_world(h, to);
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;
	u32 queued = w ? plat_read(w->queued_on) : 0, on = queued - 1;
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 least = plat_knobs(h)->slice_min_us * US, end = plat_now(h) + least;

	if (!c || !v || !queued || queued >= QUEUED_PARKED || on & 1)
		return false;
	if (with(HANDOVER) && end > plat_read(v->gang_end_ns) && plat_read(c->queued))
		return false;
	if (end < plat_read(v->gang_end_ns))
		least += plat_read(v->gang_end_ns) - end;
	return ready_move(h, QUEUE_VM(on / 2), to, pcpu, least);
}

/* The vCPU of a gang that is to run here, if its deadline is before `key_max`, that of the running
 * world. */
SUBPROG bool pick_gang(NONNULL(struct host *h), u32 pcpu, u64 key_max)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct world *w = p ? plat_world(h, p->gang_next) : NULL;
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;
	u64 key;

	if (p)
		p->gang_next = WORLD_NONE;
	if (!p || !w || !v)
		return false;
	key = gang_spins(v, plat_now(h)) ? plat_read(v->gang_key) : 0;
	if (share_deadline(v, w) >= key_max &&
	    (!key || !gang_preempts(h, p, w->vm, key, plat_now(h))))
		return false;
	if (!pick_sibling(h, pcpu, w->id))
		return false;
	trace_note_stop(h, p, WHY_PREEMPTED);
	return true;
}

/* The sibling that the running world yields to. A yield to another VM's world was of the world that
 * ran here before. */
SUBPROG bool pick_yielded(NONNULL(struct host *h), u32 pcpu, NONNULL(struct world *w))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct world *to = p ? plat_world(h, p->yield_to) : NULL;

	if (p)
		p->yield_to = WORLD_NONE;
	if (!p || !to || to->vm != w->vm || !pick_sibling(h, pcpu, to->id))
		return false;
	trace_note_stop(h, p, WHY_YIELDED);
	return true;
}

/* Whether the running world, which the tick has asked to, co-stops: not in its emulator's code,
 * where it may hold what its siblings wait for; nor while it holds what others sleep for; nor, if
 * it may be spared, where no world waits for its pCPU. */
SUBPROG bool pick_costops(NONNULL(struct host *h), u32 pcpu, TRUSTED_TASK(prev),
			  NONNULL(struct world *w))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	bool spared = w->costop == COSTOP_SPARED;

	w->costop = COSTOP_NOT;
	if (!c || (spared && !plat_read(c->queued)) || lock_wanted(w) ||
	    (w->kind == KIND_VCPU && !plat_in_guest(prev)))
		return false;
	plat_assert(h, w->state == STATE_RUN);
	w->costop = COSTOP_DECIDED;
	plat_set_slice(prev, 0); /* the kernel hands it to enqueue, which queues it as co-stopped */
	trace_note_stop(h, p, WHY_SKEWED);
	return true;
}

/* What co-scheduling asks of this pCPU before anything else is decided. */
enum siblings_choice { SIBLINGS_NOTHING, SIBLINGS_TAKEN, SIBLINGS_STOP };
SUBPROG u32 pick_siblings(NONNULL(struct host *h), u32 pcpu, TRUSTED_TASK(prev),
			  NONNULL(struct world *w), u64 key_max)
{
	struct pcpu *p = plat_pcpu(h, pcpu);

	if (!p)
		return SIBLINGS_NOTHING;
	if ((p->yield_to && pick_yielded(h, pcpu, w)) ||
	    (p->gang_next && pick_gang(h, pcpu, key_max))) {
		plat_set_slice(prev, 0); /* the kernel hands it back to enqueue */
		return SIBLINGS_TAKEN;
	}
	if (w->costop && pick_costops(h, pcpu, prev, w))
		return SIBLINGS_STOP;
	return SIBLINGS_NOTHING;
}

/* Whether the running world goes on below its limits. */
INLINE bool pick_admitted(struct host *h, struct vm *v, struct world *w, struct pcpu *p, u64 key)
{
	if (!plat_read(v->limiter) || parked_admit(h, v, w, share_quantum(plat_knobs(h), w), key))
		return true;
	p->serve_limiter = with(LIMIT_LOOK) ? parked_refused(h, v, w, share_deadline(v, w)) : 0;
	return false;
}

#endif
