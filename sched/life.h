/* The life of a world: it starts, exits, is bound to a VM; and the counts of its VM meanwhile.
 *
 * Promise	a VM's counts are those of its worlds at any moment, and the times of worlds that
 *		are gone are added up in their VM
 * Limits	a world is bound where it is neither queued nor charged
 */
#ifndef TANDEM_LIFE_H
#define TANDEM_LIFE_H

#include "account/lag.h"
#include "account/lock.h"
#include "account/stall.h"
#include "account/state.h"
#include "law/demand.h"
#include "law/home.h"
#include "queue/costopped.h"

INLINE void life_join(struct host *h, struct world *w, u32 id)
{
	struct vm *v = plat_vm(h, id);

	w->vm = id;
	if (!v)
		return;
	plat_add(&v->worlds, 1);
	plat_assert(h, plat_read(v->worlds) <= WORLDS_MAX);
	if (w->flags & WORLD_RESTRICTED)
		plat_add(&v->restricted, 1);
	w->runtime_ns = plat_read(v->progress_ns);
	w->clock_of = 0;
}

INLINE void life_leave(struct host *h, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v)
		return;
	plat_assert(h, plat_read(v->worlds) > 0);
	plat_add(&v->worlds, -1);
	if (w->flags & WORLD_RESTRICTED) {
		plat_assert(h, plat_read(v->restricted) > 0);
		plat_add(&v->restricted, -1);
	}
}

/* One world more or less of `v` wants to run. Returns the number before. Runnable time so far is
 * runnable_base_ns + runnable * now. */
INLINE u32 life_wants(struct host *h, struct vm *v, s32 more)
{
	u64 now = plat_now(h);

	plat_assert(h, more > 0 || plat_read(v->runnable) > 0);
	plat_add(&v->runnable_base_ns, more > 0 ? -now : now);
	return plat_fetch_add(&v->runnable, more);
}

/* A world sleeps after a burst that waited for `waited` ns: demand is corrected. */
RARE_SUBPROG u32 life_waited(NONNULL(struct host *h), NONNULL(struct vm *v),
			     NONNULL(struct world *w), u64 waited)
{
	if (with(DEMAND_BURST))
		plat_add(&v->runnable_base_ns, -demand_excess(plat_knobs(h), w, waited));
	return 0;
}

/* A vCPU takes its place among its siblings. */
INLINE void life_sibling(struct host *h, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v || !skew_is_vcpu(w))
		return;
	stall_join(h, v, w);
	stall_woken(plat_knobs(h), v, w);
}

/* Whether user space has found a VM for the world that it is not bound to yet. */
INLINE bool life_unbound(const struct world *w)
{
	return w->bind_vm >= 0;
}

/* The VM of a world, or the one that user space has found for it. */
INLINE u32 life_vm(const struct world *w)
{
	return life_unbound(w) ? (u32)w->bind_vm : w->vm;
}

/* Moves a world to the VM that user space has found for it; enqueue alone does, where the world is
 * neither queued nor charged. Select and dispatch hand the world to it. */
INLINE void life_bind(struct host *h, struct world *w)
{
	struct vm *from = plat_vm(h, w->vm), *to = plat_vm(h, (u32)w->bind_vm);

	plat_assert(h, !w->queued_on && !w->commit_ns);
	if (to && from && to != from) {
		budget_stop(h, from, w, 0);
		plat_assert(h, !plat_read(w->budget));
		life_leave(h, w);
		life_join(h, w, (u32)w->bind_vm);
		if (state_wants_pcpu(w->state)) {
			life_wants(h, from, -1);
			life_wants(h, to, 1);
		}
	}
	if (w->bind_vm == VM_SYSTEM && w->home != HOME_ANY)
		trace_homed(h, w, HOME_ANY);
	w->kind = w->bind_kind;
	w->index = w->bind_index;
	w->bind_vm = -1;
	life_sibling(h, w);
}

INLINE void core_world_start(struct host *h, plat_task *t, struct world *w)
{
	u64 now = plat_now(h);
	u32 asleep = state_asleep(t, w);

	plat_assert(h, !w->queued_on && !w->budget && !w->commit_ns);
	w->born_ns = w->entitled_ns = now;
	w->state_since_ns = now;
	w->state = STATE_NONE;
	if (trace_on(h))
		trace_state(h, w, asleep, now, WHY_BORN, TRACE_NOWHERE);
	w->state = asleep;
	w->bind_vm = -1;
	w->last_pcpu = -1;
	w->home = HOME_ANY;
	w->stalled_base_ns = STALLED_START;
	w->flags |= WORLD_LIVE | (plat_restricted(h, t) ? WORLD_RESTRICTED : 0);
	life_join(h, w, w->vm);
	life_sibling(h, w);
}

INLINE void core_world_exit(struct host *h, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v)
		return;
	if (w->waits_for)
		lock_woke(h, w);
	/* it has slept, or left the fair class, before */
	plat_assert(h, !w->queued_on && !w->unparked_by && !w->budget);
	if (state_wants_pcpu(w->state))
		life_wants(h, v, -1);
	if (w->commit_ns)
		plat_add(&v->committed_ns, -w->commit_ns);
	w->commit_ns = 0;
	state_change(h, w, STATE_NONE, plat_now(h), WHY_GONE, TRACE_NOWHERE);
	for (u32 s = 0; s < STATES; s++)
		plat_add(&v->past_ns[s], w->time_ns[s]);
	plat_add(&v->past_used_ns, w->used_ns);
	plat_add(&v->past_lost_ns, w->lost_ns);
	plat_add(&v->past_migrations, w->migrations);
	plat_add(&v->past_limited_ns, w->limited_ns);
	plat_add(&v->past_switches, w->switches);
	plat_add(&v->past_expiries, w->expiries);
	plat_add(&v->past_wakeups, w->wakeups);
	life_leave(h, w);
}

/* A world becomes restricted, or is no longer: lag built up on few pCPUs is not due on all. */
RARE_SUBPROG u32 life_restrict(NONNULL(struct host *h), NONNULL(struct world *w))
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v)
		return 0;
	w->flags ^= WORLD_RESTRICTED;
	plat_add(&v->restricted, w->flags & WORLD_RESTRICTED ? 1 : -1);
	plat_assert(h, plat_read(v->restricted) <= plat_read(v->worlds));
	if (!(w->flags & WORLD_RESTRICTED))
		lag_clamp(h, v, plat_knobs(h)->wake_credit_us * US);
	return 0;
}

/* The pCPUs that a world may use have changed, or those that are on line. */
INLINE void core_world_affinity(struct host *h, plat_task *t, struct world *w)
{
	if (!(w->flags & WORLD_RESTRICTED) == plat_restricted(h, t))
		life_restrict(h, w);
}

#endif
