/* Traces: tells a recorder what was decided, where it was decided.
 *
 * Promise	every change of state of every world, in order and by the clock of the accounts: the
 *		sums are the same to the ns (crates/sim/tests/trace.rs); each queueing, wake-up,
 *		migration and preemption, with a reason
 * Law		without a recorder: one load and one branch that is not taken, for each callback;
 *		with one: a record of 32 bytes for each change of state and each queueing, which
 *		holds what belongs to it. Three for a wake-up that runs and sleeps again
 * Units	ns of the scheduler's clock
 * Limits	reasons of a stop and of a pick are noted in the pCPU's record, where another pCPU
 *		may write at the same time: a reason may be wrong then, a state never. A world that
 *		is inserted into a local queue is not traced as queued: READY names the pCPU. The
 *		begin of idling is traced only if no world stopped there just before. Where a kernel
 *		passes wake-ups on to the pCPU of the woken, the world that runs there is named as
 *		the waker, or an interrupt
 */
#ifndef TANDEM_TRACE_H
#define TANDEM_TRACE_H

#include "../law/home.h"
#include "../platform/platform.h"

#define TRACE_KNOWN (1ull << 32) /* the number below it is known, or is a limit's */

INLINE bool trace_on(const struct host *h)
{
	return __builtin_expect(plat_read(h->tracing) != 0, 0);
}

/* Bytes of a pCPU's note: why its running world will stop, why the next was picked and comes from
 * elsewhere, and whether the trace has that the pCPU idles. Each is written alone. */
enum note { NOTE_STOP, NOTE_PICK, NOTE_MOVE, NOTE_IDLE };
#define TRACE_NOTE(p, note) (((u8 *)&(p)->trace_note)[note])

INLINE u64 trace_head(u32 kind, u32 world, u32 pcpu)
{
	return world | (u64)kind << 32 | (u64)(pcpu & TRACE_NOWHERE) << 48;
}

/* Hands a record over; `head` by trace_head. */
SUBPROG u32 trace_put(NONNULL(struct host *h), u64 ns, u64 head, u64 a, u64 b)
{
	plat_trace(h, ns, head, a, b);
	return 0;
}

INLINE u64 trace_change(u32 from, u32 to, u32 why, u32 on)
{
	return from | (u64)to << 8 | (u64)why << 16 | (u64)(on & TRACE_NOWHERE) << 32;
}

/* The state that a world is about to enter, by the time that its account will have
 * (state_enter). */
RARE_INLINE void trace_state(struct host *h, const struct world *w, u32 to, u64 now, u32 why,
			     u32 on)
{
	u64 since = w->state_since_ns;

	trace_put(h, now < since ? since : now, trace_head(TRACE_STATE, w->id, on),
		  trace_change(w->state, to, why, on), 0);
}

/* A world has become READY at the pCPU `on`, having been woken; `from` is its state before. */
RARE_SUBPROG u32 trace_woken(NONNULL(struct host *h), NONNULL(struct world *w), u32 from, u32 on)
{
	u32 here = plat_here(h);
	u64 waker = plat_waker(h, here), by = waker ? WAKER_WORLD : WAKER_INTERRUPT;

	w->flags |= WORLD_WOKEN;
	plat_trace(h, w->state_since_ns, trace_head(TRACE_STATE, w->id, on),
		   trace_change(from, STATE_READY, WHY_WOKEN, on) | ALSO_WOKEN << 24,
		   waker | by << 32 | (u64)here << 48);
	return 0;
}

RARE_INLINE void trace_put_queued(struct host *h, const struct world *w, u64 key, u64 where)
{
	trace_put(h, plat_now(h),
		  trace_head(TRACE_QUEUED, w->id, where & TRACE_KNOWN ? TRACE_NOWHERE : (u32)where),
		  key, where);
}

RARE_INLINE void trace_put_unqueued(struct host *h, const struct world *w)
{
	trace_put(h, plat_now(h), trace_head(TRACE_UNQUEUED, w->id, TRACE_NOWHERE), 0, 0);
}

