//! Where VMs have their homes and their memory, as tables; it judges nothing.

use crate::{NumaClient, RunResult, Table};

fn mib(bytes: u64) -> String {
    (bytes >> 20).to_string()
}

/// The NUMA clients of a run, a line each; nothing where memory is near everywhere.
#[must_use]
pub fn homes(run: &RunResult) -> String {
    let mut t = Table::new(&["<VM", "client", "vCPUs", "NHN", "N%L", "NMIG", "moved MiB"]);
    let mut any = false;
    for vm in &run.vms {
        for (i, c) in vm.numa.iter().enumerate() {
            any = true;
            t.row([
                vm.name.clone(),
                i.to_string(),
                c.vcpus.to_string(),
                c.home.map_or("-".to_owned(), |home| home.to_string()),
                format!("{:.1}", c.local_percent()),
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
    let bytes: Vec<String> = c.bytes.iter().map(|b| mib(*b)).collect();
    let changes: Vec<String> =
        c.changes.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
    let mut out = format!(
        "{name}, client {number}: {} vCPUs, {home}, memory by node {} MiB ({:.1} % local), {} MiB \
            moved\n",
        c.vcpus,
        bytes.join(" "),
        c.local_percent(),
        mib(c.moved_bytes)
    );
    if !changes.is_empty() {
        out += &format!("  homes by reason: {}\n", changes.join(", "));
    }
    for decision in &c.decisions {
        out += &format!("  {decision}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_explained_in_words() {
        let client = NumaClient {
            vcpus: 4,
            home: Some(1),
            bytes: vec![1 << 30, 3 << 30],
            changes: [("placed".to_owned(), 1), ("imbalance".to_owned(), 2)].into(),
            moved_bytes: 2 << 30,
            decisions: vec!["placed on node 0".to_owned()],
        };
        assert_eq!(
            explained("db", 0, &client),
            "db, client 0: 4 vCPUs, home node 1, memory by node 1024 3072 MiB (75.0 % local), 2048 \
                MiB moved\n  homes by reason: imbalance 2, placed 1\n  placed on node 0\n"
        );
        assert_eq!(client.migrations(), 2);
    }
}
