//! Gaming a share: what a VM gains that sleeps, spins, wakes and halts at moments of its choice,
//! beside VMs of equal shares that compute without end. `cargo test --profile ci -p sim --test all
//! gaming -- --nocapture` prints the tables; SEEDS=N draws N ways. `cargo xtask simulated gaming`
//! records what docs/measured.md has.

use dice::Draw;
use sim::{Options, Ticks, run};
use std::{fs, path::PathBuf};

/// Seconds that are measured, after two of warm-up.
const SECONDS: u64 = 10;
/// What a VM may gain of what it is entitled to: two quanta of ten seconds of a pCPU.
const GAIN_PERMILLE: i64 = 10;
/// Random ways of each size of VM.
const WAYS: u64 = 12;

/// A host, and the VMs that the attacker is beside; all have equal shares for each vCPU, and the
/// pCPUs are divided whole.
struct Field {
    name: &'static str,
    host: &'static str,
    /// vCPUs of the attacker, and the pCPUs that it is entitled to in permille.
    attacker: (u32, u64),
    beside: &'static [u32],
}

const FIELDS: [Field; 4] = [
    Field {
        name: "1 vCPU, half a pCPU of 4",
        host: "cores_per_llc = 4",
        attacker: (1, 500),
        beside: &[1, 2, 4],
    },
    Field {
        name: "4 vCPUs, 2 pCPUs of 4",
        host: "cores_per_llc = 4",
        attacker: (4, 2000),
        beside: &[2, 2],
    },
    Field {
        name: "4 vCPUs, 2 pCPUs of 8 in 2 LLCs",
        host: "sockets = 2\ncores_per_llc = 4",
        attacker: (4, 2000),
        beside: &[4, 4, 4],
    },
    Field {
        name: "2 vCPUs, 1 pCPU of 16 in 2 nodes",
        host: "sockets = 2\ncores_per_llc = 4\nthreads_per_core = 2",
        attacker: (2, 1000),
        beside: &[8, 8, 8, 4, 2],
    },
];

/// What the attacker's vCPUs do, as tables of a scenario, by number of the vCPU.
type Way = Box<dyn Fn(u32) -> String + Sync>;

fn all(work: &str) -> Way {
    let work = work.to_owned();
    Box::new(move |_| work.clone())
}

/// Ways that are known from the literature, and from the mechanisms of this scheduler.
fn known() -> Vec<(&'static str, Way)> {
    let duty = |work: &str, sleep: &str| {
        all(&format!("{{ kind = 'duty', work = '{work}', sleep = '{sleep}' }}"))
    };
    vec![
        ("computes without end, for comparison", all("{ kind = 'burn' }")),
        ("sleeps 20 us before each tick (4 ms)", duty("3980us", "20us")),
        ("sleeps 50 us before the end of each quantum (50 ms)", duty("49950us", "50us")),
        ("sleeps 1 ms in each quantum", duty("49ms", "1ms")),
        ("sleeps 10 us after each 100 us", duty("100us", "10us")),
        ("sleeps for as long as it computes, 5 ms", duty("5ms", "5ms")),
        ("sleeps 300 ms, computes 300 ms", duty("300ms", "300ms")),
        ("halts its guest for an I/O of 50 us, again and again", {
            all("{ kind = 'io', work = '200us', sleep = '50us', dist = 'fixed' }")
        }),
        ("waits in its emulator for 50 us, again and again", {
            all("{ kind = 'io', work = '200us', sleep = '50us', dist = 'fixed', halts = false }")
        }),
        ("vCPUs wake each other", all("{ kind = 'ipi', work = '100us', handle = '20us' }")),
        ("vCPUs wait for each other, spin and halt", {
            all("{ kind = 'barrier', work = '300us', dist = 'exponential', spin = '50us' }")
        }),
        ("spins (PAUSE) for a lock", {
            all("{ kind = 'spinlock', think = '200us', hold = '100us', dist = 'exponential' }")
        }),
        ("spins for a ticket lock", {
            all("{ kind = 'spinlock', think = '200us', hold = '50us', ticket = true }")
        }),
        ("leaves its guest for its emulator, 20 us each", {
            all("{ kind = 'exits', work = '50us', emulate = '20us', dist = 'fixed' }")
        }),
        ("one vCPU computes, the others sleep before each tick", {
            Box::new(|vcpu| match vcpu {
                0 => "{ kind = 'burn' }".to_owned(),
                _ => "{ kind = 'duty', work = '3980us', sleep = '20us' }".to_owned(),
            })
        }),
    ]
}