INLINE void trace_queued(struct host *h, const struct world *w, u32 pcpu, u64 key)
{
	if (trace_on(h))
		trace_put_queued(h, w, key, pcpu);
}

INLINE void trace_parked(struct host *h, const struct world *w, u32 limiter, u64 key)
{
	if (trace_on(h))
		trace_put_queued(h, w, key, limiter | TRACE_KNOWN);
}

INLINE void trace_unqueued(struct host *h, const struct world *w)
{
	if (trace_on(h))
		trace_put_unqueued(h, w);
}

/* A pCPU begins or ends to idle, or is kept for another thread of its core (enum trace_idles). That
 * its world stopped has said the first. */
RARE_SUBPROG u32 trace_idle(NONNULL(struct host *h), NONNULL(struct pcpu *p), u32 how)
{
	bool told = how && TRACE_NOTE(p, NOTE_IDLE) == how;

	TRACE_NOTE(p, NOTE_IDLE) = (u8)how;
	if (!told)
		plat_trace(h, plat_now(h), trace_head(TRACE_IDLE, 0, p->id), how, 0);
	return 0;
}

/* Whether a pCPU was kept when it was seen last. */
INLINE bool trace_noted_kept(const struct pcpu *p)
{
	return TRACE_NOTE(p, NOTE_IDLE) == IDLES_KEPT;
}

/* --- reasons: noted when a decision is taken, recorded when the state changes --- */

/* Why the running world of `p` will stop, if it does. */
INLINE void trace_note_stop(struct host *h, struct pcpu *p, u32 why)
{
	if (trace_on(h))
		TRACE_NOTE(p, NOTE_STOP) = (u8)why;
}

/* Why the next world of `p` was picked. */
INLINE void trace_note_pick(struct host *h, struct pcpu *p, u32 why)
{
	if (trace_on(h))
		TRACE_NOTE(p, NOTE_PICK) = (u8)why, TRACE_NOTE(p, NOTE_MOVE) = 0;
}

/* The next world of `p` comes from another pCPU's queue. */
INLINE void trace_note_pull(struct host *h, struct pcpu *p)
{
	if (trace_on(h))
		TRACE_NOTE(p, NOTE_MOVE) = MOVE_PULL;
}

/* The running world of `p` has stopped. */
RARE_SUBPROG u32 trace_stopped(NONNULL(struct host *h), TRUSTED_TASK(t), NONNULL(struct world *w),
			       NONNULL(struct pcpu *p))
{
	/* a higher class takes the pCPU without a pick of this one */
	bool taken = plat_slice(t) || !p->chose_ns;
	u32 noted = TRACE_NOTE(p, NOTE_STOP),
	    why = noted ? noted : taken ? WHY_TAKEN : WHY_QUANTUM, to = w->state;

	/* one that still wants to run stops for something else, until it is said that none came */
	TRACE_NOTE(p, NOTE_IDLE) = to == STATE_READY ? IDLES_NOT : IDLES;
	plat_trace(h, w->state_since_ns, trace_head(TRACE_STATE, w->id, p->id),
		   trace_change(STATE_RUN, to,
				to == STATE_READY || to == STATE_COSTOP ? why : WHY_SLEPT, p->id),
		   0);
	return 0;
}

/* A world has this home from now on (law/home.h). */
RARE_SUBPROG u32 trace_homed(NONNULL(struct host *h), NONNULL(struct world *w), u64 home)
{
	w->home = home;
	if (trace_on(h))
		plat_trace(h, plat_now(h), trace_head(TRACE_HOME, w->id, TRACE_NOWHERE), home, 0);
	return 0;
}

/* Whether a world's home lets it run where it ran last. */
INLINE bool trace_home(struct host *h, const struct world *w, u32 last)
{
	struct pcpu *p = plat_pcpu(h, last);

	return !p || home_lets(w, p->domain);
}

