/* platform.h for a native build: records in one block of memory, queues and kicks by calls into
 * the simulated kernel. One host is used by one thread at a time, so nothing here is atomic. */
#ifndef TANDEM_NATIVE_H
#define TANDEM_NATIVE_H

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
typedef _Bool bool;
#define true 1
#define false 0

#include "../abi/records.h"
#include "../abi/trace.h"

#define INLINE static inline
#define TEMPLATE static inline __attribute__((always_inline))
#define SUBPROG static __attribute__((unused))
#define RARE_INLINE static __attribute__((unused, noinline, __cold__))
#define RARE_SUBPROG RARE_INLINE
#define NONNULL(type) type
#define TRUSTED_TASK(t) plat_task *t

#include "key.h"

/* A thread of the simulated kernel. */
struct plat_task {
	u64 slice_ns;
	u64 key;
	u64 allowed[PCPU_WORDS];
	u32 world;
	s32 pcpu;
	u32 allowed_count;
	u32 migration_disabled;
	/* a vCPU that sleeps next waits for something: its guest has not halted it */
	u32 waits;
	u32 outside;		/* a vCPU that runs in its emulator's code */
};
typedef struct plat_task plat_task;

/* A whole host: one allocation, so that it can be copied and compared. */
struct native {
	struct host host;
	struct knobs knobs;
	u64 kernel;		/* handle that the simulated kernel gets back in each call */
	u64 age_ns;		/* the scheduler's clock is this ahead of the simulated kernel's */
	u32 pcpus_cap, vms_cap, worlds_cap, clusters_cap;
	u32 nodes_cap, limiters_cap;	/* two plans' nodes: one in force, one being written */
	/* pCPU and world that the callback under way runs on and is caused by, for traces; 0 for
	 * an interrupt */
	u32 here, waker;
	struct pcpu *pcpus;
	struct vm *vms;
	struct world *worlds;
	struct cluster *clusters;
	struct node *nodes;
	struct limiter *limiters;
	struct siblings *siblings;	/* of each VM */
	plat_task *tasks;
};

/* Calls that the simulated kernel provides (crates/sched-core/src/platform.rs). */
void plat_insert_local_(u64 kernel, u32 world, u64 slice_ns);
void plat_insert_on_(u64 kernel, u32 world, u32 pcpu, u64 slice_ns, u32 preempt);
void plat_queue_insert_(u64 kernel, u32 world, u64 queue, u64 slice_ns, u64 key);
u32 plat_local_length_(u64 kernel, u32 pcpu);
u32 plat_queue_at_(u64 kernel, u64 queue, u32 i); /* world id, 0 past the end */
u32 plat_queue_take_(u64 kernel, u64 queue, u32 world);
u32 plat_queue_move_(u64 kernel, u64 queue, u32 world, u64 to);
u32 plat_queue_return_(u64 kernel, u64 queue, u32 world);
void plat_kick_(u64 kernel, u32 pcpu, u32 flags);
void plat_look_(u64 kernel, u32 pcpu, u64 in_ns);
void plat_trace_(u64 kernel, const struct trace_record *record);
void plat_assert_failed_(u64 kernel, const char *what, const char *file, u32 line);

