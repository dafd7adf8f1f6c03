//! Puts the numbers of the page together from documents and traces; it draws nothing, and takes
//! every number as it was measured.

use crate::Options;
use crate::findings::findings;
use crate::lanes::{Lane, reduce};
use crate::map::map;
use crate::model::{Known, Missing, Page, RunView, Timeline, TraceView, TraceWorld};
use crate::pair::Run;
use crate::sweep::sweep;
use crate::told::{Cast, Told, Window};
use crate::waiting::waits;
use std::collections::{BTreeMap, BTreeSet};
use trace::{Kind, Role, Trace};
use units::WorldId;
use views::{Document, HostCounts, Pcpu, Pool, RunResult, Times, Vm, Where, World, WorldKind};

/// Worlds of which the timeline has a row; more than fit on any screen.
const LANES_MAX: usize = 256;
/// Worlds in all results together; each is about 300 bytes.
const WORLDS_MAX: usize = 8000;
/// Document and trace of one run agree within this part of its time; more is another run.
const AGREE: u64 = 100;

/// The page of these runs.
#[must_use]
pub fn build(runs: Vec<Run>, options: &Options) -> Page {
    let names = names(&runs);
    let traces = runs.iter().filter(|r| r.trace.is_some()).count().max(1);
    let pieces = options.pieces / traces / 2;
    let mut runs: Vec<RunView> =
        runs.into_iter().zip(names).map(|(r, name)| view(r, name, options, pieces)).collect();
    let mut notes = vec![];
    let worlds: usize = runs.iter().flat_map(|r| &r.result.vms).map(|v| v.worlds.len()).sum();
    let findings = findings(&runs);
    if worlds > WORLDS_MAX {
        runs.iter_mut().flat_map(|r| &mut r.result.vms).for_each(|v| v.worlds.clear());
        notes.push(format!(
            "The page has no single worlds: seen {worlds} in all runs, allowed \
            {WORLDS_MAX}; choose a run by --run."
        ));
    }
    let mut vms: Vec<String> = vec![];
    for vm in runs.iter().flat_map(|r| &r.result.vms) {
        if !vms.contains(&vm.name) {
            vms.push(vm.name.clone());
        }
    }
    let title = options.title.clone().unwrap_or_else(|| title(&runs));
    let sweep = sweep(&runs);
    Page {
        title,
        version: options.version.clone(),
        command: options.command.clone(),
        vms,
        runs,
        findings,
        sweep,
        notes,
    }
}

/// The scenario that all runs are of, if there is one.
fn title(runs: &[RunView]) -> String {
    let scenarios: BTreeSet<&str> = runs.iter().map(|r| r.scenario.as_str()).collect();
    match scenarios.first() {
        Some(one) if scenarios.len() == 1 && !one.is_empty() => (*one).to_owned(),
        _ => "CPU scheduling".to_owned(),
    }
}

/// What tells each run from the others: its label if the user gave one, else whatever differs.
fn names(runs: &[Run]) -> Vec<String> {
    let document = |r: &Run, of: fn(&Document) -> String| {
        r.document.as_ref().map_or(String::new(), |d| of(&d.0))
    };
    let parts: [Vec<String>; 6] = [
        runs.iter().map(|r| document(r, |d| d.scenario.clone())).collect(),
        runs.iter().map(|r| document(r, |d| place_name(d.place).to_owned())).collect(),
        runs.iter().map(|r| document(r, |d| d.policy.clone())).collect(),
        runs.iter()
            .map(|r| r.document.as_ref().map_or(String::new(), |d| d.1.label.clone()))
            .collect(),
        runs.iter().map(|r| document(r, |d| format!("seed {}", d.seed))).collect(),
        runs.iter().map(|r| r.files.first().cloned().unwrap_or_default()).collect(),
    ];
    let mut names: Vec<Vec<&str>> = vec![vec![]; runs.len()];
    for part in &parts {
        let distinct = names.iter().collect::<BTreeSet<_>>().len() == runs.len();
        if distinct && names.iter().all(|n| !n.is_empty()) {
            break;
        }
        if part.iter().any(|p| *p != part[0]) {
            names.iter_mut().zip(part).filter(|(_, p)| !p.is_empty()).for_each(|(n, p)| n.push(p));
        }
    }
    let joined = names.into_iter().enumerate().zip(runs).map(|((i, parts), r)| {
        match (&r.label, r.document.as_ref()) {
            (Some(label), Some(d)) if !d.1.label.is_empty() => format!("{label} {}", d.1.label),
            (Some(label), _) => label.clone(),
            (None, d) if parts.is_empty() => match d.map_or("", |d| d.1.label.as_str()) {
                "" => format!("run {}", i + 1),
                label => label.to_owned(),
            },
            _ => parts.join(" · "),
        }
    });
    let mut seen = BTreeMap::new();
    joined
        .map(|name| {
            let n: &mut usize = seen.entry(name.clone()).or_default();
            *n += 1;
            if *n > 1 { format!("{name} ({n})") } else { name }
        })
        .collect()
}

