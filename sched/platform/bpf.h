/* platform.h over sched_ext: records live in array maps that user space has mapped, queues are the
 * kernel's dispatch queues. Nothing here decides anything. */
#ifndef TANDEM_PLATFORM_BPF_H
#define TANDEM_PLATFORM_BPF_H

#include "kernel.h"
#include "../abi/records.h"
#include "../abi/trace.h"

#define INLINE static __always_inline
#define TEMPLATE INLINE
/* A function of its own for the verifier: checked once, for any arguments, not once for each
 * caller. */
/* weak: or the compiler leaves out arguments that it sees unused */
#ifndef SUBPROG
#define SUBPROG __attribute__((noinline, weak))
#endif
#define RARE_INLINE INLINE
#define RARE_SUBPROG SUBPROG
#define NONNULL(type) type __arg_nonnull
#define TRUSTED_TASK(t) struct task_struct *t __arg_trusted

#include "key.h"

#define plat_task struct task_struct /* no typedef: CO-RE goes by the name of the type */

#define ARRAY(map, record, n)					\
	struct {						\
		__uint(type, BPF_MAP_TYPE_ARRAY);		\
		__uint(map_flags, BPF_F_MMAPABLE);		\
		__uint(max_entries, n);				\
		__type(key, u32);				\
		__type(value, record);				\
	} map SEC(".maps")

ARRAY(host_map, struct host, 1);
ARRAY(pcpus_map, struct pcpu, PCPUS_MAX);
ARRAY(clusters_map, struct cluster, CLUSTERS_MAX);
ARRAY(vms_map, struct vm, VMS_MAX);
/* The loader makes it as long as needed. */
ARRAY(worlds_map, struct world, 1);
ARRAY(nodes_map, struct node, 2 * NODES_MAX); /* one plan in force, one being written */
ARRAY(limiters_map, struct limiter, LIMITERS_MAX);
ARRAY(siblings_map, struct siblings, VMS_MAX);

/* Records of a trace, a ring for each pCPU: no lock, no call of the kernel, and about a fifth of
 * the instructions of the kernel's own ring buffer. The loader makes it as long as the host has
 * pCPUs: for PCPUS_MAX it would be 256 MB, allocated with and without a recorder. */
struct trace_of_pcpu {
	struct trace_ring ring;
	struct trace_record records[TRACE_RECORDS];
};
ARRAY(trace_rings, struct trace_of_pcpu, 1);

/* Slots of worlds_map that were in use and are free; as long as that. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, u32);
} free_worlds SEC(".maps");

/* The world of a thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} world_of_task SEC(".maps");

INLINE void *array_at(void *map, u32 id)
{
	return bpf_map_lookup_elem(map, &id);
}

INLINE struct host *plat_host(void) { return array_at(&host_map, 0); }
#define plat_world(h, id) ((struct world *)array_at(&worlds_map, id))
#define plat_vm(h, id) ((struct vm *)array_at(&vms_map, id))
#define plat_pcpu(h, id) ((struct pcpu *)array_at(&pcpus_map, id))
#define plat_cluster(h, id) ((struct cluster *)array_at(&clusters_map, id))
#define plat_node(h, id) ((struct node *)array_at(&nodes_map, id))
#define plat_limiter(h, id) ((struct limiter *)array_at(&limiters_map, id))
#define plat_siblings(h, vm) ((struct siblings *)array_at(&siblings_map, vm))

/* Knobs are read-only for the loader's whole life of a load: no look-up, no branch. The compiler
 * must not see that they are constants with a value of their own, or it puts the defaults in place
 * of what the daemon has set. */
extern const volatile struct knobs knobs_now;
INLINE const struct knobs *glue_knobs(void)
{
	const struct knobs *k = (const struct knobs *)&knobs_now;

	asm("" : "+r"(k));
	return k;
}
#define plat_knobs(h) glue_knobs()

/* In glue/ticks.h, which has the timers. */
s32 look_in(u32 pcpu, u64 ns);
#define plat_look(h, pcpu, ns) look_in(pcpu, ns)

#define plat_now(h) bpf_ktime_get_ns()

/* The kernel's accounts change hands when it begins to choose, and so must RUN and READY: else
 * these are longer, and shorter, than its run_delay says, on an emulated pCPU by much. Longer ago
 * than CHOSE_MAX_NS was another choice, that came to nothing. */
