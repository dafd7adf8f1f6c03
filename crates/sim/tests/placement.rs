//! How near the placement of worlds that always run comes to the best one: the most work that any
//! placement does, found by search with all profiles known (the scheduler sees only time).
//!
//! The search is exact for cores of one or two threads. The LLCs of the model take nothing from
//! each other, so the best work of a
//! host is that of its LLCs, each by how many worlds of each profile it has. Within an LLC each
//! core has a world before one has two, and a world on a shared core loses by its own profile only:
//! what is left to choose is which profiles share.

use crate::text;
use dice::Draw;
use hardware::{Hardware, Machine, Occupant};
use settings::{ProfileSpec, built_in_profiles};
use sim::{Options, Policy, Ticks, profile};
use std::{env, thread};
use topology::{Shape, Topology};

/// Sockets, LLCs of a node, cores of an LLC, threads of a core.
const HOSTS: [[u32; 4]; 6] =
    [[1, 1, 2, 2], [1, 2, 2, 1], [1, 2, 2, 2], [2, 1, 3, 2], [2, 2, 4, 2], [2, 4, 4, 2]];
/// Mixes on each host.
const MIXES: u64 = 200;
/// Profiles of one mix at most.
const KINDS: usize = 3;
/// Work is counted for so long after a second, in ns.
const COUNTED_NS: u64 = 2_000_000_000;
/// Cache and memory for each core, as of the default machine.
const LLC_KIB: u64 = 1408;
const BANDWIDTH_MB: u64 = 3300;

/// Worlds of each kind.
type Counts = [usize; KINDS];

#[derive(Clone, Debug)]
struct Mix {
    shape: [u32; 4],
    kinds: Vec<&'static ProfileSpec>,
    counts: Counts,
}

impl Mix {
    fn drawn(shape: [u32; 4], seed: u64) -> Mix {
        let mut draw = Draw::new(seed);
        let mut kinds: Vec<_> = built_in_profiles().iter().collect();
        while kinds.len() > KINDS {
            kinds.remove(draw.below(kinds.len() as u64) as usize);
        }
        let mut counts = [0; KINDS];
        for _ in 0..=draw.below(u64::from(shape.iter().product::<u32>())) {
            counts[draw.below(KINDS as u64) as usize] += 1;
        }
        Mix { shape, kinds, counts }
    }

    fn cores(&self) -> u64 {
        u64::from(self.shape[2])
    }

    fn name(&self) -> String {
        let of = |(kind, n): (&&ProfileSpec, &usize)| format!("{n} {}", kind.name);
        let kinds: Vec<String> = self.kinds.iter().zip(&self.counts).map(of).collect();
        let [sockets, llcs, cores, threads] = self.shape;
        format!("{sockets} x {llcs} x {cores} x {threads}: {}", kinds.join(", "))
    }

    fn text(&self) -> String {
        let [sockets, llcs, cores, threads] = self.shape;
        let mut out = format!(
            "duration = '{}ms'\nwarmup = '1s'\n[host]\nsockets = {sockets}\nllcs_per_node = \
            {llcs}\ncores_per_llc = {cores}\nthreads_per_core = {threads}\n[hardware]\nllc = \
            '{}KiB'\nbandwidth = '{}MB'\n",
            1000 + COUNTED_NS / 1_000_000,
            LLC_KIB * self.cores(),
            BANDWIDTH_MB * self.cores(),
        );
        for (i, kind) in self.kinds.iter().enumerate() {
            out += &format!(
                "[[vm]]\nname = 'k{i}'\ncount = {}\nvcpus = 1\nprofile = '{}'\nworkload = {{ kind \
                    = 'burn' }}\n",
                self.counts[i], kind.name
            );
        }
        out
    }

    /// Work under a policy, in ns.
    fn work(&self, policy: Policy, name: &str) -> u64 {
        let options = Options { policy, ..Options::default() };
        let out = text::outcome(name, &self.text(), &options).expect("it runs");
        out.result.vms.iter().map(|vm| vm.times.work).sum()
    }

    /// The most work of any placement, in ns.
    fn best(&self) -> u64 {
        let most = (self.shape[2] * self.shape[3]) as usize;
        let nothing = vec![None; self.index(&self.counts) + 1];
        let (mut host, mut llc) = (nothing.clone(), nothing.clone());
        host[0] = Some(0);
        for _ in 0..self.shape[0] * self.shape[1] {
            let mut next = nothing.clone();
            for used in up_to(self.counts, usize::MAX) {
                let Some(work) = host[self.index(&used)] else { continue };
                let left: Counts = std::array::from_fn(|k| self.counts[k] - used[k]);
                for counts in up_to(left, most) {
                    let more =
                        llc[self.index(&counts)].get_or_insert_with(|| self.best_of_llc(counts));
                    let sum: Counts = std::array::from_fn(|k| used[k] + counts[k]);
                    let best = &mut next[self.index(&sum)];
                    *best = (*best).max(Some(work + *more));
                }
            }
            host = next;
        }
        host[self.index(&self.counts)].expect("the worlds fit")
    }

    /// Number of what one may have of the mix.
    fn index(&self, of: &Counts) -> usize {
        let [_, b, c] = self.counts;
        (of[0] * (b + 1) + of[1]) * (c + 1) + of[2]
    }

