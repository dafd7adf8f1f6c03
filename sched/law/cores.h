/* CPU time that cores of several threads have to give.
 *
 * Promise	entitlements are of cores: what is divided is what the worlds that want it can be
 *		charged together (VS51 "Policy on Hyper-Threading", H2)
 * Law		n worlds on c cores of t threads: n up to c; from there on each more shares a core,
 *		which is charged 2q in place of 1 (q = shared_charge), until no thread is left. A
 *		world that gets x of its time, more than the 2q / t of a core whose threads are all
 *		busy, must have a core alone for a part of it, in which the other threads idle: so
 *		2qc - (2q * (1 - 1/t) / (1 - 2q/t) - 1) * sum of (x - 2q/t) at most
 *		Where cores are not shared between VMs (account/holder.h): c, what is sure
 * Units	2^-20 pCPU
 * Example	2 cores of 2 threads, q = 0.625: 3 busy worlds have 2.25, 4 have 2.5. If one of the
 *		4 gets all of its time, it has a core alone, and all have 2.25
 * Limits	the sum is that of the last divisions. On cores of more than two threads a world
 *		could do with fewer of them idle
 */
#ifndef TANDEM_CORES_H
#define TANDEM_CORES_H

#include "units.h"

/* What a world is charged on a shared core, in thousandths: a core that is one VM's alone, as one
 * thread, for no other VM may use what it leaves. */
INLINE u64 cores_charge(const struct knobs *k)
{
	return k->core_sharing == SHARING_VM ? 500 : k->shared_charge;
}

/* Whether cores are divided, and not threads. */
INLINE bool cores_divided(const struct host *h, const struct knobs *k)
{
	return h->smt > 1 && cores_charge(k) < 1000;
}

/* Whether a world can have its core alone for what worlds of other VMs have had of it. */
INLINE bool cores_granted(const struct host *h, const struct knobs *k)
{
	return cores_divided(h, k) && k->core_sharing == SHARING_ANY;
}

/* What a thread is charged while all of its core are busy, in thousandths. */
INLINE u64 cores_shared(const struct host *h, const struct knobs *k)
{
	return cores_divided(h, k) ? 2 * cores_charge(k) / h->smt : 1000;
}

/* What there is for VMs that ask for `asked`, of `all` threads; h->beyond is the sum of
 * x - 2q/t. */
INLINE u64 cores_give(const struct host *h, const struct knobs *k, u64 all, u64 asked)
{
	u64 whole = min_u64((u64)h->cores << RATE_SHIFT, all), twins = min_u64(all - whole, whole);
	u64 beside = asked > whole ? min_u64(asked - whole, twins) : 0, q = k->shared_charge;
	u64 most = twins * (2 * q - 1000) / 1000, t = h->smt, shared = cores_shared(h, k), less;

	if (h->smt > 1 && k->core_sharing != SHARING_ANY)
		return whole;
	if (!cores_divided(h, k))
		return all;
	less = 2 * q * (t - 1) / t * 1000 / (1000 - shared);
	less = less > 1000 ? h->beyond * (less - 1000) / 1000 : 0;
	return whole + min_u64(beside * (2 * q - 1000) / 1000, most - min_u64(less, most));
}

/* What a VM gets beyond what shared cores would give it. */
INLINE u64 cores_beyond(const struct host *h, const struct knobs *k, u64 gets, u64 demand)
{
	u64 shared = demand * cores_shared(h, k) / 1000;

	return gets > shared ? gets - shared : 0;
}

/* Whether a world that is to get `each` of its time, in 2^-20, cannot have it on a shared core;
 * what is measured is off by a hundredth. */
INLINE bool cores_beyond_shared(const struct host *h, const struct knobs *k, u64 each)
{
	return each * 1010 >= cores_shared(h, k) << RATE_SHIFT;
}

#endif
