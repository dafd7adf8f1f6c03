/* Home nodes: the NUMA nodes where a world runs.
 *
 * Promise	a world that has a home runs in it alone (VS51 "NUMA Scheduling Policy", N1), within
 *		its affinity. A home where it can run on no pCPU now is dropped: user space gives it
 *		another, or the same again
 * Law		world.home: a bit for each node; all of them: it has none, and runs anywhere
 * Limits	64 nodes. Host tasks have none
 */
#ifndef TANDEM_HOME_H
#define TANDEM_HOME_H

#include "../platform/platform.h"

#define HOME_ANY (~0ull)

/* Whether a home lets a world run in a node. */
INLINE bool home_has(u64 home, u32 node) { return home >> (node & 63) & 1; }

INLINE bool home_lets(const struct world *w, u32 node) { return home_has(w->home, node); }

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
