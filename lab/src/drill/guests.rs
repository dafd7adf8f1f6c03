//! Drill "guests": two small Linux guests do the same work, one after the other, the one shown a
//! topology (a socket of two cores with one L3), the other none (a socket for each vCPU): execs, a
//! storm of messages, requests and a stream over loopback TCP. Under the kernel's own scheduler and
//! under Tandem, alone and beside a VM that computes on both pCPUs.
//!
//! Each pCPU has a core of the machine. Rates are those of an emulated machine, and move with what
//! else runs there: what is held against each other is measured in turn within one boot, again and
//! again, and medians are taken. `xtask` puts the simulator's answer to the same work beside them.

mod figures;

use super::record::{Record, spread};
use super::{Drill, Report, SLOWNESS, Setting, TWO_CPUS, begin, rogue, spec};
use crate::archive::Archive;
use crate::boot::{GuestFile, Stream};
use crate::cpio::Cpio;
use crate::error::Result;
use crate::image::guest_path;
use crate::payload::{Orders, Work};
use crate::tool;
use crate::vm::{Runs, Vm};

use figures::{Figures, GUESTS, LOADS, POLICIES, WORKS};

const SCRIPT: &str = include_str!("../../guest/drill-guests");
const VCPUS: u32 = 2;
/// The kernel unpacks itself and a program of 1 MB.
const MEMORY_MB: u32 = 128;
/// Of each measurement, by the guest's clock. An exec, which takes 5 to 200 ms, gets three
/// times as long.
const MEASURED_MS: u32 = 400;
/// Through all work under one scheduler beside one load, in each repetition.
const PASSES: usize = 3;
/// Wall time of a repetition on a busy machine; the whole has at least that of five.
const REPETITION_S: u64 = 600;
/// QEMU's words for what each guest is shown.
const SHOWN: [&str; 2] = ["2,sockets=1,cores=2,threads=1", "2,sockets=2,cores=1,threads=1"];
const LOAD: &str = "load";
/// Of execs, part that may move the process: a thread of the kernel that runs on its vCPU is a
/// load. Where the process itself is one, every exec moves it.
const MOVES_MOST: f64 = 0.5;
/// Interrupts for a request and its answer on one vCPU: what the kernel itself has to say.
const HELD_MOST: f64 = 0.5;
/// And between two vCPUs, one each way; now and then one end is still awake, or both share a vCPU
/// for a while.
const SPREAD_LEAST: f64 = 0.8;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let load = Vm::new(LOAD, VCPUS, Runs::Payload(Orders::all(VCPUS, Work::Burn)));
    let before = format!(
        "GUESTS=\"{}\" LOAD={LOAD} REPETITIONS={} PASSES={PASSES} MS={MEASURED_MS}\n\
            start_guests() {{\n{}}}\n\
            start_load() {{\n{}\n}}",
        GUESTS.join(" "),
        setting.rounds,
        GUESTS.iter().zip(SHOWN).map(|(name, shown)| start_line(name, shown)).collect::<String>(),
        load.start_line()?,
    );
    let mut spec = spec(setting, &before, SCRIPT, REPETITION_S * setting.rounds.max(5) as u64);
    spec.topology = TWO_CPUS;
    let program = tool::read(&rogue::compiled(archive, rogue::WITNESS)?)?;
    spec.files.push(GuestFile::bytes("/lab/in/witness.cpio", initramfs(&program), false));
    let (mut report, _, records) = begin(Drill::Guests, &spec, archive, on)?;
    judge(&mut report, &records, setting.rounds * PASSES);
    Ok(report)
}

/// The shell line that starts a guest whose second serial port takes orders.
fn start_line(name: &str, shown: &str) -> String {
    let orders = format!("-chardev pipe,id=orders,path=/tmp/vm/{name}.orders");
    format!(
        "MORE=\"-smp {shown} {orders} -serial chardev:orders\" lab-vm {name} {VCPUS} {MEMORY_MB} \
            {} /lab/in/witness.cpio \"console=ttyS0 quiet panic=-1 rdinit=/init\"\n",
        guest_path::LINUX_KERNEL
    )
}

