//! Reads an exposition by the rules of OpenMetrics 1.0, and refuses whatever breaks one; for tests
//! and the lab, never for the daemon.

use std::collections::{BTreeMap, BTreeSet};

/// A metric family.
#[derive(Debug, Default, PartialEq)]
pub struct Family {
    /// Its type, such as `counter`.
    pub kind: String,
    /// Its unit; empty where it has none.
    pub unit: String,
    /// What it means.
    pub help: String,
    /// Labels and value of each sample, in order.
    pub samples: Vec<(Vec<(String, String)>, String)>,
}

impl Family {
    /// Values of the samples that have these labels among theirs.
    pub fn of<'a>(&'a self, wanted: &'a [(&str, &str)]) -> impl Iterator<Item = f64> + 'a {
        let has = |labels: &Labels| {
            wanted.iter().all(|w| labels.iter().any(|l| (l.0.as_str(), l.1.as_str()) == *w))
        };
        self.samples.iter().filter(move |s| has(&s.0)).filter_map(|s| s.1.parse().ok())
    }
}

/// All families of a text, or the first rule that it breaks.
///
/// # Errors
/// The line, and what is wrong with it.
pub fn read(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the last line is not '# EOF'")?;
    let mut all: BTreeMap<String, Family> = BTreeMap::new();
    let mut now = String::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for line in body.split_terminator('\n') {
        let done = match line.strip_prefix("# ") {
            Some(comment) => metadata(&mut all, &mut now, comment),
            None => sample(&mut all, &now, &mut seen, line),
        };
        done.map_err(|e| format!("{line:?}: {e}"))?;
    }
    for (name, family) in &all {
        if !family.unit.is_empty() && !name.ends_with(&format!("_{}", family.unit)) {
            return Err(format!("{name} does not end with its unit {}", family.unit));
        }
    }
    if !body.is_empty() && !body.ends_with('\n') {
        return Err("'# EOF' is not a line of its own".to_owned());
    }
    Ok(all)
}

fn metadata(
    all: &mut BTreeMap<String, Family>,
    now: &mut String,
    comment: &str,
) -> Result<(), String> {
    let mut parts = comment.splitn(3, ' ');
    let (Some(what), Some(name), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("no metadata".to_owned());
    };
    is_name(name)?;
    if name != now {
        if all.contains_key(name) {
            return Err("the family is not in one piece".to_owned());
        }
        *now = name.to_owned();
    }
    let family = all.entry(name.to_owned()).or_default();
    if !family.samples.is_empty() {
        return Err("metadata comes behind samples".to_owned());
    }
    let field = match what {
        "TYPE" => {
            let kinds = [
                "counter",
                "gauge",
                "info",
                "unknown",
                "stateset",
                "histogram",
                "gaugehistogram",
                "summary",
            ];
            kinds.contains(&text).then_some(&mut family.kind).ok_or("no type of OpenMetrics")?
        }
        "UNIT" => &mut family.unit,
        "HELP" => &mut family.help,
        _ => return Err("allowed TYPE, UNIT, HELP".to_owned()),
    };
    if !field.is_empty() {
        return Err(format!("{what} is there twice"));
    }
    *field = if what == "HELP" { unescaped(text)? } else { text.to_owned() };
    Ok(())
}

fn sample(
    all: &mut BTreeMap<String, Family>,
    now: &str,
    seen: &mut BTreeSet<String>,
    line: &str,
) -> Result<(), String> {
    let name_end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, rest) = line.split_at(name_end);
    is_name(name)?;
    let family = all.get_mut(now).ok_or("a sample of no family")?;
    let suffix = name.strip_prefix(now).ok_or("a sample of another family")?;
    let wanted = match family.kind.as_str() {
        "counter" => "_total",
        "info" => "_info",
        "gauge" => "",
        other => return Err(format!("type '{other}' is not declared before it")),
    };
    if suffix != wanted {
        return Err(format!("a {} ends with '{wanted}'", family.kind));
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (vec![], rest),
    };
    let value = rest.strip_prefix(' ').ok_or("one blank before the value")?;
    let number: f64 = value.parse().map_err(|_| "no number")?;
    let plain = value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !plain || !number.is_finite() || (family.kind == "info" && value != "1") {
        return Err("no value that is allowed here".to_owned());
    }
    let mut sorted = labels.clone();
    sorted.sort();
    if !seen.insert(format!("{name} {sorted:?}")) {
        return Err("it is there twice".to_owned());
    }
    family.samples.push((labels, value.to_owned()));
    Ok(())
}

type Labels = Vec<(String, String)>;

/// Labels up to the closing brace, and what follows.
fn labels(text: &str) -> Result<(Labels, &str), String> {
    let mut out: Labels = vec![];
    let mut rest = text;
    loop {
        let (name, quoted) = rest.split_once("=\"").ok_or("no label")?;
        is_name(name)?;
        if name.contains(':') || name.starts_with("__") || out.iter().any(|l| l.0 == name) {
            return Err(format!("label '{name}' is not allowed"));
        }
        let mut escaped = false;
        let end = quoted.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let end = end.ok_or("a label's value does not end")?.0;
        out.push((name.to_owned(), unescaped(&quoted[..end])?));
        rest = &quoted[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok((out, rest.strip_prefix('}').ok_or("labels do not end")?)),
        }
    }
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Err("a quote that is not escaped".to_owned()),
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(c @ ('\\' | '"')) => out.push(c),
                other => return Err(format!("escaped {other:?}")),
            },
            c => out.push(c),
        }
    }
    Ok(out)
}

fn is_name(name: &str) -> Result<(), String> {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':');
    let all = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':');
    if first && all { Ok(()) } else { Err(format!("'{name}' is no name")) }
}
