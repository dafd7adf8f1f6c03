/* The record of a trace: one decision or change of state in 32 bytes. crates/trace (raw.rs, why.rs)
 * reads it; a test of crates/sim holds every number here to the ones there. What comes with each
 * change of state or each queueing is in the same record, for the number of records is the cost.
 *
 * kind		world		a				b
 * state	the world	from | to << 8 | why << 16 |	by also (enum trace_also), else 0
 *				also << 24 | pCPU << 32
 *   woken							the waker, if a world |
 *								enum trace_waker << 32 |
 *								pCPU it was on << 48
 *   moved							pCPU before | enum trace_move << 16
 * wake		the woken	enum trace_waker		the waker, if a world
 * queued	the world	its deadline			pCPU, or limit | 1 << 32; for a
 *								kick also from << 16 |
 *								how + 1 << 40 | pCPU kicked << 48
 * unqueued	the world	0				0
 * migrate	the world	from | to << 16 | why << 32	0
 * idle		0		1 begins, 0 ends		0
 * kick		0		the pCPU kicked | how << 16	0
 * account	the VM		CPU time charged so far, ns	weight, 2^-20 pCPU
 * lost		0		how many | 1 << 32		0
 * guest	the vCPU	1 enters its guest, 0 leaves	0
 * home		the world	a bit for each domain, or all		0
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
	TRACE_IDLE = 7,		/* the pCPU begins or ends to idle (enum trace_idles) */
	TRACE_KICK = 8,		/* a pCPU was kicked */
	TRACE_ACCOUNT = 11,	/* what a VM has used and is entitled to */
	TRACE_LOST = 17,	/* records are missing */
	TRACE_GUEST = 19,	/* a vCPU enters its guest, or leaves it for its emulator */
	TRACE_HOME = 20,	/* a world has another home (law/home.h) */
};
/* Why a world changed its state. */
enum trace_why {
	WHY_UNKNOWN = 0,
	WHY_QUANTUM = 1,	/* its quantum ended */
	WHY_PREEMPTED = 2,	/* a world of an earlier deadline took the pCPU */
	WHY_SLEPT = 3,		/* of its own accord */
	WHY_WOKEN = 4,
	WHY_YIELDED = 5,	/* it spins, and gave the pCPU to the sibling that it waits for */
	WHY_PARKED = 6,		/* a limit holds it back */
	WHY_RELEASED = 7,	/* a limit admits it again */
	WHY_MIGRATED = 8,	/* it makes room here and goes elsewhere */
	WHY_RESCUED = 9,	/* it had waited too long */
	WHY_PICKED = 10,	/* it had the earliest deadline */
	WHY_SKEWED = 11,	/* its siblings are behind */
	WHY_BORN = 12,
	WHY_GONE = 13,
	WHY_CAUGHT_UP = 15,	/* they have caught up */
	WHY_TAKEN = 16,		/* a task of a higher scheduling class took the pCPU */
};
/* Why a world runs on another pCPU than before. */
enum trace_move {
	MOVE_OTHER = 0,
	MOVE_WAKE = 1,		/* chosen when it woke */
	MOVE_PULL = 2,		/* the pCPU took it from another's queue */
	MOVE_SWAP = 3,		/* it made room for one that may run nowhere else */
	MOVE_AFFINITY = 4,	/* it may not run where it was any more */
	MOVE_SPREAD = 5,	/* it shared a core, and a whole one idled */
	MOVE_HOME = 6,		/* its home is another node now */
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
#define TRACE_STATE_UNKNOWN 255	/* the state before is unknown */
/* period of the records of accounts: ten points a second draw a curve */
#define TRACE_ACCOUNT_NS 100000000

/* One record: little endian, no padding. */
struct trace_record {
	u64 ns;			/* when, by the scheduler's clock */
	u32 world;		/* or the VM */
	u16 kind;		/* enum trace_kind */
	u16 pcpu;		/* where it happened, TRACE_NOWHERE if nowhere */
	u64 a;
	u64 b;
};

/* Head of the ring of one pCPU; TRACE_RECORDS records follow. A program takes a slot, fills it,
 * and last writes the word of world, kind and pCPU, which is never 0. The recorder reads up to the
 * first such word that is 0, writes 0 to those it has read, and then gives the slots back. */
struct trace_ring {
	/* --- programs on that pCPU (atomic adds) --- */

	/* slots taken so far */
	u64 head;
	/* records that found no room so far, exactly */
	u64 lost;
	/* of these, counted by a record of kind lost, which follows once there is room again */
	u64 told;
	/* when the first of the others was lost (a hint) */
	u64 since_ns;
	/* the recorder's word has a cache line of its own */
	u64 pad_head[4];

	/* slots given back (the recorder writes) */
	u64 tail;
	u64 pad_tail[7];
};

_Static_assert(sizeof(struct trace_record) == 32, "what raw.rs reads");
_Static_assert((TRACE_RECORDS & (TRACE_RECORDS - 1)) == 0, "a slot is a mask of whole bits");

/* How a pCPU idles, in TRACE_IDLE. */
enum trace_idles {
	IDLES_NOT = 0,
	IDLES = 1,
	/* so that a world has the core alone */
	IDLES_KEPT = 3,
};

#endif
