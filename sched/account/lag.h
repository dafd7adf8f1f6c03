/* Bounds on lag, and weights of VMs.
 *
 * Promise	positive lag, the CPU time by which a VM is behind its entitlement, is bounded: a
 *		sleeper saves up wake_credit_us at most, and so does a VM of which one vCPU wakes
 *		while no other waits; a busy VM the longest of lag_bound_us, a round in which all
 *		worlds that want to run have a quantum, and what two quanta of CPU time are worth
 *		to it
 * Law		vt = max(vt, v - bound)
 * Units	ns of virtual time
 * Limits	negative lag is not bounded; a wait is (ready_bound_us). VMs that compete within a
 *		few pCPUs drift together against the host's virtual time: one clamp for each would
 *		make them equal, so the planner moves them, all by the same
 *		(crates/entitlement/src/active.rs)
 */
#ifndef TANDEM_LAG_H
#define TANDEM_LAG_H

#include "../law/cores.h"
#include "../law/share.h"
#include "../law/skew.h"

/* longest time that a VM's own quanta count for: 18 minutes */
#define ROUND_MAX (1ull << 40)

/* The one clamp on positive lag: `bound` of virtual time. A lost race means
 * that virtual time has just moved: the next charge clamps again. */
INLINE void lag_clamp(struct host *h, struct vm *v, u64 bound)
{
	u64 vt = plat_read(v->vt_ns), least = h->v_ns - bound;

	if (vt < least)
		plat_cas(&v->vt_ns, vt, least);
	plat_assert_alone(h, plat_read(v->vt_ns) >= least);
}

/* Bound on positive lag of a busy VM, in virtual time. What it waits in turn is not lost: all
 * worlds that want to run may have a quantum before it, and after a quantum it waits for as long as
 * that is worth (EEVDF, too, bounds lag by two slices of CPU time). */
INLINE u64 lag_bound(const struct host *h, const struct knobs *k, const struct vm *v)
{
	return max_u64(k->lag_bound_us * US, max_u64(h->round_ns, v->round_ns));
}

/* Bound on positive lag on a host of shared cores, in virtual time. There a VM that gets less than
 * it asks for falls behind by more, for place/whole.h to see it, and while it gets all it keeps
 * that: it does not fall behind any further. */
RARE_SUBPROG u64 lag_bound_shared(NONNULL(struct host *h), NONNULL(struct vm *v))
{
	const struct knobs *k = plat_knobs(h);
	u64 least = lag_bound(h, k, v), most;
	s64 lag = (s64)(h->v_ns - plat_read(v->vt_ns));

	most = plat_read(v->flags) & VM_CONTENDED
		       ? least + k->whole_core_us * US
		       : max_u64(least, v->lag_most_ns);
	v->lag_most_ns = lag < (s64)least ? least : min_u64((u64)lag, most);
	return v->lag_most_ns;
}

/* At every charge. */
INLINE void lag_charged(struct host *h, const struct knobs *k, struct vm *v)
{
	if (plat_read(v->flags) & VM_HELD || !with(LAG_CLAMP))
		return;
	lag_clamp(h, v, cores_granted(h, k) ? lag_bound_shared(h, v) : lag_bound(h, k, v));
}

/* A VM becomes active: its first world wakes. A gang slice from before its sleep would put it
 * before all others. */
INLINE void lag_activated(struct host *h, const struct knobs *k, struct vm *v)
{
	plat_assert_alone(h, !plat_read(v->committed_ns));
	v->gang_key = 0;
	v->stopped = 0;
	v->woke_ns = plat_now(h);
	v->woke_used_ns = plat_read(v->used_ns);
	if (with(WAKE_CREDIT))
		lag_clamp(h, v, k->wake_credit_us * US);
}

/* A vCPU wakes beside siblings of which none waited at the last look: the VM has got all that it
 * wanted. What it did not want is no lag, or it would have all pCPUs for as long later on. Slices
 * under way are not charged yet: it is not taken for behind by these. */
