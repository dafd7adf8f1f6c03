//! Rules that look at one source file alone: lengths, widths, opening sentence, unfinished work,
//! indentation, kernel names, machine paths.

use super::scan::{Function, Language, code, functions, unbroken};
use super::{Finding, SourceFile};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
/// Of a line of C or Rust, tabs at eight.
const LINE_COLUMNS_MAX: usize = 100;
/// Words of unfinished work; in two parts, so that this file does not hold them.
const UNFINISHED: [(&str, &str); 6] = [
    ("todo", "!("),
    ("unimplemented", "!("),
    ("FIX", "ME"),
    ("XX", "X"),
    ("HA", "CK"),
    ("TO", "DO"),
];
/// Folders that exist on one machine only.
const MACHINE_FOLDERS: [&str; 3] = ["work", "home", "root"];

/// Findings in one file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let mut out = machine_paths(file);
    let Some(kind) = kind(file) else { return out };
    out.extend(file_length(file));
    out.extend(opening(file, kind));
    out.extend(unfinished(file));
    if kind == Kind::Other {
        return out;
    }
    out.extend(line_width(file));
    if kind == Kind::C {
        out.extend(
            functions(&file.text, Language::C).iter().filter_map(|f| function_length(file, f)),
        );
        out.extend(indentation(file));
        out.extend(kernel_names(file));
    }
    out
}

/// Kinds of source files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rust,
    C,
    /// Assembly, linker scripts, shell.
    Other,
}

fn kind(file: &SourceFile) -> Option<Kind> {
    match file {
        f if f.has_extension(&["rs"]) => Some(Kind::Rust),
        f if f.has_extension(&["c", "h", "def"]) => Some(Kind::C),
        f if f.has_extension(&["S", "ld", "sh"]) || f.text.starts_with("#!/") => Some(Kind::Other),
        _ => None,
    }
}

fn file_length(file: &SourceFile) -> Option<Finding> {
    let lines = file.text.lines().count();
    let what =
        format!("seen {lines} lines, allowed {FILE_LINES_MAX}; split it by what its parts decide");
    (lines > FILE_LINES_MAX)
        .then(|| Finding { count: Some(lines), ..Finding::new("file-length", &file.path, 0, what) })
}

/// Width of a line on a screen.
fn columns(line: &str) -> usize {
    line.chars().fold(0, |at, c| if c == '\t' { at / 8 * 8 + 8 } else { at + 1 })
}

/// All lines of C and Rust, but for text that no line end can break. A list of one entry a line is
/// read as a table.
fn line_width(file: &SourceFile) -> Option<Finding> {
    if file.has_extension(&["def"]) {
        return None;
    }
    let lines = file.text.lines().enumerate();
    let mut wide: Vec<usize> =
        lines.filter(|(_, l)| columns(l) > LINE_COLUMNS_MAX).map(|(n, _)| n + 1).collect();
    if file.has_extension(&["rs"]) && !wide.is_empty() {
        let unbroken = unbroken(&file.text);
        wide.retain(|n| !unbroken[*n - 1]);
    }
    let what = format!(
        "seen {} lines of more than {LINE_COLUMNS_MAX} columns, this is the first; wrap them, and \
            strings by '\\' at the end of the line",
        wide.len()
    );
    wide.first().map(|line| Finding {
        count: Some(wide.len()),
        ..Finding::new("line-width", &file.path, *line, what)
    })
}

/// Of C; clippy counts those of Rust (clippy.toml).
fn function_length(file: &SourceFile, f: &Function) -> Option<Finding> {
    let what = format!(
        "{}: seen {} lines, allowed {FUNCTION_LINES_MAX}; branch in parents, compute in leaves",
        f.name, f.lines
    );
    (f.lines > FUNCTION_LINES_MAX).then(|| Finding {
        count: Some(f.lines),
        ..Finding::new("function-length", &file.path, f.line, what)
    })
}

/// The comment a file opens with, as plain text.
fn opening_text(text: &str, kind: Kind) -> String {
    let text = match text.strip_prefix("#!") {
        Some(rest) if kind == Kind::Other => rest.split_once('\n').map_or("", |r| r.1),
        _ => text,
    };
    if let Some(block) = text.strip_prefix("/*") {
        return block.split("*/").next().unwrap_or("").replace("\n *", " ").trim().to_owned();
    }
    let mark = if kind == Kind::Rust { "//!" } else { "#" };
    let lines: Vec<&str> = text
        .lines()
        .map_while(|l| l.strip_prefix(mark))
        .map(str::trim)
        .take_while(|l| !l.is_empty())
        .collect();
    lines.join(" ")
}

