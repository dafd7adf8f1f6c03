//! `tandem trace check`: checks a trace with the oracle, and prints the result.

use super::Range;
use crate::{
    Exit, Failure,
    knobs::{self, Setting},
    output::Output,
    say,
};
use anyhow::anyhow;
use audit::{Audit, Terms, audit};
use check::Bounds;
use std::collections::BTreeMap;
use std::path::PathBuf;
use units::Span;

/// Checks a trace with the oracle: legal changes of state, one world a pCPU, affinity, pCPUs that
/// idle while a world waits, shared cores while whole ones idle, waits, skew, co-stop.
#[derive(clap::Args)]
#[command(
    after_help = "A trace has no settings: shares, reservations and limits are not checked. The \
        bounds depend on knobs: pass the scheduler's with --set if they were not the defaults. \
        With cosched=strict neither idle pCPUs nor skew are checked. Ends with code 6 if there is \
        a violation."
)]
pub struct Args {
    #[command(flatten)]
    range: Range,
    /// A knob that the recorded scheduler had; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<Setting>,
    /// Timer interrupts a second of the recorded kernel.
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 250,
        value_parser = crate::numbers::whole::<u32>(24..=10_000)
    )]
    hz: u32,
    /// Longest time from an interrupt to another pCPU until it stops its world: what affinity and
    /// `core_sharing` allow. Emulated pCPUs take far longer.
    #[arg(long, value_name = "TIME", default_value = "100us")]
    kick: Span,
    /// Violations that are listed; all of them count.
    #[arg(
        long,
        value_name = "N",
        value_parser = crate::numbers::whole::<usize>(0..=u64::MAX),
        default_value_t = 20
    )]
    most: usize,
    /// Write the outcome (docs/result.md, `checked`) to a file, or to standard output with '-'
    /// instead of the text.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// The knob `cosched`.
const STRICT: u64 = 2;
/// What `--json` writes.
const WHAT: &str = "what came out";

/// Runs `tandem trace check`.
///
/// # Errors
/// `Exit::Check` if anything is violated.
pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let knobs = knobs::resolve(&BTreeMap::new(), &args.set)?;
    let json = args.range.json(args.json.as_deref(), WHAT)?;
    let input = args.range.read()?;
    let (from_ns, to_ns) = args.range.ns(&input)?;
    let mut terms = Terms::from(&sim::scheduler_terms(&knobs, args.hz));
    terms.bounds.affinity_grace_ns = args.kick.ns();
    if knobs.cosched == STRICT {
        // A VM stops whole, though pCPUs idle, and starts with none ahead of another: its siblings'
        // waits say nothing of their skew.
        terms = Terms {
            bounds: Bounds { idle_while_waiting_max_ns: terms.bounds.ready_max_ns, ..terms.bounds },
            cosched: None,
        };
    }
    input.working("checking");
    let found = match (from_ns, to_ns) {
        (0, u64::MAX) => audit(input.events(), &terms),
        _ => audit(&trace::between(input.events(), from_ns, to_ns), &terms),
    };
    let to_stdout = json.as_ref().is_some_and(Output::is_stdout);
    if let Some(file) = json {
        file.json(&found.checked())?;
    }
    if !to_stdout {
        say::all(&text(&found, terms.cosched.is_some(), args.most))?;
    }
    input.finish()?;
    match found.violated() {
        0 => Ok(()),
        n => Err(Failure::new(Exit::Check, anyhow!("the oracle found {n} violations"))),
    }
}

fn text(a: &Audit, held_together: bool, most: usize) -> String {
    let ms = |ns: u64| format!("{}.{:03} ms", ns / 1_000_000, ns / 1000 % 1000);
    let mut out = format!("{} events, {}: {} violations\n", a.events, ms(a.span_ns), a.violated());
    out += &format!("longest wait for a pCPU               {}\n", ms(a.ready_max_ns));
    out += &match a.idle_while_waiting_max_ns {
        0 => "no pCPU idled for longer than allowed while a world waited\n".to_owned(),
        ns => format!("longest idling while a world waited   {}\n", ms(ns)),
    };
    if held_together {
        out += &format!("most skew of a VM's vCPUs             {}\n", ms(a.skew_max_ns));
        out += &format!("longest co-stop                       {}\n", ms(a.costop_max_ns));
    }
    if a.lost > 0 {
        out += &format!("events were lost {} times; the checks started again there\n", a.lost);
    }
    for v in a.violations.iter().take(most) {
        out += &format!("  - {v}\n");
    }
    if a.violated() > most.min(a.violations.len()) as u64 {
        out += &format!("  and {} more\n", a.violated() - most.min(a.violations.len()) as u64);
    }
    out
}
