/* The scheduler's callbacks: each reads as the sequence of its decisions, which are taken in the
 * rooms below. Included by native.c and glue/tandem.bpf.c, so that both build the same text. */
#include "account/charge.h"
#include "account/state.h"
#include "account/taken.h"
#include "account/talk.h"
#include "account/task.h"
#include "life.h"
#include "place/apart.h"
#include "place/home.h"
#include "place/online.h"
#include "place/pick.h"
#include "place/spread.h"
#include "place/whole.h"
#include "tick/cosched.h"
#include "tick/housekeep.h"
#include "tick/limits.h"

/* --- a wake-up: admit, place, enter, tell, kick --- */

/* Chooses the pCPU of a waking world, and inserts it there if that pCPU is idle. A world that must
 * park or co-stop goes on to enqueue. */
INLINE s32 core_select(struct host *h, plat_task *t, struct world *w, s32 prev, s32 waker)
{
	struct vm *v = plat_vm(h, w->vm);
	u64 slice, deadline;
	s32 found;

	if (!v || life_unbound(w) || w->flags & WORLD_PCPU_KTHREAD || costopped_whole(v, w))
		return prev;
	talk_woken(h, v, w);
	slice = share_quantum(plat_knobs(h), w);
	if (with(SYNC_WAKE) && waker >= 0 && place_at_waker(h, t, w, (u32)waker)) {
		plat_insert_local(h, t, slice);
		return waker;
	}
	deadline = share_deadline(v, w);
	slice = parked_admit(h, v, w, slice, deadline);
	if (!slice)
		return prev;
	if (w->flags & WORLD_NEW && w->vm != VM_SYSTEM)
		found = place_new(h, t, w, v, (u32)prev);
	else
		found = place_woken(h, t, w, (u32)prev);
	if (found >= 0) {
		plat_insert_local(h, t, slice);
		return found;
	}
	budget_keep(h, v, w, 0);
	return (s32)place_busy(h, t, w, deadline, place_from(h, t, w, (u32)prev));
}

/* A world that slept wants to run: demand, lag and stall go by that. */
INLINE void core_runnable(struct host *h, plat_task *t, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);
	struct pcpu *p = plat_pcpu(h, (u32)plat_task_pcpu(t));
	u32 from = w->state;
	u64 least, now;

	if (!v || !p || from == STATE_READY)
		return;
	now = plat_now(h);
	if (w->waits_for)
		lock_woke(h, w);
	w->slept_ns = now > w->state_since_ns ? now - w->state_since_ns : 0;
	charge_slept(w, now);
	w->ready_before_ns = w->time_ns[STATE_READY];
	w->ran_before_ns = w->time_ns[STATE_RUN];
	plat_assert(h, !w->commit_ns && !w->queued_on);
	state_enter(h, w, STATE_READY, now);
	w->wakeups++;
	lag_woke(h, plat_knobs(h), v, !life_wants(h, v, 1));
	least = plat_read(v->progress_ns) - plat_knobs(h)->wake_credit_us * US;
	if (with(WORLD_CREDIT) && w->vm != VM_SYSTEM && (s64)(w->runtime_ns - least) < 0)
		w->runtime_ns = least;
	if (with(SKEW_WOKEN) && v->indices > 1 && skew_is_vcpu(w))
		stall_woken(plat_knobs(h), v, w);
	if (trace_on(h))
		trace_woken(h, w, from, p->id);
}

/* Inserts a world at an idle pCPU, if there is one, or where it goes from a shared core; whether it
 * is taken care of. */
INLINE bool core_enter_idle(struct host *h, plat_task *t, struct vm *v, struct world *w,
			    u64 deadline, u32 pcpu, u32 flags, s32 spread, bool preempts)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	s32 found = spread;
	u64 slice;

	if (found < 0 && c && plat_may_run(t, pcpu) && home_lets(w, p->domain) &&
	    holder_admits(h, pcpu, w->vm) && idle_reserve(c, p->bit))
		found = (s32)pcpu;
	else if (found < 0 && !(flags & ENQUEUE_WAKEUP)) /* a wake-up has searched in select */
		found = place_idle(h, t, pcpu);
	if (found < 0)
		return false;
	slice = parked_admit(h, v, w, share_quantum(plat_knobs(h), w), deadline);
	if (!slice) {
		spread_return(h, w, found, preempts);
		parked_insert(h, t, v, w, parked_refused(h, v, w, deadline));
		return true;
	}
	plat_insert_on(h, t, (u32)found, slice, preempts);
	if (trace_on(h))
		trace_enqueued(h, w, 0, (u32)found,
			       (u32)found | (u64)(preempts ? KICK_PREEMPT : KICK_IDLE) << 32);
	if (!preempts)
		plat_kick(h, (u32)found, KICK_IDLE);
	return true;
}

