/* What is done off the critical path, every housekeep_us: the host's virtual time, and a net under the races for idle pCPUs.
 *
 * Promise	the host's virtual time is what an ideal scheduler's would be, so that lag is measured against the right thing
 *		an urgent world that waits preempts within a period of when it is owed more than who runs there
 * Law		v += gone * rate + drift / 16; rate = served / weight of the active VMs
 * Units	ns of virtual time
 * Limits	a housekeeper that was away longer than a second starts afresh; one idle pCPU a cluster is sent to look for work
 */
#ifndef TANDEM_HOUSEKEEP_H
#define TANDEM_HOUSEKEEP_H

#include "plan.h"
#include "policy/place.h"

/* One idle pCPU of each cluster is sent to look for work wherever some waits: the net under the races of placing and pulling. */
cold u32 housekeep_idle(THE(struct host *h))
{
	u64 queued = 0;

	plat_for(i, CLUSTERS_MAX) {
		struct cluster *c = i < h->clusters ? plat_cluster(h, i) : NULL;

		if (!c)
			break;
		queued |= plat_read(c->queued);
	}
	plat_for(i, CLUSTERS_MAX) {
		struct cluster *c = with(IDLE_SCAN) && queued && i < h->clusters ? plat_cluster(h, i) : NULL;
		u64 idle = c ? plat_read(c->idle) : 0;

		if (!c)
			break;
		if (idle && place_claim(c, plat_first_bit(idle)))
			trace_kick(h, c->pcpu[plat_first_bit(idle) & 63], KICK_IDLE, WHY_UNKNOWN);
	}
	return 0;
}

/* A look over who waits on a pCPU; in memory, where a BPF verifier does not count along. */
struct wait_look {
	u64 now;
	u32 seen;
};

/* Whether a world that waits on `p` is to take it from who runs there: an urgent one, owed more. By itself, because a verifier goes
 * through a loop anew for every way through its body. */
cold bool housekeep_due(THE(struct host *h), THE(struct pcpu *p), THE(struct world *w), THE(struct wait_look *look))
{
	struct vm *v = plat_vm(h, w->vm);
	struct claim claim;

	look->seen++;
	if (!v || !plat_read(v->urgent_ns) || w->vm == plat_read(p->current_vm))
		return false;
	claim = preempt_claim(w, share_key(v, w));
	return preempt_gain(h, p, &claim, look->now);
}

/* An urgent world that woke beside one which was owed more waits until that has had what it was owed, to this period, and not for a
 * quantum: it uses little, and cannot catch up on it later. */
cold u32 housekeep_urgent(THE(struct host *h), THE(struct pcpu *p), u64 now)
{
	struct wait_look look = { .now = now };
	plat_task *t;

	plat_queue_each(h, t, QUEUE_VM(p->id)) {
		struct world *w = plat_world_of(h, t);

		if (!w || look.seen >= QUEUE_SCAN_MAX)
			break;
		if (!housekeep_due(h, p, w, &look))
			continue;
		p->claimed_ns = now;
		p->preempts++;
		trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
		break;
	}
	return 0;
}

cold u32 housekeep_pcpus(THE(struct host *h), u64 now)
{
	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = i < h->pcpus ? plat_pcpu(h, i) : NULL;

		if (!p)
			break;
		if (with(URGENT_SCAN) && plat_read(p->waits_vm) && plat_read(p->current_world))
			housekeep_urgent(h, p, now);
	}
	return 0;
}

#define GONE_MAX_NS 1000000000ull	/* a housekeeper that was away longer starts afresh */
#define V_DRIFT_SHIFT 4	/* drift is taken off in 16 periods, 160 ms: slower than bursts, faster than plans go wrong */

/* What the active VMs say of the host's virtual time; in memory, where a BPF verifier does not count along. */
struct drift {
	s64 sum;	/* how far they are ahead, by weight */
	s64 total;	/* their weights */
	u64 busy;	/* their worlds */
};

/* How far a VM is ahead counts up to four times the bound on lag: one that is farther, having had a tiny weight for a moment, would
 * drag the host's virtual time along, and leave all others beyond what they are owed at most, where they are equal. */
