/* Pulling: what a pCPU takes from the queues of others.
 *
 * Promise	no pCPU stays idle while a world that may use it waits (VS51 "Load Balancing", pull
 *		migration, L1), but for a moment where that would cost caches (RDY, L4); VMs on
 *		crowded pCPUs get their share
 * Law		idle: any world, the earliest wait_key of the nearest cluster first. A pCPU whose
 *		world slept for less than a moment last time, half of spread_us and 500 us at most,
 *		leaves alone in other LLCs the queues that have been filled for less, and looks
 *		again after a moment. What is queued waits for two moments at most beside it.
 *		Where a waking world waits though pCPUs of other LLCs idle, these are woken after a
 *		moment, whatever is kicked for it at once
 *		busy: a world whose deadline + migrate_margin is before that of its own best
 *		idle beside pinned worlds only: a world of free affinity makes room for one of them
 * Units	ns of virtual time
 * Limits	busy: PROBE_MAX pCPUs of the cluster, and one of another where worlds wait, the
 *		first of PROBE_MAX clusters from the cursor on, by pcpu.best_key: where a deadline
 *		has fallen since, it is seen when that pCPU looks next; idle: every cluster,
 *		nearest first; warm caches count by that moment only. A look wakes pCPUs for the
 *		first RESEND_MAX worlds that wait, and for the next ones at its next, if it has
 *		woken any: what waits behind four that are pinned is pulled after housekeeping
 */
#ifndef TANDEM_PULL_H
#define TANDEM_PULL_H

#include "../queue/ready.h"
#include "place.h"

/* after so long a look is asked for anew */
#define LOOK_LOST_NS (10000 * US)
/* after so long those that a look has woken have pulled, and what still waits is looked at again */
#define LOOK_AGAIN_NS (100 * US)
/* worlds for which a spent kick is sent again, at once */
#define RESEND_MAX 4
/* a world that is parked when it is taken makes room for the next */
#define PULL_TRIES 16

/* Idle pCPUs are woken for worlds that wait here: the kick for them was spent on another, or they
 * have waited for a moment. Whether to look again: one that is woken may take another world, and
 * some of those that are counted may be on their way into the queue. */
SUBPROG bool pull_resend(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	u32 seen = with(WAKE_MORE) ? 0 : RESEND_MAX, waits = plat_read(p->waits_vm);
	bool again = false;
	plat_task *t;

	plat_queue_each(h, t, QUEUE_VM(p->id)) {
		s32 found;

		if (seen++ >= RESEND_MAX)
			break;
		found = place_idle(h, t, p->id);
		if (found < 0)
			continue;
		trace_kick(h, (u32)found, KICK_IDLE, WHY_UNKNOWN);
		again = true;
	}
	return again || seen < min_u64(waits, RESEND_MAX);
}

/* A pCPU has taken a world out of a queue, and `left` still wait in its own. */
INLINE void pull_took(struct pcpu *p, u32 left)
{
	if (plat_read(p->kicked))
		p->kicked = left ? KICK_STATE_SPENT : KICK_STATE_NONE;
}

/* Before that world runs; a call of its own, for call chains of BPF share 512 bytes of stack. */
INLINE void pull_after(struct host *h, struct pcpu *p)
{
	if (plat_read(p->kicked) != KICK_STATE_SPENT)
		return;
	p->kicked = KICK_STATE_NONE;
	pull_resend(h, p);
}

INLINE void pull_count(struct host *h, struct pcpu *p)
{
	p->pulls++;
	trace_note_pull(h, p);
	pull_took(p, count_waiting(p));
}

/* Takes the best world that waits at `victim` for `p`, if its deadline is before `key_max`. */
INLINE bool pull_from(struct host *h, struct pcpu *victim, struct pcpu *p, u64 key_max)
{
	plat_for(i, PULL_TRIES) {
		struct pick best = {};

		ready_best(h, QUEUE_VM(victim->id), p->id, key_max, &best);
		if (!best.world)
			break;
		if (ready_take(h, QUEUE_VM(victim->id), best.world)) {
			pull_count(h, p);
			return true;
		}
	}
	return false;
}

/* Takes a host task, in the order of virtual runtime. */
INLINE bool pull_system_from(struct host *h, struct pcpu *victim, struct pcpu *p)
{
	struct pick best = {};

	if (!plat_read(victim->waits_system))
		return false;
	ready_best(h, QUEUE_SYSTEM(victim->id), p->id, KEY_NONE, &best);
	if (!best.world || !ready_take(h, QUEUE_SYSTEM(victim->id), best.world))
		return false;
	pull_count(h, p);
	return true;
}

