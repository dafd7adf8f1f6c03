/* Records of pCPUs and of clusters of pCPUs. */
#ifndef TANDEM_PCPU_H
#define TANDEM_PCPU_H

#include "caps.h"

/* Up to 64 pCPUs that share a last-level cache; threads of a core are neighbouring bits. */
struct cluster {
	/* pCPUs that run nothing and are not reserved (atomic and/or; place/idle.h) */
	u64 idle;
	/* pCPUs in whose queues worlds wait (atomic and/or; queue/count.h) */
	u64 queued;
	/* pCPUs that are on line (likewise; place/online.h) */
	u64 present;
	/* of these, threads that are kept for another thread of their core (likewise;
	 * place/whole.h) */
	u64 kept;

	/* --- tick/housekeep.h --- */

	/* part of its pCPUs that is busy, in 65,536ths: a mean over LOAD_ROUNDS rounds */
	u32 load;

	/* --- user space --- */

	u32 pcpus;
	u32 llc;
	u32 node;
	/* bit of a home that lets worlds run here (law/home.h) */
	u32 domain;
	/* entries of near, those of its node, and those of its LLC in the node: the first ones */
	u32 nears;
	u32 nears_of_node;
	u32 nears_of_llc;
	/* pCPU of each bit */
	u16 pcpu[CLUSTER_PCPUS];
	/* other clusters: same LLC of the node first, then node, socket, host */
	u16 near[CLUSTERS_MAX];
};

/* One pCPU. Its own CPU writes it; others read hints. */
struct pcpu {
	/* lower bound of the deadlines in its queue of VMs, ~0 when that is empty (a hint) */
	u64 wait_key;
	/* earliest deadline there when it was last looked at; KEY_NONE without one (a hint) */
	u64 best_key;

	/* since when worlds wait in its queues, while they do (queue/count.h) */
	u64 waits_since_ns;

	/* when a look at what waits here was asked for, 0: none is under way; written by CPUs
	 * that wake worlds, and by its timer, which clears it before it reads the count
	 * (place/pull.h) */
	u64 looks_ns;

	/* --- core.c, of the running world --- */

	/* deadline when it was dispatched */
	u64 current_key;
	u64 current_since_ns;
	/* while dispatch looks: a sibling that waits must be earlier than this; KEY_NONE where it
	 * is of no gang, or does not go on */
	u64 sibling_key;
	/* when the pick of the next world began; 0 while one runs, or while idle */
	u64 chose_ns;

	/* --- counters --- */

	/* time it ran worlds, completed runs only */
	u64 busy_ns;
	u64 switches;
	/* worlds taken from other pCPUs' queues */
	u64 pulls;
	/* kicks that asked it to preempt */
	u64 preempts;

	/* --- core.c and place/pick.h --- */

	/* virtual runtime of the host task served here last, when its slice began */
	u64 system_v_ns;
	/* when the starvation guard looked at its queues last */
	u64 rescued_ns;

	/* --- account/taken.h --- */

	/* time in which it neither ran worlds nor idled; a reader adds now - left_ns, read next */
	u64 taken_ns;
	/* when its last world stopped or it ceased to idle; 0 while it runs a world or idles */
	u64 left_ns;

	/* --- account/busy.h, of the core that this pCPU stands for (atomic adds) --- */

	/* a thread was awake for this + now while core_awake is not 0 */
	u64 core_busy_ns;
	/* two or more were awake for this + now while core_awake is above 1 */
	u64 core_shared_ns;
	/* when a thread began to idle last: all do since then while core_awake is 0, which is read
	 * first; 0: before the load */
	u64 core_idle_since_ns;
	/* thousandths of a ns that a thread awake has lost to the others: this + now * the rate at
	 * which it loses them */
	u64 core_lost;
	/* when a second thread ceased to idle; two or more are awake since then while core_awake is
	 * above 1 (a hint) */
	u64 core_shared_since_ns;

	/* --- account/holder.h, of the core --- */

	/* VM << 8 | threads that hold it, 0 for none (compare and swap) */
	u64 holder;

	/* --- account/busy.h, of this pCPU --- */

	/* what its core's threads had lost when its world was charged last, and when that was */
	u64 lost_seen;
	u64 lost_at_ns;

	/* --- tick/cosched.h, of the first pCPU of a block --- */

	/* when the block's tick looked at all its VMs last */
	u64 looked_ns;
	/* time until it looks at some of them again */
	u64 look_in_ns;

	/* --- user space --- */

	u32 id;
	u32 cluster;
	/* bit within the cluster */
	u32 bit;

	/* --- core.c --- */

	u32 current_vm;
	/* 0 while idle */
	u32 current_world;
	/* the world that ran here last; 0 once the pCPU has idled */
	u32 last_world;

	/* cursor of the search among remote pCPUs */
	u32 probe;
	/* worlds in its queue of VMs (atomic; queue/count.h) */
	u32 waits_vm;
	/* worlds in its queue of host tasks (likewise) */
	u32 waits_system;

	/* --- user space --- */

	u32 node;
	/* that of its cluster */
	u32 domain;
	u32 core;
	/* limiter whose parked worlds this pCPU considers beside its own queue, 0 for none */
	u32 serve_limiter;
	/* the pCPU that stands for its core */
	u32 core_first;
	/* threads of the core that are not idle (atomic adds; account/busy.h) */
	u32 core_awake;
	/* world that has the core alone, 0 for none (compare and swap; place/whole.h) */
	u32 whole;
	/* pCPU + 1 of the thread that takes the core next, 0 for none (compare and swap;
	 * account/holder.h) */
	u32 holder_next;
	/* world that left a shared core to run here next, 0 for none (compare and swap;
	 * place/spread.h) */
	u32 comes;
	/* threads of the core that are on line (atomic adds; place/online.h) */
	u32 core_online;
	/* it was not idle when last seen (only on hosts with hyper-threads) */
	u32 awake;
	/* state of the kick that a queued world has sent here (enum kick_state) */
	u32 kicked;
	/* world to which the running one yields the pCPU, 0 for none */
	u32 yield_to;
	/* READY vCPU of a gang that runs here next, 0 for none (tick/gang.h) */
	u32 gang_next;
	/* not 0: worlds wait here outside their homes (place/home.h), or at `strays_of` */
	u32 strays;
	/* pCPU + 1 that cannot pick, whose strays this one is to move; 0 for none. The caller
	 * of core_home writes it, and the own CPU clears it: a request that is lost between them
	 * leaves the strays where they are (place/home.h) */
	u32 strays_of;
	/* four bytes of tell/trace.h for the next records, each written alone */
	u32 trace_note;
};

#endif
