//! Guests whose vCPUs meet at a spinning barrier where not all have a pCPU: one that spins yields
//! its pCPU to the one that is missing, and no pCPU idles beside those that co-stop.

use crate::text::silent;
use sim::Ticks;

/// A VM at a barrier of 1 ms on so many pCPUs, beside `more`, for 10 s.
fn meets(pcpus: u32, vcpus: u32, more: &str) -> String {
    format!(
        "duration = '12s'\nwarmup = '2s'\n[host]\ncores_per_llc = {pcpus}\n{more}\n[[vm]]\n\
            name = 'meets'\nvcpus = {vcpus}\nworkload = {{ kind = 'barrier', work = '1ms' }}\n"
    )
}

#[test]
fn a_spinner_yields_to_the_sibling_that_the_barrier_misses_and_no_pcpu_idles() {
    // Where one vCPU has no pCPU a round takes two turns of 1 ms, so half of the vCPUs' work is the
    // most that can be expected: 15 s of 20 s, 20 s of 30 s, and 44 s of 71 s. Where no spinner
    // yielded to a vCPU that had been released, but had not run since: 6.0, 8.5 and 27.5 s. Where
    // leading vCPUs co-stopped beside an idle pCPU, the host had 3 to 5 % less to give, and the
    // oracle found the VM's lag.
    let task = "[[host_task]]\nname = 'backup'\nnice = 19\n";
    let lone = "[[vm]]\nname = 'lone'\nvcpus = 1\n";
    for (name, text, busy, least) in [
        ("alone", meets(2, 3, ""), 20_000, 14_500),
        ("task", meets(4, 4, task), 40_000, 19_500),
        ("lone", meets(8, 8, lone), 80_000, 43_000),
    ] {
        let out = silent(&format!("yields-{name}"), &text, Ticks::Aligned);
        let vm = out.result.vms.iter().find(|v| v.name == "meets").expect("a VM of that name");
        let work = vm.times.work / 1_000_000;
        let used = out.result.pcpus.iter().map(|p| p.busy_ns).sum::<u64>() / 1_000_000;
        println!("{name}: {work} ms of work, {used} of {busy} ms of the host used");
        assert!(work >= least && used * 1000 >= busy * 998, "{name}: {work}, {used} of {busy} ms");
    }
}
