//! The table of groups and worlds: which rows, in which order, with which columns in the width
//! there is; it draws nothing.

use crate::cells::{Cell, UNKNOWN, fit, mark, number, safe, width};
use crate::config::{Columns, Panel, Part, SortBy};
use crate::line::{Line, Tone};
use crate::state::State;
use esxtop::{
    AllocUnits, Field, Gid, GroupKind, GroupRates, Level, Metric, Rates, Role, Values, Wid,
    WorldRates,
};
use std::cmp::Ordering;

/// Widths of the column of names.
const NAME_COLUMNS: (usize, usize) = (12, 28);
/// From this width on names may have all of theirs.
const WIDE: usize = 120;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) gid: Gid,
    pub(crate) wid: Option<Wid>,
    /// A group without worlds.
    empty: bool,
    cells: Vec<Cell>,
}

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Part(Part),
    Metric(Metric),
    Units,
    Homes,
}

impl What {
    fn title(self) -> &'static str {
        match self {
            What::Part(Part::Id) => "ID",
            What::Part(Part::Gid) => "GID",
            What::Part(_) => "NAME",
            What::Metric(m) => m.counter().column,
            What::Units => "AUNITS",
            What::Homes => "NHN",
        }
    }

    fn is_name(self) -> bool {
        self == What::Part(Part::Name)
    }

    /// Whether it stays where it is while counters are scrolled.
    fn stays(self) -> bool {
        matches!(self, What::Part(_)) || self == What::Metric(Metric::Worlds)
    }
}

/// How closely columns are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    decimals: usize,
    /// Columns beside a counter: one for a mark, and one between numbers where there is room.
    gap: usize,
    /// Also GID beside ID, and counters that are unknown in every row, which the screen leaves out.
    whole: bool,
}

/// The widest that fits is taken, or the last.
const SETTINGS: [Setting; 4] = [
    Setting { decimals: 2, gap: 2, whole: true },
    Setting { decimals: 2, gap: 2, whole: false },
    Setting { decimals: 1, gap: 2, whole: false },
    Setting { decimals: 1, gap: 1, whole: false },
];

/// The table, whole.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    columns: Vec<What>,
    pub(crate) rows: Vec<Row>,
    setting: Setting,
}

impl Rows {
    /// The rows that the user has asked for, set so that all columns fit into the screen, if they
    /// can be.
    pub(crate) fn of(rates: &Rates, state: &State, screen: usize) -> Rows {
        let [first, rest @ ..] = SETTINGS;
        let mut set = Rows::set(rates, state, first);
        for setting in rest {
            if set.fits(screen) {
                break;
            }
            set = Rows::set(rates, state, setting);
        }
        set
    }

    fn set(rates: &Rates, state: &State, setting: Setting) -> Rows {
        let decimals = setting.decimals;
        let mut columns = columns(state);
        let mut rows = vec![];
        for (gid, group) in chosen(rates, state) {
            rows.push(Row::group(&columns, rates, gid, group, decimals));
            if state.config.panel == Panel::Cpu && state.expanded.contains(&gid) {
                rows.extend(
                    members(rates, state, gid)
                        .into_iter()
                        .map(|(wid, w)| Row::world(&columns, wid, w, decimals)),
                );
            }
        }
        if !setting.whole {
            let id = columns.contains(&What::Part(Part::Id));
            let needed = |(i, what): (usize, &What)| match what {
                What::Part(Part::Gid) => !id,
                // An empty group has counters of 0, not unknown ones.
                What::Metric(m) => {
                    *m == Metric::Worlds
                        || rows.iter().any(|r: &Row| !r.empty && r.cells[i].text != UNKNOWN)
                }
                _ => true,
            };
            let kept: Vec<bool> = columns.iter().enumerate().map(needed).collect();
            let mut i = kept.iter().cycle();
            columns.retain(|_| *i.next().unwrap_or(&true));
            for row in &mut rows {
                let mut i = kept.iter();
                row.cells.retain(|_| *i.next().unwrap_or(&true));
            }
        }
        Rows { columns, rows, setting }
    }