fn opening(file: &SourceFile, kind: Kind) -> Option<Finding> {
    let text = opening_text(&file.text, kind);
    let starts = text.starts_with(|c: char| c.is_alphanumeric() || c == '`');
    let sentence = starts && text.contains('.') && text.split_whitespace().count() >= 4;
    let what = "seen no opening sentence; begin with a comment that says what the file decides, \
        for whom, and what it never does";
    (!sentence).then(|| Finding::new("opening", &file.path, 1, what))
}

fn unfinished(file: &SourceFile) -> Vec<Finding> {
    let mut out = vec![];
    for (i, line) in file.text.lines().enumerate() {
        let word = UNFINISHED.iter().map(|(a, b)| format!("{a}{b}")).find(|w| has_word(line, w));
        if let Some(word) = word {
            out.push(Finding::new(
                "unfinished",
                &file.path,
                i + 1,
                format!("seen '{word}'; finish it, or open an issue and say there what is missing"),
            ));
        }
        if line.trim_start().starts_with(concat!("#[", "ignore]")) {
            let what =
                concat!("seen a test ignored without a reason; write #[", "ignore = \"why\"]");
            out.push(Finding::new("unfinished", &file.path, i + 1, what));
        }
    }
    out
}

/// Whether `word` is there and no part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let after = &line[at + word.len()..];
        !line[..at].ends_with(part) && (word.ends_with('(') || !after.starts_with(part))
    })
}

/// C is indented by tabs; spaces may follow tabs to align, and ` *` continues a comment.
fn indentation(file: &SourceFile) -> Option<Finding> {
    let wrong = |line: &str| {
        let indent = &line[..line.len() - line.trim_start().len()];
        !line.trim().is_empty()
            && (indent.starts_with(' ') && !line.starts_with(" *") || indent.contains(" \t"))
    };
    let lines: Vec<usize> =
        file.text.lines().enumerate().filter(|(_, l)| wrong(l)).map(|(i, _)| i + 1).collect();
    let what = format!(
        "seen {} lines of C that begin with spaces, this is the first; indent by tabs",
        lines.len()
    );
    lines.first().map(|line| Finding::new("indentation", &file.path, *line, what))
}

/// Only the glue may name the kernel.
fn kernel_names(file: &SourceFile) -> Vec<Finding> {
    let kernels = ["sched/glue/", "sched/platform/bpf.h", "sched/platform/kernel.h"];
    if !file.path.starts_with("sched/") || kernels.iter().any(|k| file.path.starts_with(k)) {
        return vec![];
    }
    let named = |word: &&str| {
        word.to_lowercase().starts_with("scx_")
            || word.starts_with("bpf_")
            || *word == "task_struct"
    };
    let mut out = vec![];
    for (i, line) in code(&file.text, Language::C).lines().enumerate() {
        let word = line.split(|c: char| !(c.is_alphanumeric() || c == '_')).find(named);
        out.extend(word.map(|w| {
            let what = format!(
                "seen '{w}' outside sched/glue; name what is needed in platform/platform.h \
                and give both platforms the call"
            );
            Finding::new("kernel-names", &file.path, i + 1, what)
        }));
    }
    out
}

