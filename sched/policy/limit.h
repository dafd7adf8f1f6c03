/* How much CPU time a world may take while a limit stands above it, and where it waits when there is none left.
 *
 * Promise	a VM or pool under a limit uses no more than limit * time, and what was saved up (limit_most) or handed out (a
 *		grant for a world that runs or waits for a pCPU) when that time began, over any time and on an idle host too
 *		(VS51 "CPU Limit", P6);
 *		the oracle holds it to 0.6 % of a second, or 12 ms for limits where that is less, pool-limit to 0.5
 * Law		tokens += rate * time, at most limit_most after each tick, and what has come since while it is closed; a world takes a
 *		grant before it runs and pays back what it did not use; refused by one limit of the chain: parked there, in the order
 *		of keys, until the tick of limits finds enough
 * Units	ns of CPU time; rate in 2^-20 pCPU
 * Example	a pool of 4 pCPUs keeps 8 ms at most; eight busy worlds get 2 ms each in turn, two of them every ms
 * Limits	a grant ends with the tick of limits that is nearest to its end: half of LIMIT_TICK_NS too much or too little.
 *		One that is owed time takes a tick's worth ahead of time from a limit of a pCPU or more (LIMIT_OWED).
 *		A tick that is late is made up for within LIMIT_SLACK_NS a pCPU; one that is later than 3 ms costs time, and
 *		limits of a pCPU or less lose up to 1 % where ticks are 1 to 5 ms late (scenarios/pool-limit).
 *		Whoever is parked for ready_bound runs for GRANT_MIN_NS all the same, long before the kernel's watchdog
 *		looks; so limits below GRANT_MIN_NS in ready_bound for each world (0.01 % of a pCPU) cannot be kept
 * Weakness	a kernel thread or a task that the kernel runs without asking is charged all the same, and makes a debt
 */
#ifndef TANDEM_LIMIT_H
#define TANDEM_LIMIT_H

#include "share.h"

#define LIMIT_TICK_NS 1000000ull	/* tokens come and grants end at this pace: a thousandth of the second that limits are held to */
#define LIMIT_SLACK_NS 5000000ull	/* for each pCPU of a limit: half a percent of any second, which it is to be held to */
#define LIMIT_IDLE_NS 4000000ull	/* the pace while nothing under a limit wants to run: a timer tick at 250 Hz */
#define GRANT_NS 2000000ull		/* taken at a time, less below limits of a pCPU: with what is saved up, 0.4 % of a second for each pCPU of the limit */
#define GRANT_MIN_NS 500000ull		/* less is not worth a switch */
#define LIMIT_LEAST_NS (GRANT_NS + 2 * GRANT_MIN_NS)	/* saved up for small limits: a grant and what comes in a tick, which would find no room otherwise */
#define LIMIT_CHAIN (POOL_DEPTH_MAX + 2)	/* limits above a world: of its VM and of every pool above it */
#define LIMIT_DEBT_NS 1000000000ll	/* owed at most: what rescued worlds ran beyond is forgotten */

/* Most that a limit saves up: a grant for each pCPU of it, and the burst that was asked for. */
hot u64 limit_most(const struct limiter *l)
{
	u64 most = l->rate * GRANT_NS >> RATE_SHIFT;

	return (most > LIMIT_LEAST_NS ? most : LIMIT_LEAST_NS) + l->burst_ns;
}

/* What is taken at a time: in proportion to small limits, so that few of it are out at once. */
hot u64 limit_size(const struct limiter *l)
{
	u64 size = l->rate * GRANT_NS >> RATE_SHIFT;

	if (!with(LIMIT_SMALL))
		return GRANT_NS;
	return size < GRANT_MIN_NS ? GRANT_MIN_NS : size < GRANT_NS ? size : GRANT_NS;
}

