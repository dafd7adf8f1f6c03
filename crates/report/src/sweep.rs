//! The runs as points of a chart: the numbers that vary from run to run and so may be its x axis;
//! the page computes y.

use crate::model::{Axis, RunView, Sweep};

/// Utilisation has to vary by this much, in percent points, to be the axis of its own accord.
const VARIES: f64 = 10.0;

/// Axes for these runs: utilisation, the number in their labels, their order.
pub(crate) fn sweep(runs: &[RunView]) -> Sweep {
    if runs.len() < 2 {
        return Sweep::default();
    }
    let used: Vec<f64> = runs.iter().map(used_percent).collect();
    let spread = used.iter().copied().fold(f64::MIN, f64::max)
        - used.iter().copied().fold(f64::MAX, f64::min);
    // Ready time against utilisation is RDY's figure 1. Where the host is as busy in every run, or
    // now more and now less, it says little.
    let rises = used.windows(2).all(|w| w[0] < w[1]) || used.windows(2).all(|w| w[0] > w[1]);
    let by_use = spread >= VARIES && rises && runs.len() > 2;
    let mut axes = vec![Axis { name: "host used".to_owned(), unit: "%", values: used }];
    let labels: Vec<&str> = runs.iter().map(|r| r.result.label.as_str()).collect();
    axes.extend(numbered(&labels));
    axes.push(Axis {
        name: "run".to_owned(),
        unit: "",
        values: (1..=runs.len()).map(|i| i as f64).collect(),
    });
    Sweep { best: usize::from(!by_use), y: if by_use { "ready" } else { "used" }, axes }
}

/// CPU time used on the host, in percent of all its pCPUs.
fn used_percent(run: &RunView) -> f64 {
    let r = &run.result;
    let used: u64 = r.vms.iter().map(|v| v.times.used_ns).sum();
    let whole = r.duration_ns as f64 * r.host.pcpus as f64;
    if whole > 0.0 { used as f64 * 100.0 / whole } else { 0.0 }
}

/// The one number that all labels have, where all else in them is the same but for a plural.
fn numbered(labels: &[&str]) -> Option<Axis> {
    let parts: Vec<(String, f64, String)> =
        labels.iter().map(|l| split(l)).collect::<Option<_>>()?;
    let plain = |p: &(String, f64, String)| (p.0.clone(), p.2.trim_end_matches('s').to_owned());
    let first = parts.first().map(plain)?;
    let distinct = parts.windows(2).any(|w| w[0].1 != w[1].1);
    (distinct && parts.iter().all(|p| plain(p) == first)).then(|| {
        let name = [first.0.trim(), parts[parts.len() - 1].2.trim()].join(" ").trim().to_owned();
        let name = if name.is_empty() { "label".to_owned() } else { name };
        Axis { name, unit: "", values: parts.iter().map(|p| p.1).collect() }
    })
}

/// A label as what is before its only number, the number, and what is behind it.
fn split(label: &str) -> Option<(String, f64, String)> {
    let digit = |c: char| c.is_ascii_digit() || c == '.';
    let from = label.find(|c: char| c.is_ascii_digit())?;
    let to = label[from..].find(|c| !digit(c)).map_or(label.len(), |n| from + n);
    let rest = &label[to..];
    let number = label[from..to].parse().ok()?;
    (!rest.contains(|c: char| c.is_ascii_digit()))
        .then(|| (label[..from].to_owned(), number, rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_differ_by_one_number_are_an_axis() {
        let axis = numbered(&["1 VM", "2 VMs", "8 VMs"]).unwrap();
        assert_eq!((axis.name.as_str(), axis.values), ("VMs", vec![1.0, 2.0, 8.0]));
        assert_eq!(numbered(&["limit 100 %", "limit 37.5 %"]).unwrap().values, [100.0, 37.5]);
    }

    #[test]
    fn other_labels_are_none() {
        assert!(numbered(&["1:7", "2:6"]).is_none(), "two numbers");
        assert!(numbered(&["1 VM", "limit 2"]).is_none(), "other words");
        assert!(
            numbered(&["", ""]).is_none()
                && numbered(&["3", "3"]).is_none()
                && numbered(&[]).is_none()
        );
    }
}
