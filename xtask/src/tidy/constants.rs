//! Numbers in documents that repeat a constant of the code are read from it: the marker
//! `<!-- const: FILE NAME -->` has the number behind it, up to `<!-- end -->`.
//!
//! Behind the name may stand how it is shown: `over` as percent over 1 (1.12 is 12), `/N` divided
//! by N (2000 `/1000` is 2). An array without a number is shown by its length.

use super::{Finding, SourceFile, Tree};

const RULE: &str = "constants";
const OPEN: &str = "<!-- const: ";
const CLOSE: &str = "<!-- end -->";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = vec![];
    for file in tree.files.iter().filter(|f| f.has_extension(&["md"])) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let mut say = |what: String| out.push(Finding::new(RULE, &file.path, number, what));
            match renewed_line(tree, line) {
                Ok(made) if made == line => {}
                Ok(_) => {
                    say("not the constant's number; run 'cargo xtask tidy --write'".to_owned());
                }
                Err(what) => say(what),
            }
        }
    }
    out
}

/// The document with every number renewed; a line with a marker that cannot be filled stays.
pub(crate) fn renewed(tree: &Tree, file: &SourceFile) -> String {
    let line = |line: &str| renewed_line(tree, line).unwrap_or_else(|_| line.to_owned());
    file.text.split_inclusive('\n').map(line).collect()
}

fn renewed_line(tree: &Tree, line: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = marker(rest) {
        let (before, marked) = rest.split_at(at);
        let (spec, after) =
            marked[OPEN.len()..].split_once("-->").ok_or("seen a marker without '-->'")?;
        let (_, behind) =
            after.split_once(CLOSE).ok_or_else(|| format!("seen a marker without '{CLOSE}'"))?;
        let value = value(tree, spec.trim())?;
        out.push_str(&format!("{before}{OPEN}{spec}-->{value}{CLOSE}"));
        rest = behind;
    }
    Ok(out + rest)
}

/// Where the next marker begins that is no code span, such as this document's own example.
fn marker(text: &str) -> Option<usize> {
    text.match_indices(OPEN).map(|m| m.0).find(|at| text[..*at].matches('`').count() % 2 == 0)
}

/// What stands behind a marker: `FILE NAME` or `FILE NAME FORMAT`.
fn value(tree: &Tree, spec: &str) -> Result<String, String> {
    let words: Vec<&str> = spec.split_whitespace().collect();
    let (file, name, format) = match words[..] {
        [file, name] => (file, name, ""),
        [file, name, format] => (file, name, format),
        _ => return Err(format!("seen '{spec}', allowed FILE NAME and a format")),
    };
    let text = number_of(tree.text(file), name).ok_or_else(|| {
        format!("seen no number '{name}' in {file}; name the constant it repeats")
    })?;
    let number: f64 = text.parse().map_err(|_| format!("seen '{text}' of {name}, no number"))?;
    let shown = match format.strip_prefix('/') {
        Some(by) => {
            let by: f64 = by.parse().map_err(|_| format!("seen '{format}', allowed /N"))?;
            number / by
        }
        None if format == "over" => (number - 1.0) * 100.0,
        None if format.is_empty() => number,
        None => return Err(format!("seen the format '{format}', allowed over or /N")),
    };
    // Nine digits leave out what binary fractions add: 1.12 is 0.12000000000000011 over 1.
    Ok(grouped(&((shown * 1e9).round() / 1e9).to_string()))
}

/// The digits of a constant: `const NAME: T = N;`, the length of `const NAME: [T; N]`,
/// `#define NAME N`, or the default of `KNOB(NAME, N, …)`.
fn number_of(text: &str, name: &str) -> Option<String> {
    let is_number = |t: &String| t.parse::<f64>().is_ok();
    text.lines().map(str::trim_start).find_map(|line| {
        if let Some(rest) = line.strip_prefix("#define ").and_then(|l| l.strip_prefix(name)) {
            return Some(rest.trim().to_owned()).filter(is_number);
        }
        if let Some(rest) = line.strip_prefix("KNOB(").and_then(|l| l.strip_prefix(name)) {
            return rest.split(',').nth(1).map(|n| n.trim().to_owned()).filter(is_number);
        }
        let (_, rest) = line.split_once(&format!("const {name}: "))?;
        let (ty, value) = rest.split_once(" = ")?;
        let value = value.split(';').next()?.trim().replace('_', "");
        let length = || ty.trim_end_matches(']').rsplit_once("; ").map(|l| l.1.to_owned());
        Some(value).filter(is_number).or_else(length)
    })
}

/// 50000 as 50,000; fractions stay.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().filter_map(|c| std::str::from_utf8(c).ok()).collect();
    groups.join(",") + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! A.\npub const MOST: f64 = 1.12;\nconst VERIFIED: u64 = 50_000;\n    \
        pub const ALL: [Fault; 20] = [\nconst LIMIT_MS: f64 = 2000.0;\n#define CAP 64\n\
        KNOB(quantum_us,        50000, 1000, 1000000, \"us\", \"x\")\n";

    fn tree(document: &str) -> Tree {
        let files = vec![SourceFile::of("a.rs", SOURCE), SourceFile::of("b.md", document)];
        Tree { root: "no-such-root".into(), files }
    }

    fn filled(spec: &str) -> Result<String, String> {
        value(&tree(""), spec)
    }

    #[test]
    fn numbers_are_read_from_constants_and_shown_as_the_marker_says() {
        for (spec, shown) in [
            ("a.rs MOST", "1.12"),
            ("a.rs MOST over", "12"),
            ("a.rs VERIFIED", "50,000"),
            ("a.rs ALL", "20"),
            ("a.rs LIMIT_MS /1000", "2"),
            ("a.rs VERIFIED /100000", "0.5"),
            ("a.rs CAP", "64"),
            ("a.rs quantum_us /1000", "50"),
        ] {
            assert_eq!(filled(spec), Ok(shown.to_owned()), "{spec}");
        }
        for spec in
            ["a.rs LEAST", "c.rs MOST", "a.rs", "a.rs MOST under", "a.rs MOST /x", "a b c d"]
        {
            assert!(filled(spec).is_err(), "{spec}");
        }
    }

    #[test]
    fn a_number_that_is_not_the_constants_is_seen_and_renewed() {
        let text = "| P | <!-- const: a.rs MOST over -->10<!-- end --> %; \
            <!-- const: a.rs ALL -->20<!-- end --> faults |\n`<!-- const: x y -->`\n";
        let before = tree(text);
        assert_eq!(check(&before).iter().map(|f| f.line).collect::<Vec<_>>(), [1]);
        let made = renewed(&before, before.file("b.md").unwrap());
        assert_eq!(made, text.replace("-->10<", "-->12<"));
        assert_eq!(check(&tree(&made)), []);
    }

    #[test]
    fn a_marker_that_cannot_be_filled_is_seen_and_left() {
        for text in ["<!-- const: a.rs MOST -->1.12\n", "<!-- const: a.rs NONE -->1<!-- end -->\n"]
        {
            let before = tree(text);
            assert_eq!(check(&before).len(), 1, "{text}");
            assert_eq!(renewed(&before, before.file("b.md").unwrap()), text);
        }
    }
}
