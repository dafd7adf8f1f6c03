//! Where VMs have their homes and their memory, as tables; it judges nothing.

use crate::{NumaClient, RunResult, Table};

fn mib(bytes: u64) -> String {
    (bytes >> 20).to_string()
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The NUMA clients of a run, a line each; nothing where memory is near everywhere.
#[must_use]
pub fn homes(run: &RunResult) -> String {
    let mut t = Table::new(&["<VM", "client", "vCPUs", "NHN", "LLCs", "N%L", "NMIG", "moved MiB"]);
    let mut any = false;
    for vm in &run.vms {
        for (i, c) in vm.numa.iter().enumerate() {
            any = true;
            t.row([
                vm.name.clone(),
                i.to_string(),
                c.vcpus.to_string(),
                c.home.map_or("-".to_owned(), |home| home.to_string()),
                if c.llcs.is_empty() { "-".to_owned() } else { list(&c.llcs) },
                c.local_percent().map_or("-".to_owned(), |local| format!("{local:.1}")),
                c.migrations().to_string(),
                mib(c.moved_bytes),
            ]);
        }
    }
    if any { format!("\n{}", t.text()) } else { String::new() }
}

/// All that was decided of a client, and what came of it.
#[must_use]
pub fn explained(name: &str, number: usize, c: &NumaClient) -> String {
    let home = c.home.map_or("no home".to_owned(), |home| format!("home node {home}"));
    let local = c.local_percent().map_or(String::new(), |local| format!(" ({local:.1} % local)"));
    let llcs = if c.llcs.is_empty() { String::new() } else { format!(", LLCs {}", list(&c.llcs)) };
    let bytes: Vec<String> = c.bytes.iter().map(|b| mib(*b)).collect();
    let changes: Vec<String> =
        c.changes.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
    let mut out = format!(
        "{name}, client {number}: {} vCPUs, {home}{llcs}, memory by node {} MiB{local}, \
            {} MiB moved\n",
        c.vcpus,
        bytes.join(" "),
        mib(c.moved_bytes)
    );
    if !changes.is_empty() {
        out += &format!("  homes by reason: {}\n", changes.join(", "));
    }
    if !c.talks.is_empty() {
        let mut most: Vec<(&String, &u64)> = c.talks.iter().collect();
        most.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let with: Vec<String> = most.iter().map(|(vm, n)| format!("{vm} {n}")).collect();
        out += &format!("  wake-ups a second with other VMs: {}\n", with.join(", "));
    }
    for note in &c.notes {
        out += &format!("  {note}\n");
    }
    for decision in &c.decisions {
        out += &format!("  {decision}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostCounts, Times, Vm};
    use std::collections::BTreeMap;

    fn client(home: Option<u32>, bytes: Vec<u64>, changes: &[(&str, u64)]) -> NumaClient {
        let changes = changes.iter().map(|(reason, n)| ((*reason).to_owned(), *n)).collect();
        NumaClient {
            vcpus: 4,
            home,
            bytes,
            changes,
            moved_bytes: 2 << 30,
            decisions: vec![],
            llcs: vec![],
            notes: vec![],
            talks: BTreeMap::new(),
        }
    }

    #[test]
    fn a_line_for_each_client_and_nothing_where_memory_is_near_everywhere() {
        let vm = |name: &str, numa| Vm {
            name: name.to_owned(),
            pool: "/".to_owned(),
            vcpus: 8,
            shares: 1000,
            times: Times::default(),
            cpu_stat: None,
            guest: None,
            numa,
            worlds: vec![],
        };
        let wide = vec![
            NumaClient {
                llcs: vec![2, 3],
                ..client(Some(1), vec![1 << 30, 3 << 30], &[("placed", 1), ("fairness", 12)])
            },
            client(Some(0), vec![1 << 30, 0], &[("placed", 1)]),
        ];
        let spread = vec![client(None, vec![1 << 30, 1 << 30], &[])];
        let mut run = RunResult {
            label: String::new(),
            duration_ns: 4_000_000_000,
            host: HostCounts { pcpus: 8, cores: 8, llcs: 2, nodes: 2, sockets: 2 },
            pcpus: vec![],
            pools: vec![],
            vms: vec![vm("wide", wide), vm("b", spread), vm("none", vec![])],
            wakeups: vec![],
            checked: None,
        };
        assert_eq!(
            homes(&run),
            "
VM    client  vCPUs  NHN  LLCs    N%L  NMIG  moved MiB
------------------------------------------------------
wide       0      4    1   2,3   75.0    12       2048
wide       1      4    0     -  100.0     0       2048
b          0      4    -     -      -     0       2048
"
        );
        run.vms.retain(|vm| vm.name == "none");
        assert_eq!(homes(&run), "");
    }

    #[test]
    fn a_client_is_explained_in_words() {
        let changes = [("placed", 1), ("imbalance", 2)];
        let client = NumaClient {
            decisions: vec!["placed on node 0".to_owned()],
            llcs: vec![2],
            notes: vec!["its memory is bound".to_owned()],
            talks: [("a".to_owned(), 2), ("web".to_owned(), 30)].into(),
            ..client(Some(1), vec![1 << 30, 3 << 30], &changes)
        };
        assert_eq!(
            explained("db", 0, &client),
            "db, client 0: 4 vCPUs, home node 1, LLCs 2, memory by node 1024 3072 MiB (75.0 % \
                local), 2048 MiB moved\n  homes by reason: imbalance 2, placed 1\n  wake-ups a \
                second with other VMs: web 30, a 2\n  its memory is bound\n  placed \
                on node 0\n"
        );
        assert_eq!(client.migrations(), 2);
        // What runs anywhere has no memory that is near.
        assert_eq!(
            explained("db", 0, &self::client(None, vec![1 << 30, 0], &[])),
            "db, client 0: 4 vCPUs, no home, memory by node 1024 0 MiB, 2048 MiB moved\n"
        );
    }
}
