//! docs/profiles.md is generated from the profiles that are built in
//! (crates/settings/src/profiles.toml).

use super::{Finding, Tree};
use settings::{ProfileSpec, built_in_profiles};

/// Where the profiles are.
const SOURCE: &str = "crates/settings/src/profiles.toml";
/// Where they are documented.
pub(crate) const DOCUMENT: &str = "docs/profiles.md";
const RULE: &str = "profiles";

const HEAD: &str = "# Profiles of workloads

<!-- Generated from crates/settings/src/profiles.toml by `cargo xtask tidy --write`; changes here are lost. -->

What each workload asks of the [simulated hardware](hardware.md). A VM or host task names its profile by
`profile = \"vdi\"`. A world without one has the first. A scenario adds its own as `[[profile]]`, with the
same keys; [scenarios.md](scenarios.md#hardware) describes them.

| profile | `smt_yield` | `working_set` | `uncached` | `bandwidth` | `uncached_bandwidth` | `memory_bound` | `workload` |
|---|---:|---:|---:|---:|---:|---:|---|
";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let (made, text) = (document(), tree.text(DOCUMENT));
    let line = made.lines().zip(text.lines()).position(|(a, b)| a != b).map_or(0, |n| n + 1);
    let what = format!("not what {SOURCE} makes; run 'cargo xtask tidy --write'");
    if made == text { vec![] } else { vec![Finding::new(RULE, DOCUMENT, line, what)] }
}

/// The document.
pub(crate) fn document() -> String {
    let all = built_in_profiles();
    let mut out = HEAD.to_owned();
    all.iter().for_each(|p| out.push_str(&row(p)));
    for p in all {
        out.push_str(&format!("\n## {}\n\n{}.\n", p.name, first_upper(&p.about)));
        out.push_str(&format!("\nSources. {}.\n", p.source.trim()));
    }
    out
}

fn row(p: &ProfileSpec) -> String {
    let workload = p.workload.and_then(|w| toml::Value::try_from(w).ok());
    let workload = workload.map_or_else(String::new, |w| format!("`{w}`"));
    let more = p.uncached_bandwidth.unwrap_or(p.bandwidth);
    format!(
        "| `{}` | {} | {} | {} | {}/s | {more}/s | {} | {workload} |\n",
        p.name, p.smt_yield, p.working_set, p.uncached, p.bandwidth, p.memory_bound
    )
}

fn first_upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}