/* Queues a world at a busy pCPU; one that the kernel has moved from a pCPU that is off line, or
 * that its affinity no longer allows, is placed anew: all come from there to the same one. */
INLINE void core_enter_busy(struct host *h, plat_task *t, struct vm *v, struct world *w,
			    u64 deadline, u32 pcpu, u32 flags)
{
	const struct knobs *k = plat_knobs(h);
	u64 slice = share_quantum(k, w), key, gain = 0;
	struct candidate cand = preempt_candidate(w, deadline);
	struct pcpu *p = plat_pcpu(h, pcpu);
	u32 kicked, kick;

	if (!p || !plat_may_run(t, pcpu) || !home_lets(w, p->domain) ||
	    (!(flags & ENQUEUE_WAKEUP) && w->last_pcpu != (s32)pcpu && with(MOVED)) ||
	    whole_is_kept(h, pcpu))
		pcpu = place_busy(h, t, w, deadline, place_from(h, t, w, pcpu));
	p = plat_pcpu(h, pcpu);
	if (!p)
		return;
	if (p->cluster >= h->clusters) { /* off line when the scheduler was loaded */
		plat_insert_on(h, t, pcpu, slice, false);
		return;
	}
	if (w->vm != VM_SYSTEM || p->current_vm != VM_SYSTEM)
		gain = preempt_gain(h, p, &cand, plat_now(h));
	slice = preempt_slice(h, v, gain, slice);
	key = w->vm == VM_SYSTEM ? task_key(h, w, p) : share_queued(h, k, v, w);
	plat_queue_insert(h, t, w->vm == VM_SYSTEM ? QUEUE_SYSTEM(pcpu) : QUEUE_VM(pcpu), slice,
			  key);
	count_ready(h, w, p, key, deadline);
	home_queued(w, p);
	kicked = pcpu;
	kick = place_kick(h, t, p, gain, &kicked);
	if (w->flags & WORLD_STAYS)
		pull_later(h, p);
	if (trace_on(h))
		trace_enqueued(h, w, key, p->id, kicked | (u64)kick << 32);
	if (kick)
		plat_kick(h, kicked, kick); /* last: what it leads to is traced after it */
}

/* Queues a world, at `spread` unless that is -1; false if something holds it back. */
INLINE bool core_queue(struct host *h, plat_task *t, struct world *w, u32 flags, s32 spread,
		       bool preempts)
{
	u32 pcpu = (u32)plat_task_pcpu(t), refused;
	struct pcpu *p;
	struct vm *v;
	u64 deadline;

	count_out_waiting(h, w);
	if (life_unbound(w))
		life_bind(h, w);
	v = plat_vm(h, w->vm);
	if (!v)
		return false;
	budget_stop(h, v, w, 0);
	core_world_affinity(h, t, w); /* it may allow fewer pCPUs than are on line by now */
	plat_assert(h, !w->queued_on && !w->commit_ns);
	if (w->state == STATE_COSTOP || costopped_whole(v, w)) {
		costopped_insert(h, t, v, w);
		return false;
	}
	if (w->flags & WORLD_PCPU_KTHREAD) {
		plat_insert_on(h, t, pcpu, plat_knobs(h)->system_slice_us * US, true);
		return false;
	}
	deadline = share_deadline(v, w);
	refused = parked_refused(h, v, w, deadline);
	if (refused) {
		parked_insert(h, t, v, w, refused);
		p = plat_pcpu(h, pcpu);
		if (p && p->serve_limiter) {
			trace_kick(h, pcpu, KICK_IDLE, WHY_UNKNOWN); /* pick_parked */
		} else if (p && flags & ENQUEUE_WAKEUP && with(LIMIT_WAKE)) {
			struct candidate c = preempt_candidate(w, deadline);

			parked_preempt(h, p, &c, refused);
		}
		return false;
	}
	if (!core_enter_idle(h, t, v, w, deadline, pcpu, flags, spread, preempts))
		core_enter_busy(h, t, v, w, deadline, pcpu, flags);
	return true;
}

