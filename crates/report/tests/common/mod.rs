//! A host of two pCPUs and two VMs for 10 ms, as a trace and as a result document; every number in
//! it can be checked by hand.

// Each test program uses a part of it.
#![allow(dead_code)]

use report::{Given, Options, Page, Run, Source};
use trace::{Event, Kind, Place, Queue, Role, State, Trace, Why};
use units::{PcpuId, VmId, WorldId};
use views::{Document, HostCounts, Pcpu, Pool, RunResult, Times, Vm, Where, World, WorldKind};

/// A name that would be markup if anything let it.
pub const EVIL: &str = "</script><img src=x onerror=document.title='owned'>";

pub const US: u64 = 1000;
pub const MS: u64 = 1_000_000;

pub fn at(ns: u64, pcpu: Option<u16>, kind: Kind) -> Event {
    Event { ns, pcpu: pcpu.map(PcpuId), kind }
}

pub fn state(ns: u64, world: u32, to: State, why: Why, on: Option<u16>) -> Event {
    let kind = Kind::State { world: WorldId(world), from: None, to, why, on: on.map(PcpuId) };
    at(ns, on, kind)
}

/// Names of host, VMs and worlds; world 1 is vcpu0 of `a`, world 2 that of `b`.
pub fn names(a: &str) -> Vec<Event> {
    let place = |smt| Kind::Pcpu { place: Place { smt, core: 0, llc: 0, node: 0 } };
    let vm = |vm, name: &str| {
        at(0, None, Kind::Vm { vm: VmId(vm), name: name.to_owned(), pool: "/gold".to_owned() })
    };
    let world = |w, vm| {
        at(
            0,
            None,
            Kind::World {
                world: WorldId(w),
                vm: VmId(vm),
                role: Role::Vcpu,
                name: "vcpu0".to_owned(),
            },
        )
    };
    vec![
        at(0, None, Kind::Host { pcpus: 2 }),
        at(0, Some(0), place(0)),
        at(0, Some(1), place(1)),
        vm(1, a),
        vm(2, "b"),
        world(1, 1),
        world(2, 2),
    ]
}

/// `a` runs 0..4, 6..8, 9.5..10 ms and is limited 8..9; `b` waits 0..4 while pCPU 1 idles, runs
/// 4..6 and halts.
pub fn events(a: &str) -> Vec<Event> {
    let account = |ns, entitled| at(ns, None, Kind::Account { vm: VmId(1), used_ns: 0, entitled });
    let mut out = names(a);
    out.extend([
        at(0, Some(1), Kind::Idle { begins: true }),
        account(0, 1 << 19),
        state(0, 1, State::Ready, Why::Born, Some(0)),
        state(0, 2, State::Ready, Why::Born, Some(0)),
        state(0, 1, State::Run, Why::Picked, Some(0)),
        state(4 * MS, 1, State::Ready, Why::Quantum, Some(0)),
        state(4 * MS, 2, State::Run, Why::Picked, Some(0)),
        account(5 * MS, 1 << 20),
        state(6 * MS, 2, State::WaitIdle, Why::Slept, Some(0)),
        state(6 * MS, 1, State::Run, Why::Picked, Some(0)),
        state(8 * MS, 1, State::Ready, Why::Parked, Some(0)),
        at(9 * MS, None, Kind::Queued { world: WorldId(1), queue: Queue::Pcpu(PcpuId(0)), key: 0 }),
        state(9500 * US, 1, State::Run, Why::Picked, Some(0)),
        at(10 * MS, None, Kind::Mark { text: "the run ends".to_owned() }),
    ]);
    out
}

pub fn trace(events: Vec<Event>) -> Trace {
    Trace { events, ..Trace::default() }
}

fn world(times: Times) -> Vec<World> {
    vec![World { name: "vcpu0".to_owned(), kind: WorldKind::Vcpu, times }]
}

/// The result that the trace of `events` has.
pub fn result(a: &str, label: &str) -> RunResult {
    let one = Times {
        used_ns: 6500 * US,
        run_ns: 6500 * US,
        ready_ns: 3500 * US,
        limited_ns: MS,
        entitled_ns: 8 * MS,
        migrations: 3,
        work: 6400 * US,
        ..Times::default()
    };
    let two = Times {
        used_ns: 2 * MS,
        run_ns: 2 * MS,
        ready_ns: 4 * MS,
        wait_ns: 4 * MS,
        idle_ns: 4 * MS,
        entitled_ns: 2 * MS,
        ..Times::default()
    };
    let vm = |name: &str, times| Vm {
        name: name.to_owned(),
        pool: "/gold".to_owned(),
        vcpus: 1,
        shares: 1000,
        times,
        cpu_stat: None,
        guest: None,
        numa: vec![],
        worlds: world(times),
    };
    let pool = |path: &str| Pool {
        path: path.to_owned(),
        used_ns: 8500 * US,
        entitled_ns: 10 * MS,
        ready_ns: 7500 * US,
        limited_ns: MS,
        ..Pool::default()
    };
    RunResult {
        label: label.to_owned(),
        duration_ns: 10 * MS,
        host: HostCounts { pcpus: 2, cores: 1, llcs: 1, nodes: 1, sockets: 1 },
        pcpus: vec![Pcpu { id: 0, busy_ns: 8500 * US }, Pcpu { id: 1, busy_ns: 0 }],
        pools: vec![pool("/"), pool("/gold")],
        vms: vec![vm(a, one), vm("b", two)],
        wakeups: vec![],
        checked: None,
    }
}

pub fn document(runs: Vec<RunResult>) -> Document {
    Document {
        scenario: "pair".to_owned(),
        place: Where::Sim,
        policy: "tandem".to_owned(),
        seed: 7,
        command: None,
        runs,
    }
}

/// Document and trace of one run, as one RUN.
pub fn both(a: &str) -> Given {
    let files = vec![
        ("r.json".to_owned(), Source::Documents(vec![document(vec![result(a, "")])])),
        ("r.trace".to_owned(), Source::Trace(Box::new(trace(events(a))))),
    ];
    Given { label: None, files }
}

pub fn paired(given: Vec<Given>) -> Vec<Run> {
    report::pair(given, &[]).expect("they belong together")
}

/// The page of these inputs, and its text.
pub fn made(given: Vec<Given>, options: &Options) -> (Page, String) {
    let page = report::build(paired(given), options);
    let text = report::page(&page);
    (page, text)
}

/// The block of JSON in a page.
pub fn block(html: &str) -> serde_json::Value {
    let json =
        html.split("<script type=\"application/json\" id=\"data\">").nth(1).expect("a block");
    serde_json::from_str(json.split("</script>").next().expect("its end")).expect("JSON")
}
