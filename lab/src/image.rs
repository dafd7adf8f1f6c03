//! Builds the guest's root disk: busybox, QEMU with its libraries and firmware, KVM modules,
//! payloads and the init script; it is cached, and what a single boot adds travels on a second
//! disk.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive::{Archive, Kernel, Qemu};
use crate::cpio::Cpio;
use crate::error::{LabError, OnPath, Result};
use crate::{guest_linux, payload, tool};

const INIT: &[u8] = include_bytes!("../guest/init");
const LAB_VM: &[u8] = include_bytes!("../guest/lab-vm");
const LAB_WAIT: &[u8] = include_bytes!("../guest/lab-wait");
/// Raised when the layout below changes, so that old images are not taken for new ones.
const RECIPE: &[u8] = b"1";

/// Free room in the guest's root: caller files (a few tens of MB) and what a scenario writes.
const SLACK_BYTES: u64 = 384 << 20;
/// The file system starts here, behind the partition table.
const PARTITION_START: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// Disk signature; with it the kernel finds its root whatever order it probes the disks in.
const DISK_SIGNATURE: u32 = 0x746e_646d;

/// What `root=` says to boot from an image built here.
pub fn root_argument() -> String {
    format!("root=PARTUUID={DISK_SIGNATURE:08x}-01 rootwait rw init=/init")
}

/// Where the guest finds what the lab put into it.
pub mod guest_path {
    /// The multiboot workload kernel, see [`crate::payload`].
    pub const PAYLOAD: &str = "/lab/payload";
    /// The kernel image for Linux VMs: the lab's own.
    pub const LINUX_KERNEL: &str = "/lab/vmlinuz";
    /// The initramfs for Linux VMs, see [`crate::guest_linux`].
    pub const LINUX_INITRD: &str = "/lab/initramfs.cpio";
    /// The same with more behind it, which the user of such a VM puts there.
    pub const LINUX_INITRD_TOOLS: &str = "/tmp/guest-tools.cpio";
    /// Whatever a command leaves in this folder is brought back.
    pub const OUT: &str = "/lab/out";
}

/// The two shapes of the guest's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An ext4 file system on a disk: quick to boot.
    Disk,
    /// An archive that the kernel unpacks into memory: no device takes part, so no host thread's
    /// timing does.
    Initramfs,
}

impl Shape {
    fn suffix(self) -> &'static str {
        match self {
            Shape::Disk => "img",
            Shape::Initramfs => "cpio",
        }
    }
}

/// Builds the root for a kernel, or finds it built, and returns its path.
pub fn build(archive: &Archive, kernel: &Kernel, shape: Shape) -> Result<PathBuf> {
    let qemu = archive.qemu()?;
    let payload = payload::build(archive)?;
    let initramfs = guest_linux::build(archive)?;
    let payload_bytes = tool::read(&payload)?;
    let identity = format!("{}{}{}", kernel.version, kernel.has_kvm, qemu.version());
    let initramfs_name = initramfs.display().to_string();
    let parts = [
        RECIPE,
        INIT,
        LAB_VM,
        LAB_WAIT,
        identity.as_bytes(),
        &payload_bytes,
        initramfs_name.as_bytes(),
    ];
    let name = image_name(&kernel.version, &tool::content_key(parts), shape);
    let place = archive.root().join("images").join(name);
    if place.is_file() {
        return Ok(place);
    }
    let tree = place.with_extension(format!("tree{}", std::process::id()));
    tool::remove_dir(&tree)?;
    fill(&tree, kernel, &qemu, &payload, &initramfs)?;
    let made = match shape {
        Shape::Disk => make_disk(&tree, &place),
        Shape::Initramfs => make_initramfs(&tree, &place),
    };
    tool::remove_dir(&tree)?;
    made?;
    clear_old(&place, &kernel.version, shape);
    Ok(place)
}

fn image_name(version: &str, key: &str, shape: Shape) -> String {
    format!("{version}-{key}.{}", shape.suffix())
}

/// Deletes the images that this one replaces. A QEMU that still has one open keeps it until it
/// ends.
fn clear_old(place: &Path, version: &str, shape: Shape) {
    let folder = place.parent().unwrap_or(place);
    let prefix = format!("{version}-");
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&prefix) && name.ends_with(shape.suffix()) && entry.path() != place {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

fn fill(tree: &Path, kernel: &Kernel, qemu: &Qemu, payload: &Path, initramfs: &Path) -> Result<()> {
    for folder in
        ["proc", "sys", "dev", "tmp", "run", "root", "etc", "var", "boot", "lab/out", "lab/modules"]
    {
        tool::make_dir(&tree.join(folder))?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        tool::make_dir(&tree.join("usr").join(name))?;
        let link = tree.join(name);
        symlink(format!("usr/{name}"), &link).on(&link, "make the link")?;
    }
    add_qemu(tree, qemu)?;
    add_busybox(tree, qemu)?;
    for (n, module) in kernel.modules().iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        tool::copy(module, &tree.join("lab/modules").join(format!("{n}-{name}")))?;
    }
    if let Some(config) = kernel.config() {
        tool::copy(&config, &tree.join("boot").join(format!("config-{}", kernel.release())))?;
    }
    for (from, to) in [
        (payload, guest_path::PAYLOAD),
        (&kernel.vmlinuz(), guest_path::LINUX_KERNEL),
        (initramfs, guest_path::LINUX_INITRD),
    ] {
        tool::copy(from, &tree.join(&to[1..]))?;
    }
    tool::write(&tree.join("etc/passwd"), b"root:x:0:0:root:/root:/bin/sh\n")?;
    tool::write(&tree.join("etc/group"), b"root:x:0:\n")?;
    add_script(&tree.join("init"), INIT)?;
    add_script(&tree.join("usr/bin/lab-vm"), LAB_VM)?;
    add_script(&tree.join("usr/bin/lab-wait"), LAB_WAIT)
}

