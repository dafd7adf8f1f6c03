/* A tenant that plays for more than its share: `tenant WAY ARGUMENT... [-- IGNORED...]`. Its first
 * threads have the names of vCPUs, so under the name of a hypervisor it looks like a VM; under one
 * that ends in "tcg" like one that its process emulates. Plays until it is killed. Static, and it
 * needs Linux only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define STACK 65536

/* What one thread does for ever: its number, and up to two arguments of the way. */
struct player {
	long number, one, two;
	void (*plays)(struct player *self);
};

static struct player players[THREADS_MAX];
static const char *kind = "KVM";

static long now_ns(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec * 1000000000L + at.tv_nsec;
}

static void sleep_until_ns(long at)
{
	struct timespec end = { .tv_sec = at / 1000000000L, .tv_nsec = at % 1000000000L };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
}

static void work_us(long us)
{
	long end = now_ns(CLOCK_MONOTONIC) + us * 1000;

	while (now_ns(CLOCK_MONOTONIC) < end)
		;
}

static void burn(struct player *self)
{
	(void)self;
	for (;;)
		__asm__ volatile("");
}

/* The lab's emulator takes a microsecond for each PAUSE, in which its clock stands still. */
static void spin(struct player *self)
{
	(void)self;
	for (;;) {
		__builtin_ia32_pause();
		for (int n = 0; n < 1000; n++)
			__asm__ volatile("");
	}
}

static void yield(struct player *self)
{
	(void)self;
	for (;;)
		sched_yield();
}

/* tick PERIOD_US BEFORE_US: asleep at each multiple of a period of the kernel's clock. */
static void tick(struct player *self)
{
	long period = self->one * 1000, before = self->two * 1000;

	for (;;) {
		long now = now_ns(CLOCK_MONOTONIC), next = (now / period + 1) * period;

		if (now < next - before)
			continue;
		sleep_until_ns(next + before / 2);
	}
}

/* grant WORK_US SLEEP_US: asleep for a moment after so much CPU time of its own. */
static void grant(struct player *self)
{
	for (;;) {
		long end = now_ns(CLOCK_THREAD_CPUTIME_ID) + self->one * 1000;

		while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end)
			;
		sleep_until_ns(now_ns(CLOCK_MONOTONIC) + self->two * 1000);
	}
}

/* duty WORK_US SLEEP_US: threads that start one after the other. */
static void duty(struct player *self)
{
	sleep_until_ns(now_ns(CLOCK_MONOTONIC) + self->number * 7919 * 1000);
	for (;;) {
		work_us(self->one);
		sleep_until_ns(now_ns(CLOCK_MONOTONIC) + self->two * 1000);
	}
}

