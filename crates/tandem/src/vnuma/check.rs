//! `tandem vnuma check`: what a VM's virtual nodes meet on each host that it may move to, and the
//! size that fits on all.

use super::{VmArgs, host, input, remember::Memory};
use crate::{Exit, Failure, say};
use ::vnuma::{Case, Host, Mib, Note, Plan, Recommended, Remembered, Vm};
use anyhow::anyhow;
use std::path::PathBuf;
use units::caps::VCPUS_MAX;

/// Checks what the virtual nodes of a VM, which is made on the first host, meet on each host, and
/// recommends the size that fits on all.
#[derive(clap::Args)]
#[command(after_help = "Exit code 0: vNUMA has an effect on all hosts. 6: it has none on some.")]
pub struct Args {
    #[command(flatten)]
    vm: VmArgs,
    /// Virtual nodes of this size are there already, whatever would be decided.
    #[arg(
        long,
        value_name = "N",
        value_parser = crate::numbers::whole::<u32>(1..=VCPUS_MAX as u64),
        conflicts_with_all = ["cores_per_socket", "max_per_virtual_node", "autosize", "remember"]
    )]
    size: Option<u32>,
    /// Its memory, to see whether it fits.
    #[arg(long, value_name = "AMOUNT")]
    memory: Option<Mib>,
    /// Virtual nodes are those that 'tandem vnuma plan --remember' kept there; it is not changed.
    #[arg(long, value_name = "FILE", requires = "called")]
    remember: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// The hosts: this, a shape such as 2x1x8x2:64G, a copy of /sys, or a scenario.
    #[arg(value_name = "[NAME=]HOST", required = true)]
    hosts: Vec<String>,
}

/// What came out, for people and programs.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Checked {
    /// The VM.
    vm: Vm,
    /// vCPUs of each virtual node.
    virtual_nodes: Vec<u32>,
    /// Why they are as large as that.
    reason: String,
    /// Each host, in the order of the command line; the VM is made on the first.
    hosts: Vec<OnHost>,
    /// The size that fits on all hosts.
    recommended: Option<Recommended>,
}

/// What the virtual nodes meet on a host.
#[derive(serde::Serialize, schemars::JsonSchema)]
struct OnHost {
    /// Name of the host.
    host: String,
    /// vCPUs that its smallest node has room for.
    room: u32,
    /// Number of its nodes with pCPUs.
    nodes: usize,
    /// How virtual nodes meet the host's.
    case: Case,
    /// vCPUs of each client.
    clients: Vec<u32>,
    /// What the clients cost, in words.
    cost: String,
    /// What to know, in sentences.
    notes: Vec<String>,
}

/// Runs `tandem vnuma check`.
///
/// # Errors
/// `Exit::Check` if vNUMA has no effect on some host, `Exit::Input` for a VM, host or file that is
/// refused.
pub fn main(args: &Args) -> Result<(), Failure> {
    let (mut vm, with_memory) = args.vm.vm(args.memory)?;
    if let Some(size) = args.size {
        vm.options.max_per_virtual_node = Some(size);
        vm.options.vcpu_min = 1;
    }
    vm.check().map_err(input)?;
    let hosts: Vec<Host> = args.hosts.iter().map(|h| host::of(h)).collect::<Result<_, _>>()?;
    let kept = args.remember.as_deref().map(|path| remembered(path, &vm.name)).transpose()?;
    let (checked, refused) = check(&vm, &hosts, kept.as_ref(), with_memory)?;
    if args.json {
        say::json(&checked)?;
    } else {
        say::all(&text(&checked))?;
    }
    refused.map_or(Ok(()), |why| Err(Failure::new(Exit::Check, anyhow!(why))))
}

/// What is remembered of a VM.
fn remembered(path: &std::path::Path, vm: &str) -> Result<Remembered, Failure> {
    Memory::read(path)?.of(vm).cloned().ok_or_else(|| {
        input(anyhow!(
            "{}: cannot find VM '{vm}': seen nothing of it, allowed a VM that was planned; plan it \
             by 'tandem vnuma plan --remember'",
            path.display()
        ))
    })
}

