//! JSON schemas of the documents that commands write: docs/schema has those of this version, what
//! commands write fits them, and a document that changes needs another version.

use crate::numa::tandem;
use serde_json::{Map, Value};
use std::{fs, path::PathBuf};

/// What differs from version to version, and what is for the reader alone.
const TEXTS: [&str; 3] = ["description", "title", "$id"];

/// Name and version of each document but the result document, which `cargo xtask tidy` compares.
fn listed() -> Vec<(String, String)> {
    let text = printed(&["schema"]);
    let cells = text.lines().skip(2).map(|line| {
        let mut words = line.split_whitespace();
        (words.next().unwrap_or("").to_owned(), words.next().unwrap_or("").to_owned())
    });
    cells.filter(|(name, _)| name != "result").collect()
}

fn printed(args: &[&str]) -> String {
    let out = tandem(args);
    assert!(matches!(out.status.code(), Some(0 | 6 | 7)), "{args:?}: {out:?}");
    String::from_utf8(out.stdout).expect("text")
}

fn schema(name: &str) -> Value {
    serde_json::from_str(&printed(&["schema", name])).expect("a schema")
}

/// A schema without texts; names of fields stay.
fn without_texts(schema: &Value, fields: bool) -> Value {
    match schema {
        Value::Object(of) => {
            let kept = of.iter().filter(|(k, _)| fields || !TEXTS.contains(&k.as_str()));
            let each = |(k, v): (&String, &Value)| {
                (k.clone(), without_texts(v, !fields && k == "properties"))
            };
            Value::Object(kept.map(each).collect::<Map<_, _>>())
        }
        Value::Array(of) => of.iter().map(|v| without_texts(v, false)).collect(),
        other => other.clone(),
    }
}

#[test]
fn docs_have_the_schema_of_each_document_and_a_change_is_another_version() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema"));
    let write = std::env::var_os("TANDEM_WRITE_DOCS").is_some();
    for (name, version) in listed() {
        let path = folder.join(format!("{name}-{version}.json"));
        let made = printed(&["schema", &name]);
        let old = fs::read_to_string(&path).unwrap_or_default();
        let same = |old: &str| {
            let read = |text: &str| serde_json::from_str(text).map(|v| without_texts(&v, false));
            old.is_empty() || read(old).ok() == read(&made).ok()
        };
        assert!(same(&old), "{name} is not what its version {version} was; raise the version");
        if write && old != made {
            fs::write(&path, &made).expect("written");
        }
        let now = fs::read_to_string(&path).unwrap_or_default();
        assert!(now == made, "{}: run this test with TANDEM_WRITE_DOCS=1", path.display());
    }
}

/// Where a value is not as its schema says; the keywords that our schemas have.
fn misfit(value: &Value, schema: &Value, root: &Value, at: &str) -> Option<String> {
    if let Some(target) = schema["$ref"].as_str() {
        let to = root.pointer(target.trim_start_matches('#')).expect("a target");
        if let Some(wrong) = misfit(value, to, root, at) {
            return Some(wrong);
        }
    }
    if let Some(any) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array())
        && any.iter().all(|one| misfit(value, one, root, at).is_some())
    {
        return Some(format!("{at}: none of {any:?} is {value}"));
    }
    let is = |ty: &Value| match ty.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    };
    let types = &schema["type"];
    let typed = types.is_null() || types.as_array().map_or_else(|| is(types), |t| t.iter().any(is));
    let named = |all: &Value| all.as_array().is_none_or(|all| all.contains(value));
    if !typed
        || !named(&schema["enum"])
        || !(schema["const"].is_null() || schema["const"] == *value)
    {
        return Some(format!("{at}: {value} is not {schema}"));
    }
    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
        let of = schema["prefixItems"].get(i).unwrap_or(&schema["items"]);
        if let Some(wrong) = misfit(item, of, root, &format!("{at}/{i}")) {
            return Some(wrong);
        }
    }
    let object = value.as_object()?;
    for name in schema["required"].as_array().into_iter().flatten() {
        if !object.contains_key(name.as_str().unwrap_or("")) {
            return Some(format!("{at}: {name} is missing"));
        }
    }
    object.iter().find_map(|(key, item)| {
        let of = schema["properties"].get(key)?;
        misfit(item, of, root, &format!("{at}/{key}"))
    })
}

