/* Whether a woken world takes a pCPU from the world that runs there; it never kicks by itself.
 *
 * Promise	a world preempts one that is owed less by more than a margin, and no other (VS51 "What, When, and
 *		Where to Schedule?", W4)
 * Law		gain = key of the running world now - key of the woken one - margin, where positive
 *		between siblings: the running one's lead - the woken one's, whole, for what their VM is owed is the same for both
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

/* What a woken world has to say for itself. */
struct claim {
	u64 key;
	u64 lead_ns;
	u32 vm;
};

hot struct claim preempt_claim(const struct world *w, u64 key)
{
	return (struct claim){ .key = key, .lead_ns = w->lead_ns, .vm = w->vm };
}

/* By how much the running world of `p` has had more than its sibling who woke, in their VM's virtual time. Their keys do not tell: in
 * the woken one's counts the slice that is under way, in the running one's what was urgent when it began. */
hot u64 preempt_over_sibling(struct host *h, const struct pcpu *p, const struct claim *claim, u64 now)
{
	struct world *runs = plat_world(h, plat_read(p->current_world));
	struct vm *v = plat_vm(h, claim->vm);
	u64 since = plat_read(p->current_since_ns);
	s64 more;

	if (!runs || !v)
		return 0;
	more = (s64)(plat_read(runs->lead_ns) - claim->lead_ns) + (now > since ? (s64)(now - since) : 0);
	if (more > LEAD_MAX_NS)
		more = LEAD_MAX_NS;
	return more > 0 ? share_virtual(v, (u64)more) : 0;
}

/* By how much the running world of `p` is owed less than the one that claims it; 0 if not by more than the margin. */
hot u64 preempt_gain(struct host *h, const struct pcpu *p, const struct claim *claim, u64 now)
{
	u64 margin = share_span(h, plat_knobs(h)->preempt_margin_us), current, more;

	if (!plat_read(p->current_world) || !with(PREEMPT))
		return 0;
	if (with(PREEMPT_SIBLING) && claim->vm && plat_read(p->current_vm) == claim->vm) {
		more = preempt_over_sibling(h, p, claim, now);
		return more > margin ? more - margin : 0;
	}
	current = preempt_current_key(h, p, now);
	return current > claim->key + margin ? current - claim->key - margin : 0;
}

/* Whether somebody waits on `p` who is to preempt the world that runs there: it woke after that began. */
hot bool preempt_claimed(const struct pcpu *p)
{
	return plat_read(p->claimed_ns) > plat_read(p->current_since_ns);
}

/* Quantum of a world that preempts: what it is owed more, no longer; then the other goes on. */
hot u64 preempt_slice(const struct host *h, const struct knobs *k, const struct vm *v, u64 gain, u64 quantum)
{
	u64 owed = ((gain + share_span(h, k->preempt_margin_us)) >> 10) * (v->weight >> 10);

	if (!with(PREEMPT_SLICE))
		return quantum;
	if (owed < k->slice_min_us * US)
		owed = k->slice_min_us * US;
	return owed < quantum ? owed : quantum;
}

#endif
