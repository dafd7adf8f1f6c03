/* The scheduler's callbacks: each reads as the sequence of decisions it takes; the decisions are in policy/.
 * Included by native.c and glue/tandem.bpf.c, so that both build the same text. */
#include "account/busy.h"
#include "account/charge.h"
#include "account/state.h"
#include "costart.h"
#include "dispatch.h"
#include "housekeep.h"
#include "life.h"
#include "release.h"

/* --- life of a wake-up --- */

hot s32 core_select(struct host *h, plat_task *t, struct world *w, s32 prev, s32 waker)
{
	struct vm *v;
	s32 found;
	u64 slice;

	if (w->bind_vm >= 0)
		world_rebind(h, w); /* asleep, so neither queued nor charged */
	v = plat_vm(h, w->vm);
	if (!v || w->flags & WORLD_PCPU_KTHREAD || limit_closed(h, v) || queue_stopped(v, w))
		return prev; /* one that a limit holds back is parked by enqueue */
	if (with(SYNC_WAKE) && waker >= 0 && place_beside(h, t, w, (u32)waker)) {
		plat_insert_local(h, t, share_slice(h, plat_knobs(h), v, w));
		return waker;
	}
	found = place_idle(h, t, (u32)prev);
	if (found >= 0) {
		slice = limit_take(h, v, w, share_slice(h, plat_knobs(h), v, w));
		if (slice)
			plat_insert_local(h, t, slice);
		else
			place_unclaim(h, (u32)found);
		return found;
	}
	return (s32)place_busy(h, t, w, share_key(v, w), (u32)prev);
}

hot void core_runnable(struct host *h, plat_task *t, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);
	struct pcpu *p = plat_pcpu(h, (u32)plat_task_pcpu(t));
	u32 from = w->state;
	u64 floor, now;

	if (!v || !p || from == STATE_READY)
		return;
	now = plat_now(h);
	w->slept_ns = now > w->state_since_ns ? now - w->state_since_ns : 0;
	w->ready_before_ns = w->time_ns[STATE_READY];
	w->ran_before_ns = w->time_ns[STATE_RUN];
	state_enter(w, STATE_READY, now);
	w->wakeups++;
	if (!world_wants(h, v, 1))
		share_activate(h, plat_knobs(h), v);
	floor = plat_read(v->progress_ns) - plat_knobs(h)->wake_credit_us * US;
	if (with(WORLD_CREDIT) && w->vm != VM_SYSTEM && (s64)(w->lead_ns - floor) < 0)
		w->lead_ns = floor;
	if (with(SKEW_WOKEN) && v->indices > 1 && cosched_is_vcpu(w))
		cosched_woken(plat_knobs(h), v, w);
	if (trace_on(h))
		trace_woken(h, w, from, p->id);
}

/* Key of a host task within its queue: its own CPU time by nice weight, near to what is served there. */
hot u64 core_system_key(struct host *h, struct world *w, struct pcpu *p)
{
	u64 near = plat_knobs(h)->wake_credit_us * US, at = p->system_v_ns;

	if (!with(TASK_CLAMP))
		return w->lead_ns;
	if (w->lead_ns + near < at)
		w->lead_ns = at - near;
	if (w->lead_ns > at + near * 8)
		w->lead_ns = at + near * 8;
	return w->lead_ns;
}

hot bool core_enqueue_idle(struct host *h, plat_task *t, struct vm *v, struct world *w, u32 pcpu, u32 flags)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	s32 found = -1;
	u64 slice;

	if (c && plat_may_run(t, pcpu) && place_claim(c, p->bit))
		found = (s32)pcpu;
	else if (!(flags & ENQUEUE_WAKEUP))
		found = place_idle(h, t, pcpu);
	if (found < 0)
		return false;
	slice = limit_take(h, v, w, share_slice(h, plat_knobs(h), v, w));
	if (!slice) {
		place_unclaim(h, (u32)found);
		queue_park(h, t, v, w);
		return true;
	}
	plat_insert_on(h, t, (u32)found, slice, false);
	if (trace_on(h))
		trace_enqueued(h, w, 0, (u32)found, (u32)found | (u64)KICK_IDLE << 32);
	plat_kick(h, (u32)found, KICK_IDLE);
	return true;
}

