/* Numbers with a fixed meaning: the system group, no world, queues. */
#ifndef TANDEM_IDS_H
#define TANDEM_IDS_H

#include "caps.h"

/* the group of all host tasks */
#define VM_SYSTEM 0
/* no world: nothing found */
#define WORLD_NONE 0

/* Queues, by number: two of each pCPU, one for worlds of VMs and one for host tasks; the parked
 * worlds of each limiter; the co-stopped vCPUs of each VM. */
#define QUEUE_VM(pcpu) ((u64)(pcpu))
#define QUEUE_SYSTEM(pcpu) ((u64)(pcpu) + PCPUS_MAX)
#define QUEUE_PARKED(limiter) ((u64)(limiter) + 2 * PCPUS_MAX)
#define QUEUE_COSTOP(vm) ((u64)(vm) + 3 * PCPUS_MAX)

/* world.queued_on of a parked world: this plus its limiter */
#define QUEUED_PARKED (2 * PCPUS_MAX + 1)
/* world.queued_on of a co-stopped vCPU: this plus its VM */
#define QUEUED_COSTOP (QUEUED_PARKED + LIMITERS_MAX)

/* limiter.inflight holds two sums, so that one atomic add moves both: the number of running worlds,
 * and their start stamps, each modulo 2^43 ns (2.4 hours). 2^10 stamps fit below the count. */
#define BUDGET_STAMP_BITS 43
#define BUDGET_COUNT_SHIFT 53

#endif
