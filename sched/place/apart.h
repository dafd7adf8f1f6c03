/* Cores that VMs do not share: which VM has a core next.
 *
 * Promise	a core goes to the VM of the world with the earliest deadline of those that run or
 *		wait on its threads, as a pCPU does; no thread waits for another's slice to end
 * Law		when a thread decides: if a world that may not begin beside those that run on the
 *		core's other threads waits on one of its threads, with a deadline earlier by
 *		preempt_margin_us than of all that run there, then that thread has the core next:
 *		it idles, and the others are preempted and run host tasks only, until it has taken
 *		the core
 *		where none such waits on its core, one that waits on another comes here, if it is
 *		earlier by APART_MARGIN as well
 * Limits	a thread looks at the worlds of its own core that wait on the thread with the
 *		earliest, or at one pCPU of its own or another cluster: QUEUE_SCAN_MAX worlds
 */
#ifndef TANDEM_APART_H
#define TANDEM_APART_H

#include "pick.h"
#include "requeue.h"

/* quanta by which a world that waits on another core is earlier: within two, a core's VMs
 * alternate, and the threads of a VM that changes cores stop and begin one after the other */
#define APART_MARGIN 4
/* 2^32 over the golden ratio (Knuth's multiplicative hash): other searches advance the cursor too,
 * by a constant, and of it alone every second, or fourth, value might never come */
#define APART_HASH 2654435769u

/* Looks among the worlds that wait on a thread. */
struct apart_look {
	/* VM that holds the core, and the deadline to be earlier than */
	u64 before;
	u32 vm;
	u32 seen;
};

/* Whether a world of another VM than the holder's waits on `p` with so early a deadline. */
SUBPROG bool apart_waits(NONNULL(struct host *h), NONNULL(struct pcpu *p),
			 NONNULL(struct apart_look *look))
{
	bool found = false;
	plat_task *t;

	plat_queue_each(h, t, QUEUE_VM(p->id)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;

		if (!v || look->seen++ >= QUEUE_SCAN_MAX)
			break;
		if (w->vm == look->vm && plat_knobs(h)->core_sharing == SHARING_VM)
			continue;
		found = share_deadline(v, w) < look->before && !costopped_whole(v, w);
		if (found)
			break;
	}
	return found;
}

/* The core goes to the thread `next`: all of its other threads stop their VMs' worlds. */
SUBPROG u32 apart_drain(NONNULL(struct host *h), NONNULL(struct pcpu *core), u32 pcpu, u32 next)
{
	struct cluster *c = plat_cluster(h, core->cluster);

	if (!c || !plat_cas(&core->holder_next, plat_read(core->holder_next), next + 1))
		return 0;
	plat_for(i, HOLDER_THREADS) {
		struct pcpu *q = plat_pcpu(h, c->pcpu[(core->bit + i) & 63]);
		u32 runs;

		if (i >= h->smt || !q || q->core_first != core->id)
			break;
		runs = plat_read(q->current_world);
		if (q->id != pcpu && runs && plat_read(q->current_vm) != VM_SYSTEM)
			trace_kick(h, q->id, KICK_PREEMPT, WHY_PREEMPTED);
		else if (q->id != pcpu && q->id == next)
			trace_kick(h, q->id, KICK_IDLE, WHY_UNKNOWN);
	}
	return 0;
}

/* A world of another VM that waits on another core comes to wait here, if its deadline is earlier
 * by a margin than of all that run on this core. A look is at one pCPU, from the cursor on; every
 * second one is in another cluster. */
RARE_SUBPROG bool apart_fetch(NONNULL(struct host *h), NONNULL(struct pcpu *p),
			      NONNULL(struct apart_look *look))
{
	struct cluster *c = plat_cluster(h, p->cluster);
	u32 hash = p->probe++ * APART_HASH, from;
	struct requeue r = { .pcpu = p->id };
	u64 mask, ahead;
	struct pcpu *q;
	plat_task *t;

	if (c && c->nears && hash >> 31)
		c = plat_cluster(h, c->near[(hash >> 16) % c->nears & (CLUSTERS_MAX - 1)]);
	if (!c || !c->pcpus || !with(APART_FETCH))
		return false;
	from = (hash >> 8) % c->pcpus & 63;
	mask = plat_read(c->queued);
	ahead = mask >> from << from;
	q = mask ? plat_pcpu(h, c->pcpu[plat_first_bit(ahead ? ahead : mask) & 63]) : NULL;
	if (!q || q->core_first == p->core_first || plat_read(q->wait_key) >= look->before)
		return false;
	plat_queue_each(h, t, QUEUE_VM(q->id)) {
		struct world *w = plat_world_of(h, t);
		struct vm *v = w ? plat_vm(h, w->vm) : NULL;

		if (!v || look->seen++ >= QUEUE_SCAN_MAX)
			break;
		if (w->vm == look->vm || costopped_whole(v, w) || !plat_may_run(t, p->id) ||
		    !home_lets(w, p->domain) || share_deadline(v, w) >= look->before ||
		    !count_out(h, w))
			continue;
		requeue_enter(h, w, &r, plat_queue_key(t, h->v_ns));
		if (plat_queue_move(h, t, QUEUE_VM(p->id)))
			return true;
		count_out_waiting(h, w);
		break;
	}
	return false;
}

