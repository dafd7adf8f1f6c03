/* Where a waking world goes: to an idle pCPU if there is one, else to the queue where it waits least.
 *
 * Promise	a whole idle core before a part of one (VS51 "Hyper-Threading", H1), the near before the far,
 *		never a pCPU that the world may not use
 * Law		own pCPU's core, cores of the cluster, cores near, own pCPU, threads of the cluster, threads near;
 *		a host task that another wakes just before it sleeps: beside that one
 *		none idle: of `prev`, PROBE_MAX pCPUs of its cluster and as many of another the one that runs what is owed least,
 *		else the shortest queue
 * Limits	NEAR_MAX clusters are looked at; farther idle pCPUs come and pull by themselves (pull.h)
 * Weakness	running worlds are never moved to a core that has become idle
 */
#ifndef TANDEM_PLACE_H
#define TANDEM_PLACE_H

#include "preempt.h"

#define NEAR_MAX 32	/* 2,048 pCPUs of full clusters, 128 of the smallest */

/* First threads of cores among neighbouring bits. */
hot u64 place_first_threads(u32 smt)
{
	switch (smt) {
	case 2: return 0x5555555555555555ull;
	case 3: return 0x9249249249249249ull;
	case 4: return 0x1111111111111111ull;
	case 8: return 0x0101010101010101ull;
	default: return ~0ull; /* 1, and odd machines: a thread counts as a core */
	}
}

/* First threads of cores all of whose threads are in `idle`. */
hot u64 place_whole_cores(const struct cluster *c, u32 smt, u64 idle)
{
	u64 free = idle | ~c->present, whole = free, first = place_first_threads(smt);

	if (first != ~0ull)
		for (u32 k = 1; k < 8 && k < smt; k++)
			whole &= free >> k;
	return whole & first & idle;
}

/* Whether the pCPU of `bit` is idle and so are the other threads of its core. */
hot bool place_on_whole_core(const struct cluster *c, u32 smt, u64 idle, u32 bit)
{
	u64 own = 1ull << (bit & 63);

	if (!(idle & own) || smt == 1 || !with(WHOLE_CORE))
		return idle & own;
	if (place_first_threads(smt) != ~0ull)
		own >>= bit % smt; /* the core's first thread stands for it */
	return place_whole_cores(c, smt, idle) & own;
}

/* Takes an idle pCPU for oneself; only one caller gets it. */
hot bool place_claim(struct cluster *c, u32 bit)
{
	u64 one = 1ull << (bit & 63);

	if (!(plat_read(c->idle) & one))
		return false;
	return plat_fetch_and(&c->idle, ~one) & one;
}

/* Gives a pCPU that was claimed back: nobody comes after all. */
hot void place_unclaim(struct host *h, u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (c && !plat_read(p->current_world))
		plat_or(&c->idle, 1ull << (p->bit & 63));
}

/* Claims a pCPU out of `mask` that the thread may use; -1 if there is none. */
hot s32 place_claim_of(struct cluster *c, plat_task *t, u64 mask)
{
	plat_for(i, CLUSTER_PCPUS) {
		u32 bit, pcpu;

		if (!mask)
			break;
		bit = plat_first_bit(mask);
		mask &= mask - 1;
		pcpu = c->pcpu[bit & 63];
		if (plat_may_run(t, pcpu) && place_claim(c, bit))
			return (s32)pcpu;
	}
	return -1;
}

/* Whether a host task waits for the pCPU of its waker, which is about to sleep: it comes next there without waking an
 * idle pCPU, and finds what was said in the cache. Not while anybody waits in the cluster, for a pCPU with such a
 * pair is not asked what should run next. A waker that goes on after all keeps it
 * waiting for a slice and a tick. */
hot bool place_beside(struct host *h, plat_task *t, const struct world *w, u32 waker)
{
	struct pcpu *p = plat_pcpu(h, waker);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (!c || w->vm != VM_SYSTEM || plat_read(p->current_vm) != VM_SYSTEM || !plat_read(p->current_world))
		return false;
	return !plat_read(c->queued) && !plat_local_length(h, waker) && plat_may_run(t, waker);
}

hot s32 place_in(struct host *h, u32 cluster, plat_task *t, bool whole)
{
	struct cluster *c = plat_cluster(h, cluster);
	u64 idle = c ? plat_read(c->idle) : 0;

	if (!idle)
		return -1;
	return place_claim_of(c, t, whole && with(WHOLE_CORE) ? place_whole_cores(c, h->smt, idle) : idle);
}

cold s32 place_near(THE(struct host *h), THE(struct cluster *own), TASK(t), bool whole)
{
	plat_for(i, NEAR_MAX) {
		s32 found;

		if (i >= own->nears)
			break;
		found = place_in(h, own->near[i & (CLUSTERS_MAX - 1)], t, whole);
		if (found >= 0)
			return found;
	}
	return -1;
}