fn machine_paths(file: &SourceFile) -> Vec<Finding> {
    let begins = |before: &str| {
        !before.ends_with(|c: char| c.is_alphanumeric() || "_-./~$*}{)>\\".contains(c))
    };
    let ends = |after: &str| {
        !after.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.')
    };
    let mut out = vec![];
    for (i, line) in file.text.lines().enumerate() {
        let found = MACHINE_FOLDERS.iter().map(|f| format!("/{f}")).find(|path| {
            line.match_indices(path.as_str())
                .any(|(at, _)| begins(&line[..at]) && ends(&line[at + path.len()..]))
        });
        out.extend(found.map(|path| {
            Finding::new(
                "machine-path",
                &file.path,
                i + 1,
                format!(
                    "seen the path '{path}' of one machine; write it from the repository's root"
                ),
            )
        }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules that a text breaks.
    fn rules(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        check(&SourceFile::of(path, text)).into_iter().map(|f| (f.rule, f.line)).collect()
    }

    const GOOD: &str = "//! Says what it decides. Never more.\n";

    #[test]
    fn a_clean_file_has_no_findings() {
        assert_eq!(rules("a.rs", &format!("{GOOD}fn main() {{}}\n")), []);
        assert_eq!(
            rules(
                "sched/a.h",
                "/* Who runs next, for all pCPUs; it moves nothing. */\nstruct a {\n\tint b;\n};\n"
            ),
            []
        );
        assert_eq!(rules("a/init", "#!/bin/sh\n# Starts the machine and nothing else.\n"), []);
        assert_eq!(rules("a.md", "Any text, TODAY."), []);
    }

    #[test]
    fn a_file_of_501_lines_and_a_function_of_71_are_seen() {
        let long = format!("{GOOD}{}", "// x\n".repeat(500));
        assert_eq!(rules("a.rs", &long), [("file-length", 0)]);
        let head = "/* Who runs next, for all. */\nint f(void)\n{\n";
        let body = |n| format!("{head}{}}}\n", "\tg();\n".repeat(n));
        assert_eq!(rules("a.c", &body(68)), [("function-length", 2)]);
        assert_eq!(rules("a.c", &body(67)), []);
    }

    #[test]
    fn a_line_of_101_columns_is_seen_and_a_tab_counts_up_to_eight() {
        let rust = |n| format!("{GOOD}// {}\n", "x".repeat(n));
        assert_eq!(rules("a.rs", &rust(97)), []);
        assert_eq!(rules("a.rs", &rust(98)), [("line-width", 2)]);
        let text =
            |open, close| format!("{GOOD}const A: &str = {open}{}{close};\n", "x".repeat(90));
        assert_eq!(rules("a.rs", &text("\"", "\"")), [("line-width", 2)]);
        assert_eq!(rules("a.rs", &text("\"\\\n  ", "xxxxxxxxxxxx\"")), [("line-width", 3)]);
        assert_eq!(rules("a.rs", &text("\"shown\n", "xxxxxxxxxxxx\"")), []);
        assert_eq!(rules("a.rs", &text("r\"", "\"")), []);
        assert_eq!(
            rules("a.rs", &format!("{GOOD}fn {}() {{}}\n", "x".repeat(97))),
            [("line-width", 2)]
        );
        let c = |n| format!("/* Who runs next, for all. */\n\tint {};\n", "x".repeat(n));
        assert_eq!(rules("a.c", &c(87)), []);
        assert_eq!(rules("a.c", &c(88)), [("line-width", 2)]);
    }

    #[test]
    fn a_file_without_an_opening_sentence_is_seen() {
        for (path, text) in [
            ("a.rs", "use b;\n"),
            ("a.rs", "//! b\n"),
            ("a.c", "int a;\n"),
            ("a.h", "/* ---- some more words --- */\n"),
            ("run", "#!/bin/sh\nset -e\n"),
        ] {
            assert_eq!(rules(path, text), [("opening", 1)], "{path} {text}");
        }
    }

    #[test]
    fn unfinished_work_is_seen() {
        for (a, b) in UNFINISHED {
            assert_eq!(rules("a.rs", &format!("{GOOD}// {a}{b}\n")), [("unfinished", 2)], "{a}{b}");
        }
        let ignored = concat!("#[", "ignore");
        assert_eq!(rules("a.rs", &format!("{GOOD}    {ignored}]\n")), [("unfinished", 2)]);
        assert_eq!(
            rules("a.rs", &format!("{GOOD}    {ignored} = \"boots a machine\"]\n// mastodon\n")),
            []
        );
    }

    #[test]
    fn spaces_before_code_are_seen_and_alignment_after_tabs_is_not() {
        let text = "/* Who runs next, for all. */\n\
                    int f(void)\n{\n    a();\n\t \tb();\n\tc(1,\n\t  2);\n}\n";
        assert_eq!(rules("a.c", text), [("indentation", 4)]);
        assert_eq!(rules("a.c", &text.replace("    a", "\ta")), [("indentation", 5)]);
    }

    #[test]
    fn the_kernel_is_named_in_the_glue_alone() {
        let text = "/* Who runs next, for all. */\nint a = scx_bpf_kick(); /* bpf_x */\nstruct \
            task_struct *t;\nint b = SCX_KICK;\n#ifdef __bpf__\n#endif\n";
        let seen = rules("sched/law/a.h", text);
        assert_eq!(seen, [("kernel-names", 2), ("kernel-names", 3), ("kernel-names", 4)]);
        assert_eq!(rules("sched/glue/a.h", text), []);
    }

    #[test]
    fn paths_of_one_machine_are_seen_in_any_text() {
        for (folder, text) in [
            ("work", "see /F/shared"),
            ("home", "`/F/me/x`"),
            ("root", "HOME=/F x"),
            ("root", "a \"/F\""),
        ] {
            assert_eq!(rules("a.md", &text.replace('F', folder)), [("machine-path", 1)], "{text}");
        }
        for text in ["/sys/kernel/sched_ext/root/ops", "a/work/b", "/rootfs", "https://x/home/"] {
            assert_eq!(rules("a.md", text), [], "{text}");
        }
    }
}