#[test]
fn what_commands_write_fits_its_schema() {
    let trace = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("schema.trace");
    let trace = trace.to_str().expect("a path");
    printed(&["sim", "smoke", "--duration=3s", "--trace", trace]);
    let shape = ["--vcpus", "16", "--memory", "64G"];
    let scenario = ["--scenario", "pools-nested"];
    let cases: [(&str, Vec<&str>); 13] = [
        ("plan", [&["plan", "--json"], &scenario[..]].concat()),
        ("reservations", [&["admit", "--json"], &scenario[..]].concat()),
        (
            "admission",
            [&["admit", "--json", "--pool=prod", "--reservation=8GHz"], &scenario[..]].concat(),
        ),
        (
            "admission",
            [&["admit", "--json", "--vm=x", "--vcpus=16", "--reservation=1600%"], &scenario[..]]
                .concat(),
        ),
        (
            "homes",
            vec![
                "numa",
                "explain",
                "--scenario=three-on-two",
                "--run=2-vcpu",
                "--duration=30s",
                "--json",
            ],
        ),
        (
            "vnuma-plan",
            [&["vnuma", "plan", "--json"], &shape[..], &["--host=2x1x8x2:64G"]].concat(),
        ),
        (
            "vnuma-check",
            [&["vnuma", "check", "--json"], &shape[..], &["2x1x8x2:64G", "4x1x8x2:64G"]].concat(),
        ),
        ("waits", vec!["trace", "waits", trace, "--json=-"]),
        ("cores", vec!["trace", "cores", trace, "--json=-"]),
        ("checked", vec!["trace", "check", trace, "--json=-"]),
        ("reproduced", vec!["reproduce", "fragmentation", "--seeds=1", "--quiet", "--json=-"]),
        ("knobs", vec!["knobs", "--json"]),
        ("metrics", vec!["metrics", "--list", "--json"]),
    ];
    for (name, args) in cases {
        let value: Value = serde_json::from_str(&printed(&args)).expect("JSON");
        let schema = schema(name);
        assert_eq!(misfit(&value, &schema, &schema, ""), None, "{args:?}");
    }
    let (lines, schema) = (printed(&TOP), schema("top-line"));
    assert_eq!(lines.lines().count(), 2, "{lines}");
    for line in lines.lines() {
        let value: Value = serde_json::from_str(line).expect("a line of JSON");
        assert_eq!(misfit(&value, &schema, &schema, ""), None, "{line}");
        let known = |part: &Value, of: &Value| {
            part.as_object().is_some_and(|o| o.keys().all(|k| of["properties"].get(k).is_some()))
        };
        let items = &schema["properties"]["groups"]["items"];
        assert!(known(&value, &schema) && known(&value["groups"][0], items), "{line}");
    }
}

/// Two samples of a host with memory.
const TOP: [&str; 6] = ["top", "--sim", "three-on-two", "--run=4-vcpu", "--json", "-n2"];

#[test]
fn what_does_not_fit_is_found() {
    let schema = schema("plan");
    let good: Value =
        serde_json::from_str(&printed(&["plan", "--json", "--scenario=smoke"])).expect("JSON");
    assert_eq!(misfit(&good, &schema, &schema, ""), None);
    for (at, to) in [
        ("/pcpus", Value::from("four")),
        ("/rows/0/kind", Value::from("host")),
        ("/rows/0/limit", Value::from(0.5)),
        ("/rows", Value::Null),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(at).expect("it is there") = to;
        let seen = misfit(&bad, &schema, &schema, "").unwrap_or_default();
        assert!(seen.contains(at) || seen.contains("/rows/0"), "{at}: {seen}");
    }
}
