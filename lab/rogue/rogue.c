/* Programs that ask for more than they are given: `rogue WAY ARGUMENT...`. Each says on its
 * standard output what it has done, a line of key=value each. Static, and it needs Linux only. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A thread that only sleeps calls the kernel and nothing else. */
#define STACK 4096
#define THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

static int asleep(void *word)
{
	for (;;)
		syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
	return 0;
}

static void pause_s(long seconds)
{
	struct timespec left = { .tv_sec = seconds };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

/* herd THREADS SECONDS: as many threads that sleep, and their end after so long. */
static int herd(long threads, long seconds)
{
	static int word;
	char *stacks = mmap(NULL, (size_t)threads * STACK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	long made = 0, refused = 0;

	if (stacks == MAP_FAILED) {
		perror("rogue: mmap");
		return 1;
	}
	while (made < threads) {
		if (clone(asleep, stacks + (made + 1) * STACK, THREAD, &word) >= 0) {
			made++;
			continue;
		}
		if (errno != EAGAIN) {
			perror("rogue: clone");
			return 1;
		}
		if (++refused == 1000)
			break;
		usleep(1000);
	}
	printf("herd=%ld refused=%ld\n", made, refused);
	fflush(stdout);
	pause_s(seconds);
	syscall(SYS_exit_group, 0);
	return 0;
}

/* churn SECONDS: forks a child that ends at once, again and again. */
static int churn(long seconds)
{
	struct timespec begin, now;
	long made = 0;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		pid_t child = fork();

		if (!child)
			_exit(0);
		if (child > 0) {
			waitpid(child, NULL, 0);
			made++;
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec < seconds);
	printf("churned=%ld\n", made);
	return 0;
}

int main(int count, char **words)
{
	const char *way = count > 1 ? words[1] : "";
	long one = count > 2 ? atol(words[2]) : 0, two = count > 3 ? atol(words[3]) : 0;

	if (!strcmp(way, "herd") && one > 0 && two > 0)
		return herd(one, two);
	if (!strcmp(way, "churn") && one > 0)
		return churn(one);
	fprintf(stderr, "rogue: cannot go this way: seen '%s', allowed herd THREADS SECONDS, churn "
			"SECONDS\n", way);
	return 3;
}
