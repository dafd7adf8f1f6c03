//! What a document has published of a scenario, and what of the scenario's results is to be held
//! against it: `[[published]]` tables.

use crate::Run;
use serde::{Deserialize, Serialize};

/// A published figure, or a point of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Document and figure or table, such as "VS51 figure 9"; points of one figure have the same.
    pub figure: String,
    /// Page of the document, or the title of its section or slide where the document has no pages.
    pub page: String,
    /// What this point is, in a few words.
    pub what: String,
    /// The published number; left out where the document has words only.
    pub value: Option<f64>,
    /// The document's words; required where it has no number.
    pub says: Option<String>,
    /// Least and most that reproduce it.
    pub allowed: [f64; 2],
    /// Unit of all three.
    #[serde(default)]
    pub unit: String,
    /// The number to hold against it.
    pub measure: Measure,
    /// Policies whose number is shown beside it and held against nothing.
    #[serde(default)]
    pub beside: Vec<String>,
}

/// Why runs do less work under Tandem than under other policies: a `[[less_work]]` table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LessWork {
    /// The policies, by name or by its beginning with `*`.
    pub policies: Vec<String>,
    /// The runs, each by label or by its beginning with `*`.
    pub runs: Vec<String>,
    /// The reason, in a sentence.
    pub why: String,
}

/// A number from the results of a scenario's runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// What is measured.
    pub of: Quantity,
    /// VMs by name, or by the beginning of their names with `*`; all VMs if left out.
    #[serde(default)]
    pub vm: Vec<String>,
    /// Label of the run; the only one if left out. For `crossing` what follows the number in the
    /// labels of the runs.
    #[serde(default)]
    pub run: String,
    /// The policy; `tandem` if left out.
    #[serde(default = "tandem")]
    pub policy: String,
    /// What becomes of the number.
    #[serde(default, rename = "as")]
    pub form: Form,
    /// What it is held against; required for `gain`, `cells` and `most`.
    pub over: Option<Over>,
    /// The quantity's value that is crossed in the form `crossing`; the least gain in the form
    /// `cells`.
    pub at: Option<f64>,
}

/// The other number of a ratio; what is left out is as in the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Over {
    /// What is measured.
    pub of: Option<Quantity>,
    /// VMs.
    pub vm: Option<Vec<String>>,
    /// Label of the run.
    pub run: Option<String>,
    /// The policy.
    pub policy: Option<String>,
}

fn tandem() -> String {
    "tandem".to_owned()
}

/// What of a run's result is measured, summed over the VMs unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Work, in s.
    Work,
    /// CPU time used, in s.
    Used,
    /// Ready time, in s.
    Ready,
    /// CPU time used, in percent of one pCPU.
    UsedPercent,
    /// CPU time used, in percent of the host's pCPUs.
    HostPercent,
    /// CPU time used, in percent of the entitlement.
    EntitledPercent,
    /// What an operation takes of what it takes alone.
    Slowdown,
    /// Moves between hardware threads of a core, in a second.
    TwinMoves,
    /// The least wake-up latency, in us.
    WakeMin,
    /// Its mean.
    WakeMean,
    /// The most.
    WakeMax,
    /// Rounds that guests did, in a second: execs, requests, hand-overs.
    RoundsRate,
    /// Wake-ups that waited behind another world, in percent.
    Waited,
}

/// What becomes of a measured number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// It is taken as it is; by `over` if there is one.
    #[default]
    Plain,
    /// How much more it is than `over`, in percent.
    Gain,
    /// By how much the largest of the VMs exceeds the smallest, in percent.
    Apart,
    /// In how many of the runs whose labels begin as `run` (with `*`) the gain over the same run is
    /// `at` or more, in percent of them.
    Cells,
    /// The largest gain over the same run among the runs that `run` means (with `*`), in percent.
    Most,
    /// The number in the labels of the runs at which the quantity crosses `at`, by a straight line
    /// between two runs; by `over` if there is one.
    Crossing,
}