/* What a closed limit keeps beyond `most` of what has come after `from`. What comes while its tick is late would be lost; and whoever was
 * let go for longer than he ran gives the rest back between two ticks, and what comes on top of that is for those who wait. No more
 * than half a percent of a second leaves beside `most` and a grant, so that limits of a pCPU or less lose it. */
hot u64 limit_late(const struct limiter *l, u64 most, u64 from, u64 now)
{
	u64 late = now > from ? now - from : 0, room;

	if (!late || !plat_read(l->closed) || !with(LIMIT_LATE))
		return 0;
	room = (l->rate * LIMIT_SLACK_NS >> RATE_SHIFT) + l->burst_ns;
	room = room > most + GRANT_NS ? room - most - GRANT_NS : 0;
	late = l->rate * (late < LIMIT_SLACK_NS ? late : LIMIT_SLACK_NS) >> RATE_SHIFT;
	return late < room ? late : room;
}

/* Adds what has come since it was filled up last, by a tick of limits or by whoever asked it for a grant. */
cold u32 limit_fill(THE(struct limiter *l), u64 now)
{
	u64 at = plat_read(l->at_ns), gone = now > at ? now - at : 0, most = limit_most(l), more;
	s64 tokens = plat_read(l->tokens_ns);

	if (!gone || !plat_cas(&l->at_ns, at, now) || !at)
		return 0;
	if (gone > 1000000000ull)
		gone = 1000000000ull;
	more = l->rate * gone >> RATE_SHIFT; /* rounded down: never above the limit */
	most += limit_late(l, most, l->tick_ns, now);
	if (tokens >= (s64)most)
		return 0;
	if (tokens + (s64)more > (s64)most)
		more = (u64)((s64)most - tokens);
	if (tokens < -LIMIT_DEBT_NS && with(LIMIT_DEBT))
		more += (u64)(-LIMIT_DEBT_NS - tokens);
	plat_add(&l->tokens_ns, (s64)more);
	return 0;
}

/* Adds to the tokens of every limit from `first` up. */
cold u32 limit_move(THE(struct host *h), u32 first, s64 ns)
{
	u32 id = first;

	plat_for(i, LIMIT_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		plat_add(&l->tokens_ns, ns);
		id = l->parent;
	}
	return 0;
}

/* Who asks a limit for a grant. */
enum {
	LIMIT_ANY,	/* anybody: a closed limit gives nothing */
	LIMIT_TURN,	/* whose turn it is by key */
	LIMIT_OWED,	/* also owed time by the host: has what the next tick brings */
};

/* Takes up to `want` ns for a world from every limit of its VM; 0 when one of them refuses, which is closed then. */
cold u64 limit_grant(THE(struct host *h), u32 first, THE(struct world *w), u64 want, u32 who)
{
	u64 grant = want < GRANT_NS ? want : GRANT_NS, now = plat_now(h);
	u32 id = first;

	plat_for(i, LIMIT_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;
		s64 has;

		if (!l)
			break;
		id = l->parent;
		if (!l->rate)
			continue;
		limit_fill(l, now);
		has = plat_read(l->tokens_ns);
		if (who == LIMIT_OWED && l->rate >= 1ull << RATE_SHIFT && with(LIMIT_OVERDRAFT)) /* a small one's bucket is larger than its tick anyway */
			has += (s64)(l->rate * LIMIT_TICK_NS >> RATE_SHIFT);
		if ((plat_read(l->closed) && who == LIMIT_ANY) || has < (s64)GRANT_MIN_NS) {
			l->closed = 1;
			return 0;
		}
		if (l->grant_ns && l->grant_ns < grant)
			grant = l->grant_ns;
		if ((u64)has < grant)
			grant = (u64)has;
	}
	limit_move(h, first, -(s64)grant);
	if (plat_cas(&w->grant_ns, 0, grant))
		return grant;
	limit_move(h, first, grant); /* two pCPUs look at one that is parked: the other has it */
	return 0;
}

