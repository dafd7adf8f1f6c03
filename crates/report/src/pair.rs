//! Puts documents and traces together: which trace belongs to which run, by VMs or as the arguments
//! say; where two would fit it refuses.

use crate::source::Source;
use std::collections::BTreeSet;
use trace::{Kind, Trace};
use units::VmId;
use views::{Document, RunResult};

/// A RUN of the command line: files that belong together, perhaps with a label.
#[derive(Debug)]
pub struct Given {
    /// What to call it, if that was said.
    pub label: Option<String>,
    /// Files by name, and what they hold.
    pub files: Vec<(String, Source)>,
}

/// One run of the page.
#[derive(Debug, Default)]
pub struct Run {
    /// What the user calls it.
    pub label: Option<String>,
    /// Files that it comes from.
    pub files: Vec<String>,
    /// Its document (without the other runs of it) and its result.
    pub document: Option<(Document, RunResult)>,
    /// Its trace.
    pub trace: Option<Trace>,
}

/// Why files cannot be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// A trace fits several runs.
    #[error(
        "{trace}: cannot tell whose trace it is: seen {runs} runs with its VMs, allowed one; \
            choose a run by --run, or give both as RUN.json,{trace}"
    )]
    Ambiguous {
        /// File of the trace.
        trace: String,
        /// How many fit.
        runs: usize,
    },
    /// Two traces, or several runs and a trace, were given as one.
    #[error(
        "{files}: cannot put them together: seen {seen}, allowed one run and one trace; choose a \
            run by --run, or give them apart"
    )]
    TooMany {
        /// The files.
        files: String,
        /// What was seen.
        seen: String,
    },
    /// No run has the label that was asked for.
    #[error("--run {label}: cannot find it: {seen}")]
    NoSuchRun {
        /// The label.
        label: String,
        /// Labels that there are.
        seen: String,
    },
}

/// Runs in the order in which they were given. `only` leaves the runs of these labels; empty is
/// all.
///
/// Files given as one RUN belong together. A trace given alone belongs to the one run that has the
/// same VMs and no trace yet; of several, to the one whose file has its name but for the ending; if
/// none has its VMs, it is a run of its own.
///
/// # Errors
/// `PairError` where that is unknown.
pub fn pair(given: Vec<Given>, only: &[String]) -> Result<Vec<Run>, PairError> {
    known_labels(&given, only)?;
    let (mut runs, mut alone) = (vec![], vec![]);
    for one in given {
        let only_traces = one.files.iter().all(|f| matches!(f.1, Source::Trace(_)));
        if only_traces && one.label.is_none() && one.files.len() == 1 {
            alone.push((runs.len(), one));
            continue;
        }
        runs.extend(together(one, only)?);
    }
    let mut inserted = 0;
    for (at, one) in alone {
        for (name, source) in one.files {
            let Source::Trace(trace) = source else { continue };
            match owner(&runs, &name, &trace)? {
                Some(i) => {
                    runs[i].files.push(name);
                    runs[i].trace = Some(*trace);
                }
                None => {
                    runs.insert(
                        at + inserted,
                        Run { files: vec![name], trace: Some(*trace), ..Run::default() },
                    );
                    inserted += 1;
                }
            }
        }
    }
    Ok(runs)
}

fn documents(given: &[Given]) -> impl Iterator<Item = &Document> {
    given.iter().flat_map(|g| &g.files).flat_map(|f| match &f.1 {
        Source::Documents(d) => d.as_slice(),
        Source::Trace(_) => &[],
    })
}

fn known_labels(given: &[Given], only: &[String]) -> Result<(), PairError> {
    let labels: Vec<&str> =
        documents(given).flat_map(|d| &d.runs).map(|r| r.label.as_str()).collect();
    match only.iter().find(|o| !labels.contains(&o.as_str())) {
        None => Ok(()),
        Some(label) => {
            let named: BTreeSet<String> =
                labels.iter().filter(|l| !l.is_empty()).map(|l| format!("'{l}'")).collect();
            let seen = if named.is_empty() {
                "seen no run with a label; leave --run out".to_owned()
            } else {
                format!("allowed {}", named.into_iter().collect::<Vec<_>>().join(", "))
            };
            Err(PairError::NoSuchRun { label: label.clone(), seen })
        }
    }
}

/// Runs of files that were given as one.
fn together(given: Given, only: &[String]) -> Result<Vec<Run>, PairError> {
    let names: Vec<String> = given.files.iter().map(|f| f.0.clone()).collect();
    let (mut runs, mut traces) = (vec![], vec![]);
    for (name, source) in given.files {
        match source {
            Source::Trace(t) => traces.push((name, t)),
            Source::Documents(all) => {
                for mut document in all {
                    for result in std::mem::take(&mut document.runs) {
                        if only.is_empty() || only.contains(&result.label) {
                            let document = Some((document.clone(), result));
                            runs.push(Run {
                                label: given.label.clone(),
                                files: vec![name.clone()],
                                document,
                                trace: None,
                            });
                        }
                    }
                }
            }
        }
    }
    if traces.len() > 1 || !traces.is_empty() && runs.len() > 1 {
        let seen = format!("{} runs and {} traces", runs.len(), traces.len());
        return Err(PairError::TooMany { files: names.join(","), seen });
    }
    if let Some((name, trace)) = traces.pop() {
        if runs.is_empty() {
            runs.push(Run { label: given.label, ..Run::default() });
        }
        runs[0].files.push(name);
        runs[0].trace = Some(*trace);
    }
    Ok(runs)
}

/// VMs by name, without the host's own tasks.
fn vms(trace: &Trace) -> BTreeSet<&str> {
    let name = |kind| match kind {
        &Kind::Vm { vm, ref name, .. } if vm != VmId::SYSTEM => Some(name.as_str()),
        _ => None,
    };
    trace.events.iter().filter_map(|e| name(&e.kind)).collect()
}

/// The run that a trace belongs to; none if it is a run of its own.
fn owner(runs: &[Run], name: &str, trace: &Trace) -> Result<Option<usize>, PairError> {
    let own = vms(trace);
    let same = |r: &Run| {
        let result = r.document.as_ref().map(|d| &d.1);
        result.is_some_and(|r| {
            r.vms.iter().filter(|v| v.vcpus > 0).map(|v| v.name.as_str()).collect::<BTreeSet<_>>()
                == own
        })
    };
    let fits: Vec<usize> = runs
        .iter()
        .enumerate()
        .filter(|(_, r)| r.trace.is_none() && same(r))
        .map(|(i, _)| i)
        .collect();
    let named: Vec<usize> = fits
        .iter()
        .copied()
        .filter(|i| runs[*i].files.iter().any(|f| stem(f) == stem(name)))
        .collect();
    match (fits.as_slice(), named.as_slice()) {
        ([], _) => Ok(None),
        ([one], _) | (_, [one]) => Ok(Some(*one)),
        _ => Err(PairError::Ambiguous { trace: name.to_owned(), runs: fits.len() }),
    }
}

/// A path without its last ending.
fn stem(path: &str) -> &str {
    let file = path.rfind('/').map_or(0, |at| at + 1);
    path[file..].rfind('.').map_or(path, |at| &path[..file + at])
}
