//! Reads the trace of a live host, and lets `tandem trace waits`, `export` and `tandem report` read
//! it; it judges no wait.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use trace::{Event, Kind, Replay, Role, State, Trace};
use units::{PcpuId, WorldId};

use super::super::{Report, unreadable};
use super::exposition::{Families, seconds};
use super::{VCPUS, VMS, none_wrong, row};
use crate::boot::BootOutcome;
use crate::error::Result;
use crate::tool;

const MS: u64 = 1_000_000;
/// As the script asks for it.
const ASKED_NS: u64 = 3000 * MS;

/// What a trace says of its whole length.
#[derive(Debug, Default)]
struct Times {
    first_ns: u64,
    last_ns: u64,
    /// Events that it says are missing.
    lost: u64,
    events: usize,
    /// Of each vCPU, by `VM/vCPU`: sum of all states, and of RUN.
    vcpus: BTreeMap<String, (u64, u64)>,
    /// What ran on each pCPU.
    pcpus: BTreeMap<PcpuId, u64>,
    /// RUN of all worlds of a VM.
    run: BTreeMap<String, u64>,
    /// Events that say another state before than the events before them, in words.
    contradictions: Vec<String>,
}

fn times(trace: &Trace) -> Times {
    let told = |k: &Kind| matches!(k, Kind::State { .. } | Kind::Wake { .. });
    let mut seen = trace.events.iter().filter(|e| told(&e.kind)).map(|e| e.ns);
    let first_ns = seen.next().unwrap_or(0);
    let mut out = Times {
        first_ns,
        last_ns: trace.events.last().map_or(first_ns, |e| e.ns),
        events: trace.events.len(),
        ..Times::default()
    };
    let mut replay = Replay::new();
    let mut stays: Vec<(WorldId, State, u64)> = vec![];
    let (mut ended, mut seen) = (vec![], BTreeSet::new());
    for event in &trace.events {
        match event.kind {
            Kind::Lost { events } => out.lost += u64::from(events.unwrap_or(1)),
            Kind::State { world, from, .. } => {
                let before = replay.world(world).map(|now| now.state);
                if let (Some(was), Some(from)) = (before, from)
                    && was != from
                {
                    out.contradictions.push(contradiction(&replay, event, was));
                }
                // Until its first event a world was in the state that this one says.
                let first = seen.insert(world);
                stays.extend(
                    from.filter(|_| first && before.is_none())
                        .map(|f| (world, f, event.ns - first_ns.min(event.ns))),
                );
            }
            _ => {}
        }
        ended.push(replay.step(event).clone());
    }
    ended.push(replay.finish().clone());
    for e in &ended {
        stays.extend(
            e.stays.iter().map(|s| {
                (s.world, s.was.state, s.to_ns - s.was.since_ns.max(first_ns).min(s.to_ns))
            }),
        );
        for s in
            e.stretches.iter().filter(|s| matches!(s.now, trace::Now::World(_) | trace::Now::Other))
        {
            *out.pcpus.entry(s.pcpu).or_default() += s.to_ns - s.from_ns.max(first_ns).min(s.to_ns);
        }
    }
    let names = replay.names();
    for (world, state, ns) in stays {
        let Some((vm, role)) = names.vm_of(world) else { continue };
        let run = if state == State::Run { ns } else { 0 };
        *out.run.entry(names.vm(vm)).or_default() += run;
        if role == Role::Vcpu {
            let sums = out.vcpus.entry(names.full(world)).or_default();
            *sums = (sums.0 + ns, sums.1 + run);
        }
    }
    out
}

/// An event that says another state before than `was`, and what came before it.
fn contradiction(replay: &Replay, event: &Event, was: State) -> String {
    let Kind::State { world, from: Some(from), to, why, on } = event.kind else {
        return String::new();
    };
    let since = replay.world(world).map_or(0, |now| now.since_ns);
    let name = replay.names().full(world);
    let place = on.map_or("nowhere".to_owned(), |p| format!("on pCPU {}", p.0));
    format!(
        "{name} at {} ns: from {from:?} to {to:?}, {why:?}, {place}, but was {was:?} since {since} \
            ns",
        event.ns
    )
}

/// Checks the recording, what the commands make of it, and that it agrees with the scrapes before
/// and after.
pub(super) fn judge(
    report: &mut Report,
    outcome: &BootOutcome,
    tandem: &Path,
    scrapes: &[Families; 2],
) -> Result<()> {
    let said: Value = serde_json::from_str(&outcome.file("record.json")?)
        .map_err(|e| unreadable("record.json", e))?;
    let path = outcome.folder.join("out/watch.trace");
    let trace =
        Trace::read(tool::read(&path)?.as_slice()).map_err(|e| unreadable("watch.trace", e))?;
    let times = times(&trace);
    let lost = said["lost"].as_u64().unwrap_or(u64::MAX);
    row(
        report,
        "trace record",
        format!(
            "{} events, {lost} lost, {} ms",
            times.events,
            (times.last_ns - times.first_ns) / MS
        ),
    );
    let mut wrong = whole(&times, &said);
    if !trace.gaps.is_empty() {
        wrong.push(format!("{} gaps in the file", trace.gaps.len()));
    }
    none_wrong(
        report,
        "trace record: nothing lost, or marked; the states of each vCPU sum to the recorded time",
        &wrong,
        "nothing wrong",
    );
    none_wrong(
        report,
        "trace record: CPU time of each VM, against the endpoint's before and after",
        &against(&times, scrapes),
        "nothing wrong",
    );
    let wrong = commands(report, outcome, tandem, &path)?;
    none_wrong(report, "trace waits, trace export and report read it", &wrong, "nothing wrong");
    Ok(())
}

