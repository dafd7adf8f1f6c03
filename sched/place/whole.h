/* Whole cores for worlds that have lost too much to the other threads of theirs.
 *
 * Promise	unfairness that comes from sharing a core is bounded: a world that is entitled to
 *		more than a shared core gives, and is behind by whole_core_us, has its core alone
 *		until it has half of it back (VS51 "Policy on Hyper-Threading", H3; ESXi:
 *		HTWholeCoreThreshold)
 * Law		a world is behind by its part of its VM's entitlement while it wants to run, less
 *		what it is charged; that fades as it sleeps. What a world on another thread of the
 *		core is ahead counts as well: it is what that one has had of this one. While a
 *		world has its core, the other threads run host tasks only: they are kept
 * Units	ns of CPU time
 * Example	two VMs of 2:1 shares on one core, shared_charge 625: the plan gives 0.769 and
 *		0.385. While both run the first falls behind by 144 ms a second and the second gets
 *		ahead by 240: after 2.1 s the first runs alone until these are 400 ms together.
 *		From then on both alternate
 * Limits	decided when its quantum ends. What a world is due for a wait counts when it runs
 *		again: a grant may outlast the half. A world that may run on a kept thread alone
 *		ends this for a quantum. Cores of 2, 3, 4 or 8 threads
 */
#ifndef TANDEM_WHOLE_H
#define TANDEM_WHOLE_H

#include "../law/cores.h"
#include "pick.h"

/* The other threads of a pCPU's core. */
INLINE u64 whole_others(const struct host *h, const struct cluster *c, u32 bit)
{
	u32 threads = idle_core(h->smt)->threads, at = bit & 63;
	u64 all = (1ull << threads) - 1, own = 1ull << at;

	return all << (at - at % threads) & c->present & ~own;
}

/* Kicks the pCPUs of `mask`. */
SUBPROG u32 whole_kick(NONNULL(struct host *h), NONNULL(struct cluster *c), u64 mask, u32 how)
{
	plat_for(i, 8) {
		u32 bit = mask ? plat_first_bit(mask) & 63 : 0;

		if (!mask)
			break;
		mask &= mask - 1;
		trace_kick(h, c->pcpu[bit], how,
			   how == KICK_PREEMPT ? WHY_PREEMPTED : WHY_UNKNOWN);
	}
	return 0;
}

/* The core of a pCPU is for all again. */
RARE_SUBPROG u32 whole_end(NONNULL(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 mask;

	if (!core || !c)
		return 0;
	mask = (whole_others(h, c, p->bit) | 1ull << (p->bit & 63)) & plat_read(c->kept);
	plat_fetch_and(&c->kept, ~mask);
	core->whole = WORLD_NONE;
	whole_kick(h, c, mask, KICK_IDLE);
	return 0;
}

/* Whether the world that has this core runs there, or waits and ran there last. */
INLINE bool whole_holds(struct host *h, const struct pcpu *p, const struct pcpu *core)
{
	u32 whole = plat_read(core->whole);
	struct world *w = whole ? plat_world(h, whole) : NULL;
	struct pcpu *q = w && w->last_pcpu >= 0 ? plat_pcpu(h, (u32)w->last_pcpu) : NULL;

	return q && q != p && (w->state == STATE_RUN || w->state == STATE_READY) &&
	       q->core_first == p->core_first;
}

/* In housekeeping: a thread is not kept for a world that runs elsewhere. */
RARE_SUBPROG u32 whole_check(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	struct cluster *c = plat_cluster(h, p->cluster);
	struct pcpu *core = c && idle_kept(c, p->bit) ? plat_pcpu(h, p->core_first) : NULL;

	if (core && !whole_holds(h, p, core))
		whole_end(h, p->id);
	return 0;
}

/* Whether a world waits that may run on one of these threads alone: others would have been taken
 * elsewhere. */
SUBPROG bool whole_waits(NONNULL(struct host *h), NONNULL(struct cluster *c), u64 mask)
{
	bool waits = false;

	plat_for(i, 8) {
		struct pcpu *q = mask ? plat_pcpu(h, c->pcpu[plat_first_bit(mask) & 63]) : NULL;

		if (!q)
			break;
		mask &= mask - 1;
		waits |= plat_read(q->waits_vm) > 0;
	}
	return waits;
}

/* How far this world is ahead of what its VM is entitled to for it. */
INLINE s64 whole_ahead(struct host *h, u32 world)
{
	struct world *w = world ? plat_world(h, world) : NULL;
	s64 behind = w ? plat_read(w->behind_ns) : 0;

	return behind < 0 ? -behind : 0;
}

/* Of the worlds on these threads the one that is ahead most; 0 if none is. */
SUBPROG u32 whole_most(NONNULL(struct host *h), NONNULL(struct cluster *c), u64 mask)
{
	u32 found = WORLD_NONE;

	plat_for(i, 8) {
		struct pcpu *q = mask ? plat_pcpu(h, c->pcpu[plat_first_bit(mask) & 63]) : NULL;
		u32 runs = q ? plat_read(q->current_world) : WORLD_NONE;

		if (!q)
			break;
		mask &= mask - 1;
		if (whole_ahead(h, runs) > whole_ahead(h, found))
			found = runs;
	}
	return found;
}

/* The running world goes on: its core is its own from now on, or no longer. */
RARE_SUBPROG u32 whole_decide(NONNULL(struct host *h), u32 pcpu, NONNULL(struct world *w))
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	struct vm *v = plat_vm(h, w->vm);
	u64 bound = plat_knobs(h)->whole_core_us, others;
	u32 over;
	bool keeps;

	if (!core || !c || !v || !with(WHOLE_GRANT))
		return 0;
	others = whole_others(h, c, p->bit);
	over = w->whole_over ? w->whole_over : whole_most(h, c, others);
	if (w->whole_over)
		bound /= 2;
	keeps = cores_beyond_shared(h, plat_knobs(h), plat_read(v->each)) &&
		w->behind_ns + whole_ahead(h, over) >= (s64)(bound * US);
	w->whole_over = !keeps ? 0 : over ? over : w->id;
	if (plat_read(core->whole) == w->id) {
		if (!keeps || whole_waits(h, c, others))
			whole_end(h, pcpu);
	} else if (keeps && others && plat_cas(&core->whole, WORLD_NONE, w->id)) {
		w->whole_on = core->id + 1;
		plat_or(&c->kept, others);
		plat_fetch_and(&c->idle, ~others);
		whole_kick(h, c, others, KICK_PREEMPT);
	}
	return 0;
}

