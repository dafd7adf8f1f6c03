//! A new host as the scheduler finds it, sizes that are refused, and worlds that are gone.

use super::*;
use crate::{ENQUEUE_WAKEUP, KIND_HELPER, KIND_TASK, KIND_VCPU, NoKernel, VM_SYSTEM};
use crate::{KICK_IDLE, KICK_PREEMPT, Tasks, WORLD_NEW, WORLD_RESTRICTED, WORLD_STAYS, queue_vm};
use topology::Shape;

fn one_pcpu() -> Topology {
    Topology::regular(Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 1,
        threads_per_core: 1,
    })
    .expect("a topology")
}

#[test]
fn a_new_host_keeps_the_virtual_times_that_the_scheduler_set() {
    let shape = Shape {
        sockets: 2,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 2,
        threads_per_core: 2,
    };
    let host = Host::new(&Topology::regular(shape).expect("a topology"), 2, 3, 1).expect("a host");
    let v = host.record().v_ns;
    for id in 0..8 {
        let p = host.pcpu(id);
        assert_eq!((p.id, p.system_v_ns), (id, v));
        assert_eq!((p.wait_key, p.best_key), (u64::MAX, u64::MAX));
    }
    assert_eq!((host.record().pcpus, host.record().clusters, host.record().smt), (8, 2, 2));
    assert_eq!((host.cluster(1).pcpu[0], host.task(2).world), (4, 2));
}

#[test]
fn sizes_beyond_the_caps_are_refused_with_the_cap() {
    let topology = one_pcpu();
    let text = |vms, worlds| Host::new(&topology, vms, worlds, 1).err().map(|e| e.to_string());
    assert_eq!(text(1025, 1).as_deref(), Some("host: cannot hold 1025 VMs: allowed 1..1024"));
    assert_eq!(text(1, 0).as_deref(), Some("host: cannot hold 0 worlds: allowed 1..1048576"));
}
#[test]
fn what_worlds_did_that_are_gone_stays_in_their_vm() {
    let mut host = Host::new(&one_pcpu(), 1, 3, 1).expect("a host");
    for world in [1, 2] {
        host.world_start(&mut NoKernel, world);
        let w = host.world_mut(world);
        (w.migrations, w.switches, w.wakeups, w.limited_ns, w.used_ns) = (1, 20, 300, 4000, 50_000);
        host.world_exit(&mut NoKernel, world);
    }
    let v = host.vm(0);
    let past =
        (v.past_migrations, v.past_switches, v.past_wakeups, v.past_limited_ns, v.past_used_ns);
    assert_eq!(past, (2, 40, 600, 8000, 100_000));
}

/// A world wakes, and runs from `now` on.
fn begins(host: &mut Host, world: u32, now: u64) {
    host.set_now(now);
    host.runnable(&mut NoKernel, world);
    host.enqueue(&mut NoKernel, world, ENQUEUE_WAKEUP);
    host.task_mut(world).slice_ns = 5_000_000;
    host.running(&mut NoKernel, world);
}

/// The same for a ms; then it sleeps.
fn runs(host: &mut Host, world: u32, now: u64) {
    begins(host, world, now);
    host.set_now(now + 1_000_000);
    host.stopping(&mut NoKernel, world, false);
    host.quiescent(&mut NoKernel, world, true);
}

#[test]
fn worlds_of_a_vm_become_host_tasks_again_and_their_vm_is_empty() {
    let mut host = Host::new(&one_pcpu(), 2, 3, 1).expect("a host");
    host.set_now(1_000_000_000);
    (0..2).for_each(|vm| host.vm_weight(vm, units::Rate::ONE.0 / 2, 2, 1000));
    for world in [1, 2] {
        let task = host.task_mut(world);
        task.allowed = [u64::MAX; 16];
        task.allowed_count = 1;
        host.world_mut(world).nice_weight = 100;
        host.world_start(&mut NoKernel, world);
    }
    let worlds = |host: &Host| (host.vm(0).worlds, host.vm(1).worlds);
    for (world, index) in [(1, 0), (2, 1)] {
        host.vm_bind(world, 1, KIND_VCPU, index);
        runs(&mut host, world, 2_000_000_000 + u64::from(index) * 10_000_000);
    }
    assert_eq!(worlds(&host), (0, 2));
    let used = host.vm(1).used_ns;
    for world in [1, 2] {
        host.vm_bind(world, VM_SYSTEM, KIND_TASK, 0);
        runs(&mut host, world, 3_000_000_000 + u64::from(world) * 10_000_000);
        let w = host.world(world);
        assert_eq!((w.vm, w.kind, host.vm(1).runnable), (VM_SYSTEM, KIND_TASK, 0));
    }
    assert_eq!((worlds(&host), host.vm(1).used_ns), ((2, 0), used));
    assert!(used > 0 && host.vm(0).used_ns > 0);
}

