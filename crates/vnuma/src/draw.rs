//! A plan as text for people: the guest's nodes above, the host's below; it decides nothing.

use crate::{mapping::Case, plan::Plan};
use std::fmt::{self, Write as _};

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Fits => f.write_str("fits"),
            Case::Multiple { clients } => write!(f, "{clients} clients each"),
            Case::Irreconcilable => f.write_str("irreconcilable"),
        }
    }
}

/// `1 node`, `2 nodes`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn listed(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl Plan {
    /// The plan drawn as text.
    #[must_use]
    pub fn draw(&self) -> String {
        let mut out = self.head();
        for (i, node) in self.decision.nodes.iter().enumerate() {
            let of_this = self.mapping.clients.iter().filter(|c| c.virtual_nodes.contains(&i));
            let _ = writeln!(out, "  virtual node {i}: vCPUs {}, {}", node.vcpus, node.memory);
            if self.mapping.case != Case::Irreconcilable {
                for c in of_this {
                    let _ = writeln!(out, "    client: vCPUs {} on node {}", c.vcpus, c.home);
                }
                let _ = writeln!(out, "    memory: {}", self.memory(self.mapping.memory_on(i)));
            }
        }
        if self.mapping.case == Case::Irreconcilable {
            for c in &self.mapping.clients {
                let _ = writeln!(out, "  client: vCPUs {} on node {}", c.vcpus, c.home);
            }
            let _ = writeln!(out, "  memory: {}", self.memory(&self.mapping.all_memory_on()));
        }
        out.push_str(&self.below());
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        out
    }

    fn head(&self) -> String {
        let Plan { vm, decision, guest, .. } = self;
        let mut out =
            format!("VM {}: {}, {}\n", vm.name, count(vm.vcpus as usize, "vCPU"), vm.memory);
        let nodes = match (decision.nodes.len(), decision.nodes.last()) {
            (1, _) => "one node, no NUMA for the guest".to_owned(),
            (n, Some(last)) if last.vcpus.count < decision.size => {
                format!("{n} of {} or {} vCPUs", decision.size, last.vcpus.count)
            }
            (n, _) => format!("{n} of {}", count(decision.size as usize, "vCPU")),
        };
        let _ = writeln!(out, "  virtual nodes: {nodes}; {}", decision.reason);
        let (sockets, cores) = (guest.sockets as usize, guest.cores as usize);
        let _ = writeln!(out, "  sockets: {sockets} of {}", count(cores, "core"));
        let _ = writeln!(out, "  on this host: {}; {}", self.mapping.case, self.cost());
        out
    }

    fn memory(&self, on: &[u32]) -> String {
        match on {
            [] => "anywhere".to_owned(),
            [node] => format!("on node {node}"),
            nodes => format!("interleaved over nodes {}", listed(nodes)),
        }
    }

    fn below(&self) -> String {
        let (host, on) = (&self.host, self.mapping.vcpus_on());
        let memory = self.mapping.memory_by_node(&self.decision);
        let (cores, threads) = (host.cores() as usize, host.threads() as usize);
        let mut out = format!(
            "host {}: {}, {}, {}\n",
            host.name,
            count(host.nodes.len(), "node"),
            count(cores, "core"),
            count(threads, "pCPU")
        );
        for node in &host.nodes {
            let size = node.memory.map_or("memory unknown".to_owned(), |m| m.to_string());
            let cores = count(node.cores as usize, "core");
            let _ = write!(out, "  node {}: pCPUs {}, {cores}, {size}", node.id, node.pcpus);
            let vcpus = on.get(&node.id).copied().unwrap_or(0) as usize;
            let _ = match memory.get(&node.id) {
                None if vcpus == 0 => writeln!(out),
                None => writeln!(out, "; {} of this VM", count(vcpus, "vCPU")),
                Some(m) => writeln!(out, "; {} and {m} of this VM", count(vcpus, "vCPU")),
            };
        }
        out
    }
}