/* The slice that a world may have now, `want` at most; 0 if it must be parked. */
hot u64 limit_take(struct host *h, struct vm *v, struct world *w, u64 want)
{
	u32 first = plat_read(v->limiter);
	s64 kept;
	u64 had;

	if (!first)
		return want;
	if (w->grant_ns)
		return w->grant_ns;
	kept = plat_read(v->kept_ns);
	had = (u64)kept < want ? (u64)kept : want;
	if (kept < (s64)GRANT_MIN_NS || !plat_cas(&v->kept_ns, kept, kept - (s64)had))
		return limit_grant(h, first, w, want, LIMIT_ANY);
	w->grant_ns = had;
	return had;
}

/* Pays for `ran` ns of a grant. The rest stays with the VM for its next wake-up, which then need not ask every limit above it;
 * what is more than a grant goes back, and all of it when the VM sleeps or a limit is closed (release_kept). True where some goes back. */
hot bool limit_pay(struct host *h, struct vm *v, struct world *w, u64 ran)
{
	u64 had = plat_read(w->grant_ns);
	s64 rest = (s64)(had - ran);
	u32 first = plat_read(v->limiter);

	if (!first && !had)
		return false;
	plat_add(&w->grant_ns, -had); /* the tick of limits may add to it meanwhile */
	if (with(LIMIT_KEPT) && rest > 0 && plat_read(v->kept_ns) + rest <= (s64)(GRANT_NS + GRANT_MIN_NS)) {
		plat_add(&v->kept_ns, rest);
		return false;
	}
	if (rest)
		limit_move(h, first, rest);
	return rest > 0;
}

/* The limit that keeps a world of `first` from running; 0 if none does. */
cold u32 limit_closed_by(THE(struct host *h), u32 first)
{
	u32 id = first, found = 0;

	plat_for(i, LIMIT_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		if (plat_read(l->closed)) {
			found = id;
			break;
		}
		id = l->parent;
	}
	return found;
}

/* The first limit from `first` up at which somebody waits; 0 if there is none. */
cold u32 limit_waited_at(THE(struct host *h), u32 first)
{
	u32 id = first, found = 0;

	plat_for(i, LIMIT_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		if (plat_read(l->parked)) {
			found = id;
			break;
		}
		id = l->parent;
	}
	return found;
}

hot u32 limit_closed(struct host *h, const struct vm *v)
{
	u32 first = plat_read(v->limiter);

	return first && plat_read(v->kept_ns) < (s64)GRANT_MIN_NS ? limit_closed_by(h, first) : 0;
}

/* The limit where a world that was refused is to wait: the first that has nothing left, for there its turn comes by what it
 * is owed among all that are below it; else the first that is closed. */
cold u32 limit_parking(THE(struct host *h), u32 first)
{
	u32 id = first, closed = 0, found = 0;

	plat_for(i, LIMIT_CHAIN) {
		struct limiter *l = id ? plat_limiter(h, id) : NULL;

		if (!l)
			break;
		if (l->rate && plat_read(l->tokens_ns) < (s64)GRANT_MIN_NS) {
			found = id;
			break;
		}
		if (!closed && plat_read(l->closed))
			closed = id;
		id = l->parent;
	}
	return found ? found : closed ? closed : first;
}

/* A world runs: its grant ends the slice. One that the kernel runs without asking takes the smallest grant, as a debt. */
hot void limit_running(struct host *h, plat_task *t, const struct vm *v, struct world *w, struct pcpu *p, u64 now)
{
	u32 first = plat_read(v->limiter);

	if (!first) {
		p->grant_end_ns = 0;
		return;
	}
	if (!w->grant_ns) {
		w->grant_ns = GRANT_MIN_NS;
		limit_move(h, first, -(s64)GRANT_MIN_NS);
	}
	plat_set_slice(t, w->grant_ns);
	p->grant_end_ns = now + w->grant_ns;
}

#endif
