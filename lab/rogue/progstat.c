/* What the kernel says of BPF programs that are loaded: `progstat PREFIX` prints a line for each
 * whose name begins so: name, runs and their time in ns, as far as kernel.bpf_stats_enabled was on.
 * Static, and it needs Linux only. */
#define _GNU_SOURCE
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

/* 0, or 1 if the program cannot be looked at. It may have gone since. */
static int show(unsigned int id, const char *prefix)
{
	struct bpf_prog_info info = { 0 };
	union bpf_attr attr = { .prog_id = id };
	int file = bpf(BPF_PROG_GET_FD_BY_ID, &attr);

	if (file < 0)
		return 1;
	attr = (union bpf_attr){ .info = { .bpf_fd = (__u32)file, .info_len = sizeof(info),
					   .info = (__u64)(unsigned long)&info } };
	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &attr)) {
		close(file);
		return 1;
	}
	close(file);
	if (!strncmp(info.name, prefix, strlen(prefix)))
		printf("name=%s runs=%llu ns=%llu\n", info.name, info.run_cnt, info.run_time_ns);
	return 0;
}

int main(int count, char **words)
{
	union bpf_attr attr = { 0 };
	int missed = 0;

	if (count != 2) {
		fprintf(stderr, "progstat: cannot begin: seen %d arguments, allowed PREFIX\n",
			count - 1);
		return 3;
	}
	while (!bpf(BPF_PROG_GET_NEXT_ID, &attr)) {
		unsigned int id = attr.next_id;

		missed += show(id, words[1]);
		attr = (union bpf_attr){ .start_id = id };
	}
	fprintf(stderr, "progstat: %d programs could not be looked at\n", missed);
	return 0;
}
