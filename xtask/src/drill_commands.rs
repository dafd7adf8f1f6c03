//! `lab-drill NAME`: runs a drill in the lab and prints its verdict; every judgement is the `lab`
//! crate's.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lab::drill::{self, Drill, Setting};
use lab::{Archive, KernelId, LabError, Stream};

use crate::experiment_commands::build_tandem;

/// Shows on a real kernel that the scheduler survives and stays within bounds, and what shows it:
/// load, settings, idle, watch, kill, storm, steal, latency.
///
/// Ends with 1 when a check fails and with 70 when the lab itself could not run.
#[derive(Args)]
pub struct RunDrill {
    /// load, settings, idle, watch, kill, storm, steal, latency, or all.
    #[arg(required = true, value_parser = parse_name)]
    drills: Vec<Names>,
    /// Kernel to boot: newest, older, or an exact version such as 7.2.13+deb14.
    #[arg(long, default_value = "newest")]
    kernel: KernelId,
    /// Write the verdicts, a JSON array.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use this static binary instead of building one.
    #[arg(long, value_name = "FILE")]
    tandem: Option<PathBuf>,
    /// Show the guest's observations as they come.
    #[arg(long)]
    verbose: bool,
}

#[derive(Clone)]
enum Names {
    One(Drill),
    All,
}

fn parse_name(text: &str) -> Result<Names, String> {
    if text == "all" { Ok(Names::All) } else { text.parse().map(Names::One) }
}

/// Runs `cargo xtask lab-drill`.
pub fn run(args: &RunDrill) -> Result<ExitCode, LabError> {
    let tandem = args.tandem.clone().map_or_else(build_tandem, Ok)?;
    let setting = Setting { kernel: args.kernel.clone(), tandem, seed: args.seed };
    let archive = Archive::open()?;
    let mut show = |stream: Stream, text: &str| {
        if args.verbose && stream == Stream::Command {
            print!("{text}");
            std::io::stdout().flush().ok();
        }
    };
    let wanted = |names: &Names| match names {
        Names::One(drill) => vec![*drill],
        Names::All => Drill::ALL.to_vec(),
    };
    let mut verdicts = vec![];
    let mut passed = true;
    for drill in args.drills.iter().flat_map(wanted) {
        eprintln!("lab: drill {}, seed {}", drill.name(), args.seed);
        let report = drill::run(drill, &setting, &archive, &mut show)?;
        println!("{report}");
        if !report.passed() {
            passed = false;
            println!(
                "again: cargo xtask lab-drill {} --kernel {} --seed {}",
                drill.name(),
                args.kernel,
                args.seed
            );
        }
        verdicts.push(report.json());
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&verdicts).unwrap_or_default();
        std::fs::write(path, text).map_err(|e| LabError::io(path, "write the verdicts", e))?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
