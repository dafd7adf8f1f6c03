/* Placement: the pCPU of a world that wakes, or that a timer unparks or co-starts.
 *
 * Promise	a whole idle core before a part of one (VS51 "Hyper-Threading", H1), near before
 *		far, an LLC with less load before one with more, and no move that gains less than
 *		the caches cost (VS51 "Load Balancing", L2); never a pCPU that the world may not use
 * Law		idle: for the first world of a new VM the LLC of the least load; its others look
 *		from that node on. For a world that ran for longer than spread_us when it was awake
 *		last, or has never run, a core of an LLC of the node with less load by LLC_MARGIN:
 *		now, and if it has run before, by half of that for the last 160 ms even without it.
 *		Else own pCPU's core, cores of the cluster, cores near, own pCPU, threads of the
 *		cluster, threads near. While the pCPU where a VM's world ran last is idle, the cores
 *		of this last list count only if they have been so for spread_us: a world that sleeps
 *		for less comes back to its caches. For the same reason one that ran for less than
 *		spread_us goes to another LLC only for a core that has been idle for so long, twice
 *		as long while its own pCPU is idle; if others are idle, it waits for a moment
 *		(pull.h). A sync wake-up by a host task that sleeps next: the waker's pCPU
 *		none idle: of `prev`, PROBE_MAX pCPUs of its cluster and half as many of another,
 *		the one of the smallest cost (law/goodness.h). A VM's world leaves the pCPU
 *		where it ran last for what costs less by a quantum, which is two waiting worlds
 *		fewer; and what it preempts elsewhere must have a deadline that is later by
 *		migrate_margin_us besides preempt_margin_us. Another cluster must cost less by
 *		migrate_margin_us more
 * Units	ns
 * Limits	NEAR_MAX clusters are looked at; farther idle pCPUs pull by themselves (pull.h).
 *		Of an LLC's clusters each counts alone (more than 64 threads); only the cluster of
 *		the least load is tried. An LLC that nodes share is one for each of them. What a
 *		world preempts that waits in its LLC goes to another at once
 */
#ifndef TANDEM_PLACE_H
#define TANDEM_PLACE_H

#include "../account/holder.h"
#include "../law/cores.h"
#include "../law/goodness.h"
#include "../law/home.h"
#include "../law/preempt.h"
#include "../queue/count.h"
#include "idle.h"

/* 2,048 pCPUs of full clusters, 128 of the smallest */
#define NEAR_MAX 32
/* difference in load for which a world leaves its LLC, in 256ths of its pCPUs */
#define LLC_MARGIN 64
#define PLACE_LATER (-2) /* in place of a pCPU: some are idle, but are not to be taken now */
/* a new VM, and a new world, have used less CPU time */
#define NEW_NS (100000 * US)
/* of place_llc, in place of a load: a VM's first world; one without caches; one that keeps them */
#define PLACE_FIRST (~0u)
#define PLACE_NEW (~0u - 1)
#define PLACE_SHORT (~0u - 2)

/* Whether a host task is placed at the pCPU of its waker, which is about to sleep (a pipe's
 * reader): it runs next there, with a warm cache, and no idle pCPU is woken. Not while a world
 * waits in the cluster: such a pair would keep its pCPU from picking another. A waker that does
 * not sleep delays it by a slice and a tick. */
INLINE bool place_at_waker(struct host *h, plat_task *t, const struct world *w, u32 waker)
{
	struct pcpu *p = plat_pcpu(h, waker);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (!c || w->vm != VM_SYSTEM || plat_read(p->current_vm) != VM_SYSTEM ||
	    !plat_read(p->current_world))
		return false;
	return !plat_read(c->queued) && !plat_local_length(h, waker) && plat_may_run(t, waker);
}

/* VM of a thread, where a core may be closed to it. */
INLINE u32 place_vm(struct host *h, plat_task *t)
{
	struct world *w = holder_on(h) ? plat_world_of(h, t) : NULL;

	return w ? w->vm : VM_SYSTEM;
}

/* Of these pCPUs of a cluster those where a world of `vm` does not wait for the core: where nothing
 * runs its holder must admit it (account/holder.h). */