INLINE void whole_goes_on(struct host *h, struct pcpu *p, struct world *w)
{
	if (cores_granted(h, plat_knobs(h)))
		whole_decide(h, p->id, w);
}

/* A world runs: that may end what another was given here, or it itself elsewhere. A helper, which
 * runs for microseconds in place of the world that has the core, does not. */
RARE_SUBPROG u32 whole_ran(NONNULL(struct host *h), u32 first, NONNULL(struct world *w))
{
	struct pcpu *core = plat_pcpu(h, first);
	struct pcpu *other = w->whole_on ? plat_pcpu(h, w->whole_on - 1) : NULL;

	if (other && other->id != first) {
		w->whole_on = 0;
		if (plat_read(other->whole) == w->id)
			whole_end(h, other->id);
	}
	if (core && plat_read(core->whole) && core->whole != w->id && w->vm != VM_SYSTEM &&
	    skew_is_vcpu(w))
		whole_end(h, first);
	return 0;
}

INLINE void whole_runs(struct host *h, const struct pcpu *p, struct world *w)
{
	if (cores_granted(h, plat_knobs(h)))
		whole_ran(h, p->core_first, w);
}

/* A pCPU idles. */
RARE_SUBPROG u32 whole_idled(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	struct pcpu *core = plat_pcpu(h, p->core_first);
	struct cluster *c = plat_cluster(h, p->cluster);

	if (core && c && plat_read(core->whole) && !idle_kept(c, p->bit))
		whole_end(h, p->id);
	return 0;
}

INLINE void whole_idles(struct host *h, struct pcpu *p)
{
	if (cores_granted(h, plat_knobs(h)))
		whole_idled(h, p);
}

/* Whether a world that stops here, or wakes, is to wait elsewhere. */
INLINE bool whole_is_kept(struct host *h, u32 pcpu)
{
	struct pcpu *p = cores_granted(h, plat_knobs(h)) ? plat_pcpu(h, pcpu) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	return c && idle_kept(c, p->bit);
}

/* A pCPU is kept for another thread's world, unless that has gone: it runs host tasks only. */
RARE_SUBPROG bool whole_serve(NONNULL(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	struct pick task = {};

	if (!core)
		return false;
	if (!whole_holds(h, p, core)) {
		whole_end(h, pcpu);
		return false;
	}
	if (plat_read(p->waits_system)) {
		ready_best(h, QUEUE_SYSTEM(pcpu), pcpu, KEY_NONE, &task);
		if (task.world && ready_take(h, QUEUE_SYSTEM(pcpu), task.world))
			return true;
	}
	if (trace_on(h) && !plat_read(p->current_world))
		trace_idle(h, p, IDLES_KEPT);
	return true;
}

/* Whether this pCPU is kept: then the running world leaves it. */
INLINE bool whole_keeps(struct host *h, struct pcpu *p, struct cluster *c, plat_task *prev)
{
	if (!cores_granted(h, plat_knobs(h)) || !idle_kept(c, p->bit) || !whole_serve(h, p->id))
		return false;
	if (prev)
		plat_set_slice(prev, 0); /* the kernel hands it to enqueue */
	return true;
}

#endif