/* Queues a world: it woke, its slice ended, or the kernel hands it back before it ran. */
INLINE void core_enqueue(struct host *h, plat_task *t, struct world *w, u32 flags)
{
	bool preempts;
	s32 spread = spread_take(w, &preempts);

	if (!core_queue(h, t, w, flags, spread, preempts))
		spread_return(h, w, spread, preempts);
	w->flags &= ~WORLD_STAYS;
}

/* The running world gives up its pCPU: a vCPU that spins to its sibling `to`, which KVM takes for
 * the one it waits for. Whether that may come next here. */
INLINE bool core_yield(struct host *h, struct world *w, struct world *to)
{
	struct pcpu *p = w->last_pcpu >= 0 ? plat_pcpu(h, (u32)w->last_pcpu) : NULL;
	struct vm *v = plat_vm(h, w->vm);

	if (!with(YIELD_TO) || !p || !v || w->vm == VM_SYSTEM || w->vm != to->vm ||
	    plat_knobs(h)->cosched == COSCHED_OFF || to->state != STATE_READY)
		return false;
	v->spun_ns = plat_now(h);
	if (plat_read(to->queued_on) >= QUEUED_PARKED)
		return false;
	p->yield_to = to->id;
	return true;
}

/* --- what runs next --- */

/* The running world as dispatch finds it; all NULL where it does not go on. */
struct running {
	plat_task *prev;
	struct world *w;
	struct vm *v;
	/* its deadline, KEY_NONE without it: others must be earlier */
	u64 key_max;
	/* it co-stops, or is about to be parked: the kernel hands it to enqueue */
	bool held_back;
};

INLINE void running_none(struct running *r, bool held_back)
{
	*r = (struct running){ .key_max = KEY_NONE, .held_back = held_back };
}

/* Charges the running world and asks whether it may go on. True: a sibling has been taken. */
INLINE bool dispatch_settle(struct host *h, struct pcpu *p, struct running *r, u64 now)
{
	struct world *w = r->prev ? plat_world_of(h, r->prev) : NULL;
	struct vm *v = w ? plat_vm(h, w->vm) : NULL;
	u32 siblings = SIBLINGS_NOTHING;

	if (!w || !v)
		return false; /* none runs */
	if (w->state != STATE_RUN) { /* the kernel names it too when it has just gone to sleep */
		running_none(r, false);
		return false;
	}
	charge_settle(h, r->prev, w, v, p, now, false);
	w->expiries++;
	if (life_unbound(w) || !home_lets(w, p->domain)) {
		plat_set_slice(r->prev, 0); /* enqueue binds it, or places it anew */
		trace_note_stop(h, p, WHY_UNKNOWN);
		running_none(r, true);
		return false;
	}
	gang_end(v, now);
	r->w = w;
	r->v = v;
	r->key_max = v->gang_key ? preempt_by_lone(h, p, now, false, 0) : share_deadline(v, w);
	if (p->yield_to | p->gang_next | w->costop)
		siblings = pick_siblings(h, p->id, r->prev, w, r->key_max);
	if (siblings == SIBLINGS_TAKEN)
		return true;
	if (siblings == SIBLINGS_STOP) {
		running_none(r, true);
	} else if (!pick_admitted(h, v, w, p, r->key_max)) {
		/* enqueue parks it, even if no other world wants to run */
		plat_set_slice(r->prev, 0);
		trace_note_stop(h, p, WHY_PARKED);
		running_none(r, true);
	}
	return false;
}

/* Takes another world than the running one; false if none is to run before it. A pCPU looks at
 * others first if all that want it lag by less than a quantum behind the host's virtual time. */