/// A way at random: each vCPU computes and sleeps for times from 20 us to 100 ms.
fn drawn(seed: u64) -> Way {
    Box::new(move |vcpu| {
        let mut draw = Draw::new(seed * 64 + u64::from(vcpu) * (seed % 3).min(1));
        let mut us = |most: u64| {
            let magnitude = [1, 10, 100, 1000][draw.below(4) as usize];
            20.max(draw.below(most) * magnitude)
        };
        let (work, sleep) = (us(100), us(20));
        format!("{{ kind = 'duty', work = '{work}us', sleep = '{sleep}us' }}")
    })
}

/// What the attacker is given.
#[derive(Clone, Copy)]
struct Rule {
    /// 0: as many for each vCPU as the others.
    shares: u32,
    /// A limit of what it is entitled to, and pCPUs that it could use beyond.
    limited: bool,
}

/// What the attacker got beyond its entitlement, in permille of it.
fn gain(field: &Field, name: &str, way: &Way, rule: Rule) -> i64 {
    let limited = rule.limited;
    let (vcpus, entitled) = field.attacker;
    let mut text =
        format!("duration = '{}s'\nwarmup = '2s'\n[host]\n{}\n", SECONDS + 2, field.host);
    if limited {
        text += &format!("[[pool]]\nname = 'cage'\nlimit = '{}%'\n", entitled / 10);
    }
    let works: Vec<String> = (0..vcpus).map(way).collect();
    text += &format!(
        "[[vm]]\nname = 'attacker'\nvcpus = {vcpus}\nvcpu_workloads = [{}]\n{}",
        works.join(", "),
        if limited { "pool = 'cage'\n" } else { "" }
    );
    if rule.shares > 0 {
        text += &format!("shares = {}\n", rule.shares);
    }
    let beside = if limited { &field.beside[..1] } else { field.beside };
    for (i, vcpus) in beside.iter().enumerate() {
        text += &format!("[[vm]]\nname = 'beside{i}'\nvcpus = {vcpus}\n");
    }
    let file = format!("gaming-{}-{limited}-{name}.toml", field.name).replace([' ', '(', ')'], "_");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file.replace('/', "_"));
    fs::write(&path, &text).expect("the test's folder can be written");
    let scenario =
        settings::load(&path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let options = Options { ticks: Ticks::Staggered, ..Options::default() };
    let out = run(&scenario.runs[0], &options).unwrap_or_else(|e| panic!("{name}: {e}"));
    let used = out.result.vms.iter().find(|v| v.name == "attacker").expect("it").times.used_ns;
    let due = (entitled * SECONDS * 1_000_000) as i64;
    (used as i64 - due) * 1000 / due
}

/// Prints what each way gains, and returns the most.
fn table(limited: bool) -> i64 {
    let ways: Vec<(String, Way)> = known()
        .into_iter()
        .map(|(name, way)| (name.to_owned(), way))
        .chain((0..seeds()).map(|seed| (format!("drawn {seed}"), drawn(seed))))
        .collect();
    let jobs: Vec<(usize, usize)> =
        (0..ways.len()).flat_map(|w| (0..FIELDS.len()).map(move |f| (w, f))).collect();
    let gains: Vec<i64> = seeds::each(jobs, |(w, f)| {
        gain(&FIELDS[f], &ways[w].0, &ways[w].1, Rule { shares: 0, limited })
    });
    for (w, (name, _)) in ways.iter().enumerate() {
        let row: Vec<String> = (0..FIELDS.len())
            .map(|f| format!("{:+.1} %", gains[w * FIELDS.len() + f] as f64 / 10.0))
            .collect();
        println!("| {name} | {} |", row.join(" | "));
    }
    gains.into_iter().max().unwrap_or_default()
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(WAYS)
}

#[test]
fn no_way_to_compute_and_sleep_gains_cpu_time() {
    let most = table(false);
    assert!(most <= GAIN_PERMILLE, "{most} permille gained");
}

#[test]
fn no_way_to_compute_and_sleep_exceeds_a_limit() {
    let most = table(true);
    assert!(most <= GAIN_PERMILLE, "{most} permille gained");
}

#[test]
fn what_is_gained_is_seen() {
    let burn = all("{ kind = 'burn' }");
    // Twice the shares of the others: 8 parts of 12 in place of 4 of 8.
    let most = gain(&FIELDS[1], "shares", &burn, Rule { shares: 8000, limited: false });
    assert!((300..=340).contains(&most), "{most} permille");
}
