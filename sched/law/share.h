/* Proportional share: virtual time, requests and deadlines of VMs, offsets and slices of worlds.
 *
 * Promise	VMs that want CPU time receive it in the ratio of their entitlements; sleepers lose
 *		nothing and save up little
 * Law		vt += used / entitlement; lag = host's v - vt; deadline = vt + request;
 *		the earliest deadline runs next (VS51, P2; EEVDF: Stoica and Abdel-Wahab 1995)
 * Units	ns of virtual time: a VM that gets exactly its entitlement advances 1 ns per ns
 * Example	a (1 pCPU entitled) and b (7) on 8 pCPUs: a slice of 50 ms commits 50 ms to a but
 *		7.1 ms to b, so b is picked seven times as often
 * Limits	a slice is committed when it starts and settled when it ends, so all pCPUs see it
 *		at once; account/lag.h bounds lag; entitlements below 1/1024 pCPU count as 1/1024
 */
#ifndef TANDEM_SHARE_H
#define TANDEM_SHARE_H

#include "units.h"

#define KEY_NONE (~0ull)
/* 1/1024 pCPU: keeps inverse below 2^30, so that ns * inverse fits 64 bits */
#define WEIGHT_MIN (1ull << 10)
/* virtual time of an empty host; deadlines may go below it without wrapping */
#define V_START (1ull << 50)
/* four quanta: siblings further apart are not drawn together any faster */
#define OFFSET_MAX_NS 200000000ll
/* OFFSET_MAX_NS * this fits 63 bits */
#define OFFSET_INVERSE_MAX (1ull << 34)

_Static_assert((WEIGHT_MIN << 30) == (1ull << 40), "inverse = 2^40 / weight <= 2^30");
_Static_assert(OFFSET_MAX_NS < (1ll << 28), "offset * offset_inverse < 2^62");

/* Virtual time of `ns` of CPU time, at most 2^30, rounded down. */
INLINE u64 share_virtual(const struct vm *v, u64 ns)
{
	return ns * v->inverse >> RATE_SHIFT;
}

/* Virtual time of a VM's request: a quantum. A VM that gets all or nearly all that it asks for, or
 * its reservation, or is below a limit, cannot make up for a wait later: while it lags its request
 * is 0, so its deadline is its virtual time. */
INLINE u64 share_request(const struct host *h, const struct knobs *k, const struct vm *v,
			 bool satisfied)
{
	bool lags = (s64)(h->v_ns - plat_read(v->vt_ns)) > 0;

	return satisfied && lags && with(REQUEST) ? 0 : k->quantum_us * US;
}

/* Deadline of a VM: its virtual time, committed slices included, and its request. */
INLINE u64 share_vm_deadline(const struct vm *v)
{
	return plat_read(v->vt_ns) + plat_read(v->committed_ns) + plat_read(v->request_ns);
}

/* Offset of a world from its VM's deadline: an eighth of what full equality of the siblings' CPU
 * time would ask for, so that siblings are drawn together and the VM's own share is not blurred. */
INLINE s64 share_offset(const struct vm *v, const struct world *w)
{
	s64 ahead = (s64)(w->runtime_ns - plat_read(v->progress_ns));

	if (w->vm == VM_SYSTEM || !with(LEAD))
		return 0;
	ahead = clamp_s64(ahead, -v->offset_max_ns, v->offset_max_ns);
	return ahead * (s64)v->offset_inverse >> RATE_SHIFT;
}

/* The earlier of a deadline and the deadline of the VM's gang slice under way (law/gang.h). */
INLINE u64 share_gang(const struct vm *v, u64 deadline)
{
	u64 gang = plat_read(v->gang_key);

	return gang - 1 < deadline ? gang : deadline; /* 0 is none */
}

/* Deadline of a world now. */
INLINE u64 share_deadline(const struct vm *v, const struct world *w)
{
	return share_gang(v, share_vm_deadline(v)) + (u64)share_offset(v, w);
}

/* Deadline that a world is queued with: a lower bound of its deadline while it waits, since settled
 * virtual time only grows; so without committed slices and request. A new plan may rescale the lag
 * of a VM that is far ahead: beyond the bound on lag only a 64th of the distance counts, which
 * keeps the order of such VMs. */
INLINE u64 share_queued(const struct host *h, const struct knobs *k, const struct vm *v,
			const struct world *w)
{
	u64 deadline = share_gang(v, plat_read(v->vt_ns)) + (u64)share_offset(v, w);
	u64 bound = k->lag_bound_us * US, most = plat_read(h->v_ns) + bound;

	if (deadline <= most || !with(KEY_DAMP))
		return deadline;
	return most + min_u64((deadline - most) >> 6, bound);
}

/* Quantum of a world. */
INLINE u64 share_quantum(const struct knobs *k, const struct world *w)
{
	return (w->vm == VM_SYSTEM ? k->system_slice_us : k->quantum_us) * US;
}

#endif
