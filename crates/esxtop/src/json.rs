//! A sample as one line of JSON, with the numbers of the batch file and the names as people gave
//! them; it rounds, and adds nothing.
//!
//! ```text
//! {"time":"2026-11-21T19:34:57Z","unix_seconds":1795289697,"interval_ms":5000,"host":"esx01",
//!  "load":{"load_1m":0.9,…},"total":{"used_pct":null,"util_pct":60.0,"core_util_pct":80.0},
//!  "pcpus":[{"id":0,"core":0,"used_pct":50.0,…},…],
//!  "groups":[{"gid":11,"name":"web","kind":"vm","parent":10,"vcpus":2,"units":"mhz",
//!             "nwld":3.0,"used_pct":114.0,…,"memory_mib":4096.0,…,"home_nodes":[0]},…],
//!  "worlds":[{"wid":100,"gid":11,"name":"vmx-vcpu-0","kind":"vcpu","vcpu":0,"units":null,
//!             "used_pct":38.0,…},…],
//!  "nodes":[{"id":0,"memory_mib":65536,"free_mib":1024},…]}
//! ```
//! Keys of counters are those of `COUNTERS`, and all are there. `null` is what is not known. `kind`
//! of a group is `host`, `system`, `pool` or `vm`, of a world `vcpu`, `helper` or `task`. Keys may
//! be added, and never change their meaning.

use crate::clock::iso;
use crate::counters::{AllocUnits, GroupKind, Role};
use crate::metric::{Object, Values};
use crate::{GroupRates, Rates, WorldRates};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Numbers of one object, under their keys.
struct Numbers<'a>(&'a Values, Object);

impl Serialize for Numbers<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        for metric in self.1.metrics() {
            // The same digits as in the batch file.
            let value: Option<f64> = self.0.text(metric).and_then(|t| t.parse().ok());
            map.serialize_entry(metric.counter().key, &value)?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct Sample<'a> {
    time: Option<String>,
    unix_seconds: i64,
    interval_ms: u64,
    host: &'a str,
    load: Numbers<'a>,
    total: Numbers<'a>,
    pcpus: Vec<Pcpu<'a>>,
    groups: Vec<Group<'a>>,
    worlds: Vec<World<'a>>,
    nodes: Vec<Node>,
}

#[derive(serde::Serialize)]
struct Node {
    id: u32,
    memory_mib: u64,
    free_mib: u64,
}

#[derive(serde::Serialize)]
struct Pcpu<'a> {
    id: u16,
    core: u32,
    #[serde(flatten)]
    numbers: Numbers<'a>,
}

#[derive(serde::Serialize)]
struct Group<'a> {
    gid: u64,
    name: &'a str,
    kind: &'static str,
    parent: Option<u64>,
    vcpus: u32,
    units: Option<&'static str>,
    #[serde(flatten)]
    numbers: Numbers<'a>,
    #[serde(flatten)]
    memory: Numbers<'a>,
    home_nodes: &'a [u32],
}

#[derive(serde::Serialize)]
struct World<'a> {
    wid: u64,
    gid: u64,
    name: String,
    kind: &'static str,
    vcpu: Option<u32>,
    units: Option<&'static str>,
    #[serde(flatten)]
    numbers: Numbers<'a>,
}

fn group<'a>(gid: u64, g: &'a GroupRates) -> Group<'a> {
    let kind = match g.kind {
        GroupKind::Host => "host",
        GroupKind::System => "system",
        GroupKind::Pool => "pool",
        GroupKind::Vm => "vm",
    };
    let (parent, units) = (g.parent.map(|p| p.0), g.units.map(AllocUnits::name));
    Group {
        gid,
        name: &g.name,
        kind,
        parent,
        vcpus: g.vcpus,
        units,
        numbers: Numbers(&g.values, Object::Group),
        memory: Numbers(&g.values, Object::Memory),
        home_nodes: &g.homes,
    }
}

fn world(wid: u64, w: &WorldRates) -> World<'_> {
    let (name, kind, vcpu) = match &w.role {
        Role::Vcpu(n) => (format!("vmx-vcpu-{n}"), "vcpu", Some(*n)),
        Role::Helper(name) => (name.clone(), "helper", None),
        Role::Task(name) => (name.clone(), "task", None),
    };
    World {
        wid,
        gid: w.gid.0,
        name,
        kind,
        vcpu,
        units: w.units.map(AllocUnits::name),
        numbers: Numbers(&w.values, Object::World),
    }
}

