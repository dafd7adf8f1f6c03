//! Real-time tasks take one of two pCPUs for 3 of each 10 ms: the ideal divides what they leave.

use check::{Bounds, Invariant, Oracle, State, VmTerms};
use topology::{Shape, Topology};
use units::{PcpuId, PcpuSet, Rate, VmId, WorldId};

const MS: u64 = 1_000_000;
/// 100 periods.
const END_MS: u64 = 1_000;
const TAKEN: PcpuId = PcpuId(0);

/// Two pCPUs; A with one vCPU, and B with two.
fn host(of_a: VmTerms, pinned: Option<PcpuSet>) -> Oracle {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 2,
        threads_per_core: 1,
    };
    let mut o = Oracle::new(&Topology::regular(shape).unwrap(), Bounds::of(10 * MS, MS, MS));
    o.vm_added(0, VmId(1), "a", of_a);
    o.vm_added(0, VmId(2), "b", VmTerms::from(1000));
    o.world_added(0, WorldId(1), VmId(1), pinned);
    [2, 3].into_iter().for_each(|w| o.world_added(0, WorldId(w), VmId(2), None));
    (1..=3).for_each(|w| o.state(0, WorldId(w), State::Ready, None));
    o
}

/// CPU time of the ideal for A and B, in us.
fn entitled_us(mut o: Oracle) -> Vec<u64> {
    for t in (0..END_MS).step_by(10) {
        o.taken(t * MS + 2_345, TAKEN, true);
        o.taken((t + 3) * MS + 2_345, TAKEN, false);
    }
    let of = o.entitled(END_MS * MS);
    assert_eq!(of.iter().map(|e| e.0.0).collect::<Vec<_>>(), [1, 2], "real-time tasks are no VM");
    of.iter().map(|e| e.1 / 1_000).collect()
}

#[test]
fn the_ideal_divides_what_they_leave_of_the_host_and_of_a_pcpu_to_which_a_world_is_held() {
    let near = |seen: Vec<u64>, want: [u64; 2]| {
        let off = seen.iter().zip(want).map(|(s, w)| s.abs_diff(w)).max();
        assert!(off <= Some(2), "{seen:?} us, allowed {want:?} to 2 us: a ns or two a window");
    };
    let a = VmTerms::from(1000);
    near(entitled_us(host(a, None)), [850_000, 850_000]);
    // B cannot make up for what is taken of A's pCPU, and uses the other.
    let held = Some(PcpuSet::from_iter([TAKEN]));
    near(entitled_us(host(a, held.clone())), [700_000, 1_000_000]);
    let sure = VmTerms { reservation: Rate::pcpus(1), ..VmTerms::from(1) };
    near(entitled_us(host(sure, None)), [1_000_000, 700_000]);
    // More is reserved of pCPU 0 than there is while it is taken: some is given back later only.
    let [of_a, of_b] = entitled_us(host(sure, held))[..] else { panic!("two VMs") };
    assert!((700_000..702_000).contains(&of_a) && of_b >= 999_998, "{of_a} and {of_b} us");
}

/// What was found but lag: A never runs here.
fn found(o: &Oracle) -> Vec<Invariant> {
    let found = o.violations().iter().map(|v| v.invariant);
    found.filter(|i| *i != Invariant::Lag).collect()
}

#[test]
fn a_pcpu_that_is_taken_runs_no_world_and_does_not_idle() {
    let mut o = host(VmTerms::from(1000), None);
    o.state(0, WorldId(2), State::Run, Some(PcpuId(1)));
    o.taken(0, TAKEN, true);
    // World 3 waits, and no pCPU idles.
    o.taken(50 * MS, TAKEN, false);
    o.state(50 * MS, WorldId(3), State::Run, Some(TAKEN));
    o.taken(51 * MS, TAKEN, true);
    assert_eq!(found(&o), [Invariant::OneWorldAPcpu], "beside world 3");
    o.state(52 * MS, WorldId(3), State::Ready, None);
    o.state(53 * MS, WorldId(3), State::Run, Some(TAKEN));
    assert_eq!(found(&o), [Invariant::OneWorldAPcpu; 2], "it runs beside the real-time task");
    let mut o = host(VmTerms::from(1000), None);
    o.state(0, WorldId(2), State::Run, Some(PcpuId(1)));
    o.taken(0, TAKEN, true);
    o.taken(50 * MS, TAKEN, false);
    o.state(60 * MS, WorldId(3), State::Run, Some(TAKEN));
    assert_eq!(found(&o), [Invariant::IdleWhileWaiting], "10 ms after it was given back");
}