/* A busy pCPU takes a host task only if the system group's deadline is before that of its own
 * best. */
INLINE bool pull_system_earlier(struct host *h, struct pcpu *victim, struct pcpu *p, u64 key_max)
{
	struct vm *system = plat_vm(h, VM_SYSTEM);

	return system && plat_read(p->current_vm) != VM_SYSTEM &&
	       share_vm_deadline(system) < key_max && pull_system_from(h, victim, p);
}

/* The pCPU of `mask` with the earliest wait_key, NULL if there is none. */
INLINE struct pcpu *pull_earliest(struct host *h, struct cluster *c, u64 mask)
{
	struct pcpu *found = NULL;
	u64 least = KEY_NONE;

	plat_for(i, CLUSTER_PCPUS) {
		struct pcpu *q;
		u32 bit;

		if (!mask)
			break;
		bit = plat_first_bit(mask);
		mask &= mask - 1;
		q = plat_pcpu(h, c->pcpu[bit & 63]);
		if (q && (!found || plat_read(q->wait_key) < least)) {
			found = q;
			least = plat_read(q->wait_key);
		}
	}
	return found;
}

SUBPROG bool pull_cluster(NONNULL(struct host *h), u32 cluster, u32 pcpu, u64 mask)
{
	struct cluster *c = plat_cluster(h, cluster);
	struct pcpu *p = plat_pcpu(h, pcpu);

	if (!c || !p)
		return false;
	plat_for(i, CLUSTER_PCPUS) {
		struct pcpu *victim = mask ? pull_earliest(h, c, mask) : NULL;

		if (!victim)
			break;
		mask &= ~(1ull << (victim->bit & 63));
		if (pull_system_from(h, victim, p) || pull_from(h, victim, p, KEY_NONE))
			return true;
	}
	return false;
}

/* For how long a pCPU idles rather than take a world out of another LLC's caches: half of what
 * these take to fill again, and of the shortest tick. */
INLINE u64 pull_moment(struct host *h)
{
	return min_u64(plat_knobs(h)->spread_us, 1000) * (US / 2);
}

/* Where worlds have waited in other LLCs since before this they are pulled. 0: all are, unless the
 * world that has gone to sleep on `p` is a VM's and slept for less than a moment last time. A pCPU
 * that idled has been woken for what waits. */
INLINE u64 pull_before(struct host *h, const struct pcpu *p)
{
	struct world *w = plat_world(h, p->last_world);

	if (!w || w->vm == VM_SYSTEM || state_wants_pcpu(w->state) || !with(SHORT_IDLE))
		return 0;
	if (!w->slept_ns || w->slept_ns >= pull_moment(h))
		return 0;
	return plat_now(h) - pull_moment(h);
}

/* A world that stays in its LLC for a moment has been counted in at `p`: a look follows, also where
 * a pCPU is kicked for it, which may take another. One that is under way comes soon enough: it
 * reads the count after it has cleared the word. Where the kernel starts no timer it is left to
 * housekeeping. */
RARE_SUBPROG u32 pull_later(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	u64 since = plat_fetch_add(&p->looks_ns, 0), now = plat_now(h);

	if (!since || now - since >= LOOK_LOST_NS) {
		p->looks_ns = now;
		if (plat_look(h, p->id, pull_moment(h)))
			p->looks_ns = 0;
	}
	return 0;
}

/* Of the pCPUs of another LLC's cluster where something waits those to pull from: where host tasks
 * wait, or worlds have waited since pull_before. For the rest the pCPU looks again after a moment;
 * where the kernel starts no timer for that, it pulls them at once. */
RARE_SUBPROG u64 pull_waited(NONNULL(struct host *h), u32 cluster, u32 pcpu)
{
	struct cluster *c = plat_cluster(h, cluster);
	struct pcpu *p = plat_pcpu(h, pcpu);
	u64 queued = c ? plat_read(c->queued) : 0, mask = queued, before;

	before = p ? pull_before(h, p) : 0;
	if (!before || !c)
		return queued;
	plat_for(i, CLUSTER_PCPUS) {
		struct pcpu *q = mask >> i & 1 ? plat_pcpu(h, c->pcpu[i & 63]) : NULL;

		if (q && !plat_read(q->waits_system) &&
		    (s64)(plat_read(q->waits_since_ns) - before) > 0)
			mask &= ~(1ull << i);
	}
	return mask != queued && plat_look(h, pcpu, pull_moment(h)) ? queued : mask;
}

