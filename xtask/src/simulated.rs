//! `cargo xtask simulated`: renews figures of documents that need the simulator alone: shares under
//! every policy, and what gaming a share gains. It boots nothing and judges nothing.

use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};
use lab::LabError;
use serde_json::Value;
use settings::Run;
use sim::{Options, Peer, Policy};
use units::Shares;
use views::{RunResult, Times};

use crate::experiment_commands::load;
use crate::history::{self, Row};
use crate::say::sayln;
use crate::tidy;

/// Measures in the simulator what tables of the documents are made from.
#[derive(Args)]
pub struct Simulated {
    /// What to measure; all of it if left out.
    what: Vec<What>,
    /// Append the figures to bench/history, from which 'cargo xtask measured' renews the tables.
    #[arg(long)]
    record: bool,
}

/// A history of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Two VMs with shares of 1:7 to 7:1 under every policy.
    Policies,
    /// What a VM gains that sleeps, spins and wakes at moments of its choice.
    Gaming,
    /// Ready time beside one to six burners of 15 % on one pCPU.
    Ready,
    /// A limit that sleepers use by half, and one that they use whole beside burners.
    Sleepers,
}

/// The scenario of `What::Policies`, and how its ratios are rounded.
const SHARES: &str = "shares-ratio";
const DECIMALS: u32 = 3;
/// Row of the ratios that the shares are.
const IDEAL: &str = "by the shares";

/// Random ways that `What::Gaming` tries.
const SEEDS: u32 = 40;
/// Its tests: beside others, and below a limit; and its columns, as the tests print the first four.
const TESTS: [&str; 2] = [
    "gaming::no_way_to_compute_and_sleep_gains_cpu_time",
    "gaming::no_way_to_compute_and_sleep_exceeds_a_limit",
];
const HOSTS: [&str; 4] = [
    "1 of 8 vCPUs, 4 pCPUs",
    "4 of 8, 4 pCPUs",
    "4 of 16, 8 pCPUs in 2 LLCs",
    "2 of 32, 16 threads in 2 sockets",
];
const LIMITED: &str = "below a limit, most of the four";

