//! What to look at first, worst first, by the usual thresholds of ESXi administrators; it is
//! computed from the page's numbers alone.
//!
//! Ready time counts here without the time parked by a limit, which is intended; that has a line of
//! its own. Percents are of the life of a VM's vCPUs, so that a VM with 8 vCPUs has the same bound
//! as one with 1.

use crate::model::{Finding, RunView};
use views::{Times, Vm, WorldKind};

/// From here on ready time is worth a look, in percent of a vCPU's life.
pub const READY_WARN_PERCENT: f64 = 5.0;
/// From here on users notice.
pub const READY_BAD_PERCENT: f64 = 10.0;
/// Co-stop above this is too much, in percent of a vCPU's life.
pub const COSTOP_PERCENT: f64 = 3.0;
/// A VM may be this much below what it is entitled to, in percent of that.
pub const ENTITLED_PERCENT: f64 = 3.0;
/// Memory of a VM below this part in its home is too little, in percent (esxtop's N%L).
pub const LOCAL_PERCENT: f64 = 80.0;
/// A host is full from here on, in percent of all its pCPUs: what is left are moments.
const FULL_PERCENT: f64 = 95.0;
/// VMs that a finding names; the rest is counted.
const NAMED: usize = 3;

/// Findings of all runs: one of each kind for a run, which names the worst VMs.
pub(crate) fn findings(runs: &[RunView]) -> Vec<Finding> {
    let (mut out, mut fine) = (vec![], vec![]);
    for (i, run) in runs.iter().enumerate() {
        let own: Vec<Finding> = [ready(run), below(run), costop(run), limited(run), away(run)]
            .into_iter()
            .flatten()
            .chain(traced(run))
            .collect();
        if own.is_empty() {
            fine.push(i);
        }
        out.extend(own.into_iter().map(|f| Finding { run: Some(i), ..f }));
    }
    let many = if fine.len() > 1 { format!(" in {} runs", fine.len()) } else { String::new() };
    if let Some(first) = fine.first() {
        let text = format!(
            "Nothing stands out{many}: every VM is below {READY_WARN_PERCENT} % ready and \
                {COSTOP_PERCENT} % co-stop, and no limit holds any back."
        );
        out.push(Finding {
            run: Some(*first).filter(|_| fine.len() == 1),
            ..finding("good", None, text)
        });
    }
    out.sort_by_key(|f| ["bad", "warn", "note", "good"].iter().position(|l| *l == f.level));
    out
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn life(t: &Times) -> u64 {
    t.run_ns + t.ready_ns + t.costop_ns + t.wait_ns
}

/// Sums over the vCPUs of a VM; over everything if it has none.
fn vcpus(vm: &Vm) -> Times {
    let mut sum = Times::default();
    vm.worlds.iter().filter(|w| w.kind == WorldKind::Vcpu).for_each(|w| sum.add(&w.times));
    if life(&sum) == 0 { vm.times } else { sum }
}

fn finding(level: &'static str, vm: Option<&str>, text: String) -> Finding {
    Finding { level, run: None, vm: vm.map(str::to_owned), text }
}

/// VMs for which a number is worth telling, the largest first.
fn worst<'r>(run: &'r RunView, of: impl Fn(&'r Vm) -> Option<f64>) -> Vec<(f64, &'r Vm)> {
    let mut all: Vec<_> =
        run.result.vms.iter().filter(|v| v.vcpus > 0).filter_map(|v| Some((of(v)?, v))).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all
}

/// `a 5.1 %, b 4.0 % and 3 more VMs`: each VM with a number in words.
fn named(all: &[(f64, &Vm)], words: impl Fn(f64, &Vm) -> String) -> String {
    let mut texts: Vec<String> =
        all.iter().take(NAMED).map(|(p, vm)| format!("{} {}", vm.name, words(*p, vm))).collect();
    match all.len().saturating_sub(NAMED) {
        0 => {}
        1 => texts.push("1 more VM".to_owned()),
        n => texts.push(format!("{n} more VMs")),
    }
    match texts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => texts.join(""),
    }
}

/// The VM that a finding is about, if it is one alone.
fn only<'r>(all: &[(f64, &'r Vm)]) -> Option<&'r str> {
    if let [(_, vm)] = all { Some(&vm.name) } else { None }
}

/// Ready time without what a limit caused, in percent of life.
fn contended(t: &Times) -> f64 {
    percent(t.ready_ns.saturating_sub(t.limited_ns), life(t))
}

