/* The record of the host. */
#ifndef TANDEM_HOST_H
#define TANDEM_HOST_H

/* One record. */
struct host {
	/* --- user space --- */

	/* clock of the simulator; the kernel build does not use it */
	u64 now_ns;
	/* of the plan in force */
	u64 generation;
	/* first node of the plan's tree << 32 | number of nodes: one word, so a plan changes at
	 * once */
	u64 plan;
	/* not 0: user space weighs VMs, because some are pinned to a few pCPUs */
	u64 plan_outside;
	/* when tracing ends unless the recorder puts it off: a recorder may have been killed */
	u64 trace_until_ns;

	/* --- tick/housekeep.h --- */

	/* virtual time: the weighted mean of the active VMs' virtual times */
	u64 v_ns;
	/* when v_ns was advanced last */
	u64 v_at_ns;
	/* sums of this round over the active VMs: weighted distance from the host's
	 * virtual time, weights */
	s64 drift_sum;
	s64 drift_total;
	/* time in which all worlds that want to run have a quantum on the pCPUs that are on line */
	u64 round_ns;
	/* correction of the last round that VMs inside their reservations have yet to get */
	s64 drift_step;

	/* --- tick/plan.h --- */

	/* when the division of the plan's tree began last */
	u64 planned_ns;
	/* the plan that is being divided, and its generation */
	u64 dividing;
	u64 dividing_generation;
	/* of the pool whose children are visited: what they asked for, the reserved part, what they
	 * have got */
	u64 plan_asked;
	u64 plan_reserved;
	u64 plan_given;
	/* what VMs get beyond what shared cores would give them, in 2^-20 pCPU: so far, and of the
	 * last divisions */
	u64 plan_beyond;
	u64 beyond;

	/* --- place/online.h --- */

	/* when a pCPU went off line last */
	u64 left_ns;

	/* --- counters, atomic adds --- */

	/* failed assertions, counted where they cannot stop the run */
	u64 asserts;
	/* the last of them: four letters of its file << 32 | line */
	u64 assert_at;
	/* forks that were refused, for the table of worlds was full */
	u64 overflows;

	/* --- user space --- */

	/* ids end here, those that are not online included */
	u32 pcpus;
	u32 clusters;
	/* slots in use end here */
	u32 vms;
	/* hardware threads of a core */
	u32 smt;
	/* slots in use end here; 0 while nothing is limited */
	u32 limiters;
	/* not 0: a recorder reads the trace (housekeep clears it) */
	u32 tracing;

	/* --- place/home.h --- */

	/* not 0: some world has had a home */
	u32 homes;

	/* --- place/online.h --- */

	/* pCPUs that are on line; a world that may use fewer is restricted (atomic adds) */
	u32 online;
	/* cores with such a thread (likewise) */
	u32 cores;

	/* --- life of worlds --- */

	/* slots that were ever in use end here */
	u32 worlds;
	/* not 0: a VM of several vCPUs has been seen */
	u32 smp;

	/* --- tick/housekeep.h and tick/plan.h --- */

	/* part of the round of housekeeping */
	u32 house_part;
	/* worlds that want to run, of this round */
	u32 house_wants;
	/* enum plan_phase, and the nodes that its pass has yet to visit */
	u32 plan_phase;
	u32 plan_next;
	u32 plan_end;
	/* the pool, and its rounds so far */
	u32 plan_pool;
	u32 plan_rounds;
	/* instructions that are left of this part */
	u32 plan_budget;

	/* --- account/charge.h --- */

	/* not 0: the kernel does not count CPU time of runs that begin on an idle pCPU */
	u32 exec_lost;
};

#endif
