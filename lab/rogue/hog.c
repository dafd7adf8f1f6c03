/* Real-time tasks that take pCPUs: `hog fifo|deadline COUNT WORK_US PERIOD_US`: COUNT threads, each
 * busy for WORK_US in each PERIOD_US, at different times. Those of SCHED_FIFO are pinned to CPUs
 * 0..COUNT-1; those of SCHED_DEADLINE go where the kernel puts them. Until it is killed. Static,
 * and it needs Linux only. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64
/* A runtime a little longer than the work: the kernel throttles a task that exceeds it. */
#define SPARE_US 200

/* The kernel's struct sched_attr, as far as these classes need it. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static long work_ns, period_ns, count;
static int deadline;

static long now_ns(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec * 1000000000L + at.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *take(void *number)
{
	long n = (long)number, next = now_ns(CLOCK_MONOTONIC) + n * period_ns / count;
	struct attributes it = { .size = sizeof(it), .policy = deadline ? 6 : SCHED_FIFO };
	cpu_set_t one;

	if (deadline) {
		it.runtime = (uint64_t)work_ns + SPARE_US * 1000;
		it.deadline = it.period = (uint64_t)period_ns;
	} else {
		it.priority = 50;
		CPU_ZERO(&one);
		CPU_SET(n, &one);
		if (sched_setaffinity(0, sizeof(one), &one))
			fail("hog: affinity");
	}
	if (syscall(SYS_sched_setattr, 0, &it, 0))
		fail("hog: sched_setattr");
	for (;;) {
		struct timespec at = { .tv_sec = next / 1000000000L,
				       .tv_nsec = next % 1000000000L };
		long end;

		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
			;
		end = now_ns(CLOCK_THREAD_CPUTIME_ID) + work_ns;
		while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end)
			;
		next += period_ns;
	}
	return NULL;
}

int main(int words, char **word)
{
	deadline = words > 1 && !strcmp(word[1], "deadline");
	count = words > 4 ? atol(word[2]) : 0;
	work_ns = words > 4 ? atol(word[3]) * 1000 : 0;
	period_ns = words > 4 ? atol(word[4]) * 1000 : 0;
	if (count < 1 || count > THREADS_MAX || work_ns < 1 || period_ns <= work_ns ||
	    (!deadline && strcmp(word[1], "fifo"))) {
		fprintf(stderr,
			"hog: cannot begin: allowed fifo|deadline COUNT(1..%d) WORK_US PERIOD_US, "
			"work below the period\n",
			THREADS_MAX);
		return 3;
	}
	for (long n = 0; n < count; n++) {
		pthread_t made;

		if (pthread_create(&made, NULL, take, (void *)n))
			fail("hog: thread");
	}
	for (;;)
		pause();
}
