//! A part of a trace that stands alone: it begins with the states at its start; it leaves out
//! nothing inside.

use crate::{Event, Kind, Now, Replay, Why};
use units::PcpuId;

/// Events from `from_ns` to before `to_ns`, with every name. Before them come events with the
/// states of worlds and the pCPUs that idle, are kept or off line at `from_ns`, so that tables and
/// pictures begin correctly. `waits::analyse` has a range of its own, and knows more.
#[must_use]
pub fn between(events: &[Event], from_ns: u64, to_ns: u64) -> Vec<Event> {
    let mut out: Vec<Event> = events.iter().filter(|e| e.kind.is_name()).cloned().collect();
    let mut replay = Replay::new();
    events.iter().take_while(|e| e.kind.is_name() || e.ns < from_ns).for_each(|e| {
        replay.step(e);
    });
    for (world, now) in replay.worlds() {
        let kind =
            Kind::State { world, from: now.before, to: now.state, why: Why::Told, on: now.on };
        out.push(Event { ns: from_ns, pcpu: now.on, kind });
    }
    for (p, now) in replay.pcpus().iter().enumerate() {
        let kind = match now.0 {
            Now::Idle => Kind::Idle { begins: true },
            Now::Kept => Kind::Kept,
            Now::Off => Kind::Offline,
            _ => continue,
        };
        out.push(Event { ns: from_ns, pcpu: Some(PcpuId(p as u16)), kind });
    }
    out.extend(
        events.iter().filter(|e| !e.kind.is_name() && (from_ns..to_ns).contains(&e.ns)).cloned(),
    );
    out
}
