/* The timers on a kernel: housekeeping, and for blocks of pCPUs a tick of co-scheduling each and a
 * part each of the tick of limits; for each pCPU one of a look, a moment after it began to idle or
 * a world to wait there.
 *
 * Promise	each timer that is due fires on one CPU at a time
 * Limits	a timer of a CPU that goes off line goes on at another, until a pCPU of its block
 *		claims it; that of a look, until one asks for the next. A pCPU that claims a block's
 *		tick while its callback runs elsewhere may lose it to that CPU
 */
#ifndef TANDEM_TICKS_H
#define TANDEM_TICKS_H

struct housekeeper {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct housekeeper);
} housekeepers SEC(".maps");
/* The parts of the tick of limits; the housekeeper starts those that have something to serve. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LIMIT_PARTS_MAX);
	__type(key, u32);
	__type(value, struct housekeeper);
} limit_tickers SEC(".maps");
/* The ticks of co-scheduling, one a block of pCPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BLOCKS_MAX);
	__type(key, u32);
	__type(value, struct housekeeper);
} coschedulers SEC(".maps");
/* One a pCPU, for what it idles beside and what waits there (place/pull.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PCPUS_MAX);
	__type(key, u32);
	__type(value, struct housekeeper);
} lookers SEC(".maps");
static bool ticks_owned, limits_ticking[LIMIT_PARTS_MAX], cosched_ticking;
static struct block_timers block_timers[BLOCKS_MAX];
/* where housekeeping was last */
static u32 house_pcpu;
/* BPF_F_TIMER_CPU_PIN, kernel 6.7: the timer stays on the CPU that starts it */
#define TIMER_PINNED 2

static int tick_limits(void *map, int *key, struct housekeeper *keeper)
{
	struct host *h = plat_host();
	u32 part = (u32)*key;
	u64 next = h ? core_limits(h, part) : 0;

	limits_ticking[part & (LIMIT_PARTS_MAX - 1)] =
		next && !bpf_timer_start(&keeper->timer, next, TIMER_PINNED);
	return 0;
}

static int tick_cosched(void *map, int *key, struct housekeeper *keeper)
{
	struct host *h = plat_host();
	u32 block = (u32)*key;
	u64 next = h ? core_cosched(h, block) : 0;

	if (next && bpf_timer_start(&keeper->timer, next, TIMER_PINNED))
		block_unclaimed(&block_timers[block & (BLOCKS_MAX - 1)], BLOCK_COSCHED);
	return 0;
}

static int tick_look(void *map, int *key, struct housekeeper *keeper)
{
	struct host *h = plat_host();
	u64 next = h ? pull_look(h, (u32)*key) : 0;

	if (next)
		bpf_timer_start(&keeper->timer, next, TIMER_PINNED);
	return 0;
}

/* Called where a pCPU dispatches or wakes a world: the timer is of that CPU from then on. */
SUBPROG s32 look_in(u32 pcpu, u64 ns)
{
	struct housekeeper *l = bpf_map_lookup_elem(&lookers, &pcpu);

	return l ? bpf_timer_start(&l->timer, ns, TIMER_PINNED) : -2;
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
		if (block_timers[i & (BLOCKS_MAX - 1)].unclaimed & BLOCK_COSCHED)
			bpf_timer_start(&c->timer, knobs_now.cosched_poll_us * 1000, 0);
	}
}

/* A pCPU takes a timer of its block over; what the kernel refuses is tried again. */
static __noinline void claim_ticks(u32 cpu)
{
	u32 block = cpu / BLOCK_PCPUS;
	struct block_timers *b = &block_timers[block & (BLOCKS_MAX - 1)];
	u32 timer = block_claims(b, cpu, house_pcpu);

	if (timer == BLOCK_COSCHED) {
		struct housekeeper *c = bpf_map_lookup_elem(&coschedulers, &block);
		u64 in = knobs_now.cosched_poll_us * 1000;

		if (c && !bpf_timer_start(&c->timer, in, TIMER_PINNED))
			block_claimed(b, BLOCK_COSCHED, cpu);
	} else if (timer) {
		struct housekeeper *l = bpf_map_lookup_elem(&limit_tickers, &block);

		if (l && !bpf_timer_start(&l->timer, LIMIT_TICK_NS, TIMER_PINNED))
			block_claimed(b, BLOCK_LIMITS, cpu);
	}
}

