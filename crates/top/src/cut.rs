//! A trace cut into samples of one interval, each made when it is asked for; it keeps none.
//!
//! *Promise*: a sample is the same whichever was asked for before it. Memory is bounded by the
//! trace, however many samples there are; time without events costs one step, however long it is.
//! *Law*: sample `i` is from `begin + i * interval` to an interval later, the last one to the
//! trace's end. An event at the end of an interval is in the next one.

use crate::play::Sample;
use crate::replayed::Host;
use esxtop::{Counters, LoadAverage, Rates};
use std::cell::RefCell;
use trace::Event;

/// Places in a trace that are kept, so that a step back does not begin at the trace's begin.
const PLACES: usize = 32;
/// Events between two of them, at least.
const APART: usize = 10_000;

/// The samples of a trace.
pub(crate) struct Cut {
    events: Vec<Event>,
    interval_ns: u64,
    begin: u64,
    end: u64,
    seen: RefCell<Seen>,
}

/// Where it has been, by the number of the next sample.
struct Seen {
    at: Place,
    kept: Vec<Place>,
}

/// The host at the begin of a sample.
#[derive(Clone)]
struct Place {
    /// Number of the sample that begins here.
    next: usize,
    /// Events that are taken.
    taken: usize,
    host: Host,
    before: Counters,
    load: LoadAverage,
}

impl Cut {
    /// Cuts a trace into intervals of that length.
    pub(crate) fn new(events: Vec<Event>, interval_ns: u64) -> Cut {
        let times = || events.iter().filter(|e| !e.kind.is_name()).map(|e| e.ns);
        let begin = times().next().unwrap_or(0);
        let end = times().max().unwrap_or(0);
        let mut host = Host::new(begin);
        // Events of the first moment are the initial state.
        let initial = events.iter().take_while(|e| e.kind.is_name() || e.ns <= begin);
        let taken = initial.map(|e| host.take(e)).count();
        let before = host.counters();
        let at = Place { next: 0, taken, host, before, load: LoadAverage::new() };
        let kept = vec![at.clone()];
        let seen = RefCell::new(Seen { at, kept });
        Cut { events, interval_ns: interval_ns.max(1), begin, end, seen }
    }

    /// How many samples there are.
    pub(crate) fn len(&self) -> usize {
        let whole = (self.end - self.begin).div_ceil(self.interval_ns);
        usize::try_from(whole).unwrap_or(usize::MAX)
    }

    /// Time from the trace's begin to the end of a sample, in ns.
    pub(crate) fn up_ns(&self, i: usize) -> Option<u64> {
        (i < self.len()).then(|| self.ends(i as u64) - self.begin)
    }

    /// A sample by its number.
    pub(crate) fn get(&self, i: usize) -> Option<Sample> {
        let up_ns = self.up_ns(i)?;
        let seen = &mut *self.seen.borrow_mut();
        let nearest = seen.kept.iter().rev().find(|p| p.next <= i)?;
        if i < seen.at.next || seen.at.next < nearest.next {
            seen.at = nearest.clone();
        }
        while seen.at.next < i {
            let free = self.free(&seen.at).min(i - seen.at.next).max(1);
            self.pass(&mut seen.at, free)?;
            seen.keep(APART.max(self.events.len() / PLACES));
        }
        let rates = self.pass(&mut seen.at, 1)?;
        seen.keep(APART.max(self.events.len() / PLACES));
        Some(Sample { rates, up_ns })
    }

    /// When a sample ends.
    fn ends(&self, i: u64) -> u64 {
        let due = (i + 1).checked_mul(self.interval_ns).and_then(|ns| self.begin.checked_add(ns));
        due.map_or(self.end, |due| due.min(self.end))
    }

    /// Samples from a place on that end before the next event.
    fn free(&self, place: &Place) -> usize {
        let next = self.events.get(place.taken).filter(|e| !e.kind.is_name());
        let whole = |e: &Event| e.ns.saturating_sub(self.begin) / self.interval_ns;
        let whole = next.map_or(0, whole).saturating_sub(place.next as u64);
        usize::try_from(whole).unwrap_or(usize::MAX)
    }

    /// Goes on by so many samples, in which nothing happens if they are several, and gives their
    /// rates.
    fn pass(&self, place: &mut Place, samples: usize) -> Option<Rates> {
        let last = (place.next + samples - 1) as u64;
        let due = u128::from(self.begin) + (u128::from(last) + 1) * u128::from(self.interval_ns);
        let within = |e: &&Event| e.kind.is_name() || u128::from(e.ns) < due;
        for event in self.events[place.taken..].iter().take_while(within) {
            place.host.take(event);
            place.taken += 1;
        }
        place.host.advance(self.ends(last));
        let now = place.host.counters();
        let mut rates = Rates::between(&place.before, &now).ok()?;
        rates.feed(&mut place.load);
        place.before = now;
        place.next += samples;
        Some(rates)
    }
}

