/* Blocks of pCPUs: each has timers of its own, for the VMs and limits that belong to it.
 *
 * Promise	no pCPU has two of a block's tick of co-scheduling, its part of the tick of limits,
 *		and housekeeping, each of which is 2 % of a pCPU at most
 *		(crates/sim/tests/big_hosts.rs)
 * Limits	where a block has too few pCPUs on line, what none may take stays with housekeeping.
 *		A kernel moves housekeeping away from a pCPU that idles, to any that does not
 */
#ifndef TANDEM_BLOCKS_H
#define TANDEM_BLOCKS_H

#include "../law/units.h"

/* Blocks of the host, the last of which may have fewer than BLOCK_PCPUS pCPUs. */
INLINE u32 blocks_of(const struct host *h)
{
	return (h->pcpus + BLOCK_PCPUS - 1) / BLOCK_PCPUS;
}

enum block_timer { BLOCK_COSCHED = 1, BLOCK_LIMITS = 2 };

/* A block's timers. The housekeeper starts them, and pCPUs of the block that ask what to run take
 * them over. */
struct block_timers {
	u16 cosched, limits;	/* pCPU that has taken it, plus 1; 0 while none has */
	u8 unclaimed;		/* enum block_timer */
};

/* The timer that a pCPU of the block takes over while housekeeping is at pCPU `house`; 0: none. */
INLINE u32 block_claims(const struct block_timers *b, u32 pcpu, u32 house)
{
	if (pcpu == house)
		return 0;
	if (b->unclaimed & BLOCK_COSCHED && b->limits != pcpu + 1)
		return BLOCK_COSCHED;
	if (b->unclaimed & BLOCK_LIMITS && b->cosched != pcpu + 1)
		return BLOCK_LIMITS;
	return 0;
}

/* A pCPU has taken a timer over. */
INLINE void block_claimed(struct block_timers *b, u32 timer, u32 pcpu)
{
	b->unclaimed &= (u8)~timer;
	if (timer == BLOCK_COSCHED)
		b->cosched = (u16)(pcpu + 1);
	else
		b->limits = (u16)(pcpu + 1);
}

/* A timer is at the housekeeper's pCPU, or lost, until one of the block takes it over. */
INLINE void block_unclaimed(struct block_timers *b, u32 timer)
{
	if (timer == BLOCK_COSCHED)
		b->cosched = 0;
	else
		b->limits = 0;
	b->unclaimed |= (u8)timer;
}

#endif
