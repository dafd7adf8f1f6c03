//! What a settings file may say, and every reason for which one is refused.

use super::*;
use crate::{Called, LIMIT_MIN, VmResources};
use units::Rate;

const WHOLE: &str = r#"
[host]
mhz = 2400

[[pool]]
name = "gold"
shares = "high"
reservation = "2.4GHz"
limit = "400%"
burst = "10ms"
scalable = true

[[pool]]
name = "web"
parent = "/machine.slice"
limit = -1

[[pool]]
name = "/machine.slice"
expandable = false
burst = "5ms"

[[vm]]
name = "web*"
shares = "high"
pool = "web"

[[vm]]
name = "*"
shares = 300
reservation = "1200MHz"
limit = "50%"
burst = "1ms"
pool = '/machine.slice/machine-qemu\x2d1.scope'

[knobs]
quantum_us = 20000
"#;

/// A file in which every entry is wrong.
const WRONG: &str = r#"
[host]
mhz = 50
[[pool]]
name = "gold"
limit = "300"
[[pool]]
name = "gold"
reservation = "2GHz"
limit = "1999MHz"
[[pool]]
name = "a"
parent = "b"
burst = "1ms"
[[pool]]
name = "b"
parent = "a"
shares = "some"
[[pool]]
name = "c.d"
parent = "machine.slice"
[[pool]]
name = "/x/../y"
parent = "gold"
[[pool]]
name = "/"
[[pool]]
name = "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"
[[pool]]
name = "deep"
parent = "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16"
limit = "0.5%"
[[vm]]
name = "x"
shares = 0
pool = "tin"
limit = -1
burst = "1ms"
[[vm]]
name = "x"
pool = "/sys/fs/cgroup/machine.slice"
[[vm]]
shares = 5
[[vm]]
cgroup = "/"
[[vm]]
cgroup = "machine.slice"
limit = "0.5%"
[[vm]]
cgroup = "/a/../b"
[[vm]]
name = "y"
cgroup = '/machine.slice/machine-qemu\x2d1.scope/libvirt'
[[vm]]
name = "x"
cgroup = "/b"
[[vm]]
cgroup = "/b"
[[vm]]
cgroup = "/b"
reservation = "1"
"#;

fn read(text: &str) -> LiveSettings {
    LiveSettings::parse("t.toml", text).unwrap_or_else(|e| panic!("{e}"))
}

fn called(name: &str) -> Called<'_> {
    Called { name, named: true, cgroup: "/" }
}

fn vm<'a>(settings: &'a LiveSettings, name: &str) -> &'a LiveVm {
    settings.vm(called(name)).expect(name)
}

fn reasons(text: &str) -> Vec<String> {
    LiveSettings::parse("t.toml", text).expect_err(text).reasons
}

#[test]
fn the_first_matching_pattern_counts() {
    let s =
        read("[[vm]]\nname = \"web*\"\nshares = \"high\"\n[[vm]]\nname = \"*\"\nshares = 300\n");
    let shares = |name: &str| vm(&s, name).attributes(2).shares;
    assert_eq!((shares("web1"), shares("db")), (Some(4000), Some(300)));
    assert_eq!((vm(&s, "web1").title(), vm(&s, "db").title()), ("web*", "*"));
    assert!(read("[[vm]]\nname='x'\n").vm(called("y")).is_none());
    assert!(reasons("[[vm]]\nname='x'\nshare=3\n")[0].contains("line 3, column 1"));
}

#[test]
fn a_whole_file_is_read_and_layered_over_the_cgroups() {
    let s = read(WHOLE);
    assert_eq!((s.host.mhz, s.knobs["quantum_us"], s.pools.len()), (Some(2400), 20_000, 3));
    let gold = s.pool("gold").unwrap().attributes().over(VmResources::POOL, None, 2400).unwrap();
    assert_eq!(
        gold,
        VmResources {
            shares: 8000,
            reservation: Rate::ONE,
            limit: Some(Rate::pcpus(4)),
            burst_ns: 10_000_000
        }
    );
    let slice = s.pool("/machine.slice").unwrap();
    assert!(
        slice.is_cgroup()
            && slice.attributes().expandable == Some(false)
            && slice.attributes().shares.is_none()
    );
    let cgroup = VmResources { limit: Some(Rate::ONE), ..VmResources::POOL };
    assert_eq!(
        slice.attributes().over(cgroup, None, 2400).unwrap(),
        VmResources { burst_ns: 5_000_000, ..cgroup }
    );
    let half = Rate(Rate::ONE.0 / 2);
    let db = vm(&s, "db")
        .attributes(4)
        .over(VmResources { shares: 1000, ..VmResources::POOL }, Some(4), 2400)
        .unwrap();
    assert_eq!(
        db,
        VmResources { shares: 300, reservation: half, limit: Some(half), burst_ns: 1_000_000 }
    );
    assert!(LIMIT_MIN < half && s.reasons_at(2400).is_empty());
    // On a slower host the same reservation is more than the limit.
    let seen = s.reasons_at(1200);
    assert_eq!(seen.len(), 1);
    assert!(
        seen[0].starts_with(
            "vm '*': limit: seen 50%, allowed its reservation of 1200MHz \
        (100 % of a pCPU) or more"
        ),
        "{seen:?}"
    );
}

