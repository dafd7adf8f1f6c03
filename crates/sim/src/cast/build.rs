//! Builds the VMs and worlds of a run from its scenario, the settings of which were checked when it
//! was read.

use super::{Actor, Cast, Vm, WorldSpec, tasks};
use crate::behaviour::{Behaviour, Link};
use crate::guest::{Guest, Lock};
use dice::Stream;
use settings::{HostTask, PlacedPool, RunSpec, VmResources, VmSpec, Workload};
use views::{Latencies, Lost};

impl Cast {
    /// The cast of a run, all worlds asleep; each world has a stream of random numbers of its own.
    pub(crate) fn new(spec: &RunSpec, pools: &[PlacedPool], system_shares: u32, seed: u64) -> Cast {
        let guests = guests(spec);
        let (specs, actors) = worlds(spec, &guests, seed);
        let tasks = tasks::of(spec, seed);
        let pause_exits = spec.host.pause_exits;
        Cast { actors, specs, vms: vms(spec, pools, system_shares), guests, tasks, pause_exits }
    }
}

/// The VMs of a run, the system group first; settings were checked when the scenario was read.
fn vms(spec: &RunSpec, pools: &[PlacedPool], system_shares: u32) -> Vec<Vm> {
    let nothing = VmResources { shares: system_shares, ..VmResources::POOL };
    let pool = |vm: &VmSpec| {
        vm.pool.as_ref().and_then(|name| pools.iter().position(|p| p.name == *name)).unwrap_or(0)
    };
    let mut next = 1;
    let mut range = |n: u32| {
        let first = next;
        next += n;
        first..next
    };
    let of = |vm: &VmSpec, worlds| Vm {
        name: vm.name.clone(),
        pool: pool(vm),
        resources: vm.resources(spec.host.mhz).unwrap_or(nothing),
        vcpus: vm.vcpus,
        allowed: (0..vm.vcpus as usize)
            .map(|i| vm.allowed(i))
            .reduce(|a, b| Some(a?.or(&b?)))
            .flatten(),
        worlds,
        later: vm.hot_add.len() as u32,
        on: false,
        live: 0,
    };
    let mut vms: Vec<Vm> = spec.vms.iter().map(|vm| of(vm, range(vm.vcpus))).collect();
    let worlds = range(spec.host_tasks.len() as u32);
    vms.insert(
        0,
        Vm {
            name: "system".to_owned(),
            pool: 0,
            resources: nothing,
            vcpus: 0,
            allowed: None,
            worlds,
            later: 0,
            on: true,
            live: 0,
        },
    );
    vms
}

/// Number of worlds of a run, world 0 included.
pub(crate) fn count(spec: &RunSpec) -> usize {
    1 + spec.vms.iter().map(|v| v.vcpus as usize).sum::<usize>() + spec.host_tasks.len()
}

/// The worlds of a run: their descriptions and behaviours by id, world 0 standing for none.
fn worlds(spec: &RunSpec, guests: &[Guest], seed: u64) -> (Vec<WorldSpec>, Vec<Actor>) {
    let mut specs =
        vec![WorldSpec { name: String::new(), allowed: None, index: 0, kthread: false, nice: 0 }];
    let actor = |workload, link, stream: &str, vm, vcpu| Actor {
        behaviour: Behaviour::new(workload, link, Stream::new(seed, stream)),
        work: 0,
        lost: spec.hardware().map(|_| Lost::default()),
        spun: 0,
        spins: false,
        sibling: None,
        ready_since: 0,
        due: None,
        late: Latencies::default(),
        waited: spec.host.wake_path.map(|_| Box::default()),
        vm,
        vcpu,
        tasked: false,
    };
    let mut actors = vec![actor(Workload::Idle, Link::default(), "", 0, false)];
    let mut of_vms = vm_links(&spec.vms).into_iter();
    for (vm, v) in spec.vms.iter().enumerate() {
        for i in 0..v.vcpus as usize {
            let name = format!("vcpu{i}");
            let stream = format!("{}/{name}", v.name);
            let link = of_vms.next().unwrap_or_default();
            let vcpu = actor(v.workload_of(i), link, &stream, vm as u32 + 1, true);
            let (sibling, tasked) = (guests[vm + 1].on.then(Box::default), v.guest.is_some());
            actors.push(Actor { sibling, tasked, ..vcpu });
            specs.push(WorldSpec {
                name,
                allowed: v.allowed(i),
                index: i as u32,
                kthread: false,
                nice: 0,
            });
        }
    }
    let links = links(&spec.host_tasks, actors.len() as u32);
    for (t, link) in spec.host_tasks.iter().zip(links) {
        actors.push(actor(t.workload, link, &t.name, 0, false));
        specs.push(WorldSpec {
            name: t.name.clone(),
            allowed: t.affinity.clone(),
            index: 0,
            kthread: t.per_cpu_kthread,
            nice: t.nice,
        });
    }
    (specs, actors)
}

/// The place of each task in its ring; `world` is the world of the first task. Rings are whole, and
/// the tasks of a ring follow one another.
fn links(tasks: &[HostTask], world: u32) -> Vec<Link> {
    let mut links = vec![];
    while let Some(task) = tasks.get(links.len()) {
        let Workload::Pipe { ring, .. } = task.workload else {
            links.push(Link::default());
            continue;
        };
        let begin = links.len();
        let end = tasks.len().min(begin + ring.max(1) as usize);
        let link = |at: usize| {
            let next = if at + 1 == end { begin } else { at + 1 };
            Link { next: world + next as u32, first: at == begin }
        };
        links.extend((begin..end).map(link));
    }
    links
}

/// The place of each vCPU in its ring of VMs, in the order of worlds: it hands over to the vCPU of
/// its own number in the next VM. Rings are whole, their VMs are alike and follow one another; any
/// other VM is alone.
fn vm_links(vms: &[VmSpec]) -> Vec<Link> {
    let ring = |vm: &VmSpec| {
        let of = |i: u32| match vm.workload_of(i as usize) {
            Workload::Pipe { ring, .. } => Some(ring.max(1) as usize),
            _ => None,
        };
        (0..vm.vcpus).find_map(of).unwrap_or(1)
    };
    let (mut links, mut at) = (vec![], 0);
    while let Some(vm) = vms.get(at) {
        let size = ring(vm).min(vms.len() - at) as u32;
        let begin = 1 + links.len() as u32;
        for n in 0..size {
            let next = begin + (n + 1) % size * vm.vcpus;
            links.extend((0..vm.vcpus).map(|i| Link { next: next + i, first: n == 0 }));
        }
        at += size as usize;
    }
    links
}

/// What vCPUs of each VM share, by VM; the system group shares nothing.
fn guests(spec: &RunSpec) -> Vec<Guest> {
    let guest = |vm: &VmSpec| {
        let all = || (0..vm.vcpus as usize).map(|i| vm.workload_of(i));
        Guest {
            on: vm.watchdog.is_some() || all().any(|w| w.has_siblings()),
            watchdog: vm.watchdog.map_or(u64::MAX, |w| w.ns()),
            lock: Lock::new(all().any(|w| matches!(w, Workload::Spinlock { ticket: true, .. }))),
            ..Guest::default()
        }
    };
    std::iter::once(Guest::default()).chain(spec.vms.iter().map(guest)).collect()
}
