//! What is read of cgroups: of libvirt's, strangers', shared ones, those that are not there.

use super::*;
use crate::{Which, discover::Finder, made_up::MadeUp};

fn read_by(t: &MadeUp, settings: &LiveSettings) -> (Vec<FoundVm>, Cgroups) {
    let trust = Trust::of(settings, &t.roots()).unwrap();
    let found = Finder::default().scan(&t.roots(), Which::All);
    let cgroups = Cgroups::read(&t.roots(), &found, settings, &trust);
    (found, cgroups)
}

fn read(t: &MadeUp) -> (Vec<FoundVm>, Cgroups) {
    read_by(t, &LiveSettings::default())
}

#[test]
fn a_chain_leads_from_the_root_down() {
    assert_eq!(chain("/a/b.slice/c"), ["/a", "/a/b.slice", "/a/b.slice/c"]);
    assert_eq!((chain("/a"), chain("/"), chain("")), (vec!["/a"], vec![], vec![]));
}

#[test]
fn libvirts_weight_and_quotas_are_found_below_the_scope_and_the_lowest_counts() {
    let t = MadeUp::new("libvirt");
    let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope";
    t.vm(10, "web", &format!("{scope}/libvirt/emulator"), 2);
    t.cgroup(scope, "cpu.weight", "100\n");
    t.cgroup(scope, "cpu.max", "max 100000\n");
    t.cgroup(scope, "libvirt/cpu.weight", "700\n");
    t.cgroup(scope, "libvirt/cpu.max", "200000 100000\n");
    t.cgroup(scope, "libvirt/cpu.max.burst", "5000\n");
    t.cgroup("/machine.slice", "cpu.weight", "300\n");
    let quota = |t: &MadeUp| read(t).1.vms[&10].quota.clone().map(|q| (q.rate, q.burst_ns, q.from));
    let (_, seen) = read(&t);
    assert_eq!((seen.vms[&10].weight, seen.pools["/machine.slice"].weight), (Some(700), Some(300)));
    assert_eq!(quota(&t), Some((Rate::pcpus(2), 5_000_000, "libvirt/cpu.max")));
    // One vCPU alone says nothing of the VM; both do.
    t.cgroup(scope, "libvirt/vcpu0/cpu.max", "25000 100000\n");
    t.cgroup(scope, "libvirt/vcpu1/cpu.max", "max 100000\n");
    assert_eq!(quota(&t).unwrap().0, Rate::pcpus(2));
    let one = format!(
        "cgroup '{scope}': libvirt/vcpuN/cpu.max: cannot use it: seen quotas of 1 of 2 vCPUs, \
            allowed of all; they count as none; give each one, or the VM a limit"
    );
    assert_eq!(read(&t).1.vms[&10].troubles, [one]);
    t.cgroup(scope, "libvirt/vcpu1/cpu.max", "50000 100000\n");
    t.cgroup(scope, "libvirt/vcpu1/cpu.max.burst", "1000\n");
    assert_eq!(quota(&t), Some((Rate(Rate::ONE.0 * 3 / 4), 1_000_000, "libvirt/vcpuN/cpu.max")));
    t.cgroup(scope, "cpu.max", "10000 100000\n");
    assert_eq!(quota(&t), Some((Rate(104_858), 0, "cpu.max")));
    assert_eq!(read(&t).1.vms[&10].troubles, Vec::<String>::new());
}

#[test]
fn without_systemd_quotas_of_vcpus_are_right_below_libvirts_cgroup() {
    let t = MadeUp::new("libvirt-alone");
    let own = "/machine/qemu-1-web.libvirt-qemu";
    t.vm(10, "web", &format!("{own}/emulator"), 2);
    t.cgroup(own, "cpu.weight", "700\n");
    t.cgroup(own, "vcpu0/cpu.max", "25000 100000\n");
    t.cgroup(own, "vcpu1/cpu.max", "25000 100000\n");
    let (found, seen) = read(&t);
    let web = &seen.vms[&10];
    assert_eq!((found[0].cgroup.as_str(), web.weight), (own, Some(700)));
    let quota = web.quota.clone().map(|q| (q.rate, q.from));
    assert_eq!(quota, Some((Rate(Rate::ONE.0 / 2), "vcpuN/cpu.max")));
    assert_eq!(seen.pools.keys().collect::<Vec<_>>(), ["/machine"]);
}

#[test]
fn what_cannot_be_read_is_told_with_what_counts_in_its_place() {
    let t = MadeUp::new("unreadable");
    t.vm(10, "web", "/a/web", 1);
    t.cgroup("/a", "cpu.weight", "many\n");
    t.cgroup("/a", "cpu.max", "50000\n");
    t.put("cgroup/a/web/cpu.weight", &[0xff, 0xfe]);
    fs::create_dir_all(t.path("cgroup/a/web/cpu.max")).unwrap();
    let (_, seen) = read(&t);
    assert_eq!(
        seen.pools["/a"].troubles,
        [
            "cgroup '/a': cpu.weight: cannot use it: seen 'many', allowed 1..10000; it counts \
                as 100",
            "cgroup '/a': cpu.max: seen '50000', allowed QUOTA PERIOD in us as in '50000 \
                100000', or max PERIOD; it counts as unlimited",
        ]
    );
    let web = &seen.vms[&10];
    assert_eq!((web.weight, web.quota.as_ref(), web.present), (None, None, true));
    assert!(
        web.troubles[0].starts_with("cgroup '/a/web': cpu.weight: cannot read it: invalid utf-8"),
        "{}",
        web.troubles[0]
    );
    assert!(
        web.troubles[1].starts_with("cgroup '/a/web': cpu.max: cannot read it: Is a directory"),
        "{}",
        web.troubles[1]
    );
    assert_eq!(web.troubles.len(), 2);
}

