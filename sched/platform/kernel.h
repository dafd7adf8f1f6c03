/* The few kernel types and calls that the glue names, with only the fields it reads: CO-RE finds
 * their real places at load time, so no kernel headers and no generated vmlinux.h are needed. */
#ifndef TANDEM_KERNEL_H
#define TANDEM_KERNEL_H

typedef unsigned char __u8, u8;
typedef unsigned short __u16, u16;
typedef unsigned int __u32, u32;
typedef unsigned long long __u64, u64;
typedef signed char __s8, s8;
typedef short __s16, s16;
typedef int __s32, s32;
typedef long long __s64, s64;
typedef u16 __be16, __le16;
typedef u32 __be32, __le32, __wsum;
typedef u64 __be64;
typedef _Bool bool;
enum { false, true };
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29
};
enum { BPF_F_MMAPABLE = 1024, BPF_F_NO_PREALLOC = 1 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1, CLOCK_MONOTONIC = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define CORE __attribute__((preserve_access_index))

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct cpumask {
	unsigned long bits[1];
} CORE;

struct sched_entity {
	u64 sum_exec_runtime;
} CORE;

struct sched_ext_entity {
	u64 slice;
	u64 dsq_vtime;
	u32 weight;
} CORE;

struct hlist_head {
	struct hlist_node *first;
} CORE;

struct counter {
	s64 counter;
};

struct mutex {
	struct counter owner;
} CORE;

struct rw_semaphore {
	struct counter owner;
} CORE;

struct task_struct {
	unsigned long blocker;
	int pid;
	int tgid;
	unsigned int flags;
	unsigned int __state;
	struct hlist_head preempt_notifiers;
	const struct cpumask *cpus_ptr;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	char comm[16];
	struct sched_entity se;
	struct sched_ext_entity scx;
} CORE;

struct scx_init_task_args {
	bool fork;
} CORE;

struct scx_exit_task_args {
	bool cancelled;
} CORE;

enum scx_exit_kind { SCX_EXIT_NONE };
struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
} CORE;

struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));
struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

/* Values are the kernel's at load time, not these. */
enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 0x8000000000000002ull,
	SCX_DSQ_LOCAL_ON = 0xC000000000000000ull
};
enum scx_enq_flags { SCX_ENQ_WAKEUP = 1, SCX_ENQ_HEAD = 16, SCX_ENQ_PREEMPT = 0x100000000ull };
enum scx_wake_flags { SCX_WAKE_SYNC = 16 };
enum scx_deq_flags { SCX_DEQ_SLEEP = 1 };
enum scx_kick_flags { SCX_KICK_IDLE_ = 1, SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2 };
#define SCX_VALUE(type, name) bpf_core_enum_value(enum type, name)

/* Of sched_ext_ops: enqueue is called even for the last thread that wants to run, so that one that
 * a limit holds back does not go on. The same number in every kernel so far. */
#define SCX_OPS_ENQ_LAST 2

/* Flags of task_struct.flags, stable for a decade. */
#define PF_KTHREAD 0x00200000
#define PF_USER_WORKER 0x00004000 /* since 6.4 */
/* And of task_struct.__state, for longer. */
#define TASK_INTERRUPTIBLE 1

/* The operations, by name and type; the loader drops those that a kernel lacks. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*runnable)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*set_weight)(struct task_struct *p, u32 weight);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	void (*update_idle)(s32 cpu, bool idle);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u32 dispatch_max_batch;
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
/* Kernel 6.12 has the same calls under older names. */
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
		u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
		u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
		u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
		u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p,
		u64 dsq_id, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_slice(struct bpf_iter_scx_dsq *it__iter,
		u64 slice) __ksym __weak;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
		u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it__iter, u64 slice) __ksym __weak;
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) __ksym __weak;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
bool bpf_cpumask_subset(const struct cpumask *part, const struct cpumask *whole) __ksym;
u32 bpf_cpumask_any_and_distribute(const struct cpumask *one, const struct cpumask *other) __ksym;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

/* Of each CPU of x86: what keeps the kernel from preemption, up to 6.14, and from 6.15 on. */
struct pcpu_hot {
	int preempt_count;
} CORE;
extern const struct pcpu_hot pcpu_hot __ksym __weak;
extern const int __preempt_count __ksym __weak;

#endif
