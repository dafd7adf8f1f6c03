/* Work of a small Linux guest, as its first process: execs, a storm of messages, requests and a
 * stream over loopback TCP, one at a time, as ordered over the second serial port.
 *
 * It tells the topology that the guest's kernel sees on the console, "witness: up ...". An order is
 * a line `WORK PLACE MS`. WORK is
 *   exec    a process that replaces itself by this program again and again; counts execs
 *   storm   4 senders and 4 receivers, each pair with a socket of its own, as in hackbench; counts
 *           messages of 100 bytes
 *   rr      a byte to and fro over TCP, as in netperf's TCP_RR; counts round trips
 *   stream  16 KiB by 16 KiB over TCP, as in netperf's TCP_STREAM; counts blocks received
 * PLACE is free (the guest's scheduler decides), held (all on vCPU 0) or apart (senders on vCPU 0,
 * receivers on vCPU 1). The answer, `done US COUNT MOVES INTERRUPTS SWITCHES`, is what was done
 * within MS after a moment to warm up: moves are those of the process from one vCPU to another
 * (exec only), interrupts those between vCPUs, switches those of tasks. It is short, for each
 * letter leaves the guest.
 *
 * `witness exec ...` is the process that replaces itself. Static, and it needs Linux only. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define SELF "/init"
#define ORDERS "/dev/ttyS1"
/* Before counting begins: processes are made, caches and queues filled. */
#define WARM_UP_MS 150
#define MS_MAX 60000
#define SENDERS 4
#define STORM_BYTES 100
#define STREAM_BYTES 16384
#define CHILDREN_MAX 8
/* The file in which the process that execs keeps its counts. */
#define EXEC_FILE 100

/* Counts that children add to; each has a line of the cache. */
struct counter {
	volatile uint64_t n;
	char line[56];
};

struct execs {
	uint64_t done, moves;
};

/* What the guest's kernel has counted. */
struct seen {
	uint64_t interrupts, switches;
};

static struct counter *counters;
static pid_t children[CHILDREN_MAX];
static int born;

static void fail(const char *what)
{
	printf("witness: cannot %s: %s\n", what, strerror(errno));
	fflush(stdout);
	if (getpid() == 1)
		for (;;)
			pause();
	_exit(1);
}

static uint64_t now_us(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000 + (uint64_t)at.tv_nsec / 1000;
}

