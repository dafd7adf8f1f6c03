//! Holds the modules of the large crates to the order that ARCHITECTURE.md lists: each may use
//! those before it. Modules that use each other in a ring are counted, for the ratchet.
//!
//! Arrows are derived from paths that begin with `crate::` or lead to the root by `super::`, names
//! that the root re-exports included. Code of tests is passed over, and what the root defines
//! itself is anyone's.

use super::scan::{Language, code};
use super::{Finding, SourceFile, Tree};
use std::collections::{BTreeMap, BTreeSet};

const RULE: &str = "modules";
/// Of modules in rings; the finding's count is their number.
const RINGS: &str = "module-rings";
const DOCUMENT: &str = "ARCHITECTURE.md";
const FENCE: &str = "```modules";

/// A module that uses another, and where it does first.
type Arrows = BTreeMap<(String, String), (String, usize)>;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let document = tree.text(DOCUMENT);
    let Some(first) = document.lines().position(|l| l.trim() == FENCE) else {
        let what = format!("seen no {FENCE} block; list 'crate: modules from the lowest on' there");
        return vec![Finding::new(RULE, DOCUMENT, 0, what)];
    };
    let lines = document.lines().enumerate().skip(first + 1);
    let lines = lines.take_while(|(_, l)| l.trim() != "```");
    lines
        .filter_map(|(i, line)| Some((i + 1, line.split_once(':')?)))
        .flat_map(|(line, (name, order))| {
            let order: Vec<&str> = order.split_whitespace().collect();
            match Crate::of(tree, name.trim()) {
                Some(krate) => krate.compare(line, &order),
                None => {
                    let what = format!("there is no crate '{name}'; take its line out");
                    vec![Finding::new(RULE, DOCUMENT, line, what)]
                }
            }
        })
        .collect()
}

/// What is read of a crate.
struct Crate {
    name: String,
    /// Path of lib.rs or main.rs.
    root: String,
    modules: BTreeSet<String>,
    arrows: Arrows,
}

impl Crate {
    fn of(tree: &Tree, name: &str) -> Option<Crate> {
        let folders = [format!("crates/{name}/src/"), format!("{name}/src/")];
        let (folder, root) = folders.iter().find_map(|folder| {
            let file = |f: &str| tree.file(&format!("{folder}{f}"));
            Some((folder, file("lib.rs").or_else(|| file("main.rs"))?))
        })?;
        let text = code(&root.text, Language::Rust);
        let (modules, exports) = (declared(&text), exports(&text));
        let mut arrows = Arrows::new();
        let tests = |f: &SourceFile| f.path.ends_with("/tests.rs");
        let files = tree.files.iter().filter(|f| f.path.starts_with(folder.as_str()) && !tests(f));
        for file in files {
            let below = file.path[folder.len()..].strip_suffix(".rs");
            let Some((own, depth)) = below.and_then(|b| Some((b.split('/').next()?, b))) else {
                continue;
            };
            if !modules.contains(own) {
                continue;
            }
            for (name, line) in used(file, depth.split('/').count()) {
                let other = if modules.contains(&name) { Some(&name) } else { exports.get(&name) };
                if let Some(other) = other.filter(|o| *o != own && modules.contains(*o)) {
                    let at = (file.path.clone(), line);
                    arrows.entry((own.to_owned(), other.clone())).or_insert(at);
                }
            }
        }
        Some(Crate { name: name.to_owned(), root: root.path.clone(), modules, arrows })
    }

    /// Compares the arrows with an order, from the lowest module on.
    fn compare(&self, line: usize, order: &[&str]) -> Vec<Finding> {
        let mut out = vec![];
        let at = |m: &str| order.iter().position(|o| *o == m);
        for missing in self.modules.iter().filter(|m| at(m).is_none()) {
            let what = format!(
                "seen no module '{missing}' of '{}'; list it after what it uses",
                self.name
            );
            out.push(Finding::new(RULE, DOCUMENT, line, what));
        }
        for gone in order.iter().filter(|o| !self.modules.contains(**o)) {
            let what = format!("'{}' has no module '{gone}'; take it out", self.name);
            out.push(Finding::new(RULE, DOCUMENT, line, what));
        }
        let ringed = |a: &str, b: &str| self.reaches(a, b) && self.reaches(b, a);
        for ((own, other), (file, line)) in &self.arrows {
            if at(own).is_some() && at(own) < at(other) && !ringed(own, other) {
                let what = format!(
                    "seen '{own}' use '{other}', which {DOCUMENT} lists after it; move what is \
                        needed below both, or argue for another order there"
                );
                out.push(Finding::new(RULE, file, *line, what));
            }
        }
        let rings: Vec<&str> = self
            .modules
            .iter()
            .filter(|m| self.modules.iter().any(|o| o != *m && ringed(m, o)))
            .map(String::as_str)
            .collect();
        if !rings.is_empty() {
            let what = format!(
                "seen {} modules that use each other in a ring: {}; move what is needed below both",
                rings.len(),
                rings.join(", ")
            );
            let finding = Finding::new(RINGS, &self.root, 0, what);
            out.push(Finding { count: Some(rings.len()), ..finding });
        }
        out
    }

