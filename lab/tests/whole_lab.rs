//! The whole lab at once: real boots with real VMs inside, under the kernel's own scheduler.
//! Ignored by default, because the first run needs the network and each takes half a minute; run
//! with `cargo test -p lab -- --ignored --test-threads=1`.

use std::time::Duration;

use lab::payload::{self, Orders, Work};
use lab::{Accel, Archive, BootOutcome, BootSpec, KernelId, Runs, Stream, Topology, Vm};

fn boot(spec: &BootSpec) -> BootOutcome {
    let archive = Archive::open().expect("the cache folder can be made");
    let outcome = lab::boot(&archive, spec, &mut |stream, text| {
        if stream == Stream::Command {
            eprint!("{text}");
        }
    });
    let outcome = outcome.expect("the lab runs");
    outcome.require_success().expect("the guest succeeds");
    outcome
}

/// The number behind `name ` in the outcome's console.
fn value(outcome: &BootOutcome, name: &str) -> u64 {
    let line = outcome.console.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in the output"))
}

#[test]
#[ignore = "boots a machine"]
fn two_kvm_vms_on_two_cpus_get_cpu_time_as_their_weights_say() {
    let vm = |name: &str| {
        let mut orders = Orders::all(2, Work::Burn);
        orders.report_ms = Some(1000);
        let mut vm = Vm::new(name, 2, Runs::Payload(orders));
        vm.group = format!("vms/{name}");
        vm.start_line().expect("a valid VM")
    };
    let script = format!(
        "cg=/sys/fs/cgroup/vms; mkdir $cg; echo 0-1 >$cg/cpuset.cpus\n{}\n{}\n\
         echo 300 >$cg/heavy/cpu.weight\n\
         lab-wait 40 'payload up' /lab/out/light.debug /lab/out/heavy.debug || exit 1\n\
         usage() {{ awk '/usage_usec/ {{print $2}}' $cg/$1/cpu.stat; }}\n\
         l=$(usage light); h=$(usage heavy); sleep 10\n\
         echo light_us $(($(usage light) - l)); echo heavy_us $(($(usage heavy) - h))",
        vm("light"),
        vm("heavy")
    );
    let outcome = boot(&BootSpec::new(script));
    let (light, heavy) = (value(&outcome, "light_us "), value(&outcome, "heavy_us "));
    let percent = heavy * 100 / light;
    assert!((285..=315).contains(&percent), "heavy/light is {percent} %, allowed 285..=315 %");
    assert!(
        (light + heavy).abs_diff(20_000_000) < 1_500_000,
        "two CPUs for 10 s, seen {} us",
        light + heavy
    );
    let last = payload::last_reports(&outcome.file("heavy.debug").expect("a debug file"));
    assert_eq!(last.len(), 2);
    assert!(last.iter().all(|p| p.work_us > 0), "both vCPUs make progress: {last:?}");
}

#[test]
#[ignore = "boots a machine"]
fn a_linux_vm_among_burners_sees_steal_time() {
    let linux = Vm::new("linux", 2, Runs::Linux { work_s: 5 }).start_line().expect("a valid VM");
    let burners = Vm::new("burners", 8, Runs::Payload(Orders::all(8, Work::Burn)))
        .start_line()
        .expect("a valid VM");
    let script =
        format!("{linux}\n{burners}\nlab-wait 100 'linux-guest: done' /lab/out/linux.serial");
    let mut spec = BootSpec::new(script);
    spec.time_limit = Duration::from_secs(180);
    let serial = boot(&spec).file("linux.serial").expect("a serial file");
    assert!(serial.contains("clock kvm-clock"), "{serial}");
    let total =
        serial.lines().find(|l| l.starts_with("linux-guest: cpu ")).expect("the total line");
    let steal: u64 =
        total.rsplit_once("steal=").and_then(|(_, n)| n.trim().parse().ok()).expect("a number");
    assert!(steal > 0, "{total}");
}

#[test]
#[ignore = "boots a machine"]
fn the_older_kernel_boots_and_runs_a_vm_without_kvm() {
    let mut orders = Orders::all(2, Work::Duty { work_us: 2000, sleep_us: 3000 });
    orders.run_ms = Some(3000);
    let vm = Vm::new("vm", 2, Runs::Payload(orders)).start_line().expect("a valid VM");
    let mut spec = BootSpec::new(format!("{vm}\nlab-wait 40 'payload done' /lab/out/vm.debug"));
    spec.kernel = KernelId::Older;
    let last = payload::last_reports(&boot(&spec).file("vm.debug").expect("a debug file"));
    assert!(last.len() == 2 && last.iter().all(|p| p.is_final && p.wakeups > 0), "{last:?}");
}

#[test]
#[ignore = "boots a machine"]
fn two_boots_under_icount_are_the_same_to_the_byte() {
    let mut spec = BootSpec::new("cat /proc/uptime /proc/stat /proc/schedstat");
    spec.topology = Topology { sockets: 1, nodes: 1, cores_per_socket: 2, threads: 1 };
    spec.accel = Accel::Icount { shift: 4 };
    spec.kvm_inside = false;
    let (one, two) = (boot(&spec), boot(&spec));
    let folders = format!("{} and {}", one.folder.display(), two.folder.display());
    assert!(one.console == two.console, "the consoles differ, see {folders}");
    assert!(one.kernel_log == two.kernel_log, "the kernel logs differ, see {folders}");
}