#[test]
fn a_helper_does_not_end_that_a_world_has_its_core_alone_and_another_vcpu_does() {
    let core = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 1,
        threads_per_core: 2,
    };
    let mut host =
        Host::new(&Topology::regular(core).expect("a topology"), 3, 4, 1).expect("a host");
    host.set_knobs(&Knobs { shared_charge: 625, ..*host.knobs() });
    host.set_now(1_000_000_000);
    (0..3).for_each(|vm| host.vm_weight(vm, units::Rate::ONE.0 / 2, 2, 1000));
    for (world, vm, kind) in [(1, 1, KIND_VCPU), (2, 2, KIND_VCPU), (3, 2, KIND_HELPER)] {
        let task = host.task_mut(world);
        (task.allowed, task.allowed_count) = ([u64::MAX; 16], 2);
        host.world_mut(world).nice_weight = 100;
        host.world_start(&mut NoKernel, world);
        host.vm_bind(world, vm, kind, 0);
    }
    // The first world has the core: it waits for its first thread, and the second one is kept.
    (host.pcpu_mut(0).whole, host.cluster_mut(0).kept) = (1, 0b10);
    let kept = |host: &Host| (host.pcpu(0).whole, host.cluster(0).kept);
    runs(&mut host, 3, 2_000_000_000);
    assert_eq!(kept(&host), (1, 0b10));
    runs(&mut host, 2, 2_010_000_000);
    assert_eq!(kept(&host), (0, 0));
}

/// A kernel with one queue, of the second pCPU.
#[derive(Default)]
struct Second {
    waits: Vec<u32>,
    kicks: Vec<(u32, u32)>,
    arms: Vec<(u32, u64)>,
}

impl Platform for Second {
    fn insert_local(&mut self, _: &mut Tasks, _: u32, _: u64) {}
    fn insert_on(&mut self, _: &mut Tasks, _: u32, _: u32, _: u64, _: bool) {}
    fn queue_insert(&mut self, tasks: &mut Tasks, world: u32, queue: u64, slice: u64, key: u64) {
        assert_eq!(queue, queue_vm(1));
        (tasks[world as usize].slice_ns, tasks[world as usize].key) = (slice, key);
        self.waits.push(world);
    }
    fn local_length(&mut self, _: u32) -> u32 {
        0
    }
    fn queue_at(&mut self, queue: u64, i: u32) -> u32 {
        let waits = if queue == queue_vm(1) { &self.waits[..] } else { &[] };
        waits.get(i as usize).copied().unwrap_or(0)
    }
    fn queue_take(&mut self, _: &mut Tasks, _: u64, world: u32) -> bool {
        let before = self.waits.len();
        self.waits.retain(|w| *w != world);
        self.waits.len() < before
    }
    fn queue_move(&mut self, _: &mut Tasks, _: u64, _: u32, _: u64) -> bool {
        false
    }
    fn kick(&mut self, pcpu: u32, flags: u32) {
        self.kicks.push((pcpu, flags));
    }
    fn arm(&mut self, timer: u32, after_ns: u64) {
        self.arms.push((timer, after_ns));
    }
    fn assert_failed(&mut self, what: &str, file: &str, line: u32) {
        panic!("{what} at {file}:{line}");
    }
}

