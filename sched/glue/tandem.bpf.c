/* The scheduler as a BPF object: sched_ext's callbacks and the daemon's calls, each a few lines
 * onto core.c. It owns no policy; what it adds is finding a thread's world and giving it back. */
#include "../core.h"
#include "../core.c"

char LICENSE[] SEC("license") = "GPL";

/* Knobs in force; the daemon sets them before loading. */
const volatile struct knobs knobs_now = {
#define KNOB(name, value, min, max, unit, meaning) .name = value,
#include "../abi/knobs.def"
#undef KNOB
};

#include "ticks.h"

/* Events for user space: threads that took a name a vCPU might have, pCPUs that came or went, and
 * the end of this scheduler. */
enum event_kind { EVENT_NAMED = 1, EVENT_GONE = 2, EVENT_PCPUS = 3 };
struct event {
	u32 kind;
	s32 pid;
	s32 tgid;
	u32 world;
	char comm[16];
};
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

#include "locks.h"
#include "pcpus.h"

/* Why the kernel ended it. */
struct exit_record {
	s64 code;
	s32 kind;
	char reason[64];
	char message[256];
} exit_record;

s32 SEC("struct_ops/select_cpu")
	BPF_PROG(tandem_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	s32 waker = wake_flags & SCX_VALUE(scx_wake_flags, SCX_WAKE_SYNC)
			    ? (s32)bpf_get_smp_processor_id()
			    : -1;

	return w ? core_select(h, p, w, prev_cpu, waker) : prev_cpu;
}

void SEC("struct_ops/enqueue") BPF_PROG(tandem_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (!w) /* not seen: a thread has a world, or its fork failed */
		glue_insert(p, SCX_VALUE(scx_dsq_id_flags, SCX_DSQ_LOCAL), 1000000, 0);
	else
		core_enqueue(h, p, w,
			     enq_flags & SCX_VALUE(scx_enq_flags, SCX_ENQ_WAKEUP) ? ENQUEUE_WAKEUP
										  : 0);
}

void SEC("struct_ops/dispatch") BPF_PROG(tandem_dispatch, s32 cpu, struct task_struct *prev)
{
	struct host *h = plat_host();

	if (!ticks_owned)
		own_ticks(h ? h->pcpus : 0);
	else if (block_timers[(u32)cpu / BLOCK_PCPUS & (BLOCKS_MAX - 1)].unclaimed)
		claim_ticks((u32)cpu);
	if (h)
		core_dispatch(h, (u32)cpu, prev);
}

void SEC("struct_ops/runnable") BPF_PROG(tandem_runnable, struct task_struct *p, u64 enq_flags)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (w)
		core_runnable(h, p, w);
}

void SEC("struct_ops/running") BPF_PROG(tandem_running, struct task_struct *p)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (w)
		core_running(h, p, w);
}

void SEC("struct_ops/stopping") BPF_PROG(tandem_stopping, struct task_struct *p, bool runnable)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (w)
		core_stopping(h, p, w, runnable);
}

void SEC("struct_ops/quiescent") BPF_PROG(tandem_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (!w)
		return;
	core_quiescent(h, p, w, deq_flags & SCX_VALUE(scx_deq_flags, SCX_DEQ_SLEEP));
	if (bpf_core_field_exists(p->blocker) && p->blocker &&
	    deq_flags & SCX_VALUE(scx_deq_flags, SCX_DEQ_SLEEP))
		lock_sleeps(h, w, p->blocker);
}

/* KVM takes a vCPU that spins out of its guest, and yields to one that it takes for the one that
 * is waited for; also sched_yield(2), without `to`. */
bool SEC("struct_ops/yield")
	BPF_PROG(tandem_yield, struct task_struct *from, struct task_struct *to)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, from) : NULL, *target;

	if (!to) {
		plat_set_slice(from, 0);
		return false;
	}
	target = h ? plat_world_of(h, to) : NULL;
	if (!w || !target || !core_yield(h, w, target))
		return false;
	plat_set_slice(from, 0);
	return true;
}

void SEC("struct_ops/set_weight") BPF_PROG(tandem_set_weight, struct task_struct *p, u32 weight)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (w)
		w->nice_weight = weight;
}

void SEC("struct_ops/set_cpumask")
	BPF_PROG(tandem_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (w)
		core_world_affinity(h, p, w);
}

/* A thread joins the fair class under this scheduler: its queue key has its world's number. */
void SEC("struct_ops/enable") BPF_PROG(tandem_enable, struct task_struct *p)
{
	u32 *id = bpf_task_storage_get(&world_of_task, p, 0, 0);

	glue_set_key(p, id ? *id : WORLD_NONE);
}

