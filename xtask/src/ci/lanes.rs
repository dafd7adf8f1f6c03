//! Runs steps side by side, as many as the machine has cores: which step starts next, and what a
//! step waits for. It knows nothing of what the steps do.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What a step occupies while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// One core, and no build.
    OneCore,
    /// Cargo's build directory, which one step has at a time.
    Builds,
    /// Every core: what it measures would show another step.
    WholeMachine,
}

/// A step as it is run.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name.
    pub name: &'static str,
    /// What it occupies.
    pub uses: Uses,
    /// Steps that must have passed before it starts.
    pub needs: &'static [&'static str],
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stand {
    Waits,
    Runs,
    Ended { passed: bool },
}

/// What a free thread does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Start(usize),
    /// A step that it needs did not pass.
    Refuse(usize, &'static str),
    Wait,
    Done,
}

/// Chooses the first step of the list that may start beside those that run.
fn next(items: &[Item], stands: &[Stand]) -> Next {
    let running = || items.iter().zip(stands).filter(|(_, s)| **s == Stand::Runs).map(|(i, _)| i);
    let stand_of = |name: &str| items.iter().position(|i| i.name == name).map(|n| &stands[n]);
    let mut waits = false;
    for (n, item) in items.iter().enumerate().filter(|(n, _)| stands[*n] == Stand::Waits) {
        // A step that was left out has been tried by hand.
        let needs = || item.needs.iter().filter_map(|name| Some((*name, stand_of(name)?)));
        if let Some((name, _)) = needs().find(|(_, s)| **s == Stand::Ended { passed: false }) {
            return Next::Refuse(n, name);
        }
        let ready = needs().all(|(_, s)| *s == Stand::Ended { passed: true });
        let room = match item.uses {
            Uses::WholeMachine => running().next().is_none(),
            Uses::Builds => running().all(|r| r.uses == Uses::OneCore),
            Uses::OneCore => running().all(|r| r.uses != Uses::WholeMachine),
        };
        if ready && room {
            return Next::Start(n);
        }
        waits = true;
    }
    if waits || running().next().is_some() { Next::Wait } else { Next::Done }
}

/// Runs all items in `lanes` threads. `run` says whether the step passed; `refuse` is called for a
/// step that cannot run because one that it needs did not pass.
pub fn run(
    items: &[Item],
    lanes: usize,
    run: &(dyn Fn(usize) -> bool + Sync),
    refuse: &(dyn Fn(usize, &'static str) + Sync),
) {
    let stands = Mutex::new(vec![Stand::Waits; items.len()]);
    let changed = Condvar::new();
    thread::scope(|scope| {
        for _ in 0..lanes.max(1) {
            scope.spawn(|| lane(items, &stands, &changed, run, refuse));
        }
    });
}

fn lane(
    items: &[Item],
    stands: &Mutex<Vec<Stand>>,
    changed: &Condvar,
    run: &(dyn Fn(usize) -> bool + Sync),
    refuse: &(dyn Fn(usize, &'static str) + Sync),
) {
    let locked =
        || -> MutexGuard<'_, Vec<Stand>> { stands.lock().unwrap_or_else(PoisonError::into_inner) };
    let mut guard = locked();
    loop {
        match next(items, &guard) {
            Next::Done => return,
            Next::Wait => guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Next::Refuse(n, needed) => {
                guard[n] = Stand::Ended { passed: false };
                refuse(n, needed);
                changed.notify_all();
            }
            Next::Start(n) => {
                guard[n] = Stand::Runs;
                drop(guard);
                let passed = run(n);
                guard = locked();
                guard[n] = Stand::Ended { passed };
                changed.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const fn item(name: &'static str, uses: Uses, needs: &'static [&'static str]) -> Item {
        Item { name, uses, needs }
    }

    #[test]
    fn a_boot_starts_beside_a_build_and_a_second_build_does_not() {
        let items = [
            item("a", Uses::Builds, &[]),
            item("b", Uses::Builds, &[]),
            item("c", Uses::OneCore, &[]),
        ];
        let stands = [Stand::Runs, Stand::Waits, Stand::Waits];
        assert_eq!(next(&items, &stands), Next::Start(2));
        let stands = [Stand::Ended { passed: true }, Stand::Waits, Stand::Runs];
        assert_eq!(next(&items, &stands), Next::Start(1));
    }

    #[test]
    fn a_step_waits_for_what_it_needs_and_is_refused_when_that_failed() {
        let items = [item("a", Uses::Builds, &[]), item("b", Uses::OneCore, &["a"])];
        let stands = |passed| [Stand::Ended { passed }, Stand::Waits];
        assert_eq!(next(&items, &[Stand::Runs, Stand::Waits]), Next::Wait);
        assert_eq!(next(&items, &stands(true)), Next::Start(1));
        assert_eq!(next(&items, &stands(false)), Next::Refuse(1, "a"));
        assert_eq!(next(&items[1..], &[Stand::Waits]), Next::Start(0), "'a' was left out");
    }

    #[test]
    fn a_step_that_measures_runs_alone() {
        let items = [
            item("a", Uses::OneCore, &[]),
            item("b", Uses::WholeMachine, &[]),
            item("c", Uses::OneCore, &[]),
        ];
        let runs = |n: usize| {
            let mut stands = vec![Stand::Waits; 3];
            stands[n] = Stand::Runs;
            stands
        };
        assert_eq!(next(&items, &runs(0)), Next::Start(2));
        assert_eq!(next(&items[..2], &runs(0)[..2]), Next::Wait);
        assert_eq!(next(&items, &runs(1)), Next::Wait);
    }

    #[test]
    fn every_step_runs_once_and_two_run_side_by_side() {
        let items = [
            item("build", Uses::Builds, &[]),
            item("boot", Uses::OneCore, &[]),
            item("fails", Uses::OneCore, &["build"]),
            item("after", Uses::OneCore, &["fails"]),
        ];
        let (now, most, ran) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let refused = Mutex::new(vec![]);
        let step = |n: usize| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(std::time::Duration::from_millis(50));
            now.fetch_sub(1, Ordering::SeqCst);
            ran.fetch_add(1, Ordering::SeqCst);
            items[n].name != "fails"
        };
        run(&items, 2, &step, &|n, needed| {
            refused.lock().expect("no panic").push((items[n].name, needed));
        });
        assert_eq!(ran.into_inner(), 3);
        assert_eq!(most.into_inner(), 2);
        assert_eq!(refused.into_inner().expect("no panic"), [("after", "fails")]);
    }
}
