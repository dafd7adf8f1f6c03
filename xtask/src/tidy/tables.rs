//! Tables of documents are what their histories in `bench/history` make, and every line of a
//! history can be read.

use super::{Finding, SourceFile, Tree};
use crate::{history, measured};

const RULE: &str = "tables";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = vec![];
    for file in tree.files.iter().filter(|f| f.has_extension(&["md"])) {
        let (line, what) = match renewed(tree, file) {
            Ok(made) if made == file.text => continue,
            Ok(made) => {
                let differs = made.lines().zip(file.text.lines()).position(|(a, b)| a != b);
                let what = "not what its history makes; run 'cargo xtask measured'".to_owned();
                (differs.map_or(0, |n| n + 1), what)
            }
            Err((line, seen)) => (line, format!("{seen}; correct the block or the history")),
        };
        out.push(Finding::new(RULE, &file.path, line, what));
    }
    let folder = format!("{}/", history::FOLDER);
    for file in tree.files.iter().filter(|f| f.path.starts_with(&folder)) {
        let wrong = history::parse(&file.text).err();
        out.extend(wrong.map(|(line, e)| Finding::new(RULE, &file.path, line, e)));
    }
    out
}

/// The document with every table renewed.
pub(crate) fn renewed(tree: &Tree, file: &SourceFile) -> Result<String, (usize, String)> {
    let read = |name: &str| {
        tree.file(&format!("{}/{name}.jsonl", history::FOLDER)).map(|f| f.text.clone())
    };
    measured::renewed(&file.text, &read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_table_and_a_line_that_cannot_be_read_are_seen() {
        let line = "{\"date\":\"d\",\"commit\":\"c\",\"source\":\"measured\",\"command\":\"x\",\
            \"kernel\":\"\",\"rows\":[{\"row\":\"a\",\"figures\":{\"n\":1.5}}]}\n";
        let block = "<!-- measured: x\nrow\nn = n :.1\n-->\n| row | n |\n|---|---|\n| a | 1.5 |\n\n\
            d, c: `x`\n<!-- end measured -->\n";
        let seen = |history: &str, document: &str| -> Vec<(String, usize)> {
            let files = vec![
                SourceFile::of("bench/history/x.jsonl", history),
                SourceFile::of("a.md", document),
            ];
            check(&Tree { root: "no-such-root".into(), files })
                .into_iter()
                .map(|f| (f.file, f.line))
                .collect()
        };
        assert_eq!(seen(line, block), []);
        assert_eq!(seen(line, &block.replace("| 1.5", "| 1.4")), [("a.md".to_owned(), 7)]);
        let cut = seen(&(line.to_owned() + "{\n"), "no table");
        assert_eq!(cut, [("bench/history/x.jsonl".to_owned(), 2)]);
    }
}
