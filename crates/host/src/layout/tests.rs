//! What a layout comes to, on made-up hosts: precedence, pools, what does not fit. Nothing here is
//! of this machine.

use super::*;
use crate::{Trust, Which, discover::Finder, made_up::MadeUp};

fn settings(text: &str) -> LiveSettings {
    LiveSettings::parse("t.toml", text).unwrap_or_else(|e| panic!("{e}"))
}

fn laid(t: &MadeUp, settings: &LiveSettings) -> Layout {
    let trust = Trust::of(settings, &t.roots()).unwrap();
    let found = Finder::default().scan(&t.roots(), Which::Trusted(&trust, settings));
    let cgroups = Cgroups::read(&t.roots(), &found, settings, &trust);
    let speed = Speed::of(&t.roots(), settings.host.mhz);
    layout(&found, &cgroups, &Known { settings, speed, pcpus: 8, system_shares: 8000 }).unwrap()
}

fn pools(l: &Layout) -> Vec<(&str, &str, u32)> {
    l.names.pools.iter().map(|p| (p.path.as_str(), p.parent.as_str(), p.shares)).collect()
}

fn troubles(l: &Layout) -> Vec<&str> {
    l.troubles.iter().map(String::as_str).collect()
}

#[test]
fn slices_above_vms_are_pools_and_others_are_not() {
    let t = MadeUp::new("slices");
    t.vm(10, "web", "/machine.slice/prod.slice/web.scope", 2);
    t.vm(20, "db", "/machine.slice/db.scope", 4);
    t.vm(30, "shell", "/", 1);
    t.cgroup("/machine.slice", "cpu.weight", "400\n");
    t.cgroup("/machine.slice/prod.slice", "cpu.max", "150000 100000\n");
    t.cgroup("/machine.slice/db.scope", "cpu.weight", "250\n");
    t.cgroup("/system.slice", "cpu.weight", "900\n");
    let seen = laid(&t, &LiveSettings::default());
    assert_eq!(
        pools(&seen),
        [
            ("/", "/", 4000),
            ("/machine.slice", "/", 4000),
            ("/machine.slice/prod.slice", "/machine.slice", 1000)
        ]
    );
    let prod = &seen.names.pools[2];
    assert_eq!(
        (prod.limit, prod.expandable, prod.scalable),
        (Some(Rate(Rate::ONE.0 * 3 / 2)), true, false)
    );
    let vms: Vec<_> = seen
        .names
        .vms
        .iter()
        .map(|v| (v.name.as_str(), v.pool.as_str(), v.shares, v.vcpus))
        .collect();
    assert_eq!(
        vms,
        [
            ("web", "/machine.slice/prod.slice", 1000, 2),
            ("db", "/machine.slice", 2500, 4),
            ("shell", "/", 1000, 1)
        ]
    );
    assert_eq!(troubles(&seen), [""; 0]);
    // The system group is a leaf of the root; the tree is that of the simulator.
    let tree = seen.names.tree();
    assert_eq!(
        tree.leaves().iter().map(|l| (l.pool, l.shares, l.vcpus)).collect::<Vec<_>>(),
        [(0, 8000, 8), (2, 1000, 2), (1, 2500, 4), (0, 1000, 1)]
    );
    assert_eq!(
        seen.names.paths().leaves,
        ["/system", "/machine.slice/prod.slice/web", "/machine.slice/db", "/shell"]
    );
}