    /// Columns beside a column's text.
    fn gap(&self, what: What) -> usize {
        if matches!(what, What::Metric(_)) { self.setting.gap } else { 1 }
    }

    /// Widths of the columns: as wide as what is in them, marks included.
    fn widths(&self, screen: usize) -> Vec<usize> {
        let longest =
            |i: usize| self.rows.iter().map(|r| width(&r.cells[i].text)).max().unwrap_or(0);
        let name = |i: usize| {
            longest(i).clamp(
                NAME_COLUMNS.0,
                if screen < WIDE { NAME_COLUMNS.0 + 4 } else { NAME_COLUMNS.1 },
            )
        };
        let one = |(i, what): (usize, &What)| {
            if what.is_name() { name(i) } else { longest(i).max(width(what.title())) }
        };
        self.columns.iter().enumerate().map(one).collect()
    }

    /// Whether all columns fit into a screen of that width.
    fn fits(&self, screen: usize) -> bool {
        let all: usize = self
            .widths(screen)
            .iter()
            .zip(&self.columns)
            .map(|(w, what)| w + self.gap(*what))
            .sum();
        all <= screen
    }

    /// The header and, of `rows`, the lines from `state.top` on.
    pub(crate) fn lines(&self, state: &State, screen: usize, height: usize) -> (Line, Vec<Line>) {
        let widths = self.widths(screen);
        let scrolled = self.scrolled(state.left);
        let mut header = Line::default();
        let mut used = 0;
        let mut shown = vec![];
        let mut more = false;
        for (i, what) in self.columns.iter().enumerate().filter(|(i, _)| !scrolled.contains(i)) {
            let columns = widths[i] + self.gap(*what);
            more |= used + columns > screen;
            if more {
                break;
            }
            used += columns;
            let tone = if sorted_by(*what) == Some(state.config.columns().sort) {
                Tone::Sorted
            } else {
                Tone::Head
            };
            header.push(self.cell(what.title(), ' ', widths[i], *what), tone);
            shown.push(i);
        }
        header.push(" ".repeat(screen - used), Tone::Head);
        if more && screen > 0 {
            header.end_with('>', screen);
        }
        let rows = self.rows.iter().enumerate().skip(state.top).take(height);
        let line = |(number, row): (usize, &Row)| {
            let cursor = number == state.cursor;
            let mut line = Line::default();
            for i in &shown {
                let c = &row.cells[*i];
                let tone = match c.level {
                    Level::Bad => Tone::Bad,
                    Level::Look => Tone::Look,
                    Level::Fine if row.wid.is_some() => Tone::World,
                    Level::Fine => Tone::Plain,
                };
                line.push(self.cell(&c.text, mark(c.level), widths[*i], self.columns[*i]), tone);
            }
            line.push(" ".repeat(screen - used), Tone::Plain);
            if cursor { line.highlighted() } else { line }
        };
        (header, rows.map(line).collect())
    }

    fn cell(&self, text: &str, mark: char, columns: usize, what: What) -> String {
        let text = fit(text, columns, what != What::Part(Part::Name));
        if matches!(what, What::Metric(_)) {
            format!("{}{text}{mark}", " ".repeat(self.setting.gap - 1))
        } else {
            text + " "
        }
    }

    /// Columns that are scrolled out on the left.
    fn scrolled(&self, left: usize) -> Vec<usize> {
        self.columns
            .iter()
            .enumerate()
            .filter(|(_, w)| !w.stays())
            .map(|(i, _)| i)
            .take(left)
            .collect()
    }
}

fn sorted_by(what: What) -> Option<SortBy> {
    match what {
        What::Metric(m) => Some(SortBy::Metric(m)),
        What::Part(Part::Gid) => Some(SortBy::Gid),
        What::Part(Part::Name) => Some(SortBy::Name),
        _ => None,
    }
}