fn place_name(place: Where) -> &'static str {
    match place {
        Where::Sim => "sim",
        Where::Lab => "lab",
        Where::Live => "live",
    }
}

fn view(run: Run, name: String, options: &Options, pieces: usize) -> RunView {
    let told = run.trace.as_ref().map(|trace| {
        let window = Window::of(&trace.events, options.from_ns, options.to_ns);
        let cast = Cast::of(&trace.events);
        let told = Told::of(trace, &cast, window);
        (trace, cast, window, told)
    });
    let document = run.document.as_ref().map(|d| &d.0);
    let place = document.map(|d| d.place);
    let result = match (&run.document, &told) {
        (Some(d), _) => d.1.clone(),
        (None, Some((_, cast, window, told))) => result_of(cast, *window, told),
        (None, None) => nothing(),
    };
    let known = document
        .map_or(Known { entitled: false, shares: false, limited: true, work: false }, |d| {
            known(d, &result)
        });
    let map = map(place, &result.host, told.as_ref().map(|t| &t.1));
    let mut notes = vec![];
    if let (Some(_), Some((_, cast, window, told))) = (document, &told) {
        notes.extend(disagreement(&result, cast, told, *window, options));
    }
    let repeat = document.and_then(|d| repeat(d, &result.label));
    let again = repeat.as_deref().filter(|_| place == Some(Where::Sim));
    let missing = missing(again, &known, (document.is_some(), told.is_some()), map.source);
    let trace =
        told.map(|(trace, cast, window, told)| traced(trace, &cast, window, told, options, pieces));
    RunView {
        name,
        files: run.files,
        scenario: document.map_or(String::new(), |d| d.scenario.clone()),
        place: place.map_or("trace", place_name),
        policy: document.map(|d| d.policy.clone()),
        seed: document.filter(|d| d.place == Where::Sim).map(|d| d.seed),
        repeat,
        result,
        known,
        map,
        trace,
        missing,
        notes,
    }
}

fn nothing() -> RunResult {
    let host = HostCounts { pcpus: 0, cores: 0, llcs: 0, nodes: 0, sockets: 0 };
    RunResult {
        label: String::new(),
        duration_ns: 0,
        host,
        pcpus: vec![],
        pools: vec![],
        vms: vec![],
        wakeups: vec![],
        checked: None,
    }
}

fn known(document: &Document, result: &RunResult) -> Known {
    // The kernel's own accounts know neither limits nor migrations (docs/result.md).
    let ours = document.policy == "tandem" || document.policy.starts_with("mutant:");
    let entitled = result.vms.iter().any(|v| v.times.entitled_ns > 0);
    Known { entitled, shares: true, limited: ours, work: document.place != Where::Live }
}

/// A command that measures the same run again: the document's, or as far as it tells one.
fn repeat(document: &Document, label: &str) -> Option<String> {
    let scenario = quoted(&document.scenario);
    let run = if label.is_empty() { String::new() } else { format!(" --run {}", quoted(label)) };
    match document.place {
        Where::Live => None,
        Where::Lab => Some(format!("cargo xtask lab {scenario}")),
        Where::Sim => {
            let policy = if document.policy == "tandem" {
                String::new()
            } else {
                format!(" --policy {}", quoted(&document.policy))
            };
            let guess = || format!("tandem sim {scenario} --seed {}{policy}", document.seed);
            Some(document.command.clone().unwrap_or_else(guess) + &run)
        }
    }
}

