//! The first events of a trace: the names of everything that a run has.

use super::Cast;
use settings::{PlacedPool, Run};
use trace::{Event, Kind, Place, Role};
use units::{PcpuId, PcpuSet, VmId, WorldId};

impl Cast {
    /// Those events, in order.
    pub(crate) fn names(&self, run: &Run, pools: &[PlacedPool]) -> Vec<Event> {
        let (n, mut out) = (run.topology.pcpus(), vec![]);
        let mut add = |pcpu, kind| out.push(Event { ns: 0, pcpu, kind });
        add(None, Kind::Host { pcpus: n as u16 });
        for (i, p) in run.topology.places().iter().enumerate() {
            let [smt, core, llc, node] = [p.thread, p.core, p.llc, p.node].map(|x| x as u16);
            add(Some(PcpuId(i as u16)), Kind::Pcpu { place: Place { smt, core, llc, node } });
        }
        for (i, vm) in self.vms().iter().enumerate() {
            let pool = pools[vm.pool].path.clone();
            add(None, Kind::Vm { vm: VmId(i as u16), name: vm.name.clone(), pool });
        }
        let host = PcpuSet::first(n);
        for w in self.worlds() {
            let (world, spec) = (WorldId(w), self.spec(w));
            let role = if self.is_vcpu(w) { Role::Vcpu } else { Role::Host };
            let vm = VmId(self.vm_of(w) as u16);
            add(None, Kind::World { world, vm, role, name: spec.name.clone() });
            if let Some(allowed) = &spec.allowed {
                add(None, Kind::Affinity { world, allowed: Box::new(allowed.and(&host)) });
            }
        }
        out
    }
}