/// Two pCPUs of a core each, in two clusters of one LLC or of two; worlds 1 and 2 of VMs 1 and 2.
fn two_clusters(one_llc: bool) -> Host {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 2,
        cores_per_llc: 1,
        threads_per_core: 1,
    };
    let topology = Topology::regular(shape).expect("a topology");
    let mut host = Host::new(&topology, 3, 3, 1).expect("a host");
    if one_llc {
        host.cluster_mut(1).llc = host.cluster(0).llc;
        (0..2).for_each(|c| host.cluster_mut(c).nears_of_llc = 1);
    }
    host.set_now(1_000_000_000);
    (0..3).for_each(|vm| host.vm_weight(vm, units::Rate::ONE.0, 1, 1000));
    for (world, vm) in [(1, 1), (2, 2)] {
        let task = host.task_mut(world);
        (task.allowed, task.allowed_count, task.pcpu) = ([u64::MAX; 16], 2, world as i32 - 1);
        host.world_mut(world).nice_weight = 100;
        host.world_start(&mut NoKernel, world);
        host.vm_bind(world, vm, KIND_VCPU, 0);
    }
    host
}

/// pCPU 0 has just run world 1, which slept for `slept_us` before, and world 2 has waited at 1 for
/// `waited_us`.
fn beside_one_that_waits(one_llc: bool, slept_us: u64, waited_us: u64) -> (Host, Second) {
    let (mut host, end) = (two_clusters(one_llc), 2_000_000_000);
    let mut kernel = Second::default();
    begins(&mut host, 1, end - 1_000_000);
    host.world_mut(1).slept_ns = slept_us * 1000;
    (0..2).for_each(|c| host.cluster_mut(c).idle = 0);
    waits(&mut host, &mut kernel, end - waited_us * 1000);
    host.set_now(end);
    host.stopping(&mut NoKernel, 1, false);
    host.quiescent(&mut NoKernel, 1, true);
    host.dispatch(&mut kernel, 0, 1);
    (host, kernel)
}

/// World 2 waits at the second pCPU from now on.
fn waits(host: &mut Host, kernel: &mut Second, now: u64) {
    host.set_now(now);
    host.runnable(kernel, 2);
    host.enqueue(kernel, 2, ENQUEUE_WAKEUP);
    assert_eq!(kernel.waits, [2]);
    kernel.kicks.clear();
}

#[test]
fn a_pcpu_whose_world_comes_back_in_a_moment_leaves_one_of_another_llc_where_it_waits() {
    let (mut host, mut kernel) = beside_one_that_waits(false, 200, 100);
    assert_eq!(kernel.waits, [2]);
    assert_eq!(kernel.arms, [(crate::tandem::LOOK, 500_000)]);
    assert_eq!(host.cluster(0).idle, 1, "others may wake it meanwhile");

    // Its world comes back before the timer, which finds a busy pCPU then.
    let mut busy = beside_one_that_waits(false, 200, 100);
    begins(&mut busy.0, 1, 2_000_200_000);
    busy.0.look(&mut busy.1, 0);
    assert_eq!((busy.1.waits.as_slice(), busy.1.kicks.as_slice()), (&[2][..], &[][..]));

    // It does not; what waits has come anew.
    host.idle(&mut kernel, 0, true);
    kernel.waits.clear();
    host.quiescent(&mut NoKernel, 2, true);
    waits(&mut host, &mut kernel, 2_000_400_000);
    host.set_now(2_000_500_000);
    host.look(&mut kernel, 0);
    assert_eq!(kernel.kicks, [(0, KICK_IDLE)]);
    host.dispatch(&mut kernel, 0, 0);
    assert!(kernel.waits.is_empty() && kernel.arms.len() == 1);

    for (one_llc, slept_us, waited_us, why) in [
        (true, 200, 100, "in the same LLC"),
        (false, 600, 100, "it sleeps for longer"),
        (false, 0, 100, "it has not slept before"),
        (false, 200, 600, "the other one has waited for a moment"),
    ] {
        let (_, kernel) = beside_one_that_waits(one_llc, slept_us, waited_us);
        assert!(kernel.waits.is_empty() && kernel.arms.is_empty(), "{why}");
    }
}

