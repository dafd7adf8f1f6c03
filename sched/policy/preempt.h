/* Whether a woken world takes a pCPU from the world that runs there; it never kicks by itself.
 *
 * Promise	a world preempts one that is owed less by more than a margin, and no other (VS51 "What, When, and
 *		Where to Schedule?", W4)
 * Law		gain = key of the running world now - key of the woken one - margin, where positive
 * Units	ns of virtual time
 *		a preempting world's first quantum is its gain, in its own CPU time, so that the one it put off
 *		waits no longer than fairness asks
 * Limits	host tasks do not preempt each other here: their quantum is short
 */
#ifndef TANDEM_PREEMPT_H
#define TANDEM_PREEMPT_H

#include "../queue/queue.h"

/* Key that the world running on `p` has by now, its slice counted only as far as it has run. */
hot u64 preempt_current_key(struct host *h, const struct pcpu *p, u64 now)
{
	struct vm *v = plat_vm(h, p->current_vm);
	u64 since = plat_read(p->current_since_ns), ran = now > since ? now - since : 0;

	if (ran > 1000000000ull)
		ran = 1000000000ull;
	return plat_read(p->current_key) + (v ? share_virtual(v, ran) : 0);
}

/* By how much the running world of `p` is owed less than one of `key`; 0 if not by more than the margin. */
hot u64 preempt_gain(struct host *h, const struct pcpu *p, u64 key, u64 now)
{
	u64 margin = share_span(h, plat_knobs(h)->preempt_margin_us), current;

	if (!plat_read(p->current_world))
		return 0;
	current = preempt_current_key(h, p, now);
	return current > key + margin ? current - key - margin : 0;
}

/* Quantum of a world that preempts: what it is owed more, no longer; then the other goes on. */
hot u64 preempt_slice(const struct host *h, const struct knobs *k, const struct vm *v, u64 gain, u64 quantum)
{
	u64 owed = ((gain + share_span(h, k->preempt_margin_us)) >> 10) * (v->weight >> 10);

	if (owed < k->slice_min_us * US)
		owed = k->slice_min_us * US;
	return owed < quantum ? owed : quantum;
}

#endif