/* Whether this pCPU runs no VM's world now, for another VM is to have the core; `key_max` is the
 * deadline of its running world. */
RARE_SUBPROG bool apart_decide(NONNULL(struct host *h), u32 pcpu, u64 key_max)
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	struct cluster *c = core ? plat_cluster(h, core->cluster) : NULL;
	u64 margin = plat_knobs(h)->preempt_margin_us * US, holder, least = KEY_NONE;
	struct apart_look look = { .before = key_max };
	struct pcpu *best = NULL;
	u32 next;

	if (!core || !c)
		return false;
	if (key_max != KEY_NONE && p->current_vm != VM_SYSTEM &&
	    !holder_take(h, pcpu, p->current_vm))
		return true; /* apart_runs has kicked it, or another thread is next */
	holder = plat_read(core->holder);
	next = holder_next(h, core);
	if (next == p->id + 1 && !holder_others(core, p, holder)) {
		if (key_max != KEY_NONE) /* it holds the core already */
			plat_cas(&core->holder_next, next, 0);
		return false;
	}
	if (next)
		return true;
	plat_for(i, HOLDER_THREADS) {
		struct pcpu *q = plat_pcpu(h, c->pcpu[(core->bit + i) & 63]);

		if (i >= h->smt || !q || q->core_first != core->id)
			break;
		if (q != p && (plat_read(q->left_ns) || holder_taken(h, q) ||
			       !idle_online(c, q->bit)))
			continue; /* it decides itself, as soon as it can */
		if (q != p && plat_read(q->current_world))
			look.before = min_u64(look.before, preempt_current(h, q, p->chose_ns));
		if (plat_read(q->waits_vm) && plat_read(q->wait_key) < least) {
			least = plat_read(q->wait_key);
			best = q;
		}
	}
	look.vm = (u32)(holder >> 8);
	if (look.before == KEY_NONE || look.before < margin)
		return false;
	look.before -= margin;
	if (best && least < look.before) {
		if ((best == p && !holder_others(core, p, holder)) || !apart_waits(h, best, &look))
			return false;
	} else {
		margin = APART_MARGIN * plat_knobs(h)->quantum_us * US;
		if (!holder_others(core, p, holder) || look.before < margin)
			return false;
		look.before -= margin;
		if (!apart_fetch(h, p, &look))
			return false;
		best = p;
	}
	apart_drain(h, core, pcpu, best->id);
	return best != p || holder_others(core, p, holder);
}

/* Whether this pCPU has its core next: a kick will tell that it may take it. */
INLINE bool apart_is_next(struct host *h, const struct pcpu *p)
{
	struct pcpu *core = plat_pcpu(h, p->core_first);

	return core && plat_read(core->holder_next) == p->id + 1;
}

/* Whether the running world leaves this pCPU to another VM, which has the core next. */
INLINE bool apart_stops(struct host *h, struct pcpu *p, struct cluster *c, plat_task *prev,
			u64 key_max)
{
	struct pick task = {};

	if (!holder_on(h) || !apart_decide(h, p->id, key_max))
		return false;
	if (prev) {
		plat_set_slice(prev, 0); /* the kernel hands it to enqueue */
		trace_note_stop(h, p, WHY_PREEMPTED);
	}
	if (plat_read(p->waits_system) && !apart_is_next(h, p)) {
		ready_best(h, QUEUE_SYSTEM(p->id), p->id, KEY_NONE, &task);
		if (task.world && ready_take(h, QUEUE_SYSTEM(p->id), task.world))
			return true;
	}
	if (!prev) /* else the kernel tells that it idles */
		idle_set(c, p->bit);
	return true;
}

/* A world begins to run: of a host task the core is free, and a VM's world whose core another VM
 * has taken meanwhile is stopped before it enters its guest. */
INLINE void apart_runs(struct host *h, const struct pcpu *p, const struct world *w)
{
	if (!holder_on(h))
		return;
	if (w->vm == VM_SYSTEM)
		holder_leave(h, p->id, HOLDER_SERVES);
	else if (!holder_take(h, p->id, w->vm))
		trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
}

/* Of the pCPUs of `mask` those that any VM's world may begin to run on. */
SUBPROG u64 apart_free(NONNULL(struct host *h), NONNULL(struct cluster *c), u64 mask)
{
	u64 found = 0;

	plat_for(i, CLUSTER_PCPUS)
		if (mask >> i & 1 && holder_admits(h, c->pcpu[i & 63], VM_ANY))
			found |= 1ull << i;
	return found;
}

/* This pCPU idles beside worlds that wait here for its core: another that idles may run them. */
INLINE void apart_resend(struct host *h, struct pcpu *p)
{
	if (holder_on(h) && plat_read(p->waits_vm))
		pull_resend(h, p);
}

/* Whether worlds wait on this idle pCPU for the other threads of its core. */
INLINE bool apart_waits_for(struct host *h, const struct pcpu *p)
{
	return !plat_read(p->waits_system) && !holder_admits(h, p->id, VM_ANY);
}

#endif
