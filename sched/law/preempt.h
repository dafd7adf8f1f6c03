/* Whether a woken world preempts the world that runs on a pCPU.
 *
 * Promise	a world preempts one whose deadline is later by more than a margin, and no other
 *		(VS51 "What, When, and Where to Schedule?", W4); no world waits longer behind a gang
 *		than behind another, however often the gang's vCPUs stop and run again
 * Law		gain = deadline of the running world now - deadline of the candidate - margin
 *		deadline now = deadline at the start + virtual time since
 *		of a gang, to a candidate of none: deadline at the gang's start + virtual time
 *		since, of all its vCPUs but those that wait, at most the VM's own deadline. To
 *		another gang that wakes a vCPU goes by its own time, so the first gang is not
 *		broken up, and so to siblings that wait (pcpu.sibling_key). Where a pCPU is chosen
 *		too: no world leaves its cache for a gang's age. A VM with a request of 0 counts
 *		as no gang, whether its world is the candidate or runs (preempt_to_due)
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

/* Deadline of a gang slice under way, and the virtual time of its vCPUs since: what it is to a
 * world of no gang, or of a VM with a request of 0. */
INLINE u64 preempt_aged(const struct vm *v, u64 gang, u64 now)
{
	u64 since = plat_read(v->gang_since_ns);
	u32 wants = plat_read(v->runnable);
	u32 waits = v->waiting; /* at the last look: all may run, or sleep, by now */

	if (now > since)
		gang += share_virtual(v, min_u64(now - since, SEC_NS)) *
			(wants > waits ? wants - waits : 1);
	return gang;
}

/* The same to a world of no gang; with `own` it goes by its own time. One that wakes gains no more
 * than its distance to the VM's own deadline. */
INLINE u64 preempt_by_lone(struct host *h, const struct pcpu *p, u64 now, bool wakes, u64 own)
{
	struct vm *v = plat_vm(h, p->current_vm);
	u64 gang = v ? plat_read(v->gang_key) : 0;

	if (!gang || own || !with(GANG_PREEMPT) || !with(GANG_KEY))
		return preempt_current(h, p, now);
	gang = preempt_aged(v, gang, now);
	return wakes ? min_u64(gang, share_vm_deadline(v)) : gang;
}

/* Deadline of VM `vm` beside a world of VM `runs`: where that one's request is 0 and `vm` has a
 * gang slice, with the virtual time since. Else a gang would preempt what has just preempted it. */
SUBPROG u64 preempt_to_due(NONNULL(struct host *h), u32 vm, u32 runs, u64 deadline, u64 now)
{
	struct vm *v = plat_vm(h, vm), *r = plat_vm(h, runs);
	u64 gang = v ? plat_read(v->gang_key) : 0;

	if (!gang || !r || plat_read(r->request_ns) || !with(GANG_PREEMPT))
		return deadline;
	return max_u64(deadline, preempt_aged(v, gang, now));
}

/* A world that may preempt. */
struct candidate {
	u64 deadline;
	u64 runtime_ns;
	u32 vm;
	/* not 0: a pCPU is chosen for it */
	u32 chooses;
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
SUBPROG u64 preempt_gain(NONNULL(struct host *h), NONNULL(struct pcpu *p),
			 NONNULL(struct candidate *c), u64 now)
{
	u64 margin = plat_knobs(h)->preempt_margin_us * US, current, more, gang;
	struct vm *v = plat_vm(h, c->vm);

	if (!plat_read(p->current_world) || !with(PREEMPT))
		return 0;
	if (with(PREEMPT_SIBLING) && c->vm && plat_read(p->current_vm) == c->vm) {
		more = preempt_over_sibling(h, p, c, now);
		return more > margin ? more - margin : 0;
	}
	gang = v && plat_read(v->request_ns) ? plat_read(v->gang_key) : 0;
	current = preempt_by_lone(h, p, now, true, c->chooses | gang);
	return current > c->deadline + margin ? current - c->deadline - margin : 0;
}

/* First slice of a candidate that preempts, its quantum with a gain of 0; afterwards the preempted
 * world goes on. */
SUBPROG u64 preempt_slice(NONNULL(struct host *h), NONNULL(struct vm *v), u64 gain, u64 quantum)
{
	const struct knobs *k = plat_knobs(h);
	u64 more = gain + k->preempt_margin_us * US;
	u64 slice = max_u64((more >> 10) * (v->weight >> 10), k->slice_min_us * US);

	return gain && with(PREEMPT_SLICE) ? min_u64(slice, quantum) : quantum;
}

#endif
