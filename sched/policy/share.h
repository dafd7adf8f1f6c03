/* Who is owed CPU time: virtual time of VMs, keys of worlds, slices.
 *
 * Promise	VMs that want CPU receive it in the ratio of their entitlements; sleepers lose nothing and hoard little
 * Law		vt += used / entitled; key = vt + committed + lead / 8; the smallest key runs next (VS51, P2)
 * Units	ns of virtual time: a VM that gets exactly its entitlement advances 1 ns per ns
 * Example	a (1 pCPU entitled) and b (7) on 8 pCPUs: a slice of 50 ms commits 50 ms to a but 7.1 ms to b,
 *		so b is picked seven times as often
 * Limits	a slice is committed when it starts and settled when it ends, so all pCPUs see it at once and a
 *		VM is never more than one slice a pCPU decision ahead; lag is paid back up to lag_bound;
 *		whoever waits longer than ready_bound runs next all the same, far below the kernel's watchdog
 * Weakness	entitlements below 1/1024 pCPU are treated as 1/1024
 */
#ifndef TANDEM_SHARE_H
#define TANDEM_SHARE_H

#include "../platform.h"

#define RATE_SHIFT 20
#define WEIGHT_MIN (1ull << 10)	/* 1/1024 pCPU: keeps inverse below 2^30, so that ns * inverse fits 64 bits */
#define V_START (1ull << 50)	/* virtual time of an empty host; keys may go below it without wrapping */
#define LEAD_MAX_NS 200000000ll	/* four quanta: beyond it siblings are not made equal any further */
#define SKEW_INVERSE_MAX (1ull << 34)	/* LEAD_MAX_NS * this fits 63 bits */
#define US 1000ull
#define URGENCY 4		/* four times what it is behind: a quantum's worth for a few ms */
#define RESCUE_NS 100000000ull	/* how often worlds that wait too long are looked for: a fiftieth of the shortest bound would do */
#define RATE_MAX (1ull << 30)	/* 1,024-fold: a few active VMs among very many idle ones */

_Static_assert((WEIGHT_MIN << 30) == (1ull << 40), "inverse = 2^40 / weight <= 2^30");
_Static_assert(LEAD_MAX_NS < (1ll << 28), "lead * skew_inverse < 2^62");

/* Virtual time that an active VM is served in so many us: plans count idle VMs too, so a few active
 * ones move faster than the clock, and every bound on virtual time must move with them. */
hot u64 share_span(const struct host *h, u64 us)
{
	return (us * US >> 10) * h->rate >> (RATE_SHIFT - 10); /* 2^35 ns at most: fits at any rate */
}

hot u64 share_virtual(const struct vm *v, u64 ns)
{
	return ns * v->inverse >> RATE_SHIFT; /* rounded down; ns is a slice, at most 2^30 */
}

/* How much more urgent than its virtual time says a VM is that is `behind` the host's, although it is entitled to all it
 * asks for, or to its reservation: it cannot catch up later, so it comes first now. */
hot u64 share_urgency(const struct host *h, const struct knobs *k, s64 behind)
{
	u64 most = share_span(h, k->lag_bound_us);

	if (behind <= 0 || !with(URGENCY))
		return 0;
	return (u64)behind * URGENCY < most ? (u64)behind * URGENCY : most;
}

/* Virtual time of a VM, slices under way included. */
hot u64 share_vm_key(const struct vm *v)
{
	return plat_read(v->vt_ns) + plat_read(v->committed_ns) - plat_read(v->urgent_ns);
}

/* What a world's lead over its siblings adds to its VM's virtual time: an eighth of what full
 * equality would ask for, so that siblings are drawn together without blurring the VM's own share. */
hot s64 share_lead(const struct vm *v, const struct world *w)
{
	s64 lead = (s64)(w->lead_ns - plat_read(v->progress_ns));

	if (w->vm == VM_SYSTEM || !with(LEAD))
		return 0;
	if (lead > v->lead_max_ns)
		lead = v->lead_max_ns;
	if (lead < -v->lead_max_ns)
		lead = -v->lead_max_ns;
	return lead * (s64)v->skew_inverse >> RATE_SHIFT;
}

/* The key of a VM's turn, if that is smaller: all its vCPUs run by the one with which the first of them began (policy/cosched.h). */
hot u64 share_turn(const struct vm *v, u64 key)
{
	u64 turn = plat_read(v->turn_key);

	return turn - 1 < key ? turn : key; /* 0 is none */
}

/* Key of a world now. */
hot u64 share_key(const struct vm *v, const struct world *w)
{
	return share_turn(v, share_vm_key(v)) + (u64)share_lead(v, w);
}

/* Key a world is queued with: no slices under way, so that it is a lower bound of the key it will have when it is looked at
 * (settled virtual time only grows); and not far ahead of the host's, for a new plan may take back what its VM has had too
 * much while it waits: beyond the bound only a 64th counts, which keeps the order of those who have had too much. */