    /// Whether arrows lead from one module to another.
    fn reaches(&self, from: &str, to: &str) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            for (own, other) in self.arrows.keys().filter(|(own, _)| own == module) {
                if other == to {
                    return true;
                }
                if seen.insert((own, other)) {
                    next.push(other);
                }
            }
        }
        false
    }
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// Modules that a root declares, but for those of tests.
fn declared(root: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut tests = false;
    for line in root.lines() {
        let at = line.find("mod ").filter(|at| *at == 0 || line.starts_with("pub"));
        if let Some(at) = at.filter(|_| line.trim_end().ends_with(';') && !tests) {
            out.insert(word(&line[at + 4..]).to_owned());
        }
        tests = line.trim() == "#[cfg(test)]";
    }
    out
}

/// Names that a root takes out of modules, and the module of each.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (at, _) in root.match_indices("use ") {
        let Some(path) = root[at + 4..].split(';').next() else { continue };
        let module = word(path).to_owned();
        for name in path.split([',', '{', '}', ':']).filter(|n| !n.trim().is_empty()) {
            let last = name.rsplit(' ').find(|w| !w.is_empty()).unwrap_or(name).trim();
            out.insert(last.to_owned(), module.clone());
        }
    }
    out
}

/// Names of the root that a file uses, with their lines; `depth` is that of its module.
fn used(file: &SourceFile, depth: usize) -> Vec<(String, usize)> {
    let text = code(&file.text, Language::Rust);
    let tests = text.match_indices("#[cfg(test)]\nmod ");
    let mut within = tests.filter(|(at, m)| {
        text[at + m.len()..].lines().next().is_some_and(|line| line.trim_end().ends_with('{'))
    });
    let text = &text[..within.next().map_or(text.len(), |(at, _)| at)];
    let up = "super::".repeat(depth);
    let mut out = vec![];
    for prefix in ["crate::", up.as_str()] {
        for (at, _) in text.match_indices(prefix) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                continue;
            }
            let line = text[..at].matches('\n').count() + 1;
            let rest = &text[at + prefix.len()..];
            out.extend(heads(rest).into_iter().map(|n| (n.to_owned(), line)));
        }
    }
    out
}

/// First names of what a path goes on with: a name, or a list in braces.
fn heads(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let (mut out, mut depth, mut begins) = (vec![], 0usize, true);
    for (i, c) in list.char_indices() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && (c.is_alphanumeric() || c == '_') => {
                out.push(word(&list[i..]));
                begins = false;
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a crate of three modules, of which the second has a file below it.
    fn whats(order: &str, a: &str, b: &str, below: &str) -> Vec<(String, usize)> {
        let root = "pub mod a;\nmod b;\nmod c;\n#[cfg(test)]\nmod made;\npub use b::{Bar, Foo};\n";
        let of = |path: &str, text: &str| SourceFile::of(&format!("crates/x/src/{path}"), text);
        let document = format!("# A\n\n```modules\nx: {order}\n```\n");
        let files = vec![
            SourceFile::of(DOCUMENT, &document),
            of("lib.rs", root),
            of("a.rs", a),
            of("b.rs", b),
            of("b/below.rs", below),
            of(
                "c.rs",
                "// crate::b\nuse crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
            ),
        ];
        let tree = Tree { root: "".into(), files };
        check(&tree).into_iter().map(|f| (format!("{} {}", f.rule, f.file), f.line)).collect()
    }

    #[test]
    fn a_module_may_use_those_before_it_by_name_re_export_and_super() {
        assert_eq!(whats("a c b", "", "use crate::{c, a::{X, Y}};\n", "use super::B;\n"), []);
        let seen = |file: &str, line| vec![(format!("modules crates/x/src/{file}"), line)];
        assert_eq!(whats("a b c", "", "\nuse crate::{a::{X, Y}, c};\n", ""), seen("b.rs", 2));
        assert_eq!(whats("a b c", "", "", "use super::super::c::C;\n"), seen("b/below.rs", 1));
        assert_eq!(whats("a c b", "use crate::Foo;\n", "", ""), seen("a.rs", 1));
        assert_eq!(whats("a c b", "fn a() -> crate::b::B {}\n", "", ""), seen("a.rs", 1));
    }

    #[test]
    fn modules_in_a_ring_are_counted_and_break_no_order() {
        let ring = whats("b c a", "use crate::Bar;\n", "use crate::a;\n", "");
        let seen = |rule: &str, file, line| (format!("{rule} crates/x/src/{file}"), line);
        assert_eq!(ring, [seen("modules", "c.rs", 2), seen("module-rings", "lib.rs", 0)]);
    }

    #[test]
    fn modules_that_are_not_listed_or_not_there_and_a_missing_list_are_seen() {
        let document = || ("modules ARCHITECTURE.md".to_owned(), 4);
        assert_eq!(whats("a c", "", "", ""), [document()]);
        assert_eq!(whats("a c b old", "", "", ""), [document()]);
        let tree = Tree { root: "".into(), files: vec![] };
        assert_eq!(check(&tree).len(), 1);
    }
}
