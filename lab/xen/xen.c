/* What the workload kernel asks of Xen: vCPUs, clock, its own CPU time, sleep and console; it has
 * no page tables, interrupts or traps of its own.
 *
 * Units. ns of Xen's system time. CPU time of a vCPU is that of its runstate:
 * time[RUNSTATE_running] up to the last change of state, and since then what the clock says, for
 * it is running now. */
#include "guest.h"

#define PAGE 4096

/* As the public headers number them (xen/include/public/xen.h). */
#define UPDATE_VA_MAPPING 14
#define VCPU_OP 24
#define SCHED_OP 29
#define EVENT_CHANNEL_OP 32
#define PRESENT_AND_WRITABLE 7

char stacks[MAX_VCPUS][STACK_BYTES] __attribute__((aligned(PAGE)));
extern char vcpu_start[];

static char shared_page[PAGE] __attribute__((aligned(PAGE)));
static char console_page[PAGE] __attribute__((aligned(PAGE)));
static volatile struct shared_info *shared;
static volatile struct xencons_interface *console;
static start_info_t *start;
static vcpu_guest_context_t context;
static volatile vcpu_runstate_info_t runstate[MAX_VCPUS] __attribute__((aligned(64)));

static long hypercall(long number, u64 a, u64 b, u64 c)
{
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result), "+D"(a), "+S"(b), "+d"(c)
			 : "0"(number)
			 : "rcx", "r10", "r11", "memory");
	return result;
}

static void barrier(void) { __asm__ volatile("" : : : "memory"); }

void xen_init(start_info_t *info)
{
	start = info;
	hypercall(UPDATE_VA_MAPPING, (u64)shared_page, info->shared_info | PRESENT_AND_WRITABLE,
		  UVMF_INVLPG);
	shared = (void *)shared_page;
	hypercall(UPDATE_VA_MAPPING, (u64)console_page,
		  (u64)info->console.domU.mfn << 12 | PRESENT_AND_WRITABLE, UVMF_INVLPG);
	console = (void *)console_page;
}

/* Starts all vCPUs but the first, which calls it, and returns how many there are. */
u32 xen_start_vcpus(void)
{
	const u64 *frames = (const u64 *)start->mfn_list;
	u32 n;
	for (n = 1; n < MAX_VCPUS; n++) {
		__builtin_memset(&context, 0, sizeof(context));
		context.flags = VGCF_in_kernel;
		context.user_regs.rip = (u64)vcpu_start;
		context.user_regs.rsp = (u64)stacks[n + 1] - 16;
		context.user_regs.rdi = n;
		context.user_regs.cs = FLAT_KERNEL_CS;
		context.user_regs.ss = FLAT_KERNEL_SS;
		context.user_regs.rflags = 0x1200;	/* interrupts on; I/O privilege 1 */
		context.kernel_ss = context.user_regs.ss;
		context.kernel_sp = context.user_regs.rsp;
		context.ctrlreg[0] = 0x80050033;	/* protected mode, paging, FPU as usual */
		context.ctrlreg[3] = frames[start->pt_base >> 12] << 12;
		if (hypercall(VCPU_OP, VCPUOP_initialise, n, (u64)&context))
			break;
	}
	for (u32 i = 1; i < n; i++)
		hypercall(VCPU_OP, VCPUOP_up, i, 0);
	return n;
}

/* Each vCPU calls it first: no tick wakes it, and Xen keeps its CPU time where it can read it. */
void xen_vcpu_init(u32 me)
{
	struct vcpu_register_runstate_memory_area area;
	hypercall(VCPU_OP, VCPUOP_stop_periodic_timer, me, 0);
	area.addr.v = (vcpu_runstate_info_t *)&runstate[me];
	hypercall(VCPU_OP, VCPUOP_register_runstate_memory_area, me, (u64)&area);
}

static u64 rdtsc(void)
{
	u32 low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

/* Xen's system time, by the vCPU's own page of it (struct vcpu_time_info of xen.h). */
u64 now_ns(u32 me)
{
	volatile struct vcpu_time_info *t = &shared->vcpu_info[me].time;
	u32 version;
	u64 ticks, ns;
	do {
		version = t->version;
		barrier();
		ticks = rdtsc() - t->tsc_timestamp;
		ticks = t->tsc_shift < 0 ? ticks >> -t->tsc_shift : ticks << t->tsc_shift;
		ns = (u64)(((unsigned __int128)ticks * t->tsc_to_system_mul) >> 32);
		ns += t->system_time;
		barrier();
	} while ((version & 1) || version != t->version);
	return ns;
}

u64 own_run_ns(u32 me)
{
	volatile vcpu_runstate_info_t *r = &runstate[me];
	u64 since, ns;
	do {
		since = r->state_entry_time;
		barrier();
		ns = r->time[RUNSTATE_running] + now_ns(me) - since;
		barrier();
	} while (since != r->state_entry_time);
	return ns;
}

/* CPU time of any vCPU of this VM. */
u64 run_ns_of(u32 vcpu)
{
	vcpu_runstate_info_t r;
	if (hypercall(VCPU_OP, VCPUOP_get_runstate_info, vcpu, (u64)&r))
		return 0;
	return r.time[RUNSTATE_running];
}

void sleep_until(u64 ns)
{
	struct sched_poll poll;
	__builtin_memset(&poll, 0, sizeof(poll));
	poll.timeout = ns;
	hypercall(SCHED_OP, SCHEDOP_poll, (u64)&poll, 0);
}

static void notify_console(void)
{
	struct evtchn_send send;
	send.port = start->console.domU.evtchn;
	hypercall(EVENT_CHANNEL_OP, EVTCHNOP_send, (u64)&send, 0);
}

static void put_char(char c)
{
	u32 at = console->out_prod;
	while (at - console->out_cons >= sizeof(console->out)) {
		notify_console();
		hypercall(SCHED_OP, SCHEDOP_yield, 0, 0);
	}
	console->out[at % sizeof(console->out)] = c;
	barrier();
	console->out_prod = at + 1;
}

void put(const char *text)
{
	while (*text)
		put_char(*text++);
}

void put_value(const char *name, u64 value)
{
	char digits[24];
	int n = 0;
	put(name);
	do
		digits[n++] = (char)('0' + value % 10);
	while (value /= 10);
	while (n)
		put_char(digits[--n]);
}

void end_line(void)
{
	put_char('\n');
	notify_console();
}