/// The program as the first process of a guest that has nothing else.
fn initramfs(program: &[u8]) -> Vec<u8> {
    let mut cpio = Cpio::default();
    for folder in ["proc", "sys", "dev"] {
        cpio.add(folder, 0o040_755, (0, 0), &[]);
    }
    cpio.add("dev/console", 0o020_600, (5, 1), &[]);
    cpio.add("init", 0o100_755, (0, 0), program);
    cpio.finish()
}

/// Places of each kind of work, beyond `free`; the first guest alone has them.
fn places(work: &str) -> &'static [&'static str] {
    match work {
        "rr" | "stream" => &["held", "apart"],
        _ => &["held"],
    }
}

/// Every measurement of a repetition.
fn cells() -> Vec<[&'static str; 5]> {
    let mut out = vec![];
    for policy in POLICIES {
        for load in LOADS {
            for work in WORKS {
                out.extend(GUESTS.map(|guest| [policy, load, guest, work, "free"]));
                let named = places(work).iter();
                out.extend(named.map(|place| [policy, load, GUESTS[0], work, place]));
            }
        }
    }
    out
}

fn judge(report: &mut Report, records: &[Record], repetitions: usize) {
    let figures = Figures::of(records);
    report.columns = Figures::COLUMNS.to_vec();
    report.rows = figures.rows();
    topology_is_as_given(report, records);
    let done = cells().iter().filter(|c| figures.times(**c) == repetitions).count();
    report.check(
        format!("measurements that were done {repetitions} times, most of them with work"),
        done == cells().len(),
        done.to_string(),
        cells().len().to_string(),
    );
    guests_do_as_the_model(report, &figures);
    slowness(report, records);
    let again = records.iter().filter(|r| r.kind == "again").count();
    if again > 0 {
        report.notes.push(format!("answers without their first letters, measured again: {again}"));
    }
    report.notes.push(
        "rates are pieces of work a second; interrupts between vCPUs, switches and moves of the \
        process to another vCPU are those of the guest for each piece"
            .into(),
    );
    report.notes.push(
        "rates are told, not judged: beside other work on the machine they go up and down; by_shown \
        and by_eevdf are medians of ratios within a repetition, and their least and most"
            .into(),
    );
}

/// The shown guest has a domain whose vCPUs share a cache, the hidden one none.
fn topology_is_as_given(report: &mut Report, records: &[Record]) {
    let sees = |name: &str| {
        let guest = records.iter().find(|r| r.kind == "guest" && r.text("name") == name);
        let flags = guest.map_or("", |r| r.text("flags0"));
        let shares = flags.split(',').any(|f| f == "SD_SHARE_LLC");
        let text = |key: &str| guest.map_or("", |r| r.text(key));
        // Without flags the guest tells nothing.
        let known = flags.contains("SD_");
        (known, shares, format!("{} of vCPUs, LLC of {}", text("vcpus"), text("llc")))
    };
    let (shown, hidden) = (sees(GUESTS[0]), sees(GUESTS[1]));
    let word = |s: &(bool, bool, String)| match (s.0, s.1) {
        (false, _) => "nothing told",
        (_, true) => "SD_SHARE_LLC",
        (_, false) => "no SD_SHARE_LLC",
    };
    report.check(
        "scheduling domains of the guests: shown, hidden",
        shown.0 && hidden.0 && shown.1 && !hidden.1,
        format!("{} ({}), {} ({})", word(&shown), shown.2, word(&hidden), hidden.2),
        "SD_SHARE_LLC, no SD_SHARE_LLC",
    );
}

/// What the simulator's guest does, too, whatever the machine's speed.
fn guests_do_as_the_model(report: &mut Report, figures: &Figures) {
    let worst = |of: &dyn Fn(&str, &str) -> f64, pick: fn(f64, f64) -> f64| {
        let each = POLICIES.iter().flat_map(|p| GUESTS.map(|guest| of(p, guest)));
        // What was not measured stays: it is in no range.
        each.reduce(|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) })
            .unwrap_or(f64::NAN)
    };
    let moves = worst(&|p, g| figures.moves([p, "none", g, "exec", "free"]), f64::max);
    report.check(
        "execs of a process that is alone, part that moves it to the other vCPU",
        moves <= MOVES_MOST,
        format!("{moves:.3}"),
        format!("{MOVES_MOST}: the process itself is no load of its vCPU"),
    );
    let of = |place: &'static str| {
        move |p: &str, _: &str| figures.interrupts([p, "none", GUESTS[0], "rr", place])
    };
    let (held, free) = (worst(&of("held"), f64::max), worst(&of("free"), f64::min));
    report.check(
        "interrupts between vCPUs for a request and its answer: held on one vCPU, and free with a \
            topology shown",
        held <= HELD_MOST && free >= SPREAD_LEAST,
        format!("{held:.2}, {free:.2}"),
        format!("{HELD_MOST} at most, {SPREAD_LEAST} at least: each wakes on the idle vCPU"),
    );
}

