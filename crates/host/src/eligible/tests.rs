//! Which made-up processes are followed: by cgroup, KVM, user and settings file; what is said of
//! the others, and how often they are looked at.

use super::*;
use crate::{
    discover::{Finder, FoundVm},
    made_up::MadeUp,
};

const DELEGATED: &str = "/user.slice/user-1000.slice/user@1000.service";

fn settings(text: &str) -> LiveSettings {
    LiveSettings::parse("t.toml", text).unwrap_or_else(|e| panic!("{e}"))
}

fn scan(t: &MadeUp, finder: &mut Finder, text: &str) -> Vec<FoundVm> {
    let settings = settings(text);
    let trust = Trust::of(&settings, &t.roots()).unwrap();
    finder.scan(&t.roots(), Which::Trusted(&trust, &settings))
}

/// Names of the VMs that are followed, and what is said of other processes.
fn seen(t: &MadeUp, text: &str) -> (Vec<String>, Vec<String>) {
    let mut finder = Finder::default();
    let found = scan(t, &mut finder, text);
    (found.into_iter().map(|vm| vm.name).collect(), finder.refused().into_iter().collect())
}

fn followed(t: &MadeUp, text: &str) -> Vec<String> {
    seen(t, text).0
}

/// A VM of a user, with KVM or without.
fn vm_of(t: &MadeUp, pid: i32, cgroup: &str, uid: u32, kvm: bool) {
    t.vm(pid, &format!("vm{pid}"), cgroup, 1);
    t.user(pid, [uid, uid]);
    if kvm {
        t.open(pid, 9, "anon_inode:kvm-vm");
    }
}

#[test]
fn a_cgroup_of_another_user_makes_no_vm_until_that_user_is_trusted() {
    let t = MadeUp::new("eligible-cgroup");
    t.cgroup(DELEGATED, "cpu.weight", "100\n");
    t.owner(DELEGATED, 1000);
    let own = format!("{DELEGATED}/app.slice/vm.scope");
    vm_of(&t, 10, &own, 1000, true);
    // Nor for root, nor by the settings file: whose cgroup it is could change all of that.
    vm_of(&t, 20, &own, 0, true);
    let file = format!("[[vm]]\nname = \"vm10\"\n[[vm]]\ncgroup = \"{DELEGATED}\"\n");
    let (vms, said) = seen(&t, &file);
    assert_eq!(vms, [""; 0]);
    assert_eq!(
        said[0],
        format!(
            "process qemu-system-x86_64 (pid 10) in cgroup '{own}': cannot follow it as a VM: seen \
                uid 1000 as owner of '{DELEGATED}', allowed root or a user of [trust] users; it \
                runs as a host task; to follow it, add 1000 to [trust] users"
        )
    );
    assert_eq!(said.len(), 2);
    let trusted = seen(&t, "[trust]\nusers = [1000]\n");
    assert_eq!(trusted, (vec!["vm10".to_owned(), "vm20".to_owned()], vec![]));
    assert_eq!(followed(&t, "[trust]\nusers = [1001]\n"), [""; 0]);
}

#[test]
fn a_scope_of_root_that_holds_another_users_cgroups_is_left_to_those_outside_them() {
    let t = MadeUp::new("eligible-scope");
    // The VM's cgroup is the scope; the process's own is what counts.
    vm_of(&t, 10, "/machine.slice/c1.scope/payload", 0, true);
    t.owner("/machine.slice/c1.scope/payload", 100_000);
    vm_of(&t, 20, "/machine.slice/c2.scope/libvirt/emulator", 64_055, true);
    assert_eq!(followed(&t, ""), ["vm20"]);
}

