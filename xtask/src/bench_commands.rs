//! `cargo xtask bench`: runs the bench of the simulator's speed, and records its figures where it
//! is asked to; the bench measures, this reads what it prints.

use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use lab::LabError;

use crate::history::{self, Row};
use crate::say::say;
use crate::tidy;

/// Measures the speed of the simulator, as 'cargo bench -p sim' does.
#[derive(Args)]
pub struct Bench {
    /// Append the figures to bench/history/bench-sim.jsonl.
    #[arg(long)]
    record: bool,
}

/// Runs `cargo xtask bench`.
///
/// # Errors
/// `LabError` when the bench does not run, prints no table, or the history cannot be written.
pub fn run(arguments: &Bench) -> Result<ExitCode, LabError> {
    let failed = |seen: String| {
        LabError::new("bench of the simulator", "run", seen, "run 'cargo bench -p sim' by hand")
    };
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let bench = Command::new(cargo)
        .args(["bench", "-p", "sim"])
        .current_dir(tidy::root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| failed(e.to_string()))?;
    let text = String::from_utf8_lossy(&bench.stdout);
    say!("{text}");
    if !bench.status.success() {
        return Err(failed(bench.status.to_string()));
    }
    let rows = rows(&text);
    if rows.is_empty() {
        return Err(failed("seen no row of figures".to_owned()));
    }
    if arguments.record {
        history::record(&tidy::root(), "bench-sim", "cargo xtask bench --record".into(), "", rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A row a host of the bench's table, with the columns of both oracles.
fn rows(text: &str) -> Vec<Row> {
    let mut out: Vec<Row> = vec![];
    let mut heads: Vec<&str> = vec![];
    for line in text.lines() {
        if line.trim_start().starts_with("pCPUs") {
            // Two headings are of two words; what follows the first one keeps its place by this.
            heads = line.split_whitespace().filter(|w| !["s/s", "KiB"].contains(w)).collect();
            continue;
        }
        let cells: Vec<&str> = line.split_whitespace().collect();
        let of =
            |head: &str| heads.iter().position(|h| *h == head).and_then(|i| cells.get(i)).copied();
        let (Some(pcpus), Some(vcpus), Some(oracle)) = (of("pCPUs"), of("vCPUs"), of("oracle"))
        else {
            continue;
        };
        let Ok(pcpus) = pcpus.parse::<u32>() else { continue };
        let name = format!("{pcpus} pCPUs, {vcpus} vCPUs");
        let at = out.iter().position(|r| r.row == name).unwrap_or_else(|| {
            out.push(Row::new(&name));
            out.len() - 1
        });
        for (head, column) in [
            ("events/s", format!("events/s oracle {oracle}")),
            ("ns/event", format!("ns/event oracle {oracle}")),
            ("calls/event", "calls/event".to_owned()),
            ("RSS", format!("resident KiB oracle {oracle}")),
        ] {
            if let Some(n) = of(head).and_then(|c| c.parse::<f64>().ok()) {
                out[at].number(column, n, 2);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_row_with_the_figures_of_both_oracles() {
        let mut t = views::Table::new(&[
            "pCPUs",
            "VMs",
            "vCPUs",
            "<oracle",
            "events",
            "events/s",
            "ns/event",
            "sim s/s",
            "calls/event",
            "RSS KiB",
        ]);
        t.row(["8", "20", "51", "off", "1000", "4100000", "246", "12.5", "3.30", "2464"]);
        t.row(["8", "20", "51", "on", "1000", "1400000", "700", "2.5", "3.30", "2470"]);
        let rows = rows(&t.text());
        assert_eq!((rows.len(), rows[0].row.as_str()), (1, "8 pCPUs, 51 vCPUs"));
        let figure = |name: &str| rows[0].figures.get(name).and_then(serde_json::Value::as_f64);
        assert_eq!(figure("events/s oracle off"), Some(4_100_000.0));
        assert_eq!(figure("ns/event oracle on"), Some(700.0));
        assert_eq!(figure("calls/event"), Some(3.3));
        assert_eq!(figure("resident KiB oracle off"), Some(2464.0));
    }
}