RARE_SUBPROG u64 place_admitted(NONNULL(struct host *h), u32 cluster, u32 vm, u64 mask)
{
	struct cluster *c = plat_cluster(h, cluster);

	if (!c)
		return 0;
	plat_for(i, CLUSTER_PCPUS) {
		struct pcpu *p = mask >> i & 1 ? plat_pcpu(h, c->pcpu[i & 63]) : NULL;
		struct pcpu *core = p ? plat_pcpu(h, p->core_first) : NULL;

		if (core && !plat_read(p->current_world) &&
		    !holder_lets(holder_only(h, core, p, plat_read(core->holder)), vm))
			mask &= ~(1ull << i);
	}
	return mask;
}

/* Reserves a pCPU of a cluster: of a core that has idled since before `before`, unless that is 0;
 * less than 0: there is none, PLACE_LATER if some are idle. */
SUBPROG s32 place_in(NONNULL(struct host *h), u32 cluster, TRUSTED_TASK(t), u64 before)
{
	struct cluster *c = plat_cluster(h, cluster);
	u64 mask = c ? plat_read(c->idle) : 0;

	if (!mask || !home_has(home_mask(h, t), c->domain))
		return -1;
	if (before)
		mask = idle_whole(c, h->smt, mask);
	if (holder_on(h))
		mask = place_admitted(h, cluster, place_vm(h, t), mask);
	plat_for(i, CLUSTER_PCPUS) {
		u32 bit = mask ? plat_first_bit(mask) & 63 : 0;
		struct pcpu *q = mask ? plat_pcpu(h, c->pcpu[bit]) : NULL;
		struct pcpu *core = q ? plat_pcpu(h, q->core_first) : NULL;

		if (!core)
			break;
		mask &= mask - 1;
		if (before && (plat_read(core->core_awake) ||
			       (s64)(before - plat_read(core->core_idle_since_ns)) <= 0))
			continue;
		if (plat_may_run(t, q->id) && idle_reserve(c, bit))
			return (s32)q->id;
	}
	return PLACE_LATER;
}

/* A range of the entries of near, as a number: a verifier walks place_near once for all. */
INLINE u64 place_range(u32 from, u32 end)
{
	return (u64)end << 32 | from;
}

/* Reserves a pCPU of a cluster near `own`, of these entries; less than 0: it finds none,
 * PLACE_LATER if some are idle. */
SUBPROG s32 place_near(NONNULL(struct host *h), NONNULL(struct cluster *own), TRUSTED_TASK(t),
		       u64 before, u64 range)
{
	s32 found = -1;

	plat_for(i, NEAR_MAX) {
		u32 at = i + (u32)range, near = own->near[at & (CLUSTERS_MAX - 1)];
		struct cluster *c = at < range >> 32 ? plat_cluster(h, near) : NULL;
		s32 one;

		if (!c)
			break;
		one = plat_read(c->idle) ? place_in(h, near, t, before) : -1;
		if (one >= 0)
			return one;
		if (one == PLACE_LATER)
			found = one;
	}
	return found;
}

/* Reserves the best idle pCPU for a thread that last ran on `prev`; less than 0: there is none,
 * PLACE_LATER if some are idle near that. One that `stays` leaves its LLC only for cores that have
 * been idle for long. */
TEMPLATE s32 place_search(struct host *h, plat_task *t, u32 prev, bool stays)
{
	struct pcpu *p = plat_pcpu(h, prev);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	s32 found, near;
	struct world *w;
	u64 before;
	bool own;

	if (!c)
		return -1;
	own = plat_read(c->idle) >> (p->bit & 63) & 1 && plat_may_run(t, p->id) &&
	      home_has(home_mask(h, t), p->domain) && holder_admits(h, p->id, place_vm(h, t));
	if (own && idle_on_core(c, h->smt, plat_read(c->idle), p->bit) && idle_reserve(c, p->bit))
		return (s32)p->id;
	before = plat_now(h) + 1;
	w = own ? plat_world_of(h, t) : NULL;
	if (w && w->vm != VM_SYSTEM && w->last_pcpu == (s32)p->id)
		before -= plat_knobs(h)->spread_us * US;
	if (!with(WHOLE_CORE))
		before = 0;
	found = place_in(h, p->cluster, t, before);
	if (found < 0 && stays)
		found = place_near(h, c, t, before, place_range(0, c->nears_of_llc));
	if (stays && before)
		before -= plat_knobs(h)->spread_us * US;
	if (found < 0)
		found = place_near(h, c, t, before,
				   place_range(stays ? c->nears_of_llc : 0, c->nears));
	if (found >= 0 || h->smt == 1)
		return found;
	if (own && idle_reserve(c, p->bit))
		return (s32)p->id;
	near = found;
	found = place_in(h, p->cluster, t, 0);
	if (found < 0 && stays)
		found = place_near(h, c, t, 0, place_range(0, c->nears_of_llc));
	if (found < 0 && !stays && near == PLACE_LATER)
		found = place_near(h, c, t, 0, place_range(0, c->nears));
	return found >= 0 ? found : near;
}

