//! A made-up /proc, /sys and cgroup tree for tests; nothing in it is of this machine.

use crate::discover::Roots;
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Number of the namespaces that this process and others are in.
const NAMESPACE: &str = "4026531837";

/// A folder with such a tree, gone when dropped.
pub(crate) struct MadeUp(PathBuf);

impl MadeUp {
    /// An empty tree; `name` tells those of different tests apart.
    pub(crate) fn new(name: &str) -> MadeUp {
        let dir =
            std::env::temp_dir().join(format!("tandem-made-up-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("cgroup")).unwrap();
        let made = MadeUp(dir);
        for kind in ["user", "pid"] {
            made.link(&format!("proc/self/ns/{kind}"), &format!("{kind}:[{NAMESPACE}]"));
        }
        made
    }

    pub(crate) fn roots(&self) -> Roots {
        let dir = |name: &str| self.0.join(name);
        Roots {
            proc_fs: dir("proc"),
            sys: dir("sys"),
            cgroup: dir("cgroup"),
            passwd: dir("passwd"),
            attributes: attributes_of,
            owner: owner_of,
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

    /// The owner of a cgroup's folder; root's if nothing is said.
    pub(crate) fn owner(&self, path: &str, uid: u32) {
        self.put(&format!("cgroup{path}/.owner"), uid.to_string().as_bytes());
    }

    /// A symbolic link in place of what is there.
    fn link(&self, path: &str, to: &str) {
        let link = self.0.join(path);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        symlink(to, link).unwrap();
    }

    /// Real and effective uid of a process.
    pub(crate) fn user(&self, pid: i32, [real, effective]: [u32; 2]) {
        let status = format!("Name:\tx\nUid:\t{real}\t{effective}\t0\t0\nGid:\t0\t0\t0\t0\n");
        self.put(&format!("proc/{pid}/status"), status.as_bytes());
    }

    /// The namespace of a kind that a process is in; `None` cannot be read.
    pub(crate) fn namespace(&self, pid: i32, kind: &str, number: Option<&str>) {
        let path = format!("proc/{pid}/ns/{kind}");
        match number {
            Some(number) => self.link(&path, &format!("{kind}:[{number}]")),
            None => fs::remove_file(self.0.join(path)).unwrap(),
        }
    }

    /// An open file of a process.
    pub(crate) fn open(&self, pid: i32, fd: i32, file: &str) {
        self.link(&format!("proc/{pid}/fd/{fd}"), file);
    }

    /// A process of root, with threads.
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
        fs::create_dir_all(self.0.join(format!("cgroup{cgroup}"))).unwrap();
        self.stat(pid, 0);
        self.user(pid, [0, 0]);
        ["user", "pid"].iter().for_each(|kind| self.namespace(pid, kind, Some(NAMESPACE)));
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

    /// Another text in place of one in a process's `stat`.
    pub(crate) fn stat_says(&self, pid: i32, old: &str, new: &str) {
        let path = format!("proc/{pid}/stat");
        let text = fs::read_to_string(self.0.join(&path)).unwrap();
        assert!(text.contains(old), "{text}");
        self.put(&path, text.replacen(old, new, 1).as_bytes());
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

/// Owners as `MadeUp::owner` keeps them.
fn owner_of(folder: &Path) -> io::Result<u32> {
    fs::metadata(folder)?;
    Ok(fs::read_to_string(folder.join(".owner")).map_or(0, |uid| uid.parse().unwrap()))
}