INLINE void lag_kept(struct host *h, const struct knobs *k, struct vm *v)
{
	if (v->indices < 2 || v->waiting || plat_read(v->costopped) ||
	    k->cosched == COSCHED_OFF)
		return; /* of others none is counted at a look */
	if (with(LAG_KEPT))
		lag_clamp(h, v, k->wake_credit_us * US + plat_read(v->committed_ns));
}

/* A world wakes, the first of its VM that wants to run or not. */
INLINE void lag_woke(struct host *h, const struct knobs *k, struct vm *v, bool first)
{
	if (first)
		lag_activated(h, k, v);
	else
		lag_kept(h, k, v);
}

/* Sets a VM's weight, and what follows from it. A waiting world's offset falls by the run time of
 * its siblings over their number: with the number capped at 8, by no more than its VM's virtual
 * time grows, so a queued deadline stays a lower bound. The offset is capped at half the bound on
 * lag: the VM's own lag must be able to make up for a permanent offset. */
INLINE void lag_weigh(struct host *h, const struct knobs *k, struct vm *v, u64 weight)
{
	u64 vcpus = v->vcpus < 1 ? 1 : min_u64(v->vcpus, 8), most;

	weight = max_u64(weight, WEIGHT_MIN);
	v->weight = weight;
	v->inverse = (1ull << 40) / weight;
	v->offset_inverse = min_u64((vcpus << 37) / weight, OFFSET_INVERSE_MAX);
	v->round_ns = min_u64((2 * k->quantum_us * US << RATE_SHIFT) / weight, ROUND_MAX);
	most = (k->lag_bound_us * US << (RATE_SHIFT - 1)) / v->offset_inverse;
	v->offset_max_ns = most < OFFSET_MAX_NS ? (s64)most : OFFSET_MAX_NS;
	plat_assert(h, v->inverse <= 1ull << 30 && v->offset_inverse <= OFFSET_INVERSE_MAX);
}

/* Lag is CPU time: at another weight it is another span of virtual time. */
INLINE void lag_rescale(struct host *h, struct vm *v, u64 before, u64 weight)
{
	s64 ahead = (s64)(plat_read(v->vt_ns) - h->v_ns);
	u64 apart = (u64)(ahead < 0 ? -ahead : ahead), new;

	if (!with(RESCALE) || before < WEIGHT_MIN || weight < WEIGHT_MIN)
		return;
	/* A VM that started with a tiny weight may be hours of virtual time ahead: 2^22 us * 2^30
	 * fits, and so does 2^42 ns. */
	new = apart >> 32 ? (apart >> 10) * before / weight << 10 : apart *before / weight;
	plat_assert(h, weight < before || new <= apart);
	plat_add(&v->vt_ns, ahead < 0 ? apart - new : new - apart);
}

/* Takes over user space's word on a VM; `shift` is added to its virtual time. Its lag is rescaled
 * where its shares change, and not at each plan: that moves VMs that are held. One that is farther
 * ahead than a second has had a tiny weight for a moment, and would wait that off. */
INLINE void lag_set_weight(struct host *h, struct vm *v, u64 weight, u32 vcpus, u32 shares,
			   bool held, s64 shift)
{
	if (!(v->flags & VM_LIVE)) {
		v->vt_ns = h->v_ns;
		v->request_ns = plat_knobs(h)->quantum_us * US;
		v->gang_key = 0;
		v->spun_ns = 0;
		v->stopped = 0;
		v->first_placed = 0;
	} else if ((v->shares != shares) | ((s64)(plat_read(v->vt_ns) - h->v_ns) > (s64)SEC_NS)) {
		lag_rescale(h, v, v->weight, max_u64(weight, WEIGHT_MIN));
	}
	v->vcpus = vcpus;
	v->shares = shares;
	lag_weigh(h, plat_knobs(h), v, weight);
	if (shift)
		plat_add(&v->vt_ns, (u64)shift);
	v->flags = held ? VM_LIVE | VM_HELD : VM_LIVE;
}

#endif
