//! Blanks comments and strings out of Rust and C, and finds functions by their braces; it parses no
//! further.

use std::ops::Range;

/// Language of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    C,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub name: String,
    /// Line of its name, from 1.
    pub line: usize,
    /// Lines from there to its closing brace.
    pub lines: usize,
}

/// The text with comments and the inside of strings blanked, line ends kept. In C, preprocessor
/// lines too.
pub(crate) fn code(text: &str, language: Language) -> String {
    let mut out = text.as_bytes().to_vec();
    for (_, range) in parts(text.as_bytes(), language, true) {
        blank(&mut out[range]);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The text with everything but comments blanked, line ends kept.
pub(crate) fn comments(text: &str, language: Language) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    blank(&mut out);
    for (_, range) in parts(bytes, language, false).into_iter().filter(|(p, _)| *p == Part::Comment)
    {
        out[range.clone()].copy_from_slice(&bytes[range]);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Lines, from 0, that show text which no line end of the source can break: a raw string, and what
/// follows a line end within a string.
pub(crate) fn unbroken(text: &str) -> Vec<bool> {
    let bytes = text.as_bytes();
    let mut out = vec![false; text.lines().count()];
    for (part, range) in parts(bytes, Language::Rust, false) {
        let first = bytes[..range.start].iter().filter(|b| **b == b'\n').count();
        let inside = &text[range];
        if part == Part::Comment {
            continue;
        }
        out[first] |= inside.starts_with('r');
        let ends = inside.split('\n').map(|l| l.ends_with('\\'));
        for (n, continued) in ends.enumerate().take(inside.matches('\n').count()) {
            out[first + n + 1] |= !continued || inside.starts_with('r');
        }
    }
    out
}

/// What is not plain code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Comment,
    /// A string, a character or a preprocessor line.
    Other,
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
}

/// Parts of the text that are not plain code, in order. Preprocessor lines of C are parts if
/// `preprocessed`, else the comments and strings in them are.
fn parts(bytes: &[u8], language: Language, preprocessed: bool) -> Vec<(Part, Range<usize>)> {
    let mut out = vec![];
    let mut at = 0;
    let mut line_start = true;
    while at < bytes.len() {
        let (part, end) = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => (Part::Comment, line_end(bytes, at)),
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                (Part::Comment, block_comment(bytes, at, language))
            }
            b'#' if line_start && language == Language::C && preprocessed => {
                (Part::Other, preprocessor(bytes, at))
            }
            b'"' => (Part::Other, string(bytes, at)),
            b'r' if language == Language::Rust && !is_word(bytes, at.wrapping_sub(1)) => {
                (Part::Other, raw_string(bytes, at).unwrap_or(at))
            }
            b'\'' => (Part::Other, quoted(bytes, at, language)),
            _ => (Part::Other, at),
        };
        if end > at {
            out.push((part, at..end));
            at = end;
            line_start = bytes.get(at.wrapping_sub(1)) == Some(&b'\n');
        } else {
            line_start = bytes[at] == b'\n' || (line_start && bytes[at].is_ascii_whitespace());
            at += 1;
        }
    }
    out
}

fn is_word(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment(bytes: &[u8], mut at: usize, language: Language) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") if depth == 0 || language == Language::Rust => {
                (depth, at) = (depth + 1, at + 2)
            }
            Some(b"*/") => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// A preprocessor line with its continuations.
fn preprocessor(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = line_end(bytes, at);
        if at == bytes.len() || bytes[at - 1] != b'\\' {
            return at;
        }
        at += 1;
    }
}

fn string(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}

/// `r"…"`, `r#"…"#`; `None` where `r` begins a word.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let from = at + hashes + 2;
    let found = bytes[from..].windows(close.len()).position(|w| w == close);
    Some(found.map_or(bytes.len(), |n| from + n + close.len()))
}

/// A character; a lifetime of Rust is none.
fn quoted(bytes: &[u8], at: usize, language: Language) -> usize {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes[at + 3..].iter().position(|b| *b == b'\'');
        return close.map_or(at, |n| at + 3 + n + 1);
    }
    // One character may take up to four bytes.
    let close = (at + 2..=at + 5).find(|i| bytes.get(*i) == Some(&b'\''));
    match close {
        Some(end) if language == Language::C || bytes[at + 1] >= 0x80 || end == at + 2 => end + 1,
        _ => at,
    }
}

