/* The calls that the scheduler makes to whatever runs it: the kernel (glue/platform_bpf.h) or the
 * simulator (native.h). Policy names nothing below this line; a call one side lacks fails to link. */
#ifndef TANDEM_PLATFORM_H
#define TANDEM_PLATFORM_H

#define KICK_IDLE 1
#define KICK_PREEMPT 2

#ifdef __bpf__
#include "glue/platform_bpf.h"
#else
#include "native.h"
#endif

/* Whether a mechanism is on. Always, but in a native build for `cargo xtask ablate`, where
 * the environment says which ones are off; see abi/mechanisms.def. */
#ifdef TANDEM_ABLATE
enum mechanism {
#define MECHANISM(name, room, what) MECHANISM_##name,
#include "abi/mechanisms.def"
#undef MECHANISM
	MECHANISMS
};
_Static_assert(MECHANISMS <= 64, "one bit for each");
extern u64 native_ablated; /* set once, before main */
#define with(name) (!(native_ablated >> MECHANISM_##name & 1))
#else
#define with(name) true
#endif

/*
 * What each platform provides:
 *
 * hot, cold				storage of small functions and of those checked by themselves
 * rare					storage of functions behind a branch that is seldom taken: out of the way in a native build; a
 *					verifier takes no more time over them in place
 * apart				storage of functions behind such a branch that are worth being verified, and compiled, once
 * THE(type), TASK(t)			a pointer argument of a cold function that is never NULL; a thread
 * plat_task				a thread as the platform knows it; opaque here
 * plat_now(h)				ns, monotone on one pCPU
 * plat_chose(h, pcpu)			when it began to choose the world that runs from now on (pcpu.chose_ns)
 * plat_world/vm/pcpu/cluster/node/limiter(h, id)	record of that id, NULL when out of range
 * plat_knobs(h)			the knobs in force
 * plat_world_of(h, task)		record of a thread's world, NULL when it has none
 * plat_task_pcpu(task)			pCPU the thread belongs to now
 * plat_may_run(task, pcpu)		affinity, migration state and CPU hotplug allow it there
 * plat_any_pcpu(h, task)		some pCPU it may run on
 * plat_siblings(h, vm)			its vCPUs by number, NULL when out of range
 * plat_in_guest(task)			a running vCPU's thread is not in its emulator's code; true where the platform cannot tell
 * plat_exec(h, task)			CPU time of a thread by a clock that may run on only while it does
 * plat_halted(task)			a vCPU's thread that is about to sleep does so because its guest has nothing to do; asked of no
 *					other thread. True where the platform cannot tell
 * plat_slice(task), plat_set_slice(task, ns)
 * plat_insert_local(h, task, ns)	into the local queue of the pCPU chosen in select
 * plat_insert_on(h, task, pcpu, ns, preempt)	at the head of that pCPU's local queue
 * plat_queue_insert(h, task, queue, ns, key)	into an ordered queue, smallest key first; rounded down to QUEUE_KEY_UNIT
 * plat_local_length(h, pcpu)		tasks in that pCPU's local queue
 * plat_queue_each(h, task, queue) {…}	walks a queue in order
 * plat_queue_key(task)			key it was queued with
 * plat_queue_take(h, queue, task)	moves a walked thread to this pCPU's local queue
 * plat_queue_move(h, task, to)	moves a walked thread of the queue to another ordered queue, key and slice as they were;
 *					from timers too. Both are false when it is not there any more
 * plat_kick(h, pcpu, KICK_IDLE|KICK_PREEMPT)
 * plat_trace(h, ns, head, a, b)	hands a record to whoever records; counted where there is no room
 * plat_waker(h, here)			world that wakes another just now on the pCPU `here`, 0 for an interrupt
 * plat_here(h)				pCPU that this runs on, TRACE_NOWHERE where that is not known
 * plat_add/plat_or/plat_and/plat_cas	atomic on records; plat_read for a single racy load
 * plat_assert(h, cond)			stops a simulated run, counts on a kernel
 * plat_barrier()			orders stores for readers outside
 * plat_first_bit(mask)			index of the lowest set bit; mask is not 0
 * plat_for(i, n) {…}			a loop that the verifier can bound
 */

/* Ordered queues of a pCPU: one for vCPUs and helpers of VMs, one for host tasks. */
#define QUEUE_VM(pcpu) ((u64)(pcpu))
#define QUEUE_SYSTEM(pcpu) ((u64)(pcpu) + PCPUS_MAX)
/* And of a limit: worlds that wait for it. */
#define QUEUE_PARKED(limiter) ((u64)(limiter) + 2 * PCPUS_MAX)
/* And of a VM: its co-stopped vCPUs. */
#define QUEUE_COSTOP(vm) ((u64)(vm) + 3 * PCPUS_MAX)

#endif
