/* Records shared by the scheduler (BPF and native) and by Rust: one layout, written down once, a
 * file each, fields grouped by their writer. crates/sched-core/build reads these files line by
 * line: only u8 to u64, s32, s64, char, and arrays of them. */
#ifndef TANDEM_RECORDS_H
#define TANDEM_RECORDS_H

#include "host.h"
#include "ids.h"
#include "knobs.h"
#include "limiter.h"
#include "node.h"
#include "pcpu.h"
#include "vm.h"
#include "world.h"

#endif