#[test]
fn the_file_counts_before_attributes_and_they_before_the_cgroup() {
    let t = MadeUp::new("precedence");
    t.vm(10, "web", "/gold/web", 2);
    t.cgroup("/gold/web", "cpu.weight", "30\n");
    t.cgroup("/gold/web", "cpu.max", "80000 100000\n");
    t.cgroup("/gold/web", "cpu.max.burst", "7000\n");
    t.cgroup("/gold", "cpu.weight", "200\n");
    let all = |l: &Layout| {
        let v = &l.names.vms[0];
        (v.shares, v.reservation.percent(), v.limit.map(Rate::percent), v.burst_ns)
    };
    let none = LiveSettings::default();
    let seen = laid(&t, &none);
    assert_eq!(all(&seen), (300, "0 %".into(), Some("80 %".into()), 7_000_000));
    assert_eq!(
        seen.names.vms[0].sources,
        Sources::from(
            [("burst", "cpu.max"), ("limit", "cpu.max"), ("shares", "cpu.weight")].map(owned)
        )
    );
    t.attribute("/gold/web", "user.tandem.shares", "high");
    t.attribute("/gold/web", "user.tandem.reservation", "50%");
    t.attribute("/gold", "user.tandem.expandable", "false");
    let seen = laid(&t, &none);
    assert_eq!(all(&seen), (4000, "50 %".into(), Some("80 %".into()), 7_000_000));
    assert_eq!((seen.names.pools[1].shares, seen.names.pools[1].expandable), (2000, false));
    let file = settings(
        "[[vm]]\nname = \"w*\"\nshares = 77\nlimit = \"unlimited\"\n[[pool]]\nname = \
            \"/gold\"\nreservation = \"100%\"\n",
    );
    let seen = laid(&t, &file);
    assert_eq!(all(&seen), (77, "50 %".into(), None, 0));
    let gold = &seen.names.pools[1];
    assert_eq!((gold.shares, gold.reservation, gold.expandable), (2000, Rate::ONE, false));
    let from = [("limit", "file"), ("reservation", "attribute"), ("shares", "file")].map(owned);
    assert_eq!(seen.names.vms[0].sources, Sources::from(from));
    assert_eq!(
        gold.sources,
        Sources::from(
            [("expandable", "attribute"), ("reservation", "file"), ("shares", "cpu.weight")]
                .map(owned)
        )
    );
    assert_eq!(troubles(&seen), [""; 0]);
}

fn owned((a, b): (&str, &str)) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

#[test]
fn pools_of_the_file_hold_vms_and_cgroups_hold_pools_of_the_file() {
    let t = MadeUp::new("own-pools");
    t.vm(10, "web1", "/machine.slice/web1.scope", 1);
    t.vm(20, "web2", "/machine.slice/web2.scope", 1);
    t.vm(30, "db", "/db", 1);
    t.cgroup("/machine.slice", "cpu.weight", "100\n");
    let text = "[[pool]]\nname = \"front\"\nparent = \"gold\"\nshares = 100\n[[pool]]\nname = \
        \"gold\"\nparent = \"/machine.slice\"\nlimit = \"200%\"\n\
                [[vm]]\nname = \"web1\"\npool = \"front\"\n[[vm]]\nname = \"db\"\npool = \
                \"/machine.slice\"\n[[vm]]\nname = \"web2\"\npool = \"/\"\n";
    let seen = laid(&t, &settings(text));
    assert_eq!(
        pools(&seen),
        [
            ("/", "/", 4000),
            ("/machine.slice", "/", 1000),
            ("/machine.slice/gold", "/machine.slice", 4000),
            ("/machine.slice/gold/front", "/machine.slice/gold", 100)
        ]
    );
    assert_eq!(
        seen.names.vms.iter().map(|v| v.pool.as_str()).collect::<Vec<_>>(),
        ["/machine.slice/gold/front", "/", "/machine.slice"]
    );
}

#[test]
fn a_cgroup_that_the_file_names_and_nobody_has_is_an_empty_pool_and_told() {
    let t = MadeUp::new("no-cgroup");
    let seen = laid(&t, &settings("[[pool]]\nname = \"/qemu.slice/x\"\nreservation = \"100%\"\n"));
    assert_eq!(
        pools(&seen),
        [("/", "/", 4000), ("/qemu.slice", "/", 1000), ("/qemu.slice/x", "/qemu.slice", 1000)]
    );
    assert_eq!(
        troubles(&seen),
        ["settings: cannot find the cgroup '/qemu.slice/x': seen none; it is a pool without VMs \
                until there is"]
    );
}

