/* Divides the host among the plan's tree by what everybody asks for now, every housekeep_us, off the critical path: the
 * result is each VM's weight. It knows nothing of names and files; user space makes the tree.
 *
 * Promise	pools are encapsulated: what happens inside one never moves another's part; what one does not use goes to its
 *		siblings first; reservations are met before shares count, limits and vCPUs cap (VS51 "Proportional Share-Based
 *		Algorithm", P1-P6)
 * Law		among the children of a node that has K: x = clamp(level * shares, floor, demand), with the level for which they
 *		sum to K; floor = what is reserved of the demand. A child that gets all it asks for weighs what it could have,
 *		were it to ask for all it may use: clamp((open + x) * shares / (shares of the open ones + its own)); where
 *		everybody gets all he asks for, clamp(K * shares / all shares)
 * Units	2^-20 pCPU
 * Example	A (1000 shares, asks for 1) and B (3000, asks for 8) in a pool that has 4: x = 1, 3. B asks for 1 too: 1, 1, and
 *		the 2 that are left go to the pool's siblings
 * Limits	PLAN_ROUNDS rounds; each settles at least one child, mostly half of them
 * Weakness	demand is that of the last few periods: after a change VMs weigh too little or too much for 20 ms;
 *		where VMs are held to some pCPUs the daemon weighs instead (host.plan_outside)
 */
#ifndef TANDEM_PLAN_H
#define TANDEM_PLAN_H

#include "policy/share.h"

#define PLAN_ROUNDS 64
#define PLAN_GONE_MAX_NS 1000000000ull

#define WANTED_UNKNOWN (~0ull)
#define PLAN_PERIODS 2	/* three quarters of what a plan goes by is of the last two */
#define WAITED_MIN_NS 100000ull	/* a burst's wait that is noted: a hundredth of a period */
#define WAITED_MAX_NS 100000000ull	/* of a burst's wait and of the sleep before it; what is longer ago has had its effect */

/* What a VM has asked for since it was looked at last; half of it new. While nobody of it has run since it woke, nobody knows what it
 * wants: it counts up to its waking, or an idle guest whose tick has to wait would be taken for a busy one and wait longer still. Two
 * counters make up what it wanted: a change of both that is seen half is off by the whole clock, and that look does not count. */
hot void plan_demand(struct vm *v, u64 now, u64 gone)
{
	bool waits = with(DEMAND_WOKEN) && v->woke_used_ns && !plat_read(v->committed_ns) && plat_read(v->used_ns) == v->woke_used_ns;
	u64 wanted = plat_read(v->wanted_base) + plat_read(v->runnable) * (waits ? v->woke_ns : now);
	s64 more = (s64)(wanted - v->wanted_ns), most = (s64)(gone * (v->worlds + 1ull));

	if (v->wanted_ns == WANTED_UNKNOWN) {
		v->wanted_ns = wanted;
	} else if (more > most || more < -most) {
		v->wanted_ns = WANTED_UNKNOWN;
	} else if (more < 0) {
		v->demand /= 2; /* bursts took back what they had waited; the rest of it is taken off next time */
	} else {
		if (!with(DEMAND_HALF))
			v->demand = ((u64)more << RATE_SHIFT) / gone + 1;
		v->demand = (v->demand + ((u64)more << RATE_SHIFT) / gone + 1) / 2; /* rounded up: a busy world reaches a whole pCPU */
		v->wanted_ns = wanted;
	}
}

hot u64 plan_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

hot u64 plan_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* What each node asks for and what of it is reserved, from the leaves up. */
cold u32 plan_ask(THE(struct host *h), u32 first, u32 count, u64 gone)
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
		n->demand = plan_min(v->demand, n->cap);
		n->floor = plan_min(n->reservation, n->demand);
	}
	plat_for(k, NODES_MAX) {
		struct node *n = k + 1 < count ? plat_node(h, first + count - 1 - k) : NULL, *parent;

		if (!n)
			break;
		if (!n->vm) { /* its children have added up what they ask for */
			n->demand = plan_min(n->demand, n->cap);
			n->floor = plan_max(n->reservation, n->flags & NODE_EXPANDABLE ? n->floor : 0);
			n->floor = plan_min(n->floor, n->demand);
		}
		parent = plat_node(h, first + n->parent);
		if (!parent)
			break;
		parent->demand += n->demand;
		parent->floor += n->floor;
	}
	return 0;
}

