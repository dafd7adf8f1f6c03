/* Run states of a world and the time spent in each, to the nanosecond.
 *
 * Promise	every ns of a world's life is in exactly one state; the times sum to its life
 *		(VS51 "Terminology", W2)
 * Law		time[state] += now - since; since = now
 * Units	ns of the scheduler's clock
 * Limits	clocks of two CPUs may differ: a transition before the last one counts as zero. A
 *		sleep that the platform cannot tell from a halt counts as one (plat_halted). A
 *		reader of a running world adds now - since itself, under seq
 */
#ifndef TANDEM_STATE_H
#define TANDEM_STATE_H

#include "../tell/trace.h"

INLINE bool state_wants_pcpu(u32 state)
{
	return state == STATE_RUN || state == STATE_READY || state == STATE_COSTOP;
}

INLINE void state_enter(struct host *h, struct world *w, u32 state, u64 now)
{
	u64 since = w->state_since_ns;

	plat_assert(h, state < STATES && !(w->seq & 1));
	if (now < since)
		now = since;
	w->seq++;
	plat_barrier();
	w->time_ns[w->state & 7] += now - since;
	w->state_since_ns = now;
	w->state = state;
	plat_barrier();
	w->seq++;
}

/* Enters a state and tells the recorder why, and the pCPU where the world runs, ran or waits. */
INLINE void state_change(struct host *h, struct world *w, u32 state, u64 now, u32 why, u32 on)
{
	if (trace_on(h))
		trace_state(h, w, state, now, why, on);
	state_enter(h, w, state, now);
}

/* State of a world that goes to sleep. A vCPU that its guest has halted is idle; any other sleeper
 * waits, a vCPU too if it sleeps for its emulator or for a page. Why an emulated vCPU sleeps is not
 * seen outside its process: it counts as idle. */
INLINE u32 state_asleep(plat_task *t, const struct world *w)
{
	bool idle = w->kind == KIND_EMULATED || (w->kind == KIND_VCPU && plat_halted(t));

	return idle ? STATE_WAIT_IDLE : STATE_WAIT;
}

#endif
