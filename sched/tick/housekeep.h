/* Housekeeping, a round every housekeep_us: the plan, the host's virtual time, nets under races.
 *
 * Promise	the host's virtual time is an ideal scheduler's, so lag is measured against it
 *		a waiting world with a request of 0 preempts within a period of when it may
 * Law		v += gone + drift / 16; by a plan of user space drift / 4
 * Units	ns of virtual time
 * Limits	one idle pCPU a cluster is kicked to look for work. A round has a part for every
 *		HOUSE_VMS VMs or HOUSE_PCPUS pCPUs, so that no part grows with the host
 */
#ifndef TANDEM_HOUSEKEEP_H
#define TANDEM_HOUSEKEEP_H

#include "../place/apart.h"
#include "../place/online.h"
#include "../place/whole.h"
#include "plan.h"

/* VMs, pCPUs and clusters of one part: some 2,000 instructions each, and hosts of two dozen VMs
 * have one part a round */
#define HOUSE_VMS 32
#define HOUSE_PCPUS 16
#define HOUSE_CLUSTERS (HOUSE_PCPUS / 4)

/* Parts of a round. */
INLINE u32 house_parts(const struct host *h)
{
	u32 parts = max_u64((h->vms + HOUSE_VMS - 1) / HOUSE_VMS,
			    (h->pcpus + HOUSE_PCPUS - 1) / HOUSE_PCPUS);

	return parts ? parts : 1;
}

/* Kicks one idle pCPU of each cluster while a world waits anywhere: the net under the races between
 * placing and pulling. It is not reserved: a world that leaves a shared core at that moment finds
 * the core of this one whole. */
SUBPROG u32 house_idle(NONNULL(struct host *h), u32 part)
{
	if (!with(IDLE_SCAN) || (!holder_queued(h) && !online_left(h)))
		return 0;
	plat_for(i, HOUSE_CLUSTERS) {
		u32 id = part * HOUSE_CLUSTERS + i;
		struct cluster *c = id < h->clusters ? plat_cluster(h, id) : NULL;
		u64 idle = c ? plat_read(c->idle) : 0;

		if (!c)
			break;
		if (holder_on(h))
			idle = apart_free(h, c, idle);
		if (idle)
			trace_kick(h, c->pcpu[plat_first_bit(idle) & 63], KICK_IDLE, WHY_UNKNOWN);
	}
	return 0;
}

/* A look at the worlds that wait on a pCPU; in memory, where a BPF verifier does not count
 * along. */
struct wait_look {
	u64 now;
	u32 seen;
};

/* Whether a world that waits on `p` preempts there now: one whose VM's request is 0. A function of
 * its own, for the verifier walks a loop anew for every path through its body. */
SUBPROG bool house_due(NONNULL(struct host *h), NONNULL(struct pcpu *p),
			   NONNULL(struct world *w), NONNULL(struct wait_look *look))
{
	struct vm *v = plat_vm(h, w->vm);
	u32 runs = plat_read(p->current_vm);
	struct candidate cand;

	look->seen++;
	if (!v || plat_read(v->request_ns) || w->vm == runs)
		return false;
	cand = preempt_candidate(w, share_deadline(v, w));
	cand.deadline = preempt_to_due(h, w->vm, runs, cand.deadline, look->now);
	return preempt_gain(h, p, &cand, look->now);
}

/* A world with a request of 0 that woke beside one of an earlier deadline waits until that is the
 * later one, to this period, and not for a quantum. */
SUBPROG u32 house_preempt(NONNULL(struct host *h), NONNULL(struct pcpu *p), u64 now)
{
	struct wait_look look = { .now = now };
	plat_task *t;

	plat_queue_each(h, t, QUEUE_VM(p->id)) {
		struct world *w = plat_world_of(h, t);

		if (!w || look.seen >= QUEUE_SCAN_MAX)
			break;
		if (!house_due(h, p, w, &look))
			continue;
		p->preempts++;
		trace_kick(h, p->id, KICK_PREEMPT, WHY_PREEMPTED);
		break;
	}
	return 0;
}

SUBPROG u32 house_pcpus(NONNULL(struct host *h), u32 part)
{
	u64 now = plat_now(h);

	plat_for(i, HOUSE_PCPUS) {
		u32 id = part * HOUSE_PCPUS + i;
		struct pcpu *p = id < h->pcpus ? plat_pcpu(h, id) : NULL;
		struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

		if (!c)
			break;
		if (!p->bit)
			c->load += idle_load(c) * (256 / LOAD_ROUNDS) - c->load / LOAD_ROUNDS;
		if (cores_granted(h, plat_knobs(h)))
			whole_check(h, p);
		if (plat_read(p->strays))
			trace_kick(h, p->id, KICK_PREEMPT, WHY_MIGRATED);
		if (!idle_online(c, p->bit))
			online_drain(h, p);
		else if (with(REQUEST_SCAN) && plat_read(p->waits_vm) &&
			 plat_read(p->current_world))
			house_preempt(h, p, now);
	}
	return 0;
}

/* drift is corrected over 16 periods, 160 ms: slower than bursts; over 40 ms by a plan of user
 * space, which is 100 ms old at most: faster than such plans change */
#define V_DRIFT_SHIFT 4
#define V_DRIFT_SHIFT_OUTSIDE 2

/* A VM's distance counts up to four times the bound on lag: one that is farther ahead, having had a
 * tiny weight for a moment, would drag the host's virtual time along, and all others would reach
 * their bounds, where they are equal. Lag up to that bound does not count of a VM that gets nine
 * tenths of what it asks for: it makes up for a wait too late, as those do that get all. Where user
 * space weighs VMs lag up to the wake-up credit does not count of those that get all. Half of that
 * bound does not count below a limit that was missed: all are late that share it, and their mean
 * would hide it; at the bound they would be equal. */
