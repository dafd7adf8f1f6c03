/* The ready queues of a pCPU: who waits there, in the order of what they are owed; it never moves a world by itself.
 *
 * Promise	the world returned is the one of the smallest key now among those that may run on the pCPU
 * Law		queued key <= key now, so the walk ends at the first queued key that is no better than the best so far
 * Weakness	a plan that shifts a VM back (share_weight) makes it lower than queued until it is queued again
 * Limits	at most QUEUE_SCAN_MAX worlds are looked at
 */
#ifndef TANDEM_QUEUE_H
#define TANDEM_QUEUE_H

#include "../policy/limit.h"
#include "../trace.h"

#define KEY_NONE (~0ull)

struct pick {
	u64 key;	/* KEY_NONE when nothing was found */
	u64 next;	/* queued key of the best of the rest: a lower bound */
	u32 world;
	u32 seen;	/* worlds looked at; kept here and not in a register, where a BPF verifier would count along */
};

/* --- who waits where ---
 *
 * A world counts as waiting at a pCPU from before it is put into a queue there (the kernel does so only after enqueue has
 * returned) until it runs or is taken off. So a count may be too high for a moment, and never too low. */

/* Whether worlds wait at `p`. */
hot u32 queue_waiting(const struct pcpu *p)
{
	return plat_read(p->waits_vm) + plat_read(p->waits_system);
}

/* What pcpu.woken says: a world was queued while nobody ran; another one is taken than that, perhaps. */
enum { WOKEN_NOT, WOKEN, WOKEN_PASSES_OVER };

hot void queue_enter(struct host *h, struct world *w, struct pcpu *p, u64 key)
{
	struct cluster *c = plat_cluster(h, p->cluster);
	bool system = w->vm == VM_SYSTEM;

	if (!plat_read(p->current_world))
		p->woken = WOKEN;
	w->queued_on = p->id * 2 + system + 1;
	if (system)
		plat_add(&p->waits_system, 1);
	else
		plat_add(&p->waits_vm, 1);
	if (!system && key < p->wait_key)
		p->wait_key = key;
	if (c && !(plat_read(c->queued) >> (p->bit & 63) & 1))
		plat_or(&c->queued, 1ull << (p->bit & 63));
}

/* A world counts as parked at a limit, and as held back by it from now on. */
hot void queue_enter_parked(struct host *h, struct world *w, u32 limiter, u64 key)
{
	struct limiter *l = plat_limiter(h, limiter);

	if (!l)
		return;
	w->parked_ns = plat_now(h);
	w->queued_on = QUEUED_PARKED + limiter;
	plat_add(&l->parked, 1);
	trace_parked(h, w, limiter, key);
}

/* A parked world is free to run: it has been held back until now. */
cold u32 queue_leave_parked(THE(struct host *h), THE(struct world *w), u32 limiter)
{
	struct limiter *l = plat_limiter(h, limiter);
	u64 now = plat_now(h), since = w->parked_ns;

	w->parked_ns = 0;
	if (since && now > since)
		w->limited_ns += now - since;
	if (l)
		plat_add(&l->parked, -1);
	return 0;
}

rare void queue_leave_costop(struct host *h, u32 vm)
{
	struct vm *v = plat_vm(h, vm);

	if (v)
		plat_add(&v->costopped, -1);
}

/* A parked world is let go by limit `first` and those above it, or (0) it runs, or waits no more: it counts there in between. */
cold u32 queue_let_go(THE(struct host *h), THE(struct world *w), u32 first)
{
	u32 id = first ? first : w->let_go;

	w->let_go = first;
	plat_for(i, LIMIT_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		id = l->parent;
		if (first)
			plat_add(&l->let_go, 1);
		else if (plat_read(l->let_go)) /* a limit whose record was another's begins at 0 */
			plat_add(&l->let_go, -1);
	}
	return 0;
}

/* The world runs, or is taken off; false, and nothing happens, if it did not wait. A timer moves parked worlds without holding
 * their runqueue, so the one who clears queued_on is the one who counts. */