hot void housekeep_vm(const struct host *h, const struct knobs *k, const struct vm *v, struct drift *d)
{
	s64 weight = (s64)(v->weight >> 10), ahead = (s64)(plat_read(v->vt_ns) - h->v_ns);
	s64 limit = 4 * (s64)share_span(h, k->lag_bound_us);

	if (limit > 1ll << 34)
		limit = 1ll << 34;
	if (ahead > limit)
		ahead = limit;
	if (ahead < -limit)
		ahead = -limit;
	d->sum += ahead * weight >> 4; /* 2^34 * 2^20 * 2^10 VMs, less 4 bits, fits 63 */
	d->total += weight;
	d->busy += plat_read(v->runnable);
}

cold u32 housekeep_drift(THE(struct host *h), THE(struct drift *d))
{
	u32 counts = h->plan_outside ? VM_LIVE : VM_LIVE | VM_CONTENDED;

	plat_for(i, VMS_MAX) {
		struct vm *v = i < h->vms ? plat_vm(h, i) : NULL;

		if (!v)
			break;
		if (i == VM_SYSTEM && h->plan_outside)
			continue;
		if ((v->flags & counts) == counts && plat_read(v->runnable) && !plat_read(v->stopped))
			housekeep_vm(h, plat_knobs(h), v, d);
	}
	return 0;
}

/* Where the host's virtual time has been corrected by `step`, a VM that gets its reservation and no more goes along: others lag
 * together where somebody takes what idled for a moment, and forgive each other that; a reservation is owed by the clock. */
cold u32 housekeep_reserved(THE(struct host *h), s64 step)
{
	plat_for(i, VMS_MAX) {
		struct vm *v = i < h->vms ? plat_vm(h, i) : NULL;

		if (!v)
			break;
		if (v->flags & VM_RESERVED && plat_read(v->runnable))
			plat_add(&v->vt_ns, step);
	}
	return 0;
}

/* The host's virtual time advances as an ideal scheduler's would: by its rate, which is what is served (at
 * most a pCPU for each busy world) over what the active VMs are entitled to by the plan. The mean of the
 * active VMs' own, by weight, only corrects its drift: were it the mean alone, a VM that runs on by itself
 * would lose what it is owed each time that others go to sleep. A VM that is stopped whole does not count; nor
 * one that gets all it asks for, nor the system group then: it is behind for ever, having no use for all it could
 * have. By the plan's tree those that count are served their weight, and the rate is 1. */
cold u32 core_housekeep(THE(struct host *h))
{
	u64 now = plat_now(h), gone = now > h->v_at_ns ? now - h->v_at_ns : 0, rate, step;
	struct drift d = {};

	plan_divide(h);
	if (trace_on(h) && now / TRACE_ACCOUNT_NS != h->v_at_ns / TRACE_ACCOUNT_NS)
		trace_accounts(h);
	if (h->tracing && now > h->trace_until_ns)
		h->tracing = 0;
	h->v_at_ns = now;
	if (gone > GONE_MAX_NS)
		gone = GONE_MAX_NS;
	h->v_ns += (gone >> 4) * (h->rate >> 6) >> (RATE_SHIFT - 10);
	housekeep_drift(h, &d);
	if (!h->plan_outside)
		h->rate = 1ull << RATE_SHIFT;
	if (d.total && with(DRIFT)) {
		step = (u64)(d.sum < 0 ? -d.sum : d.sum) / (u64)d.total << 4 >> V_DRIFT_SHIFT; /* rounded towards 0 */
		h->v_ns = d.sum < 0 ? h->v_ns - step : h->v_ns + step;
		if (!h->plan_outside && step && with(RESERVED_DRIFT))
			housekeep_reserved(h, d.sum < 0 ? -(s64)step : (s64)step);
	}
	if (d.total && h->plan_outside) {
		rate = ((d.busy < h->online ? d.busy : h->online) << (2 * RATE_SHIFT - 10)) / (u64)d.total;
		h->rate = rate < (1ull << RATE_SHIFT) ? 1ull << RATE_SHIFT : rate < RATE_MAX ? rate : RATE_MAX;
	}
	housekeep_pcpus(h, now);
	return housekeep_idle(h);
}

#endif
