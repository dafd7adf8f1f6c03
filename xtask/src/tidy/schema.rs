//! docs/schema/ has the JSON schema of each version of each document: of the result document the
//! newest is what its types make, and within a major version nothing is taken away.

use super::{Finding, SourceFile, Tree};
use serde_json::Value;
use views::{RESULT_VERSION, result_schema};

const FOLDER: &str = "docs/schema/";
const SOURCE: &str = "crates/views/src/schema.rs";
const RULE: &str = "schema";
/// Keys that are for the reader alone, and what differs from version to version.
const TEXTS: [&str; 3] = ["description", "title", "$id"];

/// The file of the newest version.
pub(crate) fn document() -> String {
    format!("{FOLDER}result-{RESULT_VERSION}.json")
}

fn made() -> Value {
    result_schema().into()
}

fn written(schema: &Value) -> String {
    format!("{schema:#}\n")
}

/// The text of the newest version's file: a new file, or new texts of an old one. None where the
/// document has changed without a new version.
pub(crate) fn renewed(tree: &Tree) -> Option<String> {
    let (made, old) = (made(), tree.text(&document()));
    let same = old.is_empty() || serde_json::from_str(old).is_ok_and(|old| is_same(&old, &made));
    same.then(|| written(&made))
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = against(tree, &made(), RESULT_VERSION);
    // What the other documents are made from is compared by `crates/tandem/tests/schema.rs`.
    let versions: Vec<Versioned<'_>> = tree.files.iter().filter_map(Versioned::of).collect();
    for old in versions.iter().filter(|v| v.name != "result") {
        let newest = versions.iter().filter(|v| v.name == old.name && v.major == old.major);
        let Some(newest) = newest.max_by_key(|v| v.minor) else { continue };
        let read = |v: &Versioned<'_>| serde_json::from_str(&v.file.text).unwrap_or_default();
        if let Some(gone) = lost(&read(old), &read(newest), "") {
            let what = format!(
                "{} lacks {gone} of it; within a major version fields are only added: raise the \
                 major version in crates/tandem/src/schema.rs",
                newest.file.path
            );
            out.push(Finding::new(RULE, &old.file.path, 0, what));
        }
    }
    out
}

/// A file of a schema, by its name.
struct Versioned<'a> {
    file: &'a SourceFile,
    name: &'a str,
    major: u32,
    minor: u32,
}

