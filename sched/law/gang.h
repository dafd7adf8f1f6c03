/* Gang slices: the vCPUs of a VM run together for a slice, by one deadline.
 *
 * Promise	vCPUs that wait for each other (barriers) find each other running (VS51 "Relaxed
 *		Co-Scheduling": "it is still a best effort")
 * Law		the first vCPU to run begins the gang slice: the VM's deadline then is the deadline
 *		of all its vCPUs until the slice ends, for all at once. Without it VMs would
 *		alternate vCPU by vCPU, for each slice that starts delays the VM's next deadline
 * Units	length in ns of CPU time of one vCPU: what the VM is entitled to in a quantum,
 *		divided by its vCPUs that want to run
 * Example	a VM of 4 vCPUs entitled to 2 pCPUs, quantum 50 ms: gang slices of 25 ms
 * Limits	READY vCPUs of the gang preempt worlds of later, incomplete gangs (tick/gang.h):
 *		GANG_TRIES times in quick succession, then every cosched_poll_us
 */
#ifndef TANDEM_GANG_H
#define TANDEM_GANG_H

#include "preempt.h"
#include "skew.h"

/* attempts to place the rest of a gang that need not wait for a full look */
#define GANG_TRIES 4

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

/* Whether the world that runs on `p` is preempted by a gang of VM `vm` with `deadline`: a world of
 * an incomplete gang with a later one, or a lone world of a later deadline; never a VM that runs
 * inside its reservation. So one gang after the other becomes complete. */
INLINE bool gang_preempts(struct host *h, const struct pcpu *p, u32 vm, u64 deadline, u64 now)
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
	return preempt_current(h, p, now) > deadline;
}

#endif