fn add_script(path: &Path, text: &[u8]) -> Result<()> {
    tool::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .on(path, "make it executable")
}

fn add_qemu(tree: &Path, qemu: &Qemu) -> Result<()> {
    for file in qemu.program_files()? {
        tool::copy(&qemu.root().join(&file), &tree.join(&file))?;
    }
    for name in FIRMWARE_FILES {
        let found = crate::archive::firmware_folders()
            .iter()
            .map(|folder| Path::new(folder).join(name))
            .find(|f| qemu.root().join(f).is_file());
        let file = found.ok_or_else(|| {
            LabError::new(
                name,
                "be put into the guest",
                "not among QEMU's firmware",
                "fetch QEMU again",
            )
        })?;
        tool::copy(&qemu.root().join(&file), &tree.join(&file))?;
    }
    Ok(())
}

/// What `-nodefaults -kernel` needs: the BIOS, its KVM option ROM, and the ROMs that start a kernel
/// image.
const FIRMWARE_FILES: [&str; 7] = [
    "bios-256k.bin",
    "kvmvapic.bin",
    "linuxboot.bin",
    "linuxboot_dma.bin",
    "multiboot.bin",
    "multiboot_dma.bin",
    "pvh.bin",
];

fn add_busybox(tree: &Path, qemu: &Qemu) -> Result<()> {
    let bin = tree.join("usr/bin");
    tool::copy(&qemu.busybox(), &bin.join("busybox"))?;
    let next = "delete the cache folder so that busybox is fetched again";
    let list = tool::run(Command::new(qemu.busybox()).arg("--list"), "list its programs", next)?;
    for applet in String::from_utf8_lossy(&list).lines().filter(|a| *a != "busybox") {
        let link = bin.join(applet);
        symlink("busybox", &link).on(&link, "make the link")?;
    }
    Ok(())
}

fn make_initramfs(tree: &Path, place: &Path) -> Result<()> {
    let mut cpio = Cpio::default();
    cpio.add_tree(tree)?;
    cpio.add("dev/console", 0o020_600, (5, 1), &[]);
    let bytes = cpio.finish();
    tool::progress(&format!("guest root: an initramfs of {}", tool::megabytes(bytes.len() as u64)));
    tool::write(place, &bytes)
}

/// Packs the tree into one ext4 partition on a disk.
fn make_disk(tree: &Path, place: &Path) -> Result<()> {
    let mut content = 0;
    for file in tool::files_below(tree)? {
        content +=
            std::fs::symlink_metadata(&file).on(&file, "look at it")?.len().next_multiple_of(4096);
    }
    let fs_bytes = (content + SLACK_BYTES).next_multiple_of(1 << 20);
    tool::progress(&format!(
        "guest root: {} of files on a disk of {}",
        tool::megabytes(content),
        tool::megabytes(fs_bytes)
    ));
    let draft = place.with_extension(format!("draft{}", std::process::id()));
    let mut disk = File::create(&draft).on(&draft, "create the disk")?;
    disk.set_len(PARTITION_START + fs_bytes).on(&draft, "size the disk")?;
    disk.seek(SeekFrom::Start(0)).on(&draft, "write the partition table")?;
    disk.write_all(&partition_table(fs_bytes)).on(&draft, "write the partition table")?;
    drop(disk);
    let mke2fs = tool::need_program(&["mke2fs"], "e2fsprogs")?;
    let mut command = Command::new(mke2fs);
    command
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal", "-E"])
        .arg(format!("offset={PARTITION_START},root_owner=0:0"))
        .arg("-d")
        .arg(tree)
        .arg(&draft)
        .arg(format!("{}k", fs_bytes / 1024));
    tool::run(&mut command, "make the guest's file system", "check that the disk has room")?;
    std::fs::rename(&draft, place).on(place, "put the disk in place")
}

/// A master boot record with one Linux partition over the whole rest of the disk.
fn partition_table(fs_bytes: u64) -> [u8; 512] {
    let mut sector = [0; SECTOR as usize];
    sector[0x1b8..0x1bc].copy_from_slice(&DISK_SIGNATURE.to_le_bytes());
    sector[0x1be + 4] = 0x83;
    let start = (PARTITION_START / SECTOR) as u32;
    let count = (fs_bytes / SECTOR) as u32;
    sector[0x1be + 8..0x1be + 12].copy_from_slice(&start.to_le_bytes());
    sector[0x1be + 12..0x1be + 16].copy_from_slice(&count.to_le_bytes());
    sector[0x1fe..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_shapes_of_one_root_have_different_names() {
        assert_eq!(image_name("7.2.13", "0a", Shape::Disk), "7.2.13-0a.img");
        assert_eq!(image_name("7.2.13", "0a", Shape::Initramfs), "7.2.13-0a.cpio");
    }

    #[test]
    fn the_partition_table_carries_the_signature_that_root_names() {
        let table = partition_table(100 << 20);
        assert_eq!(&table[0x1fe..], &[0x55, 0xaa]);
        let signature = u32::from_le_bytes(table[0x1b8..0x1bc].try_into().unwrap());
        assert!(root_argument().contains(&format!("{signature:08x}-01")));
        assert_eq!(u32::from_le_bytes(table[0x1ca..0x1ce].try_into().unwrap()), (100 << 20) / 512);
    }

    #[test]
    fn the_init_script_hands_files_back_and_powers_off() {
        let text = String::from_utf8_lossy(INIT);
        for needed in ["cgroup2", "/sys/fs/bpf", "labin", "labout", "poweroff -f", guest_path::OUT]
        {
            assert!(text.contains(needed), "{needed}");
        }
    }
}
