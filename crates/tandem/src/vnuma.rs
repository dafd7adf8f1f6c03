//! `tandem vnuma`: its arguments, and the VM that its commands share; each command has a file of
//! its own, and `crates/vnuma` decides.

mod check;
mod host;
mod plan;
mod remember;

use crate::{Exit, Failure};
use ::vnuma::{Mib, Options, Vm};
use clap::{ArgAction, Subcommand};

/// Plans a VM's virtual NUMA nodes and its NUMA clients as ESXi has them, for libvirt and QEMU;
/// changes no VM.
#[derive(clap::Args)]
#[command(
    after_help = "A HOST is this (this machine), SOCKETSxNODESxCORESxTHREADS[:MEMORY] (nodes of a \
        socket, cores of a node, threads of a core, memory of a node; unlike parts joined by +), a \
        folder with a copy of /sys, or a scenario. NAME= before it is what it is called \
        (docs/vnuma.md)."
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Plan(plan::Args),
    Check(check::Args),
}

/// Runs `tandem vnuma`.
///
/// # Errors
/// Those of its commands.
pub fn main(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Plan(args) => plan::main(args),
        Command::Check(args) => check::main(args),
    }
}

/// A VM and its options, by ESXi's names.
#[derive(clap::Args)]
pub struct VmArgs {
    /// What the VM is called [default: vm].
    #[arg(long)]
    name: Option<String>,
    /// Its vCPUs.
    #[arg(long, value_name = "N")]
    vcpus: u32,
    /// cpuid.coresPerSocket: cores of a virtual socket; 1 is not set.
    #[arg(long, value_name = "N", default_value_t = 1)]
    cores_per_socket: u32,
    /// numa.vcpu.maxPerVirtualNode: vCPUs of a virtual node at most [default: those of the host's
    /// node].
    #[arg(long, value_name = "N")]
    max_per_virtual_node: Option<u32>,
    /// numa.vcpu.maxPerMachineNode: vCPUs of the VM on a node of the host at most [default: the
    /// node's cores].
    #[arg(long, value_name = "N")]
    max_per_machine_node: Option<u32>,
    /// numa.vcpu.min: VMs of fewer vCPUs see no NUMA.
    #[arg(long, value_name = "N", default_value_t = 9)]
    min: u32,
    /// numa.vcpu.preferHT: a node counts by its threads instead of its cores.
    #[arg(long)]
    prefer_ht: bool,
    /// numa.autosize: virtual nodes are sized by the host's nodes, whatever other size is set.
    #[arg(long)]
    autosize: bool,
    /// numa.autosize.once: keep what was decided; false with --autosize decides anew at each
    /// power-on.
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set)]
    autosize_once: bool,
}

impl VmArgs {
    fn vm(&self, memory: Mib) -> Vm {
        Vm {
            name: self.name.clone().unwrap_or_else(|| "vm".to_owned()),
            vcpus: self.vcpus,
            memory,
            options: Options {
                vcpu_min: self.min,
                max_per_virtual_node: self.max_per_virtual_node,
                max_per_machine_node: self.max_per_machine_node,
                prefer_ht: self.prefer_ht,
                autosize: self.autosize,
                autosize_once: self.autosize_once,
                cores_per_socket: self.cores_per_socket,
            },
        }
    }
}

/// Input that is refused.
fn input(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::Input, error)
}