#define CHOSE_MAX_NS 10000000ull
INLINE u64 plat_chose(struct host *h, const struct pcpu *p)
{
	u64 now = plat_now(h), chose = p->chose_ns;

	return chose && now - chose < CHOSE_MAX_NS ? chose : now;
}

/* A thread's queue key has the number of its world, so that most look-ups are one load. The number
 * is a hint, compared with the thread's id. */
#define KEY_WORLD (WORLDS_MAX - 1ull)

INLINE struct world *plat_world_of(struct host *h, plat_task *t)
{
	struct world *w = plat_world(h, t->scx.dsq_vtime & KEY_WORLD);
	u32 *id;

	if (w && w->pid == (u32)t->pid)
		return w;
	id = bpf_task_storage_get(&world_of_task, t, 0, 0);
	return id ? plat_world(h, *id) : NULL;
}

#define plat_task_pcpu(t) scx_bpf_task_cpu(t)
/* The kernel brings it up to date before it calls stopping and dispatch. */
#define plat_exec(h, t) ((t)->se.sum_exec_runtime)

/* From entering KVM_RUN until it goes back to user space, a vCPU's thread has a preemption
 * notifier of KVM's. Within, one whose guest halts, or has not started it yet, sleeps
 * interruptibly; a page or a lock is waited for uninterruptibly. Outside it runs QEMU's code, and
 * sleeps for a lock, for a device that QEMU emulates, or because the VM is paused. The kernel
 * calls stopping and quiescent before it changes either word. A kernel without notifiers has no
 * KVM: nothing tells there, and each sleep is a halt. What is taken for a halt and is none: a page
 * that user space is to bring (userfaultfd, so post-copy migration), which KVM waits for
 * interruptibly; and one that KVM reads beside the vCPU while it halts it itself (asynchronous
 * page faults). */
INLINE bool plat_halted(plat_task *t)
{
	if (!bpf_core_field_exists(t->preempt_notifiers))
		return true;
	return t->preempt_notifiers.first && t->__state & TASK_INTERRUPTIBLE;
}

INLINE bool plat_in_guest(plat_task *t)
{
	return !bpf_core_field_exists(t->preempt_notifiers) || t->preempt_notifiers.first;
}

#define plat_slice(t) ((t)->scx.slice)
#define plat_queue_key(t, near) key_deadline((t)->scx.dsq_vtime, near)

INLINE void plat_set_slice(plat_task *t, u64 ns)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(t, ns);
	else
		t->scx.slice = ns;
}

INLINE bool plat_may_run(plat_task *t, u32 pcpu)
{
	if (bpf_core_field_exists(t->migration_disabled) && t->migration_disabled &&
	    scx_bpf_task_cpu(t) != (s32)pcpu)
		return false;
	return bpf_cpumask_test_cpu(pcpu, t->cpus_ptr);
}

INLINE u32 plat_any_pcpu(struct host *h, plat_task *t)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u32 cpu = bpf_cpumask_any_and_distribute(t->cpus_ptr, online);

	scx_bpf_put_cpumask(online);
	return cpu < h->pcpus ? cpu : (u32)scx_bpf_task_cpu(t);
}

/* The calls by the names that this kernel has. */
INLINE void glue_insert(plat_task *t, u64 queue, u64 ns, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(t, queue, ns, flags);
	else
		scx_bpf_dispatch(t, queue, ns, flags);
}

INLINE void glue_set_key(plat_task *t, u64 key)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime))
		scx_bpf_task_set_dsq_vtime(t, key);
	else
		t->scx.dsq_vtime = key;
}

INLINE void plat_queue_insert(struct host *h, plat_task *t, u64 queue, u64 ns, u64 key)
{
	key = key_of_deadline(key) | (t->scx.dsq_vtime & KEY_WORLD);
	if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime))
		scx_bpf_dsq_insert_vtime(t, queue, ns, key, 0);
	else
		scx_bpf_dispatch_vtime(t, queue, ns, key, 0);
}

INLINE void plat_insert_local(struct host *h, plat_task *t, u64 ns)
{
	glue_insert(t, SCX_VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL), ns, 0);
}

INLINE void plat_insert_on(struct host *h, plat_task *t, u32 pcpu, u64 ns, bool preempt)
{
	u64 flags = 0;

	if (preempt)
		flags = SCX_VALUE(scx_enq_flags, SCX_ENQ_PREEMPT) |
			SCX_VALUE(scx_enq_flags, SCX_ENQ_HEAD);
	if (scx_bpf_task_cpu(t) == (s32)pcpu)
		glue_insert(t, SCX_VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL), ns, flags);
	else
		glue_insert(t, SCX_VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | pcpu, ns, flags);
}

