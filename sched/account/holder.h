/* The VM that holds a core, where cores are not shared between VMs (knob core_sharing).
 *
 * Promise	two threads of a core run worlds of two VMs (core_sharing = vm), or two worlds of
 *		VMs at all (none), for no longer than a kick takes (ESXi: side-channel-aware
 *		scheduler, version 2 and version 1)
 * Law		core.holder = VM << 8 | its threads, which hold the core from when a world of the VM
 *		begins to run there until it stops; one compare and swap tells that no other VM
 *		holds it. core.holder_next: the one thread that may take the core once it is free,
 *		as long as a world waits there
 * Limits	host tasks hold nothing: what a vCPU learns of the host that it exits to is not
 *		guarded here. Cores of up to 8 threads
 */
#ifndef TANDEM_HOLDER_H
#define TANDEM_HOLDER_H

#include "../law/units.h"
#include "../tell/trace.h"

/* in place of a VM: worlds of all VMs; admitted only where no other thread holds the core */
#define VM_ANY (~0u)
#define HOLDER_THREADS 8
/* A compare and swap fails only when another thread of the core has changed the word. */
#define HOLDER_TRIES 8
/* longer than a pCPU takes between two worlds */
#define HOLDER_PICK_NS (100 * US)

INLINE bool holder_on(struct host *h)
{
	return h->smt > 1 && plat_knobs(h)->core_sharing != SHARING_ANY;
}

/* Bit of a thread in its core's word. */
INLINE u64 holder_bit(const struct pcpu *core, const struct pcpu *p)
{
	return 1ull << ((p->bit - core->bit) & (HOLDER_THREADS - 1));
}

/* Threads besides `p` that hold its core, by the word read. */
INLINE u64 holder_others(const struct pcpu *core, const struct pcpu *p, u64 holder)
{
	return holder & ((1ull << HOLDER_THREADS) - 1) & ~holder_bit(core, p);
}

/* Whether a pCPU is not about to run a VM's world: it runs a host task, or a higher scheduling
 * class has taken it, for it has been between two worlds for longer than the kernel takes. */
INLINE bool holder_taken(struct host *h, const struct pcpu *p)
{
	u64 left = plat_read(p->left_ns);

	if (plat_read(p->current_world))
		return plat_read(p->current_vm) == VM_SYSTEM;
	return left && plat_now(h) > left + HOLDER_PICK_NS;
}

/* The thread that is to take this core next + 1; 0 if none is, it cannot, or nothing waits there
 * any more. */
INLINE u32 holder_next(struct host *h, const struct pcpu *core)
{
	u32 next = plat_read(core->holder_next);
	struct pcpu *p = next ? plat_pcpu(h, next - 1) : NULL;

	return p && plat_read(p->waits_vm) && !holder_taken(h, p) ? next : 0;
}

/* The VM of which worlds may begin to run on `p`, by the word read; VM_SYSTEM: of none. */
INLINE u32 holder_only(struct host *h, const struct pcpu *core, const struct pcpu *p, u64 holder)
{
	u64 others = holder_others(core, p, holder);
	u32 next = holder_next(h, core);

	if (next)
		return next == p->id + 1 && !others ? VM_ANY : VM_SYSTEM;
	if (!others)
		return VM_ANY;
	return plat_knobs(h)->core_sharing == SHARING_VM ? (u32)(holder >> 8) : VM_SYSTEM;
}

RARE_SUBPROG u32 holder_only_there(NONNULL(struct host *h), u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;

	return core ? holder_only(h, core, p, plat_read(core->holder)) : VM_ANY;
}

/* The VM of which worlds may begin to run on a pCPU now; host tasks always may. */
INLINE u32 holder_of(struct host *h, u32 pcpu)
{
	return holder_on(h) ? holder_only_there(h, pcpu) : VM_ANY;
}

/* Whether a world of `vm` may begin to run where worlds of `only` may. */
INLINE bool holder_lets(u32 only, u32 vm)
{
	return only == VM_ANY || vm == VM_SYSTEM || only == vm;
}

