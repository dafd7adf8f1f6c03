/* The workload kernel of the lab: starts all its vCPUs and runs on each what the command line
 * orders, counting what it got done for the report on the debug port; it never touches a disk, a
 * screen or the other VMs. */
#include "payload.h"

#define APIC_ICR_LOW 0xfee00300u
#define APIC_ICR_HIGH 0xfee00310u
/* below 1 MB and on a page boundary, as the start-up interrupt wants */
#define TRAMPOLINE 0x8000u
#define DEBUG_PORT 0xe9
#define EXIT_PORT 0xf4
#define CHAT_PORT 0x2f8 /* second serial port */
/* work between two looks at the clock: precise windows, little overhead */
#define CHUNK_US 50
#define LINE_BYTES 4096         /* every bucket of latencies with a large number, and the rest */

struct run run;
struct progress progress[MAX_VCPUS];
static u32 vcpus;
static u64 start_tsc;
static volatile u32 started;
static u32 next_report_ms;
static volatile u32 report_number = 1; /* of the report that comes next */

void out8(u16 port, u8 value) { __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }
u8 in8(u16 port)
{
	u8 v;
	__asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
	return v;
}

/* The compiler may ask for these two even in freestanding code. */
void *memcpy(void *to, const void *from, u32 n)
{
	for (u32 i = 0; i < n; i++)
		((u8 *)to)[i] = ((const u8 *)from)[i];
	return to;
}
void *memset(void *to, int value, u32 n)
{
	for (u32 i = 0; i < n; i++)
		((volatile u8 *)to)[i] = (u8)value;
	return to;
}

static char line[LINE_BYTES];
static u32 line_used;

static void put(const char *s)
{
	while (*s && line_used < LINE_BYTES - 2)
		line[line_used++] = *s++;
}

static void put_value(const char *name, u32 value)
{
	char digits[11], *p = digits + 10;
	*p = 0;
	do
		*--p = (char)('0' + value % 10);
	while (value /= 10);
	put(name);
	put(p);
}

/* One string instruction for the whole line: KVM hands it to the emulator in one exit instead of
 * one per byte. */
static void flush_line(void)
{
	const char *from = line;
	u32 n = line_used + 1;
	line[line_used] = '\n';
	__asm__ volatile("rep outsb" : "+S"(from), "+c"(n) : "d"(DEBUG_PORT) : "memory");
	line_used = 0;
}

static u32 now_ms(void) { return (u32)udiv(rdtsc() - start_tsc, tsc_khz); }

static const char *const kind_names[] = { "idle", "burn",   "duty", "periodic", "io",
					  "io-exp", "lock", "ticket", "barrier",  "exits",
					  "chat" };

/* Latencies below 8 us have a bucket each, larger ones eight an octave, so that a percentile is at
 * most an eighth too large; bucket_of in crates/views has the same law. */
static u32 late_bucket(u32 us)
{
	u32 top = 31;
	if (us < 8)
		return us;
	while (!(us >> top))
		top--;
	return (top - 2) * 8 + (us >> (top - 3)) % 8;
}

static void count_late(u32 me, u32 us)
{
	struct progress *p = &progress[me];
	u32 n = report_number;
	struct late *l = &p->late[n & 1];
	if (l->n != n) {
		l->min_us = us;
		l->max_us = us;
		l->n = n;
	}
	if (us < l->min_us)
		l->min_us = us;
	if (us > l->max_us)
		l->max_us = us;
	p->wakeups++;
	p->late_us_sum += us;
	p->late_counts[late_bucket(us)]++;
}

/* The least and most latency of the span that report n covers; their sum, and how many fell
 * into each bucket, since the start. */
static void put_late(const struct progress *p, u32 n)
{
	const struct late *l = &p->late[n & 1];
	put_value(" late_us_sum=", p->late_us_sum);
	if (l->n == n) {
		put_value(" late_us_min=", l->min_us);
		put_value(" late_us_max=", l->max_us);
	}
	if (!run.buckets)
		return;
	put(" late=");
	for (u32 b = 0, first = 1; b < LATE_BUCKETS; b++) {
		if (!p->late_counts[b])
			continue;
		put_value(first ? "" : ",", b);
		put_value(":", p->late_counts[b]);
		first = 0;
	}
}