/// What is wrong with what is published of a scenario of these runs.
pub(crate) fn reasons(published: &[Published], runs: &[Run]) -> Vec<String> {
    let mut out = vec![];
    for p in published {
        let mut say = |reason: String| {
            out.push(format!("published '{}', '{}': {reason}", p.figure, p.what));
        };
        let [least, most] = p.allowed;
        let number = least.is_finite() && most.is_finite();
        if !number || least > most {
            say(format!(
                "allowed: seen [{least}, {most}], allowed two numbers, the lower one first"
            ));
        } else if p.value.is_some_and(|v| !v.is_finite()) {
            say("value: seen none, allowed a number".to_owned());
        }
        let is_empty = |text: &str| text.trim().is_empty();
        if is_empty(&p.page) {
            say("page: seen none, allowed a page or a section".to_owned());
        }
        if p.value.is_none() && p.says.as_deref().is_none_or(is_empty) {
            say("says: seen none, allowed the document's words, for there is no value".to_owned());
        }
        let m = &p.measure;
        let over = m.over.clone().unwrap_or_default();
        for (vm, label) in [
            (&m.vm, &m.run),
            (over.vm.as_ref().unwrap_or(&m.vm), over.run.as_ref().unwrap_or(&m.run)),
        ] {
            let is = |r: &&Run| match m.form {
                Form::Crossing => {
                    r.label.strip_suffix(label.as_str()).is_some_and(|n| n.parse::<f64>().is_ok())
                }
                Form::Cells | Form::Most => is_of(label, &r.label),
                _ => r.label == *label,
            };
            let found = runs.iter().find(is);
            let all: Vec<&str> = runs.iter().map(|r| r.label.as_str()).collect();
            let Some(run) = found else {
                say(format!("run: seen '{label}', allowed '{}'", all.join("', '")));
                continue;
            };
            let names: Vec<&str> = run.spec.vms.iter().map(|v| v.name.as_str()).collect();
            if let Some(missing) = vm.iter().find(|v| !names.iter().any(|n| is_of(v, n))) {
                say(format!("vm: seen '{missing}', allowed '{}'", names.join("', '")));
            }
        }
        match m.form {
            Form::Gain | Form::Cells | Form::Most if m.over.is_none() => {
                say("over: seen none, allowed what gains over".to_owned())
            }
            Form::Crossing | Form::Cells if m.at.is_none() => {
                say("at: seen none, allowed what is crossed, or the least gain".to_owned())
            }
            Form::Cells | Form::Most if over.run.is_some() => {
                say("over.run: seen one, allowed none: each run is held against itself".to_owned())
            }
            Form::Plain | Form::Gain | Form::Apart | Form::Most if m.at.is_some() => {
                say("at: seen one, allowed for crossing and cells alone".to_owned())
            }
            _ => {}
        }
    }
    out
}

/// What is wrong with reasons for less work in a scenario of these runs.
pub(crate) fn less_work_reasons(all: &[LessWork], runs: &[Run]) -> Vec<String> {
    let mut out = vec![];
    for (i, l) in all.iter().enumerate() {
        let at = format!("less_work {}", i + 1);
        if l.policies.is_empty() {
            out.push(format!("{at}: policies: seen none, allowed names of policies"));
        }
        if l.why.trim().is_empty() {
            out.push(format!("{at}: why: seen none, allowed a reason"));
        }
        if l.runs.is_empty() {
            out.push(format!("{at}: runs: seen none, allowed labels of runs"));
        }
        let there = |pattern: &&String| runs.iter().any(|r| is_of(pattern, &r.label));
        if let Some(seen) = l.runs.iter().find(|pattern| !there(pattern)) {
            let labels: Vec<&str> = runs.iter().map(|r| r.label.as_str()).collect();
            let labels = labels.join("', '");
            out.push(format!("{at}: runs: seen '{seen}', allowed '{labels}'"));
        }
    }
    out
}

