//! Samples one after the other: as a source gives them, kept for a while for steps back, or from a
//! file, back and forth. It reads no clock: the caller passes the time.

use esxtop::Rates;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// What a source may say went wrong.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Samples that are kept to step back to: so many, and so many worlds in them, which are about 1 KB
/// each.
const KEPT: (usize, usize) = (600, 50_000);
/// How long a sample of a file is shown where it is played as fast as possible.
const FASTEST: Duration = Duration::from_millis(50);

/// What is shown at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The numbers.
    pub rates: Rates,
    /// Time since the host (or the simulated one, or the recording) began, in ns.
    pub up_ns: u64,
}

/// What a source says.
#[derive(Debug)]
pub enum Polled {
    /// The next sample.
    Sample(Box<Sample>),
    /// None yet: it is worth asking again after that time.
    NotYet(Duration),
    /// There are no further samples.
    End,
}

/// Gives samples as they come.
pub trait Source {
    /// What is looked at, for people.
    fn title(&self) -> String;

    /// The next sample, if it is time for it.
    ///
    /// # Errors
    /// What went wrong; the program ends with it.
    fn poll(&mut self, interval: Duration) -> Result<Polled, Error>;

    /// The next sample shall come now.
    fn refresh(&mut self) {}
}

/// Gives a sample of a file by its number.
type Get = Box<dyn Fn(usize) -> Option<Sample>>;
/// Gives its time since the first look, in ns.
type UpNs = Box<dyn Fn(usize) -> Option<u64>>;

/// What is recorded in a file.
struct Recording {
    title: String,
    get: Get,
    up_ns: UpNs,
    len: usize,
}

enum Tape {
    Growing { kept: VecDeque<Rc<Sample>>, source: Box<dyn Source>, ended: bool },
    File { file: Recording, due: Option<Duration>, pace: Option<f64> },
}

/// Plays samples.
pub struct Player {
    tape: Tape,
    at: usize,
    paused: bool,
    wait: Duration,
    shown: Option<Rc<Sample>>,
}

impl Player {
    /// Plays what a source gives.
    #[must_use]
    pub fn of(source: Box<dyn Source>) -> Player {
        let tape = Tape::Growing { kept: VecDeque::new(), source, ended: false };
        Player { tape, at: 0, paused: false, wait: Duration::ZERO, shown: None }
    }

    /// Plays `len` samples of a file, `pace` times as fast as the interval says; `None`: as fast as
    /// possible.
    #[must_use]
    pub fn of_file(title: String, len: usize, get: Get, up_ns: UpNs, pace: Option<f64>) -> Player {
        let shown = get(0).map(Rc::new);
        let file = Recording { title, get, up_ns, len };
        Player {
            tape: Tape::File { file, due: None, pace },
            at: 0,
            paused: false,
            wait: Duration::ZERO,
            shown,
        }
    }

    /// The sample to be shown.
    #[must_use]
    pub fn sample(&self) -> Option<Rc<Sample>> {
        self.shown.clone()
    }

