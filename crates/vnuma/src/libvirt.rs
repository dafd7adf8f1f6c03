//! A plan as XML of a libvirt domain: its parts, or a complete domain without devices; it defines
//! nothing.
//!
//! Format: libvirt.org/formatdomain.html, "CPU model and topology", "CPU Tuning", "NUMA Node
//! Tuning".

use crate::{mib::Mib, plan::Plan};
use std::fmt::Write as _;
use units::PcpuSet;

/// Text inside XML, between tags or in an attribute.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            // XML has no other control characters, not even escaped.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
        out
    })
}

/// Nodes of the host as libvirt lists them; ids that follow each other are a range.
pub(crate) fn ranges(ids: &[u32]) -> Vec<String> {
    let mut ranges: Vec<(u32, u32)> = vec![];
    for id in ids {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == *id => last.1 = *id,
            _ => ranges.push((*id, *id)),
        }
    }
    let text = |(low, high)| if low == high { format!("{low}") } else { format!("{low}-{high}") };
    ranges.into_iter().map(text).collect()
}

/// libvirt's mode for memory on these nodes of the host.
fn mode(on: &[u32]) -> &'static str {
    if on.len() > 1 { "interleave" } else { "strict" }
}

fn memory(unit: Mib) -> String {
    format!("<memory unit='MiB'>{}</memory>\n", unit.0)
}

impl Plan {
    /// The elements that replace those of the same names in a domain. With `pins` each vCPU is
    /// pinned to the pCPUs of its client's home.
    #[must_use]
    pub fn libvirt(&self, pins: bool) -> String {
        let mut out = self.origin();
        out.push_str(&memory(self.vm.memory));
        out.push_str(&self.vcpus(pins));
        out.push_str(&self.numatune());
        out.push_str(&self.cpu());
        out
    }

    /// A complete domain: it starts, and has no devices.
    #[must_use]
    pub fn libvirt_domain(&self, pins: bool) -> String {
        let mut inside = self.origin();
        let _ = writeln!(inside, "<name>{}</name>", escaped(&self.vm.name));
        inside.push_str(&memory(self.vm.memory));
        inside.push_str(&self.vcpus(pins));
        inside.push_str(&self.numatune());
        inside.push_str("<os>\n  <type arch='x86_64' machine='q35'>hvm</type>\n</os>\n");
        inside.push_str("<features>\n  <acpi/>\n  <apic/>\n</features>\n");
        inside.push_str(&self.cpu());
        let lines: String = inside.lines().map(|l| format!("  {l}\n")).collect();
        format!("<domain type='kvm'>\n{lines}</domain>\n")
    }

    /// A comment where numbers of nodes and pCPUs are not a machine's.
    fn origin(&self) -> String {
        if self.host.is_machine {
            return String::new();
        }
        // A comment ends at two dashes.
        let name = escaped(&self.host.name).replace('-', " ");
        format!("<!-- nodes and pCPUs are numbered as in host {name}, not as on a machine -->\n")
    }

    fn vcpus(&self, pins: bool) -> String {
        if !pins {
            return format!("<vcpu placement='static'>{}</vcpu>\n", self.vm.vcpus);
        }
        let on = |home: u32| self.host.node(home).map_or(PcpuSet::empty(), |n| n.pcpus.clone());
        let all = self.mapping.clients.iter().map(|c| on(c.home));
        let all = all.fold(PcpuSet::empty(), |sum, set| sum.or(&set));
        let mut out = format!("<vcpu placement='static' cpuset='{all}'>{}</vcpu>\n", self.vm.vcpus);
        out.push_str("<cputune>\n");
        for client in &self.mapping.clients {
            let set = on(client.home);
            for vcpu in client.vcpus.ids() {
                let _ = writeln!(out, "  <vcpupin vcpu='{vcpu}' cpuset='{set}'/>");
            }
        }
        out.push_str("</cputune>\n");
        out
    }

    /// Memory of each virtual node. Without one that the guest sees, that of the VM as a whole.
    fn numatune(&self) -> String {
        if !self.is_bound() {
            return String::new();
        }
        let all = self.mapping.all_memory_on();
        let any = (0..self.decision.nodes.len()).any(|i| self.mapping.memory_on(i).len() > 1);
        let whole = if any { "interleave" } else { "strict" };
        let mut out = String::from("<numatune>\n");
        let _ = writeln!(out, "  <memory mode='{whole}' nodeset='{}'/>", ranges(&all).join(","));
        for i in (0..self.decision.nodes.len()).filter(|_| self.is_exposed()) {
            let on = self.mapping.memory_on(i);
            let (mode, nodes) = (mode(on), ranges(on).join(","));
            let _ = writeln!(out, "  <memnode cellid='{i}' mode='{mode}' nodeset='{nodes}'/>");
        }
        out.push_str("</numatune>\n");
        out
    }

    fn cpu(&self) -> String {
        let (sockets, cores) = (self.guest.sockets, self.guest.cores);
        let mut out = String::from("<cpu mode='host-passthrough'>\n");
        let _ =
            writeln!(out, "  <topology sockets='{sockets}' dies='1' cores='{cores}' threads='1'/>");
        if self.is_exposed() {
            out.push_str("  <numa>\n");
            for i in 0..self.decision.nodes.len() {
                out.push_str(&self.cell(i));
            }
            out.push_str("  </numa>\n");
        }
        out.push_str("</cpu>\n");
        out
    }

    fn cell(&self, i: usize) -> String {
        let node = &self.decision.nodes[i];
        let (vcpus, mib) = (node.vcpus, node.memory.0);
        let head = format!("    <cell id='{i}' cpus='{vcpus}' memory='{mib}' unit='MiB'");
        let Some(distances) = &self.distances else { return head + "/>\n" };
        let mut out = head + ">\n      <distances>\n";
        for (j, distance) in distances[i].iter().enumerate() {
            let _ = writeln!(out, "        <sibling id='{j}' value='{distance}'/>");
        }
        out + "      </distances>\n    </cell>\n"
    }
}