/* An idle pCPU looks for work, nearest cluster first. */
SUBPROG bool pull_idle(NONNULL(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *own = p ? plat_cluster(h, p->cluster) : NULL;
	u64 mask = own ? plat_read(own->queued) : 0;

	if (!own || !with(PULL_IDLE))
		return false;
	if (mask && pull_cluster(h, p->cluster, pcpu, mask & ~(1ull << (p->bit & 63))))
		return true;
	plat_for(i, CLUSTERS_MAX) {
		struct cluster *c;
		u32 near;

		if (i >= own->nears)
			break;
		near = own->near[i & (CLUSTERS_MAX - 1)];
		c = plat_cluster(h, near);
		mask = c ? plat_read(c->queued) : 0;
		if (mask && c->llc != own->llc)
			mask = pull_waited(h, near, pcpu);
		if (mask && pull_cluster(h, near, pcpu, mask))
			return true;
	}
	return false;
}

/* The timer of a pCPU, a moment after it began to idle or a world to wait there though others are
 * idle: it is woken, to pull, if it is idle, and they are for what waits there. One that is
 * reserved just now may be given back without a kick. Returns ns until the next look, 0 for none.
 */
INLINE u64 pull_look(struct host *h, u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (!c)
		return 0;
	plat_fetch_and(&p->looks_ns, 0);
	/* none runs: it is idle, or a thread of a higher class has it */
	if (!plat_read(p->current_world) && holder_queued(h)) {
		idle_reserve(c, p->bit);
		trace_kick(h, pcpu, KICK_IDLE, WHY_UNKNOWN);
	}
	if (!plat_read(p->waits_vm) || !pull_resend(h, p))
		return 0;
	p->looks_ns = plat_now(h);
	return LOOK_AGAIN_NS;
}

/* An idle pCPU that may run nothing of what waits kicks a busy one where a pinned world waits
 * behind one of free affinity: that one makes room (pick_swap) and comes here. */
SUBPROG u32 pull_swap(NONNULL(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 mask = c ? plat_read(c->queued) & ~(1ull << (p->bit & 63)) : 0;
	u32 seen = 0;

	plat_for(i, PROBE_MAX) {
		struct pcpu *q = mask ? plat_pcpu(h, c->pcpu[plat_first_bit(mask) & 63]) : NULL;
		struct world *runs = q ? plat_world(h, plat_read(q->current_world)) : NULL;

		if (!q)
			break;
		mask &= mask - 1;
		if (runs && runs->vm != VM_SYSTEM && !(runs->flags & WORLD_RESTRICTED) &&
		    ready_first(h, QUEUE_VM(q->id), q->id, 0, &seen)) {
			trace_kick(h, q->id, KICK_PREEMPT, WHY_PREEMPTED);
			break;
		}
	}
	return 0;
}

/* One look of a busy pCPU at a cluster, from its cursor on; true when it took a world. */
INLINE bool pull_probe(struct host *h, struct cluster *c, struct pcpu *p, u64 mask, u64 key_max)
{
	u32 from = c->pcpus ? p->probe++ % c->pcpus & 63 : 0;
	u64 ahead;
	struct pcpu *q;

	if (!mask)
		return false;
	ahead = mask >> from << from;
	q = plat_pcpu(h, c->pcpu[plat_first_bit(ahead ? ahead : mask) & 63]);
	if (!q)
		return false;
	if (pull_system_earlier(h, q, p, key_max))
		return true;
	return plat_read(q->best_key) < key_max && pull_from(h, q, p, key_max);
}

/* A busy pCPU whose own best world has the deadline `key` looks for an earlier one. */
SUBPROG bool pull_earlier(NONNULL(struct host *h), u32 pcpu, u64 key)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL, *other;
	u64 margin = plat_knobs(h)->migrate_margin_us * US, mask;

	if (!c || key < margin || !with(PULL_LAG))
		return false;
	mask = plat_read(c->queued) & ~(1ull << (p->bit & 63));
	plat_for(i, PROBE_MAX)
		if (pull_probe(h, c, p, mask, key - margin))
			return true;
	plat_for(i, PROBE_MAX) {
		if (!c->nears)
			break;
		other = plat_cluster(h, c->near[(p->probe + i) % c->nears & (CLUSTERS_MAX - 1)]);
		mask = other ? plat_read(other->queued) : 0;
		if (mask)
			return pull_probe(h, other, p, mask, key - margin);
	}
	return false;
}

/* A pCPU begins to idle though worlds wait there. */
RARE_SUBPROG u32 pull_again(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	struct cluster *c = plat_cluster(h, p->cluster);

	if (trace_on(h))
		trace_idle(h, p, IDLES);
	if (c && idle_reserve(c, p->bit))
		trace_kick(h, p->id, KICK_IDLE, WHY_UNKNOWN);
	return 0;
}

#endif
