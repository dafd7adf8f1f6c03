/* The plan: divides the host among the plan's tree by demand, every housekeep_us, off the critical
 * path. The result is each VM's weight. Names and files are user space's, which writes the tree.
 *
 * Promise	pools are encapsulated: what happens inside one never moves another's part; what one
 *		does not use goes to its siblings first; reservations are met before shares count,
 *		limits and vCPUs cap (VS51 "Proportional Share-Based Algorithm", P1-P6)
 * Law		K of the root is what its cores can give (law/cores.h). Among the children of a node
 *		that has K: x = clamp(level * shares, floor, demand),
 *		with the level for which they sum to K; floor = reserved part of the demand. The
 *		weight of a child that gets all it asks for is what it would get if it asked for all
 *		it may use: clamp((open + x) * shares / (shares of the open ones + its own)); where
 *		all get what they ask for, clamp(K * shares / all shares)
 * Units	2^-20 pCPU
 * Example	A (1000 shares, asks for 1) and B (3000, asks for 8) in a pool that has 4: x = 1, 3.
 *		B asks for 1 too: 1, 1, and the 2 that are left go to the pool's siblings
 * Limits	PLAN_ROUNDS rounds; each settles at least one child, mostly half of them. Demand is
 *		that of the last few periods: after a change weights are off for 20 ms. A part
 *		ends after PLAN_PART instructions, a round after PLAN_ROUND, and the next goes on:
 *		1,000 VMs in one pool are divided every 30 ms. Where VMs are pinned to some pCPUs
 *		the daemon weighs instead (host.plan_outside)
 */
#ifndef TANDEM_PLAN_H
#define TANDEM_PLAN_H

#include "../account/lag.h"
#include "../law/cores.h"
#include "../law/demand.h"

#define PLAN_ROUNDS 64
/* instructions of one part: 11 us */
#define PLAN_PART 32768
/* instructions of one round: 1 % of a pCPU */
#define PLAN_ROUND (8 * PLAN_PART)
/* instructions of one visit, by phase, at most */
#define PLAN_LEAF_COST 64
#define PLAN_CHEAP_COST 24
#define PLAN_ERRORS_COST 32
#define PLAN_SETTLE_COST 256

/* Brings a VM's demand up to date. Two counters make up its runnable time: a look that saw only one
 * of them change is off by the whole clock, and does not count. */
INLINE void plan_demand(struct vm *v, u64 now)
{
	u64 gone = now > v->demand_at_ns ? now - v->demand_at_ns : 0;
	u64 wanted = demand_wanted(v, now);
	s64 more = (s64)(wanted - v->demand_seen_ns), most;

	if (!gone)
		return;
	v->demand_at_ns = now;
	gone = min_u64(gone, SEC_NS);
	most = (s64)(gone * (v->worlds + 1ull));
	if (v->demand_seen_ns == DEMAND_UNKNOWN) {
		v->demand_seen_ns = wanted;
	} else if (more > most || more < -most) {
		v->demand_seen_ns = DEMAND_UNKNOWN;
	} else if (more < 0) {
		v->demand /= 2; /* bursts were corrected; the rest is taken off at the next look */
	} else {
		v->demand = demand_next(v->demand, (u64)more, gone);
		v->demand_seen_ns = wanted;
	}
	v->lost = (v->lost + ((v->lost_ns - v->lost_seen_ns) << RATE_SHIFT) / gone) / 2;
	v->lost_seen_ns = v->lost_ns;
	v->served = (v->served + ((v->used_ns - v->served_seen_ns) << RATE_SHIFT) / gone) / 2;
	v->served_seen_ns = v->used_ns;
}

/* A leaf's demand and the reserved part of it; a pool's begins at 0. */
INLINE void plan_leaf(struct host *h, struct node *n, u64 now)
{
	struct vm *v = n->vm ? plat_vm(h, n->vm - 1) : NULL;

	n->demand = n->uses = n->floor = 0;
	if (!v)
		return;
	plan_demand(v, now);
	n->demand = min_u64(v->demand, n->cap);
	n->uses = min_u64(n->demand, v->demand - min_u64(v->demand, v->lost));
	n->floor = min_u64(n->reservation, n->demand);
}

/* Adds a node to its parent; its own children have been added. */
INLINE void plan_sum(struct host *h, u32 first, struct node *n)
{
	struct node *parent = plat_node(h, first + n->parent);

	if (!n->vm) {
		n->demand = min_u64(n->demand, n->cap);
		n->uses = min_u64(n->uses, n->demand);
		n->floor = max_u64(n->reservation, n->flags & NODE_EXPANDABLE ? n->floor : 0);
		n->floor = min_u64(n->floor, n->demand);
	}
	if (!parent)
		return;
	parent->demand += n->demand;
	parent->uses += n->uses;
	parent->floor += n->floor;
}

