//! Builds the initramfs of a real Linux VM for inside the lab: busybox and one script that works on
//! every vCPU and prints the guest's own view of steal time; it runs the same kernel image as the
//! lab itself.

use std::path::PathBuf;

use crate::archive::Archive;
use crate::cpio::Cpio;
use crate::error::Result;
use crate::tool;

const INIT: &[u8] = include_bytes!("../guest/linux-init");
/// The programs the script uses.
const APPLETS: [&str; 7] = ["sh", "mount", "cat", "cut", "grep", "poweroff", "sleep"];

/// Kernel command line for [`build`]'s guest: console on the serial port and `work_s` seconds of
/// work.
pub fn command_line(work_s: u32) -> String {
    format!("console=ttyS0 quiet panic=-1 rdinit=/init work_s={work_s}")
}

/// Builds the initramfs, or finds it built, and returns its path.
pub fn build(archive: &Archive) -> Result<PathBuf> {
    let busybox = tool::read(&archive.qemu()?.busybox())?;
    let key = tool::content_key([INIT, &busybox, APPLETS.join(" ").as_bytes()]);
    let place = archive.root().join(format!("guest-linux-{key}.cpio"));
    if !place.is_file() {
        tool::write(&place, &image(&busybox))?;
    }
    Ok(place)
}

fn image(busybox: &[u8]) -> Vec<u8> {
    let mut cpio = Cpio::default();
    for folder in ["bin", "proc", "sys", "dev"] {
        cpio.add(folder, 0o040_755, (0, 0), &[]);
    }
    cpio.add("dev/console", 0o020_600, (5, 1), &[]);
    cpio.add("bin/busybox", 0o100_755, (0, 0), busybox);
    for applet in APPLETS {
        cpio.add(&format!("bin/{applet}"), 0o120_777, (0, 0), b"busybox");
    }
    cpio.add("init", 0o100_755, (0, 0), INIT);
    cpio.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_the_first_process_and_prints_steal() {
        let out = image(b"not a busybox");
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains("init\0") && text.contains("steal="));
        assert!(command_line(7).contains("rdinit=/init work_s=7"));
    }
}
