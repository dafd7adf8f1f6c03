//! Every `make`, `cargo xtask` and `tandem` command that a document names exists, with the options
//! it is given.

use super::markdown::Document;
use super::{Finding, Tree};
use std::collections::BTreeSet;

const RULE: &str = "commands";
/// Fences that hold commands; one without a name counts too.
const SHELLS: [&str; 4] = ["", "sh", "bash", "console"];
/// Where `tandem`'s commands are declared.
const TANDEM_MAIN: &str = "crates/tandem/src/main.rs";

/// What may be called.
struct Known {
    make: BTreeSet<String>,
    xtask: Vec<(String, BTreeSet<String>)>,
    tandem: BTreeSet<String>,
    /// Options of all of tandem's commands together.
    tandem_options: BTreeSet<String>,
}

pub(crate) fn check(tree: &Tree, xtask: &clap::Command) -> Vec<Finding> {
    let known = Known {
        make: targets(tree.text("Makefile")),
        xtask: xtask_commands(xtask),
        tandem: variants(tree.text(TANDEM_MAIN)),
        tandem_options: tree
            .files
            .iter()
            .filter(|f| f.path.starts_with("crates/tandem/src/"))
            .flat_map(|f| options(&f.text))
            .collect(),
    };
    let mut out = vec![];
    for file in tree.files.iter().filter(|f| f.has_extension(&["md"])) {
        for (line, text) in code_lines(&file.text) {
            out.extend(known.wrong(&text).map(|what| Finding::new(RULE, &file.path, line, what)));
        }
    }
    out
}

/// Lines of code in a document: those of shell fences and each span.
fn code_lines(text: &str) -> Vec<(usize, String)> {
    let document = Document::of(text);
    let shell = |info: &str| SHELLS.contains(&info.split_whitespace().next().unwrap_or(""));
    let fenced = document.fences.iter().filter(|f| shell(&f.info));
    let mut out: Vec<(usize, String)> = fenced
        .flat_map(|f| f.body.lines().enumerate().map(|(i, l)| (f.line + i, l.to_owned())))
        .collect();
    out.extend(document.spans);
    out
}

impl Known {
    /// What is wrong with a line of code, if anything.
    fn wrong(&self, line: &str) -> Option<String> {
        let line = line.split(" #").next().unwrap_or(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        (0..words.len()).find_map(|i| {
            let begins = i == 0
                || ["&&", "||", "|", ";", "sudo", "$", "time", "nice"].contains(&words[i - 1])
                || words[i - 1].ends_with(';');
            if !begins {
                return None;
            }
            match words[i..] {
                ["make", target, ..] => unknown("make", target, self.make.iter()),
                ["cargo", "xtask", task, ref rest @ ..] => self.xtask_wrong(task, rest),
                [tool, command, ref rest @ ..] if tool == "tandem" || tool.ends_with("/tandem") => {
                    let options = |o: &str| self.tandem_options.contains(o);
                    unknown("tandem", command, self.tandem.iter())
                        .or_else(|| unknown_option("tandem", command, rest, options))
                }
                _ => None,
            }
        })
    }

    fn xtask_wrong(&self, task: &str, rest: &[&str]) -> Option<String> {
        let wrong = unknown("cargo xtask", task, self.xtask.iter().map(|t| &t.0));
        let options = self.xtask.iter().find(|t| t.0 == task).map(|t| &t.1);
        wrong.or_else(|| {
            unknown_option("cargo xtask", task, rest, |o| options.is_none_or(|all| all.contains(o)))
        })
    }
}

/// A word that looks like a command and is none; placeholders in capitals and options are passed
/// over.
fn unknown<'a>(
    tool: &str,
    word: &str,
    mut all: impl Iterator<Item = &'a String> + Clone,
) -> Option<String> {
    let word = word.trim_end_matches([';', ',', '.']);
    let looks = word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let list = all.clone().cloned().collect::<Vec<_>>().join(", ");
    (looks && !all.any(|a| a == word)).then(|| format!("seen '{tool} {word}', allowed {list}"))
}