#define NATIVE(h) ((struct native *)(h))
#define NATIVE_AT(h, array, id) \
	((u32)(id) < NATIVE(h)->array##_cap ? &NATIVE(h)->array[(u32)(id)] : NULL)

#define plat_now(h) ((h)->now_ns)
/* choosing takes no time; what it costs is part of the switch */
#define plat_chose(h, p) ((h)->now_ns)
#define plat_knobs(h) (&NATIVE(h)->knobs)
#define plat_world(h, id) NATIVE_AT(h, worlds, id)
#define plat_vm(h, id) NATIVE_AT(h, vms, id)
#define plat_pcpu(h, id) NATIVE_AT(h, pcpus, id)
#define plat_cluster(h, id) NATIVE_AT(h, clusters, id)
#define plat_node(h, id) NATIVE_AT(h, nodes, id)
#define plat_limiter(h, id) NATIVE_AT(h, limiters, id)
#define plat_siblings(h, vm) \
	((u32)(vm) < NATIVE(h)->vms_cap ? &NATIVE(h)->siblings[(u32)(vm)] : NULL)
#define plat_world_of(h, task) plat_world(h, (task)->world)
#define plat_task_pcpu(task) ((task)->pcpu)
#define plat_exec(h, task) ((void)(task), (h)->now_ns)
#define plat_halted(task) (!(task)->waits)
#define plat_in_guest(task) (!(task)->outside)
#define plat_slice(task) ((task)->slice_ns)
#define plat_set_slice(task, ns) ((task)->slice_ns = (ns))
#define plat_queue_key(task, near) key_deadline((task)->key, near)
#define plat_insert_local(h, task, ns) plat_insert_local_(NATIVE(h)->kernel, (task)->world, ns)
#define plat_insert_on(h, task, pcpu, ns, preempt) \
	plat_insert_on_(NATIVE(h)->kernel, (task)->world, pcpu, ns, preempt)
#define plat_queue_insert(h, task, queue, ns, key) \
	plat_queue_insert_(NATIVE(h)->kernel, (task)->world, queue, ns, key_of_deadline(key))
#define plat_local_length(h, pcpu) plat_local_length_(NATIVE(h)->kernel, pcpu)
#define plat_kick(h, pcpu, flags) plat_kick_(NATIVE(h)->kernel, pcpu, flags)
#define plat_look(h, pcpu, ns) (plat_look_(NATIVE(h)->kernel, pcpu, ns), 0)
#define plat_pick_again(h, pcpu) ((void)(h), (void)(pcpu))
#define plat_waker(h, here_) ((void)(here_), (u64)NATIVE(h)->waker)
#define plat_here(h) (NATIVE(h)->here)
#define plat_assert(h, cond) \
	((cond) ? (void)0 : ((h)->asserts++, \
			     plat_assert_failed_(NATIVE(h)->kernel, #cond, __FILE__, __LINE__)))

#define PLAT_STRICT 1
#define plat_assert_alone(h, cond) plat_assert(h, cond)

INLINE void plat_trace(struct host *h, u64 ns, u64 head, u64 a, u64 b)
{
	struct trace_record r = {
		.ns = ns - NATIVE(h)->age_ns,
		.world = (u32)head,
		.kind = (u16)(head >> 32),
		.pcpu = (u16)(head >> 48),
		.a = a,
		.b = b,
	};

	plat_trace_(NATIVE(h)->kernel, &r);
}

INLINE plat_task *native_queue_task(struct host *h, u64 queue, u32 i)
{
	u32 world = plat_queue_at_(NATIVE(h)->kernel, queue, i);

	return world ? &NATIVE(h)->tasks[world] : NULL;
}

/* What is taken away makes the next one step into its place. */
#define plat_queue_each(h, task, queue_) \
	for (u64 i_ = 0, of_ = (queue_); ((task) = native_queue_task(h, of_, (u32)i_)); i_++)
#define plat_queue_take(h, queue, task) plat_queue_take_(NATIVE(h)->kernel, queue, (task)->world)
#define plat_queue_move(h, task, to) \
	(plat_queue_move_(NATIVE(h)->kernel, of_, (task)->world, to) ? (i_--, true) : false)
#define plat_queue_return(h, task) \
	(plat_queue_return_(NATIVE(h)->kernel, of_, (task)->world) ? (void)i_-- : (void)0)

INLINE bool plat_may_run(const plat_task *task, u32 pcpu)
{
	if (task->migration_disabled && (u32)task->pcpu != pcpu)
		return false;
	return pcpu < PCPUS_MAX && (task->allowed[pcpu / 64] >> (pcpu % 64) & 1);
}

INLINE bool plat_restricted(struct host *h, const plat_task *task)
{
	if (task->allowed_count < h->online || task->allowed_count >= h->pcpus)
		return task->allowed_count < h->online;
	for (u32 i = 0; i < h->pcpus; i++) {
		struct pcpu *p = plat_pcpu(h, i);
		struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
		bool allowed = task->allowed[i / 64] >> (i % 64) & 1;

		if (c && c->present >> (p->bit & 63) & 1 && !allowed)
			return true;
	}
	return false;
}

INLINE u32 plat_any_pcpu(struct host *h, const plat_task *task)
{
	for (u32 p = 0; p < h->pcpus; p++) {
		struct pcpu *of = plat_pcpu(h, p);
		struct cluster *c = of ? plat_cluster(h, of->cluster) : NULL;

		if (c && c->present >> (of->bit & 63) & 1 && plat_may_run(task, p))
			return p;
	}
	return 0;
}

#define plat_read(x) (x)
#define plat_barrier() ((void)0)
#define plat_first_bit(mask) ((u32)__builtin_ctzll(mask))
#define plat_add(ptr, n) ((void)(*(ptr) += (n)))
#define plat_fetch_add(ptr, n) ((*(ptr) += (n)) - (n))
#define plat_or(ptr, bits) ((void)(*(ptr) |= (bits)))
#define plat_fetch_and(ptr, bits) native_fetch_and(ptr, bits)
#define plat_cas(ptr, old, new) (*(ptr) == (old) ? (*(ptr) = (new), true) : false)
#define plat_for(i, n) for (u32 i = 0; i < (n); i++)

INLINE u64 native_fetch_and(u64 *word, u64 bits)
{
	u64 old = *word;

	*word &= bits;
	return old;
}

#endif
