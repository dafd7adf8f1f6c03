/* Idle pCPUs: one bit each, reserved by compare and swap.
 *
 * Promise	an idle pCPU is reserved by one caller at a time
 * Law		a set bit: the pCPU is on line, runs nothing and is not reserved
 */
#ifndef TANDEM_IDLE_H
#define TANDEM_IDLE_H

#include "../platform/platform.h"

/* Cores of so many threads among neighbouring bits. A mask that is and-ed with itself shifted by
 * each fold has a core's bit where all its threads have theirs. A table, unlike branches, leaves a
 * verifier one path. */
struct idle_core {
	u64 first; /* mask of first threads */
	u8 threads;
	u8 fold[3];
};

/* Odd machines: a thread counts as a core. */
#define IDLE_THREAD { ~0ull, 1, { 0, 0, 0 } }
static const struct idle_core idle_core_of[16] = {
	IDLE_THREAD, IDLE_THREAD,
	{ 0x5555555555555555ull, 2, { 1, 0, 0 } },
	{ 0x9249249249249249ull, 3, { 1, 1, 0 } },
	{ 0x1111111111111111ull, 4, { 1, 2, 0 } },
	IDLE_THREAD, IDLE_THREAD, IDLE_THREAD,
	{ 0x0101010101010101ull, 8, { 1, 2, 4 } },
	IDLE_THREAD, IDLE_THREAD, IDLE_THREAD, IDLE_THREAD, IDLE_THREAD, IDLE_THREAD, IDLE_THREAD,
};

INLINE const struct idle_core *idle_core(u32 smt)
{
	return &idle_core_of[smt & 15];
}

/* First threads of cores all of whose threads are in `idle`. */
INLINE u64 idle_cores(const struct cluster *c, u32 smt, u64 idle)
{
	const struct idle_core *of = idle_core(smt);
	u64 whole = idle | ~c->present;

	whole &= whole >> of->fold[0];
	whole &= whole >> of->fold[1];
	whole &= whole >> of->fold[2];
	return whole & of->first & idle;
}

/* Threads of cores that idle as a whole: a thread may be allowed whose core's first is not. */
INLINE u64 idle_whole(const struct cluster *c, u32 smt, u64 idle)
{
	const struct idle_core *of = idle_core(smt);
	u64 all = idle_cores(c, smt, idle);

	all |= all << of->fold[0];
	all |= all << of->fold[1];
	all |= all << of->fold[2];
	return all & idle;
}

/* Whether the pCPU of `bit` is idle and so are the other threads of its core. */
INLINE bool idle_on_core(const struct cluster *c, u32 smt, u64 idle, u32 bit)
{
	u64 own = 1ull << (bit & 63);

	if (!(idle & own) || !with(WHOLE_CORE))
		return idle & own;
	own >>= (bit & 63) % idle_core(smt)->threads; /* the core's first thread stands for it */
	return idle_cores(c, smt, idle) & own;
}

/* rounds of housekeeping in the mean of a cluster's load */
#define LOAD_ROUNDS 16

/* How many pCPUs of a cluster are busy, in 256ths of them. */
SUBPROG u32 idle_load(NONNULL(struct cluster *c))
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
