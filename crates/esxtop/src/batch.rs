//! Writes the CSV of esxtop's batch mode, so that tools made for ESXi's files open Tandem's; it
//! opens no file by itself.
//!
//! *Promise*: one header line, then a line a sample. Each field is quoted, also those that need not
//! be. Column 1 is exactly `(PDH-CSV 4.0) (UTC)(0)`, and times are UTC, `MM/DD/YYYY HH:MM:SS`.
//! Numbers have two decimals. Columns are those of the first sample for the whole file: objects
//! that come later are left out (`files.rs` begins a new file instead), those that go leave empty
//! cells.
//!
//! What each rule is for, by public readers of such files:
//!
//! | rule | reader |
//! |---|---|
//! | each value is quoted | yukiuuh/react-esxtop-viewer `esxtopParser.worker.ts` takes the first
//! and the last character off each value |
//! | column 1, to the letter | akshaykalia-chd/esxtopdrillv3 `fault_finder.py` looks for that name
//! |
//! | minutes of 0, times in UTC | nithintitta/ESXTOP-BATCHMODE-VIEWER takes them for ahead of UTC,
//! perfmon for behind: with 0 both are right |
//! | no fractions of seconds | vfedotovs/esxtop-batch-data-visualizer `extractor.py` matches the
//! whole field |
//! | as many fields in each line | mu853/esxtop2report drops shorter lines |
//! | what is not known is empty | pandas makes it a gap, and of any other text it makes a column
//! that is no number |
//! | no path twice | pandas (esxtopdrillv3, cesirx/vSphere-esxtop-parser) renames the second |
//! | `vmx-vcpu-N` | cesirx/vSphere-esxtop-parser finds vCPUs by it, esxtopdrillv3 shows `% VmWait`
//! of no other world |
//! | `Group Cpu(1:system)`, `Memory` | mu853/esxtop2report takes both as given |
//! | pCPUs of one counter come before the next counter; `Physical Cpu(_Total)` | files of ESXi have
//! it so (elatov.github.io, 2013-01-14) |

use crate::counters::{GroupKind, Role};
use crate::metric::{Metric, Object, Values};
use crate::path::{Path, clean};
use crate::{Gid, GroupRates, Rates, Wid, WorldRates, utc};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use units::PcpuId;

/// Name of the first column.
pub(crate) const FIRST: &str = "(PDH-CSV 4.0) (UTC)(0)";

/// Counters of memory that readers take as given. Tandem does not look at the host's memory; they
/// are 0, which they may be, so that such readers open the file. Nothing is to be concluded from
/// them.
const MEMORY: [&str; 7] = [
    "Kernel MBytes",
    "NonKernel MBytes",
    "Kernel State",
    "PShare Shared MBytes",
    "Swap Target MBytes",
    "Swap MBytes Read/sec",
    "Swap MBytes Write/sec",
];

/// What a column is of. Ids are not enough: a VM that is renamed is another object, as its path is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Load,
    Memory,
    Pcpu(PcpuId),
    Total,
    Group(Gid, String),
    World(Wid, String),
    VmMemory(Gid, String),
}

impl Key {
    fn object(&self) -> &'static str {
        match self {
            Key::Load => Object::Load.name(),
            Key::Memory => "Memory",
            Key::Pcpu(_) | Key::Total => Object::Pcpu.name(),
            Key::Group(..) => Object::Group.name(),
            Key::World(..) => Object::World.name(),
            Key::VmMemory(..) => Object::Memory.name(),
        }
    }

    fn instance(&self) -> Option<String> {
        match self {
            Key::Load | Key::Memory => None,
            Key::Pcpu(id) => Some(id.0.to_string()),
            Key::Total => Some("_Total".to_owned()),
            Key::Group(_, instance) | Key::World(_, instance) | Key::VmMemory(_, instance) => {
                Some(instance.clone())
            }
        }
    }
}

/// A column: which object, and what of it; `Err` is the name of what is always 0.
struct Column {
    key: usize,
    what: Result<Metric, &'static str>,
}

