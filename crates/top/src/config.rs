//! Settings of `tandem top` that last from session to session: the panel, fields and their order,
//! sorting, interval; a file is accepted or refused whole.

use esxtop::{Field, Metric, Object};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Intervals that may be set, in s. Simulated time and a trace cost nothing, but each sample does.
pub const INTERVAL_S: RangeInclusive<f64> = 0.001..=3600.0;
/// The shortest on this host, in s. Below it, looking itself would show.
pub const LIVE_S: f64 = 0.1;

/// What the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Panel {
    /// CPU times of groups and worlds, `c`.
    #[default]
    Cpu,
    /// Memory of VMs by NUMA node, `m`.
    Memory,
}

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

impl Panel {
    /// Its parts, in their usual order.
    #[must_use]
    pub fn parts(self) -> &'static [Part] {
        match self {
            Panel::Cpu => &[
                Part::Id,
                Part::Gid,
                Part::Name,
                Part::Counters(Field::Nwld),
                Part::Counters(Field::StateTimes),
                Part::Counters(Field::Events),
                Part::Counters(Field::Alloc),
                Part::Counters(Field::Summary),
                Part::Counters(Field::Physical),
            ],
            Panel::Memory => &[
                Part::Id,
                Part::Gid,
                Part::Name,
                Part::Counters(Field::Size),
                Part::Counters(Field::Numa),
            ],
        }
    }

    /// What its rows are: groups, or the memory of VMs.
    #[must_use]
    pub fn object(self) -> Object {
        match self {
            Panel::Cpu => Object::Group,
            Panel::Memory => Object::Memory,
        }
    }

    /// Counters with a column, in their usual order.
    pub fn metrics(self) -> impl Iterator<Item = Metric> {
        let shown = [esxtop::Panel::Cpu, esxtop::Panel::Memory];
        let has = move |m: &Metric| m.counter().panels.iter().any(|p| shown.contains(p));
        self.object().metrics().filter(has)
    }

    /// All that a row can be sorted by, in the usual order of columns.
    pub fn orders(self) -> impl Iterator<Item = SortBy> {
        [SortBy::Gid, SortBy::Name].into_iter().chain(self.metrics().map(SortBy::Metric))
    }
}

impl Part {
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
            Part::Counters(Field::Size) => "SIZE: MEMSZ",
            Part::Counters(Field::Numa) => "NUMA STATS: NHN NMIG NRMEM NLMEM N%L",
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
}

/// The table of a panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// All parts in their order, and whether each is shown.
    pub parts: Vec<(Part, bool)>,
    /// By what rows are sorted.
    pub sort: SortBy,
    /// The other way round.
    pub reverse: bool,
}

impl Columns {
    fn of(panel: Panel) -> Columns {
        let hidden =
            |p: Part| matches!(p, Part::Counters(Field::Events | Field::Alloc | Field::Summary));
        let sort = match panel {
            Panel::Cpu => Metric::Used,
            Panel::Memory => Metric::MemorySize,
        };
        Columns {
            parts: panel.parts().iter().map(|p| (*p, !hidden(*p))).collect(),
            sort: SortBy::Metric(sort),
            reverse: false,
        }
    }
}

/// What is remembered.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two looks, in s.
    pub interval_s: f64,
    /// What is shown.
    pub panel: Panel,
    /// The table of the CPU panel.
    pub cpu: Columns,
    /// That of the memory panel.
    pub memory: Columns,
    /// Whether only VMs are shown.
    pub vms_only: bool,
}

impl Default for Config {
    fn default() -> Config {
        let [cpu, memory] = [Panel::Cpu, Panel::Memory].map(Columns::of);
        Config { interval_s: 5.0, panel: Panel::default(), cpu, memory, vms_only: false }
    }
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    interval_s: Option<f64>,
    #[serde(default)]
    panel: Panel,
    #[serde(default)]
    vms_only: bool,
    #[serde(flatten)]
    cpu: Table,
    #[serde(default)]
    memory: Table,
}