INLINE void plan_open(struct node *p, struct node *n)
{
	n->state = NODE_OPEN;
	p->open += n->shares;
	p->under += n->demand;
	p->over += n->floor;
}

/* A round divides what was left at its begin by the shares that were open then. */
INLINE void plan_errors(struct node *p, struct node *n, u64 left, u64 open)
{
	if (n->state != NODE_OPEN)
		return;
	n->gets = left * n->shares / open;
	if (n->gets < n->floor)
		p->under += n->floor - n->gets;
	else if (n->gets > n->demand)
		p->over += n->gets - n->demand;
}

/* CPU time that is gone if a child gets all it asks for. Below a pool that uses its limit up, of a
 * VM that asks for little, what it has used lately: each of its short bursts waits for budget, and
 * that wait would be given to none. */
SUBPROG u64 plan_uses(NONNULL(struct host *h), NONNULL(struct node *p), NONNULL(struct node *n))
{
	struct vm *v = n->vm ? plat_vm(h, n->vm - 1) : NULL;

	if (!v || !h->plan_pool || p->gets < p->cap || v->demand * 8 >= (7ull << RATE_SHIFT))
		return n->uses;
	return min_u64(n->uses, v->served);
}

/* The larger of both errors is certain, and its children are settled. */
INLINE void plan_take(struct host *h, struct node *p, struct node *n)
{
	if (n->state != NODE_OPEN)
		return;
	if (n->gets < n->floor && p->under >= p->over) {
		n->state = NODE_FLOOR;
		n->gets = n->floor;
	} else if (n->gets > n->demand && p->over >= p->under) {
		n->state = NODE_CEILING;
		n->gets = n->demand;
	} else {
		return;
	}
	p->left -= min_u64(n->state == NODE_CEILING ? plan_uses(h, p, n) : n->gets, p->left);
	p->open -= n->shares;
}

/* Entitlement of a child, and its potential, once its siblings are settled. Where all get what they
 * ask for, no child is settled and `left` is everything: potentials are in the ratio of shares. */
INLINE void plan_entitle(struct node *p, struct node *n, u64 asked, u64 reserved)
{
	u64 has = p->could, could;

	if (asked <= has)
		n->gets = n->demand;
	else if (reserved > has)
		n->gets = n->floor * has / reserved;
	else if (n->state == NODE_OPEN)
		n->gets = p->open ? p->left * n->shares / p->open : 0;
	if (n->gets < n->demand) {
		n->could = n->gets;
		return;
	}
	if (reserved > has)
		could = n->gets;
	else if (n->state == NODE_OPEN)
		could = p->left * n->shares / p->open;
	else
		could = (p->left + n->gets) * n->shares / (p->open + n->shares);
	could = max_u64(could, max_u64(n->gets, n->sure));
	if (!with(COULD_WEIGHT))
		could = n->gets;
	n->could = min_u64(could, min_u64(n->cap, has));
}

/* Whether a VM that gets `gets` gets nearly all that it asks for, or what is reserved for it: with
 * an eighth of its time or less to make up for a wait it is as if it had none; or all that the
 * limit of its pool leaves it, for budget is lost that it waits too long to use. Where user space
 * weighs VMs, one that is pinned and sleeps: the plan does not know what others get, and one that
 * can go elsewhere does. */
INLINE bool plan_satisfied(const struct host *h, const struct node *p, const struct node *n,
			   const struct vm *v, u64 gets)
{
	bool nearly = gets * 8 >= n->demand * 7;

	if (n->vm == VM_SYSTEM + 1)
		return false;
	if (h->plan_outside)
		return nearly && plat_read(v->restricted) &&
		       n->demand * 8 < ((u64)v->vcpus << RATE_SHIFT) * 7;
	return nearly || n->gets <= n->reservation || (h->plan_pool && p->gets >= p->cap);
}

/* Writes the result to a VM. */
INLINE void plan_weigh(struct host *h, const struct node *p, const struct node *n, struct vm *v)
{
	u64 gets;

	if (!h->plan_outside && n->could != v->weight) {
		lag_rescale(h, v, v->weight, n->could);
		lag_weigh(h, plat_knobs(h), v, n->could);
	}
	/* where VMs are pinned the tree does not say what they get */
	gets = h->plan_outside ? min_u64(v->weight, n->demand) : n->gets;
	v->each = v->demand ? min_u64((gets << RATE_SHIFT) / v->demand, 1ull << RATE_SHIFT)
			    : 1ull << RATE_SHIFT;
	v->flags = gets < n->demand ? v->flags | VM_CONTENDED : v->flags & ~VM_CONTENDED;
	v->flags = n->reservation && n->gets <= n->reservation ? v->flags | VM_RESERVED
							       : v->flags & ~VM_RESERVED;
	v->request_ns = share_request(h, plat_knobs(h), v, plan_satisfied(h, p, n, v, gets));
}