/// Columns of a file.
struct Layout {
    keys: Vec<Key>,
    known: BTreeSet<Key>,
    columns: Vec<Column>,
}

/// A sample that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The file does not take it.
    #[error("batch file: cannot write a sample: {0}; free space on the disk, or write elsewhere")]
    Io(#[from] io::Error),
    /// A moment that the format has no date for.
    #[error(
        "batch file: cannot write the time {seen} s since 1970: allowed are the years 0 to 9999; \
            set the host's clock"
    )]
    Time {
        /// The moment.
        seen: i64,
    },
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// pCPUs, groups and worlds that have no column, because they came after the header.
    pub left_out: usize,
}

/// Writes one file.
pub struct BatchWriter<W> {
    out: W,
    host: String,
    worlds: bool,
    layout: Option<Layout>,
}

impl<W: Write> BatchWriter<W> {
    /// A file of the host of that name, with a column for each counter of each world.
    pub fn new(out: W, host: &str) -> BatchWriter<W> {
        BatchWriter { out, host: clean(host).into_owned(), worlds: true, layout: None }
    }

    /// Groups only, no worlds: some tens of columns a VM instead of hundreds.
    #[must_use]
    pub fn without_worlds(self) -> BatchWriter<W> {
        BatchWriter { worlds: false, ..self }
    }

    /// pCPUs, groups and worlds of a sample that have no column. None before the first sample.
    #[must_use]
    pub fn missing(&self, rates: &Rates) -> usize {
        let Some(layout) = &self.layout else { return 0 };
        // A VM is one object, though its memory is another for the file.
        let counts = |key: &&Key| !matches!(key, Key::VmMemory(..)) && !layout.known.contains(key);
        objects(rates, self.worlds).iter().filter(counts).count()
    }

