/* Charges CPU time to worlds, VMs and pCPUs, and commits the slice that is being run.
 *
 * Promise	every ns that a thread executed is charged once, to its world (VS51 "charging", P7);
 *		on a kernel by its own clock, as cpu.stat counts: from the pick on, so from before
 *		RUN begins, without interrupts where the kernel counts these apart; in the simulator
 *		it is RUN. While the core is shared a part of it is not charged (account/busy.h):
 *		a world is entitled to so much of cores, not of threads (H2)
 * Law		used += d; lost += l; vt += ((d - l) << 20 + remainder) / weight; the remainder
 *		stays with the world. Limits and siblings go by d - l too. Where cores are divided,
 *		behind += (time that it wanted to run) * (what its VM gets / what it asks for)
 *		- (d - l)
 * Units	CPU time in ns; weight in 2^-20 pCPU
 * Example	d = 4 ms at weight 7 pCPUs: vt grows by 571,428 ns, 3,670,016 / 7,340,032 remain
 * Limits	d, and a wait where cores are divided, below 2^43 ns (2.4 hours); a slice is at most
 *		a second. Kernels 7.2.13 and 7.3.4,
 *		not 7.0.13, count no CPU time between the last timer tick and the end of a run
 *		that began on an idle pCPU: the clock's update stays skipped. Such a run is missing
 *		here and in cpu.stat, and is steal time in its guest. After the first one the
 *		kernel picks once more whenever a pCPU ends to idle (core_idle): that uses the skip
 */
#ifndef TANDEM_CHARGE_H
#define TANDEM_CHARGE_H

#include "budget.h"
#include "busy.h"
#include "lag.h"

/* A longer run of which the kernel's clock has seen nothing is lost. */
#define EXEC_LOST_NS 100000ull

/* A world has wanted to run since the last call, and has been charged `got` ns of that. */
INLINE void charge_entitle(struct host *h, struct world *w, const struct vm *v, u64 now, u64 got)
{
	u64 span = now > w->entitled_ns ? now - w->entitled_ns : 0;
	s64 due = (s64)(span * plat_read(v->each) >> RATE_SHIFT) - (s64)got;
	s64 most = 2 * (s64)(plat_knobs(h)->whole_core_us * US);

	w->behind_ns = clamp_s64(w->behind_ns + due, -most, most);
	w->entitled_ns += span;
}

/* It wants to run again. What it was behind or ahead fades as it sleeps: it did not want more. */
INLINE void charge_slept(struct world *w, u64 now)
{
	s64 slept = (s64)w->slept_ns;

	w->behind_ns -= clamp_s64(w->behind_ns, -slept, slept);
	w->entitled_ns = now;
}

/* What is charged of `d` ns that a world has run on a core of several threads. */
RARE_SUBPROG u64 charge_shared(NONNULL(struct host *h), NONNULL(struct world *w), u32 pcpu,
			       u64 now, u64 d)
{
	struct vm *v = plat_vm(h, w->vm);
	struct pcpu *p = plat_pcpu(h, pcpu);
	u64 lost;

	if (!v || !p)
		return d;
	lost = min_u64(busy_lost(h, p, now), d);
	w->lost_ns += lost;
	plat_add(&v->lost_ns, lost);
	charge_entitle(h, w, v, now, d - lost);
	return d - lost;
}

/* Charges the run since the last charge and refunds the committed slice. */
INLINE void charge_settle(struct host *h, plat_task *t, struct world *w, struct vm *v,
			  struct pcpu *p, u64 now, bool sleeps)
{
	u64 ran = now > w->run_since_ns ? now - w->run_since_ns : 0, exec = plat_exec(h, t);
	u64 d = exec > w->exec_ns ? exec - w->exec_ns : 0, scaled;
	u32 busy = plat_read(v->runnable), serve;

	plat_assert(h, v->weight >= WEIGHT_MIN);
	if (!d && ran > EXEC_LOST_NS)
		h->exec_lost = 1;
	w->run_since_ns += ran;
	w->exec_ns += d;
	w->used_ns += d;
	plat_assert_alone(h, w->exec_ns == exec && w->used_ns >= d);
	plat_add(&v->used_ns, d);
	if (cores_divided(h, plat_knobs(h)))
		d = charge_shared(h, w, p->id, now, d);
	scaled = (d << RATE_SHIFT) + w->remainder;
	w->remainder = scaled % v->weight;
	serve = sleeps ? budget_keep(h, v, w, d) : budget_stop(h, v, w, d);
	if (serve && with(LIMIT_LOOK))
		p->serve_limiter = serve;
	plat_add(&v->vt_ns, scaled / v->weight);
	if (w->commit_ns) {
		plat_assert(h, plat_read(v->committed_ns) >= w->commit_ns);
		plat_add(&v->committed_ns, -w->commit_ns);
		w->commit_ns = 0;
	}
	if (w->vm == VM_SYSTEM) {
		w->runtime_ns += w->nice_weight ? d * 100 / w->nice_weight : d;
	} else {
		w->runtime_ns += d;
		plat_add(&v->progress_ns, busy > 1 ? d / busy : d); /* off by under 1 ns a charge */
	}
	p->busy_ns += ran;
	lag_charged(h, plat_knobs(h), v);
}

/* Commits a slice that starts now. */
INLINE void charge_commit(struct host *h, struct world *w, struct vm *v, u64 slice_ns)
{
	plat_assert(h, !w->commit_ns);
	w->commit_ns = with(COMMIT) ? share_virtual(v, min_u64(slice_ns, SEC_NS)) : 0;
	plat_add(&v->committed_ns, w->commit_ns);
}

#endif
