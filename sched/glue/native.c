/* The native build of the scheduler: core.c behind the C interface that crates/sched-core calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core.h"
#include "../core.c"

#define WORLD(h, t) plat_world_of(h, t)

#ifdef TANDEM_ABLATE
u64 native_ablated;

/* TANDEM_ABLATE lists mechanisms that are off, by name, with commas between them. */
__attribute__((constructor)) static void native_ablate(void)
{
	static const char *const names[] = {
#define MECHANISM(name, room, what) #name,
#include "../abi/mechanisms.def"
#undef MECHANISM
	};
	const char *at = getenv("TANDEM_ABLATE");

	while (at && *at) {
		size_t length = strcspn(at, ",");
		u32 i = 0;

		while (i < MECHANISMS &&
		       (strlen(names[i]) != length || memcmp(names[i], at, length)))
			i++;
		if (i == MECHANISMS) {
			fprintf(stderr,
				"TANDEM_ABLATE: cannot switch off '%.*s': no such mechanism; "
				"abi/mechanisms.def lists them\n",
				(int)length, at);
			exit(3);
		}
		native_ablated |= 1ull << i;
		at += length + (at[length] == ',');
	}
}
#endif

void sched_world_start(struct host *h, plat_task *t)
{
	struct world *w = WORLD(h, t);

	w->flags |= WORLD_NEW;
	core_world_start(h, t, w);
}
void sched_world_exit(struct host *h, plat_task *t) { core_world_exit(h, WORLD(h, t)); }
void sched_world_affinity(struct host *h, plat_task *t)
{
	core_world_affinity(h, t, WORLD(h, t));
}

void sched_home(struct host *h, plat_task *t, u64 home) { core_home(h, WORLD(h, t), home); }

void sched_vm_bind(struct host *h, struct world *w, u32 vm, u32 kind, u32 index)
{
	(void)h;
	w->bind_kind = kind;
	w->bind_index = index;
	w->bind_vm = (s32)vm;
}

void sched_vm_weight(struct host *h, u32 vm, u64 weight, u32 vcpus, u32 shares)
{
	lag_set_weight(h, plat_vm(h, vm), weight, vcpus, shares, false, 0);
}

void sched_vm_plan(struct host *h, u32 vm, u64 weight, u32 vcpus, u32 shares, bool held, s64 shift)
{
	lag_set_weight(h, plat_vm(h, vm), weight, vcpus, shares, held, shift);
}

s32 sched_select(struct host *h, plat_task *t, s32 prev, s32 waker)
{
	return core_select(h, t, WORLD(h, t), prev, waker);
}
void sched_runnable(struct host *h, plat_task *t) { core_runnable(h, t, WORLD(h, t)); }
void sched_enqueue(struct host *h, plat_task *t, u32 flags)
{
	core_enqueue(h, t, WORLD(h, t), flags);
}
void sched_dispatch(struct host *h, u32 pcpu, plat_task *prev) { core_dispatch(h, pcpu, prev); }
void sched_running(struct host *h, plat_task *t) { core_running(h, t, WORLD(h, t)); }
void sched_stopping(struct host *h, plat_task *t, bool runnable)
{
	core_stopping(h, t, WORLD(h, t), runnable);
}
void sched_quiescent(struct host *h, plat_task *t, bool sleeping)
{
	core_quiescent(h, t, WORLD(h, t), sleeping);
}
void sched_disabled(struct host *h, plat_task *t) { core_disabled(h, WORLD(h, t)); }
void sched_idle(struct host *h, u32 pcpu, bool idle) { core_idle(h, pcpu, idle); }
void sched_online(struct host *h, u32 pcpu, bool online) { core_online(h, pcpu, online); }
u64 sched_housekeep(struct host *h) { return core_housekeep(h); }
void sched_audit(struct host *h) { core_audit(h); }
u32 sched_limits_parts(struct host *h) { return limits_parts(h); }
u64 sched_limits(struct host *h, u32 part) { return core_limits(h, part); }
u64 sched_look(struct host *h, u32 pcpu) { return pull_look(h, pcpu); }
u64 sched_cosched(struct host *h, u32 block) { return core_cosched(h, block); }

_Static_assert(sizeof(struct block_timers) == 6, "as crates/sched-core/src/blocks.rs has it");

void sched_block_start(struct block_timers *b, u32 timers)
{
	for (u32 timer = BLOCK_COSCHED; timer <= BLOCK_LIMITS; timer <<= 1)
		if (timers & timer)
			block_unclaimed(b, timer);
}

u32 sched_block_claim(struct block_timers *b, u32 pcpu, u32 house)
{
	u32 timer = block_claims(b, pcpu, house);

	if (timer)
		block_claimed(b, timer, pcpu);
	return timer;
}

void sched_guest(struct host *h, plat_task *t, bool inside)
{
	stall_crossed(h, WORLD(h, t), inside);
}
bool sched_yield_to(struct host *h, plat_task *t, plat_task *to)
{
	return core_yield(h, WORLD(h, t), WORLD(h, to));
}

/* One block for a whole host; NULL when there is no memory. */
struct native *native_new(u32 pcpus, u32 vms, u32 worlds, u32 pools)
{
	u32 nodes = 2 * (vms + pools), limiters = LIMITERS_MAX;
	size_t at_pcpus = (sizeof(struct native) + 63) / 64 * 64;
	size_t at_clusters = at_pcpus + pcpus * sizeof(struct pcpu);
	size_t at_vms = at_clusters + CLUSTERS_MAX * sizeof(struct cluster);
	size_t at_nodes = at_vms + vms * sizeof(struct vm);
	size_t at_limiters = at_nodes + nodes * sizeof(struct node);
	size_t at_siblings = at_limiters + limiters * sizeof(struct limiter);
	size_t at_worlds = at_siblings + vms * sizeof(struct siblings);
	size_t at_tasks = at_worlds + worlds * sizeof(struct world);
	char *block = calloc(1, at_tasks + worlds * sizeof(plat_task));
	struct native *n = (struct native *)block;

	if (!n)
		return NULL;
	n->pcpus_cap = pcpus;
	n->clusters_cap = CLUSTERS_MAX;
	n->vms_cap = vms;
	n->worlds_cap = worlds;
	n->nodes_cap = nodes;
	n->limiters_cap = limiters;
	n->here = TRACE_NOWHERE;
	n->pcpus = (struct pcpu *)(block + at_pcpus);
	n->clusters = (struct cluster *)(block + at_clusters);
	n->vms = (struct vm *)(block + at_vms);
	n->nodes = (struct node *)(block + at_nodes);
	n->limiters = (struct limiter *)(block + at_limiters);
	n->siblings = (struct siblings *)(block + at_siblings);
	n->worlds = (struct world *)(block + at_worlds);
	n->tasks = (plat_task *)(block + at_tasks);
	n->host.v_ns = V_START;
	for (u32 i = 0; i < pcpus; i++) {
		n->pcpus[i].wait_key = n->pcpus[i].best_key = KEY_NONE;
		n->pcpus[i].system_v_ns = V_START;
	}
	for (u32 i = 0; i < worlds; i++)
		n->tasks[i].world = i;
	return n;
}

void native_free(struct native *n) { free(n); }
