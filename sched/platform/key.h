/* Keys of the kernel's ordered queues: a deadline in units of QUEUE_KEY_UNIT, modulo 2^44 of them
 * (2.3 years of virtual time), above WORLD_BITS bits for the number of a world. The kernel orders
 * keys by their difference, so they may wrap; a reader knows the clock of the queue, and takes the
 * deadline that is nearest to it. */
#ifndef TANDEM_KEY_H
#define TANDEM_KEY_H

INLINE u64 key_of_deadline(u64 deadline)
{
	return deadline / QUEUE_KEY_UNIT << WORLD_BITS;
}

/* The deadline of a key, rounded down to QUEUE_KEY_UNIT; `near` is less than a year from it. */
INLINE u64 key_deadline(u64 key, u64 near)
{
	u64 units = near / QUEUE_KEY_UNIT;

	return (units + ((s64)(key - (units << WORLD_BITS)) >> WORLD_BITS)) * QUEUE_KEY_UNIT;
}

#endif
