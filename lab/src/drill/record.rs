//! Reads the observations that a drill's script prints, `drill: KIND key=value …`, and sums them up
//! for the judges.

use std::collections::BTreeMap;

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// What was observed.
    pub kind: String,
    fields: BTreeMap<String, String>,
}

impl Record {
    /// A field's text; empty when there is none.
    pub fn text(&self, key: &str) -> &str {
        self.fields.get(key).map_or("", String::as_str)
    }

    /// A field's number; none when it is missing or no number.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.text(key).parse().ok()
    }

    /// A field's whole number; none when it is missing or no number.
    pub fn count(&self, key: &str) -> Option<u64> {
        self.text(key).parse().ok()
    }
}

/// Every observation of a console, in order; half a line is passed over.
pub(super) fn records(console: &str) -> Vec<Record> {
    let whole = console.rfind('\n').map_or("", |end| &console[..end]);
    whole.lines().filter_map(record).collect()
}

fn record(line: &str) -> Option<Record> {
    let mut words = line.trim_end().strip_prefix("drill: ")?.split(' ');
    let kind = words.next()?.to_owned();
    let fields = words
        .filter_map(|w| w.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    Some(Record { kind, fields })
}

/// Smallest, median and largest of some numbers; none of none.
pub(super) fn spread(mut numbers: Vec<f64>) -> Option<(f64, f64, f64)> {
    numbers.sort_by(f64::total_cmp);
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    let middle = numbers.len() / 2;
    let median = if numbers.len() % 2 == 1 {
        numbers[middle]
    } else {
        (numbers[middle - 1] + numbers[middle]) / 2.0
    };
    Some((first, median, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_records_and_half_a_line_is_passed_over() {
        let seen =
            records("noise\ndrill: cycle n=3 load_ms=1200 state=disabled\r\ndrill: cycle n=4 lo");
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].kind.as_str(), seen[0].count("n"), seen[0].text("state")),
            ("cycle", Some(3), "disabled")
        );
        assert_eq!(seen[0].number("missing"), None);
    }

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(spread(vec![4.0, 1.0, 3.0, 2.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(spread(vec![]), None);
    }
}
