/* The record of a trace: one decision or change of state in 32 bytes, in the ring of a pCPU or handed to the simulator.
 * crates/trace (raw.rs, why.rs) reads it; a test of crates/sim holds every number here to the ones there. It decides nothing.
 * What comes with a change of state or with being queued each time is in the same record, for a record is what costs.
 *
 * kind		world		a						b
 * state	the world	from | to << 8 | why << 16 | also << 24 | pCPU << 32	by also (enum trace_also), else 0
 *   woken							the waker, if a world | enum trace_waker << 32 | pCPU it was on << 48
 *   moved							the pCPU before | enum trace_move << 16
 * wake		the woken	enum trace_waker				the waker, if a world
 * queued	the world	its key						pCPU, or limit | 1 << 32; with a kick for its sake also
 *								from << 16 | how + 1 << 40 | the pCPU kicked << 48
 * unqueued	the world	0						0
 * migrate	the world	from | to << 16 | why << 32			0
 * idle		0		1 begins, 0 ends				0
 * kick		0		the pCPU kicked | how << 16			0
 * account	the VM		CPU time charged so far, ns			weight, 2^-20 pCPU
 * lost		0		how many | 1 << 32				0
 * guest	the vCPU	1 it enters its guest, 0 leaves it		0
 */
#ifndef TANDEM_TRACE_RECORD_H
#define TANDEM_TRACE_RECORD_H

/* What happened. Numbers stay: files have them. */
enum trace_kind {
	TRACE_STATE = 1,	/* a world changed its state */
	TRACE_WAKE = 2,		/* a world was woken */
	TRACE_QUEUED = 3,	/* a READY world was put into a queue */
	TRACE_UNQUEUED = 4,	/* and taken out of it */
	TRACE_MIGRATE = 5,	/* a world runs on another pCPU than before */
	TRACE_IDLE = 7,		/* the pCPU begins or ends to idle */
	TRACE_KICK = 8,		/* a pCPU was kicked */
	TRACE_ACCOUNT = 11,	/* what a VM has used and is entitled to */
	TRACE_LOST = 17,	/* records are missing */
	TRACE_GUEST = 19,	/* a vCPU enters its guest, or leaves it for its emulator */
};
/* Why a world changed its state. */
enum trace_why {
	WHY_UNKNOWN = 0,
	WHY_QUANTUM = 1,	/* its quantum ended */
	WHY_PREEMPTED = 2,	/* somebody owed more took the pCPU */
	WHY_SLEPT = 3,		/* of its own accord */
	WHY_WOKEN = 4,
	WHY_YIELDED = 5,	/* it spins, and gave the pCPU to the sibling that it waits for */
	WHY_PARKED = 6,		/* a limit holds it back */
	WHY_RELEASED = 7,	/* a limit lets it go */
	WHY_MIGRATED = 8,	/* it makes room here and goes elsewhere */
	WHY_RESCUED = 9,	/* it had waited too long */
	WHY_PICKED = 10,	/* its turn came */
	WHY_SKEWED = 11,	/* its siblings are behind */
	WHY_BORN = 12,
	WHY_GONE = 13,
	WHY_CAUGHT_UP = 15,	/* they have caught up */
};
/* Why a world runs on another pCPU than before. */
enum trace_move {
	MOVE_OTHER = 0,
	MOVE_WAKE = 1,		/* chosen when it woke */
	MOVE_PULL = 2,		/* the pCPU took it from another's queue */
	MOVE_SWAP = 3,		/* it made room for one that may run nowhere else */
	MOVE_AFFINITY = 4,	/* it may not run where it was any more */
};
/* What else a change of state tells: the events before it. */
enum trace_also {
	ALSO_WOKEN = 1,		/* b tells of the wake-up */
	ALSO_MOVED = 2,		/* b tells of the migration */
	ALSO_LEFT = 4,		/* it waited in a queue until now */
};
enum trace_waker { WAKER_UNKNOWN, WAKER_INTERRUPT, WAKER_WORLD };
enum trace_how { TRACE_KICK_IDLE, TRACE_KICK_PREEMPT };

#include "caps.h"

#define TRACE_NOWHERE 65535	/* no pCPU */
#define TRACE_STATE_UNKNOWN 255	/* state before that nobody knows */
#define TRACE_ACCOUNT_NS 100000000	/* how often accounts are told: ten points a second draw a curve */

/* One record: little endian, no padding. */
struct trace_record {
	u64 ns;			/* when, by the scheduler's clock */
	u32 world;		/* or the VM */
	u16 kind;		/* enum trace_kind */
	u16 pcpu;		/* where it happened, TRACE_NOWHERE if nowhere */
	u64 a;
	u64 b;
};

/* Head of the ring of one pCPU, in which TRACE_RECORDS records follow. Programs take a slot, fill it, and at last write the
 * word of world, kind and pCPU, which is never 0; the recorder reads up to the first such word that is 0, writes 0 there
 * again, and then gives the slots back. */
struct trace_ring {
	u64 head;		/* slots taken so far (atomic adds of programs on that pCPU) */
	u64 lost;		/* records that found no room so far, exactly (likewise) */
	u64 told;		/* of which a record of kind lost tells: it follows once there is room again (likewise) */
	u64 since_ns;		/* when the first was lost that is not told of (a hint, of programs on that pCPU) */
	u64 pad_head[4];	/* the recorder's word has a cache line of its own */
	u64 tail;		/* slots given back (the recorder writes) */
	u64 pad_tail[7];
};

_Static_assert(sizeof(struct trace_record) == 32, "what raw.rs reads");
_Static_assert((TRACE_RECORDS & (TRACE_RECORDS - 1)) == 0, "a slot is a mask of whole bits");

#endif