/// A word of a command line as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-=,:%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Parts of the page without numbers, with what would provide them.
fn missing(
    again: Option<&str>,
    known: &Known,
    (documented, traced): (bool, bool),
    map: &str,
) -> Vec<Missing> {
    let mut out = vec![];
    match documented {
        false => out.push(Missing {
            what: "document",
            how: "shares, what VMs were entitled to over the whole run, and their work are in its \
                result document: write it with --json FILE and give both, FILE,TRACE"
                .to_owned(),
        }),
        true if !traced => {
            let record = again.map_or_else(
                || "record a trace of the run".to_owned(),
                |again| format!("record it: {again} --trace FILE"),
            );
            out.push(Missing {
                what: "trace",
                how: format!(
                    "{record}; then give both: tandem \
                report RUN.json,FILE"
                ),
            });
        }
        true => {}
    }
    if documented && !known.entitled {
        out.push(Missing { what: "entitled", how: "measure again without --no-check".to_owned() });
    }
    if map == "none" {
        out.push(Missing {
            what: "map",
            how: "a trace tells where each pCPU is; a result document has counts alone".to_owned(),
        });
    }
    out
}

/// What a document and a trace of the same run must agree on and do not.
fn disagreement(
    result: &RunResult,
    cast: &Cast,
    told: &Told,
    window: Window,
    options: &Options,
) -> Option<String> {
    if options.from_ns.is_some() || options.to_ns.is_some() {
        return Some("The trace shows a part of the run, the tables all of it.".to_owned());
    }
    let bound = result.duration_ns / AGREE;
    if window.ns().abs_diff(result.duration_ns) > bound {
        let secs = |ns: u64| ns as f64 / 1e9;
        return Some(format!(
            "The trace is {:.3} s long and the run {:.3} s: they are not of the same span.",
            secs(window.ns()),
            secs(result.duration_ns)
        ));
    }
    let ran = result_of(cast, window, told);
    let other = result.vms.iter().find(|v| {
        let seen = ran.vms.iter().find(|t| t.name == v.name).map_or(0, |t| t.times.run_ns);
        seen.abs_diff(v.times.run_ns) > bound * u64::from(v.vcpus.max(1))
    })?;
    Some(format!(
        "Document and trace say different things of how long {} ran: are they of the same run?",
        other.name
    ))
}

/// A result as a trace tells it.
pub(crate) fn result_of(cast: &Cast, window: Window, told: &Told) -> RunResult {
    let empty = |(i, v): (usize, &crate::model::TraceVm)| Vm {
        name: v.name.clone(),
        pool: v.pool.clone(),
        vcpus: cast
            .worlds
            .values()
            .filter(|w| w.vm == i && matches!(w.role, None | Some(Role::Vcpu)))
            .count() as u32,
        shares: 0,
        times: Times::default(),
        cpu_stat: None,
        guest: None,
        numa: vec![],
        worlds: vec![],
    };
    let mut vms: Vec<Vm> = cast.vms.iter().enumerate().map(empty).collect();
    for (id, times) in &told.sums.times {
        let Some(named) = cast.worlds.get(id) else { continue };
        let kind = match named.role {
            None | Some(Role::Vcpu) => WorldKind::Vcpu,
            Some(Role::Helper) => WorldKind::Helper,
            Some(Role::Host) => WorldKind::Task,
        };
        vms[named.vm].times.add(times);
        vms[named.vm].worlds.push(World { name: named.name.clone(), kind, times: *times });
    }
    vms.retain(|v| !v.worlds.is_empty());
    let busy = |(id, p): (usize, &crate::model::PcpuSums)| Pcpu {
        id,
        busy_ns: p.run.iter().sum::<u64>() + p.other,
    };
    let pcpus = told.pcpus.iter().enumerate().map(busy).collect();
    let distinct =
        |of: fn(&trace::Place) -> u16| cast.places.values().map(of).collect::<BTreeSet<_>>().len();
    let (cores, llcs, nodes) = (distinct(|p| p.core), distinct(|p| p.llc), distinct(|p| p.node));
    let host = HostCounts { pcpus: cast.pcpus, cores, llcs, nodes, sockets: 0 };
    RunResult {
        label: String::new(),
        duration_ns: window.ns(),
        host,
        pcpus,
        pools: pools(&vms),
        vms,
        wakeups: vec![],
        checked: None,
    }
}

