//! Writes rates and columns for texts about reservations; it never decides anything.
//!
//! Rates are percent of one pCPU, as in esxtop. Two decimals are enough for usual settings; where
//! two different rates would read the same, more are shown, so that no text says "asks 200 %, has
//! 200 %" of a refusal.

use units::Rate;

/// A rate in percent of one pCPU, to the nearest hundredth, without zeros at the end.
pub(crate) fn percent(rate: Rate) -> String {
    decimals(rate, 2)
}

/// Two rates that are compared, with as many decimals as it takes to tell them apart.
pub(crate) fn percents(a: Rate, b: Rate) -> (String, String) {
    let texts = |n| (decimals(a, n), decimals(b, n));
    // The sixth decimal tells any two rates apart: a unit is 0.000095 %.
    (2..6).map(texts).find(|(x, y)| a == b || x != y).unwrap_or_else(|| texts(6))
}

fn decimals(rate: Rate, n: u32) -> String {
    let ten = 10u128.pow(n);
    let parts = (u128::from(rate.0) * 100 * ten + (1 << (Rate::SHIFT - 1))) >> Rate::SHIFT;
    let text = format!("{}.{:0width$}", parts / ten, parts % ten, width = n as usize);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The same cells, each column as wide as its widest: the first flush left, the others flush right.
pub(crate) fn aligned<const N: usize>(mut rows: Vec<[String; N]>) -> Vec<[String; N]> {
    for column in 0..N {
        let width = rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        for row in &mut rows {
            let cell = &row[column];
            row[column] =
                if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") };
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_percent_of_one_pcpu() {
        assert_eq!(percent(Rate::pcpus(6)), "600 %");
        assert_eq!(percent(Rate(Rate::ONE.0 / 8)), "12.5 %");
        assert_eq!(percent(Rate(Rate::ONE.0 / 3)), "33.33 %");
        assert_eq!((percent(Rate(0)), percent(Rate(1))), ("0 %".to_owned(), "0 %".to_owned()));
    }

    #[test]
    fn two_rates_that_differ_never_read_the_same() {
        assert_eq!(
            percents(Rate(Rate::ONE.0 + 1), Rate::ONE),
            ("100.0001 %".to_owned(), "100 %".to_owned())
        );
        assert_eq!(
            percents(Rate::pcpus(2), Rate::pcpus(2)),
            ("200 %".to_owned(), "200 %".to_owned())
        );
        for unit in 0..2000 {
            let (a, b) = percents(Rate(unit), Rate(unit + 1));
            assert_ne!(a, b);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        assert_eq!(
            aligned(vec![row("/:", "5 %"), row("/gold:", "100 %")]),
            [row("/:    ", "  5 %"), row("/gold:", "100 %")]
        );
    }
}