/// A sample as one line, without its end.
#[must_use]
pub fn json_line(rates: &Rates, host: &str) -> String {
    let pcpu = |p: &'_ crate::PcpuRates| (p.id.0, p.core);
    let node = |n: &crate::NodeMemory| Node {
        id: n.id,
        memory_mib: n.bytes >> 20,
        free_mib: n.free >> 20,
    };
    let sample = Sample {
        time: iso(rates.unix_seconds),
        unix_seconds: rates.unix_seconds,
        interval_ms: rates.interval_ns / 1_000_000,
        host,
        load: Numbers(&rates.host, Object::Load),
        total: Numbers(&rates.total, Object::Pcpu),
        pcpus: rates
            .pcpus
            .iter()
            .map(|p| Pcpu {
                id: pcpu(p).0,
                core: pcpu(p).1,
                numbers: Numbers(&p.values, Object::Pcpu),
            })
            .collect(),
        groups: rates.groups.iter().map(|(gid, g)| group(gid.0, g)).collect(),
        worlds: rates.worlds.iter().map(|(wid, w)| world(wid.0, w)).collect(),
        nodes: rates.nodes.iter().map(node).collect(),
    };
    // Strings, numbers and maps with keys of text: there is nothing that could fail.
    serde_json::to_string(&sample).unwrap_or_default()
}

/// The schema of a line, in JSON Schema 2020-12, without its version.
#[must_use]
pub fn json_schema() -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer", "minimum": 0 });
    let or_null = |kind: &str| json!({ "type": [kind, "null"] });
    let list = |item: Value| json!({ "type": "array", "items": item });
    let kinds = |of: &[&str]| json!({ "type": "string", "enum": of });
    let named = |key: &str| (key.to_owned(), number.clone());
    let pcpu = shape(["id", "core"].map(named), &[Object::Pcpu]);
    let group = [
        ("gid", number.clone()),
        ("name", text.clone()),
        ("kind", kinds(&["host", "system", "pool", "vm"])),
        ("parent", or_null("integer")),
        ("vcpus", number.clone()),
        ("units", or_null("string")),
        ("home_nodes", list(number.clone())),
    ];
    let world = [
        ("wid", number.clone()),
        ("gid", number.clone()),
        ("name", text.clone()),
        ("kind", kinds(&["vcpu", "helper", "task"])),
        ("vcpu", or_null("integer")),
        ("units", or_null("string")),
    ];
    let owned = |(k, v): (&str, Value)| (k.to_owned(), v);
    let sample = [
        ("time", or_null("string")),
        ("unix_seconds", json!({ "type": "integer" })),
        ("interval_ms", number.clone()),
        ("host", text),
        ("load", shape([], &[Object::Load])),
        ("total", shape([], &[Object::Pcpu])),
        ("pcpus", list(pcpu)),
        ("groups", list(shape(group.map(owned), &[Object::Group, Object::Memory]))),
        ("worlds", list(shape(world.map(owned), &[Object::World]))),
        ("nodes", list(shape(["id", "memory_mib", "free_mib"].map(named), &[]))),
    ];
    shape(sample.map(owned), &[])
}

/// The schema of an object with these fields and the counters of these objects.
fn shape(fields: impl IntoIterator<Item = (String, Value)>, counters: &[Object]) -> Value {
    let counters = counters.iter().flat_map(|o| o.metrics()).map(|m| {
        let c = m.counter();
        let what = format!("{} {}", c.column, c.meaning);
        (c.key.to_owned(), json!({ "description": what, "type": ["number", "null"] }))
    });
    let all: Map<String, Value> = fields.into_iter().chain(counters).collect();
    let names: Vec<&String> = all.keys().collect();
    json!({ "type": "object", "required": names, "properties": all })
}

