/* What a pCPU takes from others: an idle one any world that waits and may run on it, a busy one only
 * a world that is owed more than its own by a margin.
 *
 * Promise	no pCPU stays idle while a world that may use it waits (VS51 "Load Balancing", pull migration, L1);
 *		VMs on crowded pCPUs are not poorer for it
 * Law		busy: take if key + migrate_margin < own best key; idle: the smallest wait_key of the nearest cluster
 *		idle, and all that waits is held elsewhere: a world that roams comes, so that a held one can run
 * Limits	busy: PROBE_MAX pCPUs of the cluster and one of another; idle: every cluster, nearest first; a world that
 *		roams is fetched from PROBE_MAX pCPUs of the cluster
 * Weakness	warm caches do not count yet
 */
#ifndef TANDEM_PULL_H
#define TANDEM_PULL_H

#include "place.h"

#define PASSED_MAX 4	/* worlds that a pCPU sends others for, at once */

/* A pCPU that was woken for a world takes another one, that came later or is owed more: for those that wait on here idle ones come, if
 * there are any that they may use. */
cold u32 pull_passes_over(THE(struct host *h), u32 pcpu)
{
	u32 seen = with(WAKE_MORE) ? 0 : PASSED_MAX;
	plat_task *t;

	plat_queue_each(h, t, QUEUE_VM(pcpu)) {
		s32 found;

		if (seen++ >= PASSED_MAX)
			break;
		found = place_idle(h, t, pcpu);
		if (found >= 0)
			trace_kick(h, (u32)found, KICK_IDLE, WHY_UNKNOWN);
	}
	return 0;
}

/* A pCPU has taken a world, out of its own queue or another's, and `left` wait there still. */
hot void pull_took(struct pcpu *p, u32 left)
{
	if (plat_read(p->woken))
		p->woken = left ? WOKEN_PASSES_OVER : WOKEN_NOT;
}

/* And it comes to run it: a call of its own, for those of a BPF program have 512 bytes of stack together. */
hot void pull_passed_over(struct host *h, struct pcpu *p)
{
	if (plat_read(p->woken) != WOKEN_PASSES_OVER)
		return;
	p->woken = WOKEN_NOT;
	pull_passes_over(h, p->id);
}

#define PULL_TRIES 4	/* a world that a limit parks when it is to be taken makes room for the next */

/* Takes the best world waiting at `victim` for `pcpu` if its key is below `limit`. */
hot bool pull_from(struct host *h, struct pcpu *victim, struct pcpu *p, u64 limit)
{
	plat_for(i, PULL_TRIES) {
		struct pick best = {};

		queue_best(h, QUEUE_VM(victim->id), p->id, limit, &best);
		if (!best.world)
			break;
		if (queue_take(h, QUEUE_VM(victim->id), best.world)) {
			p->pulls++;
			trace_note_pull(h, p);
			pull_took(p, queue_waiting(p));
			return true;
		}
	}
	return false;
}

/* Host tasks are taken in the order of their own virtual time. */
hot bool pull_system_from(struct host *h, struct pcpu *victim, struct pcpu *p)
{
	struct pick best = {};

	if (!plat_read(victim->waits_system))
		return false;
	queue_best(h, QUEUE_SYSTEM(victim->id), p->id, KEY_NONE, &best);
	if (best.world && queue_take(h, QUEUE_SYSTEM(victim->id), best.world)) {
		p->pulls++;
		trace_note_pull(h, p);
		pull_took(p, queue_waiting(p));
		return true;
	}
	return false;
}

/* A busy pCPU takes a host task only if the system group is owed more than its own best world. */
hot bool pull_system_owed(struct host *h, struct pcpu *victim, struct pcpu *p, u64 limit)
{
	struct vm *system = plat_vm(h, VM_SYSTEM);

	return system && plat_read(p->current_vm) != VM_SYSTEM && share_vm_key(system) < limit && pull_system_from(h, victim, p);
}