/* One round among the children of `p` that are still open: where `left` is divided by shares, who is below his floor or gets
 * more than he asks for? The larger of both errors is certain and settled; false when there is none. */
cold bool plan_round(THE(struct host *h), THE(struct node *p), u32 children, u32 count)
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
		p->left -= plan_min(n->gets, p->left);
		p->open -= n->shares;
	}
	return p->open != 0;
}

/* What a child gets, and what it could get, once its siblings are settled. Where nobody must do with less than he asks for,
 * all are open and `left` is all there is: then what they could get is in the ratio of their shares. */
hot void plan_settle(struct node *p, struct node *n, u64 asked, u64 reserved)
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
	could = plan_max(could, plan_max(n->gets, n->sure));
	if (!with(COULD_WEIGHT))
		could = n->gets;
	n->could = plan_min(could, plan_min(n->cap, has));
}

/* What a VM has had too much, or is owed, is CPU time: at another weight it is another stretch of virtual time. What it is owed
 * does not grow in virtual time if it got all it asked for: much of it was never asked for. Else it must: weights go up and
 * down many times a second beside host tasks, and whoever is behind would lose a part each time (3 % for one VM, in the lab). */
hot void plan_rescale(struct host *h, struct vm *v, u64 before, u64 weight)
{
	s64 ahead = (s64)(plat_read(v->vt_ns) - h->v_ns);
	u64 far = (u64)(ahead < 0 ? -ahead : ahead), new;

	if (!with(RESCALE))
		return;
	if (before < WEIGHT_MIN || weight < WEIGHT_MIN || (with(RESCALE_EXCEPT) && ahead < 0 && weight < before && !(v->flags & VM_CONTENDED)))
		return;
	/* A VM that had a tiny weight when it started may be hours of virtual time ahead: 2^22 us * 2^30 fits, and so does 2^42 ns. */
	new = far >> 32 ? (far >> 10) * before / weight << 10 : far * before / weight;
	plat_add(&v->vt_ns, ahead < 0 ? far - new : new - far);
}

/* Tells a VM what came out. One that gets all it asks for, or its reservation, or that a limit keeps from saving much up, can
 * never catch up on what it misses: it is urgent when it is behind. */
hot void plan_weigh(struct host *h, const struct node *n, struct vm *v)
{
	bool entitled = n->gets >= n->demand || n->gets <= n->reservation || plat_read(v->limiter);

	if (!h->plan_outside) {
		plan_rescale(h, v, v->weight, n->could);
		share_weigh(h, plat_knobs(h), v, n->could);
	}
	v->flags = n->gets < n->demand ? v->flags | VM_CONTENDED : v->flags & ~VM_CONTENDED;
	v->flags = n->reservation && n->gets <= n->reservation ? v->flags | VM_RESERVED : v->flags & ~VM_RESERVED;
	v->urgent_ns = entitled && n->vm != VM_SYSTEM + 1 && !h->plan_outside
			       ? share_urgency(h, plat_knobs(h), (s64)(h->v_ns - plat_read(v->vt_ns))) : 0;
}

/* Divides what a pool could have among its children. */
cold u32 plan_pool(THE(struct host *h), u32 first, u32 pool)
{
	struct node *p = plat_node(h, first + pool);
	u64 asked = 0, reserved = 0;
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
		v = n->vm ? plat_vm(h, n->vm - 1) : NULL;
		if (v && v->flags & VM_LIVE)
			plan_weigh(h, n, v);
	}
	return 0;
}

/* Divides the host anew. */
cold u32 plan_divide(THE(struct host *h))
{
	u64 plan = plat_read(h->plan), now = plat_now(h), gone = now > h->planned_ns ? now - h->planned_ns : 0;
	u32 first = (u32)(plan >> 32), count = (u32)plan;
	struct node *root = count ? plat_node(h, first) : NULL;

	if (!root || !gone)
		return 0;
	h->planned_ns = now;
	plan_ask(h, first, count, gone < PLAN_GONE_MAX_NS ? gone : PLAN_GONE_MAX_NS);
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
