/* pCPUs that come on line and go off line, as the kernel tells it.
 *
 * Promise	a pCPU that goes is off line here before the kernel calls dispatch there no more
 * Law		the first step down takes it off line; ops.cpu_offline comes after a wait for all
 *		readers of RCU, whose thread may wait in that pCPU's queues. ops.cpu_online, or a
 *		first step down that fails, brings it back
 */
#ifndef TANDEM_PCPUS_H
#define TANDEM_PCPUS_H

enum cpuhp_state { CPUHP_AP_ACTIVE = 1 }; /* the kernel's value at load time, not this */

/* Timers of its block go on at a pCPU that is on line. An event that finds no room is not missed:
 * the daemon looks at each scan. */
static __noinline void pcpus_changed(u32 pcpu)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	u32 block = pcpu / BLOCK_PCPUS & (BLOCKS_MAX - 1);

	block_unclaimed(&block_timers[block], BLOCK_COSCHED);
	if (block < LIMIT_PARTS_MAX)
		block_unclaimed(&block_timers[block], BLOCK_LIMITS);
	if (!e)
		return;
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = EVENT_PCPUS;
	bpf_ringbuf_submit(e, 0);
}

SEC("tp_btf/cpuhp_enter") int BPF_PROG(tandem_pcpu_steps, u32 cpu, int target, int step)
{
	struct host *h = plat_host();

	if (h && target < step && step == SCX_VALUE(cpuhp_state, CPUHP_AP_ACTIVE))
		core_online(h, cpu, false);
	return 0;
}

SEC("tp_btf/cpuhp_exit") int BPF_PROG(tandem_pcpu_stepped, u32 cpu, int state, int step, int error)
{
	struct host *h = plat_host();

	if (h && error && step == SCX_VALUE(cpuhp_state, CPUHP_AP_ACTIVE))
		core_online(h, cpu, true);
	return 0;
}

void SEC("struct_ops/cpu_online") BPF_PROG(tandem_cpu_online, s32 cpu)
{
	struct host *h = plat_host();

	if (h)
		core_online(h, (u32)cpu, true);
	pcpus_changed((u32)cpu);
}

void SEC("struct_ops/cpu_offline") BPF_PROG(tandem_cpu_offline, s32 cpu)
{
	pcpus_changed((u32)cpu);
}

struct offline_call {
	u32 pcpu;
};

/* The daemon's call: a pCPU went off line while the scheduler was being loaded. */
SEC("syscall") int tandem_offline(struct offline_call *call)
{
	struct host *h = plat_host();

	if (!h)
		return -22;
	core_online(h, call->pcpu, false);
	return 0;
}

#endif
