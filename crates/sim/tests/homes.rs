//! Home nodes of hosts of many nodes, of divided cores, and of VMs that affinity or reservations
//! hold: what each VM gets with homes is what it would get without.

use crate::text;
use sim::{Options, Outcome};

fn outcome(name: &str, text: &str) -> Outcome {
    text::outcome(name, text, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// CPU time of the VM that has most over that of the one that has least, in permille.
fn apart_permille(out: &Outcome) -> u64 {
    let used = || out.result.vms.iter().map(|vm| vm.times.used_ns);
    let (most, least) = (used().max().expect("a VM"), used().min().expect("a VM"));
    (most - least) * 1000 / least
}

/// Two nodes would get what the others have too much of only if they were among the first four:
/// one VM was alone on its node for all the time, and had 21.2 % more than the others.
#[test]
fn fairness_looks_at_all_nodes() {
    for (nodes, most) in [(6, 30), (8, 40)] {
        let text = format!(
            "duration = '620s'\nwarmup = '20s'\n[host]\nsockets = {nodes}\ncores_per_llc = 2\n\
            [hardware]\n[numa]\n[[vm]]\nname = 'a'\ncount = {}\nvcpus = 2\n\
            profile = 'specjbb2005'\n",
            nodes + 1
        );
        let apart = apart_permille(&outcome("homes-nodes", &text));
        assert!(apart <= most, "{nodes} nodes: {apart} permille apart");
    }
}

/// What a VM had was counted by thread, what it is entitled to by core: no VM lacked anything, and
/// the VM that was alone on its node had 60 % more.
#[test]
fn fairness_counts_divided_cores_as_entitlements_do() {
    for charge in [500, 625] {
        let text = format!(
            "duration = '320s'\nwarmup = '20s'\n[host]\nsockets = 2\ncores_per_llc = 2\n\
            threads_per_core = 2\n[hardware]\n[numa]\n[knobs]\nshared_charge = {charge}\n\
            [[vm]]\nname = 'a'\ncount = 3\nvcpus = 2\nmemory = '2GiB'\n"
        );
        let apart = apart_permille(&outcome("homes-cores", &text));
        assert!(apart <= 60, "shared_charge {charge}: {apart} permille apart");
    }
}