/* How a world that was queued on `p` gets a pCPU kicked, and which. It looks for idle pCPUs after it has been counted in, as they look
 * at counts after going idle: one of both sees the other. The kernel fills the queue a moment later; a pCPU that looked too early is
 * sent again by housekeeping. */
hot u32 core_kick(struct host *h, plat_task *t, struct pcpu *p, u64 gain, u64 now, u32 *kicked)
{
	struct cluster *c = plat_cluster(h, p->cluster);
	s32 found;

	if (c && place_claim(c, p->bit))
		return KICK_IDLE;
	if (gain) {
		p->claimed_ns = now;
		p->preempts++;
		return KICK_PREEMPT;
	}
	found = c && plat_read(c->idle) ? place_claim_of(c, t, plat_read(c->idle)) : -1;
	if (found < 0)
		return 0;
	*kicked = (u32)found;
	return KICK_IDLE;
}

hot void core_enqueue(struct host *h, plat_task *t, struct world *w, u32 flags)
{
	u32 pcpu = (u32)plat_task_pcpu(t), kicked, kick = 0;
	const struct knobs *k = plat_knobs(h);
	struct pcpu *p;
	struct vm *v;
	u64 now, key, queued, gain, slice;
	struct claim claim;

	queue_leave(h, w); /* the kernel may hand back one that has not run */
	if (w->bind_vm >= 0)
		world_rebind(h, w);
	v = plat_vm(h, w->vm);
	if (!v)
		return;
	limit_pay(h, v, w, 0); /* what it was granted and could not use */
	if (w->state == STATE_COSTOP || queue_stopped(v, w)) {
		queue_costop(h, t, v, w);
		return;
	}
	if (w->flags & WORLD_PCPU_KTHREAD) {
		plat_insert_on(h, t, pcpu, k->system_slice_us * US, true);
		return;
	}
	if (limit_closed(h, v)) {
		queue_park(h, t, v, w);
		p = plat_pcpu(h, pcpu);
		if (p && p->limit_look)
			trace_kick(h, pcpu, KICK_IDLE, WHY_UNKNOWN); /* whose turn it is, itself included (dispatch_turn) */
		return;
	}
	if (core_enqueue_idle(h, t, v, w, pcpu, flags))
		return;
	key = share_key(v, w);
	if (!plat_may_run(t, pcpu))
		pcpu = place_busy(h, t, w, key, pcpu);
	p = plat_pcpu(h, pcpu);
	if (!p)
		return;
	slice = share_slice(h, k, v, w);
	claim = preempt_claim(w, key);
	now = plat_now(h);
	gain = w->vm == VM_SYSTEM && p->current_vm == VM_SYSTEM ? 0 : preempt_gain(h, p, &claim, now);
	if (gain)
		slice = preempt_slice(h, k, v, gain, slice);
	if (w->vm == VM_SYSTEM) {
		queued = core_system_key(h, w, p);
		plat_queue_insert(h, t, QUEUE_SYSTEM(pcpu), slice, queued);
	} else {
		queued = share_queue_key(h, k, v, w);
		plat_queue_insert(h, t, QUEUE_VM(pcpu), slice, queued);
	}
	queue_enter(h, w, p, queued);
	kicked = pcpu;
	kick = core_kick(h, t, p, gain, now, &kicked);
	if (trace_on(h))
		trace_enqueued(h, w, queued, p->id, kicked | (u64)kick << 32);
	if (kick)
		plat_kick(h, kicked, kick); /* last: what it leads to is told after it */
}

/* The running world gives its pCPU up: a vCPU that spins to its sibling `to`, which KVM takes for the one it waits for. Whether that
 * may come next here. */
hot bool core_yield(struct host *h, struct world *w, struct world *to)
{
	struct pcpu *p = w->last_pcpu >= 0 ? plat_pcpu(h, (u32)w->last_pcpu) : NULL;

	if (!with(YIELD_TO) || !p || w->vm == VM_SYSTEM || w->vm != to->vm || plat_knobs(h)->cosched == COSCHED_OFF)
		return false;
	if (to->state != STATE_READY || plat_read(to->queued_on) >= QUEUED_PARKED)
		return false;
	p->yield_to = to->id;
	return true;
}

