//! Dates of the batch file, `MM/DD/YYYY HH:MM:SS` in UTC, from and to seconds since 1970; it knows
//! no time zones and no clock.

use time::{Date, Month, OffsetDateTime};

/// A moment by the calendar; `None` outside the years 0 to 9999, which four digits can say.
fn moment(unix_seconds: i64) -> Option<OffsetDateTime> {
    let moment = OffsetDateTime::from_unix_timestamp(unix_seconds).ok()?;
    (0..=9999).contains(&moment.year()).then_some(moment)
}

fn time_of_day(at: OffsetDateTime) -> String {
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

/// Seconds since 1970 as the batch file has them, `11/21/2026 19:34:52`; `None` outside the years 0
/// to 9999.
#[must_use]
pub fn utc(unix_seconds: i64) -> Option<String> {
    let at = moment(unix_seconds)?;
    let (month, day, year) = (u8::from(at.month()), at.day(), at.year());
    Some(format!("{month:02}/{day:02}/{year:04} {}", time_of_day(at)))
}

/// The same as ISO 8601, `2026-11-21T19:34:52Z`.
pub(crate) fn iso(unix_seconds: i64) -> Option<String> {
    let at = moment(unix_seconds)?;
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    Some(format!("{year:04}-{month:02}-{day:02}T{}Z", time_of_day(at)))
}

/// `MM/DD/YYYY HH:MM:SS`, with or without a fraction of a second (perfmon writes one), as ms since
/// 1970. Between date and time any white space will do: a public reader in Java,
/// `fr.lelouet.server.perf.vmware.esxtop`, knows files with a line break there.
pub(crate) fn unix_ms(text: &str) -> Option<i64> {
    let mut words = text.split_whitespace();
    let (date, time) = (words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let number = |s: &str, digits: usize| {
        (s.len() == digits && s.bytes().all(|b| b.is_ascii_digit()))
            .then(|| s.parse::<u16>().ok())?
    };
    let mut date = date.split('/');
    let (month, day, year) =
        (number(date.next()?, 2)?, number(date.next()?, 2)?, number(date.next()?, 4)?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':');
    let (hour, minute, second) =
        (number(time.next()?, 2)?, number(time.next()?, 2)?, number(time.next()?, 2)?);
    let sane = date.next().is_none() && time.next().is_none();
    let fraction_is_one =
        (1..=9).contains(&fraction.len()) && fraction.bytes().all(|b| b.is_ascii_digit());
    // A leap second is the 61st.
    if !sane || hour > 23 || minute > 59 || second > 60 || !fraction_is_one {
        return None;
    }
    // Below one ms is cut off.
    let ms = number(&format!("{fraction:0<3}")[..3], 3)?;
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(i32::from(year), month, u8::try_from(day).ok()?).ok()?;
    let seconds = [(hour, 3600), (minute, 60), (second, 1)].map(|(n, s)| i64::from(n) * s);
    let midnight = date.midnight().assume_utc().unix_timestamp();
    Some((midnight + seconds.iter().sum::<i64>()) * 1000 + i64::from(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_written_and_read_back() {
        let known = [
            (0, "01/01/1970 00:00:00"),
            (951_782_400, "02/29/2000 00:00:00"),
            (1_494_830_977, "05/15/2017 06:49:37"),
            (1_795_289_692, "11/21/2026 19:34:52"),
            (-1, "12/31/1969 23:59:59"),
            (4_107_542_400, "03/01/2100 00:00:00"),
            (253_402_300_799, "12/31/9999 23:59:59"),
        ];
        for (seconds, text) in known {
            assert_eq!(utc(seconds).as_deref(), Some(text));
            assert_eq!(unix_ms(text), Some(seconds * 1000), "{text}");
        }
        assert_eq!(iso(1_795_289_692).as_deref(), Some("2026-11-21T19:34:52Z"));
    }

    #[test]
    fn every_day_of_1200_years_comes_back() {
        for day in -300_000..140_000 {
            let seconds = day * 86_400 + 12_345;
            assert_eq!(unix_ms(&utc(seconds).unwrap()), Some(seconds * 1000), "{day}");
        }
    }

    #[test]
    fn moments_without_four_digits_of_a_year_are_refused() {
        assert_eq!(
            [253_402_300_800, i64::MAX, i64::MIN, -62_167_219_201].map(utc),
            [None, None, None, None]
        );
        assert_eq!(utc(-62_167_219_200).as_deref(), Some("01/01/0000 00:00:00"));
    }

    #[test]
    fn fractions_and_line_breaks_are_read_and_what_is_no_date_is_refused() {
        assert_eq!(unix_ms("10/29/2017 01:59:44.562"), Some(1_509_242_384_562));
        assert_eq!(unix_ms("10/29/2017 01:59:44.5"), Some(1_509_242_384_500));
        assert_eq!(unix_ms("10/29/2017\n01:59:44"), Some(1_509_242_384_000));
        assert_eq!(unix_ms("12/31/2016 23:59:60"), unix_ms("01/01/2017 00:00:00"));
        let wrong = [
            "",
            "10/29/2017",
            "29/10/2017 01:02:03",
            "02/29/2017 01:02:03",
            "1/2/2017 01:02:03",
            "10/29/2017 24:00:00",
            "10/29/2017 01:60:00",
        ];
        let odd = [
            "10/29/2017 01:02:03 x",
            "10/29/2017 01:02",
            "10/29/2017 01:02:03.",
            "10/29/2017 01:02:03.5x",
            "10/29/2017 01:02:03.12é",
            "10/29/2017 +1:02:03",
            "10/29/2017/1 01:02:03",
        ];
        for text in wrong.into_iter().chain(odd) {
            assert_eq!(unix_ms(text), None, "{text}");
        }
    }
}
