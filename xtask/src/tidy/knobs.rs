//! docs/knobs.md is generated from sched/abi/knobs.def, the one list that C, Rust and the command
//! line read.

use super::{Finding, Tree};

/// Where the knobs are declared.
pub(crate) const SOURCE: &str = "sched/abi/knobs.def";
/// Where they are documented.
pub(crate) const DOCUMENT: &str = "docs/knobs.md";
const RULE: &str = "knobs";

const HEAD: &str = "# Knobs

<!-- Generated from sched/abi/knobs.def by `cargo xtask tidy --write`; changes here are lost. -->

Knobs tune the scheduler. They are read when it is loaded. Later sources win: the default, `[knobs]` of the
scenario or of the settings file, `--set NAME=VALUE` on the command line. An unknown name and a value outside
the range are refused with exit code 3. `tandem knobs` prints this list too.

Times \"at its entitlement\" are virtual time: the virtual time of a VM that gets what it is entitled to \
    advances by
1 us per us. See [design/003](design/003-shares.md).

| knob | default | allowed | unit | meaning |
|---|---:|---:|---|---|
";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let made = match document(tree.text(SOURCE)) {
        Ok(made) => made,
        Err(line) => {
            let what = "cannot read it; allowed KNOB(name, default, min, max, \"unit\", \
                \"meaning\") on one line";
            return vec![Finding::new(RULE, SOURCE, line, what)];
        }
    };
    let text = tree.text(DOCUMENT);
    let line = made.lines().zip(text.lines()).position(|(a, b)| a != b).map_or(0, |n| n + 1);
    let stale = Finding::new(
        RULE,
        DOCUMENT,
        line,
        format!("not what {SOURCE} makes; run 'cargo xtask tidy --write'"),
    );
    if made == text { vec![] } else { vec![stale] }
}

/// The document; or the line of the source that cannot be read.
pub(crate) fn document(source: &str) -> Result<String, usize> {
    let mut out = HEAD.to_owned();
    for (i, line) in source.lines().enumerate().filter(|(_, l)| l.starts_with("KNOB(")) {
        out.push_str(&row(line).ok_or(i + 1)?);
    }
    Ok(out)
}

fn row(line: &str) -> Option<String> {
    let inner = line.strip_prefix("KNOB(")?.trim_end().strip_suffix(')')?;
    let parts: Vec<&str> = inner.splitn(5, ',').map(str::trim).collect();
    let [name, default, min, max, texts] = parts[..] else { return None };
    let numbers: Vec<String> =
        [default, min, max].iter().filter_map(|n| Some(grouped(n.parse().ok()?))).collect();
    let [default, min, max] = &numbers[..] else { return None };
    let quoted: Vec<&str> = texts.split('"').collect();
    let [_, unit, _, meaning, _] = quoted[..] else { return None };
    Some(format!("| `{name}` | {default} | {min}..{max} | {unit} | {meaning} |\n"))
}

/// 50000 as 50,000.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|c| std::str::from_utf8(c).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::super::SourceFile;
    use super::*;

    const KNOBS: &str = "/* Knobs. */\nKNOB(quantum_us,        50000, 1000, 1000000, \"us\", \
        \"longest time (VS51: 50 ms), at once\")\n";

    fn findings(source: &str, document: &str) -> Vec<(String, usize)> {
        let files = vec![SourceFile::of(SOURCE, source), SourceFile::of(DOCUMENT, document)];
        check(&Tree { root: "no-such-root".into(), files })
            .into_iter()
            .map(|f| (f.file, f.line))
            .collect()
    }

    #[test]
    fn a_knob_is_a_row_and_a_stale_document_is_seen() {
        let made = document(KNOBS).unwrap();
        assert!(
            made.ends_with(
                "| `quantum_us` | 50,000 | 1,000..1,000,000 | us | longest time \
            (VS51: 50 ms), at once |\n"
            ),
            "{made}"
        );
        assert_eq!(findings(KNOBS, &made), []);
        let last = made.lines().count();
        assert_eq!(
            findings(KNOBS, &made.replace("50,000", "60,000")),
            [(DOCUMENT.to_owned(), last)]
        );
    }

    #[test]
    fn a_knob_that_cannot_be_read_is_seen_with_its_line() {
        assert_eq!(findings(&KNOBS.replace("1000, ", ""), ""), [(SOURCE.to_owned(), 2)]);
    }
}