INLINE bool dispatch_take(struct host *h, struct pcpu *p, struct cluster *c, struct running *r,
			  u64 now)
{
	bool waits = count_waiting(p);
	u64 least, late = plat_read(h->v_ns) + plat_knobs(h)->quantum_us * US;

	if (waits && pick_overdue(h, p, now))
		return true;
	least = min_u64(plat_read(p->wait_key), r->key_max);
	if (least != KEY_NONE && (!waits || least > late) && pull_earlier(h, p->id, least))
		return true;
	if (waits && pick_local(h, p, r->key_max, r->w ? r->w->id : WORLD_NONE))
		return true;
	return r->w && plat_read(c->idle) && pick_swap(h, p->id, r->prev);
}

/* Nothing waits here, and the running world stops or leaves. */
INLINE void dispatch_idle(struct host *h, struct pcpu *p, struct cluster *c, bool held_back)
{
	if ((plat_read(c->queued) || c->nears) && pull_idle(h, p->id))
		return;
	if (p->serve_limiter && !held_back && pick_parked(h, p->id, KEY_NONE))
		return;
	idle_set(c, p->bit);
	if (cores_granted(h, plat_knobs(h)) && trace_on(h) && trace_noted_kept(p))
		trace_idle(h, p, IDLES);
	if (!plat_read(c->queued))
		return;
	if (pick_again(h, p) || pull_idle(h, p->id))
		idle_clear(c, p->bit);
	else if (with(PULL_IDLE)) /* it may run nothing of what waits */
		pull_swap(h, p->id);
	apart_resend(h, p);
}

/* A pCPU asks what to run; `prev` still wants to run, or is NULL. */
INLINE void core_dispatch(struct host *h, u32 pcpu, plat_task *prev)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	struct running r = { .prev = prev, .key_max = KEY_NONE };
	u64 now = plat_now(h);
	bool taken;

	if (!p || !c)
		return;
	p->chose_ns = now;
	home_leave(h, p);
	taken = dispatch_settle(h, p, &r, now);
	p->sibling_key = r.w && r.v && r.v->gang_key ? preempt_current(h, p, now) : KEY_NONE;
	if (taken || whole_keeps(h, p, c, prev) || apart_stops(h, p, c, r.prev, r.key_max))
		return;
	if (dispatch_take(h, p, c, &r, now)) {
		pull_after(h, p);
		if (r.prev)
			plat_set_slice(r.prev, 0); /* the kernel hands it back to enqueue */
	} else if (r.w && !spread_leaves(h, p, r.prev, r.w)) {
		whole_goes_on(h, p, r.w);
		pick_keep(h, r.prev, r.w, r.v, p, now);
		p->chose_ns = 0;
	} else {
		dispatch_idle(h, p, c, r.held_back);
	}
}

/* --- running and stopping --- */

INLINE void core_running(struct host *h, plat_task *t, struct world *w)
{
	struct pcpu *p = plat_pcpu(h, (u32)plat_task_pcpu(t));
	struct vm *v = plat_vm(h, w->vm);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 now;

	if (!p || !v || !c)
		return;
	now = plat_chose(h, p);
	if (now <= w->state_since_ns) /* a timer unparked it after this pCPU had begun its pick */
		now = plat_now(h);
	p->chose_ns = 0;
	if (trace_on(h))
		trace_running(h, t, w, p, now);
	busy_runs(h, p, now);
	taken_end(p, now);
	count_out(h, w);
	state_enter(h, w, STATE_RUN, now);
	now = w->state_since_ns;
	if (w->last_pcpu >= 0 && w->last_pcpu != (s32)p->id)
		w->migrations++;
	w->last_pcpu = (s32)p->id;
	w->switches++;
	w->run_since_ns = now;
	w->exec_ns = plat_exec(h, t);
	p->switches++;
	p->current_key = share_deadline(v, w);
	p->current_since_ns = now;
	p->current_vm = w->vm;
	p->current_world = p->last_world = w->id;
	p->comes = 0;
	if (cores_divided(h, plat_knobs(h)))
		charge_entitle(h, w, v, now, 0);
	whole_runs(h, p, w);
	apart_runs(h, p, w);
	if (w->vm == VM_SYSTEM)
		task_served(h, w, p);
	gang_run(h, t, v, w, now);
	if (plat_read(v->limiter))
		parked_runs(h, t, v, w);
	charge_commit(h, w, v, plat_slice(t));
	if (w->costop) /* while it waited */
		trace_kick(h, p->id, KICK_PREEMPT, WHY_SKEWED);
	idle_clear(c, p->bit);
	home_runs(h, w, p);
}