/* A function of its own, for a verifier walks a loop anew for every path through its body: 6.12
 * found more than it takes. */
SUBPROG u32 plan_settle(NONNULL(struct host *h), NONNULL(struct node *p), NONNULL(struct node *n))
{
	struct vm *v = n->vm ? plat_vm(h, n->vm - 1) : NULL;

	u64 gives;

	plan_entitle(p, n, h->plan_asked, h->plan_reserved);
	plat_assert(h, n->gets <= n->demand && n->could <= n->cap);
	gives = n->gets < n->demand ? n->gets : plan_uses(h, p, n);
	h->plan_given += gives;
	if (v)
		h->plan_beyond += cores_beyond(h, plat_knobs(h), gives, v->demand);
	if (v && v->flags & VM_LIVE)
		plan_weigh(h, p, n, v);
	return 0;
}

/* The next pass goes over `count` nodes from `from` on, numbers within the plan. */
INLINE void plan_begin(struct host *h, u32 phase, u32 from, u32 count)
{
	h->plan_phase = phase;
	h->plan_next = from;
	h->plan_end = from + count;
}

/* A pass over the children of the pool. */
INLINE void plan_children(struct host *h, const struct node *p, u32 phase)
{
	plan_begin(h, phase, p->first, p->count);
}

/* A round, if one is needed. */
INLINE void plan_round(struct host *h, struct node *p)
{
	if (!p->open || h->plan_rounds++ >= PLAN_ROUNDS) {
		plan_children(h, p, PLAN_SETTLE);
		return;
	}
	p->under = p->over = 0;
	plan_children(h, p, PLAN_ERRORS);
}

/* All children are open, and what they ask for is known. */
INLINE void plan_opened(struct host *h, struct node *p)
{
	h->plan_asked = p->under;
	h->plan_reserved = p->over;
	h->plan_given = 0;
	h->plan_rounds = 0;
	p->flags = p->over > p->could ? p->flags | NODE_CUT : p->flags & ~NODE_CUT;
	if (p->under > p->could && p->over <= p->could)
		plan_round(h, p);
	else
		plan_children(h, p, PLAN_SETTLE);
}

/* A pass has ended: the next one. */
SUBPROG u32 plan_pass(NONNULL(struct host *h), u32 first, u32 count)
{
	struct node *p = plat_node(h, first + h->plan_pool);

	if (!p)
		return 0;
	switch (h->plan_phase) {
	case PLAN_LEAVES:
		plan_begin(h, PLAN_SUMS, 0, count - 1);
		break;
	case PLAN_SUMS: /* the pool is the root */
		p->gets = min_u64(p->demand, p->cap);
		p->could = cores_give(h, plat_knobs(h), p->cap, p->demand);
		h->plan_beyond = 0;
		plan_begin(h, PLAN_FIND, 0, count);
		break;
	case PLAN_OPEN:
		plan_opened(h, p);
		break;
	case PLAN_ERRORS:
		plan_children(h, p, p->under || p->over ? PLAN_TAKE : PLAN_SETTLE);
		break;
	case PLAN_TAKE:
		plan_round(h, p);
		break;
	case PLAN_SETTLE:
		plat_assert(h, h->plan_given <= p->could);
		plan_begin(h, PLAN_FIND, h->plan_pool + 1, count - h->plan_pool - 1);
		break;
	default:
		h->beyond = (h->beyond + h->plan_beyond) / 2; /* the next sum falls as this rises */
		plan_begin(h, PLAN_DONE, 0, 0);
	}
	return 0;
}

/* A range of nodes, from number `from` of the array on. */
#define plan_each(i, n, from, visits)						\
	plat_for(i, NODES_MAX)							\
		if (!(n = i < visits ? plat_node(h, from + i) : NULL))		\
			break;							\
		else

SUBPROG u32 plan_leaves(NONNULL(struct host *h), u32 from, u32 visits)
{
	u64 now = plat_now(h);
	struct node *n;

	plan_each(i, n, from, visits)
		plan_leaf(h, n, now);
	return 0;
}

/* From `from` down. */
SUBPROG u32 plan_sums(NONNULL(struct host *h), u32 first, u32 from, u32 visits)
{
	plat_for(i, NODES_MAX) {
		struct node *n = i < visits ? plat_node(h, from - i) : NULL;

		if (!n)
			break;
		plan_sum(h, first, n);
	}
	return 0;
}