/* The pCPU of `mask` with the smallest hint, NULL if there is none. */
hot struct pcpu *pull_neediest(struct host *h, struct cluster *c, u64 mask)
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

cold bool pull_cluster(THE(struct host *h), u32 cluster, u32 pcpu, u64 mask)
{
	struct cluster *c = plat_cluster(h, cluster);
	struct pcpu *p = plat_pcpu(h, pcpu);

	if (!c || !p)
		return false;
	plat_for(i, CLUSTER_PCPUS) {
		struct pcpu *victim = mask ? pull_neediest(h, c, mask) : NULL;

		if (!victim)
			break;
		mask &= ~(1ull << (victim->bit & 63));
		if (pull_system_from(h, victim, p) || pull_from(h, victim, p, KEY_NONE))
			return true;
	}
	return false;
}

/* An idle pCPU looks for work, nearest cluster first. */
cold bool pull_idle(THE(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *own = p ? plat_cluster(h, p->cluster) : NULL;

	if (!own || !with(PULL_IDLE))
		return false;
	if (plat_read(own->queued) && pull_cluster(h, p->cluster, pcpu, plat_read(own->queued) & ~(1ull << (p->bit & 63))))
		return true;
	plat_for(i, CLUSTERS_MAX) {
		struct cluster *c;
		u32 near;

		if (i >= own->nears)
			break;
		near = own->near[i & (CLUSTERS_MAX - 1)];
		c = plat_cluster(h, near);
		if (c && plat_read(c->queued) && pull_cluster(h, near, pcpu, plat_read(c->queued)))
			return true;
	}
	return false;
}

/* An idle pCPU that may run nothing of what waits asks a busy one, where a held world waits behind one that roams, to
 * decide anew: there the one who roams makes room (dispatch_swap) and comes here. */
cold u32 pull_swap(THE(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 mask = c ? plat_read(c->queued) & ~(1ull << (p->bit & 63)) : 0;

	plat_for(i, PROBE_MAX) {
		struct pcpu *q = mask ? plat_pcpu(h, c->pcpu[plat_first_bit(mask) & 63]) : NULL;
		struct world *runs = q ? plat_world(h, plat_read(q->current_world)) : NULL;

		if (!q)
			break;
		mask &= mask - 1;
		if (runs && runs->vm != VM_SYSTEM && !(runs->flags & WORLD_RESTRICTED) && queue_held(h, QUEUE_VM(q->id), q->id)) {
			trace_kick(h, q->id, KICK_PREEMPT, WHY_PREEMPTED);
			break;
		}
	}
	return 0;
}

/* One look of a busy pCPU at `c`, in turn; true when it took a world. */
hot bool pull_probe(struct host *h, struct cluster *c, struct pcpu *p, u64 mask, u64 limit)
{
	u32 turn = place_turn(p, c);
	u64 ahead;
	struct pcpu *q;

	if (!mask)
		return false;
	ahead = mask >> turn << turn;
	q = plat_pcpu(h, c->pcpu[plat_first_bit(ahead ? ahead : mask) & 63]);
	if (!q)
		return false;
	if (pull_system_owed(h, q, p, limit))
		return true;
	return plat_read(q->wait_key) < limit && pull_from(h, q, p, limit);
}

/* A busy pCPU whose own best world has `key` looks for one that is owed more. */
cold bool pull_owed(THE(struct host *h), u32 pcpu, u64 key)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL, *other;
	u64 margin = share_span(h, plat_knobs(h)->migrate_margin_us), mask;

	if (!c || key < margin || !with(PULL_LAG))
		return false;
	mask = plat_read(c->queued) & ~(1ull << (p->bit & 63));
	plat_for(i, PROBE_MAX)
		if (pull_probe(h, c, p, mask, key - margin))
			return true;
	if (!c->nears)
		return false;
	other = plat_cluster(h, c->near[p->probe % c->nears & (CLUSTERS_MAX - 1)]);
	return other && pull_probe(h, other, p, plat_read(other->queued), key - margin);
}

#endif