void SEC("struct_ops/disable") BPF_PROG(tandem_disable, struct task_struct *p)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (w)
		core_disabled(h, w);
}

void SEC("struct_ops/update_idle") BPF_PROG(tandem_update_idle, s32 cpu, bool idle)
{
	struct host *h = plat_host();

	if (h)
		core_idle(h, (u32)cpu, idle);
}

/* Slots of the table of worlds, WORLD_NONE's included; the loader sets it. */
const volatile u32 world_slots = 1;

/* A free slot of the table, 0 if none is: one that was in use, or the next that never was. */
static u32 world_find(struct host *h)
{
	u32 id = WORLD_NONE;

	if (!bpf_map_pop_elem(&free_worlds, &id))
		return id;
	if (plat_read(h->worlds) < world_slots) {
		id = plat_fetch_add(&h->worlds, 1);
		if (id < world_slots)
			return id;
		plat_add(&h->worlds, -1);
	}
	plat_add(&h->overflows, 1);
	return WORLD_NONE;
}

static void world_free(struct host *h, u32 id)
{
	long error = bpf_map_push_elem(&free_worlds, &id, 0);

	plat_assert(h, !error);
}

/* VM of the current thread, which forks another: what a VM's threads start is of that VM. */
static u32 vm_of_forking(struct host *h)
{
	struct world *w = plat_world_of(h, bpf_get_current_task_btf());

	return w ? life_vm(w) : VM_SYSTEM;
}

static void world_name(struct world *w, struct task_struct *p)
{
	w->pid = (u32)p->pid;
	w->tgid = (u32)p->tgid;
	bpf_probe_read_kernel_str(w->comm, sizeof(w->comm), p->comm);
}

s32 SEC("struct_ops.s/init_task")
	BPF_PROG(tandem_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct host *h = plat_host();
	u32 id = h ? world_find(h) : WORLD_NONE, *slot;
	struct world *w = id ? plat_world(h, id) : NULL;

	if (!w)
		return -11; /* EAGAIN, as when there are threads-max */
	slot = bpf_task_storage_get(&world_of_task, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!slot) {
		world_free(h, id);
		return -12; /* ENOMEM: the kernel refuses the fork, or the load */
	}
	__builtin_memset(w, 0, sizeof(*w));
	w->id = id;
	if (p->flags & PF_KTHREAD && p->nr_cpus_allowed == 1)
		w->flags |= WORLD_PCPU_KTHREAD;
	if (args->fork)
		w->flags |= WORLD_NEW;
	if (p->flags & (PF_KTHREAD | PF_USER_WORKER))
		w->flags |= WORLD_SERVICE;
	w->nice_weight = p->scx.weight;
	world_name(w, p);
	w->vm = args->fork ? vm_of_forking(h) : VM_SYSTEM;
	w->kind = w->vm == VM_SYSTEM ? KIND_TASK : KIND_HELPER;
	core_world_start(h, p, w);
	*slot = id;
	return 0;
}

void SEC("struct_ops/exit_task")
	BPF_PROG(tandem_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, p) : NULL;

	if (!w || !(w->flags & WORLD_LIVE))
		return;
	core_world_exit(h, w);
	bpf_task_storage_delete(&world_of_task, p);
	w->flags = 0;
	w->pid = 0; /* a zombie is not taken for the slot's next world */
	world_free(h, w->id);
}

s32 SEC("struct_ops.s/init") BPF_PROG(tandem_init)
{
	struct host *h = plat_host();
	s32 error;
	u32 i;

	if (!h)
		return -22;
	bpf_for(i, 0, PCPUS_MAX) {
		if (i >= h->pcpus)
			break;
		error = scx_bpf_create_dsq(QUEUE_VM(i), -1);
		if (error)
			return error;
		error = scx_bpf_create_dsq(QUEUE_SYSTEM(i), -1);
		if (error)
			return error;
	}
	bpf_for(i, 0, LIMITERS_MAX) {
		error = scx_bpf_create_dsq(QUEUE_PARKED(i), -1);
		if (error)
			return error;
	}
	bpf_for(i, 0, VMS_MAX) {
		error = scx_bpf_create_dsq(QUEUE_COSTOP(i), -1);
		if (error)
			return error;
	}
	return ticks_init(h->pcpus);
}

