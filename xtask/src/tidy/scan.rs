//! Blanks comments and strings out of C, and finds functions by their braces; it parses no further.

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub name: String,
    /// Line of its name, from 1.
    pub line: usize,
    /// Lines from there to its closing brace.
    pub lines: usize,
}

/// The text with comments, preprocessor lines and the inside of strings blanked, line ends kept.
pub(crate) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    let mut line_start = true;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment(bytes, at),
            b'#' if line_start => preprocessor(bytes, at),
            b'"' | b'\'' => literal(bytes, at),
            _ => at,
        };
        if end > at {
            out[at..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
            at = end;
            line_start = bytes.get(at.wrapping_sub(1)) == Some(&b'\n');
        } else {
            line_start = bytes[at] == b'\n' || (line_start && bytes[at].is_ascii_whitespace());
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment(bytes: &[u8], at: usize) -> usize {
    let close = bytes[at + 2..].windows(2).position(|w| w == b"*/");
    close.map_or(bytes.len(), |n| at + 2 + n + 2)
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

/// A string or a character.
fn literal(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() && bytes[i] != bytes[at] {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
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

/// Functions with a body, in order. A brace at the outermost level that follows `)` opens one; a
/// brace that follows `=` or a name does not.
pub(crate) fn functions(text: &str) -> Vec<Function> {
    let code = &code(text);
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
                    let name = name(head);
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
fn name(head: &str) -> String {
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

    fn seen(text: &str) -> Vec<(String, usize, usize)> {
        functions(text).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn braces_in_strings_comments_and_characters_do_not_count() {
        let text = "int a(void)\n{\n\tputs(\"}\\\"\"); // }\n\t/* } /* } */\n\treturn '}' + \
            '\\'';\n}\nint b(void);\nint c(void) {}\n";
        assert_eq!(seen(text), [("a".into(), 1, 6), ("c".into(), 8, 1)]);
    }

    #[test]
    fn functions_are_told_from_records_arrays_and_macros() {
        let text = "struct s {\n\tint a;\n};\n#define F(x) { \\\n\t}\nstatic const int t[] = \
            {\n\t1\n};\nstatic int\nf(int a)\n{\n\tif (a) {\n\t}\n\treturn '{';\n}\ns32 SEC(\"x\") \
            BPF_PROG(g, int a)\n{\n}\n";
        assert_eq!(seen(text), [("f".into(), 9, 7), ("g".into(), 16, 3)]);
    }
}
