/* The plan: divides the host among the plan's tree by demand, every housekeep_us, off the critical
 * path. The result is each VM's weight. Names and files are user space's, which writes the tree.
 *
 * Promise	pools are encapsulated: what happens inside one never moves another's part; what one
 *		does not use goes to its siblings first; reservations are met before shares count,
 *		limits and vCPUs cap (VS51 "Proportional Share-Based Algorithm", P1-P6)
 * Law		among the children of a node that has K: x = clamp(level * shares, floor, demand),
 *		with the level for which they sum to K; floor = reserved part of the demand. The
 *		weight of a child that gets all it asks for is what it would get if it asked for all
 *		it may use: clamp((open + x) * shares / (shares of the open ones + its own)); where
 *		all get what they ask for, clamp(K * shares / all shares)
 * Units	2^-20 pCPU
 * Example	A (1000 shares, asks for 1) and B (3000, asks for 8) in a pool that has 4: x = 1, 3.
 *		B asks for 1 too: 1, 1, and the 2 that are left go to the pool's siblings
 * Limits	PLAN_ROUNDS rounds; each settles at least one child, mostly half of them. Demand is
 *		that of the last few periods: after a change weights are off for 20 ms. Where VMs
 *		are pinned to some pCPUs the daemon weighs instead (host.plan_outside)
 */
#ifndef TANDEM_PLAN_H
#define TANDEM_PLAN_H

#include "../account/lag.h"
#include "../law/demand.h"

#define PLAN_ROUNDS 64

/* Brings a VM's demand up to date. Two counters make up its runnable time: a look that saw only one
 * of them change is off by the whole clock, and does not count. */
INLINE void plan_demand(struct vm *v, u64 now, u64 gone)
{
	u64 wanted = demand_wanted(v, now);
	s64 more = (s64)(wanted - v->demand_seen_ns), most = (s64)(gone * (v->worlds + 1ull));

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
}

/* Demand of each node and the reserved part of it, from the leaves up. */
SUBPROG u32 plan_ask(NONNULL(struct host *h), u32 first, u32 count, u64 gone)
{
	u64 now = h->planned_ns;

	plat_for(i, NODES_MAX) {
		struct node *n = i < count ? plat_node(h, first + i) : NULL;
		struct vm *v;

		if (!n)
			break;
		n->demand = n->floor = 0;
		v = n->vm ? plat_vm(h, n->vm - 1) : NULL;
		if (!v)
			continue;
		plan_demand(v, now, gone);
		n->demand = min_u64(v->demand, n->cap);
		n->floor = min_u64(n->reservation, n->demand);
	}
	plat_for(k, NODES_MAX) {
		struct node *n = k + 1 < count ? plat_node(h, first + count - 1 - k) : NULL,
			    *parent;

		if (!n)
			break;
		if (!n->vm) { /* its children have added up their demands */
			n->demand = min_u64(n->demand, n->cap);
			n->floor = max_u64(n->reservation,
					   n->flags & NODE_EXPANDABLE ? n->floor : 0);
			n->floor = min_u64(n->floor, n->demand);
		}
		parent = plat_node(h, first + n->parent);
		if (!parent)
			break;
		parent->demand += n->demand;
		parent->floor += n->floor;
	}
	return 0;
}

/* One round among the unsettled children of `p`: with the rest divided by shares, some are below
 * their floors and some above their demands. The larger of both errors is certain, and its
 * children are settled; false when there is none. */
SUBPROG bool plan_round(NONNULL(struct host *h), NONNULL(struct node *p), u32 children, u32 count)
{
	u64 left = p->left, open = p->open;

	p->under = p->over = 0;
	plat_for(i, NODES_MAX) {
		struct node *n = i < count ? plat_node(h, children + i) : NULL;
		u64 part;

		if (!n)
			break;
		if (n->state != NODE_OPEN)
			continue;
		part = left * n->shares / open;
		if (part < n->floor)
			p->under += n->floor - part;
		else if (part > n->demand)
			p->over += part - n->demand;
	}
	if (!p->under && !p->over)
		return false;
	plat_for(k, NODES_MAX) {
		struct node *n = k < count ? plat_node(h, children + k) : NULL;
		u64 part;

		if (!n)
			break;
		if (n->state != NODE_OPEN)
			continue;
		part = left * n->shares / open;
		if (part < n->floor && p->under >= p->over) {
			n->state = NODE_FLOOR;
			n->gets = n->floor;
		} else if (part > n->demand && p->over >= p->under) {
			n->state = NODE_CEILING;
			n->gets = n->demand;
		} else {
			continue;
		}
		p->left -= min_u64(n->gets, p->left);
		p->open -= n->shares;
	}
	return p->open != 0;
}