impl<'a> Versioned<'a> {
    /// `docs/schema/NAME-MAJOR.MINOR.json`.
    fn of(file: &'a SourceFile) -> Option<Versioned<'a>> {
        let whole = file.path.strip_prefix(FOLDER)?.strip_suffix(".json")?;
        let (name, version) = whole.rsplit_once('-')?;
        let (major, minor) = version.split_once('.')?;
        Some(Versioned { file, name, major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

fn against(tree: &Tree, made: &Value, version: &str) -> Vec<Finding> {
    let newest = format!("{FOLDER}result-{version}.json");
    let mut out = vec![];
    let mut say = |file: &str, what: String| out.push(Finding::new(RULE, file, 0, what));
    let text = tree.text(&newest);
    match serde_json::from_str::<Value>(text) {
        _ if text == written(made) => (),
        Ok(old) if !is_same(&old, made) => say(
            &newest,
            format!(
                "the result document differs from its version {version}; raise RESULT_VERSION in \
                 {SOURCE}, then run 'cargo xtask tidy --write'"
            ),
        ),
        _ => {
            say(&newest, format!("not what {SOURCE} makes; run 'cargo xtask tidy --write'"));
        }
    }
    let major = |v: &str| v.split('.').next().unwrap_or("").to_owned();
    for file in tree.files.iter().filter(|f| f.path != newest) {
        let name = file.path.strip_prefix(FOLDER).and_then(|n| n.strip_prefix("result-"));
        let Some(older) = name.and_then(|n| n.strip_suffix(".json")) else { continue };
        let old: Value = serde_json::from_str(&file.text).unwrap_or_default();
        if major(older) == major(version)
            && let Some(gone) = lost(&old, made, "")
        {
            let what = format!(
                "{version} lacks {gone} of {older}; within a major version fields are only added: \
                 raise the major version in {SOURCE}"
            );
            say(&file.path, what);
        }
    }
    out
}

/// Whether two schemas differ in their texts alone.
fn is_same(a: &Value, b: &Value) -> bool {
    lost(a, b, "").is_none() && lost(b, a, "").is_none()
}

/// Path of the first part of `old` that `new` has not.
fn lost(old: &Value, new: &Value, at: &str) -> Option<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let named = |k: &str| at.ends_with("/properties") || !TEXTS.contains(&k);
            old.iter().filter(|(k, _)| named(k)).find_map(|(k, v)| {
                let at = format!("{at}/{k}");
                new.get(k).map_or(Some(at.clone()), |n| lost(v, n, &at))
            })
        }
        (Value::Array(old), Value::Array(new)) => old
            .iter()
            .find(|o| !new.iter().any(|n| lost(o, n, "").is_none()))
            .map(|o| format!("{at}: {o}")),
        _ => (old != new).then(|| format!("{at}: {old}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(fields: &[(&str, &str)], required: &[&str]) -> Value {
        let of = |ty: &str| json!({"type": ty, "description": "words"});
        let all: serde_json::Map<String, Value> =
            fields.iter().map(|(name, ty)| ((*name).to_owned(), of(ty))).collect();
        json!({"$id": "x", "properties": all, "required": required})
    }

    fn findings(files: &[(&str, &Value)], made: &Value, version: &str) -> Vec<String> {
        let of = |(name, schema): &(&str, &Value)| {
            SourceFile::of(&format!("{FOLDER}result-{name}.json"), &written(schema))
        };
        let tree = Tree { root: "no-such-root".into(), files: files.iter().map(of).collect() };
        let short = |f: Finding| f.what.split(';').next().unwrap_or("").to_owned();
        against(&tree, made, version).into_iter().map(short).collect()
    }

    #[test]
    fn a_document_that_changes_needs_a_new_version() {
        let old = schema(&[("a", "integer")], &["a"]);
        let more = schema(&[("a", "integer"), ("title", "string")], &["a"]);
        assert_eq!(findings(&[("1.0", &old)], &old, "1.0"), [""; 0]);
        let differs = "the result document differs from its version 1.0";
        assert_eq!(findings(&[("1.0", &old)], &more, "1.0"), [differs]);
        assert_eq!(findings(&[("1.0", &more)], &old, "1.0"), [differs]);
        assert_eq!(findings(&[("1.0", &old), ("1.1", &more)], &more, "1.1"), [""; 0]);
        let stale = "not what crates/views/src/schema.rs makes";
        assert_eq!(findings(&[("1.0", &old)], &more, "1.1"), [stale], "there is no file yet");
        let mut words = old.clone();
        words["properties"]["a"]["description"] = "other words".into();
        assert_eq!(findings(&[("1.0", &old)], &words, "1.0"), [stale]);
    }

    #[test]
    fn other_documents_only_grow_within_a_major_version_too() {
        let (old, less) = (schema(&[("a", "string"), ("b", "string")], &[]), schema(&[], &[]));
        let of = |name: &str, schema: &Value| {
            SourceFile::of(&format!("{FOLDER}{name}.json"), &written(schema))
        };
        let seen = |newer: &str| {
            let files = vec![of("top-line-1.9", &old), of(newer, &less)];
            let tree = Tree { root: "no-such-root".into(), files };
            check(&tree).into_iter().filter(|f| f.file.contains("top-line")).collect::<Vec<_>>()
        };
        let found = seen("top-line-1.10");
        assert_eq!((found.len(), found[0].file.as_str()), (1, "docs/schema/top-line-1.9.json"));
        assert!(found[0].what.contains("lacks /properties/a of it"), "{}", found[0].what);
        assert!(seen("top-line-2.0").is_empty() && seen("plan-1.10").is_empty());
    }

    #[test]
    fn within_a_major_version_nothing_goes_and_no_type_changes() {
        let old = schema(&[("a", "integer"), ("b", "string")], &["a", "b"]);
        for (new, what) in [
            (schema(&[("a", "integer")], &["a"]), "/properties/b"),
            (schema(&[("a", "number"), ("b", "string")], &["a", "b"]), "/properties/a/type"),
            (schema(&[("a", "integer"), ("b", "string")], &["a"]), "/required"),
        ] {
            let seen = findings(&[("1.9", &old), ("1.10", &new)], &new, "1.10");
            assert!(seen.len() == 1 && seen[0].contains(what), "{what}: {seen:?}");
            assert_eq!(findings(&[("1.9", &old), ("2.0", &new)], &new, "2.0"), [""; 0]);
        }
    }
}