#[test]
fn a_file_is_refused_with_every_reason_at_once() {
    let error = LiveSettings::parse("t.toml", WRONG).unwrap_err();
    let parts = [
        "pool 'gold': limit: CPU amount: cannot read '300': seen no unit",
        "vm '/b': reservation: CPU amount: cannot read '1': seen no unit",
        "host.mhz: seen 50, allowed 100..10000",
        "pool 'gold': limit: seen 1999MHz, allowed its reservation of 2000MHz or more; raise \
            the limit, or lower the reservation",
        "pool 'a': burst: seen 1ms without a limit, allowed only with one; give a limit, or \
            leave it out",
        "pool 'b': shares: seen 'some', allowed low, normal, high or 1..262144",
        "pool 'c.d': name: allowed 1..64 characters without / . , \" or line ends, or a \
            cgroup's path such as /machine.slice",
        "pool '/x/../y': name: seen '/x/../y', allowed a cgroup's path as /proc/PID/cgroup \
            shows it, such as /machine.slice; write it so",
        "pool '/x/../y': parent: seen 'gold', allowed none, since a cgroup is where it is; \
            leave it out",
        "pool '/': name: seen the root, allowed a cgroup below it; the root has all that the \
            host has",
        "pool 'deep': limit: seen 0.5%, allowed 1 % of a pCPU or more",
        "pool 'gold': two have this name; each needs its own",
        "pool 'c.d': parent: seen 'machine.slice', allowed the name of a [[pool]] or a \
            cgroup's path such as /machine.slice",
        "pool 'a': parent: seen the circle a -> b -> a, allowed a chain that ends at the root",
        "pool '/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17': seen 17 levels below the root, \
            allowed 16",
        "pool 'deep': seen 17 levels below the root, allowed 16; give it a parent further up",
        "vm 'x': shares: cannot use 0: allowed 1..262144",
        "vm 'x': burst: seen 1ms without a limit",
        "vm 'x': pool: seen 'tin', allowed the name of a [[pool]] or a cgroup's path such as \
            /machine.slice; leave it out",
        "vm 'x': two have this name or pattern and this cgroup, and the second never counts; join \
            them",
        "vm 'x': pool: seen '/sys/fs/cgroup/machine.slice', allowed a cgroup's path as \
            /proc/PID/cgroup shows it",
        "vm '': seen neither name nor cgroup, allowed one of them or both; write name = \"*\" for \
            all VMs",
        "vm '/': cgroup: seen the root, allowed a cgroup below it; leave it out for all VMs",
        "vm 'machine.slice': cgroup: seen 'machine.slice', allowed a cgroup's path as \
            /proc/PID/cgroup shows it, such as /machine.slice; write it so",
        "vm 'machine.slice': limit: seen 0.5%, allowed 1 % of a pCPU or more",
        "vm '/a/../b': cgroup: seen '/a/../b', allowed a cgroup's path as /proc/PID/cgroup shows \
            it",
        "vm 'y': cgroup: seen '/machine.slice/machine-qemu\\\\x2d1.scope/libvirt', allowed a path \
            up to its first .scope, which is the cgroup of a VM; leave out what follows",
        "vm '/b': two have this name or pattern and this cgroup, and the second never counts; \
            join them",
    ];
    assert_eq!(error.reasons.len(), parts.len(), "{error}");
    for (seen, part) in error.reasons.iter().zip(parts) {
        assert!(seen.starts_with(part), "{seen} is not {part}");
    }
    assert!(error.to_string().starts_with(
        "settings t.toml: refused, nothing of it is in \
        force:\n  - pool 'gold': limit: CPU amount"
    ));
}

#[test]
fn too_many_pools_are_one_reason() {
    let text: String =
        (0..10_000).map(|i| format!("[[pool]]\nname = \"p{}\"\nlimit = 7\n", i / 2)).collect();
    assert_eq!(
        reasons(&text),
        ["pool: seen 10000 pools, allowed 1023 beside the root; leave some out, or join them"]
    );
}

