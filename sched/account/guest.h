/* Time that a vCPU runs outside its guest, in its emulator's code: no progress, so it is held against its siblings like waiting.
 *
 * Promise	counted is every ns of RUN from when its thread leaves KVM for the emulator until it comes back (VS51 "Relaxed
 *		Co-Scheduling", C3)
 * Law		outside += now - left, for each such stretch of RUN
 * Units	ns of the scheduler's clock
 * Limits	what KVM itself does for a guest counts as the guest's: it is short, or it polls for a guest that has halted, and
 *		who is halted makes progress; to tell them apart would cost two programs for each exit of a guest. An emulated
 *		vCPU's thread runs guest and emulator in one: all is the guest's. Whoever was outside when the hooks came counts as
 *		inside until it leaves again
 */
#ifndef TANDEM_GUEST_H
#define TANDEM_GUEST_H

#include "../trace.h"

/* What world.costop says: asked for by the tick, decided by its own pCPU. */
enum { COSTOP_NOT, COSTOP_ASKED, COSTOP_DECIDED };

#define LEFT_STILL 1	/* of left_ns: outside its guest, and not running */

/* Outside its guest, and running, at `now`: for how long; 0 if it is not. */
hot u64 guest_left_for(const struct world *w, u64 now)
{
	u64 left = plat_read(w->left_ns);

	return left > LEFT_STILL && now > left ? now - left : 0;
}

/* A world stops running. */
hot void guest_stopped(struct world *w, u64 now)
{
	if (plat_read(w->left_ns) <= LEFT_STILL)
		return;
	plat_add(&w->outside_ns, guest_left_for(w, now));
	w->left_ns = LEFT_STILL;
}

/* It runs again. */
hot void guest_runs(struct world *w, u64 now)
{
	if (plat_read(w->left_ns) == LEFT_STILL)
		w->left_ns = now;
}

/* The running vCPU enters its guest, or leaves it for its emulator. It may be taken off its pCPU anywhere between two lines. One that has
 * been asked to stop, and was outside, is asked once more. */
hot void guest_crossed(struct host *h, struct world *w, bool inside)
{
	u64 now, left;

	if (inside) {
		now = plat_now(h);
		left = plat_swap(&w->left_ns, 0);
		if (left > LEFT_STILL && now > left)
			plat_add(&w->outside_ns, now - left);
	} else {
		w->left_ns = LEFT_STILL;
		plat_barrier();
		now = plat_now(h);
		plat_cas(&w->left_ns, LEFT_STILL, now);
	}
	if (trace_on(h))
		trace_put(h, now, trace_head(TRACE_GUEST, w->id, plat_here(h)), inside, 0);
	if (inside && plat_read(w->costop) == COSTOP_ASKED && w->last_pcpu >= 0)
		trace_kick(h, (u32)w->last_pcpu, KICK_PREEMPT, WHY_SKEWED);
}

#endif