/// Sums over VMs for each pool and those above it.
fn pools(vms: &[Vm]) -> Vec<Pool> {
    let mut pools: BTreeMap<String, Pool> = BTreeMap::new();
    for vm in vms {
        let mut paths = vec!["/".to_owned()];
        let mut at = String::new();
        for part in vm.pool.split('/').filter(|p| !p.is_empty()) {
            at = format!("{at}/{part}");
            paths.push(at.clone());
        }
        for path in paths {
            let p = pools.entry(path.clone()).or_insert(Pool { path, ..Pool::default() });
            p.used_ns += vm.times.used_ns;
            p.ready_ns += vm.times.ready_ns;
            p.costop_ns += vm.times.costop_ns;
            p.limited_ns += vm.times.limited_ns;
        }
    }
    pools.into_values().collect()
}

fn traced(
    trace: &Trace,
    cast: &Cast,
    window: Window,
    told: Told,
    options: &Options,
    pieces: usize,
) -> TraceView {
    let (worlds, timeline) = timeline(cast, &told, window, pieces);
    let lost = trace.events.iter().try_fold(0u64, |sum, e| match e.kind {
        Kind::Lost { events } => events.map(|n| sum + u64::from(n)),
        _ => Some(sum),
    });
    TraceView {
        from_ns: window.from - window.zero,
        to_ns: window.to - window.zero,
        whole_ns: window.end - window.zero,
        events: trace.events.len(),
        lost,
        vms: cast.vms.clone(),
        worlds,
        pcpus: told.pcpus,
        buckets: told.buckets.finish(),
        waits: waits(trace, window, options.brief_ns),
        timeline,
        marks: told.marks,
    }
}

/// Rows, and the worlds that they name: first those with a row of their own, in its order.
fn timeline(
    cast: &Cast,
    told: &Told,
    window: Window,
    pieces: usize,
) -> (Vec<TraceWorld>, Timeline) {
    let active =
        |id: &WorldId| told.sums.times.get(id).map_or(0, |t| t.run_ns + t.ready_ns + t.costop_ns);
    let mut shown: Vec<WorldId> =
        told.world_lanes.iter().filter(|l| l.1.filled_ns() > 0).map(|l| *l.0).collect();
    shown.sort_by_key(|id| std::cmp::Reverse(active(id)));
    let left_out = shown.len().saturating_sub(LANES_MAX);
    shown.truncate(LANES_MAX);
    shown.sort_by_key(|id| (cast.worlds.get(id).map(|w| w.vm), *id));
    let lanes: Vec<Lane> = shown.iter().map(|id| told.world_lanes[id].clone()).collect();
    let (by_worlds, worlds) = reduce(&lanes, window.ns(), pieces);
    let (by_pcpus, mut pcpus) = reduce(&told.pcpu_lanes, window.ns(), pieces);
    let mut index: BTreeMap<WorldId, usize> =
        shown.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    for code in pcpus.iter_mut().flat_map(|l| l.iter_mut().skip(1).step_by(2)).filter(|c| **c >= 6)
    {
        let id = WorldId((*code / 2 - 3) as u32);
        let next = index.len();
        let i = *index.entry(id).or_insert_with(|| {
            shown.push(id);
            next
        });
        *code = 2 * (3 + i as u64) + *code % 2;
    }
    let named = |id: &WorldId| {
        cast.worlds.get(id).map_or(TraceWorld { name: id.0.to_string(), vm: 0 }, |w| TraceWorld {
            name: w.name.clone(),
            vm: w.vm,
        })
    };
    let resolution_ns = by_worlds.max(by_pcpus);
    (shown.iter().map(named).collect(), Timeline { resolution_ns, pcpus, worlds, left_out })
}
