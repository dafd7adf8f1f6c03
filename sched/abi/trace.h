/* The record of a trace: one decision or change of state in 32 bytes, in a kernel's ring buffer or handed to the simulator.
 * crates/trace (raw.rs, why.rs) reads it; a test of crates/sim holds every number here to the ones there. It decides nothing.
 *
 * kind		world		a						b
 * state	the world	from | to << 8 | why << 16 | pCPU << 32		0
 * wake		the woken	enum trace_waker				the waker, if a world
 * queued	the world	its key						pCPU, or limit | 1 << 32
 * unqueued	the world	0						0
 * migrate	the world	from | to << 16 | why << 32			0
 * idle		0		1 begins, 0 ends				0
 * kick		0		the pCPU kicked | how << 16			0
 * account	the VM		CPU time charged so far, ns			weight, 2^-20 pCPU
 * lost		0		how many | 1 << 32				0
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
};
/* Why a world changed its state. */
enum trace_why {
	WHY_UNKNOWN = 0,
	WHY_QUANTUM = 1,	/* its quantum ended */
	WHY_PREEMPTED = 2,	/* somebody owed more took the pCPU */
	WHY_SLEPT = 3,		/* of its own accord */
	WHY_WOKEN = 4,
	WHY_PARKED = 6,		/* a limit holds it back */
	WHY_RELEASED = 7,	/* a limit lets it go */
	WHY_MIGRATED = 8,	/* it makes room here and goes elsewhere */
	WHY_RESCUED = 9,	/* it had waited too long */
	WHY_PICKED = 10,	/* its turn came */
	WHY_BORN = 12,
	WHY_GONE = 13,
};
/* Why a world runs on another pCPU than before. */
enum trace_move {
	MOVE_OTHER = 0,
	MOVE_WAKE = 1,		/* chosen when it woke */
	MOVE_PULL = 2,		/* the pCPU took it from another's queue */
	MOVE_SWAP = 3,		/* it made room for one that may run nowhere else */
	MOVE_AFFINITY = 4,	/* it may not run where it was any more */
};
enum trace_waker { WAKER_UNKNOWN, WAKER_INTERRUPT, WAKER_WORLD };
enum trace_how { TRACE_KICK_IDLE, TRACE_KICK_PREEMPT };

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

/* Records of one pCPU that found no room in the ring buffer (atomic adds of programs on that pCPU). */
struct trace_lost {
	u64 lost;		/* so far, exactly */
	u64 told;		/* of which a record of kind lost tells: it follows once there is room again */
	u64 since_ns;		/* when the first was lost that is not told of */
	u64 pad64;
};

_Static_assert(sizeof(struct trace_record) == 32, "what raw.rs reads");

#endif