#[test]
fn attributes_count_if_root_or_a_trusted_user_owns_the_cgroup_and_all_above_it() {
    let t = MadeUp::new("strangers");
    t.vm(10, "web", "/a/b/web", 1);
    t.cgroup("/a/b", "cpu.weight", "700\n");
    t.cgroup("/a/b/web", "cpu.max", "50000 100000\n");
    for path in ["/a", "/a/b", "/a/b/web"] {
        t.attribute(path, "user.tandem.reservation", "50%");
    }
    let counts = |users: &str| {
        let text = format!("[trust]\nusers = {users}\n");
        let (_, seen) = read_by(&t, &LiveSettings::parse("t.toml", &text).unwrap());
        let all = [&seen.pools["/a"], &seen.pools["/a/b"], &seen.vms[&10]];
        (all.map(|c| c.attributes.len()), all.map(|c| c.troubles.clone()))
    };
    assert_eq!(counts("[]"), ([1, 1, 1], [vec![], vec![], vec![]]));
    t.owner("/a/b", 1000);
    let trouble = |path: &str| {
        vec![format!(
            "cgroup '{path}': cannot use its attributes user.tandem.*: seen uid 1000 as owner \
                of '/a/b', allowed root or a user of [trust] users; none of them counts; add \
                1000 to [trust] users, or say it in the settings file"
        )]
    };
    let told = [vec![], trouble("/a/b"), trouble("/a/b/web")];
    assert_eq!(counts("[]"), ([1, 0, 0], told));
    assert_eq!(counts("[1000]").0, [1, 1, 1]);
    // What a delegate cannot write, or only within what the cgroup has, counts.
    let seen = read(&t).1;
    assert_eq!(seen.pools["/a/b"].weight, Some(700));
    assert_eq!(seen.vms[&10].quota.as_ref().map(|q| q.rate), Some(Rate(Rate::ONE.0 / 2)));
    // A cgroup that is not there is no stranger's, and one without attributes is not named.
    assert_eq!(seen.pools["/a"].stranger, None);
    let file = LiveSettings::parse("t.toml", "[[pool]]\nname = \"/gone\"\n").unwrap();
    assert_eq!(read_by(&t, &file).1.pools["/gone"], Cgroup::default());
    fs::remove_dir_all(t.path("cgroup/a/b/.attributes")).unwrap();
    assert!(read(&t).1.pools["/a/b"].troubles.is_empty());
}

#[test]
fn a_cgroup_that_several_vms_share_is_their_pool() {
    let t = MadeUp::new("shared");
    t.vm(10, "a", "/both", 1);
    t.vm(20, "b", "/both", 1);
    t.vm(30, "c", "/x/own", 1);
    t.vm(40, "d", "/", 1);
    let (found, seen) = read(&t);
    let alone = alone(&found);
    assert_eq!(
        found.iter().map(|vm| home(vm, &alone)).collect::<Vec<_>>(),
        ["/both", "/both", "/x", "/"]
    );
    assert_eq!(seen.vms.keys().collect::<Vec<_>>(), [&30]);
    assert_eq!(seen.pools.keys().collect::<Vec<_>>(), ["/both", "/x"]);
}

#[test]
fn cgroups_that_the_settings_file_names_are_read_with_all_above_them() {
    let t = MadeUp::new("named");
    t.cgroup("/m", "cpu.weight", "50\n");
    let text = "[[pool]]\nname = \"/m/n\"\n[[pool]]\nname = \"gold\"\nparent = \
        \"/k\"\n[[vm]]\nname = \"w\"\npool = \"/v/w\"\n";
    let settings = LiveSettings::parse("t.toml", text).unwrap();
    let seen = Cgroups::read(&t.roots(), &[], &settings, &Trust::default());
    assert_eq!(seen.pools.keys().collect::<Vec<_>>(), ["/k", "/m", "/m/n", "/v", "/v/w"]);
    assert_eq!(
        (seen.pools["/m"].present, seen.pools["/m/n"].present, seen.pools["/m"].weight),
        (true, false, Some(50))
    );
}

#[test]
fn extended_attributes_are_read_from_the_file_system_where_it_has_them() {
    let t = MadeUp::new("xattr");
    let folder = t.path("cgroup");
    if xattr::set(&folder, "user.tandem.shares", b"high").is_err() {
        return; // this machine's temporary folder has none: nothing can be read
    }
    xattr::set(&folder, "user.other", b"1").unwrap();
    assert_eq!(attributes(&folder).unwrap(), [("user.tandem.shares".to_owned(), b"high".to_vec())]);
    assert_eq!(attributes(&t.path("nothing-there")).unwrap(), []);
}