    /// How long nothing will happen, in all likelihood.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// What is looked at.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.tape {
            Tape::Growing { source, .. } => source.title(),
            Tape::File { file, .. } => file.title.clone(),
        }
    }

    /// What it does now.
    #[must_use]
    pub fn doing(&self) -> String {
        let paused = if self.paused { "paused" } else { "" };
        match &self.tape {
            Tape::File { file: Recording { len, .. }, .. } => {
                format!("{} of {len} {paused}", (self.at + 1).min(*len)).trim_end().to_owned()
            }
            Tape::Growing { kept, ended, .. } => {
                match (kept.len().saturating_sub(self.at + 1), *ended) {
                    (0, true) => "ended".to_owned(),
                    (0, false) => paused.to_owned(),
                    (back, _) => format!("{paused}, {back} back"),
                }
            }
        }
    }

    /// Goes on, if it is time to; says whether there is something new to show.
    ///
    /// # Errors
    /// What the source says.
    pub fn tick(&mut self, now: Duration, interval: Duration) -> Result<bool, Error> {
        self.wait = interval;
        if self.paused {
            return Ok(false);
        }
        match &mut self.tape {
            Tape::File { file, due, pace } => {
                let each = pace.map_or(FASTEST, |p| interval.div_f64(p).max(FASTEST));
                let next = *due.get_or_insert(now + each);
                self.wait = next.saturating_sub(now);
                if now < next || self.at + 1 >= file.len {
                    return Ok(false);
                }
                *due = Some(now + each);
                self.step(1);
                Ok(true)
            }
            Tape::Growing { kept, source, ended } => {
                if *ended {
                    return Ok(false);
                }
                match source.poll(interval)? {
                    Polled::End => *ended = true,
                    Polled::NotYet(wait) => {
                        self.wait = wait;
                        return Ok(false);
                    }
                    Polled::Sample(sample) => {
                        self.wait = Duration::ZERO;
                        kept.push_back(Rc::from(sample));
                        forget(kept);
                        self.at = kept.len() - 1;
                        self.shown = kept.back().cloned();
                    }
                }
                Ok(true)
            }
        }
    }

    /// Stops, or goes on with the newest.
    pub fn pause(&mut self) {
        self.paused = !self.paused;
        match &mut self.tape {
            Tape::File { due, .. } => *due = None,
            Tape::Growing { kept, .. } => {
                if !self.paused {
                    self.at = kept.len().saturating_sub(1);
                    self.shown = kept.back().cloned();
                }
            }
        }
    }

    /// Stops, and shows a sample so many further on, or back.
    pub fn step_and_pause(&mut self, by: i64) {
        self.paused = true;
        self.step(by);
    }

    fn step(&mut self, by: i64) {
        let to = i64::try_from(self.at).unwrap_or(i64::MAX).saturating_add(by);
        self.show(usize::try_from(to).unwrap_or(0));
    }

    fn show(&mut self, at: usize) {
        let shown = match &self.tape {
            Tape::File { file, .. } => {
                self.at = at.min(file.len.saturating_sub(1));
                (file.get)(self.at).map(Rc::new)
            }
            Tape::Growing { kept, .. } => {
                self.at = at.min(kept.len().saturating_sub(1));
                kept.get(self.at).cloned()
            }
        };
        self.shown = shown.or(self.shown.take());
    }

    /// Stops at the first sample that is so many seconds after the first, or at the last.
    pub fn jump_and_pause(&mut self, seconds: f64) {
        self.paused = true;
        let up = |i: usize| match &self.tape {
            Tape::File { file, .. } => (file.up_ns)(i),
            Tape::Growing { kept, .. } => kept.get(i).map(|s| s.up_ns),
        };
        let len = match &self.tape {
            Tape::File { file, .. } => file.len,
            Tape::Growing { kept, .. } => kept.len(),
        };
        let wanted = (seconds * 1e9) as u64;
        let begin = up(0).unwrap_or(0);
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = usize::midpoint(low, high);
            if up(middle).is_some_and(|at| at.saturating_sub(begin) < wanted) {
                low = middle + 1
            } else {
                high = middle
            }
        }
        self.show(low);
    }

    /// The next sample shall come now.
    pub fn refresh(&mut self) {
        match &mut self.tape {
            Tape::Growing { source, .. } => source.refresh(),
            Tape::File { due, .. } => *due = Some(Duration::ZERO),
        }
    }
}