/* Two calls: callers of the first are deep, and call chains of BPF share 512 bytes of stack. */
SUBPROG s32 place_idle(NONNULL(struct host *h), TRUSTED_TASK(t), u32 prev)
{
	return place_search(h, t, prev, false);
}

SUBPROG s32 place_stays(NONNULL(struct host *h), TRUSTED_TASK(t), u32 prev)
{
	return place_search(h, t, prev, true);
}

/* Load below which another LLC must have been for long for a world to leave its caches: by half of
 * LLC_MARGIN below that of its own LLC without it, as if it never slept. */
SUBPROG u32 place_leaves(NONNULL(struct host *h), NONNULL(struct world *w), u32 prev)
{
	u64 ran = w->time_ns[STATE_RUN];
	struct cluster *c;
	struct pcpu *p;
	u32 less;

	if (ran && ran - w->ran_before_ns <= plat_knobs(h)->spread_us * US)
		return PLACE_SHORT;
	p = ran ? plat_pcpu(h, prev) : NULL;
	c = p ? plat_cluster(h, p->cluster) : NULL;
	if (!c)
		return PLACE_NEW;
	less = LLC_MARGIN / 2 * 256 + 65536 / max_u64(c->pcpus, 1);
	return c->load > less ? c->load - less : 0;
}

/* Reserves a whole idle core of an LLC of the node that has less load than that of `prev` by
 * LLC_MARGIN, and has had less than `lasting`. PLACE_FIRST has no siblings to leave: a pCPU of the
 * LLC of the host that has the least load. -1 if there is none. */
SUBPROG s32 place_llc(NONNULL(struct host *h), TRUSTED_TASK(t), u32 prev, u32 lasting)
{
	bool first = lasting == PLACE_FIRST;
	struct pcpu *p = plat_pcpu(h, prev);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u32 margin = first ? 1 : LLC_MARGIN, least = c ? idle_load(c) : 0, best = 0;
	u64 home = home_mask(h, t);
	u32 nears;
	s32 found;

	if (!c || least < margin || !with(PLACE_LLC))
		return -1;
	least -= margin - 1;
	nears = first ? c->nears : c->nears_of_node;
	plat_for(i, NEAR_MAX) {
		u32 near = i < nears ? c->near[i & (CLUSTERS_MAX - 1)] : CLUSTERS_MAX;
		struct cluster *other = near < CLUSTERS_MAX ? plat_cluster(h, near) : NULL;
		u32 load;

		if (!other)
			break;
		if (!plat_read(other->idle) || other->llc == c->llc ||
		    other->load >= lasting || !home_has(home, other->domain))
			continue;
		load = idle_load(other);
		if (load < least) {
			least = load;
			best = near + 1;
		}
	}
	found = best ? place_in(h, best - 1, t, plat_now(h) + 1) : -1;
	return found < 0 && best && first ? place_in(h, best - 1, t, 0) : found;
}

/* Reserves an idle pCPU for a new world of a VM: the first of a new VM goes to the LLC of the least
 * load; the others look from that node on, where they share memory. -1 if none is idle. */
SUBPROG s32 place_new(NONNULL(struct host *h), TRUSTED_TASK(t), NONNULL(struct world *w),
		      NONNULL(struct vm *v), u32 prev)
{
	u32 first = plat_read(v->first_placed);
	bool begins = !first && w->used_ns < NEW_NS && plat_read(v->used_ns) < NEW_NS;
	struct pcpu *there = first ? plat_pcpu(h, first - 1) : NULL, *here = plat_pcpu(h, prev);
	s32 found;

	w->flags &= ~WORLD_NEW;
	if (there && here && there->node != here->node)
		prev = there->id;
	found = place_llc(h, t, prev, begins ? PLACE_FIRST : PLACE_NEW);
	if (found < 0)
		found = place_idle(h, t, prev);
	if (found >= 0 && begins)
		plat_cas(&v->first_placed, 0, (u32)found + 1);
	return found;
}

/* Reserves an idle pCPU for a waking world that is not new. One of a VM that wakes where it ran
 * last, for less than caches take to fill, stays, unless its home is elsewhere. */
