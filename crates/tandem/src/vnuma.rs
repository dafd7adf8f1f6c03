//! `tandem vnuma`: its arguments, and the VM that its commands share; each command has a file of
//! its own, and `crates/vnuma` decides.

pub(crate) mod check;
mod host;
pub(crate) mod plan;
mod remember;
mod running;

use crate::{Exit, Failure};
use ::vnuma::{Mib, Options, Vm};
use clap::{ArgAction, Subcommand};
use std::path::Path;

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
    /// A VM that runs on this machine, by its name or the process of its QEMU: what is not given
    /// here is as QEMU's command line has it.
    #[arg(long, value_name = "NAME|PID", group = "called")]
    running: Option<String>,
    /// What the VM is called [default: vm].
    #[arg(long, group = "called")]
    name: Option<String>,
    /// Its vCPUs.
    #[arg(
        long,
        value_name = "N",
        value_parser = crate::numbers::vcpus,
        required_unless_present = "running"
    )]
    vcpus: Option<u32>,
    /// cpuid.coresPerSocket: cores of a virtual socket; 1 is not set [default: 1].
    #[arg(long, value_name = "N", value_parser = crate::numbers::vcpus)]
    cores_per_socket: Option<u32>,
    /// numa.vcpu.maxPerVirtualNode: vCPUs of a virtual node at most [default: those of the host's
    /// node].
    #[arg(long, value_name = "N", value_parser = crate::numbers::vcpus)]
    max_per_virtual_node: Option<u32>,
    /// numa.vcpu.maxPerMachineNode: vCPUs of the VM on a node of the host at most [default: the
    /// node's cores].
    #[arg(long, value_name = "N", value_parser = crate::numbers::vcpus)]
    max_per_machine_node: Option<u32>,
    /// numa.vcpu.min: VMs of fewer vCPUs see no NUMA.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 9,
        value_parser = crate::numbers::whole::<u32>(0..=u64::from(u32::MAX))
    )]
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
    /// The VM, and whether its memory is known: a MiB for each vCPU if it is not.
    fn vm(&self, memory: Option<Mib>) -> Result<(Vm, bool), Failure> {
        let runs = self.running.as_deref().map(|which| running::running(Path::new("/proc"), which));
        let runs = runs.transpose().map_err(input)?;
        let unwritable = |n: &String| n.is_empty() || n.chars().any(char::is_control);
        if let Some(name) = self.name.as_ref().filter(|n| unwritable(n)) {
            return Err(input(anyhow::anyhow!(
                "--name: cannot call a VM so: seen {name:?}, allowed one or more characters, none \
                    of them a control character; give another name"
            )));
        }
        let name = runs.as_ref().and_then(|r| r.name.clone());
        // clap asks for one of both.
        let vcpus = self.vcpus.or(runs.as_ref().map(|r| r.vcpus)).unwrap_or(1);
        let known = memory.or(runs.as_ref().map(|r| r.memory));
        let cores = self.cores_per_socket.or(runs.as_ref().map(|r| r.cores_per_socket));
        let vm = Vm {
            name: self.name.clone().or(name).unwrap_or_else(|| "vm".to_owned()),
            vcpus,
            memory: known.unwrap_or(Mib(u64::from(vcpus).max(1))),
            options: Options {
                vcpu_min: self.min,
                max_per_virtual_node: self.max_per_virtual_node,
                max_per_machine_node: self.max_per_machine_node,
                prefer_ht: self.prefer_ht,
                autosize: self.autosize,
                autosize_once: self.autosize_once,
                cores_per_socket: cores.unwrap_or(1),
            },
        };
        Ok((vm, known.is_some()))
    }
}

/// Input that is refused.
fn input(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::Input, error)
}
