/* Charges CPU time to worlds, VMs and pCPUs, and books the slice that is being run.
 *
 * Promise	every ns that a thread executed is charged once, to its world (VS51 "charging", P7); on a kernel by its own clock,
 *		as cpu.stat counts: from when it begins to choose whom to run, so from before RUN begins, and without
 *		interrupts where it counts these apart; in the simulator it is RUN
 * Law		used += d; vt += (d << 20 + remainder) / weight; the remainder stays with the world
 * Units	CPU time in ns; weight in 2^-20 pCPU
 * Example	d = 4 ms at weight 7 pCPUs: vt grows by 571,428 ns, 3,670,016 / 7,340,032 stays as remainder
 * Limits	d below 2^43 ns (2.4 hours); a slice is at most a second
 */
#ifndef TANDEM_CHARGE_H
#define TANDEM_CHARGE_H

#include "../policy/limit.h"

/* Charges the stretch since the last charge and takes back the commitment of the slice. */
hot void charge_settle(struct host *h, plat_task *t, struct world *w, struct vm *v, struct pcpu *p, u64 now)
{
	u64 stretch = now > w->run_since_ns ? now - w->run_since_ns : 0, exec = plat_exec(h, t);
	u64 d = exec > w->exec_ns ? exec - w->exec_ns : 0;
	u64 scaled = (d << RATE_SHIFT) + w->remainder;
	u32 busy = plat_read(v->runnable), limiter;

	w->run_since_ns += stretch;
	w->exec_ns += d;
	w->used_ns += d;
	w->remainder = scaled % v->weight;
	plat_add(&v->used_ns, d);
	if (limit_pay(h, v, w, d)) {
		limiter = limit_waited_at(h, plat_read(v->limiter));
		if (limiter && with(LIMIT_LOOK))
			p->limit_look = limiter; /* if nothing else is to be done here, somebody who waits there need not wait for the tick of limits */
	}
	plat_add(&v->vt_ns, scaled / v->weight);
	if (w->commit_ns) {
		plat_assert(h, plat_read(v->committed_ns) >= w->commit_ns);
		plat_add(&v->committed_ns, -w->commit_ns);
		w->commit_ns = 0;
	}
	if (w->vm == VM_SYSTEM) {
		w->lead_ns += w->nice_weight ? d * 100 / w->nice_weight : d;
	} else {
		w->lead_ns += d;
		plat_add(&v->progress_ns, busy > 1 ? d / busy : d); /* rounded down: under 1 ns a charge */
	}
	p->busy_ns += stretch;
	share_bound(h, plat_knobs(h), v, w->vm == VM_SYSTEM);
}

/* Books a slice that starts now. */
hot void charge_commit(struct world *w, struct vm *v, u64 slice_ns)
{
	u64 max = 1000000000ull;

	w->commit_ns = with(COMMIT) ? share_virtual(v, slice_ns < max ? slice_ns : max) : 0;
	plat_add(&v->committed_ns, w->commit_ns);
}

#endif
