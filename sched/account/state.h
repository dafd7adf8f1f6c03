/* Run states of a world and the time spent in each, to the nanosecond; it never decides anything.
 *
 * Promise	every ns of a world's life is in exactly one state; the times sum to its life (VS51 "Terminology", W2)
 * Law		time[state] += now - since; since = now
 * Limits	clocks of two CPUs may differ: a transition earlier than the last one counts as zero. What the platform cannot tell
 *		from a halt counts as one (plat_halted)
 * Weakness	a reader of a running world adds now - since itself, under seq
 */
#ifndef TANDEM_STATE_H
#define TANDEM_STATE_H

#include "../trace.h"

hot void state_enter(struct world *w, u32 state, u64 now)
{
	u64 since = w->state_since_ns;

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

/* The same, told to whoever records: why, and the pCPU where it runs, ran or waits. */
hot void state_change(struct host *h, struct world *w, u32 state, u64 now, u32 why, u32 on)
{
	if (trace_on(h))
		trace_state(h, w, state, now, why, on);
	state_enter(w, state, now);
}

/* The state of one that goes to sleep. A vCPU that its guest has halted is idle; any other sleeper waits: a vCPU too, if it sleeps
 * for its emulator or for a page. Nobody outside a process sees what an emulated vCPU sleeps for: it is idle each time. */
hot u32 state_asleep(plat_task *t, const struct world *w)
{
	bool idle = w->kind == KIND_EMULATED || (w->kind == KIND_VCPU && plat_halted(t));

	return idle ? STATE_WAIT_IDLE : STATE_WAIT;
}

#endif
