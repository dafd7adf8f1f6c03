//! Reads the CSV of batch mode: first the letters, by the rules that public readers of esxtop's
//! files have (`batch.rs` of crates/esxtop names them), then the numbers, by the reader of
//! crates/esxtop; it writes none.

use std::collections::BTreeSet;

use esxtop::{Batch, Object, read};

use super::super::Report;
use super::{BUSY, READING_MS, SAMPLES, VCPUS, VMS, none_wrong, row};

const FIRST: &str = "(PDH-CSV 4.0) (UTC)(0)";
const TIME: &str = "dd/dd/dddd dd:dd:dd";
const MEMORY: usize = 7;
/// States of a vCPU, which sum to 100 %.
const STATES: [&str; 4] = ["% Run", "% Ready", "% Wait", "% CoStop"];
/// Percent of an interval that a reading may take; the script asks for two seconds.
const READING: f64 = READING_MS / 2000.0 * 100.0;

/// Checks a file.
pub(super) fn judge(report: &mut Report, text: &str) {
    none_wrong(
        report,
        "top -b: the letters of the file, by what esxtop's readers expect",
        &letters(text),
        "nothing wrong",
    );
    let wrong = match read(text.as_bytes()) {
        Ok(batch) => {
            row(
                report,
                "top -b",
                format!("{} samples, {} columns", batch.unix_ms.len(), batch.series.len()),
            );
            numbers(&batch)
        }
        Err(e) => vec![e.to_string()],
    };
    none_wrong(
        report,
        "top -b: read by the reader of batch files; both VMs, four vCPUs, states that sum to 100 %",
        &wrong,
        "nothing wrong",
    );
}

/// Fields of a line; none where one of them is not quoted.
fn fields(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('"')?.strip_suffix('"')?;
    let fields: Vec<&str> = inner.split("\",\"").collect();
    (!fields.iter().any(|f| f.contains('"'))).then_some(fields)
}

/// What the letters of a file break.
fn letters(text: &str) -> Vec<String> {
    let mut out = vec![];
    let mut lines = text.lines();
    let Some(header) = lines.next().and_then(fields) else {
        return vec!["the header is not there, or not quoted".to_owned()];
    };
    if header[0] != FIRST {
        out.push(format!("column 1 is {}", header[0]));
    }
    if header.iter().collect::<BTreeSet<_>>().len() != header.len() {
        out.push("a path is there twice".to_owned());
    }
    let has = |what: &str| header.iter().filter(|f| f.contains(what)).count();
    for (what, least) in [
        ("\\Group Cpu(1:system)\\", 1),
        ("\\Physical Cpu(_Total)\\", 1),
        ("\\Memory\\", MEMORY),
        ("\\Physical Cpu Load\\Cpu Load (", 3),
    ] {
        if has(what) < least {
            out.push(format!("{what}: {} columns", has(what)));
        }
    }
    for path in &header[1..] {
        let instance = path
            .split_once('(')
            .filter(|_| !path.contains("Cpu Load"))
            .and_then(|p| p.1.rsplit_once(")\\"))
            .map_or("", |p| p.0);
        // GROUP:VM, and for worlds :WORLD:NAME behind it.
        if instance.contains(['(', ')', '"', '\\', ',']) || instance.matches(':').count() > 3 {
            out.push(format!("{path}: marks that readers trip over"));
        }
    }
    for (n, line) in lines.enumerate() {
        let Some(values) = fields(line) else {
            return [out, vec![format!("line {}: not quoted", n + 2)]].concat();
        };
        let shape: String =
            values[0].chars().map(|c| if c.is_ascii_digit() { 'd' } else { c }).collect();
        if values.len() != header.len() || shape != TIME {
            out.push(format!("line {}: {} fields, time {}", n + 2, values.len(), values[0]));
        }
    }
    out
}

/// What the numbers of a file lack.
fn numbers(batch: &Batch) -> Vec<String> {
    let mut out = vec![];
    if batch.unix_ms.len() != SAMPLES || batch.cut_line.is_some() {
        out.push(format!("{} samples, cut at {:?}", batch.unix_ms.len(), batch.cut_line));
    }
    out.extend(cores(batch));
    let instances = |object: &str| -> BTreeSet<&str> {
        batch
            .series
            .iter()
            .filter(|s| s.path.object == object)
            .filter_map(|s| s.path.instance.as_deref())
            .collect()
    };
    for vm in VMS {
        let group = instances(Object::Group.name())
            .into_iter()
            .find(|i| i.split_once(':').is_some_and(|p| p.1 == vm));
        let vcpus: Vec<&str> = instances(Object::World.name())
            .into_iter()
            .filter(|i| i.split(':').nth(1) == Some(vm) && i.contains(":vmx-vcpu-"))
            .collect();
        let (Some(group), true) = (group, vcpus.len() == VCPUS as usize) else {
            out.push(format!("{vm}: group {group:?}, {} vCPUs", vcpus.len()));
            continue;
        };
        let last = |object: &str, instance: &str, counter: &str| {
            batch
                .find(object, Some(instance), counter)
                .and_then(|s| s.numbers.last().copied().flatten())
        };
        let run = last(Object::Group.name(), group, "% Run").unwrap_or(0.0);
        if vm == BUSY && run < 20.0 {
            out.push(format!("{vm}: runs {run} %"));
        }
        for vcpu in vcpus {
            let sum: f64 = STATES.iter().filter_map(|s| last(Object::World.name(), vcpu, s)).sum();
            if (sum - 100.0).abs() > READING {
                out.push(format!("{vcpu}: states sum to {sum} %"));
            }
        }
    }
    out
}

