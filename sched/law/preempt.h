/* Whether a woken world preempts the world that runs on a pCPU.
 *
 * Promise	a world preempts one whose deadline is later by more than a margin, and no other
 *		(VS51 "What, When, and Where to Schedule?", W4)
 * Law		gain = deadline of the running world now - deadline of the candidate - margin
 *		between siblings: CPU time of the running one - CPU time of the candidate, whole
 *		first slice of the candidate: its gain and the margin, in its own CPU time
 * Units	ns of virtual time
 * Example	margin 2 ms: a VM of 1 pCPU whose deadline is 5 ms earlier has a gain of 3 ms and
 *		a first slice of 5 ms
 * Limits	host tasks do not preempt each other: their quantum is short
 */
#ifndef TANDEM_PREEMPT_H
#define TANDEM_PREEMPT_H

#include "share.h"

/* Deadline of the world that runs on `p`, its slice counted as far as it has run. */
INLINE u64 preempt_current(struct host *h, const struct pcpu *p, u64 now)
{
	struct vm *v = plat_vm(h, p->current_vm);
	u64 since = plat_read(p->current_since_ns), ran = now > since ? now - since : 0;

	return plat_read(p->current_key) + (v ? share_virtual(v, min_u64(ran, SEC_NS)) : 0);
}

/* A world that may preempt. */
struct candidate {
	u64 deadline;
	u64 runtime_ns;
	u32 vm;
};

INLINE struct candidate preempt_candidate(const struct world *w, u64 deadline)
{
	return (struct candidate){ .deadline = deadline, .runtime_ns = w->runtime_ns, .vm = w->vm };
}

/* Gain over a sibling, in virtual time of their VM. Deadlines do not tell: both hold the VM's
 * virtual time, at two moments. */
INLINE u64 preempt_over_sibling(struct host *h, const struct pcpu *p, const struct candidate *c,
				u64 now)
{
	struct world *runs = plat_world(h, plat_read(p->current_world));
	struct vm *v = plat_vm(h, c->vm);
	u64 since = plat_read(p->current_since_ns);
	s64 more;

	if (!runs || !v)
		return 0;
	more = (s64)(plat_read(runs->runtime_ns) - c->runtime_ns) +
	       (now > since ? (s64)(now - since) : 0);
	return share_virtual(v, (u64)clamp_s64(more, 0, OFFSET_MAX_NS));
}

/* Gain of a candidate at `p`, 0 if it may not preempt there. */
INLINE u64 preempt_gain(struct host *h, const struct pcpu *p, const struct candidate *c, u64 now)
{
	u64 margin = share_span(h, plat_knobs(h)->preempt_margin_us), current, more;

	if (!plat_read(p->current_world) || !with(PREEMPT))
		return 0;
	if (with(PREEMPT_SIBLING) && c->vm && plat_read(p->current_vm) == c->vm) {
		more = preempt_over_sibling(h, p, c, now);
		return more > margin ? more - margin : 0;
	}
	current = preempt_current(h, p, now);
	return current > c->deadline + margin ? current - c->deadline - margin : 0;
}

/* First slice of a candidate that preempts; afterwards the preempted world goes on. */
INLINE u64 preempt_slice(const struct host *h, const struct knobs *k, const struct vm *v, u64 gain,
			 u64 quantum)
{
	u64 more = gain + share_span(h, k->preempt_margin_us);
	u64 slice = max_u64((more >> 10) * (v->weight >> 10), k->slice_min_us * US);

	return with(PREEMPT_SLICE) ? min_u64(slice, quantum) : quantum;
}

#endif