/// What is wrong with the recording as a whole.
fn whole(times: &Times, said: &Value) -> Vec<String> {
    let mut out = vec![];
    let long = times.last_ns - times.first_ns;
    // The recorder begins and ends a moment apart from the first and the last event.
    if long.abs_diff(ASKED_NS) > 500 * MS {
        out.push(format!("{} ms were recorded, asked for 3000", long / MS));
    }
    if said["lost"].as_u64() != Some(times.lost)
        || said["duration_ns"].as_u64().is_none_or(|ns| ns.abs_diff(long) > 500 * MS)
    {
        out.push(format!(
            "the outcome says {said}, the trace {} lost in {} ms",
            times.lost,
            long / MS
        ));
    }
    if times.vcpus.len() != VMS.len() * VCPUS as usize {
        out.push(format!("vCPUs {:?}", times.vcpus.keys()));
    }
    if let Some(first) = times.contradictions.first() {
        out.push(format!(
            "{} events contradict those before them, first {first}",
            times.contradictions.len()
        ));
    }
    // Nothing is known across a loss.
    for (vcpu, (all, _)) in times.vcpus.iter().filter(|_| times.lost == 0) {
        if all.abs_diff(long) > 20 * MS {
            out.push(format!("{vcpu}: states sum to {} of {} ms", all / MS, long / MS));
        }
    }
    for (pcpu, ns) in times.pcpus.iter().filter(|p| *p.1 > long) {
        out.push(format!("pCPU {}: ran {} of {} ms", pcpu.0, ns / MS, long / MS));
    }
    out
}

/// A VM's CPU time in the trace is at most what it used between the scrapes, and lacks no more than
/// the time around the recording.
fn against(times: &Times, scrapes: &[Families; 2]) -> Vec<String> {
    let wrong = |vm: &&str| {
        let between = seconds(vm, "run", scrapes);
        let traced = times.run.get(*vm).copied().unwrap_or(0) as f64 / 1e9;
        // Two vCPUs, for as long as two scrapes and a recorder take to come and go on a busy
        // emulator.
        let fits =
            times.lost > 0 || (traced <= between + 0.02 && traced > 0.3 * between && traced > 0.1);
        (!fits).then(|| {
            format!("{vm}: {traced:.3} s in the trace, {between:.3} s between the scrapes")
        })
    };
    VMS.iter().filter_map(wrong).collect()
}

