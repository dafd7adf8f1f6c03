//! Writes what the headers say as Rust, and as C tables of sizes and offsets that a test compares
//! with Rust's own.

use crate::read::Schema;
use std::fmt::Write;

fn doc(out: &mut String, indent: &str, text: &str, fallback: &str) {
    let text = if text.is_empty() { fallback } else { text };
    // Text of C comments is no Rust documentation markup.
    let text =
        text.replace('\\', "\\\\").replace('[', "\\[").replace('<', "\\<").replace("*/", "* /");
    let _ = writeln!(out, "{indent}/// {text}");
}

/// `struct vm` becomes `Vm`.
fn camel(name: &str) -> String {
    name.split('_').map(|w| w[..1].to_uppercase() + &w[1..]).collect()
}

/// Length of an array: a number unchanged, a constant as a `usize`.
fn length(count: &str) -> String {
    if count.starts_with(|c: char| c.is_ascii_digit()) {
        count.to_owned()
    } else {
        format!("{count} as usize")
    }
}

/// Constants, enums and records.
pub fn records(schema: &Schema) -> String {
    let mut out = String::new();
    for c in &schema.constants {
        doc(&mut out, "", &c.doc, &format!("`{}` of `sched/abi`.", c.name));
        let _ = writeln!(out, "pub const {}: u32 = {};", c.name, c.value);
    }
    for e in &schema.enums {
        let mut last = None;
        for (name, value, comment) in &e.items {
            let value = match (value, &last) {
                (Some(v), _) => v.clone(),
                (None, Some(l)) => format!("{l} + 1"),
                (None, None) => "0".to_owned(),
            };
            doc(&mut out, "", comment, &format!("`{name}` of `enum {}`.", e.name));
            let _ = writeln!(out, "pub const {name}: u32 = {value};");
            last = Some(name.clone());
        }
    }
    for s in &schema.structs {
        doc(&mut out, "", &s.doc, &format!("`struct {}` of `sched/abi`.", s.name));
        let _ = writeln!(
            out,
            "#[repr(C)]\n#[derive(Clone, Copy, Debug, PartialEq, Eq)]\npub struct {} {{",
            camel(&s.name)
        );
        for f in &s.fields {
            doc(&mut out, "    ", &f.doc, &format!("`{}` of `struct {}`.", f.name, s.name));
            let kind = f
                .count
                .as_ref()
                .map_or(f.rust.to_owned(), |n| format!("[{}; {}]", f.rust, length(n)));
            let _ = writeln!(out, "    pub {}: {kind},", f.name);
        }
        let _ = writeln!(
            out,
            "}}\n\nimpl {} {{\n    /// The record with every field zero.\n    pub const ZERO: Self \
                = Self {{",
            camel(&s.name)
        );
        for f in &s.fields {
            let zero = f.count.as_ref().map_or("0".to_owned(), |n| format!("[0; {}]", length(n)));
            let _ = writeln!(out, "        {}: {zero},", f.name);
        }
        out.push_str("    };\n}\n\n");
    }
    out
}

/// The table of knobs and access to them by index.
pub fn knobs(schema: &Schema) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "/// Every knob, in the order of `sched/abi/knobs.def`.\npub static KNOBS: [Knob; {}] = [",
        schema.knobs.len()
    );
    for k in &schema.knobs {
        let [default, min, max] = k.numbers;
        let _ = writeln!(
            out,
            "    Knob {{ name: {:?}, default: {default}, min: {min}, max: {max}, unit: {:?}, doc: \
                {:?} }},",
            k.name, k.unit, k.doc
        );
    }
    out.push_str(
        "];\n\nimpl Knobs {\n    /// The defaults.\n    pub const DEFAULT: Knobs = Knobs {\n",
    );
    for k in &schema.knobs {
        let _ = writeln!(out, "        {}: {},", k.name, k.numbers[0]);
    }
    out.push_str("    };\n\n    fn field(&mut self, i: usize) -> &mut u64 {\n        match i {\n");
    for (i, k) in schema.knobs.iter().enumerate() {
        let _ = writeln!(out, "            {i} => &mut self.{},", k.name);
    }
    out.push_str("            _ => unreachable!(\"an index of KNOBS\"),\n        }\n    }\n}\n");
    out
}

/// Records of platform/native.h that Rust writes by hand, with their fields.
const BY_HAND: [(&str, &[&str]); 2] = [
    (
        "plat_task",
        &[
            "slice_ns",
            "key",
            "allowed",
            "world",
            "pcpu",
            "allowed_count",
            "migration_disabled",
            "waits",
        ],
    ),
    (
        "native",
        &[
            "host",
            "knobs",
            "kernel",
            "pcpus_cap",
            "vms_cap",
            "worlds_cap",
            "clusters_cap",
            "here",
            "waker",
            "pcpus",
            "vms",
            "worlds",
            "clusters",
            "tasks",
        ],
    ),
];

fn each_record(schema: &Schema, mut f: impl FnMut(&str, &[&str])) {
    for s in &schema.structs {
        f(&s.name, &s.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>());
    }
    BY_HAND.iter().for_each(|(name, fields)| f(name, fields));
}

/// Constants of core.h and platform.h that Rust writes by hand.
const FLAGS: [&str; 3] = ["ENQUEUE_WAKEUP", "KICK_IDLE", "KICK_PREEMPT"];

/// C's own word on sizes, offsets and constants, in the order of `layout_rust`.
pub fn layout_c(schema: &Schema) -> String {
    let mut out =
        "#include \"core.h\"\n#include <stddef.h>\n\nconst u64 tandem_layout[] = {\n".to_owned();
    each_record(schema, |name, fields| {
        let _ = writeln!(out, "\tsizeof(struct {name}),");
        for f in fields {
            let _ = writeln!(out, "\toffsetof(struct {name}, {f}),");
        }
    });
    let constants = schema.constants.iter().map(|c| c.name.as_str());
    let items = schema.enums.iter().flat_map(|e| e.items.iter().map(|i| i.0.as_str()));
    for name in constants.chain(items).chain(FLAGS) {
        let _ = writeln!(out, "\t{name},");
    }
    out.push_str(
        "};\nconst u64 tandem_layout_rows = sizeof(tandem_layout) / sizeof(tandem_layout[0]);\n",
    );
    out
}

/// Rust's word on the same.
pub fn layout_rust(schema: &Schema) -> String {
    let mut out =
        "/// Sizes, offsets and constants as Rust sees them, each with its name.\npub const ROWS: \
            &[(&str, u64)] = &[\n"
            .to_owned();
    each_record(schema, |name, fields| {
        let by_hand = BY_HAND.iter().any(|r| r.0 == name);
        let rust = if by_hand { camel(name) } else { format!("records::{}", camel(name)) };
        let _ = writeln!(out, "    (\"sizeof {name}\", size_of::<crate::{rust}>() as u64),");
        for f in fields {
            let _ = writeln!(out, "    (\"{name}.{f}\", offset_of!(crate::{rust}, {f}) as u64),");
        }
    });
    let constants = schema.constants.iter().map(|c| c.name.as_str());
    let items = schema.enums.iter().flat_map(|e| e.items.iter().map(|i| i.0.as_str()));
    for name in constants.chain(items).chain(FLAGS) {
        let _ = writeln!(out, "    (\"{name}\", crate::{name} as u64),");
    }
    out.push_str("];\n");
    out
}
