//! Reads what the endpoint and `tandem metrics` wrote, by the rules of OpenMetrics, and compares
//! one scrape with the next; it knows no daemon.

use std::collections::BTreeMap;

use metrics::METRICS;
use metrics::strict::{self, Family};

use super::super::{Report, unreadable};
use super::{VMS, none_wrong, row};
use crate::boot::BootOutcome;
use crate::error::Result;

pub(super) type Families = BTreeMap<String, Family>;

const STATES: &str = "tandem_vm_state_seconds";

/// Checks all that was scraped; gives back the scrapes before and after the recording.
pub(super) fn judge(report: &mut Report, outcome: &BootOutcome) -> Result<[Families; 2]> {
    let read = |name: &str| strict::read(&outcome.file(name)?).map_err(|e| unreadable(name, e));
    let (first, printed, before, after) =
        (read("scrape-1.txt")?, read("metrics.txt")?, read("scrape-2.txt")?, read("scrape-3.txt")?);
    let samples: usize = first.values().map(|f| f.samples.len()).sum();
    row(report, "endpoint", format!("{} families, {samples} samples", first.len()));
    let mut wrong = vec![];
    for (name, families) in [("scrape-1.txt", &first), ("metrics.txt", &printed)] {
        wrong.extend(lacking(families).into_iter().map(|what| format!("{name}: {what}")));
    }
    wrong.extend(falling(&first, &printed));
    wrong.extend(falling(&printed, &before));
    wrong.extend(falling(&before, &after));
    let plain = outcome.file("plain.txt")?;
    if plain.contains("# EOF") || !plain.contains("# TYPE tandem_vm_used_seconds_total counter") {
        wrong.push("plain.txt is not Prometheus' own text format".to_owned());
    }
    none_wrong(
        report,
        "endpoint and 'tandem metrics', read strictly: families, VMs, counters that only grow",
        &wrong,
        "nothing wrong",
    );
    Ok([before, after])
}

/// What a text lacks of a host with these VMs.
fn lacking(families: &Families) -> Vec<String> {
    let declared = METRICS.iter().map(|d| d.name);
    let unknown = families
        .keys()
        .filter(|f| !declared.clone().any(|d| d == f.as_str()))
        .map(|f| format!("{f} is not declared"));
    let mut out: Vec<String> = unknown.collect();
    let value = |name: &str| families.get(name).and_then(|f| f.of(&[]).next());
    if value("tandem_scheduler_loaded") != Some(1.0)
        || value("tandem_host_vms") != Some(VMS.len() as f64)
    {
        out.push("not loaded, or another number of VMs".to_owned());
    }
    if value("tandem_assertion_failures") != Some(0.0) {
        out.push("assertions failed, or are not told".to_owned());
    }
    for vm in VMS {
        for name in ["tandem_vm_used_seconds", "tandem_vm_shares", "tandem_vm_vcpus", STATES] {
            if families.get(name).is_none_or(|f| f.of(&[("vm", vm)]).next().is_none()) {
                out.push(format!("no {name} of {vm}"));
            }
        }
    }
    out
}

/// Counters that are less than before, or gone.
fn falling(before: &Families, after: &Families) -> Vec<String> {
    let mut out = vec![];
    for (name, family) in before.iter().filter(|f| f.1.kind == "counter") {
        for (labels, value) in &family.samples {
            let later = after.get(name).and_then(|f| f.samples.iter().find(|s| s.0 == *labels));
            let number = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
            if !later.is_some_and(|s| number(&s.1) >= number(value)) {
                out.push(format!("{name} {labels:?}: {value}, then {:?}", later.map(|s| &s.1)));
            }
        }
    }
    out
}

/// Seconds that a VM's worlds were in a state between two scrapes.
pub(super) fn seconds(vm: &str, state: &str, [before, after]: &[Families; 2]) -> f64 {
    let of = |f: &Families| {
        f.get(STATES).map_or(0.0, |f| f.of(&[("vm", vm), ("state", state)]).sum::<f64>())
    };
    of(after) - of(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(used: &str) -> Families {
        let text = format!(
            "# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{{vm=\"busy\"}} \
                {used}\n# EOF\n"
        );
        strict::read(&text).unwrap()
    }

    #[test]
    fn a_counter_that_falls_or_goes_is_told() {
        assert!(falling(&told("1.5"), &told("1.5")).is_empty());
        assert_eq!(falling(&told("1.5"), &told("1.4")).len(), 1);
        assert_eq!(falling(&told("1.5"), &Families::new()).len(), 1);
    }

    #[test]
    fn a_host_without_vms_lacks_them_and_unknown_families_are_told() {
        let seen = lacking(&told("1"));
        assert!(
            seen.contains(&"a_seconds is not declared".to_owned())
                && seen.contains(&"no tandem_vm_shares of beat".to_owned()),
            "{seen:?}"
        );
    }
}