fn columns(state: &State) -> Vec<What> {
    let mut out = vec![];
    for (part, _) in state.config.columns().parts.iter().filter(|p| p.1) {
        match part {
            Part::Counters(Field::Physical) => {}
            Part::Counters(field) => {
                out.extend((*field == Field::Numa).then_some(What::Homes));
                let all = state.config.panel.metrics().filter(|m| m.counter().field == *field);
                out.extend(all.map(What::Metric));
                out.extend((*field == Field::Alloc).then_some(What::Units));
            }
            other => out.push(What::Part(*other)),
        }
    }
    out
}

/// vCPUs of a group and of all groups in it.
fn vcpus(rates: &Rates, gid: Gid) -> u32 {
    /// Pools in pools; more would be a circle.
    const DEEP: usize = units::caps::POOL_DEPTH_MAX + 2;
    let within = |g: &GroupRates| {
        let above = std::iter::successors(g.parent, |p| rates.groups.get(p).and_then(|g| g.parent));
        above.take(DEEP).any(|p| p == gid)
    };
    rates.groups.iter().filter(|(id, g)| **id == gid || within(g)).map(|(_, g)| g.vcpus).sum()
}

/// vCPUs by which the thresholds of a group are divided; host tasks have none.
fn divisor(rates: &Rates, gid: Gid, g: &GroupRates) -> Option<u32> {
    match (g.kind, vcpus(rates, gid)) {
        (GroupKind::Host | GroupKind::System, _) => None,
        // A recorded file does not say which VMs a pool has: any of its worlds may be a vCPU.
        (GroupKind::Pool, 0) => {
            g.values.get(Metric::Worlds).map(|n| n as u32).filter(|worlds| *worlds > 0)
        }
        (_, vcpus) => Some(vcpus),
    }
}

/// Whether a group's name contains `wanted`, which is in small letters.
pub(crate) fn is_named(g: &GroupRates, wanted: &str) -> bool {
    g.name.to_lowercase().contains(wanted)
}

/// Groups that are shown, in order.
fn chosen<'r>(rates: &'r Rates, state: &State) -> Vec<(Gid, &'r GroupRates)> {
    let wanted = state.filter.to_lowercase();
    // Of a pool's memory nothing is known.
    let vms_only = state.config.vms_only || state.config.panel == Panel::Memory;
    let Columns { sort, reverse, .. } = *state.config.columns();
    let shown = |(gid, g): &(&Gid, &GroupRates)| {
        g.kind != GroupKind::Host
            && (!vms_only || g.kind == GroupKind::Vm)
            && state.only.is_none_or(|only| only == **gid)
            && is_named(g, &wanted)
    };
    let mut all: Vec<(Gid, &GroupRates)> =
        rates.groups.iter().filter(shown).map(|(gid, g)| (*gid, g)).collect();
    let by = instead(sort, all.iter().map(|g| &g.1.values));
    all.sort_by(|a, b| {
        let order = match by {
            SortBy::Metric(m) => higher_first(&a.1.values, &b.1.values, m, reverse),
            SortBy::Gid => turned(a.0.cmp(&b.0), reverse),
            SortBy::Name => turned(a.1.name.to_lowercase().cmp(&b.1.name.to_lowercase()), reverse),
        };
        order.then(a.0.cmp(&b.0))
    });
    all
}

/// Worlds of a group, in order.
fn members<'r>(rates: &'r Rates, state: &State, gid: Gid) -> Vec<(Wid, &'r WorldRates)> {
    let mut all: Vec<(Wid, &WorldRates)> =
        rates.worlds.iter().filter(|(_, w)| w.gid == gid).map(|(wid, w)| (*wid, w)).collect();
    let Columns { sort, reverse, .. } = *state.config.columns();
    let by = instead(sort, all.iter().map(|w| &w.1.values));
    all.sort_by(|a, b| {
        let order = match by {
            SortBy::Metric(m) => higher_first(&a.1.values, &b.1.values, m, reverse),
            SortBy::Gid | SortBy::Name => turned(role(&a.1.role).cmp(&role(&b.1.role)), reverse),
        };
        order.then(a.0.cmp(&b.0))
    });
    all
}

