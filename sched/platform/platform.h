/* The calls that the scheduler makes to whatever runs it: the kernel (bpf.h) or the
 * simulator (native.h). The rooms name nothing else; a call that one side lacks fails to link. */
#ifndef TANDEM_PLATFORM_H
#define TANDEM_PLATFORM_H

#define KICK_IDLE 1
#define KICK_PREEMPT 2

#ifdef __bpf__
#include "bpf.h"
#else
#include "native.h"
#endif

/* Whether a mechanism is on. Always, but in a native build for `cargo xtask ablate`, where
 * the environment says which ones are off; see abi/mechanisms.def. */
#ifdef TANDEM_ABLATE
enum mechanism {
#define MECHANISM(name, room, what) MECHANISM_##name,
#include "../abi/mechanisms.def"
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
 * INLINE			storage of small functions
 * TEMPLATE			storage of functions whose constant arguments choose their text
 * SUBPROG			storage of functions that a BPF verifier checks once
 * RARE_INLINE			INLINE behind a branch that is seldom taken: out of line natively
 * RARE_SUBPROG			SUBPROG behind such a branch
 * NONNULL(type)		pointer argument of a SUBPROG that is never NULL
 * TRUSTED_TASK(t)		thread argument of a SUBPROG
 * plat_task			a thread as the platform knows it; opaque here
 *
 * plat_now(h)			ns, monotone on one pCPU
 * plat_chose(h, pcpu)		when the pick of the world that runs from now on began
 * plat_knobs(h)		the knobs in force
 * plat_world/vm/pcpu/cluster/node/limiter(h, id)
 *				record of that id, NULL when out of range
 * plat_siblings(h, vm)		its vCPUs by number, NULL when out of range
 * plat_world_of(h, task)	record of a thread's world, NULL when it has none
 *
 * plat_task_pcpu(task)		pCPU the thread belongs to now
 * plat_may_run(task, pcpu)	affinity and migration state allow it there
 * plat_restricted(h, task)	its affinity leaves out a pCPU that is on line
 * plat_any_pcpu(h, task)	some pCPU it may run on
 * plat_exec(h, task)		CPU time of a thread, by a clock that may run only while it does
 * plat_in_guest(task)		a running vCPU is in its guest; true where that is not known
 * plat_halted(task)		a vCPU that is about to sleep was halted by its guest; true where
 *				that is not known; asked of no other thread
 * plat_slice(task), plat_set_slice(task, ns)
 *
 * plat_insert_local(h, task, ns)
 *				into the local queue of the pCPU chosen in select
 * plat_insert_on(h, task, pcpu, ns, preempt)
 *				into that pCPU's local queue
 * plat_local_length(h, pcpu)	tasks in that pCPU's local queue
 * plat_queue_insert(h, task, queue, ns, key)
 *				into an ordered queue, smallest key first; keys are rounded down
 *				to QUEUE_KEY_UNIT
 * plat_queue_each(h, task, queue) {...}
 *				walks a queue in order
 * plat_queue_key(task, near)	key it was queued with; `near` is a time of that queue's clock
 * plat_queue_take(h, queue, task)
 *				moves a walked thread to this pCPU's local queue
 * plat_queue_move(h, task, to)	moves a walked thread to another ordered queue, key and slice as
 *				they were; from timers too. Both are false when it is gone
 * plat_queue_return(h, task)	moves a walked thread to the local queue of its own pCPU, from a
 *				timer; one that is off line gives it to the kernel
 * plat_kick(h, pcpu, KICK_IDLE or KICK_PREEMPT)
 * plat_look(h, pcpu, ns)	calls pull_look (place/pull.h) for this pCPU after so long, counted
 *				from the last call; not 0 where it will not
 * plat_pick_again(h, pcpu)	the kernel picks there once more, and stays with what runs
 *
 * plat_trace(h, ns, head, a, b)
 *				hands a record to the recorder; counted where there is no room
 * plat_waker(h, here)		world that wakes another now on the pCPU `here`, 0: an interrupt
 * plat_here(h)			pCPU that this runs on, TRACE_NOWHERE where that is not known
 *
 * plat_read(x)			a single racy load
 * plat_add, plat_or, plat_fetch_add, plat_fetch_and, plat_cas
 *				atomic on records
 * plat_barrier()		orders stores for readers elsewhere
 * PLAT_STRICT			1 where strict co-scheduling is built; 0 on a kernel
 * plat_assert(h, cond)		stops a simulated run, counts on a kernel
 * plat_assert_alone(h, cond)	the same for what holds only while no other pCPU changes what it
 *				reads: nothing on a kernel
 * plat_first_bit(mask)		index of the lowest set bit; mask is not 0
 * plat_for(i, n) {...}		a loop that a BPF verifier can bound
 */

#endif