/// Runs the commands that read a trace on this machine.
fn commands(
    report: &mut Report,
    outcome: &BootOutcome,
    tandem: &Path,
    trace: &Path,
) -> Result<Vec<String>> {
    let file = |name: &str| outcome.folder.join("out").join(name);
    let run = |words: &[&str], paths: &[&Path]| {
        let mut command = Command::new(tandem);
        command.args(words).args(paths);
        tool::run(&mut command, "read the trace", "look at what it says")
    };
    let (waits, picture, page) = (file("waits.json"), file("watch.pftrace"), file("report.html"));
    run(&["trace", "waits", "--most", "3", "--json"], &[&waits, trace])?;
    run(&["trace", "export"], &[trace, &picture])?;
    run(&["report", "-o"], &[&page, &file("top.json"), trace])?;
    let mut wrong = vec![];
    let read: Value = serde_json::from_str(&outcome.file("waits.json")?)
        .map_err(|e| unreadable("waits.json", e))?;
    let sums = read["vms"].as_array().cloned().unwrap_or_default();
    let waited = |vm: &str| sums.iter().find(|s| s["name"] == vm).and_then(|s| s["waits"].as_u64());
    row(
        report,
        "trace waits",
        format!(
            "{} waits, {} beside a pCPU that was wrong to idle",
            read["all"]["waits"], read["all"]["wrong_idle"]
        ),
    );
    wrong.extend(
        VMS.iter()
            .filter(|vm| waited(vm).is_none_or(|n| n == 0))
            .map(|vm| format!("no wait of {vm}")),
    );
    let bytes = tool::read(&picture)?;
    row(report, "trace export", tool::megabytes(bytes.len() as u64));
    if bytes.first() != Some(&0x0a) || bytes.len() < 10_000 {
        wrong.push(format!("a picture of {} bytes", bytes.len()));
    }
    let html = outcome.file("report.html")?;
    row(report, "report", tool::megabytes(html.len() as u64));
    wrong.extend(
        VMS.iter()
            .filter(|vm| !html.contains(&format!("\"{vm}\"")))
            .map(|vm| format!("no {vm} in the report")),
    );
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trace::Why;
    use units::VmId;

    fn trace(run_ms: u64, lost: Option<u32>) -> Trace {
        let at = |ns: u64, kind| Event { ns, pcpu: None, kind };
        let mut events = vec![];
        for (i, vm) in VMS.iter().enumerate() {
            let id = VmId(i as u16 + 1);
            events.push(at(0, Kind::Vm { vm: id, name: (*vm).to_owned(), pool: "/".to_owned() }));
            for n in 0..VCPUS {
                events.push(at(
                    0,
                    Kind::World {
                        world: WorldId(i as u32 * 10 + n),
                        vm: id,
                        role: Role::Vcpu,
                        name: format!("vcpu{n}"),
                    },
                ));
            }
        }
        let state = |ns: u64, world: u32, to: State| {
            at(
                ns,
                Kind::State {
                    world: WorldId(world),
                    from: None,
                    to,
                    why: Why::Unknown,
                    on: Some(PcpuId(world as u16)),
                },
            )
        };
        let worlds = [0, 1, 10, 11];
        events.extend(worlds.map(|w| state(5, w, State::Run)));
        events.extend(worlds.map(|w| state(5 + run_ms * MS, w, State::Wait)));
        events.extend(lost.map(|n| at(2900 * MS, Kind::Lost { events: Some(n) })));
        events.push(at(5 + 3000 * MS, Kind::Mark { text: String::new() }));
        Trace { events, ..Trace::default() }
    }

    #[test]
    fn a_whole_trace_has_nothing_wrong_and_a_short_or_silent_one_has() {
        let said = json!({"lost": 0, "duration_ns": 3000 * MS});
        let t = times(&trace(1000, None));
        assert_eq!(
            (whole(&t, &said), t.vcpus["busy/vcpu1"], t.pcpus[&PcpuId(11)]),
            (vec![], (3000 * MS, 1000 * MS), 1000 * MS)
        );
        assert_eq!(whole(&t, &json!({"lost": 3, "duration_ns": 3000 * MS})).len(), 1);
        let mut late = trace(1000, None);
        late.events
            .retain(|e| !matches!(e.kind, Kind::State { world: WorldId(0), to: State::Run, .. }));
        assert!(
            whole(&times(&late), &said)[0].contains("busy/vcpu0: states sum to 2000 of 3000 ms")
        );
        let mut cut = trace(1000, None);
        cut.events.pop();
        assert!(!whole(&times(&cut), &said).is_empty());
    }

    #[test]
    fn what_was_before_the_first_event_counts_and_a_contradiction_is_told() {
        let said = json!({"lost": 0, "duration_ns": 3000 * MS});
        let mut late = trace(1000, None);
        late.events
            .retain(|e| !matches!(e.kind, Kind::State { world: WorldId(0), to: State::Run, .. }));
        let from = |events: &mut Vec<Event>, w: u32, state: State| {
            let to_wait =
                |k: &Kind| matches!(k, Kind::State { world, to: State::Wait, .. } if world.0 == w);
            let event = events.iter_mut().find(|e| to_wait(&e.kind)).unwrap();
            if let Kind::State { from, .. } = &mut event.kind {
                *from = Some(state);
            }
        };
        from(&mut late.events, 0, State::Run);
        assert_eq!(
            (whole(&times(&late), &said), times(&late).vcpus["busy/vcpu0"]),
            (vec![], (3000 * MS, 1000 * MS))
        );
        from(&mut late.events, 1, State::Ready);
        let told = "1 events contradict those before them, first busy/vcpu1 at 1000000005 ns: from \
            Ready to Wait, Unknown, \
                    on pCPU 1, but was Run since 5 ns";
        assert_eq!(whole(&times(&late), &said), [told]);
    }

    #[test]
    fn what_is_lost_has_to_be_marked() {
        let said = json!({"lost": 7, "duration_ns": 3000 * MS});
        assert!(whole(&times(&trace(1000, Some(7))), &said).is_empty());
        assert_eq!(whole(&times(&trace(1000, Some(6))), &said).len(), 1);
    }

    #[test]
    fn cpu_time_that_the_endpoint_does_not_know_is_told() {
        let scrape = |s: f64| {
            let of = |vm: &str| {
                format!("tandem_vm_state_seconds_total{{vm=\"{vm}\",state=\"run\"}} {s}\n")
            };
            metrics::strict::read(&format!(
                "# TYPE tandem_vm_state_seconds counter\n{}{}# EOF\n",
                of("busy"),
                of("beat")
            ))
            .unwrap()
        };
        let t = times(&trace(1000, None));
        assert!(
            against(&t, &[scrape(1.0), scrape(3.5)]).is_empty(),
            "2 s in the trace, 2.5 s between"
        );
        assert_eq!(against(&t, &[scrape(1.0), scrape(2.5)]).len(), 2, "more than was used");
        assert_eq!(against(&t, &[scrape(1.0), scrape(9.0)]).len(), 2, "most is missing");
    }
}