#[test]
fn wake_ups_between_vms_are_counted_for_those_that_wake_most() {
    let mut host = Host::new(&one_pcpu(), 8, 9, 1).expect("a host");
    host.set_now(1_000_000_000);
    (0..8).for_each(|vm| host.vm_weight(vm, units::Rate::ONE.0 / 8, 2, 1000));
    // World n is of VM n, and the last one of VM 1 too.
    for world in 1..9 {
        let task = host.task_mut(world);
        (task.allowed, task.allowed_count) = ([u64::MAX; 16], 1);
        host.world_start(&mut NoKernel, world);
        host.vm_bind(world, if world == 8 { 1 } else { world % 7 }, KIND_VCPU, world / 8);
        begins(&mut host, world, 1_000_000_000 + u64::from(world));
        host.stopping(&mut NoKernel, world, false);
        host.quiescent(&mut NoKernel, world, true);
    }
    let mut woken = |by: &[u32], homes: u32| {
        host.native_mut().host.homes = homes;
        for waker in by {
            host.set_cause(Some(0), *waker);
            host.select(&mut NoKernel, 1, 0, -1);
        }
        let mut talks: Vec<(u32, u64)> = host.vm(1).talks().collect();
        talks.sort_unstable();
        let record = host.vm_mut(1);
        let counted: u64 = record.talks.iter().map(|n| u64::from(*n)).sum();
        assert_eq!(counted, talks.iter().map(|(_, n)| n).sum::<u64>(), "a host task has a slot");
        (record.talks_with, record.talks) = ([0; _], [0; _]);
        talks
    };
    assert_eq!(woken(&[2, 2], 0), [], "no VM has a home");
    // By an interrupt, by its own VM, by a host task.
    assert_eq!(woken(&[0, 8, 7, 2, 3, 2], 1), [(2, 2), (3, 1)]);
    // The fifth VM takes over the slot with the least count, and the sixth does so after it.
    assert_eq!(woken(&[2, 2, 3, 3, 4, 5, 5, 6], 1), [(2, 2), (3, 2), (5, 2), (6, 2)]);
    // One in three by the same: it is there whatever the others do.
    let most: Vec<u32> = (0..60).map(|n| if n % 3 == 0 { 2 } else { 3 + n % 4 }).collect();
    let all = woken(&most, 1);
    let of = all.iter().find(|(vm, _)| *vm == 2).map(|(_, times)| *times);
    assert!(of.is_some_and(|times| (20..35).contains(&times)), "{all:?}");
    assert_eq!(all.iter().map(|(_, times)| times).sum::<u64>(), 60);
}

/// World 2 wakes, which ran last on pCPU 1, for `ran_us`. World 1 runs there now, and pCPU 0 has
/// idled for `idle_us`; `also` is done before.
fn wakes_beside_an_idle_one(
    one_llc: bool,
    ran_us: u64,
    idle_us: u64,
    also: fn(&mut Host),
) -> (Host, Second, i32) {
    let (mut host, now) = (two_clusters(one_llc), 2_000_000_000);
    begins(&mut host, 2, now - 10_000_000);
    host.set_now(now - 10_000_000 + ran_us * 1000);
    host.stopping(&mut NoKernel, 2, false);
    host.quiescent(&mut NoKernel, 2, true);
    host.task_mut(1).pcpu = 1;
    begins(&mut host, 1, now - 1_000_000);
    (host.cluster_mut(0).idle, host.cluster_mut(1).idle) = (1, 0);
    host.pcpu_mut(0).core_idle_since_ns = now - idle_us * 1000;
    host.set_now(now);
    let mut kernel = Second::default();
    host.world_mut(2).flags &= !WORLD_NEW;
    also(&mut host);
    let to = host.select(&mut kernel, 2, 1, -1);
    (host, kernel, to)
}

/// A look at the second pCPU, a moment later.
const LOOK: (u32, u64) = (crate::tandem::LOOK + 1, 500_000);

