//! Stores what has been reported, so that a lasting condition is reported once, and again only
//! after it was over.

use std::collections::BTreeSet;

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
}
