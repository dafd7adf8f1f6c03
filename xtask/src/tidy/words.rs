//! Words that must not stand in comments and documents because the field has others, and the
//! glossary of those that the field has; it judges no identifiers and no strings.

use super::markdown::prose;
use super::scan::{Language, comments};
use super::{Finding, SourceFile, Tree};
use std::collections::BTreeSet;

/// Name of the rule in findings and in the ratchet.
pub(crate) const RULE: &str = "words";
const GLOSSARY: &str = "docs/concepts.md";
/// Heading of the glossary's section, and the columns of each of its tables.
const SECTION: &str = "## Glossary";
const COLUMNS: [&str; 4] = ["word", "meaning", "unit", "source"];
/// Folders whose comments are read.
const FOLDERS: [&str; 4] = ["sched/", "crates/", "lab/", "xtask/"];
/// Documents that the source column may name; a dash stands for a word of this project.
const SOURCES: [&str; 10] =
    ["VS51", "ESX4", "RDY", "IBM", "XK", "EEVDF", "GCRA", "Linux", "ESXi", "esxtop"];

const PERSON: &str =
    "a noun: the world, VM, thread, process, caller or administrator that is meant";

/// Words and phrases, in lower case, and what to write instead.
const TABLE: &[(&[&str], &str)] = &[
    (
        &["owed", "owes", "owe", "owing"],
        "lag: a VM has positive lag, lags by 2 ms, is behind its entitlement",
    ),
    (&["forgive", "forgives", "forgiven"], "clamp: lag is clamped"),
    (&["who", "whom", "whoever", "whomever"], PERSON),
    (&["nobody", "somebody", "anybody", "everybody", "no one"], PERSON),
    (&["let go", "lets go", "letting go", "let_go"], "unpark, co-start or release"),
    (
        &[
            "held vm",
            "held vms",
            "held world",
            "held worlds",
            "held sleeper",
            "vm held",
            "vms held",
            "vcpu held",
            "vcpus held",
            "held to a pcpu",
            "held to one pcpu",
            "held to pcpus",
            "held to some",
            "held to few",
            "held to a few",
            "held to the same",
        ],
        "pinned (affinity-restricted)",
    ),
    (&["roam", "roams", "roaming"], "unrestricted: may run on all pCPUs"),
    (&["lead_ns", "led_ns"], "offset, or the lead of a vCPU over its slowest sibling"),
    (&["its key", "owed key", "vm's key", "world's key"], "deadline"),
    (&["urgent", "urgency"], "a request of 0, an earlier deadline"),
    (
        &[
            "a turn",
            "its turn",
            "whose turn",
            "by turns",
            "in turns",
            "take turns",
            "takes turns",
            "other's turn",
            "turn of a vm",
        ],
        "gang slice; of two worlds: they alternate",
    ),
    (&["crew", "crews"], "gang"),
    (&["laggard", "laggards"], "lagging vCPU"),
    (&["landing"], "placement from a timer"),
    (&["seat", "seats"], "placement candidate, or VM"),
    (
        &["rescue", "rescues", "rescued", "overdue"],
        "the starvation guard; longer than ready_bound_us",
    ),
    (
        &["told"],
        "reported, printed, passed, given; told apart: distinguished; unless told otherwise: by default",
    ),
    (&["stretch", "stretches"], "interval, span, without interruption"),
    (&["stint", "stints"], "interval, run"),
    (&["lane", "lanes"], "row, track"),
];

/// Findings of the whole tree.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out: Vec<Finding> = tree.files.iter().filter_map(unwanted).collect();
    if tree.file(GLOSSARY).is_some() {
        out.extend(glossary(tree));
    }
    out
}

/// What of a file is read: comments, prose, titles of scenarios.
fn readable(file: &SourceFile) -> Option<String> {
    if file.has_extension(&["md"]) {
        let prose = prose(&file.text);
        let mut lines = vec![String::new(); file.text.lines().count()];
        prose.into_iter().for_each(|(line, text)| lines[line - 1] = without_targets(text));
        return Some(lines.join("\n"));
    }
    if file.path.starts_with("scenarios/") && file.has_extension(&["toml"]) {
        let read = |l: &&str| ["#", "title", "source"].iter().any(|w| l.starts_with(w));
        return Some(
            file.text
                .lines()
                .map(|l| if read(&l) { l } else { "" })
                .fold(String::new(), |text, line| text + line + "\n"),
        );
    }
    let within = FOLDERS.iter().any(|f| file.path.starts_with(f));
    match file {
        f if within && f.has_extension(&["rs"]) => Some(comments(&f.text, Language::Rust)),
        f if within && f.has_extension(&["c", "h"]) => Some(comments(&f.text, Language::C)),
        _ => None,
    }
}

