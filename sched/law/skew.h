/* Skew: how far the vCPUs of a VM have drifted apart, and which of them co-stop.
 *
 * Promise	relaxed: a vCPU that leads its slowest sibling by more than costop_us co-stops
 *		alone, and co-starts when it leads no sibling that waits by costart_us or more;
 *		strict: the whole VM stops, and starts when every vCPU that wants a pCPU can have
 *		one (VS51 "Relaxed Co-Scheduling", C1, C2)
 * Law		stall = base + time in READY + time in COSTOP; lead = stall of the slowest sibling
 *		- own stall; the slowest is the vCPU of the largest stall that wants to run
 * Units	ns of the clock
 * Example	4 vCPUs that burn share one pCPU: each runs for 3 to 4 ms and co-stops, then the
 *		next sibling has the pCPU
 * Limits	skew is looked at every cosched_poll_us. A vCPU that halts makes progress: when it
 *		wakes it is neither slower than the slowest nor ahead by more than costart_us (C4).
 *		One that runs or sleeps in its emulator's code is left out (C3): it makes no
 *		progress, and its guest does not wait for a pCPU. Time in KVM counts as the
 *		guest's: it is short, or polls for a vCPU that has halted. The thread of an
 *		emulated vCPU runs guest and emulator in one, so all its time is the guest's. A
 *		vCPU that was outside when the hooks were loaded counts as inside until it leaves
 *		again. Only the first VCPUS_MAX vCPUs of a VM are looked at
 */
#ifndef TANDEM_SKEW_H
#define TANDEM_SKEW_H

#include "units.h"

/* world.costop: asked for by the tick, decided by its own pCPU; one that is spared co-stops only if
 * a world waits for its pCPU */
enum costop { COSTOP_NOT, COSTOP_SPARED, COSTOP_ASKED, COSTOP_DECIDED };

/* the knob */
enum cosched { COSCHED_OFF, COSCHED_RELAXED, COSCHED_STRICT };

/* of a new VM and of a new vCPU: bases may go below it without wrapping */
#define STALLED_START (1ull << 50)

INLINE bool skew_strict(const struct knobs *k)
{
	return PLAT_STRICT && k->cosched == COSCHED_STRICT;
}

INLINE bool skew_is_vcpu(const struct world *w)
{
	return w->kind == KIND_VCPU || w->kind == KIND_EMULATED;
}

/* Stall of a vCPU, completed stays only. */
INLINE u64 skew_stall(const struct world *w)
{
	return w->stalled_base_ns + w->time_ns[STATE_READY] + w->time_ns[STATE_COSTOP];
}

/* The vCPUs of a VM as the tick finds them; in memory, where a BPF verifier does not count
 * along. */
struct siblings_look {
	u64 now_ns;
	/* largest stall of those that want to run */
	u64 slowest_ns;
	/* largest stall of those that are READY */
	u64 waits_ns;
	/* smallest stall of those that want to run */
	u64 ahead_ns;
	/* numbers end here */
	u32 count;
	/* READY */
	u32 waiting;
	/* of these, those that cannot take a sibling's pCPU */
	u32 stuck;
	/* that want to run */
	u32 busy;
	u32 vm;
	/* --- the vCPU of the step under way --- */
	u64 stalled_ns;
	u32 state;
	u32 world;
	/* where the search for one that can take a pCPU goes on */
	u32 next;
	/* of the pCPU looked at last */
	u32 domain;
	u32 seen;
	/* the VM's gang slice has just been found to be over */
	u32 ended;
};

/* How a vCPU with this stall co-stops for the slowest, running or not, a period late. While all
 * that wait can take a sibling's pCPU, it is spared up to the lead at which it might not co-start:
 * the slowest has a pCPU, or is about to, and need not run alone. */
INLINE u32 skew_must_stop(const struct knobs *k, const struct siblings_look *s, u64 stalled_ns)
{
	u64 near = k->costop_us * US, late = stalled_ns + near + k->cosched_poll_us * US;

	if (!with(COSTOP_SLOWEST) || s->slowest_ns <= late)
		return COSTOP_NOT;
	if (s->stuck || s->slowest_ns >= stalled_ns + 2 * near)
		return COSTOP_ASKED;
	return COSTOP_SPARED;
}

/* Whether a vCPU with this stall leads one that waits by too much. */
INLINE bool skew_leads_waiting(const struct knobs *k, const struct siblings_look *s, u64 stalled_ns)
{
	return s->waits_ns > stalled_ns + k->costop_us * US;
}

/* Whether a co-stopped vCPU may co-start: it leads no sibling that waits by costart_us, none at all
 * by twice costop_us. A sibling that runs catches up meanwhile. */
INLINE bool skew_may_start(const struct knobs *k, const struct siblings_look *s,
			   const struct world *w)
{
	u64 since = plat_read(w->state_since_ns), stay = s->now_ns > since ? s->now_ns - since : 0;
	u64 stalled = skew_stall(w) + stay;

	if (skew_strict(k) || (with(GUARD_COSTOP) && stay > k->ready_bound_us * US))
		return true;
	return s->waits_ns < stalled + k->costart_us * US &&
	       (!with(COSTART_FAR) || s->slowest_ns < stalled + 2 * k->costop_us * US);
}

#endif
