//! What a wake-up takes beside the scheduler: the path from a timer to a vCPU that is READY, and
//! the time in which a pCPU leaves a deep idle state; it knows no world's state and no scheduler.
//!
//! *Law*: a timer of a vCPU fires, and a path later, drawn from `wake_path`, the vCPU is made
//! READY. A pCPU in which nothing has run for `idle_residency` sleeps deeply: from the first
//! reschedule on that is sent there it takes an exit, drawn from `idle_exit`, before it schedules.
//! More of them meanwhile make it neither sooner nor later.
//!
//! *Units*: ns.
//!
//! *Example*: path 24 to 30 us, exit 40 to 130, residency 600. A vCPU that sleeps 10 ms on an idle
//! host runs 64 to 160 us after its timer; beside a burner, whose pCPU never sleeps, 24 to 30.
//!
//! *Limits*: the interrupt of a timer is handled at once by a pCPU that sleeps deeply; the exit
//! comes where the world is to run, which is the same pCPU as a rule.

use dice::Stream;
use settings::HostSpec;
use units::Span;

/// Times from a least to a most, drawn evenly.
#[derive(Clone, Debug)]
struct Spread {
    least_ns: u64,
    more_ns: u64,
    random: Stream,
}

impl Spread {
    /// None where every time would be 0.
    fn of([least, most]: [Span; 2], random: Stream) -> Option<Spread> {
        let more_ns = most.ns() - least.ns();
        (most > Span::ZERO).then_some(Spread { least_ns: least.ns(), more_ns, random })
    }

    fn draw(&mut self) -> u64 {
        self.least_ns + self.random.below(self.more_ns + 1)
    }
}

/// A path under way: when the timer fired, and when the vCPU is READY.
#[derive(Clone, Copy, Debug)]
struct Path {
    fired: u64,
    ready: u64,
}

/// A pCPU that may sleep.
#[derive(Clone, Copy, Debug, Default)]
struct Sleep {
    /// When it scheduled last.
    since: u64,
    /// When it is awake, if it has been sent for.
    awake: Option<u64>,
}

/// The delays of a run.
#[derive(Clone, Debug)]
pub(crate) struct Delays {
    path: Option<Spread>,
    exit: Option<Spread>,
    residency_ns: u64,
    /// By world.
    paths: Vec<Option<Path>>,
    /// By pCPU.
    pcpus: Vec<Sleep>,
}

/// What the timer of a vCPU comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The vCPU is READY; its timer fired then.
    Ready(u64),
    /// It will be, then.
    Later(u64),
}

impl Delays {
    /// Those of a host; none that its scenario does not ask for.
    pub(crate) fn new(host: &HostSpec, (pcpus, worlds): (usize, usize), seed: u64) -> Delays {
        let spread = |of: Option<[Span; 2]>, name| Spread::of(of?, Stream::new(seed, name));
        let path = spread(host.wake_path, "wake-up paths");
        let exit = spread(host.idle_exit, "exits from idle");
        Delays {
            paths: vec![None; if path.is_some() { worlds } else { 0 }],
            pcpus: vec![Sleep::default(); if exit.is_some() { pcpus } else { 0 }],
            path,
            exit,
            residency_ns: host.idle_residency.ns(),
        }
    }

    /// The timer of a vCPU that sleeps fires, or its path is over.
    pub(crate) fn timer(&mut self, world: u32, now: u64) -> Timer {
        let Some(spread) = &mut self.path else { return Timer::Ready(now) };
        let under_way = &mut self.paths[world as usize];
        if let Some(path) = under_way.take().filter(|p| p.ready == now) {
            return Timer::Ready(path.fired);
        }
        let ready = now + spread.draw();
        if ready == now {
            return Timer::Ready(now);
        }
        *under_way = Some(Path { fired: now, ready });
        Timer::Later(ready)
    }

    /// The timer of a vCPU is taken back.
    pub(crate) fn taken_back(&mut self, world: u32) {
        if let Some(path) = self.paths.get_mut(world as usize) {
            *path = None;
        }
    }

    /// A pCPU schedules: it is awake. Whether that ends an exit.
    #[inline]
    pub(crate) fn schedules(&mut self, pcpu: u32, now: u64) -> bool {
        let Some(sleep) = self.pcpus.get_mut(pcpu as usize) else { return false };
        let awake = sleep.awake.is_some();
        *sleep = Sleep { since: now, awake: None };
        awake
    }

    /// When a pCPU that idles schedules for which that is asked at `now`, and not before `at`; and
    /// whether an exit begins.
    #[inline]
    pub(crate) fn awake(&mut self, pcpu: u32, now: u64, at: u64) -> (u64, bool) {
        let Some(exit) = &mut self.exit else { return (at, false) };
        let sleep = &mut self.pcpus[pcpu as usize];
        match sleep.awake {
            Some(awake) => (at.max(awake), false),
            None if now - sleep.since < self.residency_ns => (at, false),
            None => {
                let awake = at + exit.draw();
                sleep.awake = Some(awake);
                (awake, true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(path: [u64; 2], exit: [u64; 2]) -> Delays {
        let us = |all: [u64; 2]| Some(all.map(|n| Span::from_ns(1000 * n)));
        let host = HostSpec {
            sockets: 1,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: 2,
            threads_per_core: 1,
            hz: 250,
            timer_late: Span::ZERO,
            pause_exits: true,
            wake_path: us(path),
            idle_exit: us(exit),
            idle_residency: Span::from_ns(600_000),
            mhz: HostSpec::MHZ,
        };
        Delays::new(&host, (2, 3), 7)
    }

    #[test]
    fn a_path_begins_when_a_timer_fires_and_ends_once() {
        let mut d = delays([24, 30], [0, 0]);
        let Timer::Later(ready) = d.timer(2, 1_000_000) else { panic!("it has a path") };
        assert!((1_024_000..=1_030_000).contains(&ready), "{ready}");
        assert_eq!(d.timer(2, ready), Timer::Ready(1_000_000));
        assert!(matches!(d.timer(2, ready), Timer::Later(_)), "another timer");
        let Timer::Later(ready) = d.timer(1, 5) else { panic!("it has a path") };
        d.taken_back(1);
        assert!(matches!(d.timer(1, ready), Timer::Later(_)), "a timer of the same moment");
        assert_eq!(d.awake(0, 9_000_000, 9_000_000), (9_000_000, false), "no exit");
    }

    #[test]
    fn a_pcpu_leaves_a_deep_state_once_and_a_short_idle_at_once() {
        let mut d = delays([0, 0], [40, 130]);
        d.schedules(0, 100_000);
        assert_eq!(d.awake(0, 699_999, 700_999), (700_999, false));
        let (awake, begins) = d.awake(0, 700_000, 701_000);
        assert!(begins && (741_000..=831_000).contains(&awake), "{awake}");
        let again = [(710_000, 711_000), (awake - 1, awake + 999)].map(|(n, a)| d.awake(0, n, a));
        assert_eq!(again, [(awake, false), (awake + 999, false)]);
        assert!(d.schedules(0, awake) && !d.schedules(0, awake));
        assert_eq!(d.awake(0, awake + 1, awake + 1), (awake + 1, false));
        assert_eq!(d.timer(2, 5), Timer::Ready(5), "no path");
    }
}
