//! Stores what has been reported, so that a lasting condition is reported once, and again only
//! after it was over.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Nothing has been taken of the pCPUs for so long where it is said that it is over: a task that
/// comes each few seconds is reported once.
const OVER: Duration = Duration::from_secs(60);

/// What was reported and is still true.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    reported: BTreeSet<String>,
    /// All that was true when it was looked at last.
    before: BTreeSet<String>,
}

impl Reported {
    /// Stores all that is true now; returns what has not been reported.
    pub(crate) fn news(&mut self, now: BTreeSet<String>) -> Vec<String> {
        let news = now.difference(&self.reported).cloned().collect();
        self.reported = now;
        news
    }

    /// The same, but only what was true at the last look as well: a VM that is just starting has
    /// its vCPUs one by one.
    pub(crate) fn lasting_news(&mut self, now: &BTreeSet<String>) -> Vec<String> {
        let lasts = now.intersection(&self.before).cloned().collect();
        self.before.clone_from(now);
        self.news(lasts)
    }
}

/// Everything that lasts on a host and is reported once, and again only after it was over.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// What could not be taken over.
    troubles: BTreeSet<String>,
    reported: Reported,
    excesses: Reported,
    /// Whether all reservations can be kept.
    fits: bool,
    /// Failed assertions of the scheduler.
    asserts: u64,
    /// Forks that were refused.
    refused: u64,
    lost: bool,
    /// When something was taken last, if that was reported and not that it is over.
    taken: Option<Instant>,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            troubles: BTreeSet::new(),
            reported: Reported::default(),
            excesses: Reported::default(),
            fits: true,
            asserts: 0,
            refused: 0,
            lost: false,
            taken: None,
        }
    }
}

impl Conditions {
    /// What cannot be taken over now.
    pub(crate) fn set_troubles(&mut self, troubles: BTreeSet<String>) {
        self.troubles = troubles;
    }

    /// What cannot be taken over, lasts from one scan to the next, and has not been reported.
    pub(crate) fn lasting_troubles(&mut self) -> Vec<String> {
        self.reported.lasting_news(&self.troubles)
    }

    /// Places where more is reserved than there is: those that have not been reported, and whether
    /// all reservations fit again.
    pub(crate) fn excesses(&mut self, now: BTreeSet<String>) -> (Vec<String>, bool) {
        let fits = now.is_empty();
        let again = !std::mem::replace(&mut self.fits, fits) && fits;
        (self.excesses.news(now), again)
    }

    /// So many assertions of the scheduler have failed: whether that is news.
    pub(crate) fn asserts(&mut self, now: u64) -> bool {
        std::mem::replace(&mut self.asserts, now) != now
    }

    /// So many forks were refused, for the table of threads is full: whether that is news, the
    /// first time and whenever there are twice as many; a program that forks goes on trying.
    pub(crate) fn refused(&mut self, now: u64) -> bool {
        let news = now > 0 && now >= 2 * self.refused;
        if news {
            self.refused = now;
        }
        news
    }

    /// Whether others take something of the pCPUs: whether that is news, or that it is over since a
    /// while.
    pub(crate) fn taken(&mut self, now: bool, at: Instant) -> bool {
        match self.taken {
            _ if now => self.taken.replace(at).is_none(),
            Some(last) if at.saturating_duration_since(last) >= OVER => self.taken.take().is_some(),
            _ => false,
        }
    }

    /// Whether the kernel loses CPU time (`sched/account/charge.h`): whether that is news.
    pub(crate) fn lost(&mut self, now: bool) -> bool {
        !std::mem::replace(&mut self.lost, now) && now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_reported_once_and_again_after_it_was_over() {
        let mut reported = Reported::default();
        let mut news = |all: &[&str]| reported.news(all.iter().map(|s| (*s).to_owned()).collect());
        assert_eq!(news(&["b", "a"]), ["a", "b"]);
        assert_eq!(news(&["b", "c"]), ["c"]);
        assert_eq!(news(&[]), [""; 0]);
        assert_eq!(news(&["b"]), ["b"]);
    }

    #[test]
    fn what_is_over_at_the_next_look_is_not_reported() {
        let mut reported = Reported::default();
        let mut news =
            |all: &[&str]| reported.lasting_news(&all.iter().map(|s| (*s).to_owned()).collect());
        assert_eq!((news(&["a", "b"]), news(&["a"])), (vec![], vec!["a".to_owned()]));
        assert_eq!(
            (news(&["a", "c"]), news(&["c"]), news(&["c", "a"])),
            (vec![], vec!["c".to_owned()], vec![])
        );
        assert_eq!(news(&["c", "a"]), ["a"]);
    }

    #[test]
    fn that_all_reservations_fit_again_is_reported_once() {
        let mut conditions = Conditions::default();
        let over = || BTreeSet::from(["over".to_owned()]);
        assert_eq!(conditions.excesses(BTreeSet::new()), (vec![], false));
        assert_eq!(conditions.excesses(over()), (vec!["over".to_owned()], false));
        assert_eq!(conditions.excesses(over()), (vec![], false));
        assert_eq!(conditions.excesses(BTreeSet::new()), (vec![], true));
        assert_eq!(conditions.excesses(BTreeSet::new()), (vec![], false));
        assert_eq!([2, 2, 3].map(|n| conditions.asserts(n)), [true, false, true]);
        assert_eq!(
            [0, 7, 7, 13, 14].map(|n| conditions.refused(n)),
            [false, true, false, false, true]
        );
        let begin = Instant::now();
        let looks =
            [(0, false), (1, true), (2, true), (3, false), (61, false), (62, false), (63, true)];
        let at = |s: u64| begin + Duration::from_secs(s);
        let taken = looks.map(|(s, now)| conditions.taken(now, at(s)));
        assert_eq!(taken, [false, true, false, false, false, true, true]);
    }
}
