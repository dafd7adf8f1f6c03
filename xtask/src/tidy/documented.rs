//! Every key of a scenario, field of a result and exit code that the code has is in its document,
//! and every example scenario parses.

use super::markdown::Document;
use super::{Finding, Tree};

const RULE: &str = "documented";
const EXIT_SOURCE: &str = "crates/tandem/src/main.rs";
const EXIT_DOCUMENT: &str = "docs/exit-codes.md";

/// Sources whose public fields are keys or fields of a file format, and the document that explains
/// them.
const FORMATS: [(&str, &[&str], &str); 20] = [
    ("crates/settings/src/published.rs", &["Published", "Measure", "Over"], "docs/reproduce.md"),
    ("crates/reproduce/src/lib.rs", &["Point", "Beside", "Experiment"], "docs/reproduce.md"),
    (
        "crates/settings/src/scenario.rs",
        &["RunSpec", "HostSpec", "VmSpec", "HostTask", "Lab", "Expect"],
        "docs/scenarios.md",
    ),
    ("crates/settings/src/changes.rs", &["ChangeSpec"], "docs/scenarios.md"),
    ("crates/settings/src/realtime.rs", &["RealtimeSpec"], "docs/scenarios.md"),
    ("crates/settings/src/workload.rs", &["Workload"], "docs/scenarios.md"),
    (
        "crates/settings/src/live.rs",
        &["LiveSettings", "LiveHost", "LivePool", "LiveVm"],
        "docs/operating.md",
    ),
    ("crates/host/src/names.rs", &["Names", "PoolName", "VmName"], "docs/operating.md"),
    ("crates/host/src/reload.rs", &["Reloaded"], "docs/operating.md"),
    ("crates/host/src/ejections.rs", &["Ejections"], "docs/operating.md"),
    ("crates/trace/src/waits.rs", &["Wait"], "docs/trace.md"),
    ("crates/trace/src/report.rs", &["Histogram", "Latency", "Sum", "Report"], "docs/trace.md"),
    ("crates/vnuma/src/decide.rs", &["VirtualNode", "Remembered", "Decision"], "docs/vnuma.md"),
    ("crates/vnuma/src/fleet.rs", &["Recommended"], "docs/vnuma.md"),
    ("crates/vnuma/src/host.rs", &["Node", "Host"], "docs/vnuma.md"),
    ("crates/vnuma/src/mapping.rs", &["Client", "Mapping"], "docs/vnuma.md"),
    ("crates/vnuma/src/plan.rs", &["Guest", "Plan"], "docs/vnuma.md"),
    ("crates/vnuma/src/vm.rs", &["Options", "Vm"], "docs/vnuma.md"),
    ("crates/views/src/plan.rs", &["Plan", "PlanRow", "PlanNow", "Loan"], "docs/operating.md"),
    (
        "crates/views/src/result.rs",
        &[
            "Document",
            "RunResult",
            "HostCounts",
            "Pcpu",
            "Pool",
            "Times",
            "Vm",
            "CpuStat",
            "World",
            "Wakeups",
        ],
        "docs/result.md",
    ),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = vec![];
    for (source, types, document) in FORMATS {
        let named = format!(" {}", tree.text(document));
        for ty in types {
            for (line, field) in fields(tree.text(source), ty) {
                if !is_named(&named, &field) {
                    out.push(Finding::new(
                        RULE,
                        source,
                        line,
                        format!("'{field}' of {ty} is not in {document}; explain it there"),
                    ));
                }
            }
        }
    }
    out.extend(exit_codes(tree.text(EXIT_SOURCE), tree.text(EXIT_DOCUMENT)));
    for file in tree.files.iter().filter(|f| f.has_extension(&["md"])) {
        out.extend(examples(&file.path, &file.text));
    }
    out
}

/// Whether a document has the name in a code span or fence, or as a key.
fn is_named(document: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    document.match_indices(name).any(|(at, _)| {
        !document[..at].ends_with(part) && !document[at + name.len()..].starts_with(part)
    })
}

