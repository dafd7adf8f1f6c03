/* Strict co-scheduling (ESX 2.x), a mode of the simulator to compare with: a VM stops and starts
 * whole.
 *
 * Promise	all vCPUs of a VM run together or none does (VS51 "Strict Co-Scheduling", C1)
 * Law		stop all if one leads another by more than costop_us; start all when there is a pCPU
 *		for each that wants one, or after ready_bound_us
 * Limits	each pCPU of the host is looked at for each stopped VM and tick
 */
#ifndef TANDEM_STRICT_H
#define TANDEM_STRICT_H

#include "../account/lag.h"
#include "gang.h"

/* pCPUs that a VM could have at once: idle ones, and those where it preempts. */
INLINE u32 strict_room(struct host *h, struct siblings_look *s)
{
	struct vm *v = plat_vm(h, s->vm);

	s->seen = 0;
	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = v && i < h->pcpus ? plat_pcpu(h, i) : NULL;
		struct cluster *on = p ? plat_cluster(h, p->cluster) : NULL;

		if (!p)
			break;
		if (on && (idle_has(on, p->bit) ||
			   gang_preempts(h, p, s->vm, share_vm_deadline(v), s->now_ns)))
			s->seen++;
	}
	return s->seen;
}

INLINE void strict_stop(struct host *h, struct siblings_look *s)
{
	struct vm *v = plat_vm(h, s->vm);

	if (!v)
		return;
	if (!v->stopped)
		v->stopped_ns = s->now_ns;
	v->stopped = 1;
	v->gang_key = 0;
	plat_for(i, VCPUS_MAX) {
		struct world *w;

		if (i >= s->count)
			break;
		w = siblings_see(h, s, i) && s->state == STATE_RUN ? plat_world(h, s->world) : NULL;
		if (w)
			siblings_ask(h, w, true, COSTOP_ASKED);
	}
}

/* Starts a VM, none of its vCPUs ahead of another. A VM stopped for longer than the bound starts
 * on the pCPUs there are, and its lag is clamped to 0: lag that it cannot use would take pCPUs
 * from VMs that are entitled to them. */
INLINE void strict_start(struct host *h, struct siblings_look *s, bool whole)
{
	struct vm *v = plat_vm(h, s->vm);

	if (!v)
		return;
	plat_assert(h, v->stopped);
	v->stopped = 0;
	plat_for(i, VCPUS_MAX) {
		struct world *w;

		if (i >= s->count)
			break;
		w = siblings_see(h, s, i) ? plat_world(h, s->world) : NULL;
		if (w)
			w->stalled_base_ns += s->slowest_ns - s->stalled_ns;
	}
	if (!whole) {
		lag_clamp(h, v, 0);
		return;
	}
	gang_begin(v, s->vm, s->now_ns, gang_slice(plat_knobs(h), v, s->busy));
}

/* Idle pCPUs look for those that were READY when their VM was stopped: they are where they waited,
 * or on their way. */
INLINE void strict_wake(struct host *h)
{
	plat_for(i, PCPUS_MAX) {
		struct pcpu *p = i < h->pcpus ? plat_pcpu(h, i) : NULL;
		struct cluster *on = p ? plat_cluster(h, p->cluster) : NULL;

		if (!p)
			break;
		if (on && plat_read(on->queued) && idle_reserve(on, p->bit))
			trace_kick(h, p->id, KICK_IDLE, WHY_UNKNOWN);
	}
}

INLINE void strict_tick(struct host *h, struct siblings_look *s)
{
	struct vm *v = plat_vm(h, s->vm);
	const struct knobs *k = plat_knobs(h);

	if (!v)
		return;
	if (!v->stopped && s->waiting && s->slowest_ns - s->ahead_ns > k->costop_us * US) {
		strict_stop(h, s);
	} else if (v->stopped && s->now_ns - v->stopped_ns > k->ready_bound_us * US) {
		strict_start(h, s, false);
		siblings_start(h, s);
	} else if (v->stopped && s->busy && strict_room(h, s) >= s->busy) {
		strict_start(h, s, true);
		siblings_start(h, s);
		gang_place(h, s);
		strict_wake(h);
	} else if (v->stopped) {
		strict_stop(h, s); /* those that run still */
	} else if (plat_read(v->costopped)) {
		siblings_start(h, s); /* those that came when it had just been started */
	}
}

#endif
