/* Communication: the VMs whose worlds wake a VM's worlds, and how often.
 *
 * Promise	a VM that has more than 1/VM_TALKS of these wake-ups has a slot, which counts too
 *		much by 1/VM_TALKS of all at most; action affinity goes by it (VS51 "NUMA
 *		Migration", N2)
 * Law		a slot for each VM; one that has none takes over the slot with the least count, and
 *		that count ("Space-Saving": Metwally, Agrawal, El Abbadi 2005)
 * Units	wake-ups since user space has emptied the slots
 * Limits	nothing is counted before a world has had a home. A wake-up by an interrupt is no
 *		communication, nor is one of a thread that may run on one pCPU alone: the kernel
 *		asks for no pCPU then. Two pCPUs that count at the same time may fill two slots for
 *		one VM
 */
#ifndef TANDEM_TALK_H
#define TANDEM_TALK_H

#include "../platform/platform.h"

/* Counts that a world of a VM is being woken, if a world of another VM wakes it. */
RARE_SUBPROG u32 talk_count(NONNULL(struct host *h), NONNULL(struct vm *v), u32 vm)
{
	struct world *waker = plat_world(h, (u32)plat_waker(h, plat_here(h)));
	u32 least = 0, count, least_count = ~0u, with;

	if (!waker || waker->vm == VM_SYSTEM || waker->vm == vm)
		return 0;
	for (u32 i = 0; i < VM_TALKS; i++) {
		with = plat_read(v->talks_with[i]);
		count = plat_read(v->talks[i]);
		if (with == waker->vm) {
			plat_add(&v->talks[i], 1);
			return 0;
		}
		if (count < least_count) {
			least = i;
			least_count = count;
		}
	}
	v->talks_with[least & (VM_TALKS - 1)] = waker->vm;
	plat_add(&v->talks[least & (VM_TALKS - 1)], 1);
	return 0;
}

INLINE void talk_woken(struct host *h, struct vm *v, const struct world *w)
{
	if (__builtin_expect(plat_read(h->homes) != 0, 0) && w->vm != VM_SYSTEM)
		talk_count(h, v, w->vm);
}

#endif
