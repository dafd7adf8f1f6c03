//! Opens Tandem's batch files the way public readers of esxtop's open theirs, each by its own crude
//! means; it uses no code of the writer's. Each reader is named with the file that shows what it
//! does.

use crate::common;

use common::{AWKWARD, file, samples};
use std::collections::{BTreeMap, BTreeSet};

const VMS: u64 = AWKWARD.len() as u64;

fn text() -> String {
    String::from_utf8(file(&samples(7, VMS, 3), "esx01.lab")).unwrap()
}

/// As yukiuuh/react-esxtop-viewer does (`csvFormat.ts`, `esxtopParser.worker.ts`): split at every
/// comma, quoted or not; of a header field what is between the first two quotes; of a value all but
/// the first and last character.
fn by_commas(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut lines = text.split('\n').filter(|l| !l.is_empty());
    let header = lines
        .next()
        .unwrap()
        .split(',')
        .map(|f| f.split('"').nth(1).unwrap_or("").to_owned())
        .collect();
    let value = |v: &str| v.get(1..v.len().saturating_sub(1)).unwrap_or("").to_owned();
    (header, lines.map(|l| l.split(',').map(value).collect()).collect())
}

/// What a path is split into by backslashes: host, object with instance, counter.
fn parts(path: &str) -> [&str; 3] {
    let all: Vec<&str> = path.split('\\').collect();
    // Two empty ones before the host: vfedotovs/esxtop-batch-data-visualizer `parser.py` and
    // mu853/esxtop2report count on them.
    assert_eq!((all.len(), all[0], all[1]), (5, "", ""), "{path}");
    [all[2], all[3], all[4]]
}

/// Object and instance, as nithintitta/ESXTOP-BATCHMODE-VIEWER `esxtop_viewer.py` parts them.
fn object(part: &str) -> (&str, Option<&str>) {
    match part.split_once('(') {
        Some((object, instance)) => {
            (object, Some(instance.strip_suffix(')').expect("the instance ends the object")))
        }
        None => (part, None),
    }
}

#[test]
fn splitting_at_commas_and_line_ends_gives_as_many_fields_everywhere() {
    let text = text();
    assert!(text.ends_with('\n') && !text.contains('\r'));
    let (header, rows) = by_commas(&text);
    assert!(
        header.iter().all(|f| !f.is_empty()),
        "react-esxtop-viewer drops empty header fields, and all behind would shift"
    );
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|r| r.len() == header.len()));
    for line in text.lines() {
        assert!(
            line.split(',').all(|f| f.len() >= 2 && f.starts_with('"') && f.ends_with('"')),
            "every field is quoted"
        );
        assert_eq!(line.matches('"').count(), header.len() * 2, "and has no quote within");
    }
}

#[test]
fn the_first_column_is_utc_to_the_letter() {
    let (header, rows) = by_commas(&text());
    assert_eq!(header[0], "(PDH-CSV 4.0) (UTC)(0)");
    let shape =
        |s: &str| s.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect::<String>();
    assert!(
        rows.iter().all(|r| shape(&r[0]) == "99/99/9999 99:99:99"),
        "esxtop-batch-data-visualizer `extractor.py` matches the whole"
    );
    assert_eq!(
        rows.iter().map(|r| r[0].as_str()).collect::<Vec<_>>(),
        ["11/21/2026 19:35:02", "11/21/2026 19:35:07", "11/21/2026 19:35:12"]
    );
}

#[test]
fn every_path_is_host_object_instance_counter_and_there_is_one_of_each() {
    let (header, _) = by_commas(&text());
    assert_eq!(
        header.iter().collect::<BTreeSet<_>>().len(),
        header.len(),
        "pandas renames what is there twice"
    );
    for path in &header[1..] {
        let [host, middle, counter] = parts(path);
        assert_eq!(host, "esx01.lab");
        assert!(!counter.is_empty() && counter.trim() == counter);
        let (object, instance) = object(middle);
        let colons = instance.map_or(0, |i| i.matches(':').count());
        let numbers = |at: usize| {
            instance.and_then(|i| i.split(':').nth(at)).is_some_and(|n| n.parse::<u64>().is_ok())
        };
        match object {
            "Physical Cpu Load" | "Memory" => assert_eq!(instance, None),
            "Physical Cpu" => {
                assert!(colons == 0 && (instance == Some("_Total") || numbers(0)), "{path}")
            }
            "Group Cpu" | "Group Memory" => assert!(colons == 1 && numbers(0), "{path}"),
            // react-esxtop-viewer `esxtopTree.ts` parts group and world at the second colon.
            "Vcpu" => assert!(colons == 3 && numbers(0) && numbers(2), "{path}"),
            other => panic!("{other}: not an object of esxtop's"),
        }
        let within = instance.unwrap_or("");
        assert!(!within.contains(['(', ')', '%']) && !within.contains(char::is_control), "{path}");
    }
}