/// Functions with a body, in order; nested ones too.
pub(crate) fn functions(text: &str, language: Language) -> Vec<Function> {
    let code = code(text, language);
    match language {
        Language::Rust => rust_functions(&code),
        Language::C => c_functions(&code),
    }
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// Place after the brace that closes the one at `open`.
fn closing(code: &[u8], open: usize) -> usize {
    let mut depth = 0usize;
    for (i, b) in code.iter().enumerate().skip(open) {
        match b {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return i;
        }
    }
    code.len() - 1
}

fn rust_functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut out = vec![];
    for (at, _) in code.match_indices("fn ") {
        if is_word(bytes, at.wrapping_sub(1)) {
            continue;
        }
        let name: String =
            code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let mut depth = 0;
        let body = bytes[at..].iter().position(|b| {
            match b {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                _ => {}
            }
            depth == 0 && matches!(b, b'{' | b';') || depth < 0
        });
        if let Some(open) = body.map(|n| at + n).filter(|o| bytes[*o] == b'{' && !name.is_empty()) {
            let (line, last) = (line_of(code, at), line_of(code, closing(bytes, open)));
            out.push(Function { name, line, lines: last - line + 1 });
        }
    }
    out
}

/// A brace at the outermost level that follows `)` opens a function; one that follows `=` or a name
/// does not.
fn c_functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut out = vec![];
    let (mut at, mut from) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b';' => from = at + 1,
            b'{' => {
                let head = &code[from..at];
                let end = closing(bytes, at);
                if head.trim_end().ends_with(')') && !head.contains('=') {
                    let name = c_name(head);
                    let start = from + head.find(|c: char| !c.is_whitespace()).unwrap_or(0);
                    let (line, last) = (line_of(code, start), line_of(code, end));
                    out.push(Function { name, line, lines: last - line + 1 });
                }
                at = end;
                from = end + 1;
            }
            _ => {}
        }
        at += 1;
    }
    out
}

/// Name before the parameters; of `BPF_PROG(name, …)` the first argument.
fn c_name(head: &str) -> String {
    let word = |text: &str| {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    if let Some((_, rest)) = head.split_once("BPF_PROG(") {
        return word(rest);
    }
    let before = head.split('(').next().unwrap_or("").trim_end();
    before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str, language: Language) -> Vec<(String, usize, usize)> {
        functions(text, language).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn braces_in_strings_comments_and_characters_do_not_count() {
        let text = "fn a<'x>(b: &'x str) -> char {\n    let _ = \"}\"; // }\n    let _ = r#\"}\"#; \
            /* } /* } */ */\n    '}'\n}\nfn b();\nfn c() {}\n";
        assert_eq!(seen(text, Language::Rust), [("a".into(), 1, 5), ("c".into(), 7, 1)]);
    }

    #[test]
    fn comments_are_kept_where_they_stand_and_code_and_strings_are_blanked() {
        let rust = "let a = \"// no\"; // yes\n/// and `this`\nfn f() {} /* too */\n";
        let kept = comments(rust, Language::Rust);
        let words: Vec<Vec<&str>> = kept.lines().map(|l| l.split_whitespace().collect()).collect();
        let want = [vec!["//", "yes"], vec!["///", "and", "`this`"], vec!["/*", "too", "*/"]];
        assert_eq!(words, want);
        assert_eq!(kept.len(), rust.len());
        assert_eq!(comments("#define A 1 /* of b */\n", Language::C).trim(), "/* of b */");
    }

    #[test]
    fn functions_of_c_are_told_from_records_arrays_and_macros() {
        let text = "struct s {\n\tint a;\n};\n#define F(x) { \\\n\t}\nstatic const int t[] = \
            {\n\t1\n};\nstatic int\nf(int a)\n{\n\tif (a) {\n\t}\n\treturn '{';\n}\ns32 SEC(\"x\") \
            BPF_PROG(g, int a)\n{\n}\n";
        assert_eq!(seen(text, Language::C), [("f".into(), 9, 7), ("g".into(), 16, 3)]);
    }
}
