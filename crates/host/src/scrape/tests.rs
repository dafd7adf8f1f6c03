//! Metrics from made-up records: what is summed up, what is left out, and that totals never go
//! back.

use super::*;
use crate::{PoolName, Sources, VmName};
use metrics::Format;
use std::collections::BTreeMap;
use units::Rate;

const S: u64 = 1_000_000_000;

fn pool(path: &str, parent: &str, limit: Option<u64>) -> PoolName {
    let (path, parent, sources) = (path.to_owned(), parent.to_owned(), Sources::new());
    let (reservation, limit) = (Rate(1 << 19), limit.map(Rate::pcpus));
    PoolName {
        path,
        parent,
        shares: 4000,
        reservation,
        limit,
        burst_ns: 0,
        expandable: true,
        scalable: false,
        sources,
    }
}

fn vm(id: u32, pid: i32, pool: &str) -> VmName {
    VmName {
        id,
        name: format!("vm \"{pid}\""),
        pid,
        started: 5,
        pool: pool.to_owned(),
        shares: 1000,
        reservation: Rate(0),
        limit: (id == 1).then(|| Rate::pcpus(2)),
        burst_ns: 0,
        vcpus: 2,
        weight: 0,
        cgroup: String::new(),
        sources: Sources::new(),
    }
}

/// A wide VM with a part in each of two nodes, that has had three changes.
fn homes(id: u32, pid: i32) -> VmHomes {
    let client = |home: u32, bytes: [u64; 2], changes: &[(&str, u64)]| views::NumaClient {
        vcpus: 4,
        home: Some(home),
        bytes: bytes.to_vec(),
        changes: changes.iter().map(|(reason, n)| ((*reason).to_owned(), *n)).collect(),
        moved_bytes: 50,
        decisions: vec![],
        llcs: vec![],
        notes: vec![],
        talks: BTreeMap::new(),
    };
    let clients = vec![
        client(0, [60, 40], &[("placed", 1), ("imbalance", 2)]),
        client(1, [0, 100], &[("placed", 1), ("imbalance", 1)]),
    ];
    VmHomes { id, name: String::new(), pid, started: 5, memory: 500, clients }
}

/// Two VMs in `/a/b` and one beside it; each has so many seconds in every state, and twice that
/// used.
fn moment(load: u64, seconds: u64) -> Moment {
    let pools = vec![pool("/", "/", None), pool("/a", "/", Some(3)), pool("/a/b", "/a", None)];
    let vms = vec![vm(1, 101, "/a/b"), vm(2, 102, "/a/b"), vm(3, 103, "/")];
    let names =
        Names { generation: 7, pcpus: 2, system_shares: 2000, pools, vms, ..Names::default() };
    let mut sums = [seconds * S; SUMS];
    sums[USED] = 2 * seconds * S;
    let record = |used: u64| Vm { used_ns: used * S, demand: 3 << 19, ..Vm::ZERO };
    let node = |gets: u64| Node { gets, demand: 2 * gets, ..Node::ZERO };
    Moment {
        load,
        now_ns: 100 * S,
        host: HostRecord { generation: 7, online: 2, asserts: 1, overflows: 4, ..HostRecord::ZERO },
        pcpus: vec![(
            0,
            Pcpu {
                busy_ns: seconds * S,
                taken_ns: 2 * seconds * S,
                switches: 9,
                pulls: 2,
                preempts: 3,
                ..Pcpu::ZERO
            },
        )],
        plan: Some((0..names.tree().nodes().len() as u64).map(|i| node((i + 1) << 20)).collect()),
        sums: [1, 2, 3].map(|id| (id, sums)).into(),
        vms: [0, 1, 2, 3].map(|id| (id, record(u64::from(id) + 20))).into(),
        names,
        homes: [(1, homes(1, 101)), (2, homes(2, 999))].into(),
        worlds: 12,
    }
}

fn told(totals: &mut KeptTotals, moment: &Moment) -> Samples {
    let mut out = Samples::default();
    totals.take(moment);
    moment.tell(totals, &mut out);
    out
}