static void report(const char *what)
{
	u32 ms = now_ms(), n = report_number++;
	for (u32 i = 0; i < vcpus; i++) {
		struct progress *p = &progress[i];
		put(what);
		put_value(" n=", n);
		put_value(" ms=", ms);
		put_value(" vcpu=", i);
		put(" kind=");
		put(kind_names[run.orders[i].kind]);
		put_value(" work_us=", p->work_us);
		put_value(" rounds=", p->rounds);
		put_value(" wakeups=", p->wakeups);
		put_value(" missed=", p->missed);
		put_late(p, n);
		flush_line();
	}
}

static int over(u32 ms) { return run.run_ms && ms >= run.run_ms; }

static int report_if_due(u32 me)
{
	if (me || !run.report_ms || now_ms() < next_report_ms)
		return 0;
	report("report");
	next_report_ms += run.report_ms;
	return 1;
}

/* Is the vCPU to be active now? If not, *change_ms is when that may change (~0: never). */
static int active(const struct orders *o, u32 ms, u32 *change_ms)
{
	*change_ms = ~0u;
	if (!o->windows)
		return 1;
	for (u32 w = 0; w < o->windows; w++) {
		if (ms < o->from_ms[w]) {
			*change_ms = o->from_ms[w];
			return 0;
		}
		if (ms < o->to_ms[w]) {
			*change_ms = o->to_ms[w];
			return 1;
		}
	}
	return 0;
}

/* Halts until a point in time, or until the run or (on vCPU 0) its reports want attention. Counts
 * the wake-up, but not one whose sleep a report has shortened: to write one takes ms in an
 * emulator. */
static void sleep_until(u32 me, u64 deadline, int counts)
{
	for (;;) {
		u64 now = rdtsc();
		u32 ms = now_ms();
		if (over(ms))
			return;
		if (now >= deadline) {
			if (counts)
				count_late(me, us_between(deadline, now));
			return;
		}
		u32 us = us_between(now, deadline);
		if (run.run_ms && us / 1000 > run.run_ms - ms)
			us = (run.run_ms - ms) * 1000;
		if (!me && run.report_ms && next_report_ms > ms && us / 1000 > next_report_ms - ms)
			us = (next_report_ms - ms) * 1000;
		wait_interrupt(us);
		/* a vCPU that is due looks at the clock first */
		if (rdtsc() < deadline && report_if_due(me))
			counts = 0;
	}
}

/* Does `us` of work, or less if the run or the active window ends before. */
static int work_for(u32 me, u32 us)
{
	u32 change_ms;
	while (us) {
		u32 chunk = us < CHUNK_US ? us : CHUNK_US;
		work(chunk);
		progress[me].work_us += chunk;
		us -= chunk;
		u32 ms = now_ms();
		report_if_due(me);
		if (over(ms) || !active(&run.orders[me], ms, &change_ms))
			return 0;
	}
	progress[me].rounds++;
	return 1;
}

/* --- what the vCPUs share: one lock and one barrier ---  A waiting vCPU spins with PAUSE, as
 * kernels do, so that KVM sees it (pause-loop exits); what it spins is no work. Another vCPU may
 * not run for long, so a waiting one still looks at the clock: the run may end meanwhile. */
static volatile u32 lock_taken, ticket_next, ticket_served;
static volatile u32 barrier_members, barrier_arrived, barrier_round;

/* One look of many; whether the run is over. */
static int spin(u32 me, u32 n)
{
	__asm__ volatile("pause");
	if (n % 256 != 255)
		return 0;
	report_if_due(me);
	return over(now_ms());
}