#[test]
fn a_world_that_wakes_for_less_than_caches_take_to_fill_waits_in_its_llc_for_a_moment() {
    let nothing = |_: &mut Host| ();
    let (mut host, mut kernel, to) = wakes_beside_an_idle_one(false, 300, 500, nothing);
    assert_eq!((to, host.cluster(0).idle), (1, 1));
    waits(&mut host, &mut kernel, 2_000_000_000);
    assert_eq!((kernel.arms.as_slice(), host.world(2).flags & WORLD_STAYS), (&[LOOK][..], 0));
    // It comes again before the look, which is under way, and once more after it.
    let again = |host: &mut Host, kernel: &mut Second, at: u64| {
        host.quiescent(&mut NoKernel, 2, true);
        kernel.waits.clear();
        host.set_now(at);
        assert_eq!(host.select(kernel, 2, 1, -1), 1);
        waits(host, kernel, at);
    };
    again(&mut host, &mut kernel, 2_000_400_000);
    assert_eq!(kernel.arms, [LOOK]);
    host.set_now(2_000_500_000);
    assert_eq!(host.look(&mut kernel, 1), 100_000, "that pCPU may take another world");
    assert_eq!(kernel.kicks, [(0, KICK_IDLE)]);
    assert_eq!(host.look(&mut kernel, 1), 0, "none idles");
    host.cluster_mut(0).idle = 1;
    host.pcpu_mut(0).core_idle_since_ns = 2_000_550_000;
    again(&mut host, &mut kernel, 2_000_600_000);
    assert_eq!(kernel.arms, [LOOK, LOOK]);
    // One that is lost holds none back for long.
    host.pcpu_mut(1).looks_ns -= 10_000_000;
    again(&mut host, &mut kernel, 2_000_700_000);
    assert_eq!(kernel.arms, [LOOK, LOOK, LOOK]);
    // Counted, but not in the queue yet: another look follows.
    kernel.waits.clear();
    host.set_now(2_001_200_000);
    assert_eq!((host.look(&mut kernel, 1), kernel.kicks.len()), (100_000, 0));

    // However many wait there it queues at no pCPU of another LLC.
    let (_, _, to) = wakes_beside_an_idle_one(false, 300, 500, |h| h.pcpu_mut(1).waits_vm = 8);
    assert_eq!(to, 1);

    // A pCPU is kicked for it, which may take another.
    let (mut host, mut kernel, _) = wakes_beside_an_idle_one(false, 300, 500, nothing);
    host.pcpu_mut(1).current_key = u64::MAX / 2;
    host.runnable(&mut kernel, 2);
    host.enqueue(&mut kernel, 2, ENQUEUE_WAKEUP);
    assert_eq!((kernel.kicks, kernel.arms), (vec![(1, KICK_PREEMPT)], vec![LOOK]));
}

#[test]
fn a_world_that_has_no_caches_to_keep_takes_an_idle_pcpu_of_another_llc_at_once() {
    type Case = (bool, u64, u64, fn(&mut Host), &'static str);
    let nothing = |_: &mut Host| ();
    let cases: [Case; 7] = [
        (true, 300, 500, nothing, "in the same LLC"),
        (false, 1_100, 500, nothing, "it fills caches anew"),
        (false, 300, 1_100, nothing, "that pCPU has idled for long"),
        (
            false,
            300,
            500,
            |h| h.world_mut(2).flags |= WORLD_RESTRICTED,
            "it may not run everywhere",
        ),
        (false, 300, 500, |h| h.world_mut(2).last_pcpu = 0, "it ran last elsewhere"),
        (false, 300, 500, |h| h.world_mut(2).vm = VM_SYSTEM, "a host task"),
        (
            false,
            300,
            500,
            |h| (h.native_mut().host.homes, h.world_mut(2).home) = (1, 1),
            "its home",
        ),
    ];
    for (one_llc, ran_us, idle_us, also, why) in cases {
        let (host, _, to) = wakes_beside_an_idle_one(one_llc, ran_us, idle_us, also);
        assert_eq!((to, host.cluster(0).idle), (0, 0), "{why}");
    }
}

#[test]
fn a_look_at_a_pcpu_that_idles_wakes_it_to_pull_if_anything_waits() {
    let idles = |queued: u64| {
        let (mut host, mut kernel, _) = wakes_beside_an_idle_one(false, 300, 500, |_| ());
        host.stopping(&mut NoKernel, 1, false);
        host.quiescent(&mut NoKernel, 1, true);
        (host.cluster_mut(1).idle, host.cluster_mut(0).queued) = (1, queued);
        (host.look(&mut kernel, 1), kernel.kicks)
    };
    assert_eq!((idles(0), idles(1)), ((0, vec![]), (0, vec![(1, KICK_IDLE)])));
}