fn unknown_option(
    tool: &str,
    command: &str,
    rest: &[&str],
    known: impl Fn(&str) -> bool,
) -> Option<String> {
    let own = rest.iter().take_while(|w| !["--", "|", "&&", ";", "||", ">"].contains(w));
    let name = |w: &&str| {
        w.trim_start_matches('[')
            .strip_prefix("--")
            .map(|o| o.split(['=', ']', ';', ',']).next().unwrap_or(o).to_owned())
    };
    let wrong = own
        .filter_map(name)
        .find(|o| !["help", "version", ""].contains(&o.as_str()) && !known(o))?;
    Some(format!("'{tool} {command}' has no option --{wrong}; see its --help"))
}

/// Targets of a Makefile.
fn targets(text: &str) -> BTreeSet<String> {
    let name = |l: &str| l.split_once(':').map(|x| x.0.to_owned());
    let is = |t: &String| !t.is_empty() && t.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    text.lines()
        .filter(|l| !l.starts_with(['\t', '#', '.', ' ']))
        .filter_map(name)
        .filter(is)
        .collect()
}

fn xtask_commands(xtask: &clap::Command) -> Vec<(String, BTreeSet<String>)> {
    let options = |c: &clap::Command| {
        c.get_arguments().filter_map(|a| a.get_long().map(str::to_owned)).collect()
    };
    xtask.get_subcommands().map(|c| (c.get_name().to_owned(), options(c))).collect()
}

/// Commands of `enum Command` as clap names them.
fn variants(text: &str) -> BTreeSet<String> {
    let body =
        text.split("enum Command {").nth(1).and_then(|t| t.split("\n}").next()).unwrap_or("");
    let names =
        body.lines().map(str::trim).filter(|l| l.starts_with(|c: char| c.is_ascii_uppercase()));
    names.map(|l| kebab(l.split(['(', ',', ' ', '{']).next().unwrap_or(l))).collect()
}

/// Names of fields and `long = "…"`, as options: clap derives one from the other.
fn options(text: &str) -> BTreeSet<String> {
    let field = |l: &str| {
        Some(l.strip_prefix("    ")?.trim_start_matches("pub ").split_once(": ")?.0.to_owned())
    };
    let is = |n: &String| {
        n.starts_with(|c: char| c.is_ascii_lowercase())
            && n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let named =
        text.split("long = \"").skip(1).filter_map(|t| Some(t.split_once('"')?.0.to_owned()));
    text.lines().filter_map(field).filter(is).map(|n| n.replace('_', "-")).chain(named).collect()
}

fn kebab(camel: &str) -> String {
    let mut out = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::SourceFile;
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let main = "enum Command {\n    Sim(sim::Args),\n    #[cfg(x)]\n    TopMost(T),\n}\nstruct \
            A {\n    /// x\n    no_wait: bool,\n}\n";
        let files = vec![
            SourceFile::of("a.md", text),
            SourceFile::of("Makefile", "PATH := x\n.PHONY: a\ntest: b ## c\n\t@cargo d: e\n"),
            SourceFile::of(TANDEM_MAIN, main),
        ];
        let lab = clap::Command::new("lab-shell").arg(clap::Arg::new("kernel").long("kernel"));
        let tree = Tree { root: "no-such-root".into(), files };
        check(&tree, &clap::Command::new("xtask").subcommand(lab))
            .into_iter()
            .map(|f| f.line)
            .collect()
    }

    #[test]
    fn commands_and_options_that_exist_are_let_through() {
        let text = "`make test`, `tandem sim x --no-wait`, `tandem top-most | head`, make \
            something of it\n```sh\ncargo xtask lab-shell --kernel older -- nproc --all\nsudo \
            target/release/tandem sim SCENARIO\n```\n```text\nmake x\n```\n`tandem --version`\n";
        assert_eq!(lines(text), [0; 0]);
    }

    #[test]
    fn commands_and_options_that_do_not_exist_are_seen() {
        let text = "`make tests`\n`cargo xtask lab`\n`tandem tops`\n`tandem sim \
            --wait`\n```sh\ntrue && tandem simulate\n```\n`cargo xtask lab-shell --fast`\n";
        let mut seen = lines(text);
        seen.sort_unstable(); // fences come before prose
        assert_eq!(seen, [1, 2, 3, 4, 6, 8]);
    }
}