INLINE s32 place_woken(struct host *h, plat_task *t, struct world *w, u32 prev)
{
	u32 lasting = place_leaves(h, w, prev);
	struct pcpu *p;
	s32 found = -1;

	if (lasting != PLACE_SHORT) {
		found = place_llc(h, t, prev, lasting);
	} else if (with(SHORT_IDLE) && w->vm != VM_SYSTEM && w->last_pcpu == (s32)prev &&
		   !(w->flags & WORLD_RESTRICTED)) {
		found = place_stays(h, t, prev);
		p = found == PLACE_LATER ? plat_pcpu(h, prev) : NULL;
		if (p && home_lets(w, p->domain))
			w->flags |= WORLD_STAYS;
		if (!p || w->flags & WORLD_STAYS)
			return found;
	}
	return found >= 0 ? found : place_idle(h, t, prev);
}

/* Bits of a cluster that the world may use; it is looked at each where `flags` has
 * WORLD_RESTRICTED. */
SUBPROG u64 place_allowed(NONNULL(struct host *h), u32 cluster, TRUSTED_TASK(t),
			  NONNULL(struct world *w), u32 flags)
{
	struct cluster *c = plat_cluster(h, cluster);
	u64 mask = 0, present = c ? c->present : 0;

	if (!c || !home_lets(w, c->domain))
		return 0;
	if (!(flags & WORLD_RESTRICTED))
		return present;
	plat_for(i, CLUSTER_PCPUS)
		if (present >> i & 1 && plat_may_run(t, c->pcpu[i & 63]))
			mask |= 1ull << i;
	return mask;
}

/* Bits of a cluster where a world may queue. */
INLINE u64 place_open(struct host *h, u32 cluster, plat_task *t, struct world *w, u64 kept)
{
	u64 mask = place_allowed(h, cluster, t, w, w->flags) & ~kept;

	return holder_on(h) ? place_admitted(h, cluster, w->vm, mask) : mask;
}

/* Cost of a pCPU for a candidate that must queue (law/goodness.h). */
SUBPROG s64 place_cost(NONNULL(struct host *h), u32 pcpu, NONNULL(struct candidate *cand))
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	bool sibling;
	u64 gain;

	if (!p)
		return GOODNESS_WORST;
	gain = preempt_gain(h, p, cand, plat_now(h));
	if (plat_read(p->wait_key) <= cand->deadline)
		gain = 0; /* another preempts there first: siblings that wake together spread */
	sibling = with(PLACE_SIBLING) && cand->vm && plat_read(p->current_world) &&
		  plat_read(p->current_vm) == cand->vm;
	return goodness_cost(plat_knobs(h), gain, count_waiting(p), sibling);
}

/* The search for a pCPU to queue at. */
struct search {
	struct candidate cand;
	/* pCPUs of the cluster that are left to look at */
	u64 mask;
	/* by how much another pCPU must be cheaper */
	s64 margin;
	s64 cost;
	/* the best so far */
	u32 pcpu;
	/* where to go on: of the pCPU it comes from, for a cluster's counter would be a hot line */
	u32 cursor;
};

/* Looks at `most` pCPUs of a cluster, from the cursor on. */
SUBPROG u32 place_probe(NONNULL(struct host *h), u32 cluster, u32 most, NONNULL(struct search *s))
{
	struct cluster *c = plat_cluster(h, cluster);

	if (!c || !c->pcpus)
		return 0;
	plat_for(i, PROBE_MAX) {
		u64 mask = s->mask, ahead;
		u32 from, bit, pcpu;
		s64 cost;

		if (!mask || i >= most)
			break;
		from = s->cursor++ % c->pcpus & 63;
		ahead = mask >> from << from;
		bit = plat_first_bit(ahead ? ahead : mask) & 63;
		s->mask = mask & ~(1ull << bit);
		pcpu = c->pcpu[bit];
		cost = place_cost(h, pcpu, &s->cand);
		if (cost + s->margin < s->cost) {
			s->cost = cost;
			s->pcpu = pcpu;
		}
	}
	return 0;
}

/* Any pCPU of the world's home, nearest to `prev` first; a home that has none for it is dropped. */
RARE_SUBPROG u32 place_home(NONNULL(struct host *h), TRUSTED_TASK(t), NONNULL(struct world *w),
			    u32 prev)
{
	struct pcpu *p = plat_pcpu(h, prev);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u32 near = p ? p->cluster : 0;

	if (!c || w->home == HOME_ANY)
		return plat_any_pcpu(h, t);
	plat_for(i, CLUSTERS_MAX) {
		struct cluster *at = plat_cluster(h, near);
		u64 mask = place_allowed(h, near, t, w, WORLD_RESTRICTED);

		if (at && mask) {
			u64 ahead = mask & ~0ull << (p->probe++ & 63);

			return at->pcpu[plat_first_bit(ahead ? ahead : mask) & 63];
		}
		if (i >= c->nears)
			break;
		near = c->near[i & (CLUSTERS_MAX - 1)];
	}
	trace_homed(h, w, HOME_ANY);
	return plat_any_pcpu(h, t);
}