/* A world is about to run on `p`, and to leave the queue in which it waited. */
RARE_SUBPROG u32 trace_running(NONNULL(struct host *h), TRUSTED_TASK(t), NONNULL(struct world *w),
			       NONNULL(struct pcpu *p), u64 now)
{
	s32 last = w->last_pcpu;
	u32 why = TRACE_NOTE(p, NOTE_PICK), move = TRACE_NOTE(p, NOTE_MOVE),
	    also = w->queued_on ? ALSO_LEFT : 0;
	u64 b = 0, since = w->state_since_ns;

	p->trace_note = 0;
	if (last >= 0 && last != (s32)p->id) {
		if (!move && w->flags & WORLD_SWAPPED)
			move = MOVE_SWAP;
		else if (!move && w->flags & WORLD_SPREAD)
			move = MOVE_SPREAD;
		else if (!move && !trace_home(h, w, (u32)last))
			move = MOVE_HOME;
		else if (!move && !plat_may_run(t, (u32)last))
			move = MOVE_AFFINITY;
		else if (!move && w->flags & WORLD_WOKEN)
			move = MOVE_WAKE;
		also |= ALSO_MOVED;
		b = (u32)last | (u64)move << 16;
	}
	if (w->flags & (WORLD_WOKEN | WORLD_SWAPPED | WORLD_SPREAD))
		w->flags &= ~(WORLD_WOKEN | WORLD_SWAPPED | WORLD_SPREAD);
	plat_trace(h, now < since ? since : now, trace_head(TRACE_STATE, w->id, p->id),
		   trace_change(w->state, STATE_RUN, why ? why : WHY_PICKED, p->id) | (u64)also
											      << 24,
		   b);
	return 0;
}

/* A world was put into the queue of the pCPU `on`, and for its sake the pCPU `kicked` is about to
 * be, if `how` is not 0. */
RARE_SUBPROG u32 trace_enqueued(NONNULL(struct host *h), NONNULL(struct world *w), u64 key, u32 on,
				u64 kick)
{
	u32 kicked = (u32)kick, how = (u32)(kick >> 32);
	struct pcpu *p = plat_pcpu(h, kicked);
	u64 b = on;

	if (how)
		b |= (u64)(plat_here(h) & TRACE_NOWHERE) << 16 | (u64)kicked << 48 |
		     (u64)(how & KICK_PREEMPT ? TRACE_KICK_PREEMPT + 1 : TRACE_KICK_IDLE + 1) << 40;
	plat_trace(h, plat_now(h), trace_head(TRACE_QUEUED, w->id, on), key, b);
	if (p && how & KICK_PREEMPT)
		TRACE_NOTE(p, NOTE_STOP) = WHY_PREEMPTED;
	return 0;
}

RARE_INLINE void trace_and_kick(struct host *h, u32 pcpu, u32 flags, u32 why)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	u64 how = flags & KICK_PREEMPT ? TRACE_KICK_PREEMPT : TRACE_KICK_IDLE;

	trace_put(h, plat_now(h), trace_head(TRACE_KICK, 0, plat_here(h)), pcpu | how << 16, 0);
	if (p && flags & KICK_PREEMPT)
		trace_note_stop(h, p, why);
	plat_kick(h, pcpu, flags); /* last: its effects are recorded after it */
}

/* Kicks a pCPU; `why` its running world stops, if it does. */
SUBPROG u32 trace_kick(NONNULL(struct host *h), u32 pcpu, u32 flags, u32 why)
{
	if (trace_on(h))
		trace_and_kick(h, pcpu, flags, why);
	else
		plat_kick(h, pcpu, flags);
	return 0;
}

/* CPU time and weight of every VM, every TRACE_ACCOUNT_NS: the curves of a trace. */
SUBPROG u32 trace_accounts(NONNULL(struct host *h))
{
	plat_for(i, VMS_MAX) {
		struct vm *v = i < h->vms ? plat_vm(h, i) : NULL;

		if (!v)
			break;
		if (v->flags & VM_LIVE)
			trace_put(h, plat_now(h), trace_head(TRACE_ACCOUNT, i, TRACE_NOWHERE),
				  plat_read(v->used_ns), v->weight);
	}
	return 0;
}

#endif
