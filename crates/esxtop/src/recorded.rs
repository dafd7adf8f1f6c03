//! Samples of a batch file as rates, for the screen: what esxtop or Tandem wrote is shown as if it
//! were now; what the file does not say stays unknown.
//!
//! *Limits*: a file has no NWLD. It is the number of the group's worlds in the file; where it has
//! none of them, the group's states, which add up to 100 for each world, say how many there are.
//! A group is a VM if it has vCPUs; in a file without worlds all but `host`, `system`
//! and pools (whose names begin with `/`) are taken for VMs. Which pCPUs are threads of one core is
//! not known: each is shown as a core.

use crate::counters::Role;
use crate::metric::{Metric, Object, Values};
use crate::path::{ObjectKind, Path};
use crate::{Batch, Gid, GroupKind, GroupRates, PcpuRates, Rates, Wid, WorldRates};
use std::collections::{BTreeMap, BTreeSet};
use units::PcpuId;

/// Interval of a file with one sample: esxtop's default.
const USUAL_NS: u64 = 5_000_000_000;

/// What a column is of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    Load,
    Total,
    Pcpu(PcpuId),
    Group(Gid),
    World(Wid),
}

/// A batch file whose samples can be shown.
#[derive(Clone, Debug)]
pub struct Recorded {
    batch: Batch,
    columns: Vec<(usize, Of, Metric)>,
    groups: BTreeMap<Gid, String>,
    worlds: BTreeMap<Wid, (Gid, Role)>,
}

impl Recorded {
    /// Finds out what each column is; columns that Tandem does not show are passed over.
    #[must_use]
    pub fn new(batch: Batch) -> Recorded {
        let mut out =
            Recorded { columns: vec![], groups: BTreeMap::new(), worlds: BTreeMap::new(), batch };
        let columns: Vec<_> =
            out.batch.series.iter().enumerate().map(|(i, s)| (i, s.path.clone())).collect();
        for (i, path) in columns {
            let Some((of, object)) = out.object(&path) else { continue };
            let metric =
                object.metrics().find(|m| m.counter().batch == Some(path.counter.as_str()));
            out.columns.extend(metric.map(|m| (i, of, m)));
        }
        out
    }

