//! Runs the seeds of a test on all cores and hands the results back in order of the seeds; it draws
//! nothing and judges nothing.
//!
//! Promise: what comes out depends on the items and the job alone, not on cores or timing. If jobs
//! panic, the panic of the first item in order is the one that is reported last and ends the test.
//!
//! Example: `seeds::each(0..60, |seed| outcome(seed))` has 60 results, that of seed 0 first.

use std::{
    any::Any,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

/// Results of the job for each item, in order of the items.
///
/// # Panics
/// If the job panics for an item: with the first of these items, in order, and its message.
pub fn each<I: Copy + Debug + Sync, T: Send>(
    items: impl IntoIterator<Item = I>,
    job: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let items: Vec<I> = items.into_iter().collect();
    until(&items, |i| job(*i), |_| false)
}

/// The first item, in order, for which the job finds something, with its position. Items after it
/// may have been tried as well, and are forgotten.
///
/// # Panics
/// As `each`, unless something is found for an earlier item.
pub fn first<I: Debug + Sync, T: Send>(
    items: &[I],
    job: impl Fn(&I) -> Option<T> + Sync,
) -> Option<(usize, T)> {
    let found = until(items, job, Option::is_some);
    let at = found.len().checked_sub(1)?;
    found.into_iter().next_back().flatten().map(|x| (at, x))
}

/// Results in order, up to the first that ends it.
fn until<I: Debug + Sync, T: Send>(
    items: &[I],
    job: impl Fn(&I) -> T + Sync,
    ends: impl Fn(&T) -> bool + Sync,
) -> Vec<T> {
    // Positions are taken in order, so all before the one that ends it are tried as well.
    let (next, end) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let work = || {
        let mut mine = vec![];
        loop {
            let i = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(i).filter(|_| i <= end.load(Relaxed)) else { return mine };
            let done = catch_unwind(AssertUnwindSafe(|| job(item)));
            if done.as_ref().map_or(true, &ends) {
                end.fetch_min(i, Relaxed);
            }
            mine.push((i, done));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    let mut all = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    all.sort_by_key(|done| done.0);
    let last = end.into_inner();
    let result = |(i, done): (usize, thread::Result<T>)| match done {
        Ok(done) => done,
        Err(e) => panic!("{:?}: {}", items[i], message(&*e)),
    };
    all.into_iter().filter(|done| done.0 <= last).map(result).collect()
}

/// What a panic said.
fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn results_come_in_order_of_the_items_however_long_each_takes() {
        let slow = |i: u64| {
            thread::sleep(Duration::from_micros((i * 7919) % 500));
            i * i
        };
        assert_eq!(each(0..200, slow), (0..200).map(|i| i * i).collect::<Vec<u64>>());
        assert_eq!(each(0..0, slow), []);
    }

    #[test]
    fn two_items_are_done_at_once_where_there_are_two_cores() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (both, here) = (cores.min(2), AtomicUsize::new(0));
        let until = Instant::now() + Duration::from_secs(10);
        // Each waits until the other has come.
        let job = |_| {
            here.fetch_add(1, Relaxed);
            while here.load(Relaxed) < both && Instant::now() < until {
                thread::yield_now();
            }
            here.load(Relaxed) >= both
        };
        assert_eq!(each(0..2, job), [true, true]);
        assert!(Instant::now() < until);
    }

    #[test]
    fn the_first_find_in_order_is_told_even_if_a_later_one_is_quicker() {
        let find = |i: &u64| {
            thread::sleep(Duration::from_millis(if *i == 3 { 20 } else { 0 }));
            (*i >= 3).then_some(*i * 10)
        };
        assert_eq!(first(&[0, 1, 2, 3, 4, 5, 6], find), Some((3, 30)));
        assert_eq!(first(&[0, 1, 2], find), None);
        assert_eq!(first(&[], find), None);
    }

    #[test]
    fn of_several_panics_the_first_in_order_is_told() {
        let job = |i: u64| {
            thread::sleep(Duration::from_millis(if i == 5 { 20 } else { 0 }));
            assert!(i < 5, "item {i} fails");
        };
        let told = catch_unwind(|| each(0..50, job)).expect_err("it panics");
        assert_eq!(message(&*told), "5: item 5 fails");
    }
}