    /// Writes a sample, and before the first one the header. What was written is flushed, so that a
    /// reader at the other end of a pipe has whole lines.
    ///
    /// # Errors
    /// `BatchError` where the file does not take it, or the time has no date.
    pub fn write(&mut self, rates: &Rates) -> Result<Written, BatchError> {
        let time = utc(rates.unix_seconds).ok_or(BatchError::Time { seen: rates.unix_seconds })?;
        let mut text = String::new();
        if self.layout.is_none() {
            let layout = Layout::of(rates, self.worlds);
            line(&mut text, FIRST, layout.paths(&self.host));
            self.layout = Some(layout);
        }
        if let Some(layout) = &self.layout {
            line(&mut text, &time, layout.cells(rates));
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(Written { left_out: self.missing(rates) })
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// A line: each field quoted, as none has a quote in it.
fn line(text: &mut String, first: &str, rest: impl Iterator<Item = String>) {
    text.push_str(&format!("\"{first}\""));
    for field in rest {
        debug_assert!(!field.contains(['"', '\n', '\r']), "{field}");
        text.push_str(&format!(",\"{field}\""));
    }
    text.push('\n');
}

impl Layout {
    /// Columns of all that a sample has, and of what readers take as given.
    fn of(rates: &Rates, worlds: bool) -> Layout {
        let keys = objects(rates, worlds);
        let mut columns = vec![];
        let mut add = |wanted: &dyn Fn(&Key) -> bool, metrics: &[Metric]| {
            for (key, _) in keys.iter().enumerate().filter(|(_, k)| wanted(k)) {
                let declared = metrics.iter().filter(|m| m.counter().batch.is_some());
                columns.extend(declared.map(|m| Column { key, what: Ok(*m) }));
            }
        };
        let of = |object: Object| object.metrics().collect::<Vec<_>>();
        add(&|k| *k == Key::Load, &of(Object::Load));
        for metric in of(Object::Pcpu) {
            add(&|k| matches!(k, Key::Pcpu(_) | Key::Total), &[metric]);
        }
        add(&|k| matches!(k, Key::Group(..)), &of(Object::Group));
        add(&|k| matches!(k, Key::World(..)), &of(Object::World));
        let memory = keys.iter().position(|k| *k == Key::Memory).into_iter();
        columns.extend(memory.flat_map(|key| MEMORY.map(|name| Column { key, what: Err(name) })));
        let of = |key: usize| {
            let declared = Object::Memory.metrics().filter(|m| m.counter().batch.is_some());
            declared.map(move |m| Column { key, what: Ok(m) })
        };
        let vms = keys.iter().enumerate().filter(|(_, k)| matches!(k, Key::VmMemory(..)));
        columns.extend(vms.flat_map(|(key, _)| of(key)));
        Layout { known: keys.iter().cloned().collect(), keys, columns }
    }

    fn paths(&self, host: &str) -> impl Iterator<Item = String> {
        self.columns.iter().map(move |c| {
            let key = &self.keys[c.key];
            let counter =
                c.what.map_or_else(|name| name, |m| m.counter().batch.unwrap_or_default());
            let (object, instance) = (key.object().to_owned(), key.instance());
            Path { host: host.to_owned(), object, instance, counter: counter.to_owned() }
                .to_string()
        })
    }

    /// A sample's cells; what is not known, or not there any more, is empty.
    fn cells(&self, rates: &Rates) -> impl Iterator<Item = String> {
        let pcpus: BTreeMap<PcpuId, &Values> =
            rates.pcpus.iter().map(|p| (p.id, &p.values)).collect();
        let values = |key: &Key| match key {
            Key::Load => Some(&rates.host),
            Key::Memory => None,
            Key::Total => Some(&rates.total),
            Key::Pcpu(id) => pcpus.get(id).copied(),
            Key::Group(gid, instance) | Key::VmMemory(gid, instance) => {
                rates.groups.get(gid).filter(|g| group(*gid, g) == *instance).map(|g| &g.values)
            }
            Key::World(wid, instance) => rates
                .worlds
                .get(wid)
                .filter(|w| world(rates, *wid, w) == *instance)
                .map(|w| &w.values),
        };
        let values: Vec<Option<&Values>> = self.keys.iter().map(values).collect();
        self.columns.iter().map(move |c| match c.what {
            Ok(metric) => values[c.key].and_then(|v| v.text(metric)).unwrap_or_default(),
            Err(_) => "0.00".to_owned(),
        })
    }
}

/// All objects of a sample, in the order of their columns, each once.
fn objects(rates: &Rates, worlds: bool) -> Vec<Key> {
    let mut keys = vec![Key::Load, Key::Memory];
    let pcpus: BTreeSet<PcpuId> = rates.pcpus.iter().map(|p| p.id).collect();
    keys.extend(pcpus.into_iter().map(Key::Pcpu));
    keys.push(Key::Total);
    let mut groups: BTreeMap<Gid, String> =
        rates.groups.iter().map(|(gid, g)| (*gid, group(*gid, g))).collect();
    // Readers take it as given.
    groups.entry(Gid::SYSTEM).or_insert_with(|| "1:system".to_owned());
    keys.extend(groups.into_iter().map(|(gid, instance)| Key::Group(gid, instance)));
    if worlds {
        keys.extend(rates.worlds.iter().map(|(wid, w)| Key::World(*wid, world(rates, *wid, w))));
    }
    // Also of those whose memory is not known yet.
    if rates.nodes.len() > 1 {
        let vms = rates.groups.iter().filter(|(_, g)| g.kind == GroupKind::Vm);
        keys.extend(vms.map(|(gid, g)| Key::VmMemory(*gid, group(*gid, g))));
    }
    keys
}

/// Instance of a group: `GID:name`. The host and the system group have the names that ESXi gives
/// them.
fn group(gid: Gid, group: &GroupRates) -> String {
    match gid {
        Gid::HOST => "0:host".to_owned(),
        Gid::SYSTEM => "1:system".to_owned(),
        Gid(id) => format!("{id}:{}", clean(&group.name)),
    }
}

/// Instance of a world: `GID:group:world id:name`.
fn world(rates: &Rates, wid: Wid, w: &WorldRates) -> String {
    let group =
        rates.groups.get(&w.gid).map_or_else(|| format!("{}:_", w.gid.0), |g| group(w.gid, g));
    let name = match &w.role {
        Role::Vcpu(n) => format!("vmx-vcpu-{n}"),
        Role::Helper(name) | Role::Task(name) => clean(name).into_owned(),
    };
    format!("{group}:{}:{name}", wid.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::rates;

    fn written(samples: &[Rates]) -> Vec<String> {
        let mut w = BatchWriter::new(vec![], "esx01.lab");
        for s in samples {
            w.write(s).unwrap();
        }
        String::from_utf8(w.into_inner()).unwrap().lines().map(str::to_owned).collect()
    }

    /// The cell of a path.
    fn cell(lines: &[String], sample: usize, path: &str) -> String {
        let split =
            |l: &str| l[1..l.len() - 1].split("\",\"").map(str::to_owned).collect::<Vec<_>>();
        let at =
            split(&lines[0]).iter().position(|p| p == path).unwrap_or_else(|| panic!("no {path}"));
        split(&lines[sample])[at].clone()
    }

    #[test]
    fn header_and_values_are_as_esxtop_writes_them() {
        let lines = written(&[rates()]);
        let start =
            r#""(PDH-CSV 4.0) (UTC)(0)","\\esx01.lab\Physical Cpu Load\Cpu Load (1 Minute Avg)","#;
        assert!(lines[0].starts_with(start), "{}", lines[0]);
        let used = |i: &str| format!(r#","\\esx01.lab\Physical Cpu({i})\% Processor Time""#);
        let pcpus = ["0", "1", "2", "_Total"].map(used).concat()
            + r#","\\esx01.lab\Physical Cpu(0)\% Util Time","#;
        assert!(lines[0].contains(&pcpus), "{}", lines[0]);
        assert!(
            lines[1]
                .starts_with(r#""11/21/2026 19:34:57","0.90","0.90","0.90","50.00","20.00","","","80.00","40.00","60.00","60.00","90.00""#)
        );
        assert_eq!(cell(&lines, 1, r"\\esx01.lab\Group Cpu(11:web)\% Ready"), "60.00");
        assert_eq!(cell(&lines, 1, r"\\esx01.lab\Group Cpu(1:system)\% Used"), "15.00");
        assert_eq!(cell(&lines, 1, r"\\esx01.lab\Group Cpu(0:host)\% Run"), "180.00");
        assert_eq!(cell(&lines, 1, r"\\esx01.lab\Group Cpu(12:db)\Alloc Max"), "-1.00");
        assert_eq!(
            cell(&lines, 1, r"\\esx01.lab\Vcpu(11:web:101:vmx-vcpu-1)\Switches/sec"),
            "200.00"
        );
        let memory = |vm: &str, counter: &str| {
            cell(&lines, 1, &format!(r"\\esx01.lab\Group Memory({vm})\{counter}"))
        };
        let counters = ["Memory Size MBytes", "Numa Rebalance Count Delta", "Numa % Local"];
        assert_eq!(counters.map(|c| memory("11:web", c)), ["4096.00", "1.00", "75.00"]);
        assert_eq!(counters.map(|c| memory("12:db", c)), ["1024.00", "", ""], "it has no home");
        assert!(!lines[0].contains("Group Memory(10:"), "of pools nothing is known");
        let mut near = rates();
        near.nodes.clear();
        assert!(!written(&[near])[0].contains("Group Memory("), "memory is near everywhere");
        assert_eq!(
            cell(&lines, 1, r"\\esx01.lab\Vcpu(11:web:102:io)\% VmWait"),
            "",
            "not defined for it"
        );
        assert_eq!(
            cell(&lines, 1, r"\\esx01.lab\Group Cpu(11:web)\% System"),
            "",
            "not known on KVM"
        );
        assert_eq!(cell(&lines, 1, r"\\esx01.lab\Memory\Kernel MBytes"), "0.00");
    }

    #[test]
    fn columns_stay_while_vms_come_and_go() {
        let first = rates();
        let mut second = first.clone();
        let mut third = first.clone();
        second.groups.remove(&Gid(11));
        second.worlds.retain(|_, w| w.gid != Gid(11));
        second.pcpus.remove(1);
        let new = GroupRates { name: "late".to_owned(), ..third.groups[&Gid(12)].clone() };
        third.groups.insert(Gid(13), new);
        third.groups.get_mut(&Gid(12)).unwrap().name = "renamed".to_owned();
        let lines = written(&[first.clone(), second.clone(), third.clone()]);
        let fields = lines.iter().map(|l| l.matches("\",\"").count()).collect::<BTreeSet<_>>();
        assert_eq!((lines.len(), fields.len()), (4, 1), "as many fields in each line");
        let of = |sample, path: &str| cell(&lines, sample, &format!(r"\\esx01.lab\{path}"));
        assert_eq!([1, 2, 3].map(|i| of(i, r"Group Cpu(11:web)\% Run")), ["120.00", "", "120.00"]);
        assert_eq!([1, 2].map(|i| of(i, r"Vcpu(11:web:100:vmx-vcpu-0)\% Run")), ["40.00", ""]);
        assert_eq!([1, 2].map(|i| of(i, r"Physical Cpu(1)\% Util Time")), ["40.00", ""]);
        assert_eq!(
            [1, 3].map(|i| of(i, r"Group Cpu(12:db)\% Run")),
            ["40.00", ""],
            "another name is another object"
        );
        assert!(!lines[0].contains("late") && !lines[0].contains("renamed"));
        let mut w = BatchWriter::new(vec![], "h");
        assert_eq!(w.missing(&third), 0, "nothing is missing before there is a header");
        assert_eq!(w.write(&first).unwrap(), Written { left_out: 0 });
        assert_eq!(w.write(&second).unwrap(), Written { left_out: 0 });
        // Group 13, group 12 renamed, and the world in it.
        assert_eq!((w.missing(&third), w.write(&third).unwrap()), (3, Written { left_out: 3 }));
    }

    #[test]
    fn worlds_can_be_left_out() {
        let mut w = BatchWriter::new(vec![], "h").without_worlds();
        w.write(&rates()).unwrap();
        let mut more = rates();
        more.worlds.insert(Wid(7), more.worlds[&Wid(100)].clone());
        assert_eq!(w.missing(&more), 0);
        assert!(!String::from_utf8(w.into_inner()).unwrap().contains("Vcpu("));
    }

    #[test]
    fn each_sample_is_flushed() {
        let mut w = BatchWriter::new(io::BufWriter::with_capacity(1 << 20, vec![]), "h");
        for lines in 2..4 {
            w.write(&rates()).unwrap();
            assert_eq!(w.out.get_ref().iter().filter(|b| **b == b'\n').count(), lines);
        }
    }

    #[test]
    fn the_system_group_is_there_even_if_nobody_gave_it() {
        let mut without = rates();
        without.groups.remove(&Gid::SYSTEM);
        let lines = written(&[without]);
        assert_eq!(cell(&lines, 1, r"\\esx01.lab\Group Cpu(1:system)\% Used"), "");
        let mut named = rates();
        named.groups.get_mut(&Gid::SYSTEM).unwrap().name = "host tasks".to_owned();
        assert_eq!(cell(&written(&[named]), 1, r"\\esx01.lab\Group Cpu(1:system)\% Used"), "15.00");
    }

    #[test]
    fn a_full_disk_and_a_mad_clock_are_said() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::other("no space left"))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let said = BatchWriter::new(Full, "h").write(&rates()).unwrap_err().to_string();
        assert_eq!(
            said,
            "batch file: cannot write a sample: no space left; free space on the disk, or write \
                elsewhere"
        );
        let late = Rates { unix_seconds: i64::MAX, ..rates() };
        let said = BatchWriter::new(vec![], "h").write(&late).unwrap_err().to_string();
        assert!(
            said.contains("9223372036854775807 s since 1970: allowed are the years 0 to 9999"),
            "{said}"
        );
    }
}
