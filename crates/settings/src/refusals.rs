//! Tests that each invalid setting of pools, limits and reservations is refused with its reason.

use crate::{LIMIT_MIN, PoolSpec, ScenarioError, SharesSetting, place, raw::parse};
use std::time::{Duration, Instant};
use units::{CpuAmount, Rate, Span};

const HOST: &str = "[host]\ncores_per_llc = 4\n";

/// Pools and VMs by lines: `pool gold parent="x"`, `vm a vcpus=2`; keys are separated by `;`.
fn scenario(lines: &str) -> String {
    let mut out = HOST.to_owned();
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let mut words = line.splitn(3, ' ');
        let (kind, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let vcpus = if kind == "vm" && !line.contains("vcpus") { "vcpus = 1\n" } else { "" };
        out += &format!(
            "[[{kind}]]\nname = \"{name}\"\n{vcpus}{}\n",
            words.next().unwrap_or("").replace(';', "\n")
        );
    }
    out
}

fn reasons(text: &str) -> Vec<String> {
    match parse("t.toml", "t", text) {
        Err(ScenarioError::Invalid { reasons, .. }) => reasons,
        Err(e) => panic!("refused by the parser: {e}"),
        Ok(_) => panic!("must be refused: {text}"),
    }
}

/// The only reason.
fn reason(lines: &str) -> String {
    let mut all = reasons(&scenario(lines));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn pool(name: &str, parent: Option<&str>) -> PoolSpec {
    PoolSpec {
        name: name.into(),
        parent: parent.map(Into::into),
        shares: SharesSetting::default(),
        reservation: None,
        limit: None,
        burst: None,
        expandable: true,
        scalable: false,
    }
}

#[test]
fn pools_and_vms_are_read_with_their_defaults() {
    let text = scenario(
        "pool web parent=\"gold\"; shares=\"high\"; limit=\"unlimited\"; expandable=false; \
            scalable=true
         pool gold reservation=\"1GHz\"; limit=\"2400 mhz\"; burst=\"20ms\"
         pool silver shares=7; limit=-1
         vm a vcpus=2; pool=\"web\"; reservation=\"12.5%\"; limit=\"150%\"; burst=\"1ms\"
         vm b",
    );
    let spec = &parse("t.toml", "t", &text).unwrap().runs[0].spec;
    assert_eq!(spec.host.mhz, 2000);
    let placed = place(&spec.pools, spec.host.mhz).unwrap();
    let seen: Vec<_> = placed
        .iter()
        .map(|p| (p.path.as_str(), p.parent, p.depth, p.shares, p.expandable, p.scalable))
        .collect();
    assert_eq!(
        seen,
        [
            ("/", 0, 0, 4000, false, false),
            ("/gold", 0, 1, 4000, true, false),
            ("/gold/web", 1, 2, 8000, false, true),
            ("/silver", 0, 1, 7, true, false)
        ]
    );
    let amounts: Vec<_> = placed
        .iter()
        .map(|p| (p.reservation.percent(), p.limit.map(Rate::percent), p.burst_ns))
        .collect();
    assert_eq!(amounts[1], ("50 %".to_owned(), Some("120 %".to_owned()), 20_000_000));
    assert!([0, 2, 3].iter().all(|i| amounts[*i] == ("0 %".to_owned(), None, 0)), "{amounts:?}");
    assert_eq!(placed[2].name, "web");
    let a = spec.vms[0].resources(spec.host.mhz).unwrap();
    assert_eq!((a.shares, a.reservation, a.burst_ns), (2000, Rate(Rate::ONE.0 / 8), 1_000_000));
    assert_eq!(
        (a.limit, spec.vms[0].pool.as_deref()),
        (Some(Rate(Rate::ONE.0 * 3 / 2)), Some("web"))
    );
    let b = spec.vms[1].resources(spec.host.mhz).unwrap();
    assert_eq!((b.shares, b.reservation, b.limit, b.burst_ns), (1000, Rate(0), None, 0));
    assert_eq!(CpuAmount::percent(1).rate(1), LIMIT_MIN);
}

#[test]
fn runs_vary_pools_by_name() {
    let text = scenario("pool gold\npool silver\nvm a count=2; pool=\"gold\"")
        + "[[run]]\nlabel=\"x\"\nset={\"gold.limit\"=\"300%\", \"a.pool\"=\"silver\", \
            \"a.count\"=3, \"host.mhz\"=1000, \"silver.reservation\"=\"500MHz\"}\n\
           [[run]]\nlabel=\"y\"\nset={\"gold.limit\"=-1}\n";
    let runs = parse("t.toml", "t", &text).unwrap().runs;
    let placed = place(&runs[0].spec.pools, runs[0].spec.host.mhz).unwrap();
    assert_eq!(
        (placed[1].limit, placed[2].reservation),
        (Some(Rate::pcpus(3)), Rate(Rate::ONE.0 / 2))
    );
    let vms = &runs[0].spec.vms;
    assert!(vms.len() == 3 && vms.iter().all(|v| v.pool.as_deref() == Some("silver")));
    assert_eq!(place(&runs[1].spec.pools, 2000).unwrap()[1].limit, None);
    let wrong = text.replace("\"300%\"", "\"300\"").replace("gold.limit\"=-1", "nobody.limit\"=1");
    let seen = reasons(&wrong);
    assert!(
        seen[0].starts_with(
            "run 'x': pool 'gold': limit: CPU amount: cannot read '300': seen no unit"
        ),
        "{seen:?}"
    );
    assert_eq!(
        seen[1..],
        ["run 'y': cannot set 'nobody.limit': no such VM, pool, host task or section; allowed \
            NAME.KEY or KEY"
            .to_owned()]
    );
}

#[test]
fn a_pool_is_not_called_like_the_group_of_host_tasks() {
    assert_eq!(
        reasons(&scenario("pool system\npool gold\nvm a pool=\"gold\"")),
        ["pool 'system': seen the path /system, which means the host's own tasks; give it \
                another name"]
    );
    assert!(
        parse(
            "t.toml",
            "t",
            &scenario("pool gold\npool system parent=\"gold\"\nvm a pool=\"gold\"")
        )
        .is_ok()
    );
}

#[test]
fn limits_and_reservations_that_cannot_be_are_refused() {
    for (line, said) in [
        (
            "vm a vcpus=2; reservation=\"150%\"; limit=\"2GHz\"",
            "vm 'a': limit: seen 2000MHz (100 % of a pCPU), allowed its reservation of 150% or \
                more; raise the limit, or lower the reservation",
        ),
        (
            "pool gold reservation=\"3GHz\"; limit=\"100%\"",
            "pool 'gold': limit: seen 100%, allowed its reservation of 3000MHz (150 % of a pCPU) \
                or more; raise the limit, or lower the reservation",
        ),
        (
            "vm a vcpus=2; reservation=\"4001MHz\"",
            "vm 'a': reservation: seen 4001MHz (200.05 % of a pCPU), allowed up to 200 %, one pCPU \
                for each vCPU; lower it",
        ),
        (
            "pool gold limit=\"19MHz\"",
            "pool 'gold': limit: seen 19MHz (0.95 % of a pCPU), allowed 1 % of a pCPU or more: \
                even what is held back must run now and \
             then, since the kernel ejects a scheduler that leaves a task waiting for 30 s; raise it, or power the VM off",
        ),
        (
            "pool gold reservation=\"2048002MHz\"",
            "pool 'gold': reservation: seen 2048002MHz (102400.1 % of a pCPU), allowed up to 1024 \
                pCPUs; write less",
        ),
        (
            "pool gold burst=\"5ms\"",
            "pool 'gold': burst: seen 5ms without a limit, allowed only with one; give a limit, or \
                leave it out",
        ),
        (
            "vm a burst=\"5ms\"; limit=-1",
            "vm 'a': burst: seen 5ms without a limit, allowed only with one; give a limit, or \
                leave it out",
        ),
        (
            "pool gold shares=\"huge\"",
            "pool 'gold': shares: seen 'huge', allowed low, normal, high or 1..262144",
        ),
    ] {
        assert_eq!(reason(line), said);
    }
    assert!(
        reason("vm a limit=\"0%\"")
            .starts_with("vm 'a': limit: seen 0%, allowed 1 % of a pCPU or more")
    );
    assert!(
        reason("pool gold shares=0")
            .starts_with("pool 'gold': shares: cannot use 0: allowed 1..262144")
    );
    for fits in [
        "vm a reservation=\"100%\"; limit=\"2000MHz\"",
        "pool gold limit=\"1%\"",
        "pool gold limit=\"20MHz\"",
        "vm a burst=\"0s\"",
    ] {
        assert!(parse("t.toml", "t", &scenario(fits)).is_ok(), "{fits}");
    }
}

#[test]
fn a_host_task_is_as_nice_as_linux_knows() {
    let task = |nice| format!("vm a\nhost_task t nice={nice}; workload={{ kind = \"burn\" }}");
    for nice in [20, -21] {
        assert_eq!(
            reason(&task(nice)),
            format!("host_task 't': nice: seen {nice}, allowed -20 to 19")
        );
    }
    for nice in [19, -20] {
        let spec = &parse("t.toml", "t", &scenario(&task(nice))).expect("it is read").runs[0].spec;
        assert_eq!(i32::from(spec.host_tasks[0].nice), nice);
    }
}

#[test]
fn names_are_each_their_own_and_parents_are_there() {
    for (lines, said) in [
        ("pool gold\npool gold", "pool 'gold': two have this name; each needs its own"),
        ("pool gold\nvm gold", "pool 'gold': a VM has this name too; each needs its own"),
        (
            "pool gold-2\nvm gold count=2",
            "pool 'gold-2': a VM has this name too; each needs its own",
        ),
        ("pool gold\nvm gold count=2", "pool 'gold': a VM has this name too; each needs its own"),
        (
            "pool gold\nhost_task gold",
            "pool 'gold': a host task has this name too; each needs its own",
        ),
        ("pool a.b", "pool 'a.b': name: allowed 1..64 characters without / . , \" or line ends"),
        (
            "pool web parent=\"gould\"",
            "pool 'web': parent: seen 'gould', allowed the name of a [[pool]]; leave it out for a \
                pool of the root",
        ),
        (
            "vm a pool=\"gould\"",
            "vm 'a': pool: seen 'gould', allowed the name of a [[pool]]; leave it out for a VM of \
                the root",
        ),
        (
            "pool a parent=\"b\"\npool b parent=\"a\"\npool c parent=\"b\"",
            "pool 'a': parent: seen the circle a -> b -> a, allowed a chain that ends at the root; \
                give one of them another parent",
        ),
        (
            "pool under parent=\"x\"\npool x parent=\"y\"\npool y parent=\"z\"\npool z \
                parent=\"x\"",
            "pool 'x': parent: seen the circle x -> y -> z -> x, allowed a chain that ends at the \
                root; give one of them another parent",
        ),
        (
            "pool me parent=\"me\"",
            "pool 'me': parent: seen the circle me -> me, allowed a chain that ends at the root; \
                give one of them another parent",
        ),
    ] {
        assert_eq!(reason(lines), said);
    }
    assert_eq!(
        reasons(&scenario("pool a parent=\"a\"\npool b parent=\"c\"\npool c parent=\"b\"")).len(),
        2
    );
}

#[test]
fn pools_are_as_deep_as_the_scheduler_follows_them() {
    let chain = |n: usize| {
        (1..=n)
            .map(|i| pool(&format!("p{i}"), (i > 1).then(|| format!("p{}", i - 1)).as_deref()))
            .collect::<Vec<_>>()
    };
    assert_eq!(place(&chain(16), 2000).unwrap()[16].depth, 16);
    // Only the first that is too deep is named, and not all that hang below it.
    let all =
        ["pool 'p17': seen 17 levels below the root, allowed 16; give it a parent further up"];
    assert_eq!(place(&chain(17), 2000).unwrap_err(), all);
    assert_eq!(place(&chain(1023), 2000).unwrap_err(), all);
}

#[test]
fn too_many_pools_are_one_reason_and_soon_said() {
    let bad = |i: usize| {
        format!(
            "pool p{i} parent=\"p{}\"; limit=\"7\"; shares=0\nvm v{i} pool=\"nope\"\n",
            (i + 1) % 10_000
        )
    };
    let text = scenario(&(0..10_000).map(bad).collect::<String>());
    let begin = Instant::now();
    let said =
        ["pool: seen 10000 pools, allowed 1023 beside the root; leave some out, or join them"];
    assert_eq!(reasons(&text), said);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let many: Vec<PoolSpec> = (0..10_000).map(|_| pool("same", Some("same"))).collect();
    assert_eq!(place(&many, 2000).unwrap_err(), said);
    let most: Vec<PoolSpec> = (0..1023)
        .map(|i| pool(&format!("p{i}"), (i > 0).then(|| format!("p{}", (i - 1) / 8)).as_deref()))
        .collect();
    assert_eq!(place(&most, 2000).unwrap().len(), 1024);
}

#[test]
fn too_many_limits_are_refused() {
    let lines = |vms: u32| {
        format!(
            "pool gold limit=\"10%\"\npool free limit=-1\nvm a count={vms}; limit=\"10%\"\nvm b \
                limit=\"unlimited\""
        )
    };
    assert!(parse("t.toml", "t", &scenario(&lines(1022))).is_ok());
    let pools: String = (0..30).map(|i| format!("pool p{i} limit=\"10%\"\n")).collect();
    assert_eq!(
        reason(&format!("{pools}vm a count=1000; limit=\"10%\"")),
        "limit: seen 1030 limits on VMs and pools, allowed 1023; limit pools in place of their VMs"
    );
}

#[test]
fn every_reason_is_said_at_once_unreadable_amounts_too() {
    let text = scenario(
        "pool gold limit=\"7 parsecs\"; burst=\"1ms\"; parent=\"nope\"
         pool gold reservation=250; shares=0
         vm a vcpus=0; reservation=\"-5%\"; burst=\"soon\"; pool=\"tin\"
         vm b limit=300.5
         vm b limit=\"0.1%\"",
    )
    .replace("cores_per_llc = 4", "cores_per_llc = 4\nmhz = 99")
        + "[expect]\nratio_of = [\"c\"]\nequal_of = [\"a\", \"d\"]\nat_least = { a = 1001, e = 5 \
            }\nlab_at_least = { f = 0 }\n";
    let seen = reasons(&text);
    let parts = [
        "pool 'gold': limit: CPU amount: cannot read '7 parsecs': seen the unit 'parsecs'",
        "pool 'gold': reservation: CPU amount: cannot read '250': seen no unit",
        "vm 'a': reservation: CPU amount: cannot use '-5%': seen less than 0",
        "vm 'a': burst: time: cannot read 'soon': allowed a number with ns",
        "vm 'b': limit: invalid type: floating point `300.5`, expected a limit: a text with an \
            amount of CPU such as 250%",
        "host.mhz: seen 99, allowed 100..10000",
        "pool 'gold': shares: cannot use 0: allowed 1..262144",
        "pool 'gold': two have this name; each needs its own",
        "pool 'gold': parent: seen 'nope', allowed the name of a [[pool]]",
        "vm 'a': vcpus: seen 0, allowed 1..1024",
        "vm 'b': limit: seen 0.1%, allowed 1 % of a pCPU or more",
        "vm 'a': pool: seen 'tin', allowed the name of a [[pool]]",
        "vm 'b': two have this name; each needs its own",
        "expect.ratio_of: seen 'c', allowed the names of its VMs",
        "expect.equal_of: seen 'd', allowed the names of its VMs",
        "expect.at_least: seen 'e', allowed the names of its VMs",
        "expect.lab_at_least: seen 'f', allowed the names of its VMs",
        "expect.at_least: seen 1001 for 'a', allowed 0..1000 permille",
    ];
    assert_eq!(seen.len(), parts.len(), "{seen:#?}");
    for (seen, part) in seen.iter().zip(parts) {
        assert!(seen.starts_with(part), "{seen} is not {part}");
    }
    let unknown = reasons(&scenario("pool gold limit=\"7\"; colour=\"red\""));
    assert!(unknown.len() == 2 && unknown[1].contains("unknown field `colour`"), "{unknown:?}");
}

#[test]
fn expectations_name_vms_as_they_are_counted_out() {
    let text = scenario("vm a count=2")
        + "[expect]\nequal_of = [\"a-1\", \"a-2\"]\nequal_permille = 5\nlab_equal_permille = \
            50\nlab_ratio_permille = 9\nlimit_permille = 3\n\
           lab_limit_permille = 4\nat_least = { a-1 = 1000 }\nlab_at_least = { a-2 = 900 }\n";
    let expect = parse("t.toml", "t", &text).unwrap().runs[0].spec.expect.clone();
    assert_eq!(
        (expect.equal_permille, expect.lab_equal_permille, expect.lab_ratio_permille),
        (5, Some(50), Some(9))
    );
    assert_eq!((expect.limit_permille, expect.lab_limit_permille), (Some(3), Some(4)));
    assert_eq!((expect.at_least["a-1"], expect.lab_at_least["a-2"]), (1000, 900));
    assert_eq!(
        reasons(&text.replace("\"a-1\", ", "\"a\", ")),
        ["expect.equal_of: seen 'a', allowed the names of its VMs"]
    );
}

#[test]
fn parents_come_first_and_the_files_order_holds_otherwise() {
    let pools = [("x", Some("c")), ("b", None), ("c", None), ("y", Some("b")), ("d", Some("x"))]
        .map(|(n, p)| pool(n, p));
    let placed = place(&pools, 2000).unwrap();
    assert_eq!(
        placed.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(),
        ["/", "/b", "/c", "/c/x", "/b/y", "/c/x/d"]
    );
    // Any tree: a pool's parent comes before it, and its path and depth are one longer.
    let mut draw = dice::Draw::new(1);
    for _ in 0..200 {
        let mut pools: Vec<PoolSpec> = vec![];
        for i in 0..40u64 {
            let parent =
                (draw.below(3) > 0 && i > 0).then(|| format!("p{}", i - 1 - draw.below(i.min(3))));
            pools.push(pool(&format!("p{i}"), parent.as_deref()));
        }
        for i in (1..pools.len()).rev() {
            pools.swap(i, draw.below(i as u64 + 1) as usize);
        }
        let Ok(placed) = place(&pools, 2000) else { continue };
        assert_eq!(placed.len(), 41);
        for (i, p) in placed.iter().enumerate().skip(1) {
            let above = &placed[p.parent];
            assert!(p.parent < i && p.depth == above.depth + 1);
            assert_eq!(p.path, format!("{}/{}", above.path.trim_end_matches('/'), p.name));
            let spec = pools.iter().find(|s| s.name == p.name).unwrap();
            assert_eq!(spec.parent.as_deref(), (p.parent > 0).then_some(above.name.as_str()));
        }
    }
}

#[test]
fn a_specification_is_written_as_it_is_read() {
    let text = scenario(
        "pool gold limit=\"2.4 ghz\"; burst=\"1ms\"\npool free limit=-1\nvm a \
            reservation=\"12.50%\"; limit=\"unlimited\"",
    );
    let spec = parse("t.toml", "t", &text).unwrap().runs[0].spec.clone();
    let written = toml::to_string(&spec).unwrap();
    for part in [
        "limit = \"2400MHz\"",
        "limit = \"unlimited\"",
        "reservation = \"12.5%\"",
        "burst = \"1ms\"",
        "mhz = 2000",
    ] {
        assert!(written.contains(part), "{part} in {written}");
    }
    let again = parse("t.toml", "t", &written).unwrap().runs[0].spec.clone();
    assert_eq!(toml::to_string(&again).unwrap(), written);
    assert_eq!(spec.pools[0].burst, Some(Span::from_ms(1)));
}