hot bool queue_left(struct host *h, struct world *w)
{
	u32 queued = plat_read(w->queued_on), on = queued - 1;
	struct pcpu *p;
	struct cluster *c;

	if (!queued || !plat_cas(&w->queued_on, queued, 0))
		return false;
	if (queued >= QUEUED_COSTOP) {
		queue_leave_costop(h, queued - QUEUED_COSTOP);
		return true;
	}
	if (queued >= QUEUED_PARKED) {
		queue_leave_parked(h, w, queued - QUEUED_PARKED);
		return true;
	}
	if (plat_read(w->let_go))
		queue_let_go(h, w, 0);
	p = plat_pcpu(h, on / 2);
	c = p ? plat_cluster(h, p->cluster) : NULL;
	if (!c)
		return true;
	if (on & 1)
		plat_add(&p->waits_system, -1);
	else
		plat_add(&p->waits_vm, -1);
	if (queue_waiting(p))
		return true;
	plat_fetch_and(&c->queued, ~(1ull << (p->bit & 63)));
	p->wait_key = KEY_NONE;
	if (queue_waiting(p)) /* one came meanwhile, and may have found the bit still set */
		plat_or(&c->queued, 1ull << (p->bit & 63));
	return true;
}

apart u32 queue_leave_early(THE(struct host *h), THE(struct world *w))
{
	if (queue_left(h, w))
		trace_unqueued(h, w);
	return 0;
}

/* The same for one that does not run now; it seldom waits. */
hot void queue_leave(struct host *h, struct world *w)
{
	if (plat_read(w->queued_on))
		queue_leave_early(h, w);
}

/* Puts a world that a limit holds back among those who are parked there; called from enqueue. */
hot void queue_park(struct host *h, plat_task *t, const struct vm *v, struct world *w)
{
	u32 limiter = limit_parking(h, plat_read(v->limiter));
	struct limiter *l = plat_limiter(h, limiter);
	u64 key = share_queue_key(h, plat_knobs(h), v, w);

	if (l)
		l->closed = 1; /* or the tick would not look */
	queue_enter_parked(h, w, limiter, key);
	plat_queue_insert(h, t, QUEUE_PARKED(limiter), GRANT_NS, key);
}

/* Whether a world may not run because its VM is stopped whole. In its emulator's code it may hold what that VM waits for. */
hot bool queue_stopped(const struct vm *v, const struct world *w)
{
	return plat_read(v->stopped) && (w->kind == KIND_VCPU || w->kind == KIND_EMULATED) && !plat_read(w->outside);
}

hot void queue_enter_costop(struct vm *v, struct world *w)
{
	w->queued_on = QUEUED_COSTOP + w->vm;
	plat_add(&v->costopped, 1);
}

/* Puts a vCPU that is co-stopped, or whose VM is stopped, among those of its VM; called from enqueue. */
hot void queue_costop(struct host *h, plat_task *t, struct vm *v, struct world *w)
{
	queue_enter_costop(v, w);
	plat_queue_insert(h, t, QUEUE_COSTOP(w->vm), share_slice(h, plat_knobs(h), v, w), share_queue_key(h, plat_knobs(h), v, w));
}

/* --- the best that waits --- */

