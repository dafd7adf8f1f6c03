//! `cargo xtask house`: counts what the scheduler's source consists of, for the table of
//! docs/design/006-house.md. It counts text, and judges nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;
use lab::LabError;

use crate::history::{self, Row};
use crate::say::sayln;
use crate::tidy::{self, scan};

/// Counts mechanisms, knobs, constants, fields, lines, arrows and climbs of sched/.
#[derive(Args)]
pub struct House {
    /// Append the figures to bench/history/house.jsonl.
    #[arg(long)]
    record: bool,
}

const NAME: &str = "house";
/// Column of the figures.
const NOW: &str = "now";
/// Rooms of `sched/` from the lowest to the highest, as ARCHITECTURE.md has them.
const ROOMS: [&str; 10] =
    ["abi", "platform", "law", "tell", "account", "queue", "place", "tick", "core", "glue"];
/// Records whose fields are counted, in the order of the row.
const RECORDS: [&str; 6] = ["host", "pcpu", "vm", "world", "limiter", "node"];

/// Runs `cargo xtask house`.
///
/// # Errors
/// `LabError` when a file cannot be read or the history cannot be written.
pub fn run(arguments: &House) -> Result<ExitCode, LabError> {
    let rows = rows(&Source::read(&tidy::root())?);
    for row in &rows {
        sayln!("{}: {}", row.row, row.figures[NOW].as_str().unwrap_or(""));
    }
    if arguments.record {
        history::record(&tidy::root(), NAME, "cargo xtask house".into(), "", rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The files below `sched/`, by path from there.
struct Source(Vec<(String, String)>);

impl Source {
    fn read(root: &Path) -> Result<Source, LabError> {
        let failed = |seen: String| LabError::new("sched/", "be counted", seen, "run it in git");
        let listed = Command::new("git").args(["ls-files", "sched"]).current_dir(root).output();
        let listed = listed.map_err(|e| failed(e.to_string()))?.stdout;
        let mut all = vec![];
        for path in String::from_utf8_lossy(&listed).lines() {
            let text =
                std::fs::read_to_string(root.join(path)).map_err(|e| failed(e.to_string()))?;
            all.push((path.trim_start_matches("sched/").to_owned(), text));
        }
        Ok(Source(all))
    }

    /// Lines of all files that `chosen` has, by path, and that begin so.
    fn lines<'a>(
        &'a self,
        chosen: impl Fn(&str) -> bool + 'a,
        start: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        let files = self.0.iter().filter(move |(path, _)| chosen(path));
        files.flat_map(|(_, text)| text.lines()).filter(move |line| line.starts_with(start))
    }
}

/// The room of a path: its folder, or `core` for what stands at the top.
fn room(path: &str) -> &str {
    path.split_once('/').map_or("core", |p| p.0)
}

fn height(room: &str) -> usize {
    ROOMS.iter().position(|r| *r == room).unwrap_or(ROOMS.len())
}

fn rows(source: &Source) -> Vec<Row> {
    let all = |_: &str| true;
    let policy = |path: &str| !["abi", "platform", "glue"].contains(&room(path));
    let number = |line: &&str| {
        line.split_whitespace()
            .nth(2)
            .is_some_and(|v| v.starts_with(|c: char| "(-~".contains(c) || c.is_ascii_digit()))
            && line.split_whitespace().nth(1).is_some_and(|name| !name.contains('('))
    };
    let fields = RECORDS.map(|name| fields(source, name).to_string());
    let asserts =
        source.0.iter().filter(|(p, _)| policy(p)).map(|(_, t)| t.matches("plat_assert").count());
    let (back, arrows) = arrows(source);
    let (climbs, stays) = climbs(source, "core_enqueue", "w");
    [
        ("mechanisms", source.lines(all, "MECHANISM(").count().to_string()),
        ("knobs", source.lines(all, "KNOB(").count().to_string()),
        (
            "constants of policy",
            source.lines(policy, "#define ").filter(number).count().to_string(),
        ),
        ("fields of host, pCPU, VM, world, limiter, node", fields.join(", ")),
        (
            "lines of `sched/`, comments included",
            thousands(source.0.iter().map(|f| f.1.lines().count()).sum()),
        ),
        ("arrows between rooms that run back up", format!("{back} of {arrows}")),
        (
            "climbs of a world on its way through `core_enqueue`, of stays",
            format!("{climbs} of {stays}"),
        ),
        ("assertions in the core", asserts.sum::<usize>().to_string()),
    ]
    .map(|(name, figure)| {
        let mut row = Row::new(name);
        row.text(NOW, figure);
        row
    })
    .into()
}

/// A number with commas, as documents write it.
fn thousands(n: usize) -> String {
    if n < 1000 { n.to_string() } else { format!("{},{:03}", n / 1000, n % 1000) }
}

/// Number of fields of a record, arrays as one.
fn fields(source: &Source, name: &str) -> usize {
    let head = format!("struct {name} {{");
    let texts = source.0.iter().filter(|(path, _)| room(path) == "abi");
    let mut code = texts.map(|(_, text)| scan::code(text, scan::Language::C));
    code.find_map(|code| {
        let body = code.split_once(&head)?.1.split_once("\n}")?.0.to_owned();
        Some(body.split(';').map(|f| f.split(',').filter(|p| !p.trim().is_empty()).count()).sum())
    })
    .unwrap_or(0)
}

/// Includes of a file of another room: those that run back up, and all.
fn arrows(source: &Source) -> (usize, usize) {
    let mut all = vec![];
    for (path, text) in &source.0 {
        for line in text.lines() {
            let Some(name) = line.strip_prefix("#include \"") else { continue };
            let name = name.split('"').next().unwrap_or("");
            let to = match name.strip_prefix("../") {
                Some(rest) => room(rest),
                None if name.contains('/') => room(name),
                None => room(path),
            };
            if to != room(path) {
                all.push((room(path), to));
            }
        }
    }
    (all.iter().filter(|(own, to)| height(to) > height(own)).count(), all.len())
}

/// A function of the scheduler.
struct Function {
    room: &'static str,
    parameters: Vec<String>,
    body: String,
}

/// Stays of a value that is passed on from call to call, in the order of the code and in all
/// branches: those in a room above that of the stay before, and all.
fn climbs(source: &Source, entry: &str, value: &str) -> (usize, usize) {
    let functions = functions(source);
    let mut stays = vec![];
    walk(&functions, entry, &BTreeSet::from([value.to_owned()]), &mut vec![], &mut stays);
    let up = stays.windows(2).filter(|s| height(s[1]) > height(s[0])).count();
    (up, stays.len())
}

fn walk(
    functions: &BTreeMap<String, Function>,
    name: &str,
    carriers: &BTreeSet<String>,
    within: &mut Vec<String>,
    stays: &mut Vec<&'static str>,
) {
    let Some(function) = functions.get(name) else { return };
    stays.push(function.room);
    within.push(name.to_owned());
    for (called, arguments) in calls(&function.body) {
        let Some(callee) = functions.get(called) else { continue };
        let passed =
            arguments.iter().zip(&callee.parameters).filter(|(a, _)| carriers.contains(*a));
        let named: BTreeSet<String> = passed.map(|(_, p)| p.clone()).collect();
        if !named.is_empty() && !within.iter().any(|w| w == called) {
            walk(functions, called, &named, within, stays);
        }
    }
    within.pop();
}

/// All functions with a body, by name, with the names of their parameters.
fn functions(source: &Source) -> BTreeMap<String, Function> {
    let mut out = BTreeMap::new();
    for (path, text) in &source.0 {
        let Some(room) = ROOMS.into_iter().find(|r| *r == room(path) && *r != "platform") else {
            continue;
        };
        let code = scan::code(text, scan::Language::C);
        let mut from = 0;
        // A body begins with a brace at the start of a line, and so does its end.
        while let Some(open) = code[from..].find("\n{\n").map(|i| from + i) {
            let end = code[open..].find("\n}").map_or(code.len(), |i| open + i);
            let start = code[from..open].rfind(['}', ';']).map_or(from, |i| from + i + 1);
            let head = &code[start..open];
            if let Some((before, parameters)) = head.split_once('(') {
                let name = before.split_whitespace().last().unwrap_or("").trim_start_matches('*');
                let last = |p: &str| {
                    p.split(|c: char| !is_name(c)).rfind(|w| !w.is_empty()).unwrap_or("").to_owned()
                };
                let parameters =
                    parameters.trim_end().trim_end_matches(')').split(',').map(last).collect();
                let body = code[open..end].to_owned();
                out.entry(name.to_owned()).or_insert(Function { room, parameters, body });
            }
            from = end;
        }
    }
    out
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Calls in a body, in order, with their arguments.
fn calls(body: &str) -> Vec<(&str, Vec<String>)> {
    let mut out = vec![];
    for (open, _) in body.match_indices('(') {
        let name = body[..open].rsplit(|c| !is_name(c)).next().unwrap_or("");
        if name.is_empty() {
            continue;
        }
        let (mut depth, mut arguments) = (0, vec![String::new()]);
        for c in body[open..].chars() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 1 => arguments.push(String::new()),
                _ => (),
            }
            if depth == 0 {
                break;
            }
            if depth != 1 || c != '(' && c != ',' {
                arguments.last_mut().expect("one at least").push(c);
            }
        }
        out.push((name, arguments.iter().map(|a| a.trim().to_owned()).collect()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let of = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        Source(vec![
            of("abi/knobs.def", "KNOB(a, 1)\nKNOB(b, 2)\n"),
            of(
                "abi/vm.h",
                "struct vm {\n\t/* a; b */\n\tu64 a, b;\n\tu32 c[4];\n};\n#define CAP 4\n",
            ),
            of(
                "law/l.h",
                "#define MOST 5 /* ns */\n#define F(x) 5\n#define G \"a\"\n\
                 u64 law(struct world *w)\n{\n\treturn 1;\n}\n",
            ),
            of(
                "queue/q.h",
                "#include \"../law/l.h\"\n\
                 void queue(struct host *h, struct world *x)\n{\n\tplat_assert(h, law(x));\n}\n",
            ),
            of(
                "core.c",
                "#include \"queue/q.h\"\nvoid core_enqueue(struct host *h, struct world *w)\n{\n\
                 \tif (law(w))\n\t\tqueue(h, w);\n\tlaw(h);\n\tother(w);\n}\n",
            ),
        ])
    }

    #[test]
    fn a_source_is_counted() {
        let rows = rows(&source());
        let seen: Vec<&str> = rows.iter().filter_map(|r| r.figures[NOW].as_str()).collect();
        assert_eq!(seen, ["0", "2", "1", "0, 0, 3, 0, 0, 0", "28", "0 of 2", "1 of 4", "1"]);
    }

    #[test]
    fn a_stay_counts_in_each_function_that_gets_the_value_and_a_climb_where_its_room_is_higher() {
        // core, law, queue (a climb), law: what gets another value is passed over.
        assert_eq!(climbs(&source(), "core_enqueue", "w"), (1, 4));
        assert_eq!(climbs(&source(), "core_enqueue", "none"), (0, 1));
    }
}