/// Public fields of a struct, or fields of an enum's variants, under the names that serde gives
/// them.
fn fields(text: &str, ty: &str) -> Vec<(usize, String)> {
    let opens = |l: &str| l == format!("pub struct {ty} {{") || l == format!("pub enum {ty} {{");
    let Some(first) = text.lines().position(opens) else { return vec![] };
    let is_enum = text.lines().nth(first).is_some_and(|l| l.starts_with("pub enum"));
    let mut out = vec![];
    let mut attribute = String::new();
    for (i, line) in text.lines().enumerate().skip(first + 1).take_while(|(_, l)| *l != "}") {
        let line = line.trim();
        if line.starts_with("#[serde") {
            attribute = line.to_owned();
        }
        let declared = if is_enum { Some(line) } else { line.strip_prefix("pub ") };
        let Some((name, _)) = declared.and_then(|l| l.split_once(':')) else { continue };
        if name.is_empty()
            || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        {
            continue;
        }
        let renamed = attribute.split("rename = \"").nth(1).and_then(|r| r.split('"').next());
        if !attribute.contains("flatten") {
            out.push((i + 1, renamed.unwrap_or(name).to_owned()));
        }
        attribute.clear();
    }
    out
}

/// Variants of `enum Exit` with their numbers are rows of the document.
fn exit_codes(source: &str, document: &str) -> Vec<Finding> {
    let body =
        source.split("pub enum Exit {").nth(1).and_then(|t| t.split('}').next()).unwrap_or("");
    let codes = body
        .lines()
        .filter_map(|l| Some(l.trim().trim_end_matches(',').split_once(" = ")?.1.to_owned()));
    let missing = codes.filter(|c| !document.lines().any(|l| l.starts_with(&format!("| {c} |"))));
    missing
        .map(|c| {
            Finding::new(
                RULE,
                EXIT_DOCUMENT,
                0,
                format!("seen no row for exit code {c}; write '| {c} | … |'"),
            )
        })
        .collect()
}

/// Fences `toml scenario` are whole scenarios, `toml settings` whole settings files of the live
/// host.
fn examples(path: &str, text: &str) -> Vec<Finding> {
    let mut out = vec![];
    for fence in Document::of(text).fences {
        let parsed = match fence.info.as_str() {
            "toml scenario" => try_file(&fence.body, |file| {
                settings::load(file).map(drop).map_err(|e| e.to_string())
            }),
            "toml settings" => try_file(&fence.body, |file| {
                settings::LiveSettings::load(file.as_ref()).map(drop).map_err(|e| e.to_string())
            }),
            _ => Ok(()),
        };
        out.extend(
            parsed.err().map(|e| {
                Finding::new(RULE, path, fence.line, format!("the example is refused: {e}"))
            }),
        );
    }
    out
}

/// Writes a text to a file of its own, reads it back by `load`, and takes the file away.
fn try_file(text: &str, load: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "tandem-example-{}-{}.toml",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    let done = load(&file.to_string_lossy());
    let _ = std::fs::remove_file(&file);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_under_the_names_that_files_give_them() {
        let text = "pub struct A {\n    /// X: y.\n    #[serde(default, rename = \"vm\")]\n    pub \
            vms: u32,\n    #[serde(flatten)]\n    pub times: T,\n    pub wait_ns: u64,\n}\npub \
            enum B {\n    C,\n    D {\n        /// P.\n        period: Span,\n    },\n}\n";
        assert_eq!(fields(text, "A"), [(4, "vm".to_owned()), (7, "wait_ns".to_owned())]);
        assert_eq!(fields(text, "B"), [(13, "period".to_owned())]);
        assert!(is_named("| `wait_ns` |", "wait_ns") && !is_named("| `wait_ns_max` |", "wait_ns"));
    }

    #[test]
    fn an_exit_code_without_a_row_is_seen() {
        let source = "pub enum Exit {\n    /// a\n    Ok = 0,\n    Other = 1,\n}\n";
        assert_eq!(exit_codes(source, "| 0 | all went well |\n").len(), 1);
        assert_eq!(exit_codes(source, "| 0 | x |\n| 1 | y |\n"), []);
    }

    #[test]
    fn an_example_that_is_refused_is_seen_with_its_line() {
        let good = "[host]\ncores_per_llc = 2\n[[vm]]\nname = \"a\"\nvcpus = 1\n";
        let seen = |kind: &str, body: &str| {
            examples("a.md", &format!("# A\n```toml {kind}\n{body}```\n"))
                .iter()
                .map(|f| f.line)
                .collect::<Vec<_>>()
        };
        assert_eq!(seen("scenario", good), [0; 0]);
        assert_eq!(seen("scenario", &good.replace("vcpus = 1", "vcpus = 0")), [3]);
        assert_eq!(seen("settings", "[[vm]]\nname = \"a*\"\nshares = \"high\"\n"), [0; 0]);
        assert_eq!(seen("settings", "[[vm]]\nshare = 1\n"), [3]);
    }
}
