/* How far the vCPUs of a VM have drifted apart, and who stops for it; it moves nobody.
 *
 * Promise	relaxed: a vCPU that leads its slowest sibling by more than costop_us stops by itself, alone, and goes on when none of
 *		those it leads by costart_us or more waits; strict: the whole VM stops, and goes on when there is a pCPU for every vCPU that wants one
 *		(VS51 "Relaxed Co-Scheduling", C1, C2)
 * Law		stalled = base + time in READY + time in COSTOP; lead = the slowest sibling's stalled - one's own; the slowest is the
 *		one of those that want to run that is stalled most
 * Units	ns of the clock
 * Example	4 vCPUs that burn share one pCPU: each runs for 3 to 4 ms, stops, and the next sibling has the pCPU
 * Limits	skew is looked at every cosched_poll_us; a vCPU that halts makes progress: when it wakes it is neither slower than the
 *		slowest nor further ahead than costart_us (C4). One that is in its emulator's code, or sleeps there, is left out
 *		(C3): it makes no progress and so does not lead, and its guest does not wait for a pCPU. What KVM itself does for
 *		a guest counts as the guest's: it is short, or polls for one that has halted, and to tell them apart would cost
 *		two programs for each exit. An emulated vCPU's thread runs guest and emulator in one: all is the guest's. Whoever
 *		was outside when the hooks came counts as inside until it leaves again
 * Weakness	the first vCPUS_MAX of a VM only
 */
#ifndef TANDEM_COSCHED_H
#define TANDEM_COSCHED_H

#include "../queue/queue.h"

/* What world.costop says: asked for by the tick, decided by its own pCPU. */
enum { COSTOP_NOT, COSTOP_ASKED, COSTOP_DECIDED };

enum { COSCHED_OFF, COSCHED_RELAXED, COSCHED_STRICT };

#define ASKED_NS 100000ull	/* one that was asked to stop before it ran does so after that: until then its pCPU is settled */
#define STALLED_START (1ull << 50)	/* of a new VM and of a new vCPU: bases may go below it without wrapping */

hot bool cosched_is_vcpu(const struct world *w)
{
	return w->kind == KIND_VCPU || w->kind == KIND_EMULATED;
}

/* What a vCPU has been stalled, completed stays only. */
hot u64 cosched_stalled(const struct world *w)
{
	return w->stalled_base_ns + w->time_ns[STATE_READY] + w->time_ns[STATE_COSTOP];
}

/* A vCPU comes back to its siblings: it has kept pace, and leads the slowest of the last look, which may be a period ago, by no more
 * than `lead`. */
hot void cosched_back(const struct vm *v, struct world *w, u64 lead)
{
	u64 slowest = plat_read(v->slowest_ns), stalled = cosched_stalled(w), least;

	if (!slowest)
		slowest = STALLED_START; /* nobody has been looked at yet */
	least = slowest - lead;
	if (stalled > slowest)
		w->stalled_base_ns -= stalled - slowest;
	else if (stalled < least)
		w->stalled_base_ns += least - stalled;
}

/* A vCPU joins its siblings, or comes back from sleep. */
hot void cosched_woken(const struct knobs *k, const struct vm *v, struct world *w)
{
	cosched_back(v, w, k->costart_us * US);
	w->led_ns = 0;
}

/* The running vCPU enters its guest, or leaves it for its emulator. It comes back as one that wakes, but if it led by more when it left it
 * still does: else one that leaves often would never stop. */
hot void cosched_crossed(struct host *h, struct world *w, bool inside)
{
	struct vm *v = plat_vm(h, w->vm);
	u64 least = plat_knobs(h)->costart_us * US, slowest = v && v->indices > 1 ? plat_read(v->slowest_ns) : 0;

	if (!inside)
		w->led_ns = slowest > cosched_stalled(w) ? slowest - cosched_stalled(w) : 0;
	else if (slowest)
		cosched_back(v, w, w->led_ns > least ? w->led_ns : least);
	w->outside = !inside;
	if (trace_on(h))
		trace_put(h, plat_now(h), trace_head(TRACE_GUEST, w->id, plat_here(h)), inside, 0);
}

/* How long all siblings together use what their VM is entitled to in a quantum: so long is a turn. */
hot u64 cosched_turn_ns(const struct knobs *k, const struct vm *v, u32 siblings)
{
	u64 least = k->slice_min_us * US, ns = (v->weight * k->quantum_us * US >> RATE_SHIFT) / (siblings ? siblings : 1);

	return ns > least ? ns : least;
}

/* A turn begins. */
hot void cosched_turn_begin(struct vm *v, u32 vm, u64 end_ns)
{
	v->turn_key = with(GANG_KEY) ? share_vm_key(v) + vm : KEY_NONE; /* no two VMs have the same */
	v->turn_end_ns = end_ns;
	v->gathers = 0;
}

/* A vCPU runs, with a slice before it: it begins a turn of its VM, or joins the one that is under way. By the keys of shares alone
 * VMs would alternate vCPU by vCPU, for each slice that begins makes the next one less urgent; so the siblings of the first run by its
 * key, and to the end of its slice. */
hot void cosched_turn(const struct knobs *k, plat_task *t, struct vm *v, const struct world *w, u64 now)
{
	u64 end = plat_read(v->turn_end_ns), slice = plat_slice(t), least = k->slice_min_us * US, most;

	if (v->indices < 2 || k->cosched == COSCHED_OFF || !cosched_is_vcpu(w))
		return;
	if (!plat_read(v->turn_key) || now >= end) {
		most = cosched_turn_ns(k, v, plat_read(v->runnable));
		if (slice > most)
			plat_set_slice(t, slice = most);
		cosched_turn_begin(v, w->vm, now + slice);
	} else if (now + slice > end) {
		plat_set_slice(t, end - now > least ? end - now : least);
	}
	if (w->costop == COSTOP_ASKED && with(COSTOP_ASKED))
		plat_set_slice(t, ASKED_NS);
}

/* Whether the turn has just been found to be over. */
hot bool cosched_turn_ends(struct vm *v, u64 now)
{
	if (!plat_read(v->turn_key) || now < plat_read(v->turn_end_ns))
		return false;
	v->turn_key = 0;
	return true;
}

/* The tick looks at the vCPUs of a VM by their numbers; each has a place that nobody else writes, so a lost race means that a number
 * was given twice. What is out of date there is seen when it is looked at. */
apart u32 cosched_join(THE(struct host *h), THE(struct vm *v), THE(struct world *w))
{
	struct siblings *s = plat_siblings(h, w->vm);
	struct world *alone = s && v->indices == 1 ? plat_world(h, s->world[0]) : NULL;
	u64 now = plat_now(h), since;
	u32 index = w->index;

	if (!s || index >= VCPUS_MAX)
		return 0;
	if (index && alone && alone->vm == w->vm) { /* the tick has not looked at a VM of one vCPU: that one's is the pace */
		since = plat_read(alone->state_since_ns);
		v->slowest_ns = cosched_stalled(alone) + (alone->state == STATE_READY && now > since ? now - since : 0);
	}
	s->world[index] = w->id;
	plat_for(i, 4) { /* a race is lost to at most a few that join at once */
		u32 end = plat_read(v->indices);

		if (index < end || plat_cas(&v->indices, end, index + 1))
			break;
	}
	if (index)
		h->smp = 1;
	return 0;
}

#endif
