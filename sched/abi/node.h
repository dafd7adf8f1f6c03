/* One node of the plan's tree, a VM or a pool. */
#ifndef TANDEM_NODE_H
#define TANDEM_NODE_H

enum node_flag {
	/* a pool that borrows from its parent what its children reserve beyond its own
	 * reservation */
	NODE_EXPANDABLE = 1,
	/* its children's reservations are more than it has: each gets its part */
	NODE_CUT = 2,
};
enum node_state { NODE_OPEN, NODE_FLOOR, NODE_CEILING };
/* What a pass over nodes does (host.plan_phase). LEAVES and FIND go over the tree, SUMS from its
 * end; the others over the children of a pool. */
enum plan_phase {
	PLAN_DONE,
	/* demands of the VMs */
	PLAN_LEAVES,
	/* demands of the pools, and the reserved part */
	PLAN_SUMS,
	/* the next pool */
	PLAN_FIND,
	/* all its children are open */
	PLAN_OPEN,
	/* how many are below their floors or above their demands */
	PLAN_ERRORS,
	/* those whose error is certain are settled */
	PLAN_TAKE,
	/* entitlements */
	PLAN_SETTLE,
};

/* Nodes come breadth first: the root first, the children of a node side by side. User space writes
 * a plan whole, into the half of the array that is not in force; from then on only tick/plan.h
 * writes. All amounts are in 2^-20 pCPU. */
struct node {
	/* --- user space --- */

	/* weight among its siblings */
	u64 shares;
	u64 reservation;
	/* reserved if all nodes ask for all they may use; of an expandable pool, also below it */
	u64 sure;
	/* the most it may use: limit, vCPUs, the host */
	u64 cap;

	/* --- tick/plan.h --- */

	/* what it asks for, at most cap */
	u64 demand;
	/* part of the demand that it does not lose to shared cores: what is gone if it gets all */
	u64 uses;
	/* reserved part of the demand */
	u64 floor;
	/* entitlement now */
	u64 gets;
	/* entitlement if it asked for all it may use: a VM's weight */
	u64 could;
	/* of a pool: what its unsettled children divide */
	u64 left;
	/* sum of the shares of these */
	u64 open;
	/* by how much they are below their floors */
	u64 under;
	/* by how much they are above their demands */
	u64 over;

	/* --- user space --- */

	/* children, by number within the plan */
	u32 first;
	u32 count;
	u32 parent;
	/* its VM plus 1; 0 for a pool */
	u32 vm;
	/* enum node_flag */
	u32 flags;
	/* enum node_state (tick/plan.h writes) */
	u32 state;
};

#endif