/* Claims the best idle pCPU for a thread that last ran on `prev`; -1 if none is idle. */
cold s32 place_idle(THE(struct host *h), TASK(t), u32 prev)
{
	struct pcpu *p = plat_pcpu(h, prev);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 idle;
	s32 found;

	if (!c)
		return -1;
	idle = plat_read(c->idle);
	if (place_on_whole_core(c, h->smt, idle, p->bit) && plat_may_run(t, prev) && place_claim(c, p->bit))
		return (s32)prev;
	found = place_in(h, p->cluster, t, true);
	if (found < 0)
		found = place_near(h, c, t, true);
	if (found >= 0 || h->smt == 1)
		return found;
	if (plat_may_run(t, prev) && place_claim(c, p->bit))
		return (s32)prev;
	found = place_in(h, p->cluster, t, false);
	return found >= 0 ? found : place_near(h, c, t, false);
}

/* Where the next look at a cluster begins: every pCPU of it has its turn. */
hot u32 place_turn(struct pcpu *p, const struct cluster *c)
{
	return c->pcpus ? p->probe++ % c->pcpus & 63 : 0;
}

/* Bits of a cluster that the thread may use. */
hot u64 place_allowed(struct cluster *c, plat_task *t, u32 flags)
{
	u64 mask = 0;

	if (!(flags & WORLD_RESTRICTED))
		return c->present;
	plat_for(i, CLUSTER_PCPUS)
		if (c->present >> i & 1 && plat_may_run(t, c->pcpu[i & 63]))
			mask |= 1ull << i;
	return mask;
}

/* How good a pCPU is for a world that must queue: by what it gains where it may preempt, and that before one where it may preempt a
 * sibling; below that by how few wait, and of those where no sibling runs (VS51 "Load Balancing", L2: two busy siblings do not share a
 * pCPU). `bonus` favours the pCPU it comes from. */
cold u64 place_score(THE(struct host *h), u32 pcpu, THE(struct claim *claim), u64 bonus)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	u64 gain = p ? preempt_gain(h, p, claim, plat_now(h)) : 0;
	bool sibling;

	if (!p)
		return 0;
	if (plat_read(p->wait_key) <= claim->key)
		gain = 0; /* another takes that place first: siblings that wake together spread */
	sibling = with(PLACE_SIBLING) && claim->vm && plat_read(p->current_world) && plat_read(p->current_vm) == claim->vm;
	return gain ? (sibling ? 1ull << 61 : 1ull << 62) + gain + bonus : (1ull << 32) - 2 * queue_waiting(p) - sibling;
}

/* Where a world may queue, and how good the best place is that was seen so far. */
struct seat {
	struct claim claim;	/* of the world */
	u64 mask;	/* pCPUs of the cluster that are left to look at */
	u64 margin;	/* by how much another place must be better */
	u64 score;
	u32 pcpu;
	u32 turn;	/* where to go on looking: by the pCPU that it comes from, for one counter for all of a cluster would be a hot line */
};

/* Looks at PROBE_MAX pCPUs of a cluster, in turn. */
cold u32 place_look(THE(struct host *h), u32 cluster, THE(struct seat *s))
{
	struct cluster *c = plat_cluster(h, cluster);

	if (!c || !c->pcpus)
		return 0;
	plat_for(i, PROBE_MAX) {
		u64 mask = s->mask, ahead, score;
		u32 turn, bit, pcpu;

		if (!mask)
			break;
		turn = s->turn++ % c->pcpus & 63;
		ahead = mask >> turn << turn;
		bit = plat_first_bit(ahead ? ahead : mask) & 63;
		s->mask = mask & ~(1ull << bit);
		pcpu = c->pcpu[bit];
		score = place_score(h, pcpu, &s->claim, 0);
		if (score > s->score + s->margin) {
			s->score = score;
			s->pcpu = pcpu;
		}
	}
	return 0;
}

/* The pCPU to queue at when none is idle: of `prev` and a few more the one that it may preempt by most,
 * `prev` by a margin; where it may preempt none, the one with the fewest waiting. One other cluster is looked at, in turn:
 * else small ones would each be fair for themselves only. */
cold u32 place_busy(THE(struct host *h), TASK(t), THE(struct world *w), u64 key, u32 prev)
{
	struct seat s = { .claim = preempt_claim(w, key), .pcpu = plat_may_run(t, prev) ? prev : plat_any_pcpu(h, t) };
	u64 margin = share_span(h, plat_knobs(h)->migrate_margin_us);
	struct pcpu *p = plat_pcpu(h, s.pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL, *other;
	u32 near, turn;

	if (!c || w->flags & WORLD_PCPU_KTHREAD || !with(PLACE_PROBE))
		return s.pcpu;
	s.turn = turn = p->probe++;
	s.score = place_score(h, s.pcpu, &s.claim, margin);
	s.mask = place_allowed(c, t, w->flags) & ~(1ull << (p->bit & 63));
	place_look(h, p->cluster, &s);
	if (!c->nears)
		return s.pcpu;
	near = c->near[turn % c->nears & (CLUSTERS_MAX - 1)];
	other = plat_cluster(h, near);
	if (!other)
		return s.pcpu;
	s.mask = place_allowed(other, t, w->flags);
	s.margin = margin;
	place_look(h, near, &s);
	return s.pcpu;
}

#endif
