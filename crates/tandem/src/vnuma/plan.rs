//! `tandem vnuma plan`: a VM's virtual nodes and clients on one host, as text, libvirt's XML,
//! QEMU's arguments or JSON.

use super::{VmArgs, host, input, remember::Memory};
use crate::{Failure, say};
use ::vnuma::{Mib, Plan};
use std::path::PathBuf;

/// Shows the virtual nodes of a VM that powers on on a host, and the clients that it has there.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    vm: VmArgs,
    /// Its memory, in whole MiB, GiB or TiB, such as 64G.
    #[arg(long, value_name = "AMOUNT", required_unless_present = "running")]
    memory: Option<Mib>,
    /// The host: this, a shape such as 2x1x8x2:64G, a copy of /sys, or a scenario.
    #[arg(long, value_name = "[NAME=]HOST", default_value = host::THIS)]
    host: String,
    /// Keep the decision for the VM's life in this file, and follow what it has of the VM.
    #[arg(long, value_name = "FILE", requires = "called")]
    remember: Option<PathBuf>,
    /// As elements of libvirt's domain XML.
    #[arg(long, conflicts_with_all = ["qemu", "json"])]
    xml: bool,
    /// A complete domain without devices.
    #[arg(long, requires = "xml")]
    domain: bool,
    /// Pin no vCPU to the pCPUs of its home.
    #[arg(long, requires = "xml")]
    no_pin: bool,
    /// As QEMU's arguments, for a shell.
    #[arg(long, conflicts_with = "json")]
    qemu: bool,
    /// As JSON, QEMU's arguments included.
    #[arg(long)]
    json: bool,
}

/// Runs `tandem vnuma plan`.
///
/// # Errors
/// `Exit::Input` for a VM, host or file that is refused, `Exit::Host` when this machine cannot be
/// read.
pub fn main(args: &Args) -> Result<(), Failure> {
    let (vm, _) = args.vm.vm(args.memory)?;
    vm.check().map_err(input)?;
    let host = host::of(&args.host)?;
    let memory = args.remember.as_deref().map(Memory::read).transpose()?;
    let kept = memory.as_ref().and_then(|m| m.of(&vm.name));
    let plan = ::vnuma::plan(&vm, &host, kept).map_err(input)?;
    // Before it is shown: a guest that sees a topology would miss it the next time.
    if let (Some(memory), Some(path)) = (memory, &args.remember) {
        if let Some(decided) = &plan.decision.remember {
            memory.keep(path, &vm.name, decided.clone())?;
        }
    }
    if args.json {
        say::json(&Json { plan: &plan, qemu: plan.qemu(), cost: plan.cost() })?;
        return Ok(());
    }
    let text = match (args.xml, args.domain, args.qemu) {
        (true, true, _) => plan.libvirt_domain(!args.no_pin),
        (true, false, _) => plan.libvirt(!args.no_pin),
        (_, _, true) => plan.qemu_lines(),
        _ => return Ok(say::all(&plan.draw())?),
    };
    plan.notes.iter().for_each(|note| say::note(&format!("note: {note}")));
    if !plan.host.is_machine {
        let host = &plan.host.name;
        say::note(&format!("note: nodes are numbered as in host {host}, not as on a machine"));
    }
    Ok(say::all(&text)?)
}

/// A plan for programs.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Json<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// Arguments of QEMU.
    qemu: Vec<String>,
    /// What the clients cost, in words.
    cost: String,
}