/* wake WORK_US: two threads, each works, wakes the other and waits for it. */
static void wake(struct player *self)
{
	static atomic_int turns[THREADS_MAX / 2];
	atomic_int *turn = &turns[self->number / 2];
	int mine = self->number % 2;

	for (;;) {
		while (atomic_load(turn) != mine)
			syscall(SYS_futex, turn, FUTEX_WAIT_PRIVATE, !mine, NULL, NULL, 0);
		work_us(self->one);
		atomic_store(turn, !mine);
		syscall(SYS_futex, turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
}

static void *work_once(void *us)
{
	work_us((long)us);
	return NULL;
}

/* threads WORK_US: a thread that works and ends, again and again. */
static void threads(struct player *self)
{
	for (;;) {
		pthread_t made;

		if (!pthread_create(&made, NULL, work_once, (void *)self->one))
			pthread_join(made, NULL);
	}
}

/* forks WORK_US: a child that works and ends, again and again. */
static void forks(struct player *self)
{
	for (;;) {
		pid_t child = fork();

		if (!child) {
			work_us(self->one);
			_exit(0);
		}
		if (child > 0)
			waitpid(child, NULL, 0);
	}
}

static void nice_most(struct player *self)
{
	if (setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -20))
		perror("tenant: setpriority");
	burn(self);
}

static int write_pid(const char *group)
{
	char path[256], text[16];
	int file, ok;

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	snprintf(text, sizeof(text), "%d", getpid());
	file = open(path, O_WRONLY);
	ok = file >= 0 && write(file, text, strlen(text)) > 0;
	if (file >= 0)
		close(file);
	return ok;
}

/* The process changes between two cgroups, every PERIOD_US. */
static void moves(long period_us, const char *one, const char *other)
{
	for (long n = 0;; n++) {
		if (!write_pid(n % 2 ? one : other)) {
			perror("tenant: move");
			exit(1);
		}
		sleep_until_ns(now_ns(CLOCK_MONOTONIC) + period_us * 1000);
	}
}

/* claim CGROUP SHARES RESERVATION: what a VM's owner may set, on a cgroup. */
static int claims(char **words)
{
	int bad = setxattr(words[0], "user.tandem.shares", words[1], strlen(words[1]), 0);

	bad |= setxattr(words[0], "user.tandem.reservation", words[2], strlen(words[2]), 0);
	if (bad)
		perror("tenant: setxattr");
	return !!bad;
}

/* fleet COUNT FOLDER PROGRAM WAY US US: as many processes in cgroups of their own, of one or two
 * threads each, and the end of this one. */
static int fleet(long count, char **words)
{
	for (long n = 0; n < count; n++) {
		char group[256], name[24];
		pid_t child;

		snprintf(group, sizeof(group), "%s/v%ld", words[0], n);
		snprintf(name, sizeof(name), "v%ld", n);
		if (mkdir(group, 0755) && errno != EEXIST) {
			perror("tenant: mkdir");
			return 1;
		}
		child = fork();
		if (child < 0) {
			perror("tenant: fork");
			return 1;
		}
		if (child)
			continue;
		if (write_pid(group))
			execl(words[1], words[1], words[2], n % 2 ? "2" : "1", words[3], words[4],
			      "--", "-name", name, NULL);
		perror("tenant: fleet");
		_exit(1);
	}
	return 0;
}

static void *play(void *it)
{
	struct player *self = it;
	char name[16];

	snprintf(name, sizeof(name), "CPU %ld/%s", self->number, kind);
	prctl(PR_SET_NAME, name);
	self->plays(self);
	return NULL;
}

static void start(long count, struct player kind)
{
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK);
	for (long n = 0; n < count; n++) {
		pthread_t made;

		players[n] = kind;
		players[n].number = n;
		if (pthread_create(&made, &small, play, &players[n])) {
			perror("tenant: thread");
			exit(1);
		}
	}
}

static const struct {
	const char *name;
	void (*plays)(struct player *self);
} ways[] = {
	{ "burn", burn },   { "spin", spin }, { "yield", yield },     { "tick", tick },
	{ "grant", grant }, { "duty", duty }, { "wake", wake },       { "threads", threads },
	{ "forks", forks }, { "nice", nice_most },
};

int main(int count, char **words)
{
	const char *way = count > 1 ? words[1] : "";
	const char *end = strrchr(words[0], '-');
	long threads_wanted = count > 2 ? atol(words[2]) : 0;
	long one = count > 3 ? atol(words[3]) : 0, two = count > 4 ? atol(words[4]) : 0;

	if (end && !strcmp(end, "-tcg"))
		kind = "TCG";
	if (!strcmp(way, "claim") && count > 4)
		return claims(words + 2);
	if (!strcmp(way, "as") && count > 3) {
		if (setgid((gid_t)threads_wanted) || setuid((uid_t)threads_wanted)) {
			perror("tenant: setuid");
			return 1;
		}
		execv(words[3], words + 3);
		perror("tenant: exec");
		return 1;
	}
	if (!strcmp(way, "fleet") && count > 7 && threads_wanted > 0)
		return fleet(threads_wanted, words + 3);
	if (threads_wanted < 1 || threads_wanted > THREADS_MAX)
		way = "";
	if (!strcmp(way, "move") && count > 5) {
		start(threads_wanted, (struct player){ .plays = burn });
		moves(one, words[4], words[5]);
	}
	for (size_t n = 0; n < sizeof(ways) / sizeof(*ways); n++) {
		if (strcmp(way, ways[n].name))
			continue;
		start(threads_wanted,
		      (struct player){ .one = one, .two = two, .plays = ways[n].plays });
		for (;;)
			pause();
	}
	fprintf(stderr,
		"tenant: cannot go this way: seen '%s', allowed WAY THREADS(1..%d) [US] [US], "
		"move THREADS US CGROUP CGROUP, as UID PROGRAM..., "
		"claim CGROUP SHARES RESERVATION, fleet COUNT FOLDER PROGRAM WAY US US\n",
		way, THREADS_MAX);
	return 3;
}
