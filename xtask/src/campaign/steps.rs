//! The steps of a campaign: the one place that says with which command each is run, how long it may
//! take, and which of its lines are its figures.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use lab::drill::Drill;

use crate::fuzz_commands;

/// Minutes that a boot of the lab takes with what it measures, and those after which it is stopped.
const USUAL_LAB: u64 = 8;
const LIMIT_LAB: u64 = 90;
/// Trees and hosts that a campaign draws.
const TREES: &str = "9000";
const HOSTS_OF_PART: u64 = 2000;
const PARTS_OF_HOSTS: u64 = 10;
const FUZZ_SECONDS: &str = "600";
const KILLS: &str = "20";
/// Parts of a thousand kills and a thousand ejections; a part draws other times than the others.
const PARTS: u64 = 40;
const CYCLES_OF_PART: &str = "50";
/// What a part may take: a cycle of ten seconds and an emulator that dies twice.
const USUAL_PART: u64 = 15;
/// Simulated hours of a busy host.
const HOURS: &str = "72";

/// A command of the campaign.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub name: String,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Program and arguments.
    pub words: Vec<String>,
    /// Kernel that it boots, as the command line names it; empty for none.
    pub kernel: String,
    /// It is stopped after so long.
    pub limit: Duration,
    /// Time that it took on a machine of two cores.
    pub usual: Duration,
    /// A line with one of these is a figure.
    pub marks: &'static [&'static str],
    /// Why it cannot be run here.
    pub skip: Option<String>,
}

const OF_TESTS: &[&str] =
    &["test result:", "trees:", "hosts:", "hours", "seeds hold", "seeds fail:", "seed "];
const OF_LAB: &[&str] = &["from the entitlement at most", "cpu.stat differ"];
const OF_DRILLS: &[&str] = &["divided by the slowness", "ratio ", "verifies", ": passed", "FAIL"];
/// A cell of the report holds so many characters.
const FIGURES_MOST: usize = 400;

impl Step {
    fn new(name: &str, words: &str, usual_minutes: u64, limit_minutes: u64) -> Step {
        Step {
            name: name.to_owned(),
            environment: vec![],
            words: words.split(' ').map(str::to_owned).collect(),
            kernel: String::new(),
            limit: Duration::from_secs(limit_minutes * 60),
            usual: Duration::from_secs(usual_minutes * 60),
            marks: OF_TESTS,
            skip: None,
        }
    }

    fn with(mut self, name: &str, value: &str) -> Step {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A step that boots machines.
    fn boots(mut self, kernel: &str, marks: &'static [&'static str]) -> Step {
        self.words.extend(["--kernel", kernel].map(str::to_owned));
        self.kernel = kernel.to_owned();
        self.marks = marks;
        self
    }

    /// A step of a shell script, for tests of what runs steps.
    #[cfg(test)]
    pub(super) fn shell(name: &str, script: &str, limit: Duration) -> Step {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        Step { words, limit, ..Step::new(name, "", 1, 1) }
    }

    /// The command, to be typed by hand.
    pub(super) fn command(&self) -> String {
        let quoted = |w: &String| if w.contains(' ') { format!("'{w}'") } else { w.to_owned() };
        let environment = self.environment.iter().map(|(k, v)| format!("{k}={v}"));
        environment.chain(self.words.iter().map(quoted)).collect::<Vec<_>>().join(" ")
    }

    /// The lines of its output that are figures, the last ones if there are many.
    pub(super) fn figures(&self, output: &str) -> String {
        let lines = output.lines().map(str::trim);
        let told: Vec<&str> = lines
            .filter(|l| !l.contains(" ... ") && !l.starts_with("running "))
            .filter(|l| !l.contains("0 passed; 0 failed"))
            .filter(|l| self.marks.iter().any(|m| l.contains(m)))
            .filter({
                let mut before = BTreeSet::new();
                move |l| before.insert(*l)
            })
            .collect();
        let text = told.join("; ");
        let most = text.chars().count().saturating_sub(FIGURES_MOST);
        if most == 0 { text } else { format!("…{}", text.chars().skip(most).collect::<String>()) }
    }
}

