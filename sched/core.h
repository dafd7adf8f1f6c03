/* Entry points of the scheduler: what the kernel's callbacks (glue) and the simulated kernel call.
 * Names and order of calls are sched_ext's; see ARCHITECTURE.md "Life of a wake-up". */
#ifndef TANDEM_CORE_H
#define TANDEM_CORE_H

#include "platform/platform.h"

/* Flag of sched_enqueue. */
#define ENQUEUE_WAKEUP 1	/* the world was waiting */

#ifndef __bpf__
/* Life of a world. The caller has filled id, vm, kind, index, flags (WORLD_PCPU_KTHREAD),
 * nice_weight. */
void sched_world_start(struct host *h, plat_task *task);	/* state WAIT from now on */
void sched_world_exit(struct host *h, plat_task *task);
void sched_home(struct host *h, plat_task *task, u64 home);	/* its home nodes, a bit each */
void sched_world_affinity(struct host *h, plat_task *task);	/* the allowed set changed */
/* takes effect when next queued */
void sched_vm_bind(struct host *h, struct world *w, u32 vm, u32 kind, u32 index);
void sched_vm_weight(struct host *h, u32 vm, u64 weight, u32 vcpus, u32 shares); /* from the plan */
/* from the plan of active VMs */
void sched_vm_plan(struct host *h, u32 vm, u64 weight, u32 vcpus, u32 shares, bool held, s64 shift);

/* Life of a wake-up, in the kernel's order. */
/* waker: pCPU of one that is about to sleep, or -1; returns a pCPU; may insert into its local
 * queue */
s32 sched_select(struct host *h, plat_task *task, s32 prev_pcpu, s32 waker);
void sched_runnable(struct host *h, plat_task *task);	/* WAIT -> READY */
void sched_enqueue(struct host *h, plat_task *task, u32 flags);
/* prev: still wants to run, or NULL */
void sched_dispatch(struct host *h, u32 pcpu, plat_task *prev);
void sched_running(struct host *h, plat_task *task);	/* READY -> RUN */
void sched_stopping(struct host *h, plat_task *task, bool runnable);	/* RUN -> READY or WAIT */
/* no longer runnable; or taken off for a change */
void sched_quiescent(struct host *h, plat_task *task, bool sleeping);
void sched_disabled(struct host *h, plat_task *t);	/* leaves the fair class */
void sched_idle(struct host *h, u32 pcpu, bool idle);	/* the pCPU enters or leaves idle */
void sched_online(struct host *h, u32 pcpu, bool online); /* it comes on line or goes off line */
u64 sched_housekeep(struct host *h);	/* a part of a round; ns until the next one */
void sched_audit(struct host *h);	/* asserts what holds between two callbacks */
/* a vCPU that runs enters its guest, or leaves it for its emulator */
void sched_guest(struct host *h, plat_task *task, bool inside);
/* `task` runs; it comes to dispatch, its slice ended, if true */
bool sched_yield_to(struct host *h, plat_task *task, plat_task *to);
/* the tick of co-scheduling; ns until the next one, 0 for none */
u64 sched_cosched(struct host *h, u32 block);
/* a part of the tick of limits; ns until its next one, 0 for none until more is limited */
u64 sched_limits(struct host *h, u32 part);
u32 sched_limits_parts(struct host *h);
/* The timers of a block (tick/blocks.h) that have something to do; then the timer that a pCPU of it
 * takes over, 0 for none, while housekeeping is at `house`. */
struct block_timers;
void sched_block_start(struct block_timers *b, u32 timers);
u32 sched_block_claim(struct block_timers *b, u32 pcpu, u32 house);

/* Native hosts. */
struct native *native_new(u32 pcpus, u32 vms, u32 worlds, u32 pools);
void native_free(struct native *n);
#endif

#endif