#[test]
fn a_cgroup_that_a_vm_entry_names_and_that_is_not_there_is_reported() {
    let t = MadeUp::new("no-cgroup-of-vm");
    t.vm(10, "web", "/m/machine-qemu\\x2d1\\x2dweb.scope", 1);
    t.cgroup("/m/machine-qemu\\x2d1\\x2dweb.scope", "cpu.weight", "100\n");
    let entry = |path: &str| settings(&format!("[[vm]]\ncgroup = {path}\nshares = 7\n"));
    let seen = laid(&t, &entry(r"'/m/machine-qemu\x2d1\x2dweb.scope'"));
    assert_eq!((seen.names.vms[0].shares, troubles(&seen)), (7, vec![]));
    let seen = laid(&t, &entry("'/m'"));
    assert_eq!((seen.names.vms[0].shares, troubles(&seen)), (7, vec![]));
    let none = "settings: cannot find the cgroup '/batch': seen none; no VM matches it until \
        there is";
    assert_eq!(troubles(&laid(&t, &entry("'/batch'"))), [none]);
    // In double quotes the path has lost what systemd has written in it.
    let seen = laid(&t, &entry(r#""/m/machine-qemu\x2d1\x2dweb.scope""#));
    let hint = "settings: cannot find the cgroup '/m/machine-qemu-1-web.scope': seen none; no VM \
        matches it until there is; if it has \\x2d or the like in its name, write it in single \
        quotes, for TOML reads that in double quotes as another character";
    assert_eq!((seen.names.vms[0].shares, troubles(&seen)), (1000, vec![hint]));
    let pool = r#"[[pool]]
name = "/m/a\x2db.slice"
"#;
    assert!(troubles(&laid(&t, &settings(pool)))[0].ends_with("as another character"));
}

#[test]
fn what_does_not_hold_together_is_told_and_the_rest_is_in_force() {
    let t = MadeUp::new("misfit");
    t.vm(10, "web", "/web", 1);
    t.cgroup("/web", "cpu.weight", "50\n");
    t.cgroup("/web", "cpu.max", "30000 100000\n");
    t.attribute("/web", "user.tandem.reservation", "60%");
    let seen = laid(&t, &LiveSettings::default());
    let web = &seen.names.vms[0];
    assert_eq!(
        (web.shares, web.reservation, web.limit.map(Rate::percent)),
        (500, Rate(0), Some("30 %".into()))
    );
    assert_eq!(
        troubles(&seen),
        ["VM 'web': limit: seen 30 % in the cgroup's cpu.max, allowed its reservation of 60 % \
                or more; raise the limit, or lower the \
          reservation; until then it is left without a reservation"]
    );
    assert_eq!(web.sources.get("reservation"), None);
    // Attributes that cannot be read count for nothing, all of them.
    t.attribute("/web", "user.tandem.shares", "much");
    let seen = laid(&t, &LiveSettings::default());
    assert_eq!((seen.names.vms[0].shares, seen.names.vms[0].reservation), (500, Rate(0)));
    let told = "cgroup '/web': user.tandem.shares: shares: seen 'much', allowed low, normal, high \
        or 1..262144; none of its attributes counts";
    assert_eq!(troubles(&seen), [told]);
    fs_remove(&t, "/web");
    t.cgroup("/web", "cpu.max", "1000 1000000\n");
    let seen = laid(&t, &LiveSettings::default());
    assert_eq!(seen.names.vms[0].limit.map(Rate::percent), Some("1 %".into()));
    assert_eq!(
        troubles(&seen),
        ["VM 'web': limit: seen 0.1 % in the cgroup's cpu.max, allowed 1 % or more; it counts \
                as 1 %"]
    );
    // A limit that is too low on this host counts as the lowest.
    let file = settings("[host]\nmhz = 5000\n[[vm]]\nname = \"web\"\nlimit = \"60%\"\n");
    let slow = settings("[[vm]]\nname = \"web\"\nlimit = \"20MHz\"\n");
    t.put("sys/devices/system/cpu/cpu0/cpufreq/base_frequency", b"5000000\n");
    assert_eq!(laid(&t, &file).names.vms[0].limit.map(Rate::percent), Some("60 %".into()));
    let seen = laid(&t, &slow);
    assert_eq!(seen.names.vms[0].limit.map(Rate::percent), Some("1 %".into()));
    let reason = "VM 'web': limit: seen 20MHz (0.4 % of a pCPU), allowed 1 % of a pCPU or more";
    assert!(
        troubles(&seen)[0].starts_with(reason) && troubles(&seen).len() == 1,
        "{:?}",
        troubles(&seen)
    );
}

#[test]
fn of_attributes_that_contradict_each_other_the_reservation_alone_is_ignored() {
    let t = MadeUp::new("contradiction");
    t.vm(10, "web", "/web", 2);
    t.attribute("/web", "user.tandem.shares", "77");
    t.attribute("/web", "user.tandem.limit", "50%");
    let all = |l: &Layout| {
        let web = &l.names.vms[0];
        (web.shares, web.reservation, web.limit.map(Rate::percent))
    };
    let next = "until then it is left without a reservation";
    for reservation in ["80%", "250%"] {
        t.attribute("/web", "user.tandem.reservation", reservation);
        let seen = laid(&t, &LiveSettings::default());
        assert_eq!(all(&seen), (77, Rate(0), Some("50 %".to_owned())), "{reservation}");
        let troubles = troubles(&seen);
        assert!(troubles.iter().all(|t| t.starts_with("VM 'web': ") && t.ends_with(next)));
        assert_eq!(troubles.len(), 1 + usize::from(reservation == "250%"), "{troubles:?}");
        assert_eq!(seen.names.vms[0].sources.get("reservation"), None);
    }
    // The file's limit may go with the attribute's reservation.
    t.attribute("/web", "user.tandem.reservation", "80%");
    let seen = laid(&t, &settings("[[vm]]\nname = \"web\"\nlimit = \"100%\"\n"));
    assert_eq!(all(&seen).2, Some("100 %".to_owned()));
    assert_eq!((all(&seen).1.percent(), troubles(&seen)), ("80 %".to_owned(), vec![]));
}

fn fs_remove(t: &MadeUp, cgroup: &str) {
    std::fs::remove_dir_all(t.path(&format!("cgroup{cgroup}"))).unwrap();
}

#[test]
fn a_speed_that_nobody_tells_is_told_when_it_decides_something() {
    let t = MadeUp::new("assumed");
    t.vm(10, "web", "/web", 2);
    assert_eq!(troubles(&laid(&t, &LiveSettings::default())), [""; 0]);
    t.attribute("/web", "user.tandem.reservation", "1GHz");
    let seen = laid(&t, &LiveSettings::default());
    assert_eq!((seen.names.vms[0].reservation, seen.names.mhz), (Rate(Rate::ONE.0 / 2), 2000));
    let told = "host: cannot find the speed of a pCPU: seen none in cpufreq and /proc/cpuinfo, \
        2000 MHz assumed; write [host] mhz";
    assert_eq!(troubles(&seen), [told]);
    assert_eq!(troubles(&laid(&t, &settings("[host]\nmhz = 2500\n"))), [""; 0]);
}

/// A tenant has `/t/d`. The settings file puts two VMs of root into cgroups that he made there;
/// others are beside it.
fn tenant(name: &str) -> (MadeUp, String) {
    let t = MadeUp::new(name);
    t.vm(10, "moved", "/vms/moved", 8);
    t.vm(20, "own", "/t/own", 8);
    t.vm(30, "other", "/other", 8);
    t.vm(40, "two", "/vms/two", 8);
    for path in ["/t", "/t/d", "/t/d/in", "/t/d/in/deep", "/t/d/two"] {
        t.cgroup(path, "cpu.weight", "100\n");
    }
    ["/t/d", "/t/d/in", "/t/d/in/deep", "/t/d/two"].iter().for_each(|path| t.owner(path, 1000));
    let entry = |vm: &str, pool: &str| format!("[[vm]]\nname = \"{vm}\"\npool = \"{pool}\"\n");
    (t, entry("moved", "/t/d/in/deep") + &entry("two", "/t/d/two"))
}

/// What the VMs below `/t/d` get together if all want all that they can use, and what each other
/// one does.
fn worst(l: &Layout) -> (u64, u64, u64) {
    let leaves = &l.names.tree().worst_case().leaves;
    (leaves[1] + leaves[4], leaves[2], leaves[3])
}

#[test]
fn what_a_tenant_writes_below_his_cgroup_divides_only_what_that_has() {
    let (t, text) = tenant("tenant");
    let file = settings(&text);
    let first = |l: &Layout| l.names.tree().worst_case().leaves[1];
    let (before, even) = (worst(&laid(&t, &file)), first(&laid(&t, &file)));
    t.cgroup("/t/d/in", "cpu.weight", "1\n");
    assert!(first(&laid(&t, &file)) < even / 10, "it divides what is in it");
    assert_eq!(worst(&laid(&t, &file)), before);
    t.cgroup("/t/d/in", "cpu.weight", "10000\n");
    t.cgroup("/t/d/in/deep", "cpu.weight", "10000\n");
    assert!(first(&laid(&t, &file)) > even);
    assert_eq!(worst(&laid(&t, &file)), before);
    for path in ["/t/d", "/t/d/in", "/t/d/in/deep"] {
        t.attribute(path, "user.tandem.shares", "262144");
        t.attribute(path, "user.tandem.reservation", "400%");
        t.attribute(path, "user.tandem.scalable", "true");
    }
    let seen = laid(&t, &file);
    assert_eq!(worst(&seen), before);
    let of_tenant = |p: &&PoolName| p.path.starts_with("/t/d");
    let pools: Vec<_> = seen.names.pools.iter().filter(of_tenant).collect();
    assert!(pools.iter().all(|p| p.reservation == Rate(0) && !p.scalable));
    let shares: Vec<_> = pools.iter().map(|p| (p.path.as_str(), p.shares)).collect();
    assert_eq!(
        shares,
        [("/t/d", 1000), ("/t/d/in", 100_000), ("/t/d/in/deep", 100_000), ("/t/d/two", 1000)]
    );
    assert_eq!(troubles(&seen).len(), 3);
    // The same of a trusted user counts: that is what the trust is for.
    let trusted = laid(&t, &settings(&format!("{text}[trust]\nusers = [1000]\n")));
    assert!(worst(&trusted).0 > before.0);
    // A limit of his own makes it less, and gives what is left to others.
    t.cgroup("/t/d/in", "cpu.max", "1000 100000\n");
    t.cgroup("/t/d/two", "cpu.max", "1000 100000\n");
    let less = worst(&laid(&t, &file));
    assert!(less.0 < before.0 && less.1 > before.1 && less.2 >= before.2, "{less:?}");
}

#[test]
fn a_pool_of_a_tenant_is_not_scalable_and_that_is_told() {
    let (t, text) = tenant("tenant-scalable");
    let before = worst(&laid(&t, &settings(&text)));
    // Of root's pool he cannot make more either: his own one counts there with root's weight.
    let all = "[[pool]]\nname = \"/t/d\"\nscalable = true\n[[pool]]\nname = \
        \"/t/d/in\"\nscalable = true\n";
    t.cgroup("/t/d/in", "cpu.weight", "10000\n");
    t.cgroup("/t/d/in/deep", "cpu.weight", "10000\n");
    let seen = laid(&t, &settings(&format!("{text}{all}")));
    assert_eq!(worst(&seen), before);
    assert_eq!(
        troubles(&seen)[0],
        "pool '/t/d': cannot be scalable: seen uid 1000 as owner of '/t/d', allowed root or a \
            user of [trust] users; it keeps its own shares; add 1000 to [trust] users, or leave \
            scalable out"
    );
    assert_eq!((troubles(&seen).len(), seen.names.pools[2].sources.get("scalable")), (2, None));
    let root = "[[pool]]\nname = \"/t\"\nscalable = true\n";
    let weigh = |weight: &str| {
        t.cgroup("/t/d/in", "cpu.weight", weight);
        worst(&laid(&t, &settings(&format!("{text}{root}"))))
    };
    assert_eq!(weigh("1\n"), weigh("10000\n"));
}

#[test]
fn a_tenants_vms_are_in_no_layout_and_neither_are_his_cgroups() {
    let (t, _) = tenant("tenant-vm");
    t.vm(50, "his", "/t/d/in/his", 64);
    t.user(50, [1000, 1000]);
    t.open(50, 9, "anon_inode:kvm-vm");
    let seen = laid(&t, &LiveSettings::default());
    assert_eq!(
        seen.names.vms.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(),
        ["moved", "own", "other", "two"]
    );
    assert_eq!(
        seen.names.pools.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(),
        ["/", "/vms", "/t"]
    );
}

#[test]
fn settings_by_name_do_not_apply_to_a_process_that_gave_itself_the_name() {
    let t = MadeUp::new("self-named");
    t.vm(10, "prod", "/user.slice/session-3.scope", 2);
    t.user(10, [1000, 1000]);
    t.open(10, 9, "anon_inode:kvm-vm");
    let text = "[[vm]]\nname = \"prod\"\nreservation = \"100%\"\npool = \"/\"\n[[vm]]\nname = \
        \"*\"\nlimit = \"150%\"\n";
    let all = |l: &Layout| {
        let vm = &l.names.vms[0];
        (vm.reservation, vm.limit.map(Rate::percent), vm.pool.clone())
    };
    let seen = laid(&t, &settings(text));
    assert_eq!(all(&seen), (Rate(0), Some("150 %".to_owned()), "/user.slice".to_owned()));
    assert_eq!(
        troubles(&seen),
        ["VM 'prod' (pid 10): cannot apply [[vm]] 'prod' to it: seen a process of uid 1000 that \
            named itself so, allowed root or a user of [trust] users as its user, or a cgroup of \
            that name; add 1000 to [trust] users, or match it by cgroup = \
            '/user.slice/session-3.scope'"]
    );
    let trusted = laid(&t, &settings(&format!("{text}[trust]\nusers = [1000]\n")));
    assert_eq!(all(&trusted), (Rate::ONE, None, "/".to_owned()));
    let by_cgroup = "[[vm]]\ncgroup = \"/user.slice/session-3.scope\"\nreservation = \"50%\"\n";
    let seen = laid(&t, &settings(by_cgroup));
    assert_eq!((all(&seen).0, troubles(&seen).len()), (Rate(Rate::ONE.0 / 2), 0));
    // An entry that is for all says nothing of names.
    assert_eq!(troubles(&laid(&t, &settings("[[vm]]\nname = \"*\"\n"))).len(), 0);
    t.user(10, [0, 0]);
    t.namespace(10, "pid", None);
    let told = laid(&t, &settings(text));
    assert!(troubles(&told)[0].contains("seen a process of root in a container that named itself"));
}

#[test]
fn cgroups_that_are_too_deep_or_in_the_way_are_no_pools_and_their_vms_go_to_the_nearest() {
    let t = MadeUp::new("deep");
    let deep: String = (1..=18).map(|n| format!("/{n}")).collect();
    t.vm(10, "deep", &format!("{deep}/vm"), 1);
    t.vm(20, "clash", "/a/gold/clash", 1);
    let seen = laid(&t, &settings("[[pool]]\nname = \"gold\"\nparent = \"/a\"\n"));
    assert_eq!(seen.names.pools.len(), 1 + 16 + 2);
    assert_eq!(seen.names.vms[0].pool, (1..=16).map(|n| format!("/{n}")).collect::<String>());
    assert_eq!(seen.names.vms[1].pool, "/a");
    let told = troubles(&seen);
    assert!(told[0].starts_with(
        "cgroup '/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17': cannot be a pool: seen 17 levels \
                below the root, allowed 16; "
    ));
    assert_eq!(
        told[1],
        "cgroup '/a/gold': cannot be a pool: seen the pool 'gold' of the settings file at that \
            path, allowed one; give that another name; \
         VMs in it are in /a"
    );
}

#[test]
fn more_pools_than_there_may_be_are_told_once_and_nothing_breaks() {
    let vm = |n: i32| FoundVm {
        pid: n,
        started: 1,
        name: format!("v{n}"),
        cgroup: format!("/s/p{n}/v"),
        threads: vec![],
        uid: None,
        named: true,
    };
    let found: Vec<FoundVm> = (1..1100).map(vm).collect();
    let (settings, speed) = (LiveSettings::default(), Speed { mhz: 1000, from: SpeedSource::File });
    let known = Known { settings: &settings, speed, pcpus: 4, system_shares: 4000 };
    let seen = layout(&found, &Cgroups::default(), &known).unwrap();
    assert_eq!(seen.names.pools.len(), POOLS_MAX);
    assert_eq!(
        (seen.names.vms[1021].pool.as_str(), seen.names.vms[1022].pool.as_str()),
        ("/s/p1022", "/s")
    );
    let told = "pools: cannot hold 77 cgroups more, '/s/p1023' first: allowed 1024; VMs in them \
        are in the pool above";
    assert_eq!(troubles(&seen), [told]);
    assert_eq!(seen.names.tree().leaves().len(), 1100);
}
