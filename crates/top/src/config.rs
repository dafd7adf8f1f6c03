//! Settings of `tandem top` that last from session to session: fields and their order, sorting,
//! interval; a file is accepted or refused whole.

use esxtop::{COUNTERS, Field, Metric, Object};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Intervals that may be set, in s. Below the first, looking itself would show.
pub const INTERVAL_S: RangeInclusive<f64> = 0.1..=3600.0;

/// A part of the table, or of the lines above it, that `f` switches and `o` moves, under esxtop's
/// letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A: id of the world, of a group its own.
    Id,
    /// B: id of the group.
    Gid,
    /// D: name.
    Name,
    /// E to K: counters.
    Counters(Field),
}

impl Part {
    /// All, in their usual order.
    pub const ALL: [Part; 9] = [
        Part::Id,
        Part::Gid,
        Part::Name,
        Part::Counters(Field::Nwld),
        Part::Counters(Field::StateTimes),
        Part::Counters(Field::Events),
        Part::Counters(Field::Alloc),
        Part::Counters(Field::Summary),
        Part::Counters(Field::Physical),
    ];

    /// esxtop's letter.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Part::Id => 'A',
            Part::Gid => 'B',
            Part::Name => 'D',
            Part::Counters(field) => field.letter(),
        }
    }

    /// What `f` and `o` call it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Part::Id => "ID of a world; of a group its GID",
            Part::Gid => "GID of the group",
            Part::Name => "NAME",
            Part::Counters(Field::Nwld) => "NWLD, number of worlds",
            Part::Counters(Field::StateTimes) => {
                "%STATE TIMES: %USED %RUN %SYS %WAIT %VMWAIT %RDY and the others"
            }
            Part::Counters(Field::Events) => "EVENTS/s: SWTCH/s MIG/s QEXP/s WAKE/s",
            Part::Counters(Field::Alloc) => "CPU ALLOC: AMIN AMAX ASHRS AUNITS",
            Part::Counters(Field::Summary) => "SUMMARY: %LAT_C %DMD EMIN TIMER/s",
            Part::Counters(Field::Physical) => {
                "physical CPUs: PCPU USED(%), PCPU UTIL(%), CORE UTIL(%)"
            }
        }
    }
}

/// By what rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// A counter, the highest first.
    Metric(Metric),
    /// GID, the lowest first.
    Gid,
    /// Name.
    Name,
}

impl SortBy {
    /// Title of the column.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            SortBy::Metric(m) => m.counter().column,
            SortBy::Gid => "GID",
            SortBy::Name => "NAME",
        }
    }

    /// All that a row can be sorted by, in the usual order of columns.
    pub fn all() -> impl Iterator<Item = SortBy> {
        [SortBy::Gid, SortBy::Name].into_iter().chain(Object::Group.metrics().map(SortBy::Metric))
    }
}

/// What is remembered.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two looks, in s.
    pub interval_s: f64,
    /// All parts in their order, and whether each is shown.
    pub parts: Vec<(Part, bool)>,
    /// By what rows are sorted.
    pub sort: SortBy,
    /// The other way round.
    pub reverse: bool,
    /// Whether only VMs are shown.
    pub vms_only: bool,
}

impl Default for Config {
    fn default() -> Config {
        let hidden =
            |p: Part| matches!(p, Part::Counters(Field::Events | Field::Alloc | Field::Summary));
        Config {
            interval_s: 5.0,
            parts: Part::ALL.into_iter().map(|p| (p, !hidden(p))).collect(),
            sort: SortBy::Metric(Metric::Used),
            reverse: false,
            vms_only: false,
        }
    }
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    interval_s: Option<f64>,
    #[serde(default)]
    fields: Option<String>,
    #[serde(default)]
    sort: Option<String>,
    #[serde(default)]
    reverse: bool,
    #[serde(default)]
    vms_only: bool,
}

/// A file that is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{key}: cannot use it: seen {seen}, allowed {allowed}; correct it, or write the file anew by W"
)]
pub struct ConfigError {
    /// The key, or the file as a whole.
    pub key: &'static str,
    /// What stands there.
    pub seen: String,
    /// What could stand there.
    pub allowed: String,
}

