//! docs/metrics.md and the list for programs, made from the declarations.

use crate::{Declared, METRICS};
use serde_json::{Value, json};

const HEAD: &str = "# Metrics

<!-- Generated from crates/metrics/src/table.rs by `cargo xtask tidy --write`; changes here are lost. -->

The metrics that `tandem run` serves to Prometheus under `/metrics` of its endpoint, and that `tandem metrics` prints. Scraping, alerts and
the dashboard are described in [operating.md](operating.md#metrics). `tandem metrics --list` prints this list too.

A VM has the labels `vm` (its name), `pool` (path of its pool) and `id` (its number in the scheduler's tables, which distinguishes VMs of
the same name). Counters only grow while the scheduler is loaded: they include ended threads, and the counters of a pool include ended
VMs. They begin at 0 when the daemon starts; when it loads the scheduler again for pCPUs that
came, only a pool forgets ended VMs. An unknown value is absent, never 0.

";

/// The document.
#[must_use]
pub fn document() -> String {
    let groups = [
        ("Host", "tandem_"),
        ("VMs", "tandem_vm_"),
        ("Pools", "tandem_pool_"),
        ("pCPUs", "tandem_pcpu_"),
    ];
    let mut out = HEAD.to_owned();
    for (title, prefix) in groups {
        let longer =
            |name: &str| groups.iter().any(|g| g.1.len() > prefix.len() && name.starts_with(g.1));
        let of = METRICS.iter().filter(|d| d.name.starts_with(prefix) && !longer(d.name));
        out.push_str(&format!(
            "## {title}\n\n| metric | type | unit | labels | meaning | what to \
            do |\n|---|---|---|---|---|---|\n"
        ));
        out.extend(of.map(row));
        out.push('\n');
    }
    out.pop();
    out
}

fn row(d: &Declared) -> String {
    let labels: Vec<String> = d.labels.iter().map(|l| format!("`{l}`")).collect();
    let cells = [
        format!("`{}`", d.sample()),
        d.kind.name().to_owned(),
        d.unit.name().to_owned(),
        labels.join(" "),
        code(d.meaning),
        code(d.advice),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// Commands, which a sentence has in quotes, as code.
fn code(text: &str) -> String {
    text.replace("'tandem ", "`tandem ")
        .split('`')
        .enumerate()
        .map(
            |(i, part)| {
                if i == 0 { part.to_owned() } else { format!("`{}", part.replacen('\'', "`", 1)) }
            },
        )
        .collect()
}

/// The list for programs.
#[must_use]
pub fn list() -> Value {
    let one = |d: &Declared| {
        json!({
            "name": d.sample(), "type": d.kind.name(), "unit": d.unit.name(), "labels": d.labels,
            "meaning": d.meaning, "advice": d.advice
        })
    };
    METRICS.iter().map(one).collect()
}

/// The schema of that list, in JSON Schema 2020-12, without its version.
#[must_use]
pub fn list_schema() -> Value {
    let text = |what: &str| json!({ "description": what, "type": "string" });
    let fields = json!({
        "name": text("Name, as it is exposed."),
        "type": text("Type by OpenMetrics: counter, gauge or info."),
        "unit": text("Unit; empty for a number without one."),
        "labels": {
            "description": "Names of its labels.", "type": "array", "items": { "type": "string" }
        },
        "meaning": text("What it says."),
        "advice": text("What to do about it; may be empty."),
    });
    let names: Vec<&String> = fields.as_object().into_iter().flat_map(|o| o.keys()).collect();
    let one = json!({ "type": "object", "properties": fields, "required": names });
    json!({ "type": "array", "items": one })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_one_row_and_commands_are_code() {
        let text = document();
        for d in &METRICS {
            assert_eq!(
                text.matches(&format!("\n| `{}` | {} |", d.sample(), d.kind.name())).count(),
                1,
                "{}",
                d.name
            );
        }
        assert!(
            text.contains(
                "| `tandem_vm_shares` | gauge |  | `vm` `pool` `id` | CPU shares in force. | \
                    `tandem plan` shows their source. |\n"
            ),
            "{text}"
        );
        assert_eq!(
            code("the kernel's, 'tandem plan' says, 'tandem admit' too"),
            "the kernel's, `tandem plan` says, `tandem admit` too"
        );
        assert_eq!(list().as_array().map(Vec::len), Some(METRICS.len()));
    }
}