/// Runs `cargo xtask simulated`.
///
/// # Errors
/// `LabError` when a scenario or test does not run, or the history cannot be written.
pub fn run(arguments: &Simulated) -> Result<ExitCode, LabError> {
    let all = Some(&arguments.what[..]).filter(|w| !w.is_empty()).unwrap_or(What::value_variants());
    for what in all {
        let (word, name, rows) = match what {
            What::Policies => ("policies", "policies", policies()?),
            What::Gaming => ("gaming", "gaming", gaming()?),
            What::Ready => ("ready", "ready-vs-util-600s", ready()?),
            What::Sleepers => ("sleepers", "limit-sleepers", sleepers()?),
        };
        for row in &rows {
            let figures: Vec<String> =
                row.figures.iter().map(|(k, v)| format!("{k}: {v}")).collect();
            sayln!("{}: {}", row.row, figures.join("; "));
        }
        if arguments.record {
            let command = format!("cargo xtask simulated {word}");
            history::record(&tidy::root(), name, command, "", rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// CPU time of the first of two VMs by that of the second, by policy; a policy that refuses the
/// scenario has no row.
fn policies() -> Result<Vec<Row>, LabError> {
    let scenario = load(SHARES)?;
    let mut ideal = Row::new(IDEAL);
    for run in &scenario.runs {
        let shares = |i: usize| run.spec.vms[i].shares.resolve(run.spec.vms[i].vcpus);
        let ratio = |a: Shares, b: Shares| f64::from(a.get()) / f64::from(b.get());
        let ratio = shares(0).and_then(|a| Ok(ratio(a, shares(1)?)));
        ideal.number(&run.label, ratio.map_err(|e| failed(SHARES, e))?, DECIMALS);
    }
    let mut rows = vec![ideal];
    let peers = Peer::ALL.into_iter().map(|peer| Policy::Peer(peer, None));
    for policy in [Policy::Tandem].into_iter().chain(peers) {
        let options = Options { policy, check: false, ..Options::default() };
        let mut row = Row::new(format!("`{policy}`"));
        for run in &scenario.runs {
            match sim::run(run, &options) {
                Ok(out) => {
                    let used = |i: usize| out.result.vms[i].times.used_ns as f64;
                    row.number(&run.label, used(0) / used(1), DECIMALS);
                }
                Err(sim::SimError::Unsupported { .. }) => break,
                Err(e) => return Err(failed(SHARES, e.to_string())),
            }
        }
        if !row.figures.is_empty() {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Use of the pCPU and ready time, run by run, of the scenario's own length.
fn ready() -> Result<Vec<Row>, LabError> {
    each_run("ready-vs-util", |run, result, row| {
        let all =
            |part: fn(&Times) -> u64| result.vms.iter().map(|vm| part(&vm.times)).sum::<u64>();
        row.number("used", percent(all(|t| t.used_ns), result.duration_ns), 1);
        row.number("ready", seconds(all(|t| t.ready_ns)), 0);
        // The first so many VMs burn, as the label says.
        let burners = result.vms.iter().take(run.label.parse().unwrap_or(0));
        row.number("burners", seconds(burners.map(|vm| vm.times.ready_ns).sum()), 0);
    })
}

/// Ready time of the sleepers, and how far their pool's limit and the burners' part are used.
fn sleepers() -> Result<Vec<Row>, LabError> {
    each_run("limit-sleepers", |_, result, row| {
        let (sleepers, burners): (Vec<_>, Vec<_>) =
            result.vms.iter().partition(|vm| vm.name != "burner");
        let ready = sleepers.iter().map(|vm| vm.times.ready_ns).sum();
        row.number("sleepers ready_s", seconds(ready), 2);
        for pool in result.pools.iter().filter(|p| p.path == "/pool") {
            row.number("pool", percent(pool.used_ns, pool.entitled_ns), 2);
        }
        for vm in burners.into_iter().filter(|vm| vm.times.used_ns > 0) {
            row.number("burners", percent(vm.times.used_ns, vm.times.entitled_ns), 2);
        }
    })
}

/// A row a run of a scenario under Tandem.
fn each_run(name: &str, fill: impl Fn(&Run, &RunResult, &mut Row)) -> Result<Vec<Row>, LabError> {
    let row = |run: &Run| {
        let out = sim::run(run, &Options::default()).map_err(|e| failed(name, e.to_string()))?;
        let mut row = Row::new(&run.label);
        fill(run, &out.result, &mut row);
        Ok(row)
    };
    load(name)?.runs.iter().map(row).collect()
}

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of as f64
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// What each way gains, on four hosts and below a limit, and the most of the random ways.
fn gaming() -> Result<Vec<Row>, LabError> {
    let (mut rows, mut random) = (vec![], Row::new(format!("the most of {SEEDS} that are drawn")));
    let [beside, limited] = TESTS.map(gains);
    for ((way, beside), (_, limited)) in beside?.into_iter().zip(limited?) {
        let most = limited.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let gains = HOSTS.into_iter().zip(beside).chain([(LIMITED, most)]);
        if way.starts_with("drawn ") {
            for (host, gain) in gains {
                let before = random.figures.get(host).and_then(Value::as_f64);
                random.number(host, before.unwrap_or(gain).max(gain), 1);
            }
        } else {
            let mut row = Row::new(way);
            gains.for_each(|(host, gain)| row.number(host, gain, 1));
            rows.push(row);
        }
    }
    rows.push(random);
    Ok(rows)
}

/// The table that a test of gaming prints: each way, and its gains in percent.
fn gains(test: &str) -> Result<Vec<(String, Vec<f64>)>, LabError> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let words = ["test", "--profile", "ci", "-q", "-p", "sim", "--test", "all", "--", "--exact"];
    let out = Command::new(cargo)
        .args(words)
        .args([test, "--nocapture"])
        .env("SEEDS", SEEDS.to_string())
        .current_dir(tidy::root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| failed(test, e.to_string()))?;
    let rows = table(&String::from_utf8_lossy(&out.stdout));
    match (out.status.success(), rows.is_empty()) {
        (false, _) => Err(failed(test, out.status.to_string())),
        (true, true) => Err(failed(test, "seen no table".to_owned())),
        (true, false) => Ok(rows),
    }
}

/// Rows of a table of percentages; other lines are passed over.
fn table(text: &str) -> Vec<(String, Vec<f64>)> {
    let row = |line: &str| {
        let mut cells = line.trim().strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let way = cells.next()?.to_owned();
        let numbers: Result<Vec<f64>, _> =
            cells.map(|c| c.trim_end_matches(" %").parse::<f64>()).collect();
        Some((way, numbers.ok().filter(|n| !n.is_empty())?))
    };
    text.lines().filter_map(row).collect()
}

fn failed(what: &str, seen: String) -> LabError {
    LabError::new(what, "measure in the simulator", seen, "run it by hand")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_a_test_is_read_whatever_stands_around_it() {
        let text = "\nrunning 1 test\n| sleeps, 5 ms | -0.3 % | +0.2 % |\n| drawn 0 | +1.0 % | \
            -0.0 % |\ntest gaming ... ok | 1 |\n| way | none |\n";
        let seen = table(text);
        assert_eq!(seen[0], ("sleeps, 5 ms".to_owned(), vec![-0.3, 0.2]));
        assert_eq!((seen.len(), seen[1].0.as_str()), (2, "drawn 0"));
    }
}
