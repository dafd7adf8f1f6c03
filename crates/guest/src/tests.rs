//! What a guest's scheduler does on vCPUs that all run whenever they want to.

use super::*;

const MS: u64 = 1_000_000;

fn terms(vcpus: u32, shown: Option<Shown>) -> Terms {
    Terms {
        vcpus,
        shown,
        exec_balance: true,
        exec_counts_itself: true,
        wake_wide: false,
        steal: false,
        tick_ns: 4 * MS,
        switch_ns: 1_000,
        tick_cost_ns: 1_000,
        send_ns: 2_000,
        receive_ns: 1_000,
    }
}

fn one_llc(vcpus: u32) -> Option<Shown> {
    Some(Shown { threads_per_core: 1, vcpus_per_llc: vcpus })
}

fn kernel(terms: Terms, programs: &[Program]) -> Kernel {
    let task = |(i, program): (usize, &Program)| TaskTerms {
        name: format!("t{i}"),
        program: *program,
        spread: Spread::Fixed,
        set: 0,
    };
    let tasks: Vec<TaskTerms> = programs.iter().enumerate().map(task).collect();
    Kernel::new(terms, &tasks, |name| Stream::new(1, name))
}

/// Runs a guest up to a moment, each vCPU on a pCPU of its own: CPU time of each.
fn run(k: &mut Kernel, until: u64) -> Vec<u64> {
    let n = k.terms.vcpus as usize;
    // Of each vCPU: when it is asked next, and since when it works.
    let mut at: Vec<(u64, Option<u64>)> = vec![(0, None); n];
    let mut used = vec![0; n];
    while let Some((now, v)) = (0..n).map(|v| (at[v].0, v)).min().filter(|x| x.0 < until) {
        if let Some(since) = at[v].1 {
            k.worked(v as u32, now - since);
            used[v] += now - since;
        }
        at[v] = match k.next(v as u32, now) {
            Step::Work(ns) => (now.saturating_add(ns), Some(now)),
            Step::Halt(until) => (until.unwrap_or(u64::MAX), None),
        };
        for effect in k.take_effects() {
            match effect {
                Effect::Interrupt(to) => at[to as usize].0 = now,
                Effect::Timer(to) if at[to as usize].1.is_none() => {
                    let due = k.timer_of(to).unwrap_or(u64::MAX);
                    at[to as usize].0 = at[to as usize].0.min(due);
                }
                Effect::Timer(to) => at[to as usize].0 = now,
            }
        }
    }
    used
}

#[test]
fn an_exec_moves_the_task_to_the_idle_vcpu_if_execs_are_balanced_and_not_otherwise() {
    let exec = [Program::Exec { work: MS }];
    for shown in [None, one_llc(2)] {
        let mut moves = kernel(terms(2, shown), &exec);
        run(&mut moves, 100 * MS);
        let (execs, c) = (moves.rounds().map(|r| r.1).sum::<u64>(), moves.counts());
        assert!((95..100).contains(&execs) && c.exec_migrations >= execs - 1, "{execs} {c:?}");
        assert!(c.interrupts >= execs - 1, "the other vCPU was halted: {c:?}");
        let mut stays = kernel(Terms { exec_balance: false, ..terms(2, shown) }, &exec);
        let used = run(&mut stays, 100 * MS);
        assert_eq!((stays.counts(), used[1]), (Counts::default(), 0));
    }
}

#[test]
fn an_exec_that_is_no_load_itself_leaves_a_vcpu_for_an_idler_one_only_if_others_are_there() {
    let of = Terms { exec_counts_itself: false, ..terms(2, one_llc(2)) };
    let mut k = kernel(of.clone(), &[Program::Exec { work: MS }]);
    let used = run(&mut k, 100 * MS);
    assert_eq!((k.counts(), used[1]), (Counts::default(), 0), "alone it stays");
    // Another task is on its vCPU, and none on the other.
    let mut k = kernel(of, &[Program::Exec { work: MS }, Program::Burn]);
    k.vcpus[1].queue.clear();
    k.enqueue(1, 0);
    k.next(0, 0);
    assert_eq!(k.place_exec(0), 1);
}

#[test]
fn where_no_cache_is_shared_two_that_pass_a_token_are_not_drawn_to_one_vcpu_if_wake_ups_are_wide() {
    let pipe = |next, first| Program::Pipe { work: 100_000, next, first };
    let each = |shown, wake_wide| {
        let of = Terms { wake_wide, ..terms(2, shown) };
        let mut k = kernel(of, &[pipe(1, true), pipe(0, false)]);
        // Flips are halved each second; the kernel's own wake-ups renew them.
        run(&mut k, 4_000 * MS);
        let rounds: u64 = k.rounds().map(|r| r.1).sum();
        assert!(rounds > 30_000, "{rounds}");
        k.counts().interrupts as f64 / rounds as f64
    };
    assert!(each(None, false) < 0.01, "both on one vCPU");
    assert!((each(None, true) - 1.0).abs() < 0.01, "each hand-over wakes the other vCPU");
    assert_eq!(each(one_llc(2), true), each(one_llc(2), false), "two are no more than the LLC has");
}

