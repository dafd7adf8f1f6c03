//! Describes a VM inside the lab and writes the shell line that starts it in its own cgroup; it
//! starts nothing itself, since only the guest can.

use crate::error::{LabError, Result};
use crate::guest_linux;
use crate::image::guest_path;
use crate::payload::Orders;

/// What a VM runs.
#[derive(Debug, Clone)]
pub enum Runs {
    /// The workload kernel with these orders; reports go to `/lab/out/NAME.debug`.
    Payload(Orders),
    /// The lab's own Linux kernel, working for so many seconds; its console goes to
    /// `/lab/out/NAME.serial`.
    Linux {
        /// Seconds of work on every vCPU.
        work_s: u32,
    },
    /// The same kernel, passing messages between its vCPUs for so many seconds; the guest's tools
    /// are in its initramfs (`guest_path::LINUX_INITRD_TOOLS`). Its vCPUs poll where they would
    /// halt, as those of latency-sensitive guests do: so a vCPU that waits for a sibling spins,
    /// and the emulator's KVM, which now and then brings a halted vCPU's pCPU down, halts none.
    LinuxMessages {
        /// Seconds of work.
        work_s: u32,
    },
}

/// A VM inside the lab.
#[derive(Debug, Clone)]
pub struct Vm {
    /// Name of the VM and of its files in `/lab/out`.
    pub name: String,
    /// Its cgroup below the root of the tree, such as `machine.slice/web.scope`; made if missing.
    pub group: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// What it runs.
    pub runs: Runs,
}

/// The workload kernel needs little; QEMU itself takes 40 MB on top.
const PAYLOAD_MEMORY_MB: u32 = 16;
/// Enough to unpack a kernel and a small initramfs.
const LINUX_MEMORY_MB: u32 = 256;

impl Vm {
    /// A VM in a cgroup of its own name.
    pub fn new(name: impl Into<String>, vcpus: u32, runs: Runs) -> Self {
        let name = name.into();
        Vm { group: name.clone(), name, vcpus, runs }
    }

    /// The shell line that starts this VM in the lab; it returns once QEMU runs, with its process
    /// id in `/lab/out/NAME.pid`.
    pub fn start_line(&self) -> Result<String> {
        for text in [&self.name, &self.group] {
            let fits = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            if text.is_empty() || !text.chars().all(fits) {
                return Err(LabError::new(
                    "VM name",
                    "be used in the lab",
                    format!("\"{text}\", allowed letters, digits and . _ - /"),
                    "rename the VM",
                ));
            }
        }
        let (memory, kernel, initrd, line) = match &self.runs {
            Runs::Payload(orders) => {
                (PAYLOAD_MEMORY_MB, guest_path::PAYLOAD, "-", orders.command_line()?)
            }
            Runs::Linux { work_s } => {
                let line = guest_linux::command_line(*work_s);
                (LINUX_MEMORY_MB, guest_path::LINUX_KERNEL, guest_path::LINUX_INITRD, line)
            }
            Runs::LinuxMessages { work_s } => {
                let line = guest_linux::command_line(*work_s) + " work=messages idle=poll";
                (LINUX_MEMORY_MB, guest_path::LINUX_KERNEL, guest_path::LINUX_INITRD_TOOLS, line)
            }
        };
        let (name, group, vcpus) = (&self.name, &self.group, self.vcpus);
        Ok(format!("GROUP={group} lab-vm {name} {vcpus} {memory} {kernel} {initrd} \"{line}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Work;

    #[test]
    fn a_payload_vm_starts_in_its_group_with_its_orders() {
        let mut vm = Vm::new("web", 2, Runs::Payload(Orders::all(2, Work::Burn)));
        vm.group = "machine.slice/web.scope".into();
        assert_eq!(
            vm.start_line().unwrap(),
            "GROUP=machine.slice/web.scope lab-vm web 2 16 /lab/payload - \"seed=0 0:burn 1:burn\""
        );
    }

    #[test]
    fn a_name_that_the_shell_would_take_apart_is_refused() {
        let vm = Vm::new("web; rm", 1, Runs::Linux { work_s: 1 });
        assert!(vm.start_line().unwrap_err().to_string().contains("allowed letters, digits"));
    }
}
