/* The workload kernel of a PV VM: each vCPU burns, sleeps and works, or idles, and vCPU 0 reports
 * in the words of lab/payload what all have done and how late they woke.
 *
 * Units. Work is the vCPU's own CPU time, by Xen's account of it: the pCPUs of an emulator share
 * its speed, and rounds of a loop would say how many of them are busy. */
#include "guest.h"

/* Rounds between two looks at the clock: some 0.3 us of the emulator's instructions. */
#define ROUNDS 100

static struct progress progress[MAX_VCPUS];
static volatile u32 report_number = 1;
static u32 vcpus;

void *memset(void *to, int byte, unsigned long count)
{
	char *at = to;
	while (count--)
		*at++ = (char)byte;
	return to;
}

static void work(u32 me, u32 us)
{
	u64 until = own_run_ns(me) + (u64)us * 1000;
	do
		for (volatile u32 i = 0; i < ROUNDS; i++)
			;
	while (own_run_ns(me) < until);
	progress[me].work_us += us;
	progress[me].rounds++;
}

/* The law of views::bucket_of: values below 8 have a bucket each, larger ones eight an octave. */
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
		l->n = n;
		l->min_us = l->max_us = us;
	} else {
		l->min_us = us < l->min_us ? us : l->min_us;
		l->max_us = us > l->max_us ? us : l->max_us;
	}
	p->late_us_sum += us;
	p->late_counts[late_bucket(us)]++;
	p->wakeups++;
}

static void round(u32 me)
{
	const struct orders *o = &run.orders[me];
	u64 due;
	switch (o->kind) {
	case IDLE:
		sleep_until(now_ns(me) + 100 * 1000 * 1000);
		break;
	case BURN:
		work(me, 1000);
		break;
	case DUTY:
		work(me, o->work_us);
		due = now_ns(me) + (u64)o->sleep_us * 1000;
		sleep_until(due);
		if (now_ns(me) >= due)
			count_late(me, (u32)((now_ns(me) - due) / 1000));
		break;
	}
}

/* Report n of one vCPU: keys as in lab/payload, and CPU time with the moment it is of. */
static void report_one(u32 vcpu, u32 n, u64 ms)
{
	const struct progress *p = &progress[vcpu];
	const struct late *l = &p->late[n & 1];
	const char *between = "";
	put_value("report n=", n);
	put_value(" ms=", ms);
	put_value(" vcpu=", vcpu);
	put_value(" run_ns=", run_ns_of(vcpu));
	put_value(" now_ns=", now_ns(0));
	put_value(" work_us=", p->work_us);
	put_value(" rounds=", p->rounds);
	put_value(" wakeups=", p->wakeups);
	put_value(" missed=0 late_us_sum=", p->late_us_sum);
	if (l->n == n) {
		put_value(" late_us_min=", l->min_us);
		put_value(" late_us_max=", l->max_us);
	}
	put(" late=");
	for (u32 b = 0; run.buckets && b < LATE_BUCKETS; b++) {
		if (!p->late_counts[b])
			continue;
		put(between);
		put_value("", b);
		put_value(":", p->late_counts[b]);
		between = ",";
	}
	end_line();
}

static void report(u64 ms)
{
	u32 n = report_number;
	report_number = n + 1;
	for (u32 vcpu = 0; vcpu < vcpus; vcpu++)
		report_one(vcpu, n, ms);
}

void other_vcpu(u32 me)
{
	xen_vcpu_init(me);
	for (;;)
		round(me);
}

void first_vcpu(start_info_t *info)
{
	u64 start, due;
	xen_init(info);
	parse_line((const char *)info->cmd_line);
	xen_vcpu_init(0);
	vcpus = xen_start_vcpus();
	put_value("payload up vcpus=", vcpus);
	end_line();
	start = due = now_ns(0);
	for (;;) {
		round(0);
		if (!run.report_ms || now_ns(0) < due + (u64)run.report_ms * 1000000)
			continue;
		due += (u64)run.report_ms * 1000000;
		report((now_ns(0) - start) / 1000000);
	}
}