/* --- what runs next --- */

hot void core_dispatch(struct host *h, u32 pcpu, plat_task *prev)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct world *w = prev ? plat_world_of(h, prev) : NULL;
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	struct vm *v = NULL;
	u64 now = plat_now(h), limit = KEY_NONE, least;
	bool waits, parks = false;
	u32 siblings;

	if (!p || !c)
		return;
	p->chose_ns = now;
	if (w && w->state != STATE_RUN)
		prev = NULL, w = NULL; /* the kernel names it too when it has just gone to sleep */
	v = w ? plat_vm(h, w->vm) : NULL;
	if (w && v) {
		charge_settle(h, prev, w, v, p, now);
		w->expiries++;
		if (w->bind_vm >= 0) {
			world_rebind(h, w);
			v = plat_vm(h, w->vm);
			if (!v)
				return;
		}
		cosched_turn_ends(v, now);
		limit = v->turn_key ? preempt_current_key(h, p, now) : share_key(v, w);
		siblings = p->yield_to | p->invited | w->costop ? dispatch_siblings(h, pcpu, prev, w, limit) : SIBLINGS_LET;
		if (siblings == SIBLINGS_TAKE)
			return;
		if (siblings == SIBLINGS_STOP) {
			prev = NULL, w = NULL, v = NULL, limit = KEY_NONE, parks = true;
		} else if (!dispatch_goes_on(h, v, w, p, limit)) {
			plat_set_slice(prev, 0); /* the kernel hands it to enqueue, which parks it, even if nobody else wants to run */
			prev = NULL, w = NULL, v = NULL, limit = KEY_NONE, parks = true;
			trace_note_stop(h, p, WHY_PARKED);
		}
	}
	waits = queue_waiting(p);
	if (waits && dispatch_rescue(h, p, now))
		goto taken;
	least = plat_read(p->wait_key) < limit ? plat_read(p->wait_key) : limit; /* of all that want this pCPU; others may be owed more */
	if (least != KEY_NONE && (!waits || least > plat_read(h->v_ns)) && pull_owed(h, pcpu, least))
		goto taken;
	if (waits && dispatch_local(h, pcpu, limit, w ? w->id : WORLD_NONE))
		goto taken;
	if (w && v) {
		if (plat_read(c->idle) && dispatch_swap(h, pcpu, prev))
			goto taken;
		dispatch_keep(h, prev, w, v, p, now);
		p->chose_ns = 0;
		return;
	}
	if ((plat_read(c->queued) || c->nears) && pull_idle(h, pcpu))
		return;
	if (p->limit_look && !parks && dispatch_turn(h, pcpu))
		return;
	plat_or(&c->idle, 1ull << (p->bit & 63));
	/* A world may have been queued while this pCPU did not look idle yet. */
	if (plat_read(c->queued) && (dispatch_local(h, pcpu, KEY_NONE, WORLD_NONE) || pull_idle(h, pcpu)))
		plat_fetch_and(&c->idle, ~(1ull << (p->bit & 63)));
	else if (plat_read(c->queued))
		pull_swap(h, pcpu);
	return;
taken:
	pull_passed_over(h, p);
	if (prev)
		plat_set_slice(prev, 0); /* so that the kernel hands it back to enqueue */
}

hot void core_running(struct host *h, plat_task *t, struct world *w)
{
	struct pcpu *p = plat_pcpu(h, (u32)plat_task_pcpu(t));
	struct vm *v = plat_vm(h, w->vm);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 now;

	if (!p || !v || !c)
		return;
	now = plat_chose(h, p);
	if (now <= w->state_since_ns) /* a timer let it go after this pCPU had begun to choose */
		now = plat_now(h);
	p->chose_ns = 0;
	if (trace_on(h))
		trace_running(h, t, w, p, now);
	busy_seen(h, p, true);
	queue_left(h, w);
	state_enter(w, STATE_RUN, now);
	now = w->state_since_ns;
	if (w->last_pcpu >= 0 && w->last_pcpu != (s32)p->id)
		w->migrations++;
	w->last_pcpu = (s32)p->id;
	w->switches++;
	w->run_since_ns = now;
	w->exec_ns = plat_exec(h, t);
	p->switches++;
	p->current_key = share_key(v, w);
	p->current_since_ns = now;
	p->current_vm = w->vm;
	p->current_world = w->id;
	if (w->vm == VM_SYSTEM && w->lead_ns > p->system_v_ns)
		p->system_v_ns = w->lead_ns;
	cosched_turn(plat_knobs(h), t, v, w, now);
	limit_running(h, t, v, w, p, now);
	charge_commit(w, v, plat_slice(t));
	if (plat_read(c->idle) >> (p->bit & 63) & 1)
		plat_fetch_and(&c->idle, ~(1ull << (p->bit & 63)));
}

