//! Which scheduler the kernel has loaded; how it was loaded and by which process it does not know.

use std::fs;

/// Name of ours, as `sched/glue/tandem.bpf.c` gives it to the kernel.
const OURS: &str = "tandem";

/// Name of the sched_ext scheduler that is loaded; empty if there is none.
#[must_use]
pub fn name() -> String {
    let ops = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    ops.trim().to_owned()
}

/// Whether a loaded scheduler of this name is ours.
#[must_use]
pub fn is_ours(name: &str) -> bool {
    name == OURS
}