    /// The most work of an LLC that has these worlds, in ns.
    fn best_of_llc(&self, counts: Counts) -> u64 {
        let (worlds, cores) = (counts.iter().sum::<usize>(), self.cores() as usize);
        let shared = 2 * worlds.saturating_sub(cores);
        let mut best = 0;
        for a in 0..=counts[0].min(shared) {
            for b in 0..=counts[1].min(shared - a) {
                if shared - a - b <= counts[2] {
                    best = best.max(self.work_of_llc(counts, [a, b, shared - a - b]));
                }
            }
        }
        best
    }

    /// Work of an LLC in which so many worlds of each kind share a core, in ns.
    fn work_of_llc(&self, counts: Counts, shared: Counts) -> u64 {
        let [_, _, cores_per_llc, threads] = self.shape;
        assert!(threads <= 2, "{threads} threads");
        let topology = Topology::regular(Shape {
            sockets: 1,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc,
            threads_per_core: threads,
        })
        .expect("a shape");
        let machine = Machine {
            private: 1024 * 1024,
            llc: LLC_KIB * self.cores() * 1024,
            from_llc_ns: 0,
            from_memory_ns: 0,
            from_node_ns: 0,
            migration_ns: 0,
            bandwidth: BANDWIDTH_MB * self.cores(),
        };
        // Those that share fill cores, thread by thread; the others have the first of the rest.
        let of = |counts: Counts| {
            let kinds = counts.into_iter().enumerate();
            kinds.flat_map(|(kind, n)| std::iter::repeat_n(kind, n)).collect::<Vec<usize>>()
        };
        let alone: Counts = std::array::from_fn(|k| counts[k] - shared[k]);
        let first = shared.iter().sum::<usize>() as u32;
        let places: Vec<(u32, usize)> = (0..)
            .zip(of(shared))
            .chain((0..).zip(of(alone)).map(|(i, kind)| (first + i * threads, kind)))
            .collect();
        let profiles = places.iter().map(|(_, kind)| profile(self.kinds[*kind])).collect();
        let mut hardware = Hardware::new(&topology, &machine, profiles);
        for (world, (pcpu, _)) in (0..).zip(&places) {
            hardware.occupy(*pcpu, Occupant::World(world));
        }
        while hardware.is_pressed() {
            let changed = hardware.renew();
            if changed.is_empty() {
                break;
            }
            changed.into_iter().for_each(|pcpu| hardware.apply(pcpu));
        }
        places.iter().map(|(pcpu, _)| hardware.pass(*pcpu, COUNTED_NS).work_ns).sum()
    }
}

/// All that one may have of these worlds, no more than `most` together.
fn up_to(left: Counts, most: usize) -> impl Iterator<Item = Counts> {
    (0..=left[0].min(most)).flat_map(move |a| {
        let most = most - a;
        (0..=left[1].min(most))
            .flat_map(move |b| (0..=left[2].min(most - b)).map(move |c| [a, b, c]))
    })
}

/// Work of each mix of a host in permille of the best, least first.
fn permilles(host: usize, policy: Policy) -> Vec<(u64, String)> {
    let one = |seed: u64| {
        let mix = Mix::drawn(HOSTS[host], seed);
        let work = mix.work(policy, &format!("placement-{host}"));
        (work * 1000 / mix.best(), format!("seed {seed}, {}", mix.name()))
    };
    let mut out: Vec<(u64, String)> = (0..MIXES).map(one).collect();
    out.sort_unstable();
    out
}

#[test]
fn placement_comes_within_3_percent_of_the_best_on_average() {
    // POLICY=esx-4.0: what another does.
    let policy: Policy =
        env::var("POLICY").map_or(Policy::Tandem, |p| p.parse().expect("a policy"));
    let hosts: Vec<_> =
        (0..HOSTS.len()).map(|host| thread::spawn(move || permilles(host, policy))).collect();
    let mut low = vec![];
    for (host, of) in hosts.into_iter().enumerate() {
        let of = of.join().expect("it has not panicked");
        let mean = of.iter().map(|o| o.0).sum::<u64>() / MIXES;
        println!("{policy}, host {host}: mean {mean}, worst {} ({})", of[0].0, of[0].1);
        // A world that streams from memory looks like any other: two of three on one LLC do half.
        if mean < 970 || of[0].0 < 730 {
            low.push(host);
        }
    }
    assert!(low.is_empty() || policy != Policy::Tandem, "hosts {low:?}");
}

/// A few more equal worlds than pCPUs, on hosts of many LLCs: what is due to each is within the
/// oracle's bound on lag. A busy pCPU that looked at one other LLC of all of them, whether worlds
/// waited there or not, found these so late that on five LLCs they were up to 7 % off.
#[test]
fn worlds_that_wait_in_one_of_many_llcs_are_found() {
    for (llcs, cores, width, more) in
        [(5, 1, 1, 1), (7, 1, 1, 1), (8, 1, 1, 3), (4, 2, 2, 1), (12, 1, 1, 3), (16, 1, 1, 1)]
    {
        let text = format!(
            "duration = '12s'\n[host]\nllcs_per_node = {llcs}\ncores_per_llc = {cores}\n\
             [[vm]]\nname = 'vm'\ncount = {}\nvcpus = {width}\n",
            llcs * cores / width + more
        );
        for ticks in [Ticks::Aligned, Ticks::Staggered] {
            text::silent(&format!("llcs-{llcs}"), &text, ticks);
        }
    }
}
