//! `lab-drill NAME`: runs a drill in the lab and prints its verdict; every judgement is the `lab`
//! crate's.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lab::drill::{self, Drill, Setting};
use lab::{Archive, KernelId, LabError, Stream};

use crate::experiment_commands::build_tandem;
use crate::say::{say, sayln};
use crate::{figures, history, tidy, witness};

/// Shows on a real kernel that the scheduler survives and stays within bounds, and what shows it:
/// load, settings, idle, watch, kill, eject, storm, steal, smp, latency, forks, tenant, big,
/// changes, realtime, locks, homes, vnuma, guests, cores.
///
/// Ends with 1 when a check fails and with 70 when the lab itself could not run.
#[derive(Args)]
pub struct RunDrill {
    /// load, settings, idle, watch, kill, eject, storm, steal, smp, latency, forks, tenant,
    /// big, changes, realtime, locks, homes, vnuma, guests, cores, or all.
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
    /// How often drills 'kill' and 'eject' end the daemon.
    #[arg(long, value_name = "N", default_value_t = drill::CYCLES, value_parser = count)]
    cycles: usize,
    /// How often drills 'latency' and 'guests' measure under each scheduler.
    #[arg(long, value_name = "N", default_value_t = drill::ROUNDS, value_parser = count)]
    rounds: usize,
    /// Drill 'homes': two VMs on two nodes, under Tandem alone.
    #[arg(long)]
    brief: bool,
    /// Append the figures of drills that passed to bench/history/drill-NAME.jsonl.
    #[arg(long)]
    record: bool,
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

/// A number of repetitions: at 200 a drill takes some hours.
fn count(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=200).contains(n));
    n.ok_or_else(|| "allowed 1..200".to_owned())
}

/// Runs `cargo xtask lab-drill`.
pub fn run(args: &RunDrill) -> Result<ExitCode, LabError> {
    let tandem = args.tandem.clone().map_or_else(build_tandem, Ok)?;
    let setting = Setting {
        kernel: args.kernel.clone(),
        tandem,
        seed: args.seed,
        cycles: args.cycles,
        rounds: args.rounds,
        brief: args.brief,
    };
    let archive = Archive::open()?;
    let mut show = |stream: Stream, text: &str| {
        if args.verbose && stream == Stream::Command {
            say!("{text}");
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
        sayln!("{report}");
        // Without measurements there is nothing that the simulator could be given.
        let beside = match drill {
            Drill::Guests if !report.rows.is_empty() => witness::rows(&report)?,
            _ => vec![],
        };
        if !beside.is_empty() {
            witness::print(&beside);
        }
        let again = format!(
            "cargo xtask lab-drill {} --kernel {} --seed {}{}",
            drill.name(),
            args.kernel,
            args.seed,
            repetitions(drill, &setting)
        );
        if !report.passed() {
            passed = false;
            sayln!("again: {again}");
        } else if args.record {
            let name = format!("drill-{}", drill.name());
            let rows = [figures::of_drill(&report), beside.clone()].concat();
            history::record(&tidy::root(), &name, again, &report.kernel, rows)?;
        }
        let mut verdict = report.json();
        if !beside.is_empty() {
            verdict["beside"] = serde_json::json!(beside);
        }
        verdicts.push(verdict);
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&verdicts).unwrap_or_default();
        std::fs::write(path, text).map_err(|e| LabError::io(path, "write the verdicts", e))?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The option that repeats a drill as often as it was.
fn repetitions(drill: Drill, setting: &Setting) -> String {
    match drill {
        Drill::Kill | Drill::Eject if setting.cycles != drill::CYCLES => {
            format!(" --cycles {}", setting.cycles)
        }
        Drill::Latency | Drill::Guests if setting.rounds != drill::ROUNDS => {
            format!(" --rounds {}", setting.rounds)
        }
        Drill::Homes if setting.brief => " --brief".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_counts_from_1_to_200_and_said_where_they_are_not_the_usual() {
        assert_eq!((count("1"), count("200")), (Ok(1), Ok(200)));
        for wrong in ["0", "201", "-1", "six"] {
            assert_eq!(count(wrong), Err("allowed 1..200".to_owned()), "{wrong}");
        }
        let setting = |cycles, rounds| Setting {
            kernel: KernelId::Newest,
            tandem: PathBuf::new(),
            seed: 1,
            cycles,
            rounds,
            brief: cycles == 6,
        };
        assert_eq!(repetitions(Drill::Homes, &setting(6, 5)), " --brief");
        assert_eq!(repetitions(Drill::Homes, &setting(20, 5)), "");
        assert_eq!(repetitions(Drill::Kill, &setting(6, 5)), " --cycles 6");
        assert_eq!(repetitions(Drill::Latency, &setting(20, 3)), " --rounds 3");
        assert_eq!(repetitions(Drill::Kill, &setting(20, 3)), "");
        assert_eq!(repetitions(Drill::Watch, &setting(6, 3)), "");
    }
}
