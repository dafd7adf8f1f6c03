//! Tables of `tandem top`: a line for each VM or world, in percent of one pCPU, under esxtop's
//! names.

use crate::{RunResult, Table, Vm, table::percent};
use std::collections::BTreeMap;
use units::Rate;

/// Reservation and limit of VMs by name, for the columns of `--settings`.
pub type Allocations = BTreeMap<String, (Rate, Option<Rate>)>;

/// One look of `tandem top`: a line a VM, in percent of one pCPU as esxtop has them. With
/// `settings` AMIN and AMAX as well.
#[must_use]
pub fn top(run: &RunResult, policy: &str, settings: Option<&Allocations>) -> String {
    let wall = run.duration_ns;
    let busy: u64 = run.pcpus.iter().map(|p| p.busy_ns).sum();
    let system = run.pools.iter().find(|p| p.path == "/system").map_or(0, |p| p.used_ns);
    let pools = run.vms.iter().any(|vm| vm.pool != "/");
    let mut columns = vec!["<VM"];
    columns.extend(pools.then_some("<pool"));
    columns.extend(["vCPUs", "shares"]);
    columns.extend(settings.iter().flat_map(|_| ["AMIN", "AMAX"]));
    columns.extend([
        "%USED",
        "%ENTITLED",
        "%RUN",
        "%RDY",
        "%CSTP",
        "%MLMTD",
        "%WAIT",
        "%IDLE",
        "MIG/s",
    ]);
    let mut t = Table::new(&columns);
    for vm in &run.vms {
        let x = &vm.times;
        let mut row = vec![vm.name.clone()];
        row.extend(pools.then(|| vm.pool.clone()));
        row.extend([vm.vcpus.to_string(), vm.shares.to_string()]);
        row.extend(settings.iter().flat_map(|all| allocation(all, vm)));
        let times = [
            x.used_ns,
            x.entitled_ns,
            x.run_ns,
            x.ready_ns,
            x.costop_ns,
            x.limited_ns,
            x.wait_ns,
            x.idle_ns,
        ];
        row.extend(times.map(|ns| percent(ns, wall)));
        row.push(format!("{:.1}", x.migrations as f64 * 1e9 / wall.max(1) as f64));
        t.row(row);
    }
    let pcpus: Vec<String> = run.pcpus.iter().map(|p| percent(p.busy_ns, wall)).collect();
    format!(
        "{policy}: {} VMs, {} vCPUs on {} pCPUs; host {} % busy, system {} %\nPCPU USED(%): {}\n{}",
        run.vms.len(),
        run.vms.iter().map(|v| v.vcpus).sum::<u32>(),
        run.host.pcpus,
        percent(busy, wall * run.host.pcpus as u64),
        percent(system, wall),
        pcpus.join(" "),
        t.text()
    )
}

/// AMIN and AMAX in percent of one pCPU; no limit is -1, as in esxtop.
fn allocation(all: &Allocations, vm: &Vm) -> [String; 2] {
    let Some((reservation, limit)) = all.get(&vm.name) else {
        return ["?".to_owned(), "?".to_owned()];
    };
    [
        percent(reservation.0, Rate::ONE.0),
        limit.map_or("-1".to_owned(), |l| percent(l.0, Rate::ONE.0)),
    ]
}

/// A line a world, for `tandem top --worlds`.
#[must_use]
pub fn worlds(run: &RunResult) -> String {
    let mut t = Table::new(&[
        "<VM",
        "<world",
        "%USED",
        "%ENTITLED",
        "%RDY",
        "%MLMTD",
        "%WAIT",
        "%IDLE",
        "migrations",
    ]);
    for (vm, w) in run.vms.iter().flat_map(|v| v.worlds.iter().map(move |w| (v, w))) {
        let x = &w.times;
        let mut row = vec![vm.name.clone(), w.name.clone()];
        row.extend(
            [x.used_ns, x.entitled_ns, x.ready_ns, x.limited_ns, x.wait_ns, x.idle_ns]
                .map(|ns| percent(ns, run.duration_ns)),
        );
        row.push(x.migrations.to_string());
        t.row(row);
    }
    t.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostCounts, Times};

    fn run(pool: &str) -> RunResult {
        let times = Times {
            used_ns: 500,
            entitled_ns: 510,
            run_ns: 505,
            ready_ns: 395,
            limited_ns: 250,
            wait_ns: 100,
            ..Times::default()
        };
        let vm = |name: &str, pool: &str| Vm {
            name: name.to_owned(),
            pool: pool.to_owned(),
            vcpus: 1,
            shares: 1000,
            times,
            cpu_stat: None,
            guest: None,
            numa: vec![],
            worlds: vec![],
        };
        RunResult {
            label: String::new(),
            duration_ns: 1000,
            host: HostCounts { pcpus: 2, cores: 2, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: vec![],
            pools: vec![],
            vms: vec![vm("a", pool), vm("b", "/")],
            wakeups: vec![],
            checked: None,
        }
    }

    fn lines(text: &str) -> Vec<&str> {
        text.lines().skip(2).collect()
    }

    #[test]
    fn pools_are_a_column_where_there_are_some_and_settings_where_they_are_asked_for() {
        assert_eq!(
            lines(&top(&run("/"), "x", None))[..3],
            [
                "VM  vCPUs  shares  %USED  %ENTITLED  %RUN  %RDY  %CSTP  %MLMTD  %WAIT  %IDLE  \
                    MIG/s",
                "-----------------------------------------------------------------------------------",
                "a       1    1000   50.0       51.0  50.5  39.5    0.0    25.0   10.0    0.0    \
                    0.0",
            ]
        );
        let settings = Allocations::from([
            ("a".to_owned(), (Rate(Rate::ONE.0 / 4), Some(Rate::ONE))),
            ("b".to_owned(), (Rate(0), None)),
        ]);
        let text = top(&run("/gold"), "x", Some(&settings));
        let shown = lines(&text);
        assert!(shown[0].starts_with("VM  pool   vCPUs  shares  AMIN   AMAX  %USED"), "{text}");
        assert!(shown[2].starts_with("a   /gold      1    1000  25.0  100.0   50.0"), "{text}");
        assert!(shown[3].starts_with("b   /          1    1000   0.0     -1   50.0"), "{text}");
    }
}