SUBPROG u32 house_drift(NONNULL(struct host *h), NONNULL(struct vm *v))
{
	s64 weight = (s64)(v->weight >> 10), ahead = (s64)(plat_read(v->vt_ns) - h->v_ns);
	const struct knobs *k = plat_knobs(h);
	u64 bound = k->lag_bound_us + (cores_granted(h, k) ? k->whole_core_us : 0);
	struct limiter *l = v->limiter ? plat_limiter(h, v->limiter) : NULL;
	bool outside = h->plan_outside, gets;
	s64 limit = (s64)(4 * bound * US), free = 0;

	if (limit > 1ll << 34)
		limit = 1ll << 34;
	gets = outside ? !(v->flags & VM_CONTENDED) : v->each * 10 >= 9ull << RATE_SHIFT;
	if (gets)
		free = (s64)((outside ? k->wake_credit_us : k->lag_bound_us) * US);
	else if (l && plat_read(l->missed))
		free = (s64)(k->lag_bound_us * US / 2);
	if (ahead < 0)
		ahead = ahead < -free ? ahead + free : 0;
	ahead = clamp_s64(ahead, -limit, limit);
	h->drift_sum += ahead * weight >> 4; /* 2^34 * 2^20 * 2^10 VMs, less 4 bits, fits 63 */
	h->drift_total += weight;
	return 0;
}

/* A correction of the host's virtual time does not change the lag of a VM that gets its reservation
 * and no more: a reservation is due by the clock. */
SUBPROG u32 house_vms(NONNULL(struct host *h), u32 part)
{
	u32 counts = h->plan_outside ? VM_LIVE : VM_LIVE | VM_CONTENDED;

	plat_for(i, HOUSE_VMS) {
		u32 id = part * HOUSE_VMS + i;
		struct vm *v = id < h->vms ? plat_vm(h, id) : NULL;

		if (!v)
			break;
		h->house_wants += plat_read(v->runnable);
		if (!plat_read(v->runnable) || (id == VM_SYSTEM && h->plan_outside))
			continue;
		if (v->flags & VM_RESERVED && h->drift_step)
			plat_add(&v->vt_ns, h->drift_step);
		if ((v->flags & counts) == counts && !plat_read(v->stopped))
			house_drift(h, v);
	}
	return 0;
}

/* What holds between two callbacks, in the simulator alone: a VM of which no world wants to run has
 * no slice committed, and a pCPU's bit of waiting worlds and its wait_key follow its counts. */
INLINE void core_audit(struct host *h)
{
	plat_for(i, VMS_MAX) {
		struct vm *v = i < h->vms ? plat_vm(h, i) : NULL;

		if (!v)
			break;
		plat_assert_alone(h, plat_read(v->runnable) <= plat_read(v->worlds));
		plat_assert_alone(h, plat_read(v->costopped) <= plat_read(v->runnable));
		plat_assert_alone(h, plat_read(v->runnable) || !plat_read(v->committed_ns));
	}
	plat_for(k, PCPUS_MAX) {
		struct pcpu *p = k < h->pcpus ? plat_pcpu(h, k) : NULL;
		struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

		if (!p || !c)
			break;
		plat_assert_alone(h, !count_waiting(p) == !(c->queued >> (p->bit & 63) & 1));
	}
}

/* The host's virtual time advances by the clock: a plan weighs each VM by what it is to get, so an
 * ideal scheduler serves all at a rate of 1. The active VMs' mean virtual time only corrects the
 * drift: as the mean alone, it would jump whenever a VM goes to sleep, and lag with it. Not counted
 * are VMs that are stopped whole, and VMs that get all they ask for, which lag for ever. */
SUBPROG u32 house_clock(NONNULL(struct host *h), u64 now)
{
	u64 gone = now > h->v_at_ns ? now - h->v_at_ns : 0;

	if (trace_on(h) && now / TRACE_ACCOUNT_NS != h->v_at_ns / TRACE_ACCOUNT_NS)
		trace_accounts(h);
	if (h->tracing && now > h->trace_until_ns)
		h->tracing = 0;
	h->v_at_ns = now;
	if (gone > SEC_NS)
		gone = SEC_NS;
	h->v_ns += gone;
	return 0;
}

/* A round begins: in the last one all active VMs have been seen. */
SUBPROG u32 house_round(NONNULL(struct host *h))
{
	u32 shift = h->plan_outside ? V_DRIFT_SHIFT_OUTSIDE : V_DRIFT_SHIFT;
	u64 total = (u64)h->drift_total, step;
	s64 sum = h->drift_sum;

	h->drift_step = 0;
	if (total && with(DRIFT)) {
		/* rounded towards 0 */
		step = ((u64)(sum < 0 ? -sum : sum) / total << 4) >> shift;
		h->v_ns = sum < 0 ? h->v_ns - step : h->v_ns + step;
		if (!h->plan_outside && with(RESERVED_DRIFT))
			h->drift_step = sum < 0 ? -(s64)step : (s64)step;
	}
	h->drift_sum = h->drift_total = 0;
	h->round_ns = plat_knobs(h)->quantum_us * US * h->house_wants / (h->online ? h->online : 1);
	h->house_wants = 0;
	return 0;
}

/* A part; ns until the next one. */
SUBPROG u64 core_housekeep(NONNULL(struct host *h))
{
	u32 parts = house_parts(h), part = h->house_part < parts ? h->house_part : 0;

	plan_divide(h, !part, parts);
	house_clock(h, plat_now(h));
	if (!part)
		house_round(h);
	house_vms(h, part);
	h->house_part = part + 1;
	house_pcpus(h, part);
	house_idle(h, part);
	return plat_knobs(h)->housekeep_us * US / parts;
}

#endif
