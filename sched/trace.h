/* Tells a recorder what was decided, where it was decided; it decides nothing and knows no recorder.
 *
 * Promise	every change of state of every world, in order and by the clock of the accounts: their sums are the same to the ns
 *		(crates/sim/tests/trace.rs); each queue, wake-up, migration and kick, with a reason
 * Law		nobody records: one load and one branch that is never taken. Else a record of 32 bytes to plat_trace
 * Limits	reasons of a stop and of a pick are noted in the pCPU's record, in which another pCPU may write at the same time:
 *		a reason may be wrong then, a state never
 * Weakness	on a kernel that passes wake-ups on to the pCPU of the woken, who runs there is taken for the waker
 */
#ifndef TANDEM_TRACE_H
#define TANDEM_TRACE_H

#include "platform.h"

#define TRACE_KNOWN (1ull << 32)	/* the number below it is known, or is a limit's */

hot bool trace_on(const struct host *h)
{
	return __builtin_expect(plat_read(h->tracing) != 0, 0);
}

hot u64 trace_head(u32 kind, u32 world, u32 pcpu)
{
	return world | (u64)kind << 32 | (u64)(pcpu & TRACE_NOWHERE) << 48;
}

/* Hands a record over; `head` by trace_head. */
cold u32 trace_put(THE(struct host *h), u64 ns, u64 head, u64 a, u64 b)
{
	struct trace_record r = {
		.ns = ns, .world = (u32)head, .kind = (u16)(head >> 32), .pcpu = (u16)(head >> 48), .a = a, .b = b,
	};

	plat_trace(h, &r);
	return 0;
}

/* The state that a world is about to enter, by the time that its account will have (state_enter). */
rare void trace_state(struct host *h, const struct world *w, u32 to, u64 now, u32 why, u32 on)
{
	u64 since = w->state_since_ns, a = w->state | (u64)to << 8 | (u64)why << 16 | (u64)(on & TRACE_NOWHERE) << 32;

	trace_put(h, now < since ? since : now, trace_head(TRACE_STATE, w->id, on), a, 0);
}

/* A world is about to be READY, having been woken, on `pcpu`. */
rare void trace_woken(struct host *h, struct world *w, u64 now, u32 pcpu)
{
	u64 waker = plat_waker(h);

	w->flags |= WORLD_WOKEN;
	trace_put(h, now, trace_head(TRACE_WAKE, w->id, plat_here(h)), waker ? WAKER_WORLD : WAKER_INTERRUPT, waker);
	trace_state(h, w, STATE_READY, now, WHY_WOKEN, pcpu);
}

rare void trace_put_queued(struct host *h, const struct world *w, u64 key, u64 where)
{
	trace_put(h, plat_now(h), trace_head(TRACE_QUEUED, w->id, where & TRACE_KNOWN ? TRACE_NOWHERE : (u32)where), key, where);
}

rare void trace_put_unqueued(struct host *h, const struct world *w)
{
	trace_put(h, plat_now(h), trace_head(TRACE_UNQUEUED, w->id, TRACE_NOWHERE), 0, 0);
}

rare void trace_put_idle(struct host *h, u32 pcpu, bool begins)
{
	trace_put(h, plat_now(h), trace_head(TRACE_IDLE, 0, pcpu), begins, 0);
}

hot void trace_queued(struct host *h, const struct world *w, u32 pcpu, u64 key)
{
	if (trace_on(h))
		trace_put_queued(h, w, key, pcpu);
}

hot void trace_parked(struct host *h, const struct world *w, u32 limiter, u64 key)
{
	if (trace_on(h))
		trace_put_queued(h, w, key, limiter | TRACE_KNOWN);
}

hot void trace_unqueued(struct host *h, const struct world *w)
{
	if (trace_on(h))
		trace_put_unqueued(h, w);
}

hot void trace_idle(struct host *h, u32 pcpu, bool begins)
{
	if (trace_on(h))
		trace_put_idle(h, pcpu, begins);
}

/* --- reasons: noted when a decision is taken, told when the state changes --- */

/* Why the running world of `p` will stop, if it does. */
hot void trace_note_stop(struct host *h, struct pcpu *p, u32 why)
{
	if (trace_on(h))
		p->trace_note = (p->trace_note & ~255u) | why;
}

/* Why the next world of `p` was picked. */
hot void trace_note_pick(struct host *h, struct pcpu *p, u32 why)
{
	if (trace_on(h))
		p->trace_note = (p->trace_note & 255) | why << 8;
}

/* The next world of `p` comes from another pCPU's queue. */
hot void trace_note_pull(struct host *h, struct pcpu *p)
{
	if (trace_on(h))
		p->trace_note |= MOVE_PULL << 16;
}

/* The running world of `p` is about to stop. */
rare void trace_stopping(struct host *h, plat_task *t, const struct world *w, const struct pcpu *p, u32 to, u64 now)
{
	u32 noted = p->trace_note & 255, why = noted ? noted : plat_slice(t) ? WHY_PREEMPTED : WHY_QUANTUM;

	trace_state(h, w, to, now, to == STATE_READY ? why : WHY_SLEPT, p->id);
}

/* A world is about to run on `p`. */
rare void trace_running(struct host *h, plat_task *t, struct world *w, struct pcpu *p, u64 now)
{
	s32 last = w->last_pcpu;
	u32 note = p->trace_note, why = note >> 8 & 255, move = note >> 16;

	p->trace_note = 0;
	if (!why)
		why = WHY_PICKED;
	if (last >= 0 && last != (s32)p->id) {
		if (!move && w->flags & WORLD_SWAPPED)
			move = MOVE_SWAP;
		else if (!move && !plat_may_run(t, (u32)last))
			move = MOVE_AFFINITY;
		else if (!move && w->flags & WORLD_WOKEN)
			move = MOVE_WAKE;
		trace_put(h, now, trace_head(TRACE_MIGRATE, w->id, p->id), (u32)last | (u64)p->id << 16 | (u64)move << 32, 0);
	}
	w->flags &= ~(WORLD_WOKEN | WORLD_SWAPPED);
	trace_state(h, w, STATE_RUN, now, why, p->id);
}

rare void trace_and_kick(struct host *h, u32 pcpu, u32 flags, u32 why)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	u64 how = flags & KICK_PREEMPT ? TRACE_KICK_PREEMPT : TRACE_KICK_IDLE;

	trace_put(h, plat_now(h), trace_head(TRACE_KICK, 0, plat_here(h)), pcpu | how << 16, 0);
	if (p && flags & KICK_PREEMPT)
		trace_note_stop(h, p, why);
	plat_kick(h, pcpu, flags); /* last: what it leads to is told after it */
}

/* Kicks a pCPU; `why` its running world stops, if it does. */
hot void trace_kick(struct host *h, u32 pcpu, u32 flags, u32 why)
{
	if (trace_on(h))
		trace_and_kick(h, pcpu, flags, why);
	else
		plat_kick(h, pcpu, flags);
}

/* What every VM has used and weighs, every TRACE_ACCOUNT_NS: curves for whoever looks at a trace. */
cold u32 trace_accounts(THE(struct host *h))
{
	plat_for(i, VMS_MAX) {
		struct vm *v = i < h->vms ? plat_vm(h, i) : NULL;

		if (!v)
			break;
		if (v->flags & VM_LIVE)
			trace_put(h, plat_now(h), trace_head(TRACE_ACCOUNT, i, TRACE_NOWHERE), plat_read(v->used_ns), v->weight);
	}
	return 0;
}

#endif
