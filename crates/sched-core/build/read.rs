//! Reads the headers of `sched/abi` and knobs.def line by line; a line it does not know is an error
//! that names file and line. The comment of a field, constant or item stands in its line or in the
//! lines above it; one that begins with dashes heads a group.

/// What the headers say.
#[derive(Default)]
pub struct Schema {
    pub constants: Vec<Constant>,
    pub enums: Vec<Enum>,
    pub structs: Vec<Struct>,
    pub knobs: Vec<Knob>,
}

pub struct Constant {
    pub name: String,
    pub value: String,
    pub doc: String,
}

pub struct Enum {
    pub name: String,
    /// Name, explicit value if any, comment.
    pub items: Vec<(String, Option<String>, String)>,
}

pub struct Struct {
    pub name: String,
    pub doc: String,
    pub fields: Vec<Field>,
}

pub struct Field {
    pub name: String,
    pub rust: &'static str,
    /// Number of elements as C writes it, for arrays.
    pub count: Option<String>,
    pub doc: String,
}

pub struct Knob {
    pub name: String,
    pub numbers: [u64; 3],
    pub unit: String,
    pub doc: String,
}

/// A line without its comments, and the comments that begin in it.
struct Line {
    number: usize,
    code: String,
    comment: String,
}

const TYPES: [(&str, &str); 7] = [
    ("u8", "u8"),
    ("u16", "u16"),
    ("u32", "u32"),
    ("u64", "u64"),
    ("s32", "i32"),
    ("s64", "i64"),
    ("char", "u8"),
];

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Splits code from comments; a comment over several lines belongs to the line it begins in.
fn lines(text: &str) -> Vec<Line> {
    let mut out: Vec<Line> = vec![];
    let mut owner: Option<usize> = None;
    for (i, raw) in text.lines().enumerate() {
        let mut line = Line { number: i + 1, code: String::new(), comment: String::new() };
        let mut rest = raw;
        loop {
            if let Some(o) = owner {
                let (inside, after) =
                    rest.split_once("*/").map_or((rest, None), |(a, b)| (a, Some(b)));
                let to: &mut String =
                    if o == out.len() { &mut line.comment } else { &mut out[o].comment };
                let words = inside.trim().trim_start_matches('*').trim();
                if !to.is_empty() && !words.is_empty() {
                    to.push(' ');
                }
                to.push_str(words);
                let Some(after) = after else { break };
                owner = None;
                rest = after;
            }
            let Some((before, inside)) = rest.split_once("/*") else {
                line.code.push_str(rest);
                break;
            };
            line.code.push_str(before);
            owner = Some(out.len());
            rest = inside;
        }
        line.code = line.code.trim().to_owned();
        out.push(line);
    }
    out
}

impl Schema {
    /// Takes in one header.
    pub fn header(&mut self, path: &str, text: &str) -> Result<(), String> {
        let mut doc = String::new();
        let mut lines = lines(text).into_iter();
        while let Some(line) = lines.next() {
            let bad = |what: &str, l: &Line| {
                format!("{path}:{}: cannot read '{}' as {what}", l.number, l.code)
            };
            if line.code.is_empty() {
                note(&mut doc, line.comment);
                continue;
            }
            let code = line.code.as_str();
            if let Some(define) = code.strip_prefix("#define ") {
                let doc = doc_of(&mut doc, &line.comment);
                self.define(define, doc).ok_or_else(|| bad("a constant", &line))?;
            } else if let Some(head) = code.strip_prefix("struct ") {
                let name = head
                    .strip_suffix('{')
                    .map(str::trim)
                    .filter(|n| is_name(n))
                    .ok_or_else(|| bad("a struct", &line))?;
                let mut fields = vec![];
                let mut above = String::new();
                loop {
                    let l =
                        lines.next().ok_or_else(|| format!("{path}: struct {name} has no end"))?;
                    match l.code.as_str() {
                        "};" => break,
                        "" => note(&mut above, l.comment),
                        code => {
                            let doc = doc_of(&mut above, &l.comment);
                            fields.push(field(code, &doc).ok_or_else(|| bad("a field", &l))?)
                        }
                    }
                }
                self.structs.push(Struct {
                    name: name.to_owned(),
                    doc: std::mem::take(&mut doc),
                    fields,
                });
            } else if code.starts_with("enum ") {
                let mut parts = vec![(line.code.clone(), line.comment.clone())];
                while !parts.last().is_some_and(|p| p.0.ends_with("};")) {
                    let l = lines.next().ok_or_else(|| bad("an enum", &line))?;
                    parts.push((l.code, l.comment));
                }
                self.enums.push(enumeration(&parts).ok_or_else(|| bad("an enum", &line))?);
            } else if !["#ifndef ", "#endif", "#include ", "_Static_assert("]
                .iter()
                .any(|p| code.starts_with(p))
            {
                return Err(bad("a constant, an enum or a struct", &line));
            }
            doc.clear();
        }
        Ok(())
    }