static void rest(long ms)
{
	struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

/* --- what the guest sees of itself --- */

/* The first line of a file, words joined by commas; "-" if there is none. */
static const char *line_of(const char *path)
{
	static char text[512];
	FILE *file = fopen(path, "r");

	strcpy(text, "-");
	if (!file)
		return text;
	if (!fgets(text, sizeof(text), file))
		strcpy(text, "-");
	fclose(file);
	for (size_t at = strlen(text); at && strchr(" \n", text[at - 1]); at--)
		text[at - 1] = 0;
	for (char *at = text; *at; at++)
		if (*at == ' ')
			*at = ',';
	return text;
}

static void write_to(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (file) {
		fputs(text, file);
		fclose(file);
	}
}

static void tell_topology(void)
{
	const char *cpu = "/sys/devices/system/cpu/cpu0";
	char path[256];

	printf("witness: up vcpus=%ld", sysconf(_SC_NPROCESSORS_ONLN));
	snprintf(path, sizeof(path), "%s/topology/package_cpus_list", cpu);
	printf(" package=%s", line_of(path));
	snprintf(path, sizeof(path), "%s/cache/index3/shared_cpu_list", cpu);
	printf(" llc=%s", line_of(path));
	printf(" clock=%s",
	       line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
	for (int n = 0; n < 4; n++) {
		const char *of = "/sys/kernel/debug/sched/domains/cpu0/domain";

		snprintf(path, sizeof(path), "%s%d/name", of, n);
		if (access(path, R_OK))
			break;
		printf(" domain%d=%s", n, line_of(path));
		snprintf(path, sizeof(path), "%s%d/flags", of, n);
		printf(" flags%d=%s", n, line_of(path));
	}
	printf("\n");
	fflush(stdout);
}

/* Adds up the columns of vCPUs of a row of /proc/interrupts. */
static uint64_t row_sum(char *text)
{
	uint64_t sum = 0;
	char *end;

	for (;; text = end) {
		uint64_t n = strtoull(text, &end, 10);

		if (end == text)
			return sum;
		sum += n;
	}
}

static struct seen look(void)
{
	struct seen out = { 0 };
	unsigned long long switches;
	char line[4096];
	FILE *file = fopen("/proc/interrupts", "r");

	while (file && fgets(line, sizeof(line), file)) {
		char *at = line + strspn(line, " ");

		if (!strncmp(at, "RES:", 4) || !strncmp(at, "CAL:", 4))
			out.interrupts += row_sum(at + 4);
	}
	if (file)
		fclose(file);
	file = fopen("/proc/stat", "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "ctxt %llu", &switches) == 1)
			out.switches = switches;
	if (file)
		fclose(file);
	return out;
}

/* --- work --- */

/* Keeps the calling process on a vCPU; -1 lets it go anywhere. */
static void keep_on(int vcpu)
{
	cpu_set_t set;

	if (vcpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(vcpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("keep to a vCPU");
}

static void exec_again(struct execs *state, int vcpu)
{
	char done[24], moves[24], last[24];
	char *words[] = { SELF, "exec", done, moves, last, NULL };

	snprintf(done, sizeof(done), "%llu", (unsigned long long)state->done);
	snprintf(moves, sizeof(moves), "%llu", (unsigned long long)state->moves);
	snprintf(last, sizeof(last), "%d", vcpu);
	execv(SELF, words);
	fail("exec");
}

/* One image of the process that replaces itself: DONE MOVES VCPU of the image before. */
static int exec_main(char **word)
{
	struct execs state = { strtoull(word[2], NULL, 10) + 1, strtoull(word[3], NULL, 10) };
	int vcpu = sched_getcpu();

	if (vcpu != atoi(word[4]))
		state.moves++;
	if (pwrite(EXEC_FILE, &state, sizeof(state), 0) != sizeof(state))
		fail("keep count");
	exec_again(&state, vcpu);
	return 1;
}

static void send_all(int file, const char *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(file, data, bytes);

		if (n <= 0)
			_exit(0);
		data += n;
		bytes -= (size_t)n;
	}
}

static void read_all(int file, char *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = read(file, data, bytes);

		if (n <= 0)
			_exit(0);
		data += n;
		bytes -= (size_t)n;
	}
}

static void sender(int file, size_t bytes)
{
	static char data[STREAM_BYTES];

	for (;;)
		send_all(file, data, bytes);
}

static void receiver(int file, size_t bytes, struct counter *counter)
{
	static char data[STREAM_BYTES];

	for (;;) {
		read_all(file, data, bytes);
		counter->n++;
	}
}

static void asks(int file, struct counter *counter)
{
	char byte = 'a';

	for (;;) {
		send_all(file, &byte, 1);
		read_all(file, &byte, 1);
		counter->n++;
	}
}

static void answers(int file)
{
	char byte;

	for (;;) {
		read_all(file, &byte, 1);
		send_all(file, &byte, 1);
	}
}

/* Two ends of a TCP connection over loopback that sends at once. */
static void connect_tcp(int ends[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t room = sizeof(at);
	int one = 1, listens = socket(AF_INET, SOCK_STREAM, 0);

	if (listens < 0 || bind(listens, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listens, 1) || getsockname(listens, (struct sockaddr *)&at, &room))
		fail("listen on loopback");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (ends[0] < 0 || connect(ends[0], (struct sockaddr *)&at, sizeof(at)))
		fail("connect over loopback");
	ends[1] = accept(listens, NULL, NULL);
	if (ends[1] < 0)
		fail("accept over loopback");
	close(listens);
	for (int n = 0; n < 2; n++)
		setsockopt(ends[n], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* A child on a vCPU, 0 in the child itself. */
static pid_t child(int vcpu)
{
	pid_t made = fork();

	if (made < 0)
		fail("fork");
	if (!made) {
		keep_on(vcpu);
		return 0;
	}
	children[born++] = made;
	return made;
}

/* Starts the processes of some work; false if there is no such work. */
static int begin(const char *work, int sends_on, int receives_on)
{
	int ends[2];

	if (!strcmp(work, "exec")) {
		struct execs none = { 0 };

		if (ftruncate(EXEC_FILE, 0) ||
		    pwrite(EXEC_FILE, &none, sizeof(none), 0) != sizeof(none))
			fail("keep count");
		if (!child(sends_on))
			exec_again(&none, sched_getcpu());
		return 1;
	}
	if (!strcmp(work, "storm")) {
		for (int n = 0; n < SENDERS; n++) {
			if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
				fail("make a socket");
			if (!child(sends_on))
				sender(ends[0], STORM_BYTES);
			if (!child(receives_on))
				receiver(ends[1], STORM_BYTES, &counters[n]);
			close(ends[0]);
			close(ends[1]);
		}
		return 1;
	}
	if (strcmp(work, "rr") && strcmp(work, "stream"))
		return 0;
	connect_tcp(ends);
	if (!child(sends_on)) {
		if (!strcmp(work, "rr"))
			asks(ends[0], counters);
		sender(ends[0], STREAM_BYTES);
	}
	if (!child(receives_on)) {
		if (!strcmp(work, "rr"))
			answers(ends[1]);
		receiver(ends[1], STREAM_BYTES, counters);
	}
	close(ends[0]);
	close(ends[1]);
	return 1;
}

static void end(void)
{
	while (born) {
		kill(children[--born], SIGKILL);
		waitpid(children[born], NULL, 0);
	}
}

/* What the children have counted so far. */
static struct execs count(const char *work)
{
	struct execs out = { 0 };

	if (!strcmp(work, "exec")) {
		if (pread(EXEC_FILE, &out, sizeof(out), 0) != sizeof(out))
			fail("read counts");
		return out;
	}
	for (int n = 0; n < SENDERS; n++)
		out.done += counters[n].n;
	return out;
}

/* Carries out an order, and answers on the same port. */
static void obey(const char *order, FILE *answer)
{
	char work[16], place[16];
	long ms;
	int held, apart;
	struct execs from, to;
	struct seen before, after;
	uint64_t begun, ended;

	if (sscanf(order, "%15s %15s %ld", work, place, &ms) != 3 || ms < 1 || ms > MS_MAX) {
		fprintf(answer, "refused order, allowed WORK PLACE MS(1..%d)\n", MS_MAX);
		return;
	}
	held = !strcmp(place, "held");
	apart = !strcmp(place, "apart");
	memset(counters, 0, SENDERS * sizeof(*counters));
	if ((!held && !apart && strcmp(place, "free")) ||
	    !begin(work, held || apart ? 0 : -1, held ? 0 : apart ? 1 : -1)) {
		fprintf(answer, "refused order, allowed exec|storm|rr|stream free|held|apart MS\n");
		return;
	}
	rest(WARM_UP_MS);
	before = look();
	begun = now_us();
	from = count(work);
	rest(ms);
	ended = now_us();
	to = count(work);
	after = look();
	end();
	fprintf(answer, "done %llu %llu %llu %llu %llu\n", (unsigned long long)(ended - begun),
		(unsigned long long)(to.done - from.done),
		(unsigned long long)(to.moves - from.moves),
		(unsigned long long)(after.interrupts - before.interrupts),
		(unsigned long long)(after.switches - before.switches));
}

static void loopback_up(void)
{
	struct ifreq of = { .ifr_name = "lo" };
	int any = socket(AF_INET, SOCK_DGRAM, 0);

	if (any < 0 || ioctl(any, SIOCGIFFLAGS, &of))
		fail("find loopback");
	of.ifr_flags |= IFF_UP | IFF_RUNNING;
	if (ioctl(any, SIOCSIFFLAGS, &of))
		fail("bring loopback up");
	close(any);
}

int main(int words, char **word)
{
	char order[128];
	struct termios raw;
	FILE *orders, *answer;
	int file;

	if (words == 5 && !strcmp(word[1], "exec"))
		return exec_main(word);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sys", "/sys", "sysfs", 0, NULL);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("debug", "/sys/kernel/debug", "debugfs", 0, NULL);
	/* Domains are shown on demand only. */
	write_to("/sys/kernel/debug/sched/verbose", "Y");
	loopback_up();
	file = memfd_create("execs", 0);
	if (file < 0 || dup2(file, EXEC_FILE) < 0 || close(file))
		fail("keep count");
	counters = mmap(NULL, SENDERS * sizeof(*counters), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counters == MAP_FAILED)
		fail("share counters");
	file = open(ORDERS, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (file < 0 || tcgetattr(file, &raw))
		fail("open " ORDERS);
	cfmakeraw(&raw);
	tcsetattr(file, TCSANOW, &raw);
	orders = fdopen(file, "r");
	answer = fdopen(dup(file), "w");
	if (!orders || !answer)
		fail("listen to orders");
	tell_topology();
	while (fgets(order, sizeof(order), orders)) {
		obey(order, answer);
		fflush(answer);
	}
	fail("read an order");
	return 1;
}
