/* Threads of a core that are busy at once: how long, and what each loses by it.
 *
 * Promise	at any moment the core's time is that of at least one (or two) of its threads not
 *		being idle, since the scheduler was loaded (crates/sim/tests/looks.rs). A world is
 *		charged less while its core is shared (VS51 "Policy on Hyper-Threading", H2)
 * Law		time = base + now while so many are awake; base -= now at the begin, += now at
 *		the end. A core with n > 1 threads awake is charged 2 * shared_charge, each
 *		thread an equal part; the rest of its CPU time is lost to the others
 * Units	ns of the scheduler's clock; losses in thousandths of a ns, which wrap around after
 *		213 days: only differences count
 * Example	shared_charge 625: of 8 ms on a core of two busy threads 5 ms are charged; a third
 *		thread would leave 3.3
 * Limits	hosts with hyper-threads only. A reader between count and base sees a time that
 *		cannot be, and reads again
 */
#ifndef TANDEM_BUSY_H
#define TANDEM_BUSY_H

#include "../law/cores.h"
#include "../platform/platform.h"

/* one ns of loss */
#define LOSS_ONE 1000ull
/* readings of a core's losses, of which each fails only if a thread began or ceased to idle */
#define LOSS_READS 3

/* Loss of each thread while `awake` of the core's are, in thousandths of the clock. */
INLINE u64 busy_loss(const struct knobs *k, u32 awake)
{
	return awake > 1 && cores_charge(k) < 1000 ? LOSS_ONE - 2 * cores_charge(k) / awake : 0;
}

/* A pCPU of a core with several threads begins or ends to idle. */
RARE_SUBPROG u32 busy_change(NONNULL(struct host *h), NONNULL(struct pcpu *p))
{
	struct pcpu *core = plat_pcpu(h, p->core_first);
	const struct knobs *k = plat_knobs(h);
	u64 now = plat_now(h);
	u32 before, after;

	if (!core)
		return 0;
	p->awake = !p->awake;
	if (!p->awake)
		core->core_idle_since_ns = now; /* before the count: a reader of 0 sees it */
	before = (u32)plat_fetch_add(&core->core_awake, p->awake ? 1 : -1);
	after = p->awake ? before + 1 : before - 1;
	plat_assert(h, before <= h->smt && after <= h->smt);
	plat_add(&core->core_lost, now * (busy_loss(k, before) - busy_loss(k, after)));
	if (before + after == 1) {
		plat_add(&core->core_busy_ns, p->awake ? -now : now);
	} else if (before + after == 3) {
		if (p->awake)
			core->core_shared_since_ns = now;
		plat_add(&core->core_shared_ns, p->awake ? -now : now);
	}
	return 0;
}

/* Called at each change. */
INLINE void busy_seen(struct host *h, struct pcpu *p, bool awake)
{
	if (h->smt > 1 && !p->awake == awake)
		busy_change(h, p);
}

/* Time that a thread awake since the last call has lost to the others of its core. */
RARE_SUBPROG u64 busy_lost(NONNULL(struct host *h), NONNULL(struct pcpu *p), u64 now)
{
	struct pcpu *core = plat_pcpu(h, p->core_first);
	u64 most = now > p->lost_at_ns ? (now - p->lost_at_ns) * LOSS_ONE : 0;
	u64 seen = 0, lost = 0;

	if (!core)
		return 0;
	plat_for(i, LOSS_READS) {
		u32 awake = plat_read(core->core_awake);

		seen = plat_read(core->core_lost) + now * busy_loss(plat_knobs(h), awake);
		lost = seen - p->lost_seen;
		if (lost <= most)
			break;
	}
	if (lost > most)
		lost = 0;
	p->lost_at_ns = now;
	p->lost_seen = seen - lost % LOSS_ONE;
	return lost / LOSS_ONE;
}

/* A world runs on a pCPU from now on, which it may have done since before the load. */
INLINE void busy_runs(struct host *h, struct pcpu *p, u64 now)
{
	if (h->smt < 2)
		return;
	busy_seen(h, p, true);
	if (cores_divided(h, plat_knobs(h)))
		busy_lost(h, p, now);
}

#endif