/// The command of tests of the simulator.
fn of_tests(suite: &str) -> String {
    format!("cargo test --profile ci -p sim --test all {suite} -- --nocapture")
}

/// Every step, those of one core and no boot first.
pub(super) fn all(root: &Path, xtask: &clap::Command) -> Vec<Step> {
    let trees = Step::new("random trees", &of_tests("random_trees"), 10, 240).with("SEEDS", TREES);
    let mut out = vec![trees];
    for part in 0..PARTS_OF_HOSTS {
        let name = format!("random hosts, part {:02}", part + 1);
        let step = Step::new(&name, &of_tests("random_hosts"), 8, 90);
        let step = step.with("FROM", &(part * HOSTS_OF_PART).to_string());
        out.push(step.with("SEEDS", &HOSTS_OF_PART.to_string()));
    }
    let days = Step::new("a busy host for days", &of_tests("busy_host"), 60, 360);
    out.push(days.with("HOURS", HOURS));
    let fuzz = Step::new("fuzz", &format!("cargo xtask fuzz --seconds {FUZZ_SECONDS}"), 60, 240);
    out.push(Step { skip: fuzz_commands::missing().map(str::to_owned), ..fuzz });
    let written = xtask.get_subcommands().any(|c| c.get_name() == "ablate");
    let ablate = Step::new("ablation", "cargo xtask ablate", 30, 240);
    let skip = (!written).then(|| "'cargo xtask ablate' does not exist".to_owned());
    out.push(Step { skip, ..ablate });
    let ray = Step::new("python on a Ray cluster", "sh python/check.sh ray", 2, 30);
    out.push(Step { marks: &["passed"], ..ray });
    for drill in Drill::ALL {
        let name = drill.name();
        let words = format!("cargo xtask lab-drill {name}");
        let step = Step::new(&format!("drill {name}"), &words, USUAL_LAB, LIMIT_LAB);
        let step = step.boots("newest", OF_DRILLS);
        out.push(if drill == Drill::Kill { more(step, &["--cycles", KILLS]) } else { step });
    }
    for part in 1..=PARTS {
        let words = format!("cargo xtask lab-drill eject --seed {part}");
        let name = format!("kills and ejections, part {part:02}");
        let step = Step::new(&name, &words, USUAL_PART, LIMIT_LAB).boots("newest", OF_DRILLS);
        out.push(more(step, &["--cycles", CYCLES_OF_PART]));
    }
    for name in scenarios(root) {
        let words = format!("cargo xtask lab {name}");
        let step = Step::new(&format!("lab {name}"), &words, 2 * USUAL_LAB, 2 * LIMIT_LAB);
        out.push(step.boots("newest", OF_LAB));
    }
    for kernel in other_kernels() {
        let smoke = Step::new(
            &format!("kernel {kernel}: smoke"),
            "cargo xtask lab smoke --tandem-only",
            USUAL_LAB,
            LIMIT_LAB,
        );
        out.push(smoke.boots(&kernel, OF_LAB));
        let load = Step::new(
            &format!("kernel {kernel}: drill load"),
            "cargo xtask lab-drill load",
            USUAL_LAB,
            LIMIT_LAB,
        );
        out.push(load.boots(&kernel, OF_DRILLS));
    }
    out
}

fn more(mut step: Step, words: &[&str]) -> Step {
    step.words.extend(words.iter().map(|w| (*w).to_owned()));
    step
}

/// Scenarios that the lab can run, by name.
fn scenarios(root: &Path) -> Vec<String> {
    let folder = root.join("scenarios");
    let names = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let can = |path: &Path| {
        let scenario = settings::load(&path.to_string_lossy());
        scenario.is_ok_and(|s| s.runs[0].spec.lab.skip.is_none())
    };
    let mut out: Vec<String> = names
        .filter(|e| can(&e.path()))
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    out.sort();
    out
}

/// The older kernel of the archive, and those of the folder that `TANDEM_LAB_KERNELS` names.
fn other_kernels() -> Vec<String> {
    let given = std::env::var_os("TANDEM_LAB_KERNELS");
    let files =
        given.into_iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten());
    let names = files.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let mut out: Vec<String> = names.filter_map(|n| version(&n)).collect();
    out.sort();
    out.dedup();
    out.insert(0, "older".to_owned());
    out
}

