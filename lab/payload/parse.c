/* The command line of the workload kernel, see lab/README.md; it is parsed whole or refused
 * whole. */
#include "payload.h"

static const char *at;

static int eat(const char *word)
{
	const char *p = at;
	while (*word)
		if (*p++ != *word++)
			return 0;
	at = p;
	return 1;
}

static int number(u32 *out)
{
	u32 n = 0;
	if (*at < '0' || *at > '9')
		return 0;
	while (*at >= '0' && *at <= '9')
		n = n * 10 + (u32)(*at++ - '0');
	*out = n;
	return 1;
}

static int pair(u32 *a, u32 *b)
{
	return eat(",") && number(a) && eat(",") && number(b);
}

static int parse_kind(struct orders *o)
{
	if (eat("idle"))
		return o->kind = IDLE, 1;
	if (eat("burn"))
		return o->kind = BURN, 1;
	if (eat("duty"))
		return o->kind = DUTY, pair(&o->work_us, &o->rest_us);
	if (eat("periodic"))
		return o->kind = PERIODIC, pair(&o->rest_us, &o->work_us);
	if (eat("lock"))
		return o->kind = LOCK, pair(&o->work_us, &o->rest_us);
	if (eat("ticket"))
		return o->kind = TICKET, pair(&o->work_us, &o->rest_us);
	if (eat("barrier"))
		return o->kind = BARRIER, eat(",") && number(&o->work_us);
	if (eat("exits"))
		return o->kind = EXITS, pair(&o->work_us, &o->rest_us);
	if (eat("chat"))
		return o->kind = CHAT, pair(&o->work_us, &o->rest_us);
	if (eat("io") && pair(&o->work_us, &o->rest_us)) {
		o->kind = eat(",exp") ? IO_EXP : IO_FIXED;
		eat(",fixed");
		return 1;
	}
	return 0;
}

static int parse_orders(struct orders *o)
{
	if (!parse_kind(o))
		return 0;
	while (eat("@")) {
		u32 w = o->windows;
		if (w == MAX_WINDOWS || !number(&o->from_ms[w]) || !eat("-") ||
		    !number(&o->to_ms[w]))
			return 0;
		if (o->to_ms[w] <= o->from_ms[w] || (w && o->from_ms[w] < o->to_ms[w - 1]))
			return 0;
		o->windows = w + 1;
	}
	return 1;
}

static int parse_target(u32 *first, u32 *last)
{
	if (eat("all:"))
		return *first = 0, *last = MAX_VCPUS - 1, 1;
	if (!number(first))
		return 0;
	*last = *first;
	if (eat("-") && !number(last))
		return 0;
	return eat(":") && *first <= *last && *last < MAX_VCPUS;
}

static int parse_word(void)
{
	u32 first, last;
	if (eat("run="))
		return number(&run.run_ms);
	if (eat("report="))
		return number(&run.report_ms);
	if (eat("buckets="))
		return number(&run.buckets);
	if (eat("loops="))
		return number(&run.loops_per_us);
	if (eat("seed="))
		return number(&run.seed);
	struct orders o = { 0 };
	if (!parse_target(&first, &last) || !parse_orders(&o))
		return 0;
	for (u32 i = first; i <= last; i++)
		run.orders[i] = o;
	return 1;
}

/* The first word is the kernel's own file name, as the boot loader passes it. */
int parse_line(const char *line)
{
	at = line;
	while (*at && *at != ' ')
		at++;
	for (;;) {
		while (*at == ' ')
			at++;
		if (!*at)
			return 1;
		if (!parse_word() || (*at && *at != ' '))
			return 0;
	}
}
