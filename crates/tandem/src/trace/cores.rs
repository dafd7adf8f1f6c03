//! `tandem trace cores`: what shared cores with each VM, for how long, and how far worlds moved.

use super::Range;
use crate::{Failure, output::Output, say};
use std::path::PathBuf;
use trace::cores::{Cores, analyse};
use units::PcpuSet;
use views::Table;

/// Shows for each VM how much of its run time it had a core alone, and what ran beside it
/// otherwise, and how often and how far its worlds moved; for each core how long it was shared.
#[derive(clap::Args)]
#[command(
    after_help = "Of the run time of a VM's worlds: alone, no other thread of the core was busy; \
        own VM, worlds of the same VM were; other VMs, a world of another was; host, host tasks \
        were, or what the trace does not name; unseen, what another thread did is not known. Moves \
        go to another thread of the core (twin), another core of the last-level cache (core), \
        another cache of the node (LLC), another node. Kept is the time in which a thread idled so \
        that a world had its core alone."
)]
pub struct Args {
    #[command(flatten)]
    range: Range,
    /// Write the figures (docs/trace.md) to a file, or to standard output with '-' instead of the
    /// tables.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// Runs `tandem trace cores`.
///
/// # Errors
/// As for every command that reads a trace.
pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let json = args.range.json(args.json.as_deref(), "the cores")?;
    let input = args.range.read()?;
    let (from_ns, to_ns) = args.range.ns(&input)?;
    input.working("adding up");
    let found = analyse(input.events(), from_ns, to_ns);
    let to_stdout = json.as_ref().is_some_and(Output::is_stdout);
    if let Some(file) = json {
        file.json(&found)?;
    }
    if !to_stdout {
        say::all(&text(&found))?;
    }
    input.finish()
}

fn percent(part: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.2}", part as f64 * 100.0 / of as f64) }
}

fn seconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e9)
}

fn text(found: &Cores) -> String {
    let mut vms = Table::new(&[
        "<VM",
        "run s",
        "alone %",
        "own VM %",
        "other VMs %",
        "host %",
        "unseen %",
        "moves",
        "twin",
        "core",
        "LLC",
        "node",
        "moves/s",
    ]);
    for vm in &found.vms {
        let (b, m) = (vm.beside, vm.moves);
        let name = if vm.name.is_empty() { "(no name)".to_owned() } else { vm.name.clone() };
        let parts = [b.alone_ns, b.own_ns, b.others_ns, b.host_ns, b.unseen_ns];
        let moves = [m.all, m.twin, m.core, m.llc, m.node].map(|n| n.to_string());
        let rate = if found.ns == 0 { 0.0 } else { m.all as f64 * 1e9 / found.ns as f64 };
        let cells = [name, seconds(b.run_ns)].into_iter();
        let cells = cells.chain(parts.map(|p| percent(p, b.run_ns))).chain(moves);
        vms.row(cells.chain([format!("{rate:.1}")]));
    }
    let mut out =
        format!("{} s of {} cores\n\n{}", seconds(found.ns), found.cores.len(), vms.text());
    let shared = found.cores.iter().filter(|c| c.pcpus.len() > 1);
    let mut cores = Table::new(&["<pCPUs", "one busy %", "shared %", "kept %"]);
    let mut any = false;
    for core in shared {
        any = true;
        let pcpus: PcpuSet = core.pcpus.iter().copied().collect();
        cores.row([
            pcpus.to_string(),
            percent(core.single_ns, found.ns),
            percent(core.shared_ns, found.ns),
            percent(core.kept_ns, found.ns),
        ]);
    }
    if any {
        out += "\n";
        out += &cores.text();
    }
    out
}