/// How much slower the emulated CPUs were than in the fastest phase.
fn slowness(report: &mut Report, records: &[Record]) {
    let of = |load: &str| {
        let phases = records.iter().filter(|r| r.kind == "phase" && r.text("load") == load);
        phases.filter_map(|r| r.number("control_ns")).collect::<Vec<f64>>()
    };
    let Some(least) = spread(of("none")).map(|s| s.0) else { return };
    for load in LOADS {
        if let Some(s) = spread(of(load)) {
            let [a, b, c] = [s.0, s.1, s.2].map(|n| n / least);
            report.notes.push(format!(
                "{SLOWNESS}: {a:.1} / {b:.1} / {c:.1} with load '{load}' (least, median, most)"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    const SEES: &str = "drill: guest name=shown vcpus=2 llc=0-1 domain0=MC \
        flags0=SD_BALANCE_EXEC,SD_SHARE_LLC\n\
        drill: guest name=hidden vcpus=2 llc=0 domain0=PKG flags0=SD_BALANCE_EXEC\n";

    /// A console on which each piece has so many interrupts (`rr`) or moves (`exec`).
    fn console(repetitions: u64, moves: u32, held: u32, free: u32) -> String {
        let mut text = SEES.to_owned();
        for n in 1..=repetitions {
            for [policy, load, guest, work, place] in cells() {
                let interrupts = if place == "held" { held } else { free };
                text += &format!(
                    "drill: work n={n} policy={policy} load={load} guest={guest} work={work} \
                     place={place} us=1000000 count=100 moves={moves} interrupts={interrupts} \
                     switches=400\n"
                );
            }
        }
        text
    }

    fn failed(text: &str) -> Vec<String> {
        let mut report = Report::of_no_boot("guests");
        judge(&mut report, &records(text), 3);
        report.checks.iter().filter(|c| !c.ok).map(|c| c.what[..12].to_owned()).collect()
    }

    #[test]
    fn guests_that_do_as_the_model_pass_and_what_they_do_else_is_seen() {
        assert_eq!(failed(&console(3, 2, 5, 195)), Vec::<String>::new());
        assert_eq!(failed(&console(3, 60, 5, 195)), ["execs of a p"]);
        assert_eq!(failed(&console(3, 2, 90, 195)), ["interrupts b"]);
        assert_eq!(failed(&console(3, 2, 5, 40)), ["interrupts b"]);
    }

    #[test]
    fn a_measurement_that_is_missing_once_is_seen() {
        let whole = console(3, 2, 5, 195);
        let last = whole.trim_end().rfind('\n').unwrap();
        assert_eq!(failed(&whole[..=last]), ["measurements"]);
        assert_eq!(failed("").len(), 4, "nothing told is no verdict");
    }

    #[test]
    fn a_guest_that_sees_another_topology_is_seen() {
        let of = |from: &str, to: &str| failed(&console(3, 2, 5, 195).replace(from, to));
        assert_eq!(of(",SD_SHARE_LLC", ""), ["scheduling d"]);
        assert_eq!(of("PKG flags0=", "PKG flags0=SD_SHARE_LLC,"), ["scheduling d"]);
        assert_eq!(of("PKG flags0=SD_BALANCE_EXEC", "PKG"), ["scheduling d"]);
    }

    #[test]
    fn each_guest_has_its_topology_and_a_port_for_orders() {
        let line = start_line("hidden", SHOWN[1]);
        for part in [
            "-smp 2,sockets=2,cores=1,threads=1 ",
            "path=/tmp/vm/hidden.orders -serial chardev:orders\"",
            "lab-vm hidden 2 128 /lab/vmlinuz /lab/in/witness.cpio",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        let text = String::from_utf8_lossy(&initramfs(b"a program")).into_owned();
        assert!(text.contains("init\0") && text.contains("a program"));
    }
}
