/* Shared declarations of the workload kernel of a PV VM: what a vCPU is to do, what it has
 * done, and what Xen is asked for. */
#ifndef GUEST_H
#define GUEST_H

#include <stdint.h>
#define __XEN_INTERFACE_VERSION__ 0x00040d00
#include <xen/xen.h>
#include <xen/vcpu.h>
#include <xen/sched.h>
#include <xen/event_channel.h>
#include <xen/io/console.h>

typedef uint32_t u32;
typedef uint64_t u64;

#define MAX_VCPUS 32		/* those whose time is in the shared page */
#define LATE_BUCKETS 240	/* of latencies, see late_bucket */

enum kind { IDLE, BURN, DUTY };

/* One vCPU's orders, from the command line: CPU work and sleep of a round. */
struct orders {
	enum kind kind;
	u32 work_us, sleep_us;
};

/* The least and most latency in the interval of report n. */
struct late {
	volatile u32 n, min_us, max_us;
};

/* One vCPU's progress. Written by that vCPU only, read by vCPU 0 for the report. */
struct progress {
	volatile u32 work_us, rounds, wakeups, late_us_sum;
	struct late late[2];
	volatile u32 late_counts[LATE_BUCKETS];
} __attribute__((aligned(64)));

struct run {
	u32 report_ms;		/* 0: never */
	u32 buckets;		/* not 0: reports have the buckets of latencies */
	struct orders orders[MAX_VCPUS];
};

extern struct run run;

/* parse.c */
void parse_line(const char *line);

/* xen.c */
void xen_init(start_info_t *info);
u32 xen_start_vcpus(void);
void xen_vcpu_init(u32 me);
u64 now_ns(u32 me);
u64 own_run_ns(u32 me);
u64 run_ns_of(u32 vcpu);
void sleep_until(u64 ns);
void put(const char *text);
void put_value(const char *name, u64 value);
void end_line(void);

#endif
