//! Finds the most CPU time that a limited pool used in any second, from samples of its used time;
//! its resolution is theirs.

/// A second in ns.
const SECOND_NS: u64 = 1_000_000_000;

/// CPU time used so far at each moment that was looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses(Vec<(u64, u64)>);

impl Uses {
    /// At `at_ns`, `more_ns` have been used since the look before.
    pub(crate) fn add(&mut self, at_ns: u64, more_ns: u64) {
        let before = self.0.last().map_or(0, |u| u.1);
        self.0.push((at_ns, before + more_ns));
    }

    /// The most used in any second; all of it where less than a second was seen. Between two looks
    /// CPU time is taken to have been used evenly, so the most is in a second that begins or ends
    /// at a look.
    pub(crate) fn peak(&self) -> Option<u64> {
        let (first, last) = (*self.0.first()?, *self.0.last()?);
        if last.0 - first.0 < SECOND_NS {
            return Some(last.1 - first.1);
        }
        let begins = self
            .0
            .iter()
            .filter(|u| u.0 + SECOND_NS <= last.0)
            .map(|u| self.at(u.0 + SECOND_NS) - u.1);
        let ends = self
            .0
            .iter()
            .filter(|u| u.0 >= first.0 + SECOND_NS)
            .map(|u| u.1 - self.at(u.0 - SECOND_NS));
        begins.chain(ends).max()
    }

    /// What had been used at `ns`, which is within what was seen.
    fn at(&self, ns: u64) -> u64 {
        let next = self.0.partition_point(|u| u.0 < ns);
        let b = self.0[next.min(self.0.len() - 1)];
        let a = self.0[next.saturating_sub(1)];
        let (gone, whole) = (ns.saturating_sub(a.0).min(b.0 - a.0), (b.0 - a.0).max(1));
        a.1 + (u128::from(b.1 - a.1) * u128::from(gone) / u128::from(whole)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn uses(steps: &[(u64, u64)]) -> Uses {
        let mut uses = Uses::default();
        steps.iter().for_each(|(at, more)| uses.add(at * MS, more * MS));
        uses
    }

    #[test]
    fn the_busiest_second_is_found_wherever_it_begins() {
        // 100 ms a look: idle, then 1.2 s of 2 pCPUs, then idle.
        let steps: Vec<(u64, u64)> =
            (0..40).map(|i| (i * 100, if (11..23).contains(&i) { 200 } else { 0 })).collect();
        assert_eq!(uses(&steps).peak(), Some(2000 * MS));
        // A burst of 300 ms within a second of half a pCPU.
        let steps: Vec<(u64, u64)> =
            (0..30).map(|i| (i * 100, if (15..18).contains(&i) { 100 } else { 50 })).collect();
        assert_eq!(uses(&steps).peak(), Some(650 * MS));
    }

    #[test]
    fn looks_that_are_not_on_time_are_counted_by_the_part_that_is_within_the_second() {
        // 130 ms a look, one pCPU all the time: a second is a second.
        let steps: Vec<(u64, u64)> =
            (0..20).map(|i| (i * 130, if i == 0 { 0 } else { 130 })).collect();
        assert_eq!(uses(&steps).peak(), Some(1000 * MS));
    }

    #[test]
    fn less_than_a_second_counts_whole() {
        assert_eq!(uses(&[(5, 0), (305, 60), (605, 30)]).peak(), Some(90 * MS));
        assert_eq!((uses(&[(5, 9)]).peak(), Uses::default().peak()), (Some(0), None));
    }
}