#define plat_local_length(h, pcpu) \
	((u32)scx_bpf_dsq_nr_queued(SCX_VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | (pcpu)))

/* The iterator is named so that plat_queue_take and plat_queue_move, inside the walk, can use
 * it. */
#define plat_queue_each(h, t, queue)						\
	for (struct bpf_iter_scx_dsq walk	\
	     __attribute__((aligned(8), cleanup(bpf_iter_scx_dsq_destroy))),	\
	     *walk_new_ __attribute__((unused)) =	\
		(bpf_iter_scx_dsq_new(&walk, queue, 0),	\
		 (void)bpf_iter_scx_dsq_destroy, (void *)0);	\
	     ((t) = bpf_iter_scx_dsq_next(&walk));)
#define plat_queue_take(h, queue, t)						\
	(bpf_ksym_exists(scx_bpf_dsq_move) ?					\
	 scx_bpf_dsq_move(&walk, t, SCX_VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0) :	\
	 scx_bpf_dispatch_from_dsq(&walk, t, SCX_VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0))

#define plat_queue_move(h, t, to)						\
	(bpf_ksym_exists(scx_bpf_dsq_move_vtime) ? scx_bpf_dsq_move_vtime(&walk, t, to, 0)	\
						 : scx_bpf_dispatch_vtime_from_dsq(&walk, t, to, 0))

/* The pCPU picks again, for the kernel does not make it do so. */
#define plat_queue_return(h, t)							\
	({									\
		s32 own_ = scx_bpf_task_cpu(t);					\
		u64 to_ = SCX_VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | (u32)own_;	\
										\
		bpf_ksym_exists(scx_bpf_dsq_move) ?				\
			scx_bpf_dsq_move(&walk, t, to_, 0) :			\
			scx_bpf_dispatch_from_dsq(&walk, t, to_, 0);		\
		plat_kick(h, (u32)own_, 0);					\
	})

#define plat_read(x) (*(volatile typeof(x) *)&(x))
#define plat_barrier() asm volatile("" ::: "memory")
#define plat_add(ptr, n) ((void)__sync_fetch_and_add(ptr, n))
#define plat_fetch_add(ptr, n) __sync_fetch_and_add(ptr, n)
#define plat_or(ptr, bits) ((void)__sync_fetch_and_or(ptr, bits))
#define plat_fetch_and(ptr, bits) __sync_fetch_and_and(ptr, bits)
#define plat_cas(ptr, old, new) __sync_bool_compare_and_swap(ptr, old, new)

/* Kicks a pCPU, with 0 one that is to pick again. Not from a pCPU that goes off line: the kernel
 * sends a kick by an interrupt of the own pCPU, which may come no more; then none is ever sent from
 * there, and an unload waits for it (free_kick_syncs, 7.3). Housekeeping finds what waits. */
SUBPROG u32 glue_kick(NONNULL(struct host *h), u32 pcpu, u32 flags)
{
	struct pcpu *p = plat_pcpu(h, bpf_get_smp_processor_id());
	struct cluster *c = p ? plat_cluster(h, p->cluster) : NULL;
	u64 how = 0;

	if (c && !(plat_read(c->present) >> (p->bit & 63) & 1))
		return 0;
	if (flags & KICK_PREEMPT)
		how = SCX_VALUE(scx_kick_flags, SCX_KICK_PREEMPT);
	else if (flags & KICK_IDLE)
		how = SCX_VALUE(scx_kick_flags, SCX_KICK_IDLE);
	scx_bpf_kick_cpu((s32)pcpu, how);
	return 0;
}
#define plat_kick(h, pcpu, flags) glue_kick(h, pcpu, flags)
#define plat_pick_again(h, pcpu) glue_kick(h, pcpu, 0)

#define ASSERT_AT								\
	((u64)__FILE_NAME__[0] << 56 | (u64)__FILE_NAME__[1] << 48 |		\
	 (u64)__FILE_NAME__[2] << 40 | (u64)__FILE_NAME__[3] << 32 | __LINE__)
#define plat_assert(h, cond)							\
	((void)((cond) || (__sync_fetch_and_add(&(h)->asserts, 1),		\
			   (h)->assert_at = ASSERT_AT, 0)))
#define PLAT_STRICT 0
#define plat_assert_alone(h, cond) ((void)sizeof(!(cond)))
#define plat_for(i, n) for (u32 i = 0, once_ = 1; once_; once_ = 0) bpf_for(i, 0, n)

