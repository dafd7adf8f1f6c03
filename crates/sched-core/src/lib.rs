//! The scheduler of `sched/`, built natively, behind a safe interface, for the simulator; the live
//! host shares its records.
//!
//! The records, caps and knobs are generated from `sched/abi` at build time; a test compares every
//! size and offset with C's. This crate decides nothing about scheduling.
#![allow(unsafe_code)]

mod blocks;
mod host;
mod knobs;
mod layout;
mod limits;
mod native;
mod plan;
mod platform;
mod tandem;

pub use blocks::BlockTimers;
pub use contract::{
    ENQUEUE_WAKEUP, KICK_IDLE, KICK_PREEMPT, Kernel as Platform, NoKernel, Task as PlatTask, Tasks,
};
pub use host::{EntryFlags, Host, HostError};
pub use knobs::{KNOBS, Knob, KnobError};
pub use layout::{cores_online, layout};
pub use native::Native;
pub use plan::plan_nodes;
pub use records::Host as HostRecord;
pub use records::*;
pub use tandem::Tandem;

/// Records and constants of `sched/abi`, generated; `records::Host` is C's, `Host` the safe face.
pub mod records {
    include!(concat!(env!("OUT_DIR"), "/records.rs"));
}

/// Whether a world of this kind is a vCPU, of KVM or emulated by its process.
#[must_use]
pub const fn is_vcpu(kind: u32) -> bool {
    kind == KIND_VCPU || kind == KIND_EMULATED
}

/// The ordered queue of a pCPU that holds worlds of VMs (`QUEUE_VM` in
/// `sched/platform/platform.h`).
#[must_use]
pub const fn queue_vm(pcpu: u32) -> u64 {
    pcpu as u64
}

/// The ordered queue of a pCPU that holds host tasks (`QUEUE_SYSTEM` in
/// `sched/platform/platform.h`).
#[must_use]
pub const fn queue_system(pcpu: u32) -> u64 {
    pcpu as u64 + PCPUS_MAX as u64
}

/// The ordered queue of worlds that wait for a limit (`QUEUE_PARKED` in
/// `sched/platform/platform.h`).
#[must_use]
pub const fn queue_parked(limiter: u32) -> u64 {
    limiter as u64 + 2 * PCPUS_MAX as u64
}

/// The ordered queue of a VM's co-stopped vCPUs (`QUEUE_COSTOP` in `sched/platform/platform.h`).
#[must_use]
pub const fn queue_costop(vm: u32) -> u64 {
    vm as u64 + 3 * PCPUS_MAX as u64
}

const _: () = assert!(PCPU_WORDS as usize == contract::PCPU_WORDS);
const _: () = assert!(4 * PCPUS_MAX as u64 <= contract::QUEUES_MAX && VMS_MAX <= PCPUS_MAX);
const _: () = assert!(PCPUS_MAX as usize == units::caps::PCPUS_MAX);
const _: () = assert!(VMS_MAX as usize == units::caps::VMS_MAX);
const _: () = assert!(WORLDS_MAX as usize == units::caps::WORLDS_MAX);
const _: () = assert!(VCPUS_MAX == units::caps::VCPUS_MAX);
const _: () = assert!(POOLS_MAX as usize == units::caps::POOLS_MAX);
const _: () = assert!(POOL_DEPTH_MAX as usize == units::caps::POOL_DEPTH_MAX);
const _: () = assert!(LIMITERS_MAX as usize == units::caps::LIMITERS_MAX);

#[cfg(test)]
mod tests {
    mod table {
        use std::mem::offset_of;
        include!(concat!(env!("OUT_DIR"), "/layout.rs"));
    }

    unsafe extern "C" {
        static tandem_layout_rows: u64;
        static tandem_layout: [u64; table::ROWS.len()];
    }

    #[test]
    fn every_size_offset_and_constant_is_the_same_in_c() {
        // SAFETY: both are constants of the generated layout.c, never written; the row count is
        // compared before the table, whose declared length comes from the same generator, is read.
        let c = unsafe {
            assert_eq!(tandem_layout_rows, table::ROWS.len() as u64);
            tandem_layout
        };
        for ((name, rust), c) in table::ROWS.iter().zip(c) {
            assert_eq!(*rust, c, "{name}: Rust says {rust}, C says {c}");
        }
    }
}