/// The table of a panel in the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    fields: Option<String>,
    #[serde(default)]
    sort: Option<String>,
    #[serde(default)]
    reverse: bool,
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
            allowed: "interval_s, panel, vms_only, fields, sort, reverse, and the last three in \
                [memory]"
                .to_owned(),
        };
        let read: Text = toml::from_str(text).map_err(whole)?;
        let mut config = Config {
            panel: read.panel,
            vms_only: read.vms_only,
            cpu: columns(Panel::Cpu, read.cpu)?,
            memory: columns(Panel::Memory, read.memory)?,
            ..Config::default()
        };
        if let Some(s) = read.interval_s {
            let allowed = || format!("{} to {}", INTERVAL_S.start(), INTERVAL_S.end());
            config.interval_s = Some(s).filter(|s| INTERVAL_S.contains(s)).ok_or_else(|| {
                ConfigError { key: "interval_s", seen: s.to_string(), allowed: allowed() }
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
        let table = |c: &Columns| Table {
            fields: Some(c.parts.iter().map(letter).collect()),
            sort: Some(c.sort.title().to_owned()),
            reverse: c.reverse,
        };
        let text = Text {
            interval_s: Some(self.interval_s),
            panel: self.panel,
            vms_only: self.vms_only,
            cpu: table(&self.cpu),
            memory: table(&self.memory),
        };
        format!(
            "# Configuration of tandem top, written by its key W.\n{}",
            toml::to_string(&text).unwrap_or_default()
        )
    }

    /// The table that is shown.
    #[must_use]
    pub fn columns(&self) -> &Columns {
        match self.panel {
            Panel::Cpu => &self.cpu,
            Panel::Memory => &self.memory,
        }
    }

    /// The same, to be changed.
    pub(crate) fn columns_mut(&mut self) -> &mut Columns {
        match self.panel {
            Panel::Cpu => &mut self.cpu,
            Panel::Memory => &mut self.memory,
        }
    }

    /// Whether a part is shown.
    #[must_use]
    pub fn shows(&self, part: Part) -> bool {
        self.columns().parts.iter().any(|(p, shown)| *p == part && *shown)
    }

    /// Counters with a column in the table, in order.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        let panel = self.panel;
        let of = move |field: Field| panel.metrics().filter(move |m| m.counter().field == field);
        let shown = self.columns().parts.iter().filter(|p| p.1);
        shown
            .filter_map(|(p, _)| if let Part::Counters(field) = p { Some(*field) } else { None })
            .flat_map(of)
    }

    /// Switches a part on or off by its letter.
    pub(crate) fn switch(&mut self, letter: char) {
        if let Some(part) = self
            .columns_mut()
            .parts
            .iter_mut()
            .find(|p| p.0.letter() == letter.to_ascii_uppercase())
        {
            part.1 = !part.1;
        }
    }

    /// Moves a part by its letter: a capital to the left, a small one to the right.
    pub(crate) fn shift(&mut self, letter: char) {
        let parts = &mut self.columns_mut().parts;
        let Some(at) = parts.iter().position(|p| p.0.letter() == letter.to_ascii_uppercase())
        else {
            return;
        };
        let to = if letter.is_ascii_uppercase() { at.checked_sub(1) } else { Some(at + 1) };
        if let Some(to) = to.filter(|to| *to < parts.len()) {
            parts.swap(at, to);
        }
    }
}

/// The table of a panel as a file has it.
fn columns(panel: Panel, read: Table) -> Result<Columns, ConfigError> {
    let mut columns = Columns { reverse: read.reverse, ..Columns::of(panel) };
    if let Some(fields) = read.fields {
        let letters: String = panel.parts().iter().map(|p| p.letter()).collect();
        columns.parts = parts(panel, &fields).ok_or_else(|| ConfigError {
            key: if panel == Panel::Cpu { "fields" } else { "memory.fields" },
            seen: format!("'{fields}'"),
            allowed: format!(
                "each of the letters {letters} once, capital where it is shown, in the order of \
                    the columns"
            ),
        })?;
    }
    if let Some(sort) = read.sort {
        columns.sort = panel.orders().find(|s| s.title() == sort).ok_or_else(|| ConfigError {
            key: if panel == Panel::Cpu { "sort" } else { "memory.sort" },
            seen: format!("'{sort}'"),
            allowed: panel.orders().map(SortBy::title).collect::<Vec<_>>().join(", "),
        })?;
    }
    Ok(columns)
}

fn parts(panel: Panel, fields: &str) -> Option<Vec<(Part, bool)>> {
    let part = |c: char| {
        let found = panel.parts().iter().find(|p| p.letter() == c.to_ascii_uppercase());
        found.map(|p| (*p, c.is_ascii_uppercase()))
    };
    let all: Vec<(Part, bool)> = fields.chars().map(part).collect::<Option<_>>()?;
    let whole = panel.parts().iter().all(|p| all.iter().filter(|x| x.0 == *p).count() == 1);
    whole.then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut c = Config { interval_s: 2.5, vms_only: true, ..Config::default() };
        c.cpu = Columns { sort: SortBy::Metric(Metric::Ready), reverse: true, ..c.cpu };
        c.switch('g');
        c.switch('A');
        c.shift('G');
        c.shift('d');
        assert!(c.text().contains("fields = \"aBEDGFhiK\""), "{}", c.text());
        assert_eq!(Config::parse(&c.text()).unwrap(), c);
        c.panel = Panel::Memory;
        c.switch('H');
        c.shift('G');
        c.memory.sort = SortBy::Metric(Metric::LocalPercent);
        assert!(c.text().contains("fields = \"ABDGh\""), "{}", c.text());
        assert!(c.text().contains("fields = \"aBEDGFhiK\""), "{}", c.text());
        assert_eq!(Config::parse(&c.text()).unwrap(), c);
        assert_eq!(Config::parse("").unwrap(), Config::default());
        assert_eq!(Config::parse(&Config::default().text()).unwrap(), Config::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |text: &str| Config::parse(text).unwrap_err().to_string();
        assert_eq!(
            refused("interval_s = 0.0001"),
            "interval_s: cannot use it: seen 0.0001, allowed 0.001 to 3600; correct it, or write \
                the file anew by W"
        );
        for fields in ["ABDEFGHI", "ABDEFGHIKK", "ABDEFGHIZ", ""] {
            assert!(
                refused(&format!("fields = '{fields}'")).starts_with("fields: cannot use it"),
                "{fields}"
            );
        }
        assert!(refused("sort = '%READY'").contains("allowed GID, NAME, NWLD, %USED"));
        assert!(refused("[memory]\nsort = '%USED'").contains("allowed GID, NAME, MEMSZ, NMIG"));
        assert!(refused("[memory]\nfields = 'ABDE'").starts_with("memory.fields: cannot use it"));
        assert!(refused("[memory]\ncolour = 1").contains("unknown field `colour`"));
        assert!(refused("panel = 'disk'").contains("unknown variant `disk`"));
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
        assert_eq!(c.cpu.parts[0].0.letter(), 'G', "it stops at the edge");
        c.panel = Panel::Memory;
        assert_eq!(columns(&c), "MEMSZ NMIG NRMEM NLMEM N%L");
    }
}