/* Numbers decide, but where the thread may use as many pCPUs as are on line, and not all: one that
 * it may use may be off line. */
INLINE bool plat_restricted(struct host *h, plat_task *t)
{
	u32 allowed = (u32)t->nr_cpus_allowed, on_line = plat_read(h->online);
	const struct cpumask *online;
	bool all;

	if (allowed < on_line || allowed >= h->pcpus)
		return allowed < on_line;
	bpf_rcu_read_lock(); /* init_task may sleep */
	online = scx_bpf_get_online_cpumask();
	all = bpf_cpumask_subset(online, t->cpus_ptr);
	scx_bpf_put_cpumask(online);
	bpf_rcu_read_unlock();
	return !all;
}

/* Index of the lowest set bit of a word that is not 0. BPF has no such instruction; a table,
 * unlike branches, leaves the verifier one path (a de Bruijn sequence: the top 6 bits differ for
 * each bit). */
static const u8 first_bit_of[64] = {
	0,  1,  2,  53, 3,  7,  54, 27, 4,  38, 41, 8,  34, 55, 48, 28, 62, 5,  39, 46, 44, 42,
	22, 9,  24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

INLINE u32 plat_first_bit(u64 mask)
{
	return first_bit_of[((mask & -mask) * 0x022fdd63cc95386dull) >> 58];
}

/* --- traces --- */

#define plat_here(h) bpf_get_smp_processor_id()

/* Bits of the kernel's count of what keeps it from preemption (include/linux/preempt.h): interrupts
 * and NMIs, which the loader sets by the kernel's series, and that softirqs are being served. */
const volatile u32 hard_interrupts = 0x00ff0000;
#define SOFT_INTERRUPT 0x100

/* Whether an interrupt has come between the running thread and this program; false on machines
 * other than x86, where the count is elsewhere. `soft`: softirqs are being served, which a thread
 * also does itself after it has sent a packet. */
INLINE bool glue_interrupt(bool *soft)
{
	u32 count = 0;

	if (&__preempt_count)
		count = *(const u32 *)bpf_this_cpu_ptr(&__preempt_count);
	else if (&pcpu_hot)
		count = ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	*soft = count & SOFT_INTERRUPT;
	return count & hard_interrupts;
}

/* The world that runs here while another is woken. A vCPU does not send packets itself: what is put
 * off and is served while it runs, has come by an interrupt. */
INLINE u64 plat_waker(struct host *h, u32 here)
{
	struct pcpu *p = plat_pcpu(h, here);
	u32 runs = p ? plat_read(p->current_world) : WORLD_NONE;
	struct world *w = plat_world(h, runs);
	bool soft;

	if (!w || glue_interrupt(&soft) || (soft && w->kind == KIND_VCPU))
		return WORLD_NONE;
	return runs;
}

/* The word `head` comes last: by it the recorder knows that the record is whole. An exchange is
 * ordered behind the rest. */
INLINE void glue_record(struct trace_of_pcpu *of, u64 ns, u64 head, u64 a, u64 b)
{
	u64 slot = plat_fetch_add(&of->ring.head, 1);
	struct trace_record *r = &of->records[slot & (TRACE_RECORDS - 1)];

	r->ns = ns;
	r->a = a;
	r->b = b;
	plat_barrier();
	__sync_lock_test_and_set((u64 *)&r->world, head);
}

/* A record that finds no room is counted, and the count is recorded as soon as there is room again.
 * TRACE_NESTED slots are reserved for programs that interrupt another one here. */
INLINE void plat_trace(struct host *h, u64 ns, u64 head, u64 a, u64 b)
{
	u32 here = bpf_get_smp_processor_id();
	struct trace_of_pcpu *of = array_at(&trace_rings, here);
	u64 lost, told;

	if (!of)
		return;
	lost = plat_read(of->ring.lost);
	told = plat_read(of->ring.told);
	if (plat_read(of->ring.head) - plat_read(of->ring.tail) >= TRACE_RECORDS - TRACE_NESTED) {
		if (lost == told)
			of->ring.since_ns = ns;
		plat_add(&of->ring.lost, 1);
		return;
	}
	if (lost != told && plat_cas(&of->ring.told, told, lost))
		glue_record(of, of->ring.since_ns, (u64)TRACE_LOST << 32 | (u64)here << 48,
			    (u32)(lost - told) | 1ull << 32, 0);
	glue_record(of, ns, head, a, b);
}

#endif
