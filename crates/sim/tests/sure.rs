//! VMs that are entitled to all that they ask for, or to nearly all: what they wait they cannot
//! make up for.

use crate::text::silent;
use sim::Ticks;

/// Burners of 2 vCPUs beside a VM of 4 that sleeps often. While that one's demand, which changes
/// from look to look, counted as lag, the host's virtual time was drawn back by it, and the lag of
/// the burners was forgotten: they had 943 and 941 permille.
#[test]
fn burners_have_what_they_are_sure_of_beside_a_vm_that_sleeps_often() {
    for (name, pcpus, burner, sleeper, least) in [
        (
            "io",
            4,
            "shares = 'high'",
            "workload = { kind = 'io', work = '1ms', sleep = '1ms', dist = 'exponential' }",
            975,
        ),
        (
            "barrier",
            6,
            "count = 2",
            "shares = 2000\nworkload = { kind = 'barrier', work = '300us', spin = '0s', \
             dist = 'exponential' }\n[[vm]]\nname = 'idle'\nvcpus = 2\n\
             workload = { kind = 'periodic', period = '10ms', work = '500us' }",
            995,
        ),
    ] {
        let text = format!(
            "duration = '12s'\nwarmup = '2s'\n[host]\ncores_per_llc = {pcpus}\n\
             [[vm]]\nname = 'burner'\nvcpus = 2\n{burner}\n\
             [[vm]]\nname = 'sleeper'\nvcpus = 4\n{sleeper}\n"
        );
        for ticks in [Ticks::Aligned, Ticks::Staggered] {
            let out = silent(&format!("sure-{name}"), &text, ticks);
            for vm in out.result.vms.iter().filter(|v| v.name.starts_with("burner")) {
                let permille = vm.times.used_ns * 1000 / vm.times.entitled_ns.max(1);
                println!("{name} {ticks:?}: {}: {permille} permille", vm.name);
                assert!(permille >= least, "{name}: {permille} permille");
            }
        }
    }
}

/// Two VMs that always want more, of shares 1 to 6, beside one that sleeps; the larger one can use
/// three quarters of the host and not more. Divided moment by moment the small one would have more,
/// for it has a pCPU whenever the sleeper leaves one (ideals.rs).
#[test]
fn vms_that_always_want_more_keep_to_their_shares_beside_sleepers() {
    let duty = "vcpus = 1\nworkload = { kind = 'duty', work = '10ms', sleep = '10ms' }";
    let short = "vcpus = 3\nworkload = { kind = 'periodic', period = '10ms', work = '2ms' }";
    for (name, sleeper, part) in [("duty", duty, 500), ("short", short, 486)] {
        let text = format!(
            "duration = '12s'\nwarmup = '2s'\n[host]\ncores_per_llc = 4\n\
             [[vm]]\nname = 'low'\nvcpus = 1\nshares = 500\n\
             [[vm]]\nname = 'big'\nvcpus = 3\n[[vm]]\nname = 'sleeper'\n{sleeper}\n"
        );
        for ticks in [Ticks::Aligned, Ticks::Staggered] {
            let out = silent(&format!("sure-{name}"), &text, ticks);
            let of = |i: usize| out.result.vms[i].times;
            let used = of(0).used_ns / 10_000_000;
            let moment = of(0).entitled_ns / 10_000_000;
            println!("{name} {ticks:?}: {used} permille, {moment} by the moment, {part} by shares");
            assert!(used >= part * 95 / 100 && used <= moment, "{name}: {used}");
        }
    }
}

/// A VM is powered on beside a burner that had all it wants; on the other node of homes two VMs
/// sleep often and are satisfied too. While these counted where user space weighs, virtual time
/// fell behind, the new VM ran first for 150 ms, and the burner was 34 ms beyond its bound.
#[test]
fn a_burner_has_its_part_at_once_beside_a_vm_that_is_powered_on() {
    let vm = |name: &str, vcpus: u32, more: &str| {
        format!("[[vm]]\nname = '{name}'\nvcpus = {vcpus}\nprofile = {more}\n")
    };
    let text = "duration = '5s'\n[host]\nnodes_per_socket = 2\ncores_per_llc = 4\n[hardware]\n\
        llc = '32MiB'\n[numa]\nmemory = ['64GiB']\n"
        .to_owned()
        + &vm("new", 4, "'specjbb2005'\nactive = ['4s..']")
        + &vm("one", 1, "'kernel-compile'")
        + &vm("burner", 2, "'specjbb2005'")
        + &vm("two", 2, "'kernel-compile'");
    silent("sure-homes", &text, Ticks::Aligned);
}