/* The next pool that has children, from number `at` of the plan on, divides its potential. */
SUBPROG u32 plan_find(NONNULL(struct host *h), u32 first, u32 at, u32 visits)
{
	struct node *n;

	plan_each(i, n, first + at, visits) {
		if (n->vm || !n->count)
			continue;
		h->plan_pool = at + i;
		n->left = n->could;
		n->open = n->under = n->over = 0;
		plan_children(h, n, PLAN_OPEN);
		break;
	}
	return 0;
}

SUBPROG u32 plan_opens(NONNULL(struct host *h), NONNULL(struct node *p), u32 from, u32 visits)
{
	struct node *n;

	plan_each(i, n, from, visits)
		plan_open(p, n);
	return 0;
}

SUBPROG u32 plan_all_errors(NONNULL(struct host *h), NONNULL(struct node *p), u32 from, u32 visits)
{
	u64 left = p->left, open = p->open;
	struct node *n;

	if (!open)
		return 0;
	plan_each(i, n, from, visits)
		plan_errors(p, n, left, open);
	return 0;
}

SUBPROG u32 plan_takes(NONNULL(struct host *h), NONNULL(struct node *p), u32 from, u32 visits)
{
	struct node *n;

	plan_each(i, n, from, visits)
		plan_take(h, p, n);
	return 0;
}

SUBPROG u32 plan_settles(NONNULL(struct host *h), NONNULL(struct node *p), u32 from, u32 visits)
{
	struct node *n;

	plan_each(i, n, from, visits)
		plan_settle(h, p, n);
	return 0;
}

/* Instructions of a visit. */
INLINE u32 plan_cost(u32 phase)
{
	return phase == PLAN_SETTLE   ? PLAN_SETTLE_COST
	       : phase == PLAN_LEAVES ? PLAN_LEAF_COST
	       : phase == PLAN_ERRORS ? PLAN_ERRORS_COST
				      : PLAN_CHEAP_COST;
}

/* Visits nodes of this pass while `budget` lasts. Returns what that cost. */
SUBPROG u32 plan_visit(NONNULL(struct host *h), u32 first, u32 count, u32 budget)
{
	u32 phase = h->plan_phase, at = h->plan_next, cost = plan_cost(phase);
	u32 visits = (u32)min_u64(budget / cost, h->plan_end - at), from = first + at;
	struct node *p = plat_node(h, first + h->plan_pool);

	if (!p)
		return budget;
	h->plan_next = at + visits;
	switch (phase) {
	case PLAN_LEAVES:
		plan_leaves(h, from, visits);
		break;
	case PLAN_SUMS:
		plan_sums(h, first, first + count - 1 - at, visits);
		break;
	case PLAN_FIND:
		plan_find(h, first, at, visits);
		break;
	case PLAN_OPEN:
		plan_opens(h, p, from, visits);
		break;
	case PLAN_ERRORS:
		plan_all_errors(h, p, from, visits);
		break;
	case PLAN_TAKE:
		plan_takes(h, p, from, visits);
		break;
	case PLAN_SETTLE:
		plan_settles(h, p, from, visits);
	}
	return (u32)min_u64(budget, (u64)(visits + 1) * cost);
}

/* Divides the host anew: goes on where the last part ended, or begins if `anew`. A tree that is no
 * longer in force is left: two later, another is in its place. */
SUBPROG u32 plan_divide(NONNULL(struct host *h), bool anew, u32 parts)
{
	u64 plan = plat_read(h->plan), now = plat_now(h), generation = plat_read(h->generation);
	u32 first = (u32)(plan >> 32), count = (u32)plan;

	if (h->dividing != plan || h->dividing_generation != generation ||
	    (anew && h->plan_phase == PLAN_DONE && now > h->planned_ns)) {
		h->dividing = plan;
		h->dividing_generation = generation;
		h->planned_ns = now;
		h->plan_pool = 0;
		plan_begin(h, count ? PLAN_LEAVES : PLAN_DONE, 0, count);
	}
	h->plan_budget = (u32)min_u64(PLAN_PART, PLAN_ROUND / (parts ? parts : 1));
	plat_for(i, PLAN_PART) {
		if (h->plan_phase == PLAN_DONE || h->plan_budget < 2 * PLAN_SETTLE_COST)
			break;
		if (h->plan_next < h->plan_end)
			h->plan_budget -= plan_visit(h, first, count, h->plan_budget);
		else
			plan_pass(h, first, count);
	}
	return 0;
}

#endif
