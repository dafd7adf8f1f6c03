/* Blocks of pCPUs: each has timers of its own, for the VMs and limits that belong to it. */
#ifndef TANDEM_BLOCKS_H
#define TANDEM_BLOCKS_H

#include "../law/units.h"

/* Blocks of the host, the last of which may have fewer than BLOCK_PCPUS pCPUs. */
INLINE u32 blocks_of(const struct host *h)
{
	return (h->pcpus + BLOCK_PCPUS - 1) / BLOCK_PCPUS;
}

#endif