#[test]
fn a_task_whose_waker_is_busy_wakes_on_an_idle_core_of_the_llc_that_is_shown() {
    let woken = |vcpus, shown| {
        let io = Program::Io { work: MS, sleep: MS, interrupts: Some(0) };
        let mut k = kernel(terms(vcpus, shown), &[Program::Burn, io]);
        k.next(0, 0);
        // The task slept on vCPU 0.
        k.vcpus[1].queue.clear();
        k.tasks[1].vcpu = 0;
        k.place_wake(1, 0, false)
    };
    assert_eq!(woken(4, Some(Shown { threads_per_core: 2, vcpus_per_llc: 4 })), 2);
    assert_eq!(woken(4, one_llc(4)), 1);
    assert_eq!(woken(4, None), 0, "without a shared cache no other vCPU is looked at");
    assert_eq!(woken(4, one_llc(1)), 0, "nor one of another LLC");
}

#[test]
fn a_waker_draws_a_task_from_a_vcpu_only_if_its_own_is_less_loaded_with_it() {
    // The task slept on vCPU 1 and is woken from vCPU 0; without a shared cache it goes to one of
    // these.
    let woken = |here, there, sync| {
        let io = Program::Io { work: MS, sleep: MS, interrupts: Some(0) };
        let mut k = kernel(terms(2, None), &[io, Program::Burn, Program::Burn, Program::Burn]);
        let burners = |n: u32, from: u32| (from..from + n).collect::<Vec<u32>>();
        k.vcpus[0].queue = burners(here, 1);
        k.vcpus[1].queue = burners(there, 1 + here);
        k.tasks[0].vcpu = 1;
        k.place_wake(0, 0, sync)
    };
    assert_eq!([woken(0, 0, false), woken(1, 0, false), woken(1, 0, true)], [0, 1, 0]);
    assert_eq!([woken(1, 1, false), woken(1, 2, false), woken(2, 1, false)], [1, 0, 1]);
}

#[test]
fn a_wake_up_on_a_busy_vcpu_interrupts_it_only_if_no_cache_is_shared_with_it() {
    let woken = |shown| {
        let io = Program::Io { work: MS, sleep: MS, interrupts: Some(0) };
        let mut k = kernel(terms(2, shown), &[Program::Burn, Program::Burn, io]);
        k.next(0, 0);
        k.next(1, 0);
        k.vcpus[0].queue.clear();
        // The task slept on vCPU 1, with as much virtual time as what runs there.
        (k.tasks[2].vcpu, k.tasks[2].asleep) = (1, true);
        k.wake(2, 0, false, 0);
        (k.vcpu_of(2), k.counts().interrupts)
    };
    assert_eq!([woken(one_llc(2)), woken(None)], [(1, 0), (1, 1)]);
}

#[test]
fn a_vcpu_that_goes_idle_takes_a_task_that_waits_elsewhere() {
    let io = Program::Io { work: 20 * MS, sleep: 500 * MS, interrupts: None };
    let mut k = kernel(terms(2, one_llc(2)), &[Program::Burn, io, Program::Burn]);
    run(&mut k, 18 * MS);
    assert_eq!((k.vcpu_of(0), k.vcpu_of(2), k.counts().pulls), (0, 0, 0));
    let used = run(&mut k, 100 * MS);
    assert_eq!(k.counts().pulls, 1);
    assert_ne!(k.vcpu_of(0), k.vcpu_of(2));
    assert!(used[1] > 70 * MS, "{used:?}");
}

#[test]
fn a_halted_vcpu_is_interrupted_at_a_tick_to_take_a_task_that_waits() {
    let short = Program::Io { work: 1_000, sleep: 500 * MS, interrupts: None };
    let mut k = kernel(terms(2, None), &[Program::Burn, short, Program::Burn]);
    // At its first end the vCPU has idled too little on average to look for work itself.
    k.vcpus[1].average_idle = 0;
    run(&mut k, 40 * MS);
    assert_ne!(k.vcpu_of(0), k.vcpu_of(2));
    assert!(k.counts().interrupts >= 1, "{:?}", k.counts());
}

#[test]
fn stolen_time_is_charged_to_the_task_unless_it_is_reported() {
    for (steal, charged) in [(false, 3 * MS), (true, MS)] {
        let mut k = kernel(Terms { steal, ..terms(1, None) }, &[Program::Burn]);
        k.next(0, 0);
        k.worked(0, MS);
        k.stolen(0, 2 * MS);
        k.next(0, 3 * MS);
        assert_eq!(k.tasks[0].vruntime, charged);
    }
}

