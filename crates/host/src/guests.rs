//! Attaches the hooks that detect whether a vCPU is in its guest or in its emulator
//! (`sched/glue/guest.bpf.c`); it reads nothing itself.

#![allow(unsafe_code)]

use crate::{live::TandemMaps, privileges};
use libbpf_rs::{
    Link,
    skel::{OpenSkel, SkelBuilder},
};
use sched_core::Knobs;
use std::{mem::MaybeUninit, os::fd::AsFd, path::Path};

mod skeleton {
    #![allow(missing_docs, clippy::all, clippy::pedantic, unsafe_code)]
    include!(concat!(env!("OUT_DIR"), "/guest.skel.rs"));
}
use skeleton::GuestSkelBuilder;

/// Whether it is known when a vCPU is in its guest.
pub(crate) enum Guests {
    /// Not yet: this kernel has run no KVM so far.
    Unknown,
    /// As long as the hooks are attached.
    Hooked(#[allow(dead_code)] [Link; 2]),
    /// The kernel refused them.
    Refused,
}

impl Guests {
    /// Attaches the hooks as soon as there is a KVM, beside the scheduler that has these maps and
    /// knobs; says so if the kernel refuses them.
    pub(crate) fn hook(&mut self, maps: &TandemMaps<'_>, knobs: Knobs, say: &dyn Fn(&str)) {
        if !matches!(self, Guests::Unknown) || !Path::new("/sys/module/kvm").exists() {
            return;
        }
        *self = match privileges::raised(|| Guests::load(maps, knobs)) {
            Ok(links) => Guests::Hooked(links),
            Err(e) => {
                say(&format!(
                    "vCPUs: cannot tell when one is in its emulator: seen {e}, allowed hooks on \
                        kvm_arch_vcpu_ioctl_run; \
                     that time counts as its guest's, and nothing else changes"
                ));
                Guests::Refused
            }
        };
    }

    fn load(maps: &TandemMaps<'_>, knobs: Knobs) -> Result<[Link; 2], libbpf_rs::Error> {
        let mut object = MaybeUninit::uninit();
        let mut open = GuestSkelBuilder::default().open(&mut object)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            // SAFETY: both are the C struct knobs: u64s only, in the same order (sched-core's
            // layout test).
            rodata.knobs_now = unsafe { std::mem::transmute_copy(&knobs) };
        }
        open.maps.host_map.reuse_fd(maps.host_map.as_fd())?;
        open.maps.pcpus_map.reuse_fd(maps.pcpus_map.as_fd())?;
        open.maps.clusters_map.reuse_fd(maps.clusters_map.as_fd())?;
        open.maps.vms_map.reuse_fd(maps.vms_map.as_fd())?;
        open.maps.worlds_map.reuse_fd(maps.worlds_map.as_fd())?;
        open.maps.nodes_map.reuse_fd(maps.nodes_map.as_fd())?;
        open.maps.limiters_map.reuse_fd(maps.limiters_map.as_fd())?;
        open.maps.siblings_map.reuse_fd(maps.siblings_map.as_fd())?;
        open.maps.trace_rings.reuse_fd(maps.trace_rings.as_fd())?;
        open.maps.world_of_task.reuse_fd(maps.world_of_task.as_fd())?;
        let skel = open.load()?;
        Ok([skel.progs.tandem_enters_kvm.attach()?, skel.progs.tandem_leaves_kvm.attach()?])
    }
}