/// Whether a name is meant: as it is, or by its beginning.
#[must_use]
pub fn is_of(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use crate::raw::parse;

    const HOST: &str = "[host]\ncores_per_llc = 2\n[[vm]]\nname = 'a'\nvcpus = 1\n\
        [[vm]]\nname = 'b'\ncount = 2\nvcpus = 1\n[[run]]\nlabel = 'x'\n[[run]]\nlabel = 'y'\n";

    fn published(rest: &str) -> String {
        let says = if rest.contains("value") { "" } else { "says = 'steeply'\n" };
        let head = "figure = 'RDY figure 1'\npage = '4'\nwhat = 'p'";
        format!("[[published]]\n{head}\n{says}{rest}\n{HOST}")
    }

    #[test]
    fn what_is_published_is_read() {
        let text = published(
            "value = 2\nallowed = [1, 3]\nmeasure = { of = 'used', vm = ['a'], run = 'x', over = \
                { vm = ['b*'] } }",
        );
        let scenario = parse("t.toml", "t", &text).unwrap();
        let p = &scenario.published[0];
        assert_eq!(
            (p.value, p.allowed, p.measure.policy.as_str(), p.page.as_str()),
            (Some(2.0), [1.0, 3.0], "tandem", "4")
        );
        assert_eq!(p.measure.over.as_ref().unwrap().vm.as_deref(), Some(&["b*".to_owned()][..]));
    }

    #[test]
    fn what_no_run_can_show_is_refused() {
        for (rest, part) in [
            ("allowed = [3, 1]\nmeasure = { of = 'used', run = 'x' }", "seen [3, 1]"),
            (
                "allowed = [1, 3]\nmeasure = { of = 'used', run = 'z' }",
                "seen 'z', allowed 'x', 'y'",
            ),
            (
                "allowed = [1, 3]\nmeasure = { of = 'used', run = 'x', vm = ['c'] }",
                "seen 'c', allowed",
            ),
            (
                "allowed = [1, 3]\nmeasure = { of = 'used', run = 'x', as = 'gain' }",
                "over: seen none",
            ),
            ("allowed = [1, 3]\nmeasure = { of = 'used', as = 'crossing' }", "at: seen none"),
            ("allowed = [1, 3]\nmeasure = { of = 'used', run = 'x', at = 3 }", "at: seen one"),
            (
                "allowed = [1, 3]\nmeasure = { of = 'used', run = 'x', as = 'crossing', at = 3 }",
                "run: seen 'x'",
            ),
            (
                "allowed = [1, 3]\n\
                measure = { of = 'used', run = '*', as = 'cells', at = 3, over = { run = 'x' } }",
                "over.run: seen one",
            ),
            (
                "allowed = [1, 3]\n\
                measure = { of = 'used', run = '*', as = 'most', over = { run = 'x' } }",
                "over.run: seen one",
            ),
            (
                "allowed = [1, 3]\n\
                measure = { of = 'used', run = '*', as = 'most' }",
                "over: seen none",
            ),
            ("allowed = [1, 3]\nmeasure = { of = 'use', run = 'x' }", "unknown variant `use`"),
        ] {
            let text = parse("t.toml", "t", &published(rest)).unwrap_err().to_string();
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_figure_has_its_page_and_a_number_or_words() {
        let good = published("allowed = [1, 3]\nmeasure = { of = 'used', run = 'x' }");
        assert_eq!(
            parse("t.toml", "t", &good).unwrap().published[0].says.as_deref(),
            Some("steeply")
        );
        for (from, to, part) in [
            ("page = '4'\n", "", "missing field `page`"),
            ("page = '4'", "page = ' '", "page: seen none"),
            ("says = 'steeply'\n", "", "says: seen none"),
            ("says = 'steeply'", "says = ''", "says: seen none"),
        ] {
            let text = parse("t.toml", "t", &good.replace(from, to)).unwrap_err().to_string();
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn reasons_for_less_work_name_runs_that_are_there() {
        let less = |rest: &str| format!("[[less_work]]\n{rest}\n{HOST}");
        let good = less("policies = ['xen-*']\nruns = ['x']\nwhy = 'it is so'");
        let scenario = parse("t.toml", "t", &good).unwrap();
        assert_eq!(scenario.less_work[0].runs, ["x"]);
        for (rest, part) in [
            ("policies = []\nruns = ['x']\nwhy = 'x'", "less_work 1: policies: seen none"),
            ("policies = ['cfs']\nruns = ['x']\nwhy = ' '", "less_work 1: why: seen none"),
            ("policies = ['cfs']\nruns = ['x', 'z']\nwhy = 'x'", "seen 'z', allowed 'x', 'y'"),
            ("policies = ['cfs']\nruns = []\nwhy = 'x'", "less_work 1: runs: seen none"),
            ("policies = ['cfs']\nwhy = 'x'", "missing field `runs`"),
            ("policies = ['cfs']\nwhat = 'x'", "unknown field `what`"),
        ] {
            let text = parse("t.toml", "t", &less(rest)).unwrap_err().to_string();
            assert!(text.contains(part), "{rest}: {text}");
        }
    }
}
