//! What is said of the runs of a scenario: names of runs, and why one could not be done.

use crate::{Exit, Failure};
use settings::Scenario;
use sim::SimError;

/// What a message calls a run: by its label, else by its scenario, of which it is the only one.
pub(crate) fn titled(scenario: &str, label: &str) -> String {
    if label.is_empty() { format!("scenario {scenario}") } else { format!("run '{label}'") }
}

/// There is no run of that label: those that there are.
pub(crate) fn not_found(scenario: &Scenario, label: &str) -> Failure {
    let labels: Vec<String> = scenario.runs.iter().map(|r| format!("'{}'", r.label)).collect();
    let there = match &scenario.runs[..] {
        [one] if one.label.is_empty() => {
            "seen one run, without a label; leave --run out".to_owned()
        }
        _ => format!("allowed {}", labels.join(", ")),
    };
    let text = format!("scenario {}: cannot find run '{label}': {there}", scenario.name);
    Failure::new(Exit::Input, anyhow::anyhow!(text))
}

/// A seed of the command line.
///
/// # Errors
/// What is allowed, for what is none.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("allowed a whole number of 0..{}", u64::MAX))
}

/// The code with which a run's error ends the command.
pub(crate) fn exit_of(e: &SimError) -> Exit {
    match e {
        SimError::Contract { .. } => Exit::Check,
        SimError::Trace { .. } => Exit::Other,
        _ => Exit::Input,
    }
}

/// The failure that an error of a run of `scenario` is.
pub(crate) fn failure(scenario: &str, e: &SimError) -> Failure {
    Failure::new(exit_of(e), anyhow::anyhow!(text(scenario, e)))
}

/// The error in words.
pub(crate) fn text(scenario: &str, e: &SimError) -> String {
    if let SimError::Unsupported { label, policy, missing } = e {
        let (missing, by_knobs) = (together(missing), missing.iter().any(|m| is_of_knobs(m)));
        let what = format!("cannot run it with policy {policy}, which has no {missing}");
        let others = missing.contains(", no ") || !by_knobs;
        let next = match (by_knobs, others) {
            (true, false) => "leave out --set",
            (true, true) => "leave out --set and take the rest out of the scenario",
            _ => "take that out of the scenario",
        };
        return format!("{}: {what}; run it with tandem, or {next}", titled(scenario, label));
    }
    let text = e.to_string();
    match text.strip_prefix("run ''") {
        Some(rest) => titled(scenario, "") + rest,
        None => text,
    }
}

/// Whether a missing feature is that of knobs; a scenario's own are left out instead.
fn is_of_knobs(missing: &str) -> bool {
    missing.starts_with("knobs (")
}

/// Each feature once, as `FEATURE (what asks for it, …)`.
fn together(missing: &[String]) -> String {
    let mut features: Vec<(&str, Vec<&str>)> = vec![];
    for one in missing {
        let (feature, by) = one.split_once(" (").unwrap_or((one, ""));
        let by = by.strip_suffix(')').unwrap_or(by);
        match features.iter_mut().find(|f| f.0 == feature) {
            Some((_, all)) => all.push(by),
            None => features.push((feature, vec![by])),
        }
    }
    let said = |(feature, by): &(&str, Vec<&str>)| format!("{feature} ({})", by.join(", "));
    features.iter().map(said).collect::<Vec<_>>().join(", no ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsupported(label: &str, missing: &[&str]) -> String {
        let missing = missing.iter().map(|m| (*m).to_owned()).collect();
        let (label, policy) = (label.to_owned(), "cfs".to_owned());
        text("smoke", &SimError::Unsupported { label, policy, missing })
    }

    #[test]
    fn a_missing_feature_is_said_once_with_all_that_asks_for_it_and_its_remedy() {
        assert_eq!(
            unsupported("", &["knobs ('costop_us')", "knobs ('quantum_us')"]),
            "scenario smoke: cannot run it with policy cfs, which has no knobs ('costop_us', \
             'quantum_us'); run it with tandem, or leave out --set"
        );
        assert_eq!(
            unsupported("x", &["pools (pool 'a')", "shares (VM 'v')", "pools (pool 'b')"]),
            "run 'x': cannot run it with policy cfs, which has no pools (pool 'a', pool 'b'), no \
             shares (VM 'v'); run it with tandem, or take that out of the scenario"
        );
        let both = unsupported("x", &["limits (VM 'v')", "knobs ('quantum_us')"]);
        let next = "or leave out --set and take the rest out of the scenario";
        assert!(both.ends_with(next), "{both}");
    }

    #[test]
    fn a_run_without_a_label_has_its_scenarios_name() {
        let [duration, warmup] = [units::Span::from_secs(1), units::Span::from_secs(2)];
        let of = |label: &str| SimError::Duration { label: label.to_owned(), duration, warmup };
        let said = "cannot measure 1s: allowed more than the warm-up of 2s";
        assert_eq!(text("smoke", &of("")), format!("scenario smoke: {said}"));
        assert_eq!(text("smoke", &of("x")), format!("run 'x': {said}"));
    }
}