/// A line of Markdown without the targets of its links.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |text, part| text + "] " + part.split_once(')').map_or(part, |p| p.1))
}

/// A word with its place in the text.
struct Word<'a> {
    text: &'a str,
    line: usize,
    /// Whether only spaces and the marks of comments stand between it and the word before.
    follows: bool,
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '\''
}

/// Words outside code spans.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut out: Vec<Word<'_>> = vec![];
    for (i, line) in text.lines().enumerate() {
        let mut follows = true;
        for (n, span) in line.split('`').enumerate() {
            follows &= n == 0;
            if n % 2 == 1 {
                continue;
            }
            let mut rest = span;
            while let Some(start) = rest.find(is_part) {
                let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |e| start + e);
                let between = rest[..start].trim_matches([' ', '\t', '/', '*', '!']);
                let follows_now = follows && between.is_empty();
                out.push(Word { text: &rest[start..end], line: i + 1, follows: follows_now });
                (rest, follows) = (&rest[end..], true);
            }
            follows = follows && rest.trim().is_empty();
        }
    }
    out
}

/// Words of a phrase.
fn phrase(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// Whether a phrase begins at the first of these words.
fn begins(words: &[Word<'_>], phrase: &[&str]) -> bool {
    words.len() >= phrase.len()
        && words.iter().zip(phrase).enumerate().all(|(i, (word, want))| {
            (i == 0 || word.follows) && word.text.eq_ignore_ascii_case(want)
        })
}

/// The unwanted words of a text, with line, the word and what to write instead.
fn found(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let table: Vec<_> = TABLE
        .iter()
        .flat_map(|(all, instead)| all.iter().map(move |w| (phrase(w), *w, *instead)))
        .collect();
    let words = words(text);
    let at = |i: usize| table.iter().find(|(phrase, ..)| begins(&words[i..], phrase));
    (0..words.len()).filter_map(|i| at(i).map(|(_, w, to)| (words[i].line, *w, *to))).collect()
}

/// One finding for a file, with the number of its unwanted words.
fn unwanted(file: &SourceFile) -> Option<Finding> {
    let found = found(&readable(file)?);
    let (line, word, instead) = *found.first()?;
    let lines: BTreeSet<usize> = found.iter().map(|f| f.0).collect();
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let what = format!(
        "seen {} words that the field has others for, in lines {}; the first is '{word}', write \
            {instead}",
        found.len(),
        lines.join(", ")
    );
    Some(Finding { count: Some(found.len()), ..Finding::new(RULE, &file.path, line, what) })
}

/// A line of the glossary.
struct Term {
    line: usize,
    /// The word and its other spellings.
    names: Vec<String>,
    cells: Vec<String>,
}

/// Lines of the tables in the glossary's section.
fn terms(text: &str) -> Vec<Term> {
    let mut out = vec![];
    let mut within = false;
    for (line, text) in prose(text) {
        if text.starts_with("## ") || text.starts_with("# ") {
            within = text == SECTION;
        }
        if !within || !text.starts_with('|') || text.starts_with("|--") {
            continue;
        }
        let cells: Vec<String> =
            text.trim().trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
        if cells[0] != COLUMNS[0] {
            let names = cells[0].split(',').map(|n| n.trim().to_lowercase()).collect();
            out.push(Term { line, names, cells });
        }
    }
    out
}

/// Findings of the glossary: each word once, with meaning, unit and source, used elsewhere, and
/// none that the table forbids.
fn glossary(tree: &Tree) -> Vec<Finding> {
    let mut out = vec![];
    let mut seen = BTreeSet::new();
    let terms = terms(tree.text(GLOSSARY));
    if terms.is_empty() {
        let what = format!("seen no glossary; begin it with '{SECTION}' and a table");
        out.push(Finding::new(RULE, GLOSSARY, 0, what));
    }
    let used = used_in(tree);
    for term in &terms {
        let mut say = |what: String| out.push(Finding::new(RULE, GLOSSARY, term.line, what));
        for name in &term.names {
            if !seen.insert(name.clone()) {
                say(format!("'{name}' is there twice; keep one"));
            }
            if TABLE.iter().any(|(all, _)| all.contains(&name.as_str())) {
                say(format!("'{name}' is a word to avoid; take it out of the table or from here"));
            }
        }
        if term.cells.len() != COLUMNS.len() || term.cells.iter().any(String::is_empty) {
            say(format!("seen {} cells, allowed {}", term.cells.len(), COLUMNS.join(", ")));
        }
        let source = term.cells.get(3).map_or("", String::as_str);
        if source != "-" && !SOURCES.iter().any(|s| source.contains(s)) {
            say(format!("seen the source '{source}', allowed - or {}", SOURCES.join(", ")));
        }
        if !term.names.iter().any(|name| used.contains(&format!(" {} ", plain(name)))) {
            say(format!("'{}' is used nowhere else; remove it", term.names[0]));
        }
    }
    out
}

/// Lower case, every run of other characters than letters and digits one space.
fn plain(text: &str) -> String {
    let lower = text.to_lowercase();
    lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// All words of sources and documents but the glossary's.
fn used_in(tree: &Tree) -> String {
    let files = tree.files.iter().filter(|f| f.path != GLOSSARY);
    let read = files.filter(|f| f.has_extension(&["rs", "c", "h", "def", "md", "toml"]));
    let mut out = String::from(" ");
    read.for_each(|f| out += &(plain(&f.text) + " "));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let read = readable(&SourceFile::of(path, text)).unwrap_or_default();
        found(&read).into_iter().map(|(line, word, _)| (line, word)).collect()
    }

    #[test]
    fn words_are_seen_in_comments_and_prose_and_nowhere_else() {
        let rust = "/// Whoever is owed.\nfn nobody() { let _ = \"who\"; } // `who` and them\n";
        assert_eq!(seen("crates/a.rs", rust), [(1, "whoever"), (1, "owed")]);
        assert_eq!(seen("sched/a.h", "/* What it\n * owes */\nu64 owed;\n"), [(2, "owes")]);
        assert_eq!(seen("fuzz/a.rs", "// who\n"), []);
        let text = "Who [x](who.md) `who`\n```sh\nwho\n```\nheld-by, whose\n";
        assert_eq!(seen("a.md", text), [(1, "who")]);
        let text = "title = \"who\"\n# owed\nlabel = \"roams\"\n";
        assert_eq!(seen("scenarios/a/scenario.toml", text), [(1, "who"), (2, "owed")]);
    }

    #[test]
    fn phrases_are_seen_over_line_ends_and_not_over_full_stops_or_code_spans() {
        let over = "/* It is let\n * go by its\tturn. A\n * turn */\n";
        assert_eq!(seen("sched/a.c", over), [(1, "let go"), (2, "its turn"), (2, "a turn")]);
        assert_eq!(seen("a.md", "It is let. Go on. A `b` turn, let, go\n"), []);
        assert_eq!(seen("a.md", "Held VMs and VMs held\nto pCPUs are held by a lock\n").len(), 3);
    }

    #[test]
    fn a_file_has_one_finding_that_counts_and_names_lines_and_remedy() {
        let finding = unwanted(&SourceFile::of("a.md", "ok\nowed, owed\nroams\n"));
        let finding = finding.expect("three words");
        assert_eq!((finding.count, finding.line), (Some(3), 2));
        assert!(finding.what.contains("in lines 2, 3; the first is 'owed', write lag"));
    }

    #[test]
    fn words_of_the_glossary_are_there_once_complete_and_used() {
        let text = "# C\n\n## Glossary\n\n| word | meaning | unit | source |\n|---|---|---|---|\n\
            | lag | a | ns | VS51 P2 |\n| gang, co-scheduled | b | - | - |\n| Lag | c | ns | VS51 |\n\
            | owed | d | - | - |\n| idle | | - | - |\n| far | e | - | my own |\n\n## Other\n\
            | gang | x |\n";
        let files = vec![
            SourceFile::of(GLOSSARY, text),
            SourceFile::of("a.c", "int lag_ns, owed, idle; /* co-scheduled */\n"),
        ];
        let found = glossary(&Tree { root: "no-such-root".into(), files });
        let seen: Vec<(usize, &str)> =
            found.iter().map(|f| (f.line, f.what.split([';', ',']).next().unwrap_or(""))).collect();
        let want = [
            (9, "'lag' is there twice"),
            (10, "'owed' is a word to avoid"),
            (11, "seen 4 cells"),
            (12, "seen the source 'my own'"),
            (12, "'far' is used nowhere else"),
        ];
        assert_eq!(seen, want);
    }
}
