/* Records of a VM and of its vCPUs by number. */
#ifndef TANDEM_VM_H
#define TANDEM_VM_H

#include "caps.h"

enum vm_flag {
	VM_LIVE = 1,
	/* pinned to a few pCPUs: the planner keeps its virtual time near the host's */
	VM_HELD = 2,
	/* gets less than it asks for, by the plan's tree (tick/plan.h writes) */
	VM_CONTENDED = 4,
	/* gets no more than its reservation (tick/plan.h writes) */
	VM_RESERVED = 8,
};

/* One VM, or the system group: shared by its worlds on all pCPUs. */
struct vm {
	/* --- account/charge.h (atomic adds) --- */

	/* virtual time: CPU time charged / entitlement */
	u64 vt_ns;
	/* virtual time of the slices that are being run, refunded when they end */
	u64 committed_ns;
	/* largest positive lag that it may keep (account/lag.h) */
	u64 lag_most_ns;
	/* mean CPU time of its busy worlds */
	u64 progress_ns;
	/* CPU time */
	u64 used_ns;
	/* part of it that its worlds have lost on shared cores */
	u64 lost_ns;

	/* --- tick/plan.h, or user space while host.plan_outside --- */

	/* entitlement of the plan, in 2^-20 pCPU */
	u64 weight;
	/* 2^40 / weight: virtual ns per CPU ns, 20 fraction bits */
	u64 inverse;
	/* 2^37 * (vcpus, at most 8) / weight: scale of a world's offset from its siblings */
	u64 offset_inverse;
	/* largest such offset: half the bound on lag, at most OFFSET_MAX_NS */
	s64 offset_max_ns;
	/* what two quanta of CPU time are worth to it, in virtual time */
	u64 round_ns;
	/* what each world gets of the time that it asks for, in 2^-20 */
	u64 each;
	/* virtual time of one request (law/share.h) */
	u64 request_ns;
	/* in 2^-20 pCPU, smoothed */
	u64 demand;
	/* runnable time at the last look, later where bursts were corrected */
	u64 demand_seen_ns;
	/* when that was */
	u64 demand_at_ns;
	/* part of the demand that is lost on shared cores, smoothed, and lost time at that look */
	u64 lost;
	u64 lost_seen_ns;
	/* in 2^-20 pCPU, what it used of late, smoothed like demand, and CPU time at that look */
	u64 served;
	u64 served_seen_ns;

	/* --- callbacks (atomic adds) --- */

	/* runnable time so far = this + runnable * now */
	u64 runnable_base_ns;
	/* when its first world woke */
	u64 woke_ns;
	/* CPU time charged until then */
	u64 woke_used_ns;
	/* budget that the next world to start takes over, 0 for none (compare and swap) */
	u64 kept;
	/* CPU time used with that and not charged to the limiters yet */
	u64 unpaid_ns;

	/* --- tick/cosched.h and account/gang.h --- */

	/* stall of its slowest vCPU that wants to run, at the last look */
	u64 slowest_ns;
	/* deadline of all its vCPUs while a gang slice lasts, 0 without one */
	u64 gang_key;
	/* when that slice began and when it ends */
	u64 gang_since_ns;
	u64 gang_end_ns;
	/* when a vCPU last spun while a sibling was READY */
	u64 spun_ns;
	/* since when it is stopped by strict co-scheduling */
	u64 stopped_ns;

	/* --- of worlds that are gone (atomic adds) --- */

	/* state times, by enum world_state */
	u64 past_ns[8];
	u64 past_used_ns;
	u64 past_lost_ns;
	u64 past_migrations;
	u64 past_limited_ns;
	u64 past_switches;
	u64 past_expiries;
	u64 past_wakeups;

	/* --- account/talk.h; user space empties them --- */

	/* VMs whose worlds wake its worlds, 0 for none, and how often */
	u32 talks_with[VM_TALKS];
	u32 talks[VM_TALKS];

	/* --- counts (atomic adds) --- */

	/* worlds that run, are READY or co-stopped */
	u32 runnable;
	/* worlds with WORLD_RESTRICTED */
	u32 restricted;
	u32 worlds;
	/* vCPUs in its queue of co-stopped ones */
	u32 costopped;
	/* numbers of its vCPUs end here */
	u32 indices;

	/* --- place/place.h --- */

	/* pCPU + 1 where its first world was placed while it was new (compare and swap), 0: none
	 * was */
	u32 first_placed;

	/* --- user space --- */

	u32 vcpus;
	u32 shares;
	/* enum vm_flag */
	u32 flags;
	/* lowest limiter above it, 0 for none */
	u32 limiter;

	/* --- tick/cosched.h --- */

	/* vCPUs that were READY at the last look */
	u32 waiting;
	/* below limits, where its vCPUs spin for each other: how many start together */
	u32 gang_starts;
	/* attempts so far to place the rest of the gang in the gang slice under way */
	u32 gang_tries;
	/* not 0: strict co-scheduling stops all its vCPUs */
	u32 stopped;
};

/* The vCPUs of a VM by number: ids of worlds, 0 for none. Each world writes its own entry; the
 * world's record tells whether an entry is out of date. */
struct siblings {
	u32 world[VCPUS_MAX];
};

#endif