    /// Whose column it is; takes its name down.
    fn object(&mut self, path: &Path) -> Option<(Of, Object)> {
        let instance = path.instance.as_deref();
        match path.kind() {
            ObjectKind::Load => Some((Of::Load, Object::Load)),
            ObjectKind::Pcpu if instance == Some("_Total") => Some((Of::Total, Object::Pcpu)),
            ObjectKind::Pcpu => Some((Of::Pcpu(PcpuId(instance?.parse().ok()?)), Object::Pcpu)),
            kind @ (ObjectKind::Group | ObjectKind::VmMemory) => {
                let (gid, name) = instance?.split_once(':')?;
                let gid = Gid(gid.parse().ok()?);
                self.groups.insert(gid, name.to_owned());
                let cpu = kind == ObjectKind::Group;
                Some((Of::Group(gid), if cpu { Object::Group } else { Object::Memory }))
            }
            ObjectKind::World => {
                let (gid, rest) = instance?.split_once(':')?;
                let (rest, name) = rest.rsplit_once(':')?;
                let (group, wid) = rest.rsplit_once(':')?;
                let (gid, wid) = (Gid(gid.parse().ok()?), Wid(wid.parse().ok()?));
                self.groups.entry(gid).or_insert_with(|| group.to_owned());
                let vcpu = name.strip_prefix("vmx-vcpu-").and_then(|n| n.parse().ok());
                self.worlds.insert(
                    wid,
                    (gid, vcpu.map_or_else(|| Role::Helper(name.to_owned()), Role::Vcpu)),
                );
                Some((Of::World(wid), Object::World))
            }
            ObjectKind::Other => None,
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.unix_ms.len()
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file behind it.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Time since the first sample, in ms.
    #[must_use]
    pub fn since_ms(&self, sample: usize) -> i64 {
        let at = |i: usize| self.batch.unix_ms.get(i).copied().unwrap_or(0);
        at(sample) - at(0)
    }

    /// Time between this sample and the one before it, in ns.
    fn interval_ns(&self, sample: usize) -> u64 {
        let pair = |i: usize| self.batch.unix_ms.get(i).zip(self.batch.unix_ms.get(i + 1));
        let ms = pair(sample.saturating_sub(1)).map_or(0, |(a, b)| b - a);
        u64::try_from(ms).ok().filter(|ms| *ms > 0).map_or(USUAL_NS, |ms| ms * 1_000_000)
    }

    /// A sample; `None` where there are fewer.
    #[must_use]
    pub fn rates(&self, sample: usize) -> Option<Rates> {
        let unix_ms = *self.batch.unix_ms.get(sample)?;
        let mut rates = Rates {
            unix_seconds: unix_ms.div_euclid(1000),
            interval_ns: self.interval_ns(sample),
            host: Values::default(),
            total: Values::default(),
            pcpus: vec![],
            groups: BTreeMap::new(),
            worlds: BTreeMap::new(),
            nodes: vec![],
        };
        let mut pcpus: BTreeMap<PcpuId, Values> = BTreeMap::new();
        let (mut groups, mut worlds): (BTreeMap<Gid, Values>, BTreeMap<Wid, Values>) =
            Default::default();
        for (column, of, metric) in &self.columns {
            let value = self.batch.series[*column].numbers.get(sample).copied().flatten();
            let into = match of {
                Of::Load => &mut rates.host,
                Of::Total => &mut rates.total,
                Of::Pcpu(id) => pcpus.entry(*id).or_default(),
                // What has no number at all in a sample was not there then.
                Of::Group(_) | Of::World(_) if value.is_none() => continue,
                Of::Group(gid) => groups.entry(*gid).or_default(),
                Of::World(wid) => worlds.entry(*wid).or_default(),
            };
            into.set(*metric, value);
        }
        rates.pcpus = pcpus
            .into_iter()
            .map(|(id, values)| PcpuRates { id, core: u32::from(id.0), values })
            .collect();
        let world = |(wid, values): (Wid, Values)| {
            let (gid, role) = self.worlds.get(&wid)?.clone();
            Some((wid, WorldRates { gid, role, units: None, values }))
        };
        rates.worlds = worlds.into_iter().filter_map(world).collect();
        rates.groups = groups
            .into_iter()
            .map(|(gid, values)| (gid, self.group(gid, values, &rates.worlds)))
            .collect();
        Some(rates)
    }

    fn group(
        &self,
        gid: Gid,
        mut values: Values,
        worlds: &BTreeMap<Wid, WorldRates>,
    ) -> GroupRates {
        let name = self.groups.get(&gid).cloned().unwrap_or_default();
        let own: Vec<&WorldRates> = worlds.values().filter(|w| w.gid == gid).collect();
        let mut vcpus = own.iter().filter(|w| matches!(w.role, Role::Vcpu(_))).count() as u32;
        let mut nwld = Some(own.len() as f64).filter(|n| *n > 0.0);
        if own.is_empty() {
            let states =
                [Metric::Run, Metric::Ready, Metric::CoStop, Metric::Wait].map(|m| values.get(m));
            nwld = states
                .into_iter()
                .collect::<Option<Vec<f64>>>()
                .map(|s| (s.iter().sum::<f64>() / 100.0).round());
        }
        if self.worlds.is_empty() {
            vcpus = nwld.unwrap_or(0.0) as u32;
        }
        values.set(Metric::Worlds, nwld);
        let with_vcpus: BTreeSet<Gid> =
            self.worlds.values().filter(|w| matches!(w.1, Role::Vcpu(_))).map(|w| w.0).collect();
        let kind = match gid {
            Gid::HOST => GroupKind::Host,
            Gid::SYSTEM => GroupKind::System,
            _ if name.starts_with('/') => GroupKind::Pool,
            _ if self.worlds.is_empty() || with_vcpus.contains(&gid) => GroupKind::Vm,
            _ => GroupKind::System,
        };
        GroupRates { name, kind, parent: None, vcpus, units: None, homes: vec![], values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{S, rates};
    use crate::{BatchWriter, read};

    fn recorded(samples: &[Rates], worlds: bool) -> Recorded {
        let w = BatchWriter::new(vec![], "esx01");
        let mut w = if worlds { w } else { w.without_worlds() };
        for s in samples {
            w.write(s).unwrap();
        }
        Recorded::new(read(w.into_inner().as_slice()).unwrap())
    }

    #[test]
    fn what_was_written_is_shown_again() {
        let first = rates();
        let mut second = first.clone();
        second.unix_seconds += 4;
        second.groups.remove(&Gid(12));
        second.worlds.retain(|_, w| w.gid != Gid(12));
        let r = recorded(&[first.clone(), second], true);
        let (a, b) = (r.rates(0).unwrap(), r.rates(1).unwrap());
        assert_eq!(
            (r.len(), a.unix_seconds, b.interval_ns, r.since_ms(1)),
            (2, first.unix_seconds, 4 * S, 4000)
        );
        assert_eq!(a.groups.len(), first.groups.len());
        assert!(
            !b.groups.contains_key(&Gid(12)) && b.worlds.len() == 3,
            "it was not there any more"
        );
        for (gid, g) in &first.groups {
            for m in Object::Group.metrics().filter(|m| m.counter().batch.is_some()) {
                assert_eq!(
                    a.groups[gid].values.text(m),
                    g.values.text(m),
                    "{} of {}",
                    m.counter().column,
                    g.name
                );
            }
        }
        let memory = |g: u64| a.groups[&Gid(g)].values.get(Metric::LocalPercent);
        assert_eq!([10, 11, 12].map(memory), [None, Some(75.0), None]);
        let web = &a.groups[&Gid(11)];
        assert_eq!(
            (web.name.as_str(), web.kind, web.vcpus, web.values.get(Metric::Worlds)),
            ("web", GroupKind::Vm, 2, Some(3.0))
        );
        assert_eq!([0, 1].map(|g| a.groups[&Gid(g)].kind), [GroupKind::Host, GroupKind::System]);
        assert_eq!(a.worlds[&Wid(102)].role, Role::Helper("io".to_owned()));
        assert_eq!(
            [a.host.text(Metric::Load1), a.total.text(Metric::PcpuUtil)],
            [first.host.text(Metric::Load1), first.total.text(Metric::PcpuUtil)]
        );
        assert_eq!(a.pcpus.len(), 3);
        assert!(r.rates(2).is_none());
    }

    #[test]
    fn without_worlds_the_states_tell_how_many_there_are() {
        let r = recorded(&[rates()], false).rates(0).unwrap();
        let web = &r.groups[&Gid(11)];
        assert_eq!(
            (web.values.get(Metric::Worlds), web.vcpus, web.kind),
            (Some(3.0), 3, GroupKind::Vm)
        );
        assert!(r.worlds.is_empty());
        assert_eq!(r.interval_ns, USUAL_NS);
    }
}
