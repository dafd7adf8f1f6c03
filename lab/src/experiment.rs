//! Runs a scenario with real VMs on a real kernel, under the kernel's own scheduler and under
//! Tandem, and brings back result documents of the simulator's shape.

mod script;
mod wakeups;

use std::path::PathBuf;
use std::time::Duration;

use settings::{Run, Scenario};
use units::Span;
use views::{Document, RunResult, Where};

use crate::archive::{Archive, KernelId};
use crate::boot::{Accel, BootOutcome, BootSpec, GuestFile, Stream, Topology, boot};
use crate::error::{LabError, Result};
use crate::payload;

/// The scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The kernel's own fair class, from 6.6 on.
    Eevdf,
    /// The kernel's own fair class, before 6.6.
    Cfs,
    /// Tandem, loaded through sched_ext.
    Tandem,
}

impl Policy {
    /// Name in result documents.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Eevdf => "eevdf",
            Policy::Cfs => "cfs",
            Policy::Tandem => "tandem",
        }
    }
}

/// What to run and how.
pub struct Experiment<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Schedulers, in this order.
    pub policies: Vec<Policy>,
    /// Kernel to boot.
    pub kernel: KernelId,
    /// The static `tandem` binary with the live host built in.
    pub tandem: PathBuf,
    /// Time of one run, over the scenario's.
    pub duration: Option<Span>,
    /// Show `tandem top` live while Tandem runs.
    pub show_top: bool,
}

/// Boot, VMs' start and settling of one run, over its own time: seen 4 to 25 s on a busy machine.
const OVERHEAD: Duration = Duration::from_secs(75);
/// Boot and power-off of the whole, and loading Tandem.
const BOOT: Duration = Duration::from_secs(150);

impl Experiment<'_> {
    /// The scenario's runs that the lab does.
    ///
    /// # Errors
    /// As [`runs`].
    pub fn runs(&self) -> Result<Vec<&Run>> {
        runs(self.scenario)
    }

    /// Time of one run in the lab.
    pub fn duration_of(&self, run: &Run) -> Span {
        duration_of(run, self.duration)
    }

    /// Runs everything; one document a policy.
    ///
    /// # Errors
    /// `LabError` when the lab cannot run, a VM does not start, or the scheduler was ejected.
    pub fn run(
        &self,
        archive: &Archive,
        on: &mut dyn FnMut(Stream, &str),
    ) -> Result<Vec<Document>> {
        let runs = self.runs()?;
        let document = |policy: &Policy| Document {
            scenario: self.scenario.name.clone(),
            place: Where::Lab,
            policy: policy.name().to_owned(),
            seed: 0,
            command: None,
            runs: vec![],
        };
        let mut documents: Vec<Document> = self.policies.iter().map(document).collect();
        // A boot serves all runs of one topology and clock.
        let mut rest: Vec<&Run> = runs;
        while let Some(first) = rest.first() {
            let (topology, exact) = (first.topology.clone(), first.spec.lab.exact_clock);
            let same = |r: &&Run| r.topology == topology && r.spec.lab.exact_clock == exact;
            let (now, later): (Vec<&Run>, Vec<&Run>) = rest.into_iter().partition(same);
            rest = later;
            let outcome = boot(archive, &self.boot_spec(&now)?, on)?;
            outcome.require_success()?;
            for (p, policy) in self.policies.iter().enumerate() {
                for (i, run) in now.iter().enumerate() {
                    documents[p].runs.push(read_result(&outcome, *policy, i, run)?);
                }
            }
        }
        Ok(documents)
    }

    fn boot_spec(&self, runs: &[&Run]) -> Result<BootSpec> {
        let mut spec = BootSpec::new(script::whole(self, runs)?);
        let host = &runs[0].spec.host;
        let cores_per_socket = host.nodes_per_socket * host.llcs_per_node * host.cores_per_llc;
        spec.kernel = self.kernel.clone();
        spec.topology = Topology {
            sockets: host.sockets,
            nodes: host.sockets * host.nodes_per_socket,
            cores_per_socket,
            threads: host.threads_per_core,
        };
        let vms = runs.iter().map(|r| r.spec.vms.len()).max().unwrap_or(0) as u32;
        spec.memory_mb = 1024 + 80 * vms + 64 * spec.topology.cpus();
        let wall: Duration = runs
            .iter()
            .map(|r| Duration::from_nanos(self.duration_of(r).ns() + r.spec.warmup.ns()) + OVERHEAD)
            .sum();
        spec.time_limit = BOOT + wall * self.policies.len() as u32;
        if runs[0].spec.lab.exact_clock {
            spec.accel = Accel::EXACT;
            spec.time_limit *= 3;
        }
        spec.files = vec![GuestFile::copy(&self.tandem, "/bin/tandem")];
        for (i, run) in runs.iter().enumerate() {
            spec.files.push(GuestFile::text(
                format!("/lab/in/settings-{i}.toml"),
                &script::settings(run)?,
            ));
        }
        Ok(spec)
    }
}