#[test]
fn a_pool_of_the_file_keeps_off_a_cgroups_path() {
    let text = "[[pool]]\nname = \"/a/b\"\n[[pool]]\nname = \"b\"\nparent = \
        \"/a\"\n[[pool]]\nname = \"c\"\nparent = \"/\"\n";
    assert_eq!(
        reasons(text),
        ["pool 'b': seen the path /a/b of a cgroup, allowed one of its own; give it another \
                name"]
    );
    assert_eq!(read(&text.replace("\"/a\"", "\"/a/b\"")).pools.len(), 3);
}

#[test]
fn a_file_that_is_cut_off_is_refused_with_line_and_column_or_is_a_whole_shorter_one() {
    let seen = reasons(&WHOLE[..WHOLE.find("high").unwrap()]);
    assert_eq!(seen.len(), 1);
    assert!(
        seen[0].starts_with("cannot parse: TOML parse error at line 7, column "),
        "{}",
        seen[0]
    );
    let mut refused = 0;
    for end in 0..WHOLE.len() {
        if let Err(e) = LiveSettings::parse("t.toml", &WHOLE[..end]) {
            refused += 1;
            let placed = e.reasons[0].contains(" at line ") && e.reasons[0].contains(", column ");
            // Cut within an amount, pool or parent the text may be whole, and what it says
            // wrong.
            assert!(
                placed
                    || e.reasons.iter().all(|r| r.starts_with("pool '")
                        || r.starts_with("vm '")
                        || r.starts_with("host.mhz")),
                "{e}"
            );
        }
    }
    assert!(refused > WHOLE.len() / 2, "{refused} of {}", WHOLE.len());
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let error = LiveSettings::load(Path::new("no-such-file.toml")).unwrap_err();
    assert!(error.to_string().starts_with(
        "settings no-such-file.toml: refused, nothing of it is in force:\n  - cannot read it: "
    ));
    assert!(reasons("[knobs]\na = 1\na = 2\n")[0].contains("line 3, column 1"));
    assert!(reasons("[[pool]]\nname = \"a\"\nlimit = \"1e\n")[0].contains("line 3, column "));
}

#[test]
fn thresholds_of_homes_are_those_of_scenarios_and_the_hosts_memory_is_its_own() {
    let numa = |text: &str| LiveSettings::parse("t", text).map(|s| s.numa);
    assert_eq!(numa("").unwrap(), None);
    assert!(numa("[numa]\n").unwrap().is_some_and(|n| n.on && n.swap_periods == 3));
    let some = numa("[numa]\non = false\nperiod = '5s'\nmemory_rate = '1MiB'\n").unwrap().unwrap();
    assert_eq!((some.on, some.period, some.memory_rate.0), (false, Span::from_secs(5), 1 << 20));
    let refused = |text: &str| numa(&format!("[numa]\n{text}\n")).unwrap_err().reasons.join("; ");
    assert_eq!(refused("thrash_percent = 101"), "numa.thrash_percent: seen 101, allowed 0..100");
    assert_eq!(
        refused("memory = ['1GiB']\nlink = '1GB'"),
        "numa.memory: seen, allowed in a scenario alone; this host has its own: leave it out; \
            numa.link: seen, allowed in a scenario alone; this host has its own: leave it out"
    );
    assert!(refused("node = 1").contains("unknown field `node`"));
}

#[test]
fn llcs_and_threads_are_chosen_where_vms_have_homes() {
    let homes = |text: &str| read(text).homes().map(|n| n.swap_periods);
    assert_eq!(
        [homes(""), homes("[numa]\n"), homes("[numa]\non = false\n")],
        [None, Some(3), None]
    );
    assert_eq!(homes("[numa]\nswap_periods = 7\n"), Some(7));
    let llc = "[[vm]]\nname = 'a'\nllc = 'spread'\n";
    for (numa, key) in ["", "[numa]\non = false\n"]
        .into_iter()
        .flat_map(|numa| ["llc = 'spread'", "prefer_ht = true"].map(|key| (numa, key)))
    {
        let seen = reasons(&format!("{numa}[[vm]]\nname = 'a'\n{key}\n"));
        let name = key.split(' ').next().unwrap();
        let wanted = format!("vm 'a': {name}: seen without homes, allowed with [numa]");
        assert!(seen.len() == 1 && seen[0].starts_with(&wanted), "{seen:?}");
    }
    let s = read(&format!("[numa]\n{llc}prefer_ht = true\n"));
    assert_eq!((vm(&s, "a").llc, vm(&s, "a").prefer_ht), (Some(crate::LlcChoice::Spread), true));
    assert!(reasons("[numa]\n[[vm]]\nname = 'a'\nllc = 'few'\n")[0].contains("consolidate"));
}