fn forget(kept: &mut VecDeque<Rc<Sample>>) {
    let mut worlds: usize = kept.iter().map(|s| s.rates.worlds.len()).sum();
    while kept.len() > 1 && (kept.len() > KEPT.0 || worlds > KEPT.1) {
        worlds -= kept.pop_front().map_or(0, |s| s.rates.worlds.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::sample;

    const S: Duration = Duration::from_secs(1);

    fn at(up_s: u64) -> Sample {
        Sample { up_ns: up_s * 1_000_000_000, ..sample(1, false) }
    }

    struct Three(u64);

    impl Source for Three {
        fn title(&self) -> String {
            "three".to_owned()
        }

        fn poll(&mut self, _: Duration) -> Result<Polled, Error> {
            self.0 += 1;
            Ok(match self.0 {
                2 => Polled::NotYet(S),
                5.. => Polled::End,
                n => Polled::Sample(Box::new(at(n))),
            })
        }
    }

    fn shown(p: &Player) -> Option<u64> {
        p.sample().map(|s| s.up_ns / 1_000_000_000)
    }

    #[test]
    fn samples_come_one_by_one_and_can_be_stepped_back_to() {
        let mut p = Player::of(Box::new(Three(0)));
        assert_eq!(shown(&p), None);
        let seen: Vec<_> =
            (0..6).map(|_| (p.tick(Duration::ZERO, S).unwrap(), shown(&p), p.doing())).collect();
        let expect = [
            (true, 1, ""),
            (false, 1, ""),
            (true, 3, ""),
            (true, 4, ""),
            (true, 4, "ended"),
            (false, 4, "ended"),
        ];
        assert_eq!(seen, expect.map(|(new, at, doing)| (new, Some(at), doing.to_owned())));
        p.step_and_pause(-1);
        assert_eq!((shown(&p), p.doing()), (Some(3), "paused, 1 back".to_owned()));
        p.step_and_pause(-9);
        assert_eq!(shown(&p), Some(1));
        p.pause();
        assert_eq!(
            (shown(&p), p.doing()),
            (Some(4), "ended".to_owned()),
            "going on is at the newest"
        );
    }

    #[test]
    fn nothing_is_asked_for_while_it_is_paused() {
        let mut p = Player::of(Box::new(Three(0)));
        p.tick(Duration::ZERO, S).unwrap();
        p.pause();
        assert_eq!((p.tick(S, S).unwrap(), p.doing()), (false, "paused".to_owned()));
        p.pause();
        assert!(!p.tick(S, S).unwrap() && p.tick(S, S).unwrap(), "it goes on where it was");
    }

    #[test]
    fn a_file_is_played_at_its_pace_and_jumped_in() {
        let get = |i: usize| (i < 10).then(|| at(100 + i as u64 * 5));
        let up_ns = move |i: usize| get(i).map(|s| s.up_ns);
        let (get, up_ns) = (Box::new(get), Box::new(up_ns));
        let mut p = Player::of_file("f".to_owned(), 10, get, up_ns, Some(2.0));
        assert_eq!((shown(&p), p.doing()), (Some(100), "1 of 10".to_owned()));
        let five = 5 * S;
        let ticks = [0, 1, 2, 3, 4, 5].map(|t| p.tick(t * S, five).unwrap());
        assert_eq!(
            (ticks, shown(&p)),
            ([false, false, false, true, false, false], Some(105)),
            "5 s at twice the pace are 2.5 s"
        );
        p.jump_and_pause(12.0);
        assert_eq!(
            (shown(&p), p.doing()),
            (Some(115), "4 of 10 paused".to_owned()),
            "the first at 12 s or later"
        );
        p.jump_and_pause(1e9);
        assert_eq!(shown(&p), Some(145));
        p.step_and_pause(-1);
        assert_eq!(shown(&p), Some(140));
        assert!(!p.tick(100 * S, five).unwrap());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept: VecDeque<Rc<Sample>> = (0..700).map(|i| Rc::new(at(i))).collect();
        forget(&mut kept);
        assert_eq!((kept.len(), kept[0].up_ns), (KEPT.0, 100_000_000_000));
        let mut large = at(0);
        let (wid, world) = large.rates.worlds.pop_first().unwrap();
        large.rates.worlds = (0..30_000).map(|i| (esxtop::Wid(wid.0 + i), world.clone())).collect();
        let mut kept: VecDeque<Rc<Sample>> = (0..3).map(|_| Rc::new(large.clone())).collect();
        forget(&mut kept);
        assert_eq!(kept.len(), 1);
    }
}