/* Entitlement of a child, and its potential, once its siblings are settled. Where all get what they
 * ask for, no child is settled and `left` is everything: potentials are in the ratio of shares. */
INLINE void plan_settle(struct node *p, struct node *n, u64 asked, u64 reserved)
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

/* Writes the result to a VM. */
INLINE void plan_weigh(struct host *h, const struct node *n, struct vm *v)
{
	bool satisfied = n->gets >= n->demand || n->gets <= n->reservation;

	if (!h->plan_outside) {
		lag_rescale(h, v, v->weight, n->could);
		lag_weigh(h, plat_knobs(h), v, n->could);
	}
	v->flags = n->gets < n->demand ? v->flags | VM_CONTENDED : v->flags & ~VM_CONTENDED;
	v->flags = n->reservation && n->gets <= n->reservation ? v->flags | VM_RESERVED
							       : v->flags & ~VM_RESERVED;
	v->request_ns = share_request(h, plat_knobs(h), v,
				      satisfied && n->vm != VM_SYSTEM + 1 && !h->plan_outside);
}

/* Divides a pool's potential among its children. */
SUBPROG u32 plan_pool(NONNULL(struct host *h), u32 first, u32 pool)
{
	struct node *p = plat_node(h, first + pool);
	u64 asked = 0, reserved = 0, given = 0;
	u32 children, count;

	if (!p)
		return 0;
	children = first + p->first;
	count = p->count;
	p->left = p->could;
	p->open = 0;
	p->under = p->over = 0;
	plat_for(i, NODES_MAX) {
		struct node *n = i < count ? plat_node(h, children + i) : NULL;

		if (!n)
			break;
		n->state = NODE_OPEN;
		p->open += n->shares;
		p->under += n->demand;
		p->over += n->floor;
	}
	asked = p->under;
	reserved = p->over;
	p->flags = reserved > p->could ? p->flags | NODE_CUT : p->flags & ~NODE_CUT;
	if (asked > p->could && reserved <= p->could) {
		plat_for(k, PLAN_ROUNDS)
			if (!p->open || !plan_round(h, p, children, count))
				break;
	}
	plat_for(k, NODES_MAX) {
		struct node *n = k < count ? plat_node(h, children + k) : NULL;
		struct vm *v;

		if (!n)
			break;
		plan_settle(p, n, asked, reserved);
		plat_assert(h, n->gets <= n->demand && n->could <= n->cap);
		given += n->gets;
		v = n->vm ? plat_vm(h, n->vm - 1) : NULL;
		if (v && v->flags & VM_LIVE)
			plan_weigh(h, n, v);
	}
	plat_assert(h, given <= p->could);
	return 0;
}

/* Divides the host anew. */
SUBPROG u32 plan_divide(NONNULL(struct host *h))
{
	u64 plan = plat_read(h->plan), now = plat_now(h),
	    gone = now > h->planned_ns ? now - h->planned_ns : 0;
	u32 first = (u32)(plan >> 32), count = (u32)plan;
	struct node *root = count ? plat_node(h, first) : NULL;

	if (!root || !gone)
		return 0;
	h->planned_ns = now;
	plan_ask(h, first, count, gone < SEC_NS ? gone : SEC_NS);
	root->gets = root->demand < root->cap ? root->demand : root->cap;
	root->could = root->cap;
	plat_for(i, NODES_MAX) {
		struct node *n = i < count ? plat_node(h, first + i) : NULL;

		if (!n)
			break;
		if (!n->vm && n->count)
			plan_pool(h, first, i);
	}
	return 0;
}

#endif
