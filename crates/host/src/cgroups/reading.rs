//! Reads the files of one cgroup, and says what is wrong with them.

use super::{OURS, Quota};
use crate::{
    found::{FoundVm, Named, Roots},
    kept::Kept,
    trust::{ALLOWED, Stranger},
};
use settings::parse_cpu_max;
use std::{
    io,
    path::{Path, PathBuf},
};
use units::Rate;

/// Files of one cgroup, and what was wrong with them.
pub(super) struct Reading<'a> {
    pub(super) path: &'a str,
    pub(super) folder: &'a Path,
    pub(super) kept: &'a mut Kept,
    pub(super) troubles: Vec<String>,
}

impl Reading<'_> {
    /// A small file; `None` where there is none.
    fn text(&mut self, file: &str, instead: &str) -> Option<String> {
        match small(self.kept, self.folder.join(file)) {
            Ok(text) => text,
            Err(e) => {
                self.troubles.push(format!(
                    "cgroup '{}': {file}: cannot read it: {e}; {instead}",
                    self.path
                ));
                None
            }
        }
    }

    pub(super) fn weight(&mut self, file: &str) -> Option<u32> {
        const INSTEAD: &str = "it counts as 100";
        let text = self.text(file, INSTEAD)?;
        let weight = text.trim().parse().ok().filter(|w| *w <= 10_000); // 0 is cpu.idle
        if weight.is_none() {
            let seen: String = text.trim().chars().take(40).collect();
            let trouble = format!(
                "cgroup '{}': {file}: cannot use it: seen '{}', allowed 1..10000; {INSTEAD}",
                self.path,
                seen.escape_debug()
            );
            self.troubles.push(trouble);
        }
        weight
    }

    /// Limit and burst by the cpu.max in the folder `below`.
    pub(super) fn quota(&mut self, below: &str, from: &'static str) -> Option<Quota> {
        const INSTEAD: &str = "it counts as unlimited";
        let max = self.text(&format!("{below}cpu.max"), INSTEAD)?;
        // Most cgroups have no limit, and these files are read twice a second.
        let limited = !max.starts_with("max ");
        let burst = if limited {
            self.text(&format!("{below}cpu.max.burst"), "it counts as 0")
        } else {
            None
        };
        match parse_cpu_max(&max, burst.as_deref()) {
            Ok(found) => found.map(|(rate, burst_ns)| Quota { rate, burst_ns, from }),
            Err(reason) => {
                self.troubles.push(format!("cgroup '{}': {below}{reason}; {INSTEAD}", self.path));
                None
            }
        }
    }

    /// The quotas of all vCPUs together; none unless each has one.
    pub(super) fn of_vcpus(
        &mut self,
        vm: &FoundVm,
        below: &str,
        from: &'static str,
    ) -> Option<Quota> {
        let vcpus: Vec<u32> = vm.threads.iter().filter_map(|t| t.vcpu).collect();
        let quotas: Vec<Quota> = vcpus
            .iter()
            .filter_map(|vcpu| self.quota(&format!("{below}vcpu{vcpu}/"), from))
            .collect();
        if quotas.len() < vcpus.len() {
            if !quotas.is_empty() {
                self.troubles.push(format!(
                    "cgroup '{}': {from}: cannot use it: seen quotas of {} of {} vCPUs, allowed of \
                        all; they count as none; give each one, or the VM a limit",
                    self.path,
                    quotas.len(),
                    vcpus.len()
                ));
            }
            return None;
        }
        let sum = |all: Quota, one: &Quota| Quota {
            rate: Rate(all.rate.0 + one.rate.0),
            burst_ns: all.burst_ns.saturating_add(one.burst_ns),
            from,
        };
        let all = quotas.iter().fold(Quota { rate: Rate(0), burst_ns: 0, from }, sum);
        (all.rate.0 > 0).then_some(all)
    }

    /// All attributes of ours.
    pub(super) fn attributes(&mut self, roots: &Roots) -> Named {
        (roots.attributes)(self.folder).unwrap_or_else(|e| {
            self.troubles.push(format!(
                "cgroup '{}': cannot read its extended attributes: {e}; it counts as having none",
                self.path
            ));
            vec![]
        })
    }

    /// Of these the ones that count: none if they may be a stranger's.
    pub(super) fn trusted(&mut self, all: Named, stranger: Option<&Stranger>) -> Named {
        let path = self.path;
        match stranger {
            Some(stranger) if !all.is_empty() => {
                self.troubles.push(format!(
                    "cgroup '{path}': cannot use its attributes {OURS}*: seen {stranger}, allowed \
                        {ALLOWED}; none of them counts; {}, or say it in the settings file",
                    stranger.next()
                ));
                vec![]
            }
            _ => all,
        }
    }
}

/// The text of a file; `None` if it is not there, or its cgroup is just going.
fn small(kept: &mut Kept, path: PathBuf) -> io::Result<Option<String>> {
    match kept.read(path) {
        Ok(bytes) => String::from_utf8(bytes.to_vec())
            .map(Some)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
        Err(e)
            if e.kind() == io::ErrorKind::NotFound || e.kind() == io::ErrorKind::NotADirectory =>
        {
            Ok(None)
        }
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(e) => Err(e),
    }
}