fn pool_used(samples: &Samples, path: &str) -> Option<Value> {
    samples.get(Metric::PoolUsed, &[path])
}

#[test]
fn every_declared_metric_of_the_scheduler_is_told_with_its_labels() {
    let samples = told(&mut KeptTotals::default(), &moment(1, 10));
    let vm = ["vm \"101\"", "/a/b", "1"];
    for (n, state) in STATES.iter().enumerate() {
        assert_eq!(
            samples.get(Metric::VmState, &[vm[0], vm[1], vm[2], state]),
            Some(Value::Ns(10 * S)),
            "{n}"
        );
    }
    assert_eq!(samples.get(Metric::VmUsed, &vm), Some(Value::Ns(20 * S)));
    assert_eq!(samples.get(Metric::VmWakeups, &vm), Some(Value::Count(10 * S)));
    assert_eq!(samples.get(Metric::VmExpiries, &vm), Some(Value::Count(10 * S)));
    assert_eq!(samples.get(Metric::VmDemand, &vm), Some(Value::Rate(3 << 19)));
    assert_eq!(samples.get(Metric::VmLimit, &vm), Some(Value::Rate(2 << 20)));
    assert_eq!(
        samples.get(Metric::VmLimit, &["vm \"103\"", "/", "3"]),
        None,
        "no limit is no number"
    );
    // 20 s each by three VMs and the host's tasks.
    assert_eq!(
        ["/", "/a", "/a/b", "/system"].map(|p| pool_used(&samples, p)),
        [80, 40, 40, 20].map(|s| Some(Value::Ns(s * S)))
    );
    assert_eq!(samples.get(Metric::PoolReady, &["/a"]), Some(Value::Ns(20 * S)));
    assert_eq!(samples.get(Metric::PoolLimited, &["/"]), Some(Value::Ns(30 * S)));
    assert_eq!(samples.get(Metric::PoolEntitlement, &["/"]), Some(Value::Rate(1 << 20)));
    assert_eq!(samples.get(Metric::PcpuBusy, &["0"]), Some(Value::Ns(10 * S)));
    assert_eq!(samples.get(Metric::PcpuTaken, &["0"]), Some(Value::Ns(20 * S)));
    assert_eq!(samples.get(Metric::HostPcpus, &[]), Some(Value::Rate(2 << 20)));
    let of = |metric, label| samples.get(metric, &[vm[0], vm[1], vm[2], label]);
    assert_eq!(["0", "1"].map(|n| of(Metric::VmHomeVcpus, n)), [Some(Value::Count(4)); 2]);
    assert_eq!(
        ["0", "1"].map(|n| of(Metric::VmMemory, n)),
        [60, 140].map(|n| Some(Value::Bytes(n)))
    );
    assert_eq!(
        ["placed", "imbalance"].map(|r| of(Metric::VmHomeMigrations, r)),
        [None, Some(Value::Count(3))]
    );
    assert_eq!(samples.get(Metric::VmMemoryLocal, &vm), Some(Value::Bytes(160)));
    assert_eq!(samples.get(Metric::VmMemoryMoved, &vm), Some(Value::Bytes(100)));
    assert_eq!(
        samples.get(Metric::VmMemoryMoved, &["vm \"102\"", "/a/b", "2"]),
        None,
        "another process had the number"
    );
    let text = samples.text(Format::OpenMetrics);
    let others =
        [Metric::Build, Metric::Loaded, Metric::Ejections, Metric::Reloads, Metric::TraceLost]
            .map(|m| m.declared().name);
    for d in metrics::METRICS.iter().filter(|d| !others.contains(&d.name)) {
        assert!(text.contains(&format!("# TYPE {} ", d.name)), "{} is not told", d.name);
    }
}