/* The best world of `queue` for `pcpu`, if better than `limit`. */
cold u32 queue_best(THE(struct host *h), u64 queue, u32 pcpu, u64 limit, THE(struct pick *out))
{
	plat_task *t;

	out->seen = 0;
	out->key = limit;
	out->next = KEY_NONE;
	out->world = WORLD_NONE;
	plat_queue_each(h, t, queue) {
		u64 queued = plat_queue_key(t), key;
		struct world *w;
		struct vm *v;

		if (queued >= out->key || out->seen++ >= QUEUE_SCAN_MAX) {
			if (queued < out->next)
				out->next = queued;
			break;
		}
		w = plat_world_of(h, t);
		v = w ? plat_vm(h, w->vm) : NULL;
		if (!v || !plat_may_run(t, pcpu))
			continue;
		if (plat_read(v->limiter) && !w->grant_ns && with(LIMIT_REPARK)) {
			u32 limiter = limit_closed(h, v);

			if (limiter && queue != QUEUE_PARKED(limiter)) {
				queue_leave(h, w);
				queue_enter_parked(h, w, limiter, queued);
				if (!plat_queue_move(h, t, QUEUE_PARKED(limiter)))
					queue_leave(h, w);
				continue;
			}
		}
		if (queue_stopped(v, w)) {
			queue_leave(h, w);
			queue_enter_costop(v, w);
			if (!plat_queue_move(h, t, QUEUE_COSTOP(w->vm)))
				queue_leave(h, w);
			continue;
		}
		key = w->vm == VM_SYSTEM ? queued : share_key(v, w);
		if (key < out->key) {
			if (out->world)
				out->next = out->key < out->next ? out->key : out->next;
			out->key = key;
			out->world = w->id;
		} else if (queued < out->next) {
			out->next = queued;
		}
	}
	if (!out->world)
		out->key = KEY_NONE;
	return out->world;
}

/* Key that the first of a queue was queued with; KEY_NONE when it is empty. */
cold u64 queue_first_key(THE(struct host *h), u64 queue)
{
	u64 key = KEY_NONE;
	plat_task *t;

	plat_queue_each(h, t, queue) {
		key = plat_queue_key(t);
		break;
	}
	return key;
}

/* A world that has been ready since before `since_ns` and may run on `pcpu`; 0 if there is none. */
cold u32 queue_waited(THE(struct host *h), u64 queue, u32 pcpu, u64 since_ns)
{
	plat_task *t;
	u32 found = WORLD_NONE;

	plat_queue_each(h, t, queue) {
		struct world *w = plat_world_of(h, t);

		if (w && w->state_since_ns < since_ns && plat_may_run(t, pcpu)) {
			found = w->id;
			break;
		}
	}
	return found;
}

/* The first world of `queue` whose affinity leaves out some pCPU and that may run on `pcpu`; 0 if there is none. */
cold u32 queue_held(THE(struct host *h), u64 queue, u32 pcpu)
{
	plat_task *t;
	u32 found = WORLD_NONE;

	plat_queue_each(h, t, queue) {
		struct world *w = plat_world_of(h, t);

		if (w && w->flags & WORLD_RESTRICTED && plat_may_run(t, pcpu)) {
			found = w->id;
			break;
		}
	}
	return found;
}

/* Whether a world that waits in `queue` may run on `pcpu`; if so, it will do so for `slice`. */
cold bool queue_find(THE(struct host *h), u64 queue, u32 world, u32 pcpu, u64 slice)
{
	plat_task *t;
	bool found = false;

	plat_queue_each(h, t, queue) {
		struct world *w = plat_world_of(h, t);

		if (w && w->id == world) {
			found = plat_may_run(t, pcpu);
			if (found)
				plat_set_slice(t, slice);
			break;
		}
	}
	return found;
}

/* Moves a world found by queue_best to the local queue of this pCPU; false when it is gone, or a limit has just closed:
 * then it is parked. */
cold bool queue_take(THE(struct host *h), u64 queue, u32 world)
{
	plat_task *t;
	bool took = false;

	plat_queue_each(h, t, queue) {
		struct world *w = plat_world_of(h, t);

		if (w && w->id == world) {
			struct vm *v = plat_vm(h, w->vm);

			if (v && queue >= QUEUE_PARKED(0) && !w->grant_ns)
				limit_grant(h, plat_read(v->limiter), w, GRANT_NS, share_key(v, w) <= h->v_ns ? LIMIT_OWED : LIMIT_TURN);
			if (v && limit_take(h, v, w, GRANT_NS)) {
				took = plat_queue_take(h, queue, t);
			} else if (v && queue < QUEUE_PARKED(0)) {
				u32 limiter = limit_parking(h, plat_read(v->limiter));

				queue_leave(h, w);
				queue_enter_parked(h, w, limiter, plat_queue_key(t));
				if (!plat_queue_move(h, t, QUEUE_PARKED(limiter)))
					queue_leave(h, w);
			}
			break;
		}
	}
	return took;
}

#endif
