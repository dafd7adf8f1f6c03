/* Time that tasks of higher scheduling classes take of a pCPU: real-time and deadline tasks, the
 * kernel's stoppers. This scheduler never sees them.
 *
 * Promise	what they take is known within TAKEN_MIN_NS for each time they run, and user space
 *		divides what is left (crates/sim/tests/realtime.rs). A world that they preempt is
 *		queued anew, so an idle pCPU takes it
 * Law		taken = from the stop of a world, or the end of idling, until the next pick; what is
 *		shorter than TAKEN_MIN_NS is the kernel's own way from one world to the next
 * Units	ns of the scheduler's clock
 */
#ifndef TANDEM_TAKEN_H
#define TANDEM_TAKEN_H

#include "../platform/platform.h"

/* longer than the kernel takes between two worlds */
#define TAKEN_MIN_NS 20000ull

/* The pCPU stops to run a world, or ceases to idle. */
INLINE void taken_begin(struct pcpu *p, u64 now)
{
	p->left_ns = now;
}

/* It runs a world again, or idles: its pick began at `now`. */
INLINE void taken_end(struct pcpu *p, u64 now)
{
	u64 since = p->left_ns;

	p->left_ns = 0;
	if (since && now > since + TAKEN_MIN_NS)
		p->taken_ns += now - since;
}

#endif