#[test]
fn nodes_of_the_plan_are_found_by_their_owners_and_weights_count_where_user_space_weighs() {
    let mut m = moment(1, 10);
    let order = m.names.tree().nodes();
    let at = |owner| order.iter().position(|n| n.owner == owner).unwrap() as u64;
    let samples = told(&mut KeptTotals::default(), &m);
    let gets = |samples: &Samples, name: &str, pool: &str, id: &str| {
        samples.get(Metric::VmEntitlement, &[name, pool, id])
    };
    let second = Some(Value::Rate((at(entitlement::Owner::Leaf(2)) + 1) << 20));
    assert_eq!(gets(&samples, "vm \"102\"", "/a/b", "2"), second);
    let b = Some(Value::Rate((at(entitlement::Owner::Pool(2)) + 1) << 20));
    assert_eq!(samples.get(Metric::PoolEntitlement, &["/a/b"]), b);
    // Where user space weighs: what the VM could get, or what it wants.
    m.host.plan_outside = 1;
    let of = |record: u32| Vm { weight: u64::from(record) << 19, ..Vm::ZERO };
    m.vms = [0, 1, 2, 3].map(|id| (id, of(id))).into();
    let nodes = m.plan.as_mut().unwrap();
    nodes.iter_mut().for_each(|n| n.demand = 1 << 20);
    let held = told(&mut KeptTotals::default(), &m);
    assert_eq!(gets(&held, "vm \"102\"", "/a/b", "2"), Some(Value::Rate(1 << 20)));
    assert_eq!(gets(&held, "vm \"101\"", "/a/b", "1"), Some(Value::Rate(1 << 19)));
    let pools = ["/a/b", "/a", "/", "/system"].map(|p| held.get(Metric::PoolEntitlement, &[p]));
    assert_eq!(pools, [3 << 19, 3 << 19, 5 << 19, 0].map(|r| Some(Value::Rate(r))));
    m.host.plan_outside = 0;
    m.plan.as_mut().unwrap().pop();
    let other = told(&mut KeptTotals::default(), &m);
    assert_eq!(
        (gets(&other, "vm \"102\"", "/a/b", "2"), other.get(Metric::PoolDemand, &["/a/b"])),
        (None, None),
        "another plan"
    );
}

#[test]
fn a_pool_keeps_what_a_vm_did_that_has_gone_and_a_slots_next_vm_begins_at_zero() {
    let mut totals = KeptTotals::default();
    told(&mut totals, &moment(1, 10));
    let mut later = moment(1, 15);
    later.names.vms[0] = vm(1, 777, "/a/b"); // another process in the slot of the first
    later.sums.insert(1, [S; SUMS]);
    let samples = told(&mut totals, &later);
    assert_eq!(samples.get(Metric::VmUsed, &["vm \"777\"", "/a/b", "1"]), Some(Value::Ns(S)));
    // 20 s of the ended one, 30 s of the second, 1 s of the new one.
    assert_eq!(pool_used(&samples, "/a/b"), Some(Value::Ns(51 * S)));
    assert_eq!(pool_used(&samples, "/a"), Some(Value::Ns(51 * S)));
    later.names.vms[1].pool = "/".to_owned();
    later.sums.insert(2, [60 * S; SUMS]);
    let moved = told(&mut totals, &later);
    assert_eq!(
        ["/", "/a/b"].map(|p| pool_used(&moved, p)),
        [131, 51].map(|s| Some(Value::Ns(s * S))),
        "what it does after its move is elsewhere"
    );
}

#[test]
fn totals_never_go_back_within_one_load_and_begin_anew_with_the_next() {
    let mut totals = KeptTotals::default();
    told(&mut totals, &moment(1, 10));
    let torn = told(&mut totals, &moment(1, 9));
    let vm = ["vm \"101\"", "/a/b", "1"];
    let all = |s: &Samples| {
        (s.get(Metric::VmUsed, &vm), s.get(Metric::PcpuBusy, &["0"]), pool_used(s, "/a/b"))
    };
    assert_eq!(
        all(&torn),
        (Some(Value::Ns(20 * S)), Some(Value::Ns(10 * S)), Some(Value::Ns(40 * S)))
    );
    let on = told(&mut totals, &moment(1, 11));
    assert_eq!(
        all(&on),
        (Some(Value::Ns(22 * S)), Some(Value::Ns(11 * S)), Some(Value::Ns(44 * S)))
    );
    let anew = told(&mut totals, &moment(2, 1));
    assert_eq!(all(&anew), (Some(Value::Ns(2 * S)), Some(Value::Ns(S)), Some(Value::Ns(4 * S))));
}

