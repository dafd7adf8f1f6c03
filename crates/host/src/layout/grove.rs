//! The pools that there shall be, as the settings file names them and cgroups lie.

use crate::{cgroups::Cgroups, discover::FoundVm, found::chain};
use settings::{LivePool, LiveSettings};
use std::collections::{BTreeMap, BTreeSet};
use units::caps::{POOL_DEPTH_MAX, POOLS_MAX};

/// The pools that there shall be: the file's own, and cgroups.
pub(super) struct Grove<'a> {
    settings: &'a LiveSettings,
    /// The file's own pools and the pool each is in.
    own: Vec<(&'a str, Option<String>)>,
    /// Cgroups, in the order in which they became pools.
    cgroups: Vec<String>,
    taken: BTreeSet<String>,
    /// Paths of the file's own pools, which no cgroup may have.
    own_paths: BTreeMap<String, &'a str>,
    /// Cgroups for which there was no room.
    pub(super) beyond: BTreeSet<String>,
    pub(super) troubles: BTreeSet<String>,
}

impl<'a> Grove<'a> {
    /// What the file itself wants: its own pools first, so that it is cgroups that do not fit.
    pub(super) fn of(settings: &'a LiveSettings, cgroups: &Cgroups) -> Grove<'a> {
        let own: Vec<&LivePool> = settings.pools.iter().filter(|p| !p.is_cgroup()).collect();
        let own_paths =
            own.iter().map(|p| (own_path(settings, p, POOL_DEPTH_MAX), p.name.as_str())).collect();
        let (taken, beyond, troubles) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut grove =
            Grove { settings, own: vec![], cgroups: vec![], taken, own_paths, beyond, troubles };
        grove.own = own.iter().map(|p| (p.name.as_str(), None)).collect();
        let parents: Vec<Option<String>> =
            own.iter().map(|p| p.parent.as_ref().and_then(|parent| grove.named(parent))).collect();
        grove.own.iter_mut().zip(parents).for_each(|(pool, parent)| pool.1 = parent);
        for pool in settings.pools.iter().filter(|p| p.is_cgroup()) {
            grove.include(&pool.name);
        }
        grove.troubles.extend(missing(settings, cgroups));
        grove
    }

    /// The pool that the file calls so, the root being `None`.
    fn named(&mut self, name: &str) -> Option<String> {
        if name.starts_with('/') { self.include(name) } else { Some(name.to_owned()) }
    }

    /// The pool of a VM whose cgroup is in `home`.
    pub(super) fn pool_of(&mut self, vm: &FoundVm, home: &str) -> Option<String> {
        let named = self.settings.vm(vm.called()).and_then(|s| s.pool.clone());
        match named {
            Some(name) => self.named(&name),
            None => self.include(home),
        }
    }

    /// Makes a cgroup and all above it pools, as far as they fit; the nearest that is one.
    fn include(&mut self, path: &str) -> Option<String> {
        let mut nearest = None;
        for (depth, path) in chain(path).into_iter().enumerate() {
            if !self.taken.contains(path) {
                if self.own.len() + self.cgroups.len() + 1 >= POOLS_MAX {
                    self.beyond.insert(path.to_owned());
                    break;
                }
                if let Some(reason) = self.refusal(path, depth + 1) {
                    let instead = nearest.as_deref().unwrap_or("/");
                    self.troubles.insert(format!(
                        "cgroup '{path}': cannot be a pool: {reason}; VMs in it are in {instead}"
                    ));
                    break;
                }
                self.taken.insert(path.to_owned());
                self.cgroups.push(path.to_owned());
            }
            nearest = Some(path.to_owned());
        }
        nearest
    }

    /// Why a cgroup can be no pool.
    fn refusal(&self, path: &str, depth: usize) -> Option<String> {
        if depth > POOL_DEPTH_MAX {
            return Some(format!("seen {depth} levels below the root, allowed {POOL_DEPTH_MAX}"));
        }
        if let Some(name) = self.own_paths.get(path) {
            return Some(format!(
                "seen the pool '{name}' of the settings file at that path, allowed one; give that \
                    another name"
            ));
        }
        None
    }

    /// Each pool and the one it is in.
    pub(super) fn branches(&self) -> Vec<(String, Option<String>)> {
        let above = |path: &str| {
            chain(path)
                .into_iter()
                .rev()
                .skip(1)
                .find(|p| self.taken.contains(*p))
                .map(str::to_owned)
        };
        let own = self.own.iter().map(|(name, parent)| ((*name).to_owned(), parent.clone()));
        own.chain(self.cgroups.iter().map(|path| (path.clone(), above(path)))).collect()
    }
}

/// Path of a pool of the file's own; the file was checked, so the chain of parents ends.
fn own_path(settings: &LiveSettings, pool: &LivePool, levels: usize) -> String {
    let above = match pool.parent.as_deref() {
        None | Some("/") => String::new(),
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(name) => match settings.pool(name).filter(|_| levels > 0) {
            Some(parent) => own_path(settings, parent, levels - 1),
            None => String::new(),
        },
    };
    format!("{above}/{}", pool.name)
}

/// What to say of cgroups that the file names and that are not there.
fn missing(settings: &LiveSettings, cgroups: &Cgroups) -> Vec<String> {
    let named = settings.pools.iter().flat_map(|p| [Some(&p.name), p.parent.as_ref()]);
    let pools = named
        .chain(settings.vms.iter().map(|v| v.pool.as_ref()))
        .flatten()
        .filter(|path| cgroups.pools.get(*path).is_some_and(|c| !c.present))
        .map(|path| (path, "it is a pool without VMs until there is"));
    let matched = cgroups.absent.iter().map(|path| (path, "no VM matches it until there is"));
    let trouble = |(path, instead): (&String, &str)| {
        let hint = if escaped(path) { HINT } else { "" };
        format!("settings: cannot find the cgroup '{path}': seen none; {instead}{hint}")
    };
    pools.chain(matched).map(trouble).collect()
}

/// What may have happened to a path that has `\x2d` in the file.
const HINT: &str = "; if it has \\x2d or the like in its name, write it in single quotes, for TOML \
    reads that in double quotes as another character";

/// Whether a path has characters that systemd escapes, and no escape.
fn escaped(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:_.@".contains(c);
    !path.contains('\\') && !path.chars().all(plain)
}
