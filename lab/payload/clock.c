/* Time and work: the TSC as clock, the local APIC timer as alarm, and a counted loop as the unit
 * of CPU work.  Units. Wall time is TSC ticks: the TSC goes on while the vCPU is not running, so
 * it must never measure work. Work is loop rounds: they only pass while the vCPU runs, so stolen
 * time does not count as progress. One microsecond of work is as many rounds as the quickest of
 * many short samples did per microsecond; the quickest is the one without interruption.  Limits.
 * Speed changes of the CPU (frequency, a busy SMT sibling, a busy emulator) count as less
 * progress, which is meant. Known weakness: two VMs that calibrate on differently busy hosts may
 * differ by a few per cent; pass loops=N to give them the same unit. */
#include "payload.h"

#define APIC 0xfee00000u
#define TIMER_VECTOR 0x40
#define CALIBRATION_SAMPLES 200

u32 tsc_khz;
const char *tsc_source;
static u32 apic_per_ms;
static int under_kvm;

static u32 apic_read(u32 reg) { return *(volatile u32 *)(APIC + reg); }
static void apic_write(u32 reg, u32 value) { *(volatile u32 *)(APIC + reg) = value; }

u64 rdtsc(void)
{
	u64 t;
	__asm__ volatile("lfence; rdtsc" : "=A"(t) : : "memory");
	return t;
}

/* 64 by 32 bits, rounding down; the compiler's own would need its run-time library. */
u64 udiv(u64 n, u32 d)
{
	u32 high = (u32)(n >> 32), low = (u32)n, q_high = high / d, rest = high % d, q_low;
	__asm__("divl %3" : "=a"(q_low), "=d"(rest) : "0"(low), "r"(d), "1"(rest));
	return (u64)q_high << 32 | q_low;
}

u32 us_between(u64 from, u64 to)
{
	return to > from ? (u32)udiv((to - from) * 1000, tsc_khz) : 0;
}

u64 ticks_of_us(u32 us)
{
	return udiv((u64)us * tsc_khz, 1000);
}

static void cpuid(u32 leaf, u32 *a, u32 *b, u32 *c, u32 *d)
{
	__asm__ volatile("cpuid" : "=a"(*a), "=b"(*b), "=c"(*c), "=d"(*d) : "0"(leaf), "2"(0));
}

struct kvmclock {
	u32 version, pad;
	u64 tsc, system;
	u32 mul;
	signed char shift;
	u8 flags, pad2[2];
};
static struct kvmclock kvmclock __attribute__((aligned(64)));

/* KVM states the TSC's rate exactly: ns = (ticks << shift) * mul / 2^32
 * (Documentation/virt/kvm/x86/msr.rst). */
static u32 khz_from_kvmclock(void)
{
	u32 a, b, c, d;
	cpuid(0x40000000, &a, &b, &c, &d);
	if (b != 0x4b4d564b) /* "KVMK" */
		return 0;
	under_kvm = 1;
	cpuid(0x40000001, &a, &b, &c, &d);
	if (!(a & 1 << 3))
		return 0;
	__asm__ volatile("wrmsr" : : "c"(0x4b564d01), "a"((u32)&kvmclock | 1), "d"(0) : "memory");
	u32 mul = *(volatile u32 *)&kvmclock.mul;
	int shift = *(volatile signed char *)&kvmclock.shift;
	__asm__ volatile("wrmsr" : : "c"(0x4b564d01), "a"(0), "d"(0) : "memory");
	if (!mul)
		return 0;
	u64 khz = udiv(1000000ull << 32, mul);
	return (u32)(shift < 0 ? khz << -shift : khz >> shift);
}

static u32 pit_count(void)
{
	out8(0x43, 0x80); /* latch channel 2 */
	u32 low = in8(0x42);
	return low | (u32)in8(0x42) << 8;
}

/* Without KVM: count the 1,193,182 Hz timer chip against the TSC. Only readings taken quickly
 * count, so that being descheduled between the two clocks cannot spoil the rate. */
