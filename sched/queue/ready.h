/* The ready queues of a pCPU: the best world that waits there, and how it is taken.
 *
 * Promise	the world found has the earliest deadline now of those that may run on the pCPU; a
 *		sibling of the running vCPU also before the deadline of that one (law/preempt.h)
 * Law		queued deadline <= deadline now, so a walk ends at the first queued deadline that is
 *		no earlier than the best so far. A world met on the way whose VM is stopped whole is
 *		co-stopped, and one that its limiters refuse is parked when it is taken
 * Units	ns of virtual time
 * Limits	at most QUEUE_SCAN_MAX worlds are looked at, GUARD_SCAN_MAX for one that has waited
 *		too long. A plan that shifts a VM back
 *		(lag_set_weight) makes its deadline earlier than queued until it is queued again
 */
#ifndef TANDEM_READY_H
#define TANDEM_READY_H

#include "../account/holder.h"
#include "../law/home.h"
#include "costopped.h"
#include "parked.h"

/* Two frames of a chain that shares 512 bytes of stack in BPF hold one: 6.12 allows no word
 * more. */
struct pick {
	/* deadline now; KEY_NONE when nothing was found */
	u64 key;
	/* queued deadline of the best of the rest: a lower bound */
	u64 next;
	/* the same, of those looked at by their deadlines now, so closer */
	u64 rest;
	u32 world;
	/* worlds looked at; in memory, where a BPF verifier does not count along */
	u32 seen;
};

/* A time of the clock that orders `queue`: of host tasks, that of their pCPU. */
INLINE u64 ready_clock(struct host *h, u64 queue)
{
	struct pcpu *p = NULL;

	if (queue >= QUEUE_SYSTEM(0) && queue < QUEUE_PARKED(0))
		p = plat_pcpu(h, (u32)(queue - QUEUE_SYSTEM(0)));
	return p ? p->system_v_ns : h->v_ns;
}

/* Whether a waiting world may run on `p`, where worlds of `only` may. */
INLINE bool ready_may(plat_task *t, const struct world *w, const struct pcpu *p, u32 only)
{
	return plat_may_run(t, p->id) && home_lets(w, p->domain) && holder_lets(only, w->vm);
}

/* The best world of `queue` for `pcpu` with a deadline before `key_max`. */
SUBPROG u32 ready_best(NONNULL(struct host *h), u64 queue, u32 pcpu, u64 key_max,
		       NONNULL(struct pick *out))
{
	u64 clock = ready_clock(h, queue);
	struct pcpu *p = plat_pcpu(h, pcpu);
	u32 only = holder_of(h, pcpu);
	u64 last = 0;
	plat_task *t;

	out->seen = 0;
	out->key = key_max;
	out->next = KEY_NONE;
	out->rest = KEY_NONE;
	out->world = WORLD_NONE;
	if (!p)
		return WORLD_NONE;
	plat_queue_each(h, t, queue) {
		u64 queued = plat_queue_key(t, clock), key;
		struct world *w;
		struct vm *v;

		plat_assert_alone(h, queued >= last); /* a queue is in order */
		last = queued;
		if (queued >= out->key || out->seen++ >= QUEUE_SCAN_MAX) {
			out->next = min_u64(queued, out->next);
			out->rest = min_u64(queued, out->rest);
			break;
		}
		w = plat_world_of(h, t);
		v = w ? plat_vm(h, w->vm) : NULL;
		if (!v || !plat_may_run(t, pcpu) || !home_lets(w, p->domain)) {
			out->rest = min_u64(queued, out->rest); /* it may elsewhere */
			continue;
		}
		if (!holder_lets(only, w->vm)) {
			out->next = min_u64(queued, out->next); /* it may later */
			out->rest = min_u64(queued, out->rest);
			continue;
		}
		if (costopped_whole(v, w)) {
			count_out_waiting(h, w);
			count_costopped(h, v, w);
			if (!plat_queue_move(h, t, QUEUE_COSTOP(w->vm)))
				count_out_waiting(h, w);
			continue;
		}
		key = w->vm == VM_SYSTEM ? queued : share_deadline(v, w);
		if (key < out->key && (w->vm != p->current_vm || key < p->sibling_key)) {
			if (out->world) {
				out->next = min_u64(out->key, out->next);
				out->rest = min_u64(out->key, out->rest);
			}
			out->key = key;
			out->world = w->id;
		} else {
			out->next = min_u64(queued, out->next);
			out->rest = min_u64(key, out->rest);
		}
	}
	if (!out->world)
		out->key = KEY_NONE;
	return out->world;
}

/* The first world of `queue` that may run on `pcpu` and has been READY since before `since_ns`, or,
 * where that is 0, is pinned; 0 if there is none. `seen` counts the worlds looked at. */
SUBPROG u32 ready_first(NONNULL(struct host *h), u64 queue, u32 pcpu, u64 since_ns,
			NONNULL(u32 *seen))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	u32 most = since_ns ? GUARD_SCAN_MAX : QUEUE_SCAN_MAX;
	u32 found = WORLD_NONE, only = holder_of(h, pcpu);
	plat_task *t;

	if (!p)
		return WORLD_NONE;
	plat_queue_each(h, t, queue) {
		struct world *w = plat_world_of(h, t);

		if ((*seen)++ >= most)
			break;
		if (w && (since_ns ? w->state_since_ns < since_ns : w->flags & WORLD_RESTRICTED) &&
		    ready_may(t, w, p, only)) {
			found = w->id;
			break;
		}
	}
	return found;
}

/* Moves a world to the local queue of this pCPU, `pcpu`; with a new slice, if it may run here,
 * unless `slice` is 0. False when it is gone, or a limiter has refused it meanwhile: then it is
 * parked. */
SUBPROG bool ready_move(NONNULL(struct host *h), u64 queue, u32 world, u32 pcpu, u64 slice)
{
	plat_task *t;
	bool took = false;

	plat_queue_each(h, t, queue) {
		struct world *w = plat_world_of(h, t);

		if (w && w->id == world) {
			struct vm *v = plat_vm(h, w->vm);

			if (slice) {
				struct pcpu *p = plat_pcpu(h, pcpu);

				if (!p || !ready_may(t, w, p, holder_of(h, pcpu)))
					break;
				plat_set_slice(t, slice);
			}
			if (v && parked_admit(h, v, w, plat_knobs(h)->quantum_us * US, 0)) {
				if (queue >= QUEUE_PARKED(0))
					plat_set_slice(t, share_quantum(plat_knobs(h), w));
				took = plat_queue_take(h, queue, t);
				if (!took)
					budget_stop(h, v, w, 0);
			} else if (v && queue < QUEUE_PARKED(0)) {
				struct budget_ask a = { .vm = w->vm };
				u32 first = plat_read(v->limiter),
				    refused = parked_ask(h, first, &a);

				parked_move(h, t, w, refused ? refused : first);
			}
			break;
		}
	}
	return took;
}

INLINE bool ready_take(struct host *h, u64 queue, u32 world)
{
	return ready_move(h, queue, world, 0, 0);
}

#endif
