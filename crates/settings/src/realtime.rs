//! Real-time tasks, which take pCPUs away from the scheduler for a part of each period: where, how
//! long, and why that cannot be.

use crate::{Dist, RunSpec, checks::bad_name};
use serde::{Deserialize, Serialize};
use units::{PcpuId, PcpuSet, Span};

/// Real-time threads, one on each of some pCPUs. They run before everything that the scheduler has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RealtimeSpec {
    /// Name; no other real-time task has the same.
    pub name: String,
    /// The pCPUs; one thread is pinned to each.
    pub pcpus: PcpuSet,
    /// Mean CPU time of a thread in each period.
    pub work: Span,
    /// Time between the wake-ups of a thread.
    pub period: Span,
    /// How `work` is spread.
    #[serde(default)]
    pub dist: Dist,
    /// From when on, from the start of the run. Each thread begins within the first period.
    #[serde(default)]
    pub from: Span,
    /// When they wake for the last time at the latest; the end of the run if left out.
    pub to: Option<Span>,
}

/// Part of a pCPU that real-time tasks may have, in permille: the kernel's own default
/// (sched_rt_runtime_us of 950000 in sched_rt_period_us of 1000000).
const MOST_PERMILLE: u128 = 950;

/// The shortest `work`, as for workloads.
const WORK_MIN: Span = Span::from_ns(1_000);

/// What is wrong with the real-time tasks of a run, on a host of so many pCPUs.
#[must_use]
pub fn realtime_reasons(spec: &RunSpec, pcpus: usize) -> Vec<String> {
    let mut out = vec![];
    for (i, task) in spec.realtime.iter().enumerate() {
        let title = format!("realtime '{}'", task.name);
        out.extend(bad_name(&task.name).map(|reason| format!("{title}: {reason}")));
        if spec.realtime[..i].iter().any(|t| t.name == task.name) {
            out.push(format!("{title}: two have this name; each needs its own"));
        }
        if let Some(p) = task.pcpus.iter().find(|p| usize::from(p.0) >= pcpus) {
            out.push(format!("{title}: pcpus: seen {}, allowed 0..{}", p.0, pcpus - 1));
        }
        if task.work < WORK_MIN || permille(task) > MOST_PERMILLE {
            out.push(format!(
                "{title}: work: seen {} in a period of {}, allowed 1us to 95 % of the period",
                task.work, task.period
            ));
        }
        if let Some(to) = task.to.filter(|to| *to <= task.from) {
            out.push(format!("{title}: to: seen {to}, allowed more than from ({})", task.from));
        }
        let gone = spec.offline.iter().find_map(|o| o.pcpus.and(&task.pcpus).iter().next());
        if let Some(p) = gone {
            out.push(format!(
                "{title}: pcpus: seen {}, which goes off line, allowed those that stay on line",
                p.0
            ));
        }
    }
    if out.is_empty() {
        out.extend((0..pcpus as u16).map(PcpuId).find_map(|p| too_much(spec, p)));
    }
    out
}

/// Part of a pCPU that a task takes, in permille, rounded up.
fn permille(task: &RealtimeSpec) -> u128 {
    let (work, period) = (u128::from(task.work.ns()), u128::from(task.period.ns().max(1)));
    (work * 1000).div_ceil(period)
}

/// More than the kernel lets real-time tasks have of a pCPU together, whenever they run.
fn too_much(spec: &RunSpec, p: PcpuId) -> Option<String> {
    let all: u128 = spec.realtime.iter().filter(|t| t.pcpus.contains(p)).map(permille).sum();
    (all > MOST_PERMILLE).then(|| {
        let whole = all / 10;
        format!(
            "realtime: pCPU {}: work: seen {whole}.{} % of the period together, allowed 95 %",
            p.0,
            all % 10
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::raw::parse;
    use crate::{Dist, Scenario};
    use units::Span;

    const HOST: &str = "[host]\ncores_per_llc = 4\n[[vm]]\nname = 'a'\nvcpus = 2\n";

    fn run(more: &str) -> Result<Scenario, String> {
        parse("t.toml", "t", &format!("{HOST}{more}")).map_err(|e| e.to_string())
    }

    fn task(name: &str, pcpus: &str, work: &str, more: &str) -> String {
        format!(
            "[[realtime]]\nname = '{name}'\npcpus = '{pcpus}'\nwork = '{work}'\nperiod = '10ms'\n\
                {more}\n"
        )
    }

    #[test]
    fn a_task_runs_from_the_start_to_the_end_unless_it_says_otherwise() {
        let text = task("hog", "0,2", "3ms", "") + &task("late", "2", "6500us", "from = '2s'");
        let run = run(&text).unwrap();
        let all = &run.runs[0].spec.realtime;
        assert_eq!((all[0].from, all[0].to, all[0].dist), (Span::ZERO, None, Dist::Fixed));
        assert_eq!((all[0].pcpus.to_string(), all[0].work), ("0,2".to_owned(), Span::from_ms(3)));
        assert_eq!(all[1].from, Span::from_secs(2), "and two have 95 % of pCPU 2 together");
    }

    #[test]
    fn what_a_kernel_would_not_let_them_have_is_refused_with_its_reason() {
        let off = "[[offline]]\npcpus = '1-2'\nfrom = '1s'\n";
        for (text, part) in [
            (task("hog", "0", "10ms", ""), "realtime 'hog': work: seen 10ms in a period of 10ms"),
            (task("hog", "0", "9501us", ""), "allowed 1us to 95 % of the period"),
            (task("hog", "0", "999ns", ""), "work: seen 999ns in a period of 10ms, allowed 1us"),
            (task("hog", "2-4", "1ms", ""), "realtime 'hog': pcpus: seen 4, allowed 0..3"),
            (task("", "0", "1ms", ""), "realtime '': name: allowed 1..64 characters"),
            (
                task("hog", "0", "1ms", "") + &task("hog", "1", "1ms", ""),
                "realtime 'hog': two have this name; each needs its own",
            ),
            (
                task("hog", "0", "1ms", "from = '2s'\nto = '2s'"),
                "realtime 'hog': to: seen 2s, allowed more than from (2s)",
            ),
            (
                task("hog", "0,1", "1ms", "") + off,
                "realtime 'hog': pcpus: seen 1, which goes off line, allowed those that stay",
            ),
            (
                task("hog", "0,1", "5ms", "") + &task("more", "1", "4501us", ""),
                "realtime: pCPU 1: work: seen 95.1 % of the period together, allowed 95 %",
            ),
        ] {
            let text = run(&text).expect_err("must be refused");
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
