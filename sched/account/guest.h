/* Whether a vCPU is in its guest, or runs its emulator's code: that time is left out when siblings are compared.
 *
 * Promise	who is outside its guest neither leads its siblings nor holds them up: it makes no progress, and its guest does not
 *		wait for a pCPU (VS51 "Relaxed Co-Scheduling", C3). When it comes back it has kept pace, as one that wakes has
 * Law		outside = from when its thread leaves KVM for the emulator until it enters it again
 * Limits	what KVM itself does for a guest counts as the guest's: it is short, or it polls for a guest that has halted, and
 *		who is halted makes progress; to tell them apart would cost two programs for each exit of a guest. An emulated
 *		vCPU's thread runs guest and emulator in one: all is the guest's. Whoever was outside when the hooks came counts as
 *		inside until it leaves again
 */
#ifndef TANDEM_GUEST_H
#define TANDEM_GUEST_H

#include "../policy/cosched.h"

/* The running vCPU enters its guest, or leaves it for its emulator. */
hot void guest_crossed(struct host *h, struct world *w, bool inside)
{
	struct vm *v = plat_vm(h, w->vm);

	if (v && inside && v->indices > 1)
		cosched_woken(plat_knobs(h), v, w);
	w->outside = !inside;
	if (trace_on(h))
		trace_put(h, plat_now(h), trace_head(TRACE_GUEST, w->id, plat_here(h)), inside, 0);
}

#endif