/// If %USED is unknown in every row, as in a trace, rows are sorted by %RUN instead.
fn instead<'v>(by: SortBy, mut values: impl Iterator<Item = &'v Values>) -> SortBy {
    match by {
        // An empty group has used 0.
        SortBy::Metric(Metric::Used)
            if values.all(|v| v.get(Metric::Used).is_none_or(|used| used == 0.0)) =>
        {
            SortBy::Metric(Metric::Run)
        }
        other => other,
    }
}

/// The highest first; unknown values come last in either order.
fn higher_first(a: &Values, b: &Values, metric: Metric, reverse: bool) -> Ordering {
    match (a.get(metric), b.get(metric)) {
        (Some(a), Some(b)) => turned(b.total_cmp(&a), reverse),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn turned(order: Ordering, reverse: bool) -> Ordering {
    if reverse { order.reverse() } else { order }
}

/// vCPUs by their number, then the others by name.
fn role(role: &Role) -> (u32, &str) {
    match role {
        Role::Vcpu(n) => (*n, ""),
        Role::Helper(name) | Role::Task(name) => (u32::MAX, name),
    }
}

impl Row {
    fn group(columns: &[What], rates: &Rates, gid: Gid, g: &GroupRates, decimals: usize) -> Row {
        let vcpus = divisor(rates, gid, g);
        let name = safe(&g.name);
        let facts = (&g.values, g.units, &g.homes[..]);
        let cells = cells(columns, (gid.0, gid), &name, facts, vcpus, decimals);
        Row { gid, wid: None, empty: g.values.get(Metric::Worlds) == Some(0.0), cells }
    }

    fn world(columns: &[What], wid: Wid, w: &WorldRates, decimals: usize) -> Row {
        let (name, vcpus) = match &w.role {
            Role::Vcpu(n) => (format!("vmx-vcpu-{n}"), Some(1)),
            Role::Helper(name) => (safe(name), Some(1)),
            Role::Task(name) => (safe(name), None),
        };
        let name = format!("  {name}");
        let facts = (&w.values, w.units, &[][..]);
        let cells = cells(columns, (wid.0, w.gid), &name, facts, vcpus, decimals);
        Row { gid: w.gid, wid: Some(wid), empty: false, cells }
    }

    /// What it is, for the cursor.
    pub(crate) fn key(&self) -> (Gid, Option<Wid>) {
        (self.gid, self.wid)
    }
}

fn cells(
    columns: &[What],
    (id, gid): (u64, Gid),
    name: &str,
    (values, units, homes): (&Values, Option<AllocUnits>, &[u32]),
    vcpus: Option<u32>,
    decimals: usize,
) -> Vec<Cell> {
    let one = |what: &What| match what {
        What::Part(Part::Id) => Cell::plain(id.to_string()),
        What::Part(Part::Gid) => Cell::plain(gid.0.to_string()),
        What::Part(_) => Cell::plain(name),
        What::Units => Cell::plain(units.map_or("-", AllocUnits::name)),
        What::Homes if homes.is_empty() => Cell::plain("-"),
        What::Homes => Cell::plain(homes.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
        What::Metric(m) => {
            let value = values.get(*m);
            let level = value
                .zip(vcpus)
                .map_or(Level::Fine, |(v, n)| m.counter().thresholds.level(shown(v), n));
            Cell { text: number(*m, value, decimals), level }
        }
    };
    columns.iter().map(one).collect()
}

/// What a reader sees of it: 0.00 is not above 0.
fn shown(value: f64) -> f64 {
    if value.abs() < 0.005 { 0.0 } else { value }
}