#[test]
fn what_readers_take_as_given_is_there() {
    let (header, rows) = by_commas(&text());
    let has = |path: &str| header.iter().any(|h| h.strip_prefix(r"\\esx01.lab\") == Some(path));
    for path in [
        r"Group Cpu(1:system)\% Used",
        r"Group Cpu(0:host)\% Ready",
        r"Memory\Kernel MBytes",
        r"Memory\Kernel State",
    ] {
        assert!(has(path), "{path}");
    }
    for counter in ["Processor", "Util", "Core Util"] {
        assert!(
            has(&format!(r"Physical Cpu(_Total)\% {counter} Time"))
                && has(&format!(r"Physical Cpu(3)\% {counter} Time"))
        );
    }
    assert!(
        [1, 5, 15].iter().all(|n| has(&format!(r"Physical Cpu Load\Cpu Load ({n} Minute Avg)")))
    );
    assert_eq!(header.iter().filter(|h| h.contains(r"\Memory\")).count(), 7);
    // cesirx/vSphere-esxtop-parser `esxtop_parser.py` finds vCPUs by `:VM:…:vmx-vcpu-N)`.
    let vcpus = |n: u32| {
        header.iter().filter(|h| h.ends_with(&format!(r":vmx-vcpu-{n})\% CoStop"))).count() as u64
    };
    assert_eq!([vcpus(0), vcpus(1), vcpus(2)], [VMS, VMS, 0]);
    // akshaykalia-chd/esxtopdrillv3 `c_map.csv` asks these of each vCPU.
    let of_vcpu = "% Used,% VmWait,% Ready,% CoStop,% Max Limited,% Swap \
        Wait,Switches/sec,Migrates/sec,Quantum Expires/sec,Alloc Min,Alloc Max,% Demand";
    assert!(of_vcpu.split(',').all(|c| has(&format!(r"Vcpu(10:VM_web-01:1000:vmx-vcpu-0)\{c}"))));
    // Numbers are numbers for pandas, or gaps.
    let decimals = |v: &String| {
        v.split_once('.').is_some_and(|(whole, d)| d.len() == 2 && whole.parse::<i64>().is_ok())
    };
    assert!(rows.iter().all(|r| r[1..].iter().all(|v| v.is_empty() || decimals(v))));
    assert!(rows.iter().flat_map(|r| &r[1..]).filter(|v| !v.is_empty()).count() > 1000);
}

#[test]
fn all_pcpus_of_a_counter_come_before_the_next_counter() {
    let (header, _) = by_commas(&text());
    let cpus: Vec<[&str; 3]> = header[1..]
        .iter()
        .map(|h| parts(h))
        .filter(|p| p[1].starts_with("Physical Cpu("))
        .collect();
    let order: Vec<String> =
        cpus.iter().map(|[_, o, c]| format!("{} {c}", object(o).1.unwrap())).collect();
    let expected = ["Processor", "Util", "Core Util"]
        .map(|c| ["0", "1", "2", "3", "_Total"].map(|i| format!("{i} % {c} Time")));
    assert_eq!(order, expected.concat());
}

#[test]
fn names_stay_told_apart_however_much_they_lose() {
    let (header, _) = by_commas(&text());
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for [_, middle, counter] in header[1..].iter().map(|h| parts(h)) {
        if let ("Group Cpu", Some(instance)) = object(middle) {
            groups.entry(counter).or_default().insert(instance);
        }
    }
    assert!(groups.values().all(|g| g.len() as u64 == VMS + 3), "VMs, pool, host, system");
    let names: Vec<&str> = groups["% Run"].iter().map(|g| g.split_once(':').unwrap().1).collect();
    for name in [
        "VM_web-01",
        "two words",
        "a_b",
        "say _hi_",
        "back_slash",
        "x _copy_",
        "a_b_c",
        "100_41",
        "new_line__",
        "Größe 日本 🦀",
        "_",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
}

#[test]
fn a_host_with_an_awkward_name_is_one_part_of_the_path_too() {
    let text = String::from_utf8(file(&samples(3, 1, 1), "a\\b,\"c\"(d)")).unwrap();
    let (header, _) = by_commas(&text);
    assert!(header[1..].iter().all(|h| parts(h)[0] == "a_b__c__d_"));
}
