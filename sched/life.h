/* The life of a world: it comes, goes, and is bound to a VM; and what its VM's record says of it meanwhile. It queues and runs nothing.
 *
 * Promise	a VM's counts are those of its worlds at any moment, and what a world leaves behind is added up in its VM
 * Limits	a world is bound where it is neither queued nor charged: when it wakes, is queued, or is asked to go on
 */
#ifndef TANDEM_LIFE_H
#define TANDEM_LIFE_H

#include "account/state.h"
#include "plan.h"
#include "policy/cosched.h"

hot void world_join(struct host *h, struct world *w, u32 id)
{
	struct vm *v = plat_vm(h, id);

	w->vm = id;
	if (!v)
		return;
	plat_add(&v->worlds, 1);
	if (w->flags & WORLD_RESTRICTED)
		plat_add(&v->restricted, 1);
	w->lead_ns = plat_read(v->progress_ns);
}

hot void world_leave(struct host *h, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v)
		return;
	plat_assert(h, plat_read(v->worlds) > 0);
	plat_add(&v->worlds, -1);
	if (w->flags & WORLD_RESTRICTED)
		plat_add(&v->restricted, -1);
}

hot bool world_runnable(const struct world *w)
{
	return w->state == STATE_RUN || w->state == STATE_READY || w->state == STATE_COSTOP;
}

/* One world more or less of `v` wants to run; the number before. What they have wanted so far is wanted_base + runnable * now. */
hot u32 world_wants(struct host *h, struct vm *v, s32 more)
{
	u64 now = plat_now(h);

	plat_add(&v->wanted_base, more > 0 ? -now : now);
	return plat_fetch_add(&v->runnable, more);
}

/* The world sleeps, having done what it woke for. Had it not waited for that, it would have run and slept by turns: so of its
 * wait it wanted as much as it runs of that time, and not all of it. But of turns that are longer than what a plan goes by, each plan
 * sees one part only, and while it waits it wants all. */
apart u32 world_waited(THE(struct host *h), THE(struct vm *v), THE(struct world *w), u64 waited)
{
	u64 ran = w->time_ns[STATE_RUN] - w->ran_before_ns, slept = plan_min(w->slept_ns, WAITED_MAX_NS);
	u64 turn = ran + slept + 1, seen = PLAN_PERIODS * plat_knobs(h)->housekeep_us * US;

	waited = plan_min(waited, WAITED_MAX_NS) * slept / turn;
	if (turn > seen)
		waited = waited * seen / turn;
	if (with(DEMAND_BURST))
		plat_add(&v->wanted_base, -waited);
	return 0;
}

/* A vCPU is one of its VM's, at the pace of its siblings. */
hot void world_sibling(struct host *h, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v || !cosched_is_vcpu(w))
		return;
	cosched_join(h, v, w);
	cosched_woken(plat_knobs(h), v, w);
}

hot void core_world_start(struct host *h, plat_task *t, struct world *w, bool restricted)
{
	u64 now = plat_now(h);
	u32 asleep = state_asleep(t, w);

	w->born_ns = now;
	w->state_since_ns = now;
	w->state = STATE_NONE;
	if (trace_on(h))
		trace_state(h, w, asleep, now, WHY_BORN, TRACE_NOWHERE);
	w->state = asleep;
	w->bind_vm = -1;
	w->last_pcpu = -1;
	w->stalled_base_ns = STALLED_START;
	w->flags |= WORLD_LIVE | (restricted ? WORLD_RESTRICTED : 0);
	world_join(h, w, w->vm);
	world_sibling(h, w);
}

hot void core_world_exit(struct host *h, struct world *w)
{
	struct vm *v = plat_vm(h, w->vm);

	if (!v)
		return;
	queue_leave(h, w);
	limit_pay(h, v, w, 0);
	if (world_runnable(w))
		world_wants(h, v, -1);
	if (w->commit_ns)
		plat_add(&v->committed_ns, -w->commit_ns);
	w->commit_ns = 0;
	state_change(h, w, STATE_NONE, plat_now(h), WHY_GONE, TRACE_NOWHERE);
	for (u32 s = 0; s < STATES; s++)
		plat_add(&v->past_ns[s], w->time_ns[s]);
	plat_add(&v->past_used_ns, w->used_ns);
	plat_add(&v->past_migrations, w->migrations);
	plat_add(&v->past_limited_ns, w->limited_ns);
	plat_add(&v->past_switches, w->switches);
	plat_add(&v->past_expiries, w->expiries);
	plat_add(&v->past_wakeups, w->wakeups);
	world_leave(h, w);
}

/* The allowed set changed: what a VM was owed on its old pCPUs is not owed on the new ones. */
hot void core_world_affinity(struct host *h, struct world *w, bool restricted)
{
	struct vm *v = plat_vm(h, w->vm);
	u32 old = w->flags & WORLD_RESTRICTED;

	if (!v || !old == !restricted)
		return;
	w->flags ^= WORLD_RESTRICTED;
	plat_add(&v->restricted, restricted ? 1 : -1);
	if (!restricted)
		share_forgive(v, h->v_ns - share_span(h, plat_knobs(h)->wake_credit_us));
}

/* Moves a world to the VM that user space found for it; called where it is charged and not queued. */
hot void world_rebind(struct host *h, struct world *w)
{
	struct vm *from = plat_vm(h, w->vm), *to = plat_vm(h, (u32)w->bind_vm);

	if (to && from && to != from) {
		limit_pay(h, from, w, 0);
		world_leave(h, w);
		world_join(h, w, (u32)w->bind_vm);
		if (world_runnable(w)) {
			world_wants(h, from, -1);
			world_wants(h, to, 1);
		}
	}
	w->kind = w->bind_kind;
	w->index = w->bind_index;
	w->bind_vm = -1;
	world_sibling(h, w);
}

#endif