#[test]
fn what_other_threads_of_a_core_take_is_not_used_and_unknown_where_threads_are_divided() {
    let lost = |m: &Moment| {
        let samples = told(&mut KeptTotals::default(), m);
        samples.get(Metric::VmLost, &["vm \"101\"", "/a/b", "1", "smt"])
    };
    let mut m = moment(1, 10);
    m.sums.values_mut().for_each(|sums| sums[LOST] = 3 * S);
    assert_eq!(lost(&m), Some(Value::Ns(3 * S)), "cores of one thread");
    m.host.smt = 2;
    assert_eq!(lost(&m), None, "threads are divided, and nothing counts as lost");
    (m.names.cores, m.names.shared_charge) = (1, 625);
    assert_eq!(lost(&m), Some(Value::Ns(3 * S)));
    let system = Vm { used_ns: 20 * S, lost_ns: 5 * S, ..Vm::ZERO };
    m.vms.insert(sched_core::VM_SYSTEM, system);
    let samples = told(&mut KeptTotals::default(), &m);
    assert_eq!(pool_used(&samples, "/system"), Some(Value::Ns(15 * S)));
}

#[test]
fn what_runs_now_counts_as_busy() {
    let mut m = moment(1, 10);
    m.pcpus[0].1.current_world = 4;
    m.pcpus[0].1.current_since_ns = 97 * S;
    assert_eq!(
        told(&mut KeptTotals::default(), &m).get(Metric::PcpuBusy, &["0"]),
        Some(Value::Ns(13 * S))
    );
}

#[test]
fn states_exclude_each_other_and_worlds_that_are_gone_stay_in_their_vm() {
    let mut w = World {
        limited_ns: 3,
        parked_ns: 95,
        migrations: 4,
        switches: 5,
        wakeups: 6,
        expiries: 9,
        used_ns: 7,
        ..World::ZERO
    };
    w.time_ns = [100, 1, 20, 2, 30, 40, 0, 0];
    assert_eq!(of_world(&w, 100), [1, 12, 2, 8, 30, 40, 4, 5, 6, 9, 0, 0]);
    assert_eq!(of_world(&World { parked_ns: 0, ..w }, 100)[..4], [1, 17, 2, 3]);
    let (past_migrations, past_switches, past_wakeups) = (4, 5, 6);
    let past_ns = [100, 1, 20, 2, 30, 40, 0, 0];
    let v = Vm {
        past_ns,
        past_limited_ns: 3,
        past_migrations,
        past_switches,
        past_wakeups,
        past_expiries: 9,
        used_ns: 70,
        lost_ns: 15,
        ..Vm::ZERO
    };
    assert_eq!(of_past(&v), [1, 17, 2, 3, 30, 40, 4, 5, 6, 9, 55, 15]);
}

#[test]
fn reloads_are_told_by_outcome_and_none_are_zero() {
    let of = |last: Option<&Reloaded>| {
        let mut out = Samples::default();
        reloads(&mut out, last);
        ["taken", "refused"].map(|o| out.get(Metric::Reloads, &[o]))
    };
    let (file, reasons) = (None, vec![]);
    let last = Reloaded {
        number: 5,
        taken: 2,
        time_ns: 0,
        daemon: 1,
        generation: 1,
        file,
        ok: false,
        reasons,
    };
    assert_eq!(of(Some(&last)), [2, 3].map(|n| Some(Value::Count(n))));
    assert_eq!(of(None), [0, 0].map(|n| Some(Value::Count(n))));
}