INLINE void core_stopping(struct host *h, plat_task *t, struct world *w, bool runnable)
{
	struct pcpu *p = plat_pcpu(h, (u32)plat_task_pcpu(t));
	struct vm *v = plat_vm(h, w->vm);
	u32 state = STATE_READY;
	u64 now;

	if (!p || !v || w->state != STATE_RUN)
		return;
	plat_assert_alone(h, p->current_world == w->id && p->current_vm == w->vm);
	now = max_u64(plat_chose(h, p), w->run_since_ns);
	charge_settle(h, t, w, v, p, now, true);
	p->current_world = WORLD_NONE;
	if (holder_on(h) && w->vm != VM_SYSTEM)
		holder_leave(h, p->id, runnable && plat_slice(t) ? HOLDER_IDLES : HOLDER_STOPS);
	taken_begin(p, now);
	if (!runnable)
		state = state_asleep(t, w);
	else if (w->costop == COSTOP_DECIDED && !plat_slice(t))
		state = STATE_COSTOP;
	state_enter(h, w, state, now);
	if (!runnable || w->costop == COSTOP_DECIDED) /* else it was asked as it was preempted */
		w->costop = COSTOP_NOT;
	if (trace_on(h))
		trace_stopped(h, t, w, p);
	if (with(REQUEUE) && runnable && plat_slice(t))
		plat_set_slice(t, 0); /* a higher class preempts it: it goes to enqueue */
}

/* A world no longer wants to run; or is taken off for a change, such as one of its affinity. */
INLINE void core_quiescent(struct host *h, plat_task *t, struct world *w, bool sleeping)
{
	struct vm *v = plat_vm(h, w->vm);
	u64 now = plat_now(h), waited;

	if (!v)
		return;
	count_out_waiting(h, w);
	budget_stop(h, v, w, 0);
	if (!sleeping) {
		if (!state_wants_pcpu(w->state))
			state_change(h, w, STATE_READY, now, WHY_UNKNOWN, TRACE_NOWHERE);
		return;
	}
	if (w->state == STATE_READY)
		state_change(h, w, state_asleep(t, w), now, WHY_SLEPT, TRACE_NOWHERE);
	plat_assert(h, !state_wants_pcpu(w->state) && !w->commit_ns);
	waited = w->time_ns[STATE_READY] - w->ready_before_ns;
	if (waited > WAITED_MIN_NS)
		life_waited(h, v, w, waited);
	life_wants(h, v, -1);
}

/* A world leaves the fair class, or the scheduler is unloaded: here it sleeps, but has not
 * halted. The kernel has taken it off its queue, by quiescent, before it calls this. */
INLINE void core_disabled(struct host *h, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v || !state_wants_pcpu(w->state))
		return;
	plat_assert(h, !w->queued_on && !w->budget);
	state_change(h, w, STATE_WAIT, plat_now(h), WHY_UNKNOWN, TRACE_NOWHERE);
	life_wants(h, v, -1);
}

INLINE void core_idle(struct host *h, u32 pcpu, bool idle)
{
	struct pcpu *p = plat_pcpu(h, pcpu);
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;

	if (!c)
		return;
	busy_seen(h, p, !idle);
	if (!idle) {
		taken_begin(p, plat_now(h));
		idle_clear(c, p->bit);
		if (h->exec_lost)
			plat_pick_again(h, pcpu);
	} else {
		taken_end(p, plat_chose(h, p));
		p->current_world = p->last_world = WORLD_NONE;
		p->chose_ns = 0;
		if (!plat_local_length(h, pcpu)) /* a world that has just stopped may stay here */
			idle_set(c, p->bit);
		whole_idles(h, p);
		if (holder_on(h))
			holder_leave(h, pcpu, HOLDER_IDLES);
		if (count_waiting(p) && !apart_waits_for(h, p)) {
			pull_again(h, p);
			return;
		}
	}
	if (trace_on(h))
		trace_idle(h, p, !idle ? IDLES_NOT : whole_is_kept(h, pcpu) ? IDLES_KEPT : IDLES);
}
