//! A plan as arguments of QEMU, an option and its value each; QEMU itself pins no vCPU.
//!
//! Format: QEMU's manual page, `-smp`, `-object memory-backend-ram`, `-numa`.

use crate::{libvirt::ranges, plan::Plan};

impl Plan {
    /// The arguments, in order: none has a character that a shell treats specially.
    #[must_use]
    pub fn qemu(&self) -> Vec<String> {
        let (vcpus, mib) = (self.vm.vcpus, self.vm.memory.0);
        let (sockets, cores) = (self.guest.sockets, self.guest.cores);
        let mut all = vec![
            ("-smp", format!("{vcpus},sockets={sockets},cores={cores},threads=1")),
            ("-m", format!("{mib}M")),
        ];
        if self.is_exposed() {
            for (i, node) in self.decision.nodes.iter().enumerate() {
                all.push(("-object", self.backend(i, &format!("vnode{i}"), node.memory.0)));
                let cpus = node.vcpus;
                all.push(("-numa", format!("node,nodeid={i},cpus={cpus},memdev=vnode{i}")));
            }
        } else if self.is_bound() {
            all.push(("-object", self.backend(0, "ram", mib)));
            all.push(("-machine", "memory-backend=ram".to_owned()));
        }
        for (i, row) in self.distances.iter().flatten().enumerate() {
            for (j, distance) in row.iter().enumerate().filter(|(j, _)| *j != i) {
                all.push(("-numa", format!("dist,src={i},dst={j},val={distance}")));
            }
        }
        all.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
    }

    /// Memory of a virtual node.
    fn backend(&self, virtual_node: usize, id: &str, mib: u64) -> String {
        let mut out = format!("memory-backend-ram,id={id},size={mib}M");
        if !self.is_bound() {
            return out;
        }
        let on = self.mapping.memory_on(virtual_node);
        // A list is the option given several times.
        ranges(on).iter().for_each(|nodes| out.push_str(&format!(",host-nodes={nodes}")));
        out + if on.len() > 1 { ",policy=interleave" } else { ",policy=bind" }
    }

    /// The arguments for a shell, an option a line.
    #[must_use]
    pub fn qemu_lines(&self) -> String {
        let lines: Vec<String> = self.qemu().chunks(2).map(|pair| pair.join(" ")).collect();
        lines.join(" \\\n") + "\n"
    }
}
