/* Gang slices: the vCPUs of a VM run together for a slice, by one deadline.
 *
 * Promise	vCPUs that wait for each other (barriers) find each other running (VS51 "Relaxed
 *		Co-Scheduling": "it is still a best effort")
 * Law		the first vCPU to run begins the gang slice: the VM's deadline then is the deadline
 *		of all its vCPUs until the slice ends, for all at once. Without it VMs would
 *		alternate vCPU by vCPU, for each slice that starts delays the VM's next deadline
 *		READY vCPUs of the gang preempt worlds of later, incomplete gangs and lone worlds of
 *		later deadlines (tick/gang.h); if its vCPUs spin for each other, lone worlds that
 *		are earlier by a quantum too
 * Units	length in ns of CPU time of one vCPU: what the VM is entitled to in a quantum,
 *		divided by its vCPUs that want to run
 * Example	a VM of 4 vCPUs entitled to 2 pCPUs, quantum 50 ms: gang slices of 25 ms
 * Limits	GANG_TRIES attempts to preempt in quick succession, then one every cosched_poll_us
 */
#ifndef TANDEM_GANG_H
#define TANDEM_GANG_H

#include "preempt.h"
#include "skew.h"

/* attempts to place the rest of a gang that need not wait for a full look */
#define GANG_TRIES 4
/* for so long a VM counts as one whose vCPUs wait for each other */
#define GANG_SPUN_NS SEC_NS

/* Length of a gang slice. */
INLINE u64 gang_slice(const struct knobs *k, const struct vm *v, u32 siblings)
{
	u64 ns = (v->weight * k->quantum_us * US >> RATE_SHIFT) / (siblings ? siblings : 1);

	return max_u64(ns, k->slice_min_us * US);
}

/* Whether the gang slice of a VM is over; false where none is under way. */
INLINE bool gang_over(const struct vm *v, u64 now)
{
	return plat_read(v->gang_key) && now >= plat_read(v->gang_end_ns);
}

/* Whether the rest of a gang is to be placed before the next full look. */
INLINE bool gang_incomplete(const struct vm *v)
{
	return v->waiting && v->gang_tries < GANG_TRIES;
}

/* Whether the vCPUs of a VM wait for each other: one has lately left its guest because it spun
 * while a sibling was READY. */
INLINE bool gang_spins(const struct vm *v, u64 now)
{
	u64 spun = plat_read(v->spun_ns);

	return spun && now < spun + GANG_SPUN_NS;
}

/* Whether the lone world that runs on `p` makes room for a gang of VM `vm` with `deadline`: its own
 * is later; or, if that VM's vCPUs wait for each other, earlier by a quantum of its VM at most. It
 * can make up for that, if it gets less than it asks for and no plan moves it, and has not just
 * woken. To one with a request of 0 the gang's deadline grows with its time. Where VMs are pinned
 * to few pCPUs, one of them that waits has the pCPU next, if it is earlier. */
SUBPROG bool gang_before_lone(NONNULL(struct host *h), NONNULL(struct pcpu *p), u32 vm,
			      u64 deadline, u64 now)
{
	const struct knobs *k = plat_knobs(h);
	struct world *w = plat_world(h, plat_read(p->current_world));
	struct vm *v = plat_vm(h, vm), *lone = w ? plat_vm(h, w->vm) : NULL;
	u64 current = preempt_current(h, p, now), since = plat_read(p->current_since_ns), ran;

	deadline = preempt_to_due(h, vm, p->current_vm, deadline, now);
	if (lone && lone->flags & VM_HELD && plat_read(p->waits_vm) &&
	    plat_read(p->wait_key) + k->quantum_us * US < deadline)
		return false;
	if (current > deadline)
		return true;
	if (!w || !v || !lone || !with(GANG_LONE) || !gang_spins(v, now) ||
	    k->core_sharing != SHARING_ANY || skew_strict(k) ||
	    (lone->flags & (VM_CONTENDED | VM_HELD)) != VM_CONTENDED ||
	    !plat_read(lone->request_ns))
		return false;
	ran = w->time_ns[STATE_RUN] - w->ran_before_ns + (now > since ? now - since : 0);
	return ran >= k->slice_min_us * US &&
	       current + share_virtual(lone, k->quantum_us * US) > deadline;
}

/* Whether the world that runs on `p` is preempted by a gang of VM `vm` with `deadline`: a world of
 * an incomplete gang with a later one, or a lone world; never a VM that runs inside its
 * reservation. So one gang after the other becomes complete. */
INLINE bool gang_preempts(struct host *h, struct pcpu *p, u32 vm, u64 deadline, u64 now)
{
	u32 runs = plat_read(p->current_vm);
	struct vm *v = plat_read(p->current_world) && runs != VM_SYSTEM && runs != vm
			       ? plat_vm(h, runs)
			       : NULL;
	u64 gang = v ? plat_read(v->gang_key) : 0;

	if (!v || v->flags & VM_RESERVED)
		return false;
	if (gang && plat_read(v->runnable) > 1 && !skew_strict(plat_knobs(h)))
		return v->waiting && gang > deadline;
	return gang_before_lone(h, p, vm, deadline, now);
}

#endif