hot void core_stopping(struct host *h, plat_task *t, struct world *w, bool runnable)
{
	struct pcpu *p = plat_pcpu(h, (u32)plat_task_pcpu(t));
	struct vm *v = plat_vm(h, w->vm);
	u64 now;

	if (!p || !v || w->state != STATE_RUN)
		return;
	now = plat_chose(h, p);
	if (now < w->run_since_ns)
		now = w->run_since_ns;
	charge_settle(h, t, w, v, p, now);
	p->grant_end_ns = 0;
	p->current_world = WORLD_NONE;
	state_enter(w, !runnable ? state_asleep(t, w) : w->costop == COSTOP_DECIDED && !plat_slice(t) ? STATE_COSTOP : STATE_READY, now);
	w->costop = COSTOP_NOT;
	if (trace_on(h))
		trace_stopped(h, t, w, p);
}

hot void core_quiescent(struct host *h, plat_task *t, struct world *w, bool sleeping)
{
	struct vm *v = plat_vm(h, w->vm);
	u64 waited;

	if (!v)
		return;
	queue_leave(h, w);
	limit_pay(h, v, w, 0);
	if (!sleeping) {
		/* Taken off for a change of affinity or the like: it still wants to run. */
		if (!world_runnable(w))
			state_change(h, w, STATE_READY, plat_now(h), WHY_UNKNOWN, TRACE_NOWHERE);
		return;
	}
	if (w->state == STATE_READY)
		state_change(h, w, state_asleep(t, w), plat_now(h), WHY_SLEPT, TRACE_NOWHERE);
	plat_assert(h, plat_read(v->runnable) > 0);
	waited = w->time_ns[STATE_READY] - w->ready_before_ns;
	if (waited > WAITED_MIN_NS)
		world_waited(h, v, w, waited);
	world_wants(h, v, -1);
}

/* The world leaves the fair class, or the scheduler is being unloaded: for us it sleeps, and not because it halted. */
hot void core_disabled(struct host *h, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v || !world_runnable(w))
		return;
	queue_leave(h, w);
	limit_pay(h, v, w, 0);
	state_change(h, w, STATE_WAIT, plat_now(h), WHY_UNKNOWN, TRACE_NOWHERE);
	world_wants(h, v, -1);
}

/* A pCPU begins to idle though worlds wait there. */
apart u32 core_idle_beside(THE(struct host *h), THE(struct pcpu *p))
{
	struct cluster *c = plat_cluster(h, p->cluster);

	if (trace_on(h))
		trace_idle(h, p, true);
	if (c && place_claim(c, p->bit))
		trace_kick(h, p->id, KICK_IDLE, WHY_UNKNOWN);
	return 0;
}

hot void core_idle(struct host *h, u32 pcpu, bool idle)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (!c)
		return;
	busy_seen(h, p, !idle);
	if (!idle) {
		if (plat_read(c->idle) >> (p->bit & 63) & 1) /* else whoever woke it has claimed it */
			plat_fetch_and(&c->idle, ~(1ull << (p->bit & 63)));
	} else {
		p->current_world = WORLD_NONE;
		p->chose_ns = 0;
		plat_or(&c->idle, 1ull << (p->bit & 63));
		if (queue_waiting(p)) {
			core_idle_beside(h, p);
			return;
		}
	}
	if (trace_on(h)) /* last, where nothing is kept for later: so in each of these callbacks that can */
		trace_idle(h, p, idle);
}
