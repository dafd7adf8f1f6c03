/* Cost of a world at a pCPU where it must queue: one value, in ns, that every placement compares.
 *
 * Promise	a world queues where it is expected to run soonest (VS51 "Load Balancing", L2)
 * Law		cost = wait - gain; the smallest cost wins
 *		wait = 0 where the world preempts; else a quantum for the running world and for each
 *		that waits. Three halves of a quantum more beside a sibling that runs: more than the
 *		quantum by which its own pCPU is favoured (place/place.h), so siblings spread
 * Units	ns; a gain is virtual time, which passes at the clock's pace for VMs that compete
 * Example	quantum 50 ms: a gain of 3 ms costs -3 ms, an occupied pCPU without queue 50 ms, the
 *		same beside a sibling 125 ms
 * Limits	partner threads and nodes are no terms yet, and caches count as fixed margins only
 *		(place/place.h, place/pull.h)
 */
#ifndef TANDEM_GOODNESS_H
#define TANDEM_GOODNESS_H

#include "units.h"

/* worse than any pCPU */
#define GOODNESS_WORST (1ll << 62)

/* Cost of a pCPU where `waiting` worlds wait; `gain` is 0 where the world does not preempt. */
INLINE s64 goodness_cost(const struct knobs *k, u64 gain, u32 waiting, bool sibling)
{
	s64 quantum = (s64)(k->quantum_us * US), beside = sibling ? quantum * 3 / 2 : 0;

	return gain ? beside - (s64)gain : beside + (1 + (s64)waiting) * quantum;
}

#endif
