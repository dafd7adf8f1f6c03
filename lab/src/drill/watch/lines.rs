//! Reads the lines of `tandem top --json`, one a sample, as a script would: VMs, vCPUs and their
//! states; it writes none.

use serde_json::Value;

use super::super::Report;
use super::{READING_MS, SAMPLES, VCPUS, VMS, none_wrong, row};

/// Checks all lines.
pub(super) fn judge(report: &mut Report, text: &str) {
    let count = text.lines().count();
    row(report, "top --json", format!("{count} lines, {} bytes", text.len()));
    let mut wrong: Vec<String> = text
        .lines()
        .enumerate()
        .flat_map(|(n, l)| line(l).into_iter().map(move |what| format!("line {}: {what}", n + 1)))
        .collect();
    if count != SAMPLES {
        wrong.push(format!("{count} lines"));
    }
    none_wrong(
        report,
        "top --json: a sample a line; both VMs, four vCPUs, states that sum to 100 %",
        &wrong,
        "nothing wrong",
    );
}

/// What is wrong with a line.
fn line(text: &str) -> Vec<String> {
    let Ok(sample) = serde_json::from_str::<Value>(text) else { return vec!["no JSON".to_owned()] };
    let all = |key: &str| sample[key].as_array().cloned().unwrap_or_default();
    let (groups, worlds) = (all("groups"), all("worlds"));
    let mut out = vec![];
    let interval = sample["interval_ms"].as_f64().unwrap_or(0.0);
    // A look that came late is followed by a short interval.
    if !(300.0..=3000.0).contains(&interval) {
        out.push(format!("an interval of {interval} ms"));
    }
    for vm in VMS {
        let group = groups.iter().find(|g| g["name"] == vm && g["kind"] == "vm");
        let of = |w: &&Value| w["kind"] == "vcpu" && group.is_some_and(|g| g["gid"] == w["gid"]);
        let vcpus: Vec<&Value> = worlds.iter().filter(of).collect();
        if vcpus.len() != VCPUS as usize {
            out.push(format!("{vm}: {} vCPUs", vcpus.len()));
        }
        for w in vcpus {
            let sum: f64 = ["run_pct", "ready_pct", "wait_pct", "costop_pct"]
                .iter()
                .filter_map(|k| w[*k].as_f64())
                .sum();
            if (sum - 100.0).abs() * interval / 100.0 > READING_MS {
                out.push(format!("{vm}, {}: states sum to {sum:.1} % of {interval} ms", w["name"]));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_both_vms_is_right_and_without_or_with_lost_time_is_not() {
        let vcpu = |gid: u32, run: f64| serde_json::json!({"gid": gid, "kind": "vcpu", "name": "vmx-vcpu-0", "run_pct": run, "ready_pct": 10.0, "wait_pct": 30.0, "costop_pct": 0.0});
        let sample = |run: f64, kind: &str| {
            let groups: Vec<Value> = VMS
                .iter()
                .enumerate()
                .map(|(i, vm)| serde_json::json!({"gid": i, "name": vm, "kind": kind}))
                .collect();
            let worlds: Vec<Value> = (0..4).map(|i| vcpu(i / 2, run)).collect();
            serde_json::json!({"interval_ms": 1000, "groups": groups, "worlds": worlds}).to_string()
        };
        assert!(line(&sample(60.0, "vm")).is_empty());
        assert_eq!(line(&sample(50.0, "vm")).len(), 4);
        assert_eq!(line(&sample(60.0, "pool")).len(), 2);
        assert_eq!(line("{"), ["no JSON"]);
    }
}