/// What of pCPUs and their cores does not fit together: a core is busy at least while a thread of
/// it is, and a thread that another works beside counts half.
fn cores(batch: &Batch) -> Vec<String> {
    let mut out = vec![];
    let object = Object::Pcpu.name();
    let pcpus: BTreeSet<&str> = batch
        .series
        .iter()
        .filter(|s| s.path.object == object)
        .filter_map(|s| s.path.instance.as_deref())
        .filter(|i| *i != "_Total")
        .collect();
    for pcpu in &pcpus {
        let last = |counter: &str| {
            batch
                .find(object, Some(pcpu), counter)
                .and_then(|s| s.numbers.last().copied().flatten())
                .unwrap_or(f64::NAN)
        };
        let (used, util, core) =
            (last("% Processor Time"), last("% Util Time"), last("% Core Util Time"));
        // A core is awake for a moment before and after what it runs.
        if !(core >= util - READING
            && core <= 100.0 + READING
            && used <= util + READING
            && used >= util / 2.0 - READING)
        {
            out.push(format!("pCPU {pcpu}: used {used} %, util {util} %, its core {core} %"));
        }
    }
    if pcpus.is_empty() {
        out.push("no pCPU".to_owned());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> String {
        let mut header = vec![FIRST.to_owned()];
        header.extend(
            ["1", "5", "15"].map(|m| format!(r"\\h\Physical Cpu Load\Cpu Load ({m} Minute Avg)")),
        );
        header.extend((0..MEMORY).map(|i| format!(r"\\h\Memory\M{i}")));
        header.push(r"\\h\Physical Cpu(_Total)\% Util Time".to_owned());
        let mut values = vec!["11/21/2026 19:34:57".to_owned()];
        values.extend((1..header.len()).map(|_| "0.00".to_owned()));
        let mut add = |path: String, value: &str| {
            header.push(path);
            values.push(value.to_owned());
        };
        for (counter, value) in [("Processor", "32.00"), ("Util", "40.00"), ("Core Util", "60.00")]
        {
            add(format!(r"\\h\Physical Cpu(0)\% {counter} Time"), value);
        }
        add(r"\\h\Group Cpu(1:system)\% Run".to_owned(), "1.00");
        for (i, vm) in VMS.iter().enumerate() {
            add(format!(r"\\h\Group Cpu({}:{vm})\% Run", 1000 + i), "150.00");
            for vcpu in 0..VCPUS {
                for (state, value) in STATES.iter().zip(["75.00", "20.00", "5.00", "0.00"]) {
                    add(
                        format!(
                            r"\\h\Vcpu({}:{vm}:{}:vmx-vcpu-{vcpu})\{state}",
                            1000 + i,
                            5000 + vcpu
                        ),
                        value,
                    );
                }
            }
        }
        let line = |fields: &[String]| {
            fields.iter().map(|f| format!("\"{f}\"")).collect::<Vec<_>>().join(",") + "\n"
        };
        line(&header) + &line(&values).repeat(SAMPLES)
    }

    fn wrong(text: &str) -> usize {
        letters(text).len() + read(text.as_bytes()).map_or(1, |b| numbers(&b).len())
    }

    #[test]
    fn a_file_as_readers_want_it_has_nothing_wrong() {
        let text = file();
        assert_eq!(
            (letters(&text), read(text.as_bytes()).map(|b| numbers(&b)).unwrap()),
            (vec![], vec![])
        );
    }

    #[test]
    fn each_rule_that_is_broken_is_told() {
        let text = file();
        for (from, to) in [
            ("(UTC)(0)", "(GMT)(0)"),
            ("\"150.00\"", "150.00"),
            ("(1:system)", "(1:idle)"),
            (r"\Memory\M6", r"\Memory\M5"),
            ("19:34:57", "19:34:57.5"),
            (":beat:", ":beat(2):"),
            ("vmx-vcpu-1", "vcpu-1"),
            ("\"75.00\"", "\"70.00\""),
            ("\"75.00\"", "\"\""),
            ("\"150.00\"", "\"0.00\""),
            ("\"60.00\"", "\"30.00\""),
            ("\"60.00\"", "\"\""),
            ("\"32.00\"", "\"10.00\""),
        ] {
            assert!(wrong(&text.replace(from, to)) > 0, "{from} -> {to}");
        }
        assert!(wrong(text.lines().next().unwrap()) > 0, "no sample");
    }
}
