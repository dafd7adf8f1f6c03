//! Each rule of the contract, broken by hand at the boundary that the scheduler calls.

use super::*;
use contract::{Kernel as _, Rule};

/// Queues that the scheduler has created.
const FIRST: u64 = 7;
const SECOND: u64 = 3000;

/// A kernel of 4 pCPUs with worlds 1 to 3 in custody; world 2 may use pCPU 1 alone.
fn kernel() -> (Kernel, Vec<Task>) {
    let task = |world| {
        let mut task = Task { world, ..Task::ZERO };
        task.allowed[0] = if world == 2 { 0b10 } else { 0b1111 };
        task.allowed_count = task.allowed[0].count_ones();
        task
    };
    let mut kernel = Kernel::new(4, 4, Stream::new(1, "kernel"));
    kernel.seats = vec![Seat::Off, Seat::Custody, Seat::Custody, Seat::Custody];
    kernel.create_queue(SECOND);
    kernel.create_queue(FIRST);
    (kernel, (0..4).map(task).collect())
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
        k.queue_insert(t, 2, FIRST, MS, 7);
        k.context = Context::Dispatch(3);
        assert!(!k.queue_take(t, FIRST, 2));
    };
    assert_eq!(broken(Context::None, take), Some(Rule::Affinity));
}

#[test]
fn only_queues_and_pcpus_that_exist_are_named() {
    let insert = |queue| move |k: &mut Kernel, t: &mut Tasks| k.queue_insert(t, 1, queue, MS, 7);
    assert_eq!(broken(Context::Enqueue(1), insert(SECOND)), None);
    for unknown in [0, FIRST + 1, SECOND + 1, u64::MAX] {
        assert_eq!(broken(Context::Enqueue(1), insert(unknown)), Some(Rule::UnknownQueue));
    }
    let create = |id| move |k: &mut Kernel, _: &mut Tasks| k.create_queue(id);
    assert_eq!(broken(Context::None, create(QUEUES_MAX - 1)), None);
    assert_eq!(broken(Context::None, create(QUEUES_MAX)), Some(Rule::UnknownQueue));
    assert_eq!(broken(Context::None, |k, _| k.kick(3, KICK_IDLE)), None);
    assert_eq!(broken(Context::None, |k, _| k.kick(4, 0)), Some(Rule::UnknownPcpu));
    assert_eq!(broken(Context::None, |k, _| k.kick(0, 8)), Some(Rule::Context));
}

#[test]
fn a_move_to_the_local_queue_needs_a_dispatch_and_a_world_that_is_still_there() {
    let (mut k, mut tasks) = kernel();
    k.context = Context::Enqueue(1);
    k.queue_insert(&mut tasks, 1, SECOND, 5 * MS, 7);
    assert_eq!((k.queue_at(SECOND, 0), k.queue_at(SECOND, 1)), (1, 0));
    k.context = Context::Dispatch(0);
    assert!(!k.queue_take(&mut tasks, FIRST, 1), "it is in another queue");
    assert!(k.queue_take(&mut tasks, SECOND, 1));
    assert!(!k.queue_take(&mut tasks, SECOND, 1), "it has just been taken");
    assert_eq!(
        (k.seats[1], tasks[1].pcpu, tasks[1].slice_ns, tasks[1].key),
        (Seat::Local(0), 0, 5 * MS, 7)
    );
    assert_eq!(k.breach, None);
    k.context = Context::None;
    k.queue_take(&mut tasks, SECOND, 1);
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
fn worlds_are_moved_between_queues_from_dispatch_and_timers_only() {
    let queued = |k: &mut Kernel, t: &mut Tasks| {
        k.context = Context::Enqueue(1);
        k.queue_insert(t, 1, FIRST, MS, 7);
        assert_eq!(k.seats[1], Seat::Queue(FIRST as u32));
        k.context = Context::Timer;
    };
    let moved = |k: &mut Kernel, t: &mut Tasks| {
        queued(k, t);
        assert!(k.queue_move(t, FIRST, 1, SECOND) && !k.queue_move(t, FIRST, 1, SECOND));
        assert_eq!((k.seats[1], t[1].key), (Seat::Queue(SECOND as u32), 7));
    };
    assert_eq!(broken(Context::None, moved), None);
    let elsewhere = |k: &mut Kernel, t: &mut Tasks| {
        queued(k, t);
        k.context = Context::Enqueue(1);
        assert!(!k.queue_move(t, FIRST, 1, SECOND));
    };
    assert_eq!(broken(Context::None, elsewhere), Some(Rule::Context));
}

#[test]
fn what_holds_a_world_back_is_told_in_order_and_one_that_is_co_stopped_stays_so() {
    let (mut k, _) = kernel();
    k.hold(1, Hold::Limited);
    k.hold(2, Hold::Costopped);
    k.hold(2, Hold::Gang);
    assert_eq!((k.hold_of(1), k.hold_of(2)), (Hold::Limited, Hold::Costopped));
    k.hold(1, Hold::None);
    k.hold(2, Hold::None);
    let want = [
        (1, Hold::None, Hold::Limited),
        (2, Hold::None, Hold::Costopped),
        (2, Hold::Costopped, Hold::Gang),
        (1, Hold::Limited, Hold::None),
        (2, Hold::Costopped, Hold::None),
    ];
    let told: Vec<_> = k.told.iter().map(|t| (t.world, t.from, t.to)).collect();
    assert_eq!((&told[..], k.hold_of(2)), (&want[..], Hold::None));
}

#[test]
fn an_idle_pcpu_is_taken_once_the_previous_one_first() {
    let (mut k, tasks) = kernel();
    for pcpu in [0, 1, 3] {
        k.set_idle(pcpu, true);
    }
    assert_eq!(k.pick_idle(&tasks[1], 3), Some(3));
    assert_eq!(k.pick_idle(&tasks[1], 3), Some(0));
    assert_eq!(k.pick_idle(&tasks[2], 0), Some(1), "it may run there alone");
    assert_eq!(k.pick_idle(&tasks[1], 3), None);
    k.set_idle(2, true);
    assert_eq!((k.pick_idle(&tasks[2], 2), k.pick_idle(&tasks[1], 0)), (None, Some(2)));
}

#[test]
fn timers_are_numbered_below_their_number() {
    assert_eq!(broken(Context::Timer, |k, _| k.arm(TIMERS_MAX - 1, 5)), None);
    assert_eq!(broken(Context::Timer, |k, _| k.arm(TIMERS_MAX, 5)), Some(Rule::Context));
}