/// Writes a sample as one line, ended and flushed.
///
/// # Errors
/// What `out` says.
pub fn write_json(mut out: impl Write, rates: &Rates, host: &str) -> io::Result<()> {
    writeln!(out, "{}", json_line(rates, host))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::rates;
    use crate::{BatchWriter, COUNTERS, read};
    use serde_json::Value;

    fn parsed(rates: &Rates) -> Value {
        serde_json::from_str(&json_line(rates, "esx \"01\"")).unwrap()
    }

    #[test]
    fn a_line_says_when_where_and_of_whom() {
        let mut rates = rates();
        rates.groups.get_mut(&crate::Gid(12)).unwrap().name = "a\nb".to_owned();
        let line = json_line(&rates, "esx \"01\"");
        assert!(!line.contains('\n'), "one line, whatever names are");
        let v: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(v["time"], "2026-11-21T19:34:57Z");
        assert_eq!(
            (v["unix_seconds"].as_i64(), v["interval_ms"].as_u64(), v["host"].as_str()),
            (Some(1_795_289_697), Some(5000), Some("esx \"01\""))
        );
        let kinds: Vec<_> =
            v["groups"].as_array().unwrap().iter().map(|g| g["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["host", "system", "pool", "vm", "vm"]);
        let web = &v["groups"][3];
        assert_eq!(
            (
                web["gid"].as_u64(),
                web["parent"].as_u64(),
                web["units"].as_str(),
                web["vcpus"].as_u64()
            ),
            (Some(11), Some(10), Some("mhz"), Some(2))
        );
        assert_eq!(
            (web["ready_pct"].as_f64(), web["nwld"].as_f64(), web["alloc_shares"].as_f64()),
            (Some(60.0), Some(3.0), Some(-3.0))
        );
        assert_eq!(v["groups"][4]["name"], "a\nb", "names are as people gave them");
        assert_eq!(web["home_nodes"], serde_json::json!([0, 1]));
        assert_eq!(
            (web["numa_local_pct"].as_f64(), web["numa_migrations"].as_f64()),
            (Some(75.0), Some(6.0))
        );
        assert_eq!(v["groups"][4]["numa_local_pct"], Value::Null);
        assert_eq!(v["nodes"][1]["free_mib"], 15 << 10);
        let io = &v["worlds"][2];
        assert_eq!(
            (io["name"].as_str(), io["kind"].as_str(), &io["vcpu"], &io["vmwait_pct"]),
            (Some("io"), Some("helper"), &Value::Null, &Value::Null)
        );
        assert_eq!(
            (v["worlds"][1]["name"].as_str(), v["worlds"][1]["vcpu"].as_u64()),
            (Some("vmx-vcpu-1"), Some(1))
        );
        assert_eq!(v["pcpus"][1]["util_pct"], 40.0);
        assert_eq!(v["total"]["used_pct"], Value::Null);
        for c in &COUNTERS {
            let of = match c.on[0] {
                Object::Load => &v["load"],
                Object::Pcpu => &v["pcpus"][0],
                _ => web,
            };
            assert!(of.as_object().unwrap().contains_key(c.key), "{}", c.key);
        }
    }

    #[test]
    fn numbers_are_those_of_the_batch_file() {
        let mut rates = rates();
        rates.groups.values_mut().for_each(|g| {
            for m in Object::Group.metrics() {
                g.values.set(m, g.values.get(m).map(|v| v / 7.0 + 0.005));
            }
        });
        let mut w = BatchWriter::new(vec![], "h");
        w.write(&rates).unwrap();
        let (batch, json) = (read(&w.into_inner()[..]).unwrap(), parsed(&rates));
        let mut compared = 0;
        for (gid, instance) in [(0, "0:host"), (3, "11:web"), (4, "12:db")] {
            for m in Object::Group.metrics().filter(|m| m.counter().batch.is_some()) {
                let number = batch
                    .find("Group Cpu", Some(instance), m.counter().batch.unwrap())
                    .unwrap()
                    .numbers[0];
                assert_eq!(
                    json["groups"][gid][m.counter().key].as_f64(),
                    number,
                    "{instance} {m:?}"
                );
                compared += usize::from(number.is_some());
            }
        }
        assert!(compared > 20, "{compared}");
    }

    #[test]
    fn lines_are_ended_and_flushed() {
        let mut out = vec![];
        (0..2).for_each(|_| write_json(&mut out, &rates(), "h").unwrap());
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("}\n") && text.lines().count() == 2);
        let mut buffered = io::BufWriter::with_capacity(1 << 20, vec![]);
        write_json(&mut buffered, &rates(), "h").unwrap();
        assert!(buffered.get_ref().ends_with(b"}\n"), "and flushed");
    }
}
