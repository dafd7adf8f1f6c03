//! The lab: boots a real Linux kernel under QEMU's emulator, with real KVM VMs inside it, on a
//! machine that has neither KVM nor sched_ext; it decides nothing about scheduling and judges no
//! result.
//!
//! The flow: [`archive`] finds kernels and QEMU, [`image`] builds the guest's root file system,
//! [`boot`] runs a command in it and brings files back, [`payload`] and [`guest_linux`] are what
//! the VMs inside run; [`xen`] boots a hypervisor of another kind, with VMs of its own.

pub mod archive;
pub mod boot;
mod bzimage;
mod cpio;
pub mod drill;
mod error;
pub mod experiment;
pub mod guest_linux;
pub mod image;
pub mod payload;
pub mod tool;
pub mod vm;
pub mod xen;

pub use archive::{Archive, Kernel, KernelId, Qemu};
pub use boot::{Accel, BootOutcome, BootSpec, Finding, GuestFile, Stream, Topology, boot};
pub use error::{LabError, Result};
pub use experiment::{Experiment, Policy};
pub use vm::{Runs, Vm};