static u32 khz_from_pit(void)
{
	u64 best_start = 0, best_end = 0;
	u32 count_start = 0, count_end = 0;
	u64 narrowest = ~0ull;
	out8(0x61, (u8)((in8(0x61) & ~2) | 1)); /* gate on, speaker off */
	out8(0x43, 0xb0);                       /* channel 2, both bytes, count down once */
	out8(0x42, 0xff);
	out8(0x42, 0xff);
	for (int i = 0; i < 40; i++) {
		u64 before = rdtsc();
		u32 count = pit_count();
		u64 after = rdtsc();
		if (after - before < narrowest && count > 50000) {
			narrowest = after - before;
			best_start = before + (after - before) / 2;
			count_start = count;
		}
	}
	narrowest = ~0ull;
	for (u32 count = 65535; count > 6000;) {
		u64 before = rdtsc();
		count = pit_count();
		u64 after = rdtsc();
		if (count < 26000 && count > 6000 && after - before < narrowest) {
			narrowest = after - before;
			best_end = before + (after - before) / 2;
			count_end = count;
		}
	}
	if (!count_start || !count_end)
		return 0;
	/* ticks / (counts / 1193.182 per ms) */
	return (u32)udiv(udiv((best_end - best_start) * 1193182, 1000), count_start - count_end);
}

void clock_calibrate(void)
{
	tsc_source = "kvmclock";
	tsc_khz = khz_from_kvmclock();
	for (int tries = 0; !tsc_khz && tries < 5; tries++) {
		tsc_source = "pit";
		tsc_khz = khz_from_pit();
	}
	if (!tsc_khz) { /* the report says so, and every time in it is then a guess */
		tsc_source = "guess";
		tsc_khz = 2000000;
	}
}

static void __attribute__((noinline)) rounds(u32 n)
{
	__asm__ volatile("1: imull $1103515245, %%eax, %%eax\n"
			 " addl $12345, %%eax\n decl %0\n jnz 1b"
					 : "+r"(n) : : "eax", "cc");
}

void work_calibrate(void)
{
	const u32 sample = 20000;
	u64 quickest = ~0ull;
	for (int i = 0; i < CALIBRATION_SAMPLES; i++) {
		u64 start = rdtsc();
		rounds(sample);
		u64 took = rdtsc() - start;
		if (took < quickest)
			quickest = took;
	}
	run.loops_per_us = (u32)udiv((u64)sample * udiv(tsc_khz, 1000), (u32)quickest);
	if (!run.loops_per_us)
		run.loops_per_us = 1;
}

void work(u32 us)
{
	rounds(us * run.loops_per_us);
}

extern void timer_entry(void), spurious_entry(void);
static u64 idt[256] __attribute__((aligned(8)));

static void set_gate(u32 vector, void (*entry)(void))
{
	u32 at = (u32)entry;
	idt[vector] = (u64)((at & 0xffff0000u) | 0x8e00) << 32 | 0x00080000u | (at & 0xffff);
}

/* Called on every CPU; the first call also measures the timer's rate, which all share. */
void timer_init(void)
{
	struct __attribute__((packed)) {
		u16 limit;
		u32 base;
	} pointer = { sizeof idt - 1, (u32)idt };
	set_gate(TIMER_VECTOR, timer_entry);
	set_gate(0xff, spurious_entry);
	__asm__ volatile("lidt %0" : : "m"(pointer));
	apic_write(0xf0, 0x1ff);       /* software enable, spurious vector 0xff */
	apic_write(0x3e0, 0xb);        /* divide by 1 */
	apic_write(0x320, 1 << 16 | TIMER_VECTOR);
	if (!apic_per_ms && under_kvm)
		/* KVM's counts ns (APIC_BUS_CYCLE_NS); an alarm that comes too early halts twice */
		apic_per_ms = 1000000;
	if (!apic_per_ms) {
		apic_write(0x380, ~0u);
		u64 start = rdtsc(), wanted = ticks_of_us(5000);
		while (rdtsc() - start < wanted)
			;
		u32 counted = ~0u - apic_read(0x390);
		u64 took = rdtsc() - start;
		u32 took_us = (u32)udiv(took * 1000, tsc_khz);
		apic_per_ms = (u32)udiv((u64)counted * 1000, took_us);
	}
	apic_write(0x380, 0);
	apic_write(0x320, TIMER_VECTOR); /* one-shot, open */
}

/* Halts until the timer fires `us` from now (at most 3 s: the counter has 32 bits), or anything
 * else wakes us. */
void wait_interrupt(u32 us)
{
	if (us > 3000000)
		us = 3000000;
	u32 ticks = (u32)udiv((u64)us * apic_per_ms, 1000);
	apic_write(0x380, ticks ? ticks : 1);
	/* sti holds interrupts off for one instruction: no race */
	__asm__ volatile("sti; hlt; cli" : : : "memory");
	apic_write(0x380, 0);
}
