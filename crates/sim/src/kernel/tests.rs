//! Each rule of the contract, broken by hand at the boundary that the scheduler calls.

use super::*;
use crate::contract::Rule;
use sched_core::{Host, PlatTask, queue_parked, queue_system, queue_vm};
use topology::{Shape, Topology};

/// A kernel of 4 pCPUs with worlds 1 to 3 in custody; world 2 may use pCPU 1 alone.
fn kernel() -> (Kernel, Vec<PlatTask>) {
    let shape = Shape {
        sockets: 1,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 4,
        threads_per_core: 1,
    };
    let mut host = Host::new(&Topology::regular(shape).expect("a host"), 1, 4, 1).expect("a host");
    for task in host.tasks_mut() {
        task.allowed[0] = if task.world == 2 { 0b10 } else { 0b1111 };
        task.allowed_count = task.allowed[0].count_ones();
    }
    let mut kernel = Kernel::new(4, 4, 2, 1, Fault::default());
    kernel.seats = vec![Seat::Off, Seat::Custody, Seat::Custody, Seat::Custody];
    (kernel, host.tasks_mut().to_vec())
}

/// The rule that `calls` break in a context, if any.
fn broken(context: Context, calls: impl Fn(&mut Kernel, &mut Tasks)) -> Option<Rule> {
    let (mut k, mut tasks) = kernel();
    k.context = context;
    calls(&mut k, &mut tasks);
    k.breach.map(|b| b.rule)
}

const MS: u64 = 1_000_000;

#[test]
fn an_insertion_is_legal_only_for_the_world_in_question_and_in_its_callbacks() {
    let insert = |world| move |k: &mut Kernel, t: &mut Tasks| k.insert_on(t, world, 3, MS, false);
    assert_eq!(broken(Context::Enqueue(1), insert(1)), None);
    assert_eq!(broken(Context::Dispatch(0), insert(1)), None);
    assert_eq!(broken(Context::None, insert(1)), Some(Rule::Context));
    assert_eq!(broken(Context::Enqueue(3), insert(1)), Some(Rule::Context));
    assert_eq!(broken(Context::Enqueue(9), insert(9)), Some(Rule::UnknownWorld));
}

#[test]
fn a_world_is_inserted_once() {
    let twice = |k: &mut Kernel, t: &mut Tasks| (0..2).for_each(|_| k.insert_local(t, 1, MS));
    assert_eq!(broken(Context::Enqueue(1), twice), Some(Rule::Custody));
    assert_eq!(broken(Context::Select(1), twice), Some(Rule::Custody));
    let once = |k: &mut Kernel, t: &mut Tasks| k.insert_local(t, 1, MS);
    assert_eq!(broken(Context::Select(1), once), None);
}

#[test]
fn local_queues_take_only_worlds_that_may_run_there() {
    let on = |pcpu| move |k: &mut Kernel, t: &mut Tasks| k.insert_on(t, 2, pcpu, MS, false);
    assert_eq!(broken(Context::Enqueue(2), on(1)), None);
    assert_eq!(broken(Context::Enqueue(2), on(0)), Some(Rule::Affinity));
    assert_eq!(broken(Context::Enqueue(2), on(4)), Some(Rule::UnknownPcpu));
    let take = |k: &mut Kernel, t: &mut Tasks| {
        k.context = Context::Enqueue(2);
        k.queue_insert(t, 2, queue_vm(3), MS, 7);
        k.context = Context::Dispatch(3);
        assert!(!k.queue_take(t, queue_vm(3), 2));
    };
    assert_eq!(broken(Context::None, take), Some(Rule::Affinity));
}

#[test]
fn only_queues_and_pcpus_that_exist_are_named() {
    let insert = |queue| move |k: &mut Kernel, t: &mut Tasks| k.queue_insert(t, 1, queue, MS, 7);
    assert_eq!(broken(Context::Enqueue(1), insert(queue_system(3))), None);
    assert_eq!(broken(Context::Enqueue(1), insert(queue_vm(4))), Some(Rule::UnknownQueue));
    assert_eq!(broken(Context::Enqueue(1), insert(queue_system(4))), Some(Rule::UnknownQueue));
    assert_eq!(broken(Context::None, |k, _| k.kick(3, KICK_IDLE)), None);
    assert_eq!(broken(Context::None, |k, _| k.kick(4, 0)), Some(Rule::UnknownPcpu));
    assert_eq!(broken(Context::None, |k, _| k.kick(0, 8)), Some(Rule::Context));
}