void SEC("struct_ops/exit") BPF_PROG(tandem_exit, struct scx_exit_info *info)
{
	struct event *e;

	exit_record.kind = BPF_CORE_READ(info, kind);
	exit_record.code = BPF_CORE_READ(info, exit_code);
	bpf_probe_read_kernel_str(exit_record.reason, sizeof(exit_record.reason),
				  BPF_CORE_READ(info, reason));
	bpf_probe_read_kernel_str(exit_record.message, sizeof(exit_record.message),
				  BPF_CORE_READ(info, msg));
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return;
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = EVENT_GONE;
	bpf_ringbuf_submit(e, 0);
}

SEC(".struct_ops.link")
struct sched_ext_ops tandem_ops = {
	.select_cpu = (void *)tandem_select_cpu,
	.enqueue = (void *)tandem_enqueue,
	.dispatch = (void *)tandem_dispatch,
	.runnable = (void *)tandem_runnable,
	.running = (void *)tandem_running,
	.stopping = (void *)tandem_stopping,
	.quiescent = (void *)tandem_quiescent,
	.yield = (void *)tandem_yield,
	.set_weight = (void *)tandem_set_weight,
	.set_cpumask = (void *)tandem_set_cpumask,
	.enable = (void *)tandem_enable,
	.disable = (void *)tandem_disable,
	.update_idle = (void *)tandem_update_idle,
	.cpu_online = (void *)tandem_cpu_online,
	.cpu_offline = (void *)tandem_cpu_offline,
	.init_task = (void *)tandem_init_task,
	.exit_task = (void *)tandem_exit_task,
	.init = (void *)tandem_init,
	.exit = (void *)tandem_exit,
	.flags = SCX_OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "tandem",
};

/* --- calls of the daemon --- */

struct bind_call {
	s32 tid;
	u32 vm;
	u32 kind;
	u32 index;
};

/* Says to which VM a thread belongs and as what; takes effect when it is next queued. A VM's thread
 * becomes another's by way of the host only: EBUSY. */
SEC("syscall") int tandem_bind(struct bind_call *call)
{
	struct host *h = plat_host();
	struct task_struct *p;
	struct world *w;
	int done = -3; /* ESRCH */

	if (!h || call->vm >= VMS_MAX)
		return -22;
	p = bpf_task_from_pid(call->tid);
	if (!p)
		return done;
	w = plat_world_of(h, p);
	if (w && w->flags & WORLD_LIVE && call->vm != VM_SYSTEM && life_vm(w) != VM_SYSTEM &&
	    life_vm(w) != call->vm) {
		done = -16; /* EBUSY */
	} else if (w && w->flags & WORLD_LIVE) {
		w->bind_kind = call->kind;
		w->bind_index = call->index;
		world_name(w, p);
		plat_barrier();
		w->bind_vm = (s32)call->vm;
		done = 0;
	}
	bpf_task_release(p);
	return done;
}

struct home_call {
	u64 home;
	s32 tid;
	u32 unused;
};

/* A thread's world has this home from now on, a bit for each domain; 0: none. */
SEC("syscall") int tandem_home(struct home_call *call)
{
	struct host *h = plat_host();
	struct task_struct *p;
	struct world *w;
	int done = -3; /* ESRCH */

	if (!h)
		return -22;
	p = bpf_task_from_pid(call->tid);
	if (!p)
		return done;
	w = plat_world_of(h, p);
	if (w && w->flags & WORLD_LIVE)
		done = core_home(h, w, call->home) ? 0 : -11; /* EAGAIN */
	bpf_task_release(p);
	return done;
}

struct weight_call {
	u64 weight;
	u32 vm;
	u32 vcpus;
	u32 shares;
	u32 held;
	s64 shift;
};

/* Takes over the plan's word on one VM. */
SEC("syscall") int tandem_weight(struct weight_call *call)
{
	struct host *h = plat_host();
	struct vm *v = h ? plat_vm(h, call->vm) : NULL;

	if (!v)
		return -22;
	lag_set_weight(h, v, call->weight, call->vcpus, call->shares, call->held, call->shift);
	return 0;
}

/* Threads that take a name which a vCPU of QEMU might have: "CPU 0/KVM", "CPU 3/TCG". */
SEC("tp_btf/task_rename") int BPF_PROG(tandem_rename, struct task_struct *p, const char *comm)
{
	char name[8] = {};
	struct event *e;

	bpf_probe_read_kernel_str(name, sizeof(name), comm);
	if (name[0] != 'C' || name[1] != 'P' || name[2] != 'U' || name[3] != ' ')
		return 0;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return 0;
	e->kind = EVENT_NAMED;
	e->pid = p->pid;
	e->tgid = p->tgid;
	e->world = 0;
	bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), comm);
	bpf_ringbuf_submit(e, 0);
	return 0;
}