/* Where place_busy begins for a world that ran last on `prev`: there, or in its home. A call of its
 * own, for call chains of BPF share 512 bytes of stack. */
SUBPROG u32 place_from(NONNULL(struct host *h), TRUSTED_TASK(t), NONNULL(struct world *w), u32 prev)
{
	struct pcpu *p = w->home != HOME_ANY ? plat_pcpu(h, prev) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (!c || (home_lets(w, p->domain) && idle_online(c, p->bit) && plat_may_run(t, prev)))
		return prev;
	return place_home(h, t, w, prev);
}

/* The pCPU to queue at when none is idle; `prev`, of place_from, is favoured by margins. One other
 * cluster is looked at too: else small clusters would each be fair for themselves only. */
SUBPROG u32 place_busy(NONNULL(struct host *h), TRUSTED_TASK(t), NONNULL(struct world *w),
		       u64 deadline, u32 prev)
{
	struct search s = {
		.cand = preempt_candidate(w, deadline),
		.pcpu = prev,
	};
	struct pcpu *p = plat_pcpu(h, prev);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL, *other;
	u32 near, nears;

	s.cand.chooses = 1;
	if (!c || !idle_online(c, p->bit) || !plat_may_run(t, prev)) {
		s.pcpu = plat_any_pcpu(h, t);
		p = plat_pcpu(h, s.pcpu);
		c = p ? plat_cluster(h, p->cluster) : NULL;
		if (w->home != HOME_ANY) /* of it no pCPU has been found: it may not migrate now */
			trace_homed(h, w, HOME_ANY);
	}
	if (!c || w->flags & WORLD_PCPU_KTHREAD || !with(PLACE_PROBE))
		return s.pcpu;
	s.cursor = p->probe++;
	nears = w->flags & WORLD_STAYS ? c->nears_of_llc
	      : w->home != HOME_ANY    ? c->nears_of_node
				       : c->nears;
	near = nears ? c->near[s.cursor % nears & (CLUSTERS_MAX - 1)] : CLUSTERS_MAX;
	s.mask = place_open(h, p->cluster, t, w, c->kept);
	s.cost = s.mask >> (p->bit & 63) & 1 ? place_cost(h, s.pcpu, &s.cand) : GOODNESS_WORST;
	s.mask &= ~(1ull << (p->bit & 63));
	if (w->vm != VM_SYSTEM && w->last_pcpu == (s32)s.pcpu) {
		s.margin = (s64)(plat_knobs(h)->quantum_us * US);
		s.cand.deadline += plat_knobs(h)->migrate_margin_us * US;
	}
	place_probe(h, p->cluster, PROBE_MAX, &s);
	other = plat_cluster(h, near);
	if (!other)
		return s.pcpu;
	s.mask = place_open(h, near, t, w, other->kept);
	s.margin += (s64)(plat_knobs(h)->migrate_margin_us * US);
	place_probe(h, near, PROBE_MAX / 2, &s);
	return s.pcpu;
}

/* Which pCPU is kicked for a world that was queued on `p`, and how; 0: none. Enqueue counts the
 * world and then reads idle bits, a pCPU sets its idle bit and then reads counts: one of both sees
 * the other. The kernel fills the queue a moment later; a pCPU that looked too early is kicked
 * again by housekeeping. */
INLINE u32 place_kick(struct host *h, plat_task *t, struct pcpu *p, u64 gain, u32 *kicked)
{
	struct cluster *c = plat_cluster(h, p->cluster);
	s32 found;

	if (c && (idle_reserve(c, p->bit) ||
		  (cores_granted(h, plat_knobs(h)) && idle_kept(c, p->bit))))
		return KICK_IDLE;
	if (gain) {
		p->preempts++;
		return KICK_PREEMPT;
	}
	found = c && plat_read(c->idle) ? place_in(h, p->cluster, t, 0) : -1;
	if (found < 0)
		return 0;
	*kicked = (u32)found;
	return KICK_IDLE;
}

#endif