hot u64 share_queue_key(const struct host *h, const struct knobs *k, const struct vm *v, const struct world *w)
{
	u64 key = share_turn(v, plat_read(v->vt_ns) - plat_read(v->urgent_ns)) + (u64)share_lead(v, w);
	u64 bound = share_span(h, k->lag_bound_us), most = plat_read(h->v_ns) + bound, more;

	if (key <= most || !with(KEY_DAMP))
		return key;
	more = (key - most) >> 6;
	return most + (more < bound ? more : bound);
}

/* Quantum of a world: shorter where the entitlement is so small that a whole quantum would be
 * more than a second of what it is served. */
hot u64 share_slice(const struct host *h, const struct knobs *k, const struct vm *v, const struct world *w)
{
	u64 served = (v->weight >> 10) * h->rate >> (RATE_SHIFT - 10), slice = served * 1000000000ull >> RATE_SHIFT;

	if (w->vm == VM_SYSTEM)
		return k->system_slice_us * US;
	if (slice > k->quantum_us * US || !with(SMALL_SLICE))
		slice = k->quantum_us * US;
	if (slice < k->slice_min_us * US)
		slice = k->slice_min_us * US;
	return slice;
}

/* Raises a VM's virtual time to at least `floor`: what it is owed beyond that is forgiven. */
hot void share_forgive(struct vm *v, u64 floor)
{
	u64 vt = plat_read(v->vt_ns);

	if (vt < floor)
		plat_cas(&v->vt_ns, vt, floor); /* a lost race means that it has just moved: next time */
}

/* A VM becomes active: its first world wakes. A turn from before it slept would let it pass everybody. */
hot void share_activate(struct host *h, const struct knobs *k, struct vm *v)
{
	u64 credit = share_span(h, k->wake_credit_us), urgent = plat_read(v->urgent_ns);

	v->turn_key = 0;
	v->stopped = 0;
	v->woke_ns = plat_now(h);
	v->woke_used_ns = plat_read(v->used_ns);
	if (with(WAKE_CREDIT))
		share_forgive(v, h->v_ns - credit);
	if (urgent > URGENCY * credit)
		v->urgent_ns = URGENCY * credit; /* what it was by all that has just been forgiven */
}

/* Keeps lag and, for host tasks, debt within bounds; called at every charge. VMs that compete within
 * a few pCPUs drift together against the host's virtual time: to cut each at the same bound would
 * make them equal, so the planner moves them, all by the same (crates/entitlement, active.rs). */
hot void share_bound(struct host *h, const struct knobs *k, struct vm *v, bool system)
{
	u64 vt = plat_read(v->vt_ns), bound = share_span(h, k->lag_bound_us);

	if (!(plat_read(v->flags) & VM_HELD) && with(LAG_CLAMP))
		share_forgive(v, h->v_ns - bound);
	if (system && vt > h->v_ns + bound && with(SYSTEM_CLAMP))
		plat_cas(&v->vt_ns, vt, h->v_ns + bound); /* host tasks that ran while no VM did owe nothing for it */
}

/* Gives a VM its weight. */
hot void share_weigh(const struct host *h, const struct knobs *k, struct vm *v, u64 weight)
{
	u32 vcpus = v->vcpus;
	u64 skew, most;

	if (weight < WEIGHT_MIN)
		weight = WEIGHT_MIN;
	/* A waiting world's lead falls by what its siblings run over their number: at 8 or fewer, by no more than its VM's
	 * virtual time grows, so that a queued key stays a lower bound. */
	skew = ((u64)(vcpus < 1 ? 1 : vcpus < 8 ? vcpus : 8) << 37) / weight;
	v->weight = weight;
	v->inverse = (1ull << 40) / weight;
	v->skew_inverse = skew < SKEW_INVERSE_MAX ? skew : SKEW_INVERSE_MAX;
	/* One that burns beside siblings that mostly sleep leads for ever; its VM makes up for that by being behind, for which there is
	 * room up to the bound on lag. */
	most = (share_span(h, k->lag_bound_us) << (RATE_SHIFT - 1)) / v->skew_inverse;
	v->lead_max_ns = most < LEAD_MAX_NS ? (s64)most : LEAD_MAX_NS;
}

/* Takes over what user space says of a VM; `shift` is added to its virtual time. */
hot void share_weight(struct host *h, struct vm *v, u64 weight, u32 vcpus, u32 shares, bool held, s64 shift)
{
	if (!(v->flags & VM_LIVE)) {
		v->vt_ns = h->v_ns;
		v->turn_key = 0;
		v->stopped = 0;
	}
	v->vcpus = vcpus;
	v->shares = shares;
	share_weigh(h, plat_knobs(h), v, weight);
	if (shift)
		plat_add(&v->vt_ns, (u64)shift);
	v->flags = held ? VM_LIVE | VM_HELD : VM_LIVE;
}

#endif
