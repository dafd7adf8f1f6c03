//! Drill "guests": two small Linux guests do the same work, one after the other, the one shown a
//! topology (a socket of two cores with one L3), the other none (a socket for each vCPU): execs, a
//! storm of messages, requests and a stream over loopback TCP. Under the kernel's own scheduler and
//! under Tandem, alone and beside a VM that computes on both pCPUs.
//!
//! Each pCPU has a core of the machine. Rates are those of an emulated machine, and move with what
//! else runs there: what is held against each other is measured in turn within one boot, again and
//! again, and medians are taken. `xtask` puts the simulator's answer to the same work beside them.

mod figures;

use super::record::Record;
use super::{Drill, Report, Setting, TWO_CPUS, begin, rogue, spec};
use crate::archive::Archive;
use crate::boot::{GuestFile, Stream};
use crate::cpio::Cpio;
use crate::error::Result;
use crate::image::guest_path;
use crate::payload::{Orders, Work};
use crate::tool;
use crate::vm::{Runs, Vm};

pub use figures::{Cell, Figures, GUESTS, LOADS, POLICIES, Spread, WORKS};

const SCRIPT: &str = include_str!("../../guest/drill-guests");
const VCPUS: u32 = 2;
/// The kernel unpacks itself and a program of 1 MB.
const MEMORY_MB: u32 = 128;
/// Of each measurement, by the guest's clock. The slowest work, an exec, is done 100 times.
const MEASURED_MS: u32 = 1500;
/// Wall time of a repetition on a busy machine; the whole has at least that of five.
const REPETITION_S: u64 = 300;
/// QEMU's words for what each guest is shown.
const SHOWN: [&str; 2] =
    ["2,sockets=1,cores=2,threads=1", "2,sockets=2,cores=1,threads=1"];
const LOAD: &str = "load";
/// What Tandem may do less than the kernel's own scheduler while the host is idle otherwise.
const LEAST: f64 = 0.85;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let load = Vm::new(LOAD, VCPUS, Runs::Payload(Orders::all(VCPUS, Work::Burn)));
    let before = format!(
        "GUESTS=\"{}\" LOAD={LOAD} REPETITIONS={} MS={MEASURED_MS}\nstart_guests() {{\n{}}}\n\
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
    judge(&mut report, &records, setting.rounds);
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

fn judge(report: &mut Report, records: &[Record], rounds: usize) {
    let figures = Figures::of(records);
    report.columns = Figures::COLUMNS.to_vec();
    report.rows = figures.rows();
}
