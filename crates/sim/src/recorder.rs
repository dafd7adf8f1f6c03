//! Writes the trace of a run: the scheduler's own records, with the names that only the scenario
//! knows; it changes nothing in the run.

use crate::cast::Cast;
use contract::TraceRecord;
use settings::{PlacedPool, Run};
use std::{fmt, io::Write};
use trace::{Event, Kind, Place, RAW_BYTES, Role, Writer};
use units::{PcpuId, PcpuSet, VmId, WorldId};

/// Where a trace goes.
pub type TraceOut = Box<dyn Write + Send>;

/// The trace of one run.
pub(crate) struct Recorder {
    writer: Writer<TraceOut>,
    /// The first thing that went wrong; nothing is written after it.
    error: Option<String>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("error", &self.error).finish_non_exhaustive()
    }
}

/// The 32 bytes of a record, as `trace::expand` takes them.
fn bytes(r: &TraceRecord) -> [u8; RAW_BYTES] {
    let mut out = [0; RAW_BYTES];
    out[..8].copy_from_slice(&r.ns.to_le_bytes());
    out[8..12].copy_from_slice(&r.world.to_le_bytes());
    out[12..14].copy_from_slice(&r.kind.to_le_bytes());
    out[14..16].copy_from_slice(&r.pcpu.to_le_bytes());
    out[16..24].copy_from_slice(&r.a.to_le_bytes());
    out[24..].copy_from_slice(&r.b.to_le_bytes());
    out
}

impl Recorder {
    /// Begins a trace.
    pub(crate) fn new(out: TraceOut) -> Result<Recorder, String> {
        Ok(Recorder { writer: Writer::new(out).map_err(|e| e.to_string())?, error: None })
    }

    /// The first events: the names of everything that a run has.
    pub(crate) fn begin(&mut self, run: &Run, cast: &Cast, pools: &[PlacedPool]) {
        let n = run.topology.pcpus();
        let mut tell = |pcpu, kind| self.push(&Event { ns: 0, pcpu, kind });
        tell(None, Kind::Host { pcpus: n as u16 });
        for (i, p) in run.topology.places().iter().enumerate() {
            let [smt, core, llc, node] = [p.thread, p.core, p.llc, p.node].map(|x| x as u16);
            tell(Some(PcpuId(i as u16)), Kind::Pcpu { place: Place { smt, core, llc, node } });
        }
        for (i, vm) in cast.vms().iter().enumerate() {
            let pool = pools[vm.pool].path.clone();
            tell(None, Kind::Vm { vm: VmId(i as u16), name: vm.name.clone(), pool });
        }
        let host = PcpuSet::first(n);
        for w in cast.worlds() {
            let (world, spec) = (WorldId(w), cast.spec(w));
            let role = if cast.is_vcpu(w) { Role::Vcpu } else { Role::Host };
            let vm = VmId(cast.vm_of(w) as u16);
            tell(None, Kind::World { world, vm, role, name: spec.name.clone() });
            if let Some(allowed) = &spec.allowed {
                tell(None, Kind::Affinity { world, allowed: Box::new(allowed.and(&host)) });
            }
        }
    }

    pub(crate) fn push(&mut self, event: &Event) {
        if self.error.is_none() {
            self.error = self.writer.push(event).err().map(|e| e.to_string());
        }
    }

    /// Takes a record of the scheduler.
    pub(crate) fn record(&mut self, record: &TraceRecord) {
        if let Err(e) = trace::expand(&bytes(record), |event| self.push(&event)) {
            self.error.get_or_insert(e.to_string());
        }
    }

    pub(crate) fn mark(&mut self, ns: u64, text: String) {
        self.push(&Event { ns, pcpu: None, kind: Kind::Mark { text } });
    }

    /// Ends the trace; says what went wrong, if anything did.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.error {
            Some(e) => Err(e),
            None => self.writer.finish().map(drop).map_err(|e| e.to_string()),
        }
    }
}
