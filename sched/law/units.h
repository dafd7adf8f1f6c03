/* Units and small arithmetic. */
#ifndef TANDEM_UNITS_H
#define TANDEM_UNITS_H

#include "../platform/platform.h"

#define US 1000ull
#define SEC_NS 1000000000ull
#define RATE_SHIFT 20 /* rates and weights are in 2^-20 pCPU */

INLINE u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

INLINE u64 max_u64(u64 a, u64 b)
{
	return a > b ? a : b;
}

INLINE s64 clamp_s64(s64 x, s64 least, s64 most)
{
	return x < least ? least : x > most ? most : x;
}

#endif
