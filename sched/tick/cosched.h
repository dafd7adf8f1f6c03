/* The tick of co-scheduling: for each VM with two or more vCPUs that want to run, its skew and its
 * gang slice. The VMs are dealt out to blocks of pCPUs, each with a timer of its own.
 *
 * Promise	a vCPU that leads by more than costop_us is asked to co-stop within cosched_poll_us;
 *		a co-stopped one goes on within as much of when it may, in any case after
 *		ready_bound_us
 * Law		law/skew.h, law/gang.h
 * Units	ns until the next tick
 * Limits	all VMs of a block are looked at every cosched_poll_us; in between, four times as
 *		often at most, those whose gang slice ends or has just begun. About 20 ns a vCPU
 *		and look. A VM stays with its block, wherever it runs
 */
#ifndef TANDEM_COSCHED_H
#define TANDEM_COSCHED_H

#include "blocks.h"
#include "gang.h"
#if PLAT_STRICT
#include "strict.h"
#endif

/* The least between two ticks. */
INLINE u64 cosched_soon(const struct knobs *k)
{
	return k->cosched_poll_us * (US / 4);
}

/* One VM; whether its gang slice has ended. Inline, for a chain of calls in BPF has 8
 * frames at most. */
INLINE u32 cosched_vm(struct host *h, struct siblings_look *s)
{
	struct vm *v = plat_vm(h, s->vm);

	if (!v)
		return 0;
	siblings_measure(h, s);
	if (s->slowest_ns)
		v->slowest_ns = s->slowest_ns;
	v->waiting = s->waiting;
	if (plat_read(v->limiter))
		gang_budget(h, s, v);
	s->ended = gang_end(v, s->now_ns);
	if (s->ended && with(GANG_END))
		gang_stop(h, s);
#if PLAT_STRICT
	if (skew_strict(plat_knobs(h))) {
		strict_tick(h, s);
		return s->ended;
	}
#endif
	siblings_stop(h, s);
	if (plat_read(v->costopped))
		siblings_start(h, s);
	if (s->waiting && plat_read(v->gang_key)) {
		v->gang_tries++;
		gang_place(h, s);
	}
	return s->ended;
}

/* Whether a VM is looked at between two full looks. */
INLINE bool cosched_due(const struct vm *v, u64 now)
{
	return plat_read(v->gang_key) && (gang_over(v, now) || gang_incomplete(v));
}

/* Time until such a look. */
INLINE u64 cosched_due_in(const struct knobs *k, const struct vm *v, u64 now)
{
	if (!plat_read(v->gang_key))
		return KEY_NONE;
	return cosched_due(v, now) ? cosched_soon(k) : plat_read(v->gang_end_ns) - now;
}

/* A VM at the tick of a block: whether two of its vCPUs want to run. */
SUBPROG bool cosched_look(NONNULL(struct host *h), NONNULL(struct pcpu *p),
			  NONNULL(struct siblings_look *s))
{
	struct vm *v = plat_vm(h, s->vm);
	u64 in;

	/* One vCPU alone is looked at too: those that wake are measured by it. */
	if (!v || v->indices < 2 || !plat_read(v->runnable))
		return false;
	s->count = v->indices;
	if ((p->looked_ns == s->now_ns || cosched_due(v, s->now_ns)) && cosched_vm(h, s))
		in = cosched_soon(plat_knobs(h)); /* another VM's gang slice begins */
	else
		in = cosched_due_in(plat_knobs(h), v, s->now_ns);
	p->look_in_ns = min_u64(p->look_in_ns, in);
	return plat_read(v->runnable) > 1;
}

/* The tick of a block; ns until its next one, 0 while nothing is to be co-scheduled. */
INLINE u64 core_cosched(struct host *h, u32 block)
{
	struct pcpu *p = plat_pcpu(h, block * BLOCK_PCPUS);
	const struct knobs *k = plat_knobs(h);
	u32 blocks = blocks_of(h); /* VM i belongs to block i modulo their number */
	struct siblings_look s = { .now_ns = plat_now(h) };
	u64 poll = k->cosched_poll_us * US;
	bool busy = false;

	if (k->cosched == COSCHED_OFF || !p)
		return 0;
	if (!h->smp)
		return k->housekeep_us * US;
	if (s.now_ns >= p->looked_ns + poll)
		p->looked_ns = s.now_ns;
	p->look_in_ns = p->looked_ns + poll - s.now_ns;
	plat_for(i, VMS_MAX) {
		s.vm = block + i * blocks;
		if (s.vm >= h->vms)
			break;
		busy |= cosched_look(h, p, &s);
	}
	/* While no two vCPUs of a VM want to run, one that wakes leads by costart_us at most, and
	 * that lead grows until the next tick. */
	if (!busy)
		return poll + (k->costop_us - k->costart_us) * US;
	return max_u64(p->look_in_ns, cosched_soon(k));
}

#endif