/* Whether a world of `vm` may begin to run on a pCPU now. */
INLINE bool holder_admits(struct host *h, u32 pcpu, u32 vm)
{
	return vm == VM_SYSTEM || holder_lets(holder_of(h, pcpu), vm);
}

/* A world of `vm` begins to run on a pCPU, which holds the core from now on; false: it may not. */
RARE_SUBPROG bool holder_take(NONNULL(struct host *h), u32 pcpu, u32 vm)
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	bool took = false;

	if (!core)
		return true;
	plat_for(i, HOLDER_TRIES) {
		u64 was = plat_read(core->holder), with_it;

		if (!holder_lets(holder_only(h, core, p, was), vm))
			break;
		with_it = (u64)vm << 8 | holder_others(core, p, was) | holder_bit(core, p);
		took = was == with_it || plat_cas(&core->holder, was, with_it);
		if (took)
			break;
	}
	if (took)
		plat_cas(&core->holder_next, p->id + 1, 0);
	return took;
}

/* Whether a world waits on some pCPU. */
SUBPROG bool holder_queued(NONNULL(struct host *h))
{
	u64 queued = 0;

	plat_for(i, CLUSTERS_MAX) {
		struct cluster *c = i < h->clusters && !queued ? plat_cluster(h, i) : NULL;

		if (!c)
			break;
		queued = plat_read(c->queued);
	}
	return queued;
}

/* Wakes the other idle threads of a core that has become free, if any world waits: it may be one
 * that may not use the thread that has left. */
RARE_SUBPROG u32 holder_freed(NONNULL(struct host *h), u32 pcpu, u32 first)
{
	struct pcpu *core = plat_pcpu(h, first);
	struct cluster *c = core ? plat_cluster(h, core->cluster) : NULL;

	if (!core || !c || !holder_queued(h))
		return 0;
	plat_for(i, HOLDER_THREADS) {
		struct pcpu *q = plat_pcpu(h, c->pcpu[(core->bit + i) & 63]);

		if (i >= h->smt || !q || q->core_first != first)
			break;
		if (q->id == pcpu || plat_read(q->current_world))
			continue;
		trace_kick(h, q->id, KICK_IDLE, WHY_UNKNOWN);
	}
	return 0;
}

/* How a pCPU ceases to hold its core: its world stops, and another may follow; it idles, or a
 * higher scheduling class takes it; it runs a host task. */
enum holder_leaves { HOLDER_STOPS, HOLDER_IDLES, HOLDER_SERVES };

/* A pCPU no longer holds its core. If its world has only stopped, no other thread takes the core
 * before this one has chosen. */
RARE_SUBPROG u32 holder_leave(NONNULL(struct host *h), u32 pcpu, u32 leaves)
{
	struct pcpu *p = plat_pcpu(h, pcpu), *core = p ? plat_pcpu(h, p->core_first) : NULL;
	bool frees = false;

	if (!core)
		return 0;
	plat_for(i, HOLDER_TRIES) {
		u64 was = plat_read(core->holder), without = was & ~holder_bit(core, p);

		if (was == without)
			break;
		if (!holder_others(core, p, was))
			without = 0;
		frees = plat_cas(&core->holder, was, without);
		if (frees)
			break;
	}
	if (holder_others(core, p, plat_read(core->holder))) {
		if (leaves == HOLDER_SERVES && plat_cas(&core->holder_next, p->id + 1, 0))
			holder_freed(h, pcpu, core->id); /* those that made room for it */
		return 0;
	}
	if (leaves == HOLDER_STOPS && plat_cas(&core->holder_next, 0, p->id + 1))
		return 0;
	if (leaves != HOLDER_STOPS && plat_cas(&core->holder_next, p->id + 1, 0))
		frees = true;
	if (frees)
		holder_freed(h, pcpu, core->id);
	return 0;
}

#endif