/* Starts the parts of the tick of limits that have something to serve and stand still. */
static __noinline void start_limits(struct host *h)
{
	u32 i;

	bpf_for(i, 0, LIMIT_PARTS_MAX) {
		u32 part = i;
		struct housekeeper *l = bpf_map_lookup_elem(&limit_tickers, &part);

		if (!l || i >= limits_parts(h))
			break;
		if (limits_ticking[i & (LIMIT_PARTS_MAX - 1)])
			continue;
		limits_ticking[i & (LIMIT_PARTS_MAX - 1)] =
			!bpf_timer_start(&l->timer, LIMIT_TICK_NS, 0);
		block_unclaimed(&block_timers[i & (BLOCKS_MAX - 1)], BLOCK_LIMITS);
	}
}

static int housekeep(void *map, int *key, struct housekeeper *keeper)
{
	struct host *h = plat_host();
	u64 next = h ? core_housekeep(h) : 0;

	house_pcpu = bpf_get_smp_processor_id();
	if (h && h->limiters)
		start_limits(h);
	if (h && !cosched_ticking)
		start_cosched(h);
	bpf_timer_start(&keeper->timer, next ? next : knobs_now.housekeep_us * 1000, 0);
	return 0;
}

/* Timers walk queues and move threads between them, which a program that may sleep (init) is not
 * let do: dispatch owns them. */
static __noinline void own_ticks(u32 pcpus)
{
	u32 zero = 0, i;
	struct housekeeper *keeper = bpf_map_lookup_elem(&housekeepers, &zero);

	bpf_for(i, 0, PCPUS_MAX) {
		u32 pcpu = i;
		struct housekeeper *l = bpf_map_lookup_elem(&lookers, &pcpu);

		if (!l || i >= pcpus)
			break;
		bpf_timer_set_callback(&l->timer, tick_look);
	}
	bpf_for(i, 0, BLOCKS_MAX) {
		u32 block = i;
		struct housekeeper *c = bpf_map_lookup_elem(&coschedulers, &block);
		struct housekeeper *l = bpf_map_lookup_elem(&limit_tickers, &block);

		if (!c || bpf_timer_set_callback(&c->timer, tick_cosched))
			return;
		if (l && bpf_timer_set_callback(&l->timer, tick_limits))
			return;
	}
	house_pcpu = bpf_get_smp_processor_id();
	if (keeper && !bpf_timer_set_callback(&keeper->timer, housekeep))
		ticks_owned = !bpf_timer_start(&keeper->timer, knobs_now.housekeep_us * 1000, 0);
}

/* Makes the timers; an error of the kernel's, or 0. */
static __always_inline s32 ticks_init(u32 pcpus)
{
	u32 zero = 0, i;
	struct housekeeper *keeper = bpf_map_lookup_elem(&housekeepers, &zero);

	if (!keeper)
		return -22;
	bpf_for(i, 0, BLOCKS_MAX) {
		u32 block = i;
		struct housekeeper *c = bpf_map_lookup_elem(&coschedulers, &block);
		struct housekeeper *l = bpf_map_lookup_elem(&limit_tickers, &block);

		if (!c)
			break;
		block_timers[i & (BLOCKS_MAX - 1)].unclaimed = BLOCK_COSCHED;
		bpf_timer_init(&c->timer, &coschedulers, CLOCK_MONOTONIC);
		if (l)
			bpf_timer_init(&l->timer, &limit_tickers, CLOCK_MONOTONIC);
	}
	bpf_for(i, 0, PCPUS_MAX) {
		u32 pcpu = i;
		struct housekeeper *l = bpf_map_lookup_elem(&lookers, &pcpu);

		if (!l || i >= pcpus)
			break;
		bpf_timer_init(&l->timer, &lookers, CLOCK_MONOTONIC);
	}
	bpf_timer_init(&keeper->timer, &housekeepers, CLOCK_MONOTONIC);
	return 0;
}

#endif