fn ready(run: &RunView) -> Option<Finding> {
    let all = worst(run, |vm| Some(contended(&vcpus(vm))).filter(|p| *p >= READY_WARN_PERCENT));
    let most = all.first()?.0;
    let words = |p: f64, vm: &Vm| {
        let vcpus = vm.worlds.iter().filter(|w| w.kind == WorldKind::Vcpu);
        let worst = vcpus
            .max_by(|a, b| contended(&a.times).total_cmp(&contended(&b.times)))
            .filter(|_| vm.vcpus > 1);
        format!(
            "{p:.1} %{}",
            worst.map_or(String::new(), |w| format!(
                " (worst {} {:.1} %)",
                w.name,
                contended(&w.times)
            ))
        )
    };
    let enough = |vm: &Vm| entitled_percent(run, vm).map(|p| p >= 100.0 - ENTITLED_PERCENT);
    let why = match all.iter().map(|(_, vm)| enough(vm)).collect::<Option<Vec<bool>>>() {
        None => "",
        Some(e) if !e.iter().all(|e| *e) => {
            " Not all of it is for want of pCPUs: a VM got less than its entitlement."
        }
        Some(_) if busy_percent(run) >= FULL_PERCENT => {
            " They got what they are entitled to: the host is asked for more than it has."
        }
        Some(_) => {
            " They got what they are entitled to, but others ran when they wanted to: fewer VMs, \
                or fewer that wake at once, would help."
        }
    };
    let level = if most >= READY_BAD_PERCENT { "bad" } else { "warn" };
    let text = format!(
        "Ready, waiting for a pCPU: {}. Users notice from {READY_BAD_PERCENT} %, a look is due \
            from {READY_WARN_PERCENT} %.{why}",
        named(&all, words)
    );
    Some(finding(level, only(&all), text))
}

/// How busy the host was, in percent of all its pCPUs.
fn busy_percent(run: &RunView) -> f64 {
    let r = &run.result;
    percent(r.pcpus.iter().map(|p| p.busy_ns).sum(), r.duration_ns * r.host.pcpus as u64)
}

/// Used in percent of entitled, if that is known and is no trifle.
fn entitled_percent(run: &RunView, vm: &Vm) -> Option<f64> {
    // Below a thousandth of a pCPU a percent is less than what a single wake-up takes.
    let telling = vm.times.entitled_ns > run.result.duration_ns / 1000;
    (run.known.entitled && telling).then(|| percent(vm.times.used_ns, vm.times.entitled_ns))
}

/// VMs whose memory is in other nodes than their home (esxtop's N%L).
fn away(run: &RunView) -> Option<Finding> {
    let local = |vm: &Vm| {
        let at_home: Option<Vec<f64>> = vm.numa.iter().map(|c| c.local_percent()).collect();
        let least = at_home?.into_iter().reduce(f64::min)?;
        Some(100.0 - least).filter(|away| *away > 100.0 - LOCAL_PERCENT)
    };
    let all = worst(run, local);
    all.first()?;
    let words = |away: f64, vm: &Vm| {
        let changes: u64 = vm.numa.iter().map(views::NumaClient::migrations).sum();
        format!("{:.1} % at home (its home has changed {changes} times)", 100.0 - away)
    };
    let text = format!(
        "Memory in other nodes than the VM's home: {}. Below {LOCAL_PERCENT} % a VM is slow; it \
            follows in time, unless homes change all the time.",
        named(&all, words)
    );
    Some(finding("warn", only(&all), text))
}

fn below(run: &RunView) -> Option<Finding> {
    let all = worst(run, |vm| {
        entitled_percent(run, vm).map(|p| 100.0 - p).filter(|p| *p > ENTITLED_PERCENT)
    });
    all.first()?;
    let secs = |ns: u64| ns as f64 / 1e9;
    let words = |p: f64, vm: &Vm| {
        format!(
            "by {p:.1} % ({:.2} of {:.2} s)",
            secs(vm.times.used_ns),
            secs(vm.times.entitled_ns)
        )
    };
    let text = format!(
        "Below what it is entitled to: {}. Up to {ENTITLED_PERCENT} % is usual. Look at affinity, \
            and at who ran instead.",
        named(&all, words)
    );
    Some(finding("bad", only(&all), text))
}

fn costop(run: &RunView) -> Option<Finding> {
    let all = worst(run, |vm| {
        let t = vcpus(vm);
        Some(percent(t.costop_ns, life(&t))).filter(|p| *p > COSTOP_PERCENT)
    });
    all.first()?;
    let text = format!(
        "Co-stopped: {}, more than {COSTOP_PERCENT} %. Fewer vCPUs may do more.",
        named(&all, |p, _| format!("{p:.1} %"))
    );
    Some(finding("bad", only(&all), text))
}

fn limited(run: &RunView) -> Option<Finding> {
    let all = worst(run, |vm| {
        (vm.times.limited_ns > 0).then(|| percent(vm.times.limited_ns, life(&vm.times)))
    });
    all.first()?;
    let words =
        |p: f64, _: &Vm| if p < 0.05 { "less than 0.1 %".to_owned() } else { format!("{p:.1} %") };
    let text =
        format!("Held back by a limit, its own or a pool's: {} of the time.", named(&all, words));
    Some(finding("note", only(&all), text))
}

fn traced(run: &RunView) -> Vec<Finding> {
    let Some(trace) = &run.trace else { return vec![] };
    let mut out = vec![];
    let wrong = trace.waits.wrong_idle;
    if wrong > 0 {
        let us = trace.waits.brief_ns / 1000;
        let waits = if wrong == 1 { "1 wait".to_owned() } else { format!("{wrong} waits") };
        let text = format!(
            "{waits} beside a pCPU that the world may use and that idled for more than {us} µs: a \
                fault of the scheduler, or a kick that came late."
        );
        out.push(finding("bad", None, text));
    }
    if trace.lost != Some(0) {
        let many = trace.lost.map_or("Events".to_owned(), |n| format!("{n} events"));
        out.push(finding(
            "warn",
            None,
            format!("{many} are missing in the trace; what was lost is shown as unknown."),
        ));
    }
    out
}
