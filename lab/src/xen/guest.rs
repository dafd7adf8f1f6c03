//! The workload kernel of Xen's PV VMs: builds it from `lab/xen`, and reads of its reports what
//! Xen's accounts say; orders and other parts of reports are those of [`crate::payload`].

use std::path::PathBuf;
use std::process::Command;

use crate::archive::{Archive, Xen};
use crate::error::{LabError, Result};
use crate::tool;

const SOURCES: [(&str, &[u8]); 6] = [
    ("entry.S", include_bytes!("../../xen/entry.S")),
    ("main.c", include_bytes!("../../xen/main.c")),
    ("xen.c", include_bytes!("../../xen/xen.c")),
    ("parse.c", include_bytes!("../../xen/parse.c")),
    ("guest.h", include_bytes!("../../xen/guest.h")),
    ("guest.ld", include_bytes!("../../xen/guest.ld")),
];

/// Freestanding 64-bit code that uses no more than general registers.
const FLAGS: [&str; 15] = [
    "-O2",
    "-Wall",
    "-ffreestanding",
    "-fno-pie",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-DSTACK_BYTES=16384",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,-T,guest.ld",
    "-Wl,--build-id=none",
    "-Wl,-z,noexecstack",
];

/// vCPUs of one VM; as in `guest.h`, whose shared page has the time of so many.
pub(super) const MAX_VCPUS: u32 = 32;

/// Compiles the workload kernel, or finds it compiled, and returns its path.
pub(super) fn build(archive: &Archive, xen: &Xen) -> Result<PathBuf> {
    let flags = FLAGS.join(" ");
    let texts = SOURCES.iter().map(|s| s.1).chain([flags.as_bytes(), xen.version().as_bytes()]);
    let place = archive.root().join(format!("xen-guest-{}", tool::content_key(texts)));
    if place.is_file() {
        return Ok(place);
    }
    let compiler = tool::need_program(&["gcc", "clang", "clang-19", "cc"], "gcc")?;
    let folder = place.with_extension(format!("build{}", std::process::id()));
    for (name, text) in SOURCES {
        tool::write(&folder.join(name), text)?;
    }
    let mut command = Command::new(compiler);
    command.current_dir(&folder).arg("-I").arg(xen.headers()).args(FLAGS);
    command.args(["-o", "guest", "entry.S", "main.c", "xen.c", "parse.c"]);
    tool::run(&mut command, "compile the workload kernel", "install gcc or clang")?;
    tool::copy(&folder.join("guest"), &place.with_extension("new"))?;
    std::fs::rename(place.with_extension("new"), &place)
        .map_err(|e| LabError::io(&place, "put the workload kernel in place", e))?;
    tool::remove_dir(&folder)?;
    Ok(place)
}

/// A vCPU's CPU time since it was started, at a moment of Xen's clock, both in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    vcpu: u32,
    run_ns: u64,
    now_ns: u64,
}

fn account(line: &str) -> Option<Account> {
    let rest = line.strip_prefix("report ")?;
    let value = |name: &str| {
        let word = rest.split_whitespace().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
        word?.parse::<u64>().ok()
    };
    let vcpu = value("vcpu")?.try_into().ok()?;
    Some(Account { vcpu, run_ns: value("run_ns")?, now_ns: value("now_ns")? })
}

/// CPU time of each vCPU for `length_ns`, by the last reports of an earlier text and a later one;
/// none where one of them has no report of a vCPU.
///
/// Between two reports are whole intervals and no more, so their CPU time is scaled to the length;
/// it rounds down.
pub(super) fn used_ns(before: &str, after: &str, vcpus: u32, length_ns: u64) -> Option<Vec<u64>> {
    let last = |text: &str, vcpu: u32| text.lines().filter_map(account).rfind(|a| a.vcpu == vcpu);
    let used = |vcpu: u32| {
        let (from, to) = (last(before, vcpu)?, last(after, vcpu)?);
        let time = u128::from(to.now_ns.checked_sub(from.now_ns).filter(|t| *t > 0)?);
        let run = u128::from(to.run_ns.checked_sub(from.run_ns)?);
        u64::try_from(run * u128::from(length_ns) / time).ok()
    };
    (0..vcpus).map(used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u32, vcpu: u32, run_ns: u64, now_ns: u64) -> String {
        format!(
            "report n={n} ms=0 vcpu={vcpu} run_ns={run_ns} now_ns={now_ns} work_us=0 rounds=0 \
                wakeups=0 missed=0 late_us_sum=0 late=\n"
        )
    }

    #[test]
    fn cpu_time_is_that_between_the_last_reports_scaled_to_the_length() {
        let before = line(1, 0, 100, 1000) + &line(1, 1, 7, 1010);
        let after = before.clone() + &line(2, 0, 600, 2000) + &line(2, 1, 1007, 2010);
        assert_eq!(used_ns(&before, &after, 2, 4000), Some(vec![2000, 4000]));
        assert_eq!(used_ns(&before, &after, 3, 4000), None, "a vCPU never reported");
        assert_eq!(used_ns(&before, &before, 2, 4000), None, "no report in between");
        let torn = before.clone() + "report n=2 ms=0 vcpu=0 run_ns=6";
        assert_eq!(used_ns(&before, &torn, 2, 4000), None);
    }

    #[test]
    fn reports_are_read_by_the_payloads_reader_as_well() {
        let wakeups = "report n=3 ms=3000 vcpu=0 run_ns=5 now_ns=9 work_us=2000 rounds=2 wakeups=2 \
            missed=0 late_us_sum=30 late_us_min=10 late_us_max=20 late=9:1,18:1\n";
        let seen = crate::payload::latencies("", wakeups);
        let sums = seen.sums("vm", views::MeasuredBy::Workload, 1000, 0).expect("two wake-ups");
        assert_eq!(
            (sums.count, sums.min_ns, sums.mean_ns, sums.max_ns),
            (2, 10_000, 15_000, 20_000)
        );
    }

    #[test]
    fn the_limits_are_those_of_the_c_side() {
        let header = std::str::from_utf8(SOURCES[4].1).unwrap();
        assert!(header.contains(&format!("#define MAX_VCPUS {MAX_VCPUS}")));
        assert!(header.contains(&format!("LATE_BUCKETS {}", crate::payload::LATE_BUCKETS)));
    }
}
