/* Hooks where a vCPU's thread goes into KVM and comes back to its emulator: a BPF object of its
 * own, for KVM may be a module that is loaded after the scheduler. It shares the scheduler's maps,
 * which the loader gives it (crates/host/src/guests.rs). */
/* static: 6.12 allows no other calls while preemption is disabled */
#define SUBPROG static __attribute__((noinline, unused))
#include "../core.h"
#include "../account/stall.h"

char LICENSE[] SEC("license") = "GPL";

/* Knobs in force; the daemon sets them before loading, as it does the scheduler's. */
const volatile struct knobs knobs_now = {};

void bpf_preempt_disable(void) __ksym;
void bpf_preempt_enable(void) __ksym;

/* Nothing may come between the clock and the record: the recorder waits for a record that was
 * begun. */
INLINE int crossed(bool inside)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct host *h = plat_host();
	struct world *w = h ? plat_world_of(h, t) : NULL;

	if (w && w->kind == KIND_VCPU) {
		bpf_preempt_disable();
		stall_crossed(h, w, inside);
		bpf_preempt_enable();
	}
	return 0;
}

SEC("fentry/kvm_arch_vcpu_ioctl_run") int BPF_PROG(tandem_enters_kvm)
{
	return crossed(true);
}

SEC("fexit/kvm_arch_vcpu_ioctl_run") int BPF_PROG(tandem_leaves_kvm)
{
	return crossed(false);
}