#[test]
fn without_kvm_only_root_outside_of_containers_and_the_files_cgroups_have_vms() {
    let t = MadeUp::new("eligible-kvm");
    vm_of(&t, 10, "/a/kvm", 107, true);
    vm_of(&t, 20, "/a/root", 0, false);
    vm_of(&t, 30, "/a/user", 107, false);
    vm_of(&t, 40, "/a/setuid", 107, false);
    t.user(40, [107, 0]);
    vm_of(&t, 50, "/a/dropped", 107, false);
    t.user(50, [0, 107]);
    for (pid, kind) in [(60, "user"), (70, "pid")] {
        vm_of(&t, pid, "/a/container", 0, false);
        t.namespace(pid, kind, Some("4026539999"));
    }
    vm_of(&t, 80, "/a/opener", 107, false);
    t.open(80, 9, "/dev/kvm");
    let (vms, said) = seen(&t, "[trust]\nusers = [107]\n");
    assert_eq!(vms, ["vm10", "vm20"], "that the user is trusted gives no KVM");
    let told = |uid: &str, pid: i32, cgroup: &str| {
        format!(
            "process qemu-system-x86_64 (pid {pid}) in cgroup '{cgroup}': cannot follow it as a \
                VM: seen no KVM among its open files, and {uid}, allowed KVM, or root outside of \
                containers, or a [[vm]] entry with its cgroup; it runs as a host task; to follow \
                it, start it with -accel kvm, or write [[vm]] cgroup = '{cgroup}'"
        )
    };
    assert_eq!(said.len(), 6);
    assert_eq!(said[0], told("uid 107", 30, "/a/user"));
    assert_eq!(said[3], told("root in a container", 60, "/a/container"));
    // The settings file makes it one, by its cgroup and by no name.
    assert_eq!(followed(&t, "[[vm]]\nname = \"vm30\"\n"), ["vm10", "vm20"]);
    assert_eq!(followed(&t, "[[vm]]\nname = \"*\"\n"), ["vm10", "vm20"]);
    assert_eq!(followed(&t, "[[vm]]\ncgroup = \"/a/user\"\n"), ["vm10", "vm20", "vm30"]);
    let both = "[[vm]]\ncgroup = \"/a\"\nname = \"*40\"\n";
    assert_eq!(followed(&t, both), ["vm10", "vm20", "vm40"]);
}

#[test]
fn a_vm_does_not_lose_its_kvm_and_one_that_is_refused_is_asked_again() {
    let t = MadeUp::new("eligible-again");
    vm_of(&t, 10, "/vm", 107, false);
    let mut finder = Finder::default();
    let mut count = |t: &MadeUp| scan(t, &mut finder, "").len();
    assert_eq!([count(&t), count(&t)], [0, 0]);
    t.open(10, 9, "anon_inode:kvm-vm");
    assert_eq!(count(&t), 1, "a new process is looked at with every scan");
    t.open(10, 9, "anon_inode:[eventfd]");
    assert_eq!([0; 6].map(|_| count(&t)), [1; 6], "its files are not read again");
    // Another process of that number has none.
    let stat = std::fs::read_to_string(t.path("proc/10/stat")).unwrap();
    t.put("proc/10/stat", stat.replace(" 777 ", " 778 ").as_bytes());
    assert_eq!(count(&t), 0);
}

#[test]
fn an_old_one_that_is_refused_is_looked_at_now_and_then_and_forgotten_when_it_ends() {
    let t = MadeUp::new("eligible-old");
    vm_of(&t, 10, "/vm", 107, false);
    let mut finder = Finder::default();
    for _ in 0..10 {
        assert_eq!(scan(&t, &mut finder, "").len(), 0);
        assert_eq!((finder.refused().len(), finder.refuses(10)), (1, true));
    }
    t.open(10, 9, "anon_inode:kvm-vcpu:0");
    let found: Vec<usize> = (0..8).map(|_| scan(&t, &mut finder, "").len()).collect();
    let first = found.iter().position(|n| *n == 1).expect("found");
    assert!((1..4).contains(&first), "not with every scan, and within 2 s: {found:?}");
    assert_eq!((finder.refused().len(), finder.refuses(10)), (0, false));
    for pid in [20, 30] {
        vm_of(&t, pid, "/vm2", 107, false);
    }
    scan(&t, &mut finder, "");
    assert!(finder.refuses(20) && finder.refuses(30));
    std::fs::remove_dir_all(t.path("proc/20")).unwrap();
    std::fs::remove_file(t.path("proc/30/exe")).unwrap();
    std::os::unix::fs::symlink("/usr/bin/bash", t.path("proc/30/exe")).unwrap();
    scan(&t, &mut finder, "");
    assert!(!finder.refuses(20) && !finder.refuses(30), "one has ended, one runs a shell");
}

#[test]
fn a_vm_that_is_trusted_no_more_is_refused_with_the_next_scan() {
    let t = MadeUp::new("eligible-lost");
    vm_of(&t, 10, "/vm", 107, true);
    t.owner("/vm", 107);
    let mut finder = Finder::default();
    assert_eq!(scan(&t, &mut finder, "[trust]\nusers = [107]\n").len(), 1);
    assert_eq!((scan(&t, &mut finder, "").len(), finder.refuses(10)), (0, true));
}