/// What came out, and why a host is refused.
fn check(
    vm: &Vm,
    hosts: &[Host],
    kept: Option<&Remembered>,
    with_memory: bool,
) -> Result<(Checked, Option<String>), Failure> {
    // clap asks for one host at least.
    let made = ::vnuma::plan(vm, &hosts[0], kept).map_err(input)?;
    let there = made.decision.remember.clone().or_else(|| kept.cloned());
    // It has moved, and not powered on again, so that nothing is decided anew.
    let mut moved = vm.clone();
    moved.options.autosize = false;
    let mut plans = vec![made];
    for host in &hosts[1..] {
        plans.push(::vnuma::plan(&moved, host, there.as_ref()).map_err(input)?);
    }
    let recommended = ::vnuma::recommend(vm, hosts);
    let refused = plans.iter().find(|p| p.is_void()).map(|p| {
        let (room, size, vm, host) = (p.mapping.room, p.decision.size, &vm.name, &p.host.name);
        let next = recommended.as_ref().map(advice).unwrap_or_default();
        format!(
            "VM '{vm}': cannot keep the effect of vNUMA on host {host}: seen virtual nodes of {size} \
             vCPUs, allowed 1..{room} or a multiple of {room}; {next}"
        )
    });
    let first = &plans[0];
    let checked = Checked {
        vm: vm.clone(),
        virtual_nodes: first.decision.nodes.iter().map(|n| n.vcpus.count).collect(),
        reason: first.decision.reason.to_string(),
        hosts: plans.iter().map(|p| on_host(p, with_memory)).collect(),
        recommended,
    };
    Ok((checked, refused))
}

fn on_host(plan: &Plan, with_memory: bool) -> OnHost {
    // The cost says it already.
    let is_cost = |n: &&Note| matches!(n, Note::Case(..) | Note::Unseen(..));
    let shown = |n: &&Note| !is_cost(n) && (with_memory || !matches!(n, Note::Memory(..)));
    let notes = plan.notes.iter().filter(shown);
    OnHost {
        host: plan.host.name.clone(),
        room: plan.mapping.room,
        nodes: plan.host.nodes.len(),
        case: plan.mapping.case,
        clients: plan.mapping.clients.iter().map(|c| c.vcpus.count).collect(),
        cost: plan.cost(),
        notes: notes.map(ToString::to_string).collect(),
    }
}

/// `4 of 8`; sizes that differ are joined.
fn counted(sizes: &[u32]) -> String {
    let mut parts: Vec<(usize, u32)> = vec![];
    for size in sizes {
        match parts.last_mut() {
            Some(last) if last.1 == *size => last.0 += 1,
            _ => parts.push((1, *size)),
        }
    }
    let text: Vec<String> = parts.iter().map(|(n, size)| format!("{n} of {size}")).collect();
    text.join(", ")
}

/// What to set, as an order.
fn advice(found: &Recommended) -> String {
    let most = found.max_per_virtual_node;
    match (found.cores_per_socket, most) {
        (Some(cores), Some(most)) if most > cores => format!(
            "set {cores} cores a virtual socket (cpuid.coresPerSocket), or for fewer virtual nodes \
             numa.vcpu.maxPerVirtualNode {most}"
        ),
        (Some(cores), _) => format!("set {cores} cores a virtual socket (cpuid.coresPerSocket)"),
        (None, Some(most)) => format!("set numa.vcpu.maxPerVirtualNode {most}"),
        (None, None) => "give it fewer vCPUs".to_owned(),
    }
}

fn text(checked: &Checked) -> String {
    let (vm, made) = (&checked.vm, &checked.hosts[0].host);
    let nodes = counted(&checked.virtual_nodes);
    let mut out = format!(
        "VM {}: {} vCPUs, virtual nodes: {nodes} vCPUs, as made on host {made}: {}\n\n",
        vm.name, vm.vcpus, checked.reason
    );
    let mut table =
        views::Table::new(&["<host", "nodes", "room", "<virtual nodes", "<clients", "<cost"]);
    for on in &checked.hosts {
        table.row([
            on.host.clone(),
            on.nodes.to_string(),
            on.room.to_string(),
            on.case.to_string(),
            counted(&on.clients),
            on.cost.clone(),
        ]);
    }
    out.push_str(&table.text());
    for on in &checked.hosts {
        on.notes.iter().for_each(|n| out.push_str(&format!("note: host {}: {n}\n", on.host)));
    }
    if let Some(found) = &checked.recommended {
        let room = found.room;
        out.push_str(&format!(
            "\nfits on all: {}; the smallest node has room for {room} vCPUs\n",
            advice(found)
        ));
    }
    out
}