/// The runs of a scenario that the lab does.
///
/// # Errors
/// `LabError` when the scenario says that the lab cannot run it, or names runs that are not there.
pub fn runs(scenario: &Scenario) -> Result<Vec<&Run>> {
    let refuse = |seen: String, next: &str| {
        LabError::new(format!("scenario {}", scenario.name), "run in the lab", seen, next)
    };
    let first = &scenario.runs[0].spec.lab;
    if let Some(why) = &first.skip {
        return Err(refuse(why.clone(), "run it with 'tandem sim'"));
    }
    let Some(labels) = &first.runs else {
        return Ok(scenario.runs.iter().collect());
    };
    let find = |label: &String| {
        let found = scenario.runs.iter().find(|r| r.label == *label);
        found.ok_or_else(|| refuse(format!("lab.runs names '{label}'"), "name labels of its runs"))
    };
    labels.iter().map(find).collect()
}

/// Time of one run in the lab: what is asked for, else the scenario's.
pub fn duration_of(run: &Run, asked: Option<Span>) -> Span {
    let measured = || Span::from_ns(run.spec.duration.ns() - run.spec.warmup.ns());
    asked.or(run.spec.lab.duration).unwrap_or_else(measured)
}

/// Reads one run's document and the payloads' progress beside it.
fn read_result(outcome: &BootOutcome, policy: Policy, i: usize, run: &Run) -> Result<RunResult> {
    let name = format!("{}-{i}.json", policy.name());
    let text = outcome.file(&name)?;
    let bad = |seen: String| {
        LabError::new(name.clone(), "be read", seen, "look at the console of that boot")
    };
    let document: Document = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let mut result = document.runs.into_iter().next().ok_or_else(|| bad("no run in it".into()))?;
    result.label.clone_from(&run.label);
    result.wakeups = wakeups::all(outcome, &format!("{}-{i}", policy.name()), run);
    if let Ok(text) = outcome.file(&format!("{}-{i}.checked", policy.name())) {
        result.checked = Some(serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?);
    }
    for vm in &mut result.vms {
        let progress = |when: &str| {
            outcome
                .file(&format!("{}-{i}.{}.{when}", policy.name(), vm.name))
                .map(|t| payload::last_reports(&t))
        };
        let (Ok(before), Ok(after)) = (progress("before"), progress("after")) else { continue };
        for done in after {
            let start = before.iter().find(|b| b.vcpu == done.vcpu).map_or(0, |b| b.work_us);
            let work = u64::from(done.work_us.wrapping_sub(start)) * 1000;
            let vcpu = format!("vcpu{}", done.vcpu);
            if let Some(world) = vm.worlds.iter_mut().find(|w| w.name == vcpu) {
                world.times.work = work;
            }
            vm.times.work += work;
        }
    }
    // The file's order of VMs is the document's.
    let order = |name: &str| run.spec.vms.iter().position(|v| v.name == name).unwrap_or(usize::MAX);
    result.vms.sort_by_key(|v| order(&v.name));
    Ok(result)
}

/// A tick of the lab's kernels. The kernel brings what runs up to date at each, so two readings of
/// one account may differ by as much.
const TICK_NS: u64 = 4_000_000;

/// Largest differences between a VM's accounts and the kernel's beyond a tick, in ten-thousandths,
/// each with whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disagreement {
    /// CPU time and its cgroup's cpu.stat.
    pub used: Option<(u64, String)>,
    /// Waits for a pCPU and its threads' run_delay.
    pub delay: Option<(u64, String)>,
}

/// The kernel takes the time when it begins to wake or to switch, the scheduler when it is called:
/// some thousand instructions later, 2 ns each here, and on hardware about a hundredth of that.
const TOLD_NS: u64 = 10_000;

/// How far the accounts of a document are from the kernel's.
pub fn disagreement(document: &Document) -> Disagreement {
    let worst = |pair: fn(&views::CpuStat) -> (u64, u64, u64)| {
        let of = |vm: &views::Vm| {
            let (kernel, ours, apart) = pair(&vm.cpu_stat?);
            // of less than 1 s, what is between two instructions of an emulated pCPU while the
            // others have their turn is too much
            (kernel > 1_000_000_000).then(|| {
                (
                    ours.abs_diff(kernel).saturating_sub(TICK_NS + apart) * 10_000 / kernel,
                    vm.name.clone(),
                )
            })
        };
        document.runs.iter().flat_map(|r| r.vms.iter()).filter_map(of).max()
    };
    Disagreement {
        used: worst(|s| (s.kernel_ns, s.used_ns, 0)),
        delay: worst(|s| (s.kernel_delay_ns, s.delay_ns, TOLD_NS * s.waits)),
    }
}

#[cfg(test)]
mod tests {

    #[test]
    fn a_scenario_goes_by_the_exact_clock_unless_it_says_why_not() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let scenario = settings::load(&format!("{root}/coming-and-going")).unwrap();
        assert!(scenario.runs.iter().all(|r| r.spec.lab.exact_clock), "it has no [lab]");
        let scenario = settings::load(&format!("{root}/confined")).unwrap();
        assert!(scenario.runs.iter().all(|r| r.spec.lab.exact_clock), "its [lab] does not say");
        for folder in std::fs::read_dir(root).unwrap().flatten() {
            let path = folder.path().join("scenario.toml");
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let silent = |pair: &&[&str]| {
                pair[1].starts_with("exact_clock = false") && !pair[0].starts_with("# ")
            };
            assert_eq!(lines.windows(2).find(silent), None, "{}", path.display());
        }
    }
}