/// The version of a kernel's package, as `--kernel` takes it: 6.12.117+scx of
/// `linux-binary-6.12.117+scx-cloud-amd64_6.12.117-1_amd64.deb`.
fn version(file: &str) -> Option<String> {
    let name = file.strip_suffix(".deb")?.strip_prefix("linux-binary-")?;
    Some(name.split_once("-cloud-")?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_named_once_and_hold_all_drills_and_every_scenario_of_the_lab() {
        let root = crate::tidy::root();
        let steps = all(&root, &clap::Command::new("xtask"));
        let names: Vec<&str> = steps.iter().map(|s| s.name.as_str()).collect();
        let once: std::collections::BTreeSet<&&str> = names.iter().collect();
        assert_eq!(once.len(), names.len());
        for drill in Drill::ALL {
            assert!(names.contains(&format!("drill {}", drill.name()).as_str()));
        }
        assert!(names.contains(&"lab smoke") && names.contains(&"kernel older: smoke"));
        assert!(!names.contains(&"lab two-at-20"), "the lab cannot run it");
        let of = |name: &str| steps.iter().find(|s| s.name == name).unwrap();
        assert_eq!(
            of("drill kill").command(),
            "cargo xtask lab-drill kill --kernel newest --cycles 20"
        );
        assert_eq!(
            of("kills and ejections, part 07").command(),
            "cargo xtask lab-drill eject --seed 7 --kernel newest --cycles 50"
        );
        assert_eq!(
            of("random hosts, part 02").command(),
            format!("FROM=2000 SEEDS=2000 {}", of_tests("random_hosts"))
        );
        let hosts = names.iter().filter(|n| n.starts_with("random hosts, part")).count() as u64;
        assert_eq!(hosts * HOSTS_OF_PART, 20_000);
        let parts = names.iter().filter(|n| n.starts_with("kills and ejections, part")).count();
        assert_eq!(parts * 50, 2000, "half of the cycles are kills, half ejections");
        assert!(of("a busy host for days").command().starts_with("HOURS=72 cargo test"));
        assert!(
            of("random trees").command().starts_with("SEEDS=9000 cargo test --profile ci -p sim")
        );
        assert!(of("ablation").skip.is_some(), "this command line has no such command");
        let with = clap::Command::new("xtask").subcommand(clap::Command::new("ablate"));
        let ablation = all(&root, &with).into_iter().find(|s| s.name == "ablation").unwrap();
        assert_eq!(ablation.skip, None);
    }

    #[test]
    fn a_kernels_version_is_read_from_its_package() {
        let file = "linux-binary-6.12.117+scx-cloud-amd64_6.12.117-1_amd64.deb";
        assert_eq!(version(file).as_deref(), Some("6.12.117+scx"));
        assert_eq!(version("linux-modules-7.2.13+deb14-cloud-amd64_7.2.13-1_amd64.deb"), None);
    }

    #[test]
    fn figures_are_the_lines_with_a_mark_and_of_many_the_last() {
        let step = Step::new("a", "b", 1, 1);
        let output = "running 2 tests\ntest trees ... ok\n  9,005 trees: 0.97 at most\n\
            test result: ok. 0 passed; 0 failed\ntest result: ok. 2 passed; 0 failed\n";
        assert_eq!(
            step.figures(output),
            "9,005 trees: 0.97 at most; test result: ok. 2 passed; 0 failed"
        );
        let failed = "1 of 9 seeds fail:\nseed 7: lag\npanicked:\n1 of 9 seeds fail:\n\
            seed 7: lag\nstack backtrace:\n at ./tests/random_trees.rs:7\n";
        assert_eq!(step.figures(failed), "1 of 9 seeds fail:; seed 7: lag", "each line once");
        let long = step.figures(&(0..200).map(|n| format!("{n} trees:\n")).collect::<String>());
        assert_eq!((long.chars().count(), long.starts_with('…')), (FIGURES_MOST + 1, true));
    }
}