#[test]
fn many_that_are_refused_are_named_as_far_as_one_can_read() {
    let t = MadeUp::new("eligible-many");
    (1..=40).for_each(|pid| vm_of(&t, pid, "/vm", 107, false));
    let (_, said) = seen(&t, "");
    assert_eq!(said.len(), NAMED_MAX + 1);
    let more = said.iter().filter(|s| s.starts_with("processes: cannot follow more than 16"));
    assert_eq!(more.count(), 1);
    std::fs::remove_dir_all(t.path("proc/40")).unwrap();
    assert_eq!(seen(&t, "").1, said, "it is said once, however many there are");
}

#[test]
fn what_a_process_calls_itself_does_not_mark_the_terminal() {
    let t = MadeUp::new("eligible-shown");
    let cgroup = "/a\u{1b}[2J";
    let exe = "/tmp/qemu-system-\u{1b}[31m\n";
    t.process(10, exe, b"q\0", cgroup, &[]);
    t.user(10, [107, 107]);
    let said = &seen(&t, "").1[0];
    assert!(!said.contains(char::is_control), "{said:?}");
    assert!(said.starts_with("process qemu-system-?[31m? (pid 10) in cgroup '/a?[2J': "), "{said}");
}

#[test]
fn views_have_all_that_look_like_vms() {
    let t = MadeUp::new("eligible-all");
    vm_of(&t, 10, "/vm", 107, false);
    t.owner("/vm", 107);
    let mut finder = Finder::default();
    assert_eq!(finder.scan(&t.roots(), Which::All).len(), 1);
    assert_eq!(finder.refused().len(), 0);
}

#[test]
fn settings_by_name_apply_where_a_trusted_user_or_the_cgroup_gives_the_name() {
    let t = MadeUp::new("eligible-named");
    let libvirt =
        |n: u32, name: &str| format!("/machine.slice/machine-qemu\\x2d{n}\\x2d{name}.scope");
    let mut expected = vec![];
    let mut case = |pid: i32, name: &str, cgroup: &str, uid: u32, named: bool| {
        t.vm(pid, name, cgroup, 1);
        t.user(pid, [uid, uid]);
        t.open(pid, 9, "anon_inode:kvm-vm");
        expected.push((pid, Some(uid), named));
    };
    case(10, "web", "/user.slice/session-3.scope", 0, true);
    case(20, "web", "/user.slice/session-3.scope", 1000, true);
    case(30, "web", "/user.slice/session-3.scope", 1001, false);
    case(40, "web", &format!("{}/libvirt/emulator", libvirt(3, "web")), 64_055, true);
    case(50, "db", &libvirt(4, "web"), 64_055, false);
    case(60, "my_web 1.a", &libvirt(5, "myweb1.a"), 64_055, true);
    case(70, "my-web", &libvirt(6, "my\\x2dweb"), 64_055, true);
    case(80, "web", "/system.slice/web.service", 107, true);
    case(90, "web", "/vms/web", 107, true);
    case(100, "ä", "/", 107, false);
    case(110, "web", "/docker/1", 0, false);
    t.namespace(110, "pid", Some("4026539999"));
    let found = scan(&t, &mut Finder::default(), "[trust]\nusers = [1000]\n");
    let seen: Vec<_> = found.iter().map(|vm| (vm.pid, vm.uid, vm.named)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn what_a_vm_has_started_is_no_vm_until_that_one_is_gone() {
    let t = MadeUp::new("eligible-started");
    vm_of(&t, 10, "/vm10.scope", 0, true);
    vm_of(&t, 20, "/vm10.scope", 0, true);
    let mut finder = Finder::default();
    let found = scan(&t, &mut finder, "");
    assert_eq!(found.len(), 2);
    finder.is_of_a_vm(&found[1]);
    assert_eq!(scan(&t, &mut finder, "").len(), 1);
    let said: Vec<String> = finder.refused().into_iter().collect();
    assert_eq!(
        said,
        ["process qemu-system-x86_64 (pid 20) in cgroup '/vm10.scope': cannot follow it as a VM: \
            seen a process that another VM has started, allowed one that the host has; it is a \
            helper of that VM; start it outside of the VM's process"]
    );
    finder.outlives_its_vm(20);
    assert_eq!(scan(&t, &mut finder, "").len(), 2);
    assert!(finder.refused().is_empty());
}