    fn define(&mut self, define: &str, doc: String) -> Option<()> {
        let Some((name, value)) = define.split_once(char::is_whitespace) else {
            // An include guard has no value.
            return define.ends_with("_H").then_some(());
        };
        if name.contains('(') {
            return Some(()); // C's own
        }
        let value = value.trim();
        let value = value.strip_prefix('(').and_then(|v| v.strip_suffix(')')).unwrap_or(value);
        let known =
            |t: &str| t.parse::<u64>().is_ok() || self.constants.iter().any(|c| c.name == t);
        let mut terms = value.split(' ').enumerate();
        let good = terms
            .all(|(i, t)| if i % 2 == 0 { known(t) } else { ["+", "-", "*", "/"].contains(&t) });
        if !good || !is_name(name) {
            return None;
        }
        self.constants.push(Constant { name: name.to_owned(), value: value.to_owned(), doc });
        Some(())
    }

    /// Takes in the list of knobs, and holds it against `struct knobs`.
    pub fn knobs(&mut self, path: &str, text: &str) -> Result<(), String> {
        for line in lines(text) {
            if line.code.is_empty() {
                continue;
            }
            let bad = || {
                format!(
                    "{path}:{}: cannot read '{}': allowed KNOB(name, default, min, max, \"unit\", \
                        \"meaning\")",
                    line.number, line.code
                )
            };
            let inner = line
                .code
                .strip_prefix("KNOB(")
                .and_then(|c| c.strip_suffix(')'))
                .ok_or_else(bad)?;
            let mut parts = inner.splitn(6, ',').map(str::trim);
            let mut next = || parts.next().ok_or_else(bad);
            let name = next()?.to_owned();
            let mut numbers = [0; 3];
            for n in &mut numbers {
                *n = next()?.parse().map_err(|_| bad())?;
            }
            let mut quoted = || {
                next().and_then(|t| {
                    t.strip_prefix('"').and_then(|t| t.strip_suffix('"')).ok_or_else(bad)
                })
            };
            let (unit, doc) = (quoted()?.to_owned(), quoted()?.to_owned());
            let [default, min, max] = numbers;
            if !is_name(&name) || !(min..=max).contains(&default) || doc.contains(['"', '\\']) {
                return Err(bad());
            }
            self.knobs.push(Knob { name, numbers, unit, doc });
        }
        let record = self
            .structs
            .iter()
            .find(|s| s.name == "knobs")
            .ok_or("knobs.h: there is no struct knobs")?;
        let fields: Vec<&str> = record.fields.iter().map(|f| f.name.as_str()).collect();
        let listed: Vec<&str> = self.knobs.iter().map(|k| k.name.as_str()).collect();
        if fields != listed || record.fields.iter().any(|f| f.rust != "u64" || f.count.is_some()) {
            return Err(format!(
                "{path}: struct knobs has {fields:?}, the list has {listed:?}: both need the same u64 fields in the same order"
            ));
        }
        Ok(())
    }
}

/// Keeps a comment for what stands below it.
fn note(above: &mut String, comment: String) {
    if comment.starts_with("---") {
        above.clear();
    } else if !comment.is_empty() {
        *above = comment;
    }
}

/// The comment of a line, or that above it.
fn doc_of(above: &mut String, comment: &str) -> String {
    let above = std::mem::take(above);
    if comment.is_empty() { above } else { comment.to_owned() }
}

fn field(code: &str, comment: &str) -> Option<Field> {
    let (kind, rest) = code.strip_suffix(';')?.split_once(char::is_whitespace)?;
    let rust = TYPES.iter().find(|t| t.0 == kind)?.1;
    let (name, count) = match rest.trim().split_once('[') {
        Some((name, n)) => (name, Some(n.strip_suffix(']')?.to_owned())),
        None => (rest.trim(), None),
    };
    let counted = count.as_ref().is_none_or(|c| is_name(c) || c.parse::<u32>().is_ok());
    (is_name(name) && counted).then(|| Field {
        name: name.to_owned(),
        rust,
        count,
        doc: comment.to_owned(),
    })
}

fn enumeration(parts: &[(String, String)]) -> Option<Enum> {
    let (name, first) = parts[0].0.strip_prefix("enum ")?.split_once('{')?;
    let mut items = vec![];
    let mut above = String::new();
    for (i, (code, comment)) in parts.iter().enumerate() {
        let code = if i == 0 { first } else { code.as_str() };
        if code.is_empty() {
            note(&mut above, comment.clone());
            continue;
        }
        let comment = doc_of(&mut above, comment);
        for item in code.trim_end_matches("};").split(',').map(str::trim).filter(|t| !t.is_empty())
        {
            let (n, value) = item
                .split_once('=')
                .map_or((item, None), |(n, v)| (n.trim(), Some(v.trim().to_owned())));
            if !is_name(n) || value.as_ref().is_some_and(|v| v.parse::<u32>().is_err()) {
                return None;
            }
            items.push((n.to_owned(), value, comment.clone()));
        }
    }
    is_name(name.trim()).then(|| Enum { name: name.trim().to_owned(), items })
}
