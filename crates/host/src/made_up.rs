//! A made-up /proc, /sys and cgroup tree for tests; nothing in it is of this machine.

use crate::discover::Roots;
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// A folder with such a tree, gone when dropped.
pub(crate) struct MadeUp(PathBuf);

impl MadeUp {
    /// An empty tree; `name` tells those of different tests apart.
    pub(crate) fn new(name: &str) -> MadeUp {
        let dir =
            std::env::temp_dir().join(format!("tandem-made-up-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("cgroup")).unwrap();
        MadeUp(dir)
    }

    pub(crate) fn roots(&self) -> Roots {
        let dir = |name: &str| self.0.join(name);
        Roots {
            proc_fs: dir("proc"),
            sys: dir("sys"),
            cgroup: dir("cgroup"),
            attributes: attributes_of,
        }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(crate) fn put(&self, path: &str, text: &[u8]) {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// A file of a cgroup.
    pub(crate) fn cgroup(&self, path: &str, file: &str, text: &str) {
        self.put(&format!("cgroup{path}/{file}"), text.as_bytes());
    }

    /// An extended attribute of a cgroup's folder.
    pub(crate) fn attribute(&self, path: &str, name: &str, value: &str) {
        self.put(&format!("cgroup{path}/.attributes/{name}"), value.as_bytes());
    }

    pub(crate) fn process(
        &self,
        pid: i32,
        exe: &str,
        args: &[u8],
        cgroup: &str,
        threads: &[(i32, &str)],
    ) {
        self.put(&format!("proc/{pid}/cmdline"), args);
        self.put(&format!("proc/{pid}/cgroup"), format!("0::{cgroup}\n").as_bytes());
        self.stat(pid, 0);
        symlink(exe, self.0.join(format!("proc/{pid}/exe"))).unwrap();
        for (tid, comm) in threads {
            self.put(&format!("proc/{pid}/task/{tid}/comm"), format!("{comm}\n").as_bytes());
        }
    }

    /// A VM with the threads `pid` (main), `pid + 1` (its first vCPU), and so on.
    pub(crate) fn vm(&self, pid: i32, name: &str, cgroup: &str, vcpus: i32) {
        let names: Vec<String> = (0..vcpus).map(|n| format!("CPU {n}/KVM")).collect();
        let vcpus = (pid + 1..).zip(names.iter().map(String::as_str));
        let threads: Vec<(i32, &str)> = [(pid, "qemu")].into_iter().chain(vcpus).collect();
        self.process(
            pid,
            "/usr/bin/qemu-system-x86_64",
            format!("qemu\0-name\0{name}\0").as_bytes(),
            cgroup,
            &threads,
        );
    }

    pub(crate) fn kernel_thread(&self, pid: i32, comm: &str) {
        self.put(&format!("proc/{pid}/comm"), format!("{comm}\n").as_bytes());
        self.stat(pid, 0x0020_8040);
    }

    fn stat(&self, pid: i32, flags: u32) {
        let fields = (4..9)
            .map(|n| n.to_string())
            .chain([flags.to_string()])
            .chain((10..22).map(|n| n.to_string()));
        let fields = fields.collect::<Vec<_>>().join(" ");
        self.put(
            &format!("proc/{pid}/stat"),
            format!("{pid} (a b) c) S {fields} 777 0\n").as_bytes(),
        );
    }
}

impl Drop for MadeUp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Attributes as `MadeUp::attribute` keeps them.
fn attributes_of(folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let Ok(dir) = fs::read_dir(folder.join(".attributes")) else { return Ok(vec![]) };
    let mut all: Vec<(String, Vec<u8>)> = dir
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
        })
        .collect::<io::Result<_>>()?;
    all.sort();
    Ok(all)
}