static int take_lock(u32 me, int ticket)
{
	if (ticket) {
		u32 mine = __sync_fetch_and_add(&ticket_next, 1);
		for (u32 n = 0; ticket_served != mine; n++)
			if (spin(me, n))
				return 0;
		return 1;
	}
	for (u32 n = 0; lock_taken || __sync_lock_test_and_set(&lock_taken, 1); n++)
		if (spin(me, n))
			return 0;
	return 1;
}

static void lock_round(u32 me, const struct orders *o)
{
	int ticket = o->kind == TICKET;
	if (!work_for(me, o->work_us) || !take_lock(me, ticket))
		return;
	work(o->rest_us);
	progress[me].work_us += o->rest_us;
	if (ticket)
		ticket_served++;
	else
		__sync_lock_release(&lock_taken);
}

static void barrier_round_of(u32 me, const struct orders *o)
{
	u32 round = barrier_round;
	if (!work_for(me, o->work_us))
		return;
	if (__sync_add_and_fetch(&barrier_arrived, 1) == barrier_members) {
		barrier_arrived = 0;
		__sync_fetch_and_add(&barrier_round, 1);
		return;
	}
	for (u32 n = 0; barrier_round == round; n++)
		if (spin(me, n))
			return;
}

/* Has the emulator work for about `us`, by the clock: a string instruction from a port that no
 * device has is one exit for all its bytes, which the emulator fetches one by one. */
#define NO_DEVICE_PORT 0x80
static void emulate_for(u32 us)
{
	u8 bytes[128];
	u64 end = rdtsc() + ticks_of_us(us);
	while (rdtsc() < end) {
		u8 *to = bytes;
		u32 n = sizeof(bytes);
		__asm__ volatile("rep insb" : "+D"(to), "+c"(n) : "d"(NO_DEVICE_PORT) : "memory");
	}
}

/* Answers a byte from the VM at the other end of the line, if one has come; the first round sends
 * one. So one or two are under way, and the emulator that gets one has waited for it. */
static void chat(int first)
{
	int come = in8(CHAT_PORT + 5) & 1; /* line status */
	if (come)
		in8(CHAT_PORT);
	if (come || first)
		out8(CHAT_PORT, '.');
}

