/* What a sleeping lock of the kernel tells of its owner (account/lock.h). Included by
 * tandem.bpf.c. */
#ifndef TANDEM_LOCKS_H
#define TANDEM_LOCKS_H

/* task.blocker: the lock that a task sleeps for, and its kind in two bits (linux/hung_task.h). Of a
 * semaphore, and of a rw_semaphore that readers hold, no owner is known. */
enum blocker {
	BLOCKER_MUTEX = 0,
	BLOCKER_RWSEM_READS = 2,
	BLOCKER_RWSEM_WRITES = 3,
	BLOCKER_BITS = 3
};
/* bits of the owner's word beside its address */
#define OWNER_BITS 7
#define RWSEM_READER_OWNED 1

/* A world sleeps for a lock: finds the world that holds it. The owner may end meanwhile: what is
 * read then is another thread's or nothing, and the thread's id tells. */
RARE_SUBPROG u32 lock_sleeps(NONNULL(struct host *h), NONNULL(struct world *w), u64 blocker)
{
	void *lock = (void *)(blocker & ~(u64)BLOCKER_BITS);
	u32 kind = blocker & BLOCKER_BITS;
	struct task_struct *owner;
	struct world *holder;
	u64 word = 0;

	if (kind == BLOCKER_MUTEX)
		word = (u64)BPF_CORE_READ((struct mutex *)lock, owner.counter);
	else if (kind == BLOCKER_RWSEM_READS || kind == BLOCKER_RWSEM_WRITES)
		word = (u64)BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
	if (kind != BLOCKER_MUTEX && word & RWSEM_READER_OWNED)
		return 0;
	owner = (struct task_struct *)(word & ~(u64)OWNER_BITS);
	if (!owner)
		return 0;
	holder = plat_world(h, BPF_CORE_READ(owner, scx.dsq_vtime) & KEY_WORLD);
	if (holder && holder->pid == (u32)BPF_CORE_READ(owner, pid))
		core_lock_sleeps(h, w, holder);
	return 0;
}

#endif