impl Seen {
    /// Keeps the place where it is, if the last one that is kept is so many events before it.
    fn keep(&mut self, apart: usize) {
        if self.kept.last().is_some_and(|k| self.at.taken >= k.taken.saturating_add(apart)) {
            self.kept.push(self.at.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esxtop::Metric;
    use trace::{Kind, Role, State, Why};
    use units::{PcpuId, VmId, WorldId};

    const WORLD: WorldId = WorldId(1);
    const MS: u64 = 1_000_000;

    fn event(ns: u64, kind: Kind) -> Event {
        Event { ns, pcpu: Some(PcpuId(0)), kind }
    }

    fn state(ns: u64, from: Option<State>, to: State, why: Why) -> Event {
        event(ns, Kind::State { world: WORLD, from, to, why, on: Some(PcpuId(0)) })
    }

    /// A vCPU of the VM `a` that is asleep at `begin`.
    fn asleep(begin: u64) -> Vec<Event> {
        let (vm, name) = (VmId(1), "vcpu0".to_owned());
        vec![
            event(0, Kind::Vm { vm, name: "a".to_owned(), pool: "/".to_owned() }),
            event(0, Kind::World { world: WORLD, vm, role: Role::Vcpu, name }),
            state(begin, None, State::WaitIdle, Why::Told),
        ]
    }

    /// It runs for 1 ms from each of these times on.
    fn runs(events: &mut Vec<Event>, at: impl Iterator<Item = u64>) {
        for ns in at {
            events.push(state(ns, Some(State::WaitIdle), State::Run, Why::Picked));
            events.push(state(ns + MS, Some(State::Run), State::WaitIdle, Why::Slept));
        }
    }

    fn of_world(cut: &Cut, i: usize, metric: Metric) -> Option<f64> {
        let sample = cut.get(i).expect("a sample");
        sample.rates.worlds.values().next().expect("the vCPU").values.get(metric)
    }

    #[test]
    fn a_hundred_days_without_an_event_cost_one_step_and_no_memory() {
        let end = 9_000_000_000_000_000;
        let mut events = asleep(MS);
        runs(&mut events, [2 * MS, MS + end].into_iter());
        let cut = Cut::new(events, MS);
        assert_eq!(cut.len(), 9_000_000_001);
        for (i, run) in [(0, 0.0), (1, 100.0), (4_500_000_000, 0.0), (9_000_000_000, 100.0)] {
            assert_eq!((of_world(&cut, i, Metric::Run), i), (Some(run), i));
            assert_eq!(cut.get(i).map(|s| s.up_ns), Some((i as u64 + 1) * MS));
        }
        assert_eq!((cut.get(1 << 40), cut.up_ns(1 << 40)), (None, None));
    }

    #[test]
    fn a_group_has_the_state_that_a_trace_begins_with_before_it_first_changes() {
        let mut events = asleep(0);
        runs(&mut events, [25 * MS].into_iter());
        let cut = Cut::new(events, 10 * MS);
        let group = |i: usize, name: &str| {
            let sample = cut.get(i).expect("a sample");
            let group = sample.rates.groups.values().find(|g| g.name == name).expect("the group");
            [Metric::Idle, Metric::Wait, Metric::Run, Metric::Used].map(|m| group.values.get(m))
        };
        let asleep = [Some(100.0), Some(100.0), Some(0.0), None];
        // The last one ends with the trace, at 26 ms.
        let ran = [5.0, 5.0, 1.0].map(|ms| Some(ms * 100.0 / 6.0)).into_iter().chain([None]);
        assert_eq!([group(0, "a"), group(1, "a")], [asleep, asleep]);
        assert_eq!(group(2, "a").to_vec(), ran.collect::<Vec<_>>());
    }

    #[test]
    fn times_up_to_the_last_that_there_is_are_cut() {
        let mut events = asleep(1);
        runs(&mut events, [u64::MAX - 2 * MS].into_iter());
        let cut = Cut::new(events, u64::MAX / 2);
        assert_eq!((cut.len(), cut.up_ns(1), cut.up_ns(2)), (2, Some(u64::MAX - MS - 1), None));
        assert!((0..2).all(|i| cut.get(i).is_some()));
    }

    #[test]
    fn a_sample_is_the_same_whichever_was_asked_for_before_it() {
        let mut events = asleep(0);
        // More events than are between two places that are kept, two in each interval.
        runs(&mut events, (0..40_000).map(|i| i * 3 * MS + i % 7 * MS / 7));
        let make = || Cut::new(events.clone(), 3 * MS);
        let in_order = make();
        let all: Vec<Option<Sample>> = (0..in_order.len()).map(|i| in_order.get(i)).collect();
        assert_eq!(all.len(), 40_000);
        assert!(in_order.seen.borrow().kept.len() > 5);
        let other = make();
        for i in [39_999, 3, 20_000, 19_999, 20_000, 0, 39_998] {
            assert_eq!(other.get(i), all[i], "{i}");
        }
    }
}
