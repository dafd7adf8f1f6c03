/* A lock of the kernel in the hands of a VM that is limited: `locker TIMES VM_PROGRAM CGROUP`.
 *
 * It starts VM_PROGRAM in the cgroup, which looks like a VM: one thread computes without end,
 * another writes a page to a pipe, TIMES times. The page is missing (userfaultfd), so that thread
 * sleeps within the write, and holds the pipe's mutex. A thread of this process, a host task, then
 * writes to the same pipe, and sleeps for the mutex. The page is brought a moment later: the VM's
 * thread wakes with the mutex, for which the host task waits. Prints a line for each time: how long
 * the host task waited from then on, in us. Static, and it needs Linux only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define TIMES_MAX 1000
/* Until the host task certainly sleeps, and between two times. */
#define MOMENT_US 30000

/* Files that both processes have, by number. */
enum { CONTROL = 100, PIPE_READ, PIPE_WRITE };

static long now_us(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000000L + at.tv_nsec / 1000;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* --- the VM --- */

static char *pages;

static void *compute(void *nothing)
{
	(void)nothing;
	prctl(PR_SET_NAME, "CPU 0/KVM");
	for (;;)
		__asm__ volatile("");
	return NULL;
}

static void *hold(void *nothing)
{
	char go;

	(void)nothing;
	for (long n = 0; read(CONTROL, &go, 1) == 1; n++)
		if (write(PIPE_WRITE, pages + n * PAGE, PAGE) != PAGE)
			fail("locker: write of the VM");
	return NULL;
}

static void send_file(int file)
{
	char byte = 'f', room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(part), &file, sizeof(int));
	if (sendmsg(CONTROL, &message, 0) != 1)
		fail("locker: sendmsg");
}

static int vm(long times)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register all = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	pthread_t made;

	pages = mmap(NULL, (size_t)times * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	all.range.start = (unsigned long)pages;
	all.range.len = (unsigned long)times * PAGE;
	if (faults < 0 || pages == MAP_FAILED || ioctl(faults, UFFDIO_API, &api) ||
	    ioctl(faults, UFFDIO_REGISTER, &all))
		fail("locker: userfaultfd");
	send_file(faults);
	if (pthread_create(&made, NULL, compute, NULL) || pthread_create(&made, NULL, hold, NULL))
		fail("locker: thread");
	for (;;)
		pause();
	return 1;
}

/* --- the host task --- */

static atomic_long asked, waited_until;

static void *wait_for_lock(void *nothing)
{
	(void)nothing;
	for (long n = 0;; n++) {
		while (atomic_load(&asked) <= n)
			usleep(1000);
		if (write(PIPE_WRITE, "w", 1) != 1)
			fail("locker: write of the host task");
		atomic_store(&waited_until, now_us());
	}
	return NULL;
}

static int receive_file(int from)
{
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	int file;

	if (recvmsg(from, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		fail("locker: recvmsg");
	memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return file;
}

/* Starts the VM in its cgroup. Returns the other end of its control. */
static int start_vm(const char *times, const char *program, const char *group)
{
	int ends[2], files[2];
	char path[256], text[16];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || pipe(files) ||
	    dup2(files[0], PIPE_READ) < 0 || dup2(files[1], PIPE_WRITE) < 0 ||
	    fcntl(PIPE_READ, F_SETFL, O_NONBLOCK))
		fail("locker: files");
	child = fork();
	if (!child) {
		int file;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(path, sizeof(path), "%s/cgroup.procs", group);
		snprintf(text, sizeof(text), "%d", getpid());
		file = open(path, O_WRONLY);
		if (file < 0 || write(file, text, strlen(text)) < 0 || dup2(ends[1], CONTROL) < 0)
			fail("locker: cgroup");
		execl(program, program, "vm", times, "--", "-name", "holder", NULL);
		fail("locker: exec");
	}
	return child < 0 ? -1 : ends[0];
}

/* One time: us that the host task waited after the page had come. */
static long once(int control, int faults)
{
	struct pollfd ready = { .fd = faults, .events = POLLIN };
	static char page[PAGE], rest[2 * PAGE];
	struct uffdio_copy bring = { .src = (unsigned long)page, .len = PAGE };
	struct uffd_msg fault;
	long at;

	if (write(control, "g", 1) != 1 || poll(&ready, 1, 60000) != 1 ||
	    read(faults, &fault, sizeof(fault)) != sizeof(fault))
		fail("locker: no fault came");
	atomic_fetch_add(&asked, 1);
	usleep(MOMENT_US);
	atomic_store(&waited_until, 0);
	bring.dst = fault.arg.pagefault.address & ~(unsigned long)(PAGE - 1);
	at = now_us();
	if (ioctl(faults, UFFDIO_COPY, &bring))
		fail("locker: UFFDIO_COPY");
	while (!atomic_load(&waited_until))
		usleep(500);
	at = atomic_load(&waited_until) - at;
	usleep(MOMENT_US);
	while (read(PIPE_READ, rest, sizeof(rest)) > 0)
		;
	return at;
}

int main(int count, char **words)
{
	long times = count > 2 ? atol(words[!strcmp(words[1], "vm") ? 2 : 1]) : 0;
	pthread_t made;
	int control, faults;

	if (times < 1 || times > TIMES_MAX || count < 4) {
		fprintf(stderr, "locker: cannot begin: allowed TIMES(1..%d) VM_PROGRAM CGROUP\n",
			TIMES_MAX);
		return 3;
	}
	if (!strcmp(words[1], "vm"))
		return vm(times);
	control = start_vm(words[1], words[2], words[3]);
	if (control < 0)
		fail("locker: fork");
	faults = receive_file(control);
	if (pthread_create(&made, NULL, wait_for_lock, NULL))
		fail("locker: thread");
	sleep(2); /* the daemon finds the VM, which uses up what its limit has saved */
	for (long n = 0; n < times; n++) {
		printf("waited_us=%ld\n", once(control, faults));
		fflush(stdout);
	}
	return 0;
}