#[test]
fn a_move_to_the_local_queue_needs_a_dispatch_and_a_world_that_is_still_there() {
    let (mut k, mut tasks) = kernel();
    k.context = Context::Enqueue(1);
    k.queue_insert(&mut tasks, 1, queue_vm(2), 5 * MS, 7);
    assert_eq!((k.queue_at(queue_vm(2), 0), k.queue_at(queue_vm(2), 1)), (1, 0));
    k.context = Context::Dispatch(0);
    assert!(!k.queue_take(&mut tasks, queue_vm(1), 1), "it is in another queue");
    assert!(k.queue_take(&mut tasks, queue_vm(2), 1));
    assert!(!k.queue_take(&mut tasks, queue_vm(2), 1), "it has just been taken");
    assert_eq!(
        (k.seats[1], tasks[1].pcpu, tasks[1].slice_ns, tasks[1].key),
        (Seat::Local(0), 0, 5 * MS, 7)
    );
    assert_eq!(k.breach, None);
    k.context = Context::None;
    k.queue_take(&mut tasks, queue_vm(2), 1);
    assert_eq!(k.breach.map(|b| b.rule), Some(Rule::Context));
}

#[test]
fn preemption_ends_the_slice_of_the_running_world_and_takes_the_head_of_the_queue() {
    let (mut k, mut tasks) = kernel();
    k.cpus[1].current = 3;
    tasks[3].slice_ns = 50 * MS;
    k.context = Context::Enqueue(1);
    k.insert_on(&mut tasks, 1, 1, MS, false);
    assert_eq!((tasks[3].slice_ns, k.nudges.len()), (50 * MS, 0));
    k.context = Context::Enqueue(2);
    k.insert_on(&mut tasks, 2, 1, MS, true);
    assert_eq!((tasks[3].slice_ns, k.nudges.len()), (0, 1));
    assert_eq!(k.cpus[1].local, [2, 1]);
}

#[test]
fn the_first_breach_is_kept_and_names_its_time() {
    let (mut k, mut tasks) = kernel();
    k.now = 77;
    k.assert_failed("a == b", "x.h", 3);
    k.insert_local(&mut tasks, 1, MS);
    let text = k.breach.expect("a breach").to_string();
    assert_eq!(
        text,
        "host: at 77 ns: contract assertion: seen that 'a == b' does not hold at x.h:3"
    );
}

#[test]
fn worlds_are_moved_between_queues_from_dispatch_and_timers_only_and_parked_ones_are_told() {
    let parked = |k: &mut Kernel, t: &mut Tasks| {
        k.context = Context::Enqueue(1);
        k.queue_insert(t, 1, queue_parked(1), MS, 7);
        assert_eq!(
            (k.seats[1], std::mem::take(&mut k.held_back)),
            (Seat::Queue(9), vec![(1, true)])
        );
        k.context = Context::Timer;
    };
    let moved = |k: &mut Kernel, t: &mut Tasks| {
        parked(k, t);
        assert!(
            k.queue_move(t, queue_parked(1), 1, queue_vm(2))
                && !k.queue_move(t, queue_parked(1), 1, queue_vm(2))
        );
        assert_eq!(
            (k.seats[1], t[1].key, std::mem::take(&mut k.held_back)),
            (Seat::Queue(2), 7, vec![(1, false)])
        );
    };
    assert_eq!(broken(Context::None, moved), None);
    let elsewhere = |k: &mut Kernel, t: &mut Tasks| {
        parked(k, t);
        k.context = Context::Enqueue(1);
        assert!(!k.queue_move(t, queue_parked(1), 1, queue_vm(2)));
    };
    assert_eq!(broken(Context::None, elsewhere), Some(Rule::Context));
    let unknown = |k: &mut Kernel, t: &mut Tasks| k.queue_insert(t, 1, queue_parked(2), MS, 7);
    assert_eq!(broken(Context::Enqueue(1), unknown), Some(Rule::UnknownQueue));
}