#[test]
fn tasks_of_one_vcpu_share_it_and_a_woken_one_runs_before_one_that_has_run_longer() {
    let io = Program::Io { work: 100_000, sleep: 10 * MS, interrupts: None };
    let mut k = kernel(terms(1, None), &[Program::Burn, io, Program::Burn]);
    run(&mut k, 1_000 * MS);
    let rounds: Vec<u64> = k.rounds().map(|r| r.1).collect();
    assert!(rounds[1] >= 95, "it sleeps 10 ms and works 0.1 ms: {rounds:?}");
    let apart = k.tasks[0].vruntime.abs_diff(k.tasks[2].vruntime);
    assert!(apart <= 10 * MS, "{apart}");
}

#[test]
fn a_pipe_hands_over_and_its_reader_goes_to_an_idle_vcpu_only_where_caches_are_shared() {
    let pipe = |next, first| Program::Pipe { work: 10_000, next, first };
    for (shown, migrates) in [(None, false), (one_llc(2), true)] {
        let mut k = kernel(terms(2, shown), &[pipe(1, true), pipe(0, false)]);
        run(&mut k, 10 * MS);
        let rounds: u64 = k.rounds().map(|r| r.1).sum();
        assert!(rounds > 600, "{rounds}");
        assert_eq!(k.counts().interrupts > 100, migrates, "{:?}", k.counts());
    }
}

/// A guest of two vCPUs where a burner runs on vCPU 0, and another waits there since `now`.
fn one_waits(now: u64) -> Kernel {
    let mut k = kernel(terms(2, one_llc(2)), &[Program::Burn, Program::Burn]);
    k.vcpus[1].queue.clear();
    k.tasks[1].ran_at = now;
    k.enqueue(1, 0);
    k.next(0, now);
    k
}

#[test]
fn a_vcpu_that_idles_too_briefly_on_average_takes_nothing() {
    let mut k = one_waits(0);
    k.vcpus[1].average_idle = balance::MIGRATION_COST_NS - 1;
    assert!(!k.newidle(1, 10 * MS));
    k.vcpus[1].average_idle = balance::MIGRATION_COST_NS;
    assert!(k.newidle(1, 10 * MS));
}

#[test]
fn a_warm_task_is_taken_only_after_two_failures() {
    let now = 10 * MS;
    let tries = |ran_ago| {
        let mut k = one_waits(now - ran_ago);
        (1..5).find(|_| k.newidle(1, now)).expect("in the end it is taken")
    };
    assert_eq!(tries(balance::MIGRATION_COST_NS), 1, "cold");
    assert_eq!(tries(balance::MIGRATION_COST_NS - 1), 3, "warm");
}

#[test]
fn a_sleeper_is_at_most_half_a_latency_behind_and_a_move_keeps_the_lag() {
    let mut k = kernel(terms(2, None), &[Program::Burn, Program::Burn]);
    (k.vcpus[0].least, k.vcpus[1].least) = (20 * MS, 50 * MS);
    k.vcpus[1].queue.clear();
    (k.tasks[1].vruntime, k.tasks[1].asleep) = (0, true);
    k.next(1, 0);
    k.wake(1, 1, false, 0);
    assert_eq!((k.vcpu_of(1), k.tasks[1].vruntime), (1, 47 * MS));
    k.enqueue(1, 0);
    assert_eq!((k.tasks[1].vruntime, k.counts().migrations), (17 * MS, 1));
}

#[test]
fn an_exec_costs_the_stopper_an_interrupt_sent_and_one_received() {
    let mut k = kernel(terms(2, None), &[Program::Exec { work: MS }]);
    let mut step = |vcpu: u32, now, worked| {
        k.worked(vcpu, worked);
        k.next(vcpu, now)
    };
    assert_eq!(step(0, 0, 0), Step::Work(1_000), "a switch");
    assert_eq!(step(0, 1_000, 1_000), Step::Work(MS));
    assert_eq!(step(0, MS + 1_000, MS), Step::Work(1_000), "a switch to the stopper");
    assert_eq!(step(0, MS + 2_000, 1_000), Step::Work(2_000), "the interrupt is sent");
    assert_eq!(step(0, MS + 4_000, 2_000), Step::Halt(None));
    assert_eq!(step(1, MS + 4_000, 0), Step::Work(1_000), "and received");
    assert_eq!(step(1, MS + 5_000, 1_000), Step::Work(1_000), "a switch");
    k.delays(1, 7_000);
    assert_eq!(k.next(1, MS + 5_000), Step::Work(8_000), "caches are cold");
}
