/* The timers on a kernel: housekeeping, the tick of limits, and a tick of co-scheduling for each
 * block of pCPUs.
 *
 * Promise	each timer that is due fires on one CPU at a time
 * Limits	a timer of an offline CPU goes on at another. A pCPU that claims a block's tick
 *		while its callback runs elsewhere may lose it to that CPU
 */
#ifndef TANDEM_TICKS_H
#define TANDEM_TICKS_H

struct housekeeper {
	struct bpf_timer timer;
};
/* Number 0 keeps house; number 1 is the tick of limits, which number 0 starts when something is
 * limited. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct housekeeper);
} housekeepers SEC(".maps");
/* The ticks of co-scheduling, one a block of pCPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BLOCKS_MAX);
	__type(key, u32);
	__type(value, struct housekeeper);
} coschedulers SEC(".maps");
static bool ticks_owned, limits_ticking, cosched_ticking;
/* not 0: a pCPU of the block has its tick; until one asks what to run, the housekeeper has it */
static u8 cosched_claimed[BLOCKS_MAX];
/* BPF_F_TIMER_CPU_PIN, kernel 6.7: the timer stays on the CPU that starts it */
#define TIMER_PINNED 2

static int tick_limits(void *map, int *key, struct housekeeper *keeper)
{
	struct host *h = plat_host();
	u64 next = h ? core_limits(h) : 0;

	if (next)
		bpf_timer_start(&keeper->timer, next, 0);
	else
		limits_ticking = false;
	return 0;
}

static int tick_cosched(void *map, int *key, struct housekeeper *keeper)
{
	struct host *h = plat_host();
	u32 block = (u32)*key;
	u64 next = h ? core_cosched(h, block) : 0;

	if (next)
		bpf_timer_start(&keeper->timer, next, TIMER_PINNED);
	return 0;
}

/* Starts the ticks of the blocks that no pCPU has claimed yet. */
static __noinline void start_cosched(struct host *h)
{
	u32 i;

	cosched_ticking = true;
	bpf_for(i, 0, BLOCKS_MAX) {
		u32 block = i;
		struct housekeeper *c = bpf_map_lookup_elem(&coschedulers, &block);

		if (!c || i * BLOCK_PCPUS >= h->pcpus)
			break;
		if (!cosched_claimed[i & (BLOCKS_MAX - 1)])
			bpf_timer_start(&c->timer, knobs_now.cosched_poll_us * 1000, 0);
	}
}

/* The first pCPU of a block that asks what to run takes the block's tick over. */
static __noinline void claim_cosched(u32 block)
{
	struct housekeeper *c = bpf_map_lookup_elem(&coschedulers, &block);

	if (c)
		cosched_claimed[block & (BLOCKS_MAX - 1)] = !bpf_timer_start(
			&c->timer, knobs_now.cosched_poll_us * 1000, TIMER_PINNED);
}

static int housekeep(void *map, int *key, struct housekeeper *keeper)
{
	struct host *h = plat_host();
	u32 one = 1;
	struct housekeeper *limits = bpf_map_lookup_elem(&housekeepers, &one);
	u64 next = h ? core_housekeep(h) : 0;

	if (h && limits && h->limiters && !limits_ticking)
		limits_ticking = !bpf_timer_start(&limits->timer, LIMIT_TICK_NS, 0);
	if (h && !cosched_ticking)
		start_cosched(h);
	bpf_timer_start(&keeper->timer, next ? next : knobs_now.housekeep_us * 1000, 0);
	return 0;
}

/* Timers walk queues and move threads between them, which a program that may sleep (init) is not
 * let do: dispatch owns them. */
static __noinline void own_ticks(void)
{
	u32 zero = 0, one = 1, i;
	struct housekeeper *keeper = bpf_map_lookup_elem(&housekeepers, &zero);
	struct housekeeper *limits = bpf_map_lookup_elem(&housekeepers, &one);

	bpf_for(i, 0, BLOCKS_MAX) {
		u32 block = i;
		struct housekeeper *c = bpf_map_lookup_elem(&coschedulers, &block);

		if (!c || bpf_timer_set_callback(&c->timer, tick_cosched))
			return;
	}
	if (keeper && limits && !bpf_timer_set_callback(&limits->timer, tick_limits) &&
	    !bpf_timer_set_callback(&keeper->timer, housekeep))
		ticks_owned = !bpf_timer_start(&keeper->timer, knobs_now.housekeep_us * 1000, 0);
}

/* Makes the timers; an error of the kernel's, or 0. */
static __always_inline s32 ticks_init(void)
{
	u32 zero = 0, one = 1, i;
	struct housekeeper *keeper = bpf_map_lookup_elem(&housekeepers, &zero),
			   *limits = bpf_map_lookup_elem(&housekeepers, &one);

	if (!keeper || !limits)
		return -22;
	bpf_for(i, 0, BLOCKS_MAX) {
		u32 block = i;
		struct housekeeper *c = bpf_map_lookup_elem(&coschedulers, &block);

		if (!c)
			break;
		bpf_timer_init(&c->timer, &coschedulers, CLOCK_MONOTONIC);
	}
	bpf_timer_init(&limits->timer, &housekeepers, CLOCK_MONOTONIC);
	bpf_timer_init(&keeper->timer, &housekeepers, CLOCK_MONOTONIC);
	return 0;
}

#endif
