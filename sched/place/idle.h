/* Idle pCPUs: one bit each, reserved by compare and swap.
 *
 * Promise	an idle pCPU is reserved by one caller at a time
 * Law		a set bit: the pCPU is on line, runs nothing and is not reserved
 */
#ifndef TANDEM_IDLE_H
#define TANDEM_IDLE_H

#include "../platform/platform.h"

/* First threads of cores among neighbouring bits. */
INLINE u64 idle_first_threads(u32 smt)
{
	switch (smt) {
	case 2: return 0x5555555555555555ull;
	case 3: return 0x9249249249249249ull;
	case 4: return 0x1111111111111111ull;
	case 8: return 0x0101010101010101ull;
	default: return ~0ull; /* 1, and odd machines: a thread counts as a core */
	}
}

/* First threads of cores all of whose threads are in `idle`. */
INLINE u64 idle_cores(const struct cluster *c, u32 smt, u64 idle)
{
	u64 free = idle | ~c->present, whole = free, first = idle_first_threads(smt);

	if (first != ~0ull)
		for (u32 k = 1; k < 8 && k < smt; k++)
			whole &= free >> k;
	return whole & first & idle;
}

/* Threads of cores that idle as a whole: a thread may be allowed whose core's first is not. */
INLINE u64 idle_whole(const struct cluster *c, u32 smt, u64 idle)
{
	u64 cores = idle_cores(c, smt, idle), all = cores;

	if (idle_first_threads(smt) != ~0ull)
		for (u32 k = 1; k < 8 && k < smt; k++)
			all |= cores << k;
	return all & idle;
}

/* Whether the pCPU of `bit` is idle and so are the other threads of its core. */
INLINE bool idle_on_core(const struct cluster *c, u32 smt, u64 idle, u32 bit)
{
	u64 own = 1ull << (bit & 63);

	if (!(idle & own) || smt == 1 || !with(WHOLE_CORE))
		return idle & own;
	if (idle_first_threads(smt) != ~0ull)
		own >>= bit % smt; /* the core's first thread stands for it */
	return idle_cores(c, smt, idle) & own;
}

/* How many pCPUs of a cluster are busy, in 256ths of them. */
INLINE u32 idle_load(const struct cluster *c)
{
	u64 present = plat_read(c->present);
	u32 all = (u32)__builtin_popcountll(present);
	u32 busy = (u32)__builtin_popcountll(present & ~plat_read(c->idle));

	return all ? busy * 256 / all : 256;
}

/* Whether the pCPU of `bit` is on line. */
INLINE bool idle_online(const struct cluster *c, u32 bit)
{
	return plat_read(c->present) >> (bit & 63) & 1;
}

/* Whether the pCPU of `bit` is kept for another thread of its core. */
INLINE bool idle_kept(const struct cluster *c, u32 bit)
{
	return plat_read(c->kept) >> (bit & 63) & 1;
}

INLINE bool idle_has(const struct cluster *c, u32 bit)
{
	return plat_read(c->idle) >> (bit & 63) & 1;
}

/* Reserves an idle pCPU; only one caller gets it. */
INLINE bool idle_reserve(struct cluster *c, u32 bit)
{
	u64 one = 1ull << (bit & 63);

	if (!(plat_read(c->idle) & one))
		return false;
	return plat_fetch_and(&c->idle, ~one) & one;
}

/* A pCPU begins to idle; one that goes off line does so for the last time. */
INLINE void idle_set(struct cluster *c, u32 bit)
{
	plat_or(&c->idle, plat_read(c->present) & ~plat_read(c->kept) & 1ull << (bit & 63));
}

/* A pCPU no longer idles; the waker has mostly reserved it already. */
INLINE void idle_clear(struct cluster *c, u32 bit)
{
	if (idle_has(c, bit))
		plat_fetch_and(&c->idle, ~(1ull << (bit & 63)));
}

/* Returns a reserved pCPU that is not needed. */
INLINE void idle_return(struct host *h, u32 pcpu)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (c && !plat_read(p->current_world))
		idle_set(c, p->bit);
}

#endif
