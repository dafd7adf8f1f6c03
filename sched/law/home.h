/* Homes: the NUMA nodes, or the LLCs of a node, where a world runs.
 *
 * Promise	a world that has a home runs in it alone (VS51 "NUMA Scheduling Policy", N1), within
 *		its affinity. A home where it can run on no pCPU now is dropped: user space gives it
 *		another, or the same again
 * Law		world.home: a bit for each domain, which is an LLC, or a node where nodes share an
 *		LLC or the host has more than 64 LLCs; all of them: it has none, and runs anywhere
 * Limits	64 domains. Host tasks have none
 */
#ifndef TANDEM_HOME_H
#define TANDEM_HOME_H

#include "../platform/platform.h"

#define HOME_ANY (~0ull)

/* Whether a home lets a world run in a domain. */
INLINE bool home_has(u64 home, u32 domain) { return home >> (domain & 63) & 1; }

INLINE bool home_lets(const struct world *w, u32 domain) { return home_has(w->home, domain); }

/* Home of a thread's world. */
RARE_SUBPROG u64 home_of(NONNULL(struct host *h), TRUSTED_TASK(t))
{
	struct world *w = plat_world_of(h, t);

	return w ? w->home : HOME_ANY;
}

INLINE u64 home_mask(struct host *h, plat_task *t)
{
	return plat_read(h->homes) ? home_of(h, t) : HOME_ANY;
}

#endif
