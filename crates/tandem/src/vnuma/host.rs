//! The host that a command of `tandem vnuma` names: this machine, a copy of its sysfs, a shape, or
//! a scenario's.

use super::input;
use crate::{Exit, Failure};
use ::vnuma::Host;
use anyhow::anyhow;
use std::path::Path;

/// What names this machine.
pub const THIS: &str = "this";

/// The host of `[NAME=]HOST`.
///
/// # Errors
/// `Exit::Input` for a text that names none, `Exit::Host` when this machine cannot be read.
pub fn of(text: &str) -> Result<Host, Failure> {
    // A folder may have = in its name.
    let (name, host) = match text.split_once('=') {
        Some((name, host)) if !name.is_empty() && !Path::new(text).exists() => (name, host),
        _ => (text, text),
    };
    if host == THIS {
        return of_sysfs(name, Path::new("/sys")).map_err(|e| Failure::new(Exit::Host, e));
    }
    if Host::is_shape(host) {
        return Host::of_shape(name, host).map_err(input);
    }
    if Path::new(host).join("devices/system/cpu").is_dir() {
        return of_sysfs(name, Path::new(host)).map_err(input);
    }
    of_scenario(name, host).map_err(input)
}

fn of_sysfs(name: &str, root: &Path) -> anyhow::Result<Host> {
    let topology = topology::from_sysfs(root)?;
    Ok(Host::new(name, &topology, &topology::nodes_from_sysfs(root)?)?)
}

/// The host of a scenario's first run, with memory and distances as `[numa]` has them; without it a
/// scenario says nothing of these.
fn of_scenario(name: &str, scenario: &str) -> anyhow::Result<Host> {
    let cause = match settings::load(scenario) {
        Ok(loaded) => match loaded.runs.first() {
            Some(run) => {
                let mut host = Host::of_topology(name, &run.topology, None)?;
                if let Some((numa, hardware)) = run.spec.numa().zip(run.spec.hardware()) {
                    let sizes = numa.sizes(host.nodes.len());
                    let far = (hardware.from_node.ns(), hardware.from_memory.ns());
                    let rows = numa.rows(sizes.len(), far);
                    let ids: Vec<usize> = host.nodes.iter().map(|n| n.id as usize).collect();
                    let row = |i: &usize| ids.iter().map(|j| rows[*i][*j] as u32).collect();
                    host.distances = Some(ids.iter().map(row).collect());
                    for (node, id) in host.nodes.iter_mut().zip(&ids) {
                        node.memory = Some(::vnuma::Mib(sizes[*id] >> 20));
                    }
                }
                return Ok(host);
            }
            None => anyhow!("a scenario without a run"),
        },
        Err(e) => e.into(),
    };
    Err(anyhow!(
        "host {name}: cannot find it: seen '{scenario}' ({cause:#}), allowed {THIS}, \
         SOCKETSxNODESxCORESxTHREADS[:MEMORY] such as 2x1x8x2:64G, a folder with a copy of /sys, or \
         a scenario; correct it"
    ))
}
