/* Shared declarations of the workload kernel: the orders of a vCPU, and what it has done. */
#ifndef PAYLOAD_H
#define PAYLOAD_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* Local APIC ids are the vCPU numbers; QEMU hands them out densely for plain -smp N. */
#define MAX_VCPUS 64
#define MAX_WINDOWS 8
#define LATE_BUCKETS 240        /* of latencies, see late_bucket */

enum kind { IDLE, BURN, DUTY, PERIODIC, IO_FIXED, IO_EXP, LOCK, TICKET, BARRIER, EXITS,
	    CHAT };

/* One vCPU's orders, from the command line. Windows are in ms since the start; none means
 * always. */
struct orders {
	enum kind kind;
	/* DUTY, PERIODIC, IO, BARRIER, EXITS, CHAT: CPU work per round; LOCK, TICKET: between two
	 * critical sections */
	u32 work_us;
	/* DUTY, IO, CHAT: sleep per round; PERIODIC: the period; LOCK, TICKET: work with the lock
	 * held; EXITS: time in the emulator */
	u32 rest_us;
	u32 windows;
	u32 from_ms[MAX_WINDOWS], to_ms[MAX_WINDOWS];
};

/* The least and most latency in the span that report n covers; n is 0 before the first. */
struct late {
	volatile u32 n, min_us, max_us;
};

/* One vCPU's progress. Written by that vCPU only and read by vCPU 0 for the report: every field is
 * one aligned 32-bit word, so a reader sees an old or a new value, never half of one. work_us
 * wraps after 71 minutes. */
struct progress {
	volatile u32 up;            /* 1 once the vCPU runs */
	volatile u32 work_us;       /* CPU work done, in calibrated microseconds */
	volatile u32 rounds;        /* completed rounds of work */
	volatile u32 wakeups;       /* timed wake-ups */
	volatile u32 late_us_sum;   /* of all wake-ups, for the mean; wraps */
	/* of the span under way and of the last one, which may be being reported */
	struct late late[2];
	volatile u32 late_counts[LATE_BUCKETS];
	/* PERIODIC: rounds whose next release had passed before they were done */
	volatile u32 missed;
	volatile u32 done;          /* 1 when the run is over for this vCPU */
} __attribute__((aligned(64)));

struct run {
	u32 run_ms, report_ms;      /* 0: for ever; 0: only at the end */
	/* not 0: reports tell the buckets of latencies: long lines, and each letter costs an
	 * exit */
	u32 buckets;
	u32 loops_per_us;           /* 0 on the command line: calibrate */
	u32 seed;
	struct orders orders[MAX_VCPUS];
};

extern struct run run;
extern struct progress progress[MAX_VCPUS];

/* clock.c */
extern u32 tsc_khz;
extern const char *tsc_source;
u64 rdtsc(void);
u64 udiv(u64 n, u32 d);
u32 us_between(u64 from, u64 to);
u64 ticks_of_us(u32 us);
void clock_calibrate(void);
void work_calibrate(void);
void work(u32 us);
void timer_init(void);
void wait_interrupt(u32 us);

/* parse.c */
int parse_line(const char *line);

/* main.c */
void out8(u16 port, u8 value);
u8 in8(u16 port);

#endif
