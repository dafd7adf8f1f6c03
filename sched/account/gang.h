/* Begin and end of gang slices; law/gang.h says how long they last.
 *
 * Promise	a VM has at most one gang slice at a time, and all its vCPUs run by its deadline
 */
#ifndef TANDEM_GANG_SLICE_H
#define TANDEM_GANG_SLICE_H

#include "../law/gang.h"
#include "../law/skew.h"

INLINE void gang_begin(struct vm *v, u32 vm, u64 now, u64 slice)
{
	/* no two VMs have the same */
	v->gang_key = with(GANG_KEY) ? share_vm_deadline(v) + vm : KEY_NONE;
	v->gang_since_ns = now;
	v->gang_end_ns = now + slice;
	v->gang_tries = 0;
}

/* A vCPU runs, with a slice before it: it begins a gang slice of its VM, or joins the one that is
 * under way, and runs to its end. */
INLINE void gang_run(struct host *h, plat_task *t, struct vm *v, const struct world *w, u64 now)
{
	const struct knobs *k = plat_knobs(h);
	u64 end = plat_read(v->gang_end_ns), slice = plat_slice(t), most;

	if (v->indices < 2 || k->cosched == COSCHED_OFF || !skew_is_vcpu(w))
		return;
	plat_assert(h, w->state == STATE_RUN);
	if (!plat_read(v->gang_key) || now >= end) {
		most = gang_slice(k, v, plat_read(v->runnable));
		if (slice > most)
			plat_set_slice(t, slice = most);
		plat_assert_alone(h, slice); /* a kick from elsewhere may have ended it */
		gang_begin(v, w->vm, now, slice);
	} else if (now + slice > end) {
		plat_set_slice(t, max_u64(end - now, k->slice_min_us * US));
	}
}

/* Ends a gang slice that is over; whether it has. */
INLINE bool gang_end(struct vm *v, u64 now)
{
	if (!gang_over(v, now))
		return false;
	v->gang_key = 0;
	return true;
}

#endif