static u32 random_u32(u32 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* -ln(x / 2^32) in 16.16 fixed point: the logarithm to base 2 from the top bit, the rest by a
 * parabola that is right to 0.8 %, times ln 2 = 45426 / 2^16. */
static u32 minus_ln(u32 x)
{
	u32 top = 31;
	if (!x)
		x = 1;
	while (!(x >> top))
		top--;
	u32 f = top >= 16 ? (x >> (top - 16)) & 0xffff : (x << (16 - top)) & 0xffff;
	u32 bump = (u32)(((u64)f * (65536 - f) >> 16) * 22545 >> 16);
	u32 log2 = (top << 16) + f + bump;
	return (u32)((u64)((32u << 16) - log2) * 45426 >> 16);
}

static u32 exponential(u32 mean, u32 *state)
{
	return (u32)((u64)mean * minus_ln(random_u32(state)) >> 16);
}

static void one_round(u32 me, u64 *release, u32 *state)
{
	const struct orders *o = &run.orders[me];
	u32 work_us = o->work_us, rest_us = o->rest_us;
	switch (o->kind) {
	case BURN:
		work_for(me, 1000);
		return;
	case LOCK:
	case TICKET:
		lock_round(me, o);
		return;
	case BARRIER:
		barrier_round_of(me, o);
		return;
	case EXITS:
		if (work_for(me, work_us))
			emulate_for(rest_us);
		return;
	case CHAT:
		chat(!progress[me].rounds);
		break;
	case PERIODIC:
		if (!*release)
			*release = rdtsc();
		work_for(me, work_us);
		*release += ticks_of_us(rest_us);
		if (rdtsc() > *release) {
			progress[me].missed++;
			return;
		}
		sleep_until(me, *release, 1);
		return;
	case IO_EXP:
		work_us = exponential(work_us, state);
		rest_us = exponential(rest_us, state);
		/* fall through */
	default:;
	}
	if (work_for(me, work_us))
		sleep_until(me, rdtsc() + ticks_of_us(rest_us), 1);
}

static void vcpu_main(u32 me)
{
	const struct orders *o = &run.orders[me];
	u32 state = run.seed * 2654435761u + me * 40503u + 1;
	u64 release = 0;
	for (;;) {
		u32 ms = now_ms(), change_ms;
		if (over(ms))
			break;
		report_if_due(me);
		if (o->kind != IDLE && active(o, ms, &change_ms)) {
			one_round(me, &release, &state);
			continue;
		}
		release = 0;
		u32 until = o->kind == IDLE || change_ms == ~0u ? ms + 3000 : change_ms;
		sleep_until(me, start_tsc + (u64)until * tsc_khz, 0);
	}
	progress[me].done = 1;
}

void ap_main(u32 me)
{
	timer_init();
	progress[me].up = 1;
	while (!started)
		__asm__ volatile("pause");
	vcpu_main(me);
}

/* QEMU's firmware configuration device knows how many vCPUs there are. */
static u32 count_vcpus(void)
{
	__asm__ volatile("outw %0, %1" : : "a"((u16)5), "Nd"((u16)0x510));
	u32 low = in8(0x511);
	u32 n = low | (u32)in8(0x511) << 8;
	return n < 1 ? 1 : n > MAX_VCPUS ? MAX_VCPUS : n;
}

static void interrupt_others(u32 command)
{
	*(volatile u32 *)APIC_ICR_HIGH = 0;
	*(volatile u32 *)APIC_ICR_LOW = 0xc0000 | command; /* all but me */
	while (*(volatile u32 *)APIC_ICR_LOW & 1 << 12)
		;
}

static void pause_us(u32 us)
{
	u64 end = rdtsc() + ticks_of_us(us);
	while (rdtsc() < end)
		__asm__ volatile("pause");
}

/* INIT, then start-up interrupts until all have come (Intel SDM vol. 3 "MP Initialization"). */
static u32 start_others(void)
{
	extern const u8 trampoline[], trampoline_end[];
	memcpy((void *)TRAMPOLINE, trampoline, (u32)(trampoline_end - trampoline));
	progress[0].up = 1;
	u32 up = 1;
	if (vcpus > 1)
		interrupt_others(0x4500);
	pause_us(10000);
	for (int tries = 0; up < vcpus && tries < 200; tries++) {
		if (tries % 50 == 0)
			interrupt_others(0x4600 | TRAMPOLINE >> 12);
		pause_us(20000);
		up = 0;
		for (u32 i = 0; i < MAX_VCPUS; i++)
			up += progress[i].up;
	}
	return up;
}

static void leave(const char *why)
{
	put(why);
	flush_line();
	out8(EXIT_PORT, 0);
	for (;;)
		__asm__ volatile("cli; hlt");
}

void bsp_main(const u32 *info)
{
	out8(0x21, 0xff); /* the old interrupt controllers stay silent */
	out8(0xa1, 0xff);
	const char *command_line = info[0] & 4 ? (const char *)info[4] : "";
	vcpus = count_vcpus();
	if (!parse_line(command_line))
		leave("payload error: command line not understood");
	clock_calibrate();
	timer_init();
	if (!run.loops_per_us)
		work_calibrate();
	u32 up = start_others();
	put_value("payload up vcpus=", up);
	put_value(" of=", vcpus);
	put_value(" tsc_khz=", tsc_khz);
	put(" tsc_from=");
	put(tsc_source);
	put_value(" loops_per_us=", run.loops_per_us);
	flush_line();
	for (u32 i = 0; i < vcpus; i++)
		barrier_members += run.orders[i].kind == BARRIER;
	start_tsc = rdtsc();
	next_report_ms = run.report_ms;
	started = 1;
	vcpu_main(0);
	pause_us(20000); /* let the others finish their last chunk */
	report("final");
	leave("payload done");
}