impl Config {
    /// Takes a file's text.
    ///
    /// # Errors
    /// `ConfigError` names the first key that is wrong.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let whole = |e: toml::de::Error| ConfigError {
            key: "configuration of top",
            seen: e.message().to_owned(),
            allowed: "interval_s, fields, sort, reverse, vms_only".to_owned(),
        };
        let read: Text = toml::from_str(text).map_err(whole)?;
        let mut config =
            Config { reverse: read.reverse, vms_only: read.vms_only, ..Config::default() };
        if let Some(s) = read.interval_s {
            let allowed = || format!("{} to {}", INTERVAL_S.start(), INTERVAL_S.end());
            config.interval_s = Some(s).filter(|s| INTERVAL_S.contains(s)).ok_or_else(|| {
                ConfigError { key: "interval_s", seen: s.to_string(), allowed: allowed() }
            })?;
        }
        if let Some(fields) = read.fields {
            config.parts = parts(&fields).ok_or_else(|| ConfigError {
                key: "fields",
                seen: format!("'{fields}'"),
                allowed: "each of the letters ABDEFGHIK once, capital where it is shown, in the \
                    order of the columns"
                    .to_owned(),
            })?;
        }
        if let Some(sort) = read.sort {
            config.sort = SortBy::all().find(|s| s.title() == sort).ok_or_else(|| ConfigError {
                key: "sort",
                seen: format!("'{sort}'"),
                allowed: SortBy::all().map(SortBy::title).collect::<Vec<_>>().join(", "),
            })?;
        }
        Ok(config)
    }

    /// The text of a file.
    #[must_use]
    pub fn text(&self) -> String {
        let letter = |(p, shown): &(Part, bool)| {
            if *shown { p.letter() } else { p.letter().to_ascii_lowercase() }
        };
        let text = Text {
            interval_s: Some(self.interval_s),
            fields: Some(self.parts.iter().map(letter).collect()),
            sort: Some(self.sort.title().to_owned()),
            reverse: self.reverse,
            vms_only: self.vms_only,
        };
        format!(
            "# Configuration of tandem top, written by its key W.\n{}",
            toml::to_string(&text).unwrap_or_default()
        )
    }

    /// Whether a part is shown.
    #[must_use]
    pub fn shows(&self, part: Part) -> bool {
        self.parts.iter().any(|(p, shown)| *p == part && *shown)
    }

    /// Counters with a column in the table, in order.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        let of = |field: Field| {
            COUNTERS
                .iter()
                .filter(move |c| c.field == field && c.on.contains(&Object::Group))
                .map(|c| c.metric)
        };
        let shown = self.parts.iter().filter(|p| p.1);
        shown
            .filter_map(|(p, _)| if let Part::Counters(field) = p { Some(*field) } else { None })
            .flat_map(of)
    }

    /// Switches a part on or off by its letter.
    pub(crate) fn switch(&mut self, letter: char) {
        if let Some(part) =
            self.parts.iter_mut().find(|p| p.0.letter() == letter.to_ascii_uppercase())
        {
            part.1 = !part.1;
        }
    }

    /// Moves a part by its letter: a capital to the left, a small one to the right.
    pub(crate) fn shift(&mut self, letter: char) {
        let Some(at) = self.parts.iter().position(|p| p.0.letter() == letter.to_ascii_uppercase())
        else {
            return;
        };
        let to = if letter.is_ascii_uppercase() { at.checked_sub(1) } else { Some(at + 1) };
        if let Some(to) = to.filter(|to| *to < self.parts.len()) {
            self.parts.swap(at, to);
        }
    }
}

fn parts(fields: &str) -> Option<Vec<(Part, bool)>> {
    let part = |c: char| {
        Part::ALL
            .into_iter()
            .find(|p| p.letter() == c.to_ascii_uppercase())
            .map(|p| (p, c.is_ascii_uppercase()))
    };
    let all: Vec<(Part, bool)> = fields.chars().map(part).collect::<Option<_>>()?;
    let whole = Part::ALL.into_iter().all(|p| all.iter().filter(|x| x.0 == p).count() == 1);
    whole.then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut c = Config {
            interval_s: 2.5,
            sort: SortBy::Metric(Metric::Ready),
            reverse: true,
            vms_only: true,
            ..Config::default()
        };
        c.switch('g');
        c.switch('A');
        c.shift('G');
        c.shift('d');
        assert!(c.text().contains("fields = \"aBEDGFhiK\""), "{}", c.text());
        assert_eq!(Config::parse(&c.text()).unwrap(), c);
        assert_eq!(Config::parse("").unwrap(), Config::default());
        assert_eq!(Config::parse(&Config::default().text()).unwrap(), Config::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |text: &str| Config::parse(text).unwrap_err().to_string();
        assert_eq!(
            refused("interval_s = 0.01"),
            "interval_s: cannot use it: seen 0.01, allowed 0.1 to 3600; correct it, or write the \
                file anew by W"
        );
        for fields in ["ABDEFGHI", "ABDEFGHIKK", "ABDEFGHIZ", ""] {
            assert!(
                refused(&format!("fields = '{fields}'")).starts_with("fields: cannot use it"),
                "{fields}"
            );
        }
        assert!(refused("sort = '%READY'").contains("allowed GID, NAME, NWLD, %USED"));
        assert!(refused("colour = 1").contains("unknown field `colour`"));
    }

    #[test]
    fn columns_follow_the_order_of_the_parts() {
        let mut c = Config::default();
        let columns =
            |c: &Config| c.metrics().map(|m| m.counter().column).collect::<Vec<_>>().join(" ");
        assert_eq!(
            columns(&c),
            "NWLD %USED %RUN %SYS %WAIT %VMWAIT %RDY %IDLE %OVRLP %CSTP %MLMTD %SWPWT"
        );
        c.switch('F');
        c.switch('G');
        c.shift('G');
        c.shift('G');
        assert_eq!(columns(&c), "SWTCH/s MIG/s QEXP/s WAKE/s NWLD");
        (0..20).for_each(|_| c.shift('G'));
        assert_eq!(c.parts[0].0.letter(), 'G', "it stops at the edge");
    }
}
