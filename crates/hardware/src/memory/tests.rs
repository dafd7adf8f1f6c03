//! What worlds lose to memory in other nodes, and to nodes and links that many want.

use super::*;
use crate::{Hardware, Machine, Occupant, Profile};
use topology::{Place, Topology};

const GIB: u64 = 1 << 30;

fn memory(nodes: usize) -> Memory {
    let row = |i: usize| (0..nodes).map(|j| if i == j { 10 } else { 16 }).collect();
    let distances = (0..nodes).map(row).collect();
    let (sizes, bandwidth) = (vec![4 * GIB; nodes], vec![30_000; nodes]);
    Memory::new(NodeMemory { sizes, distances, bandwidth, link: 10_000 }, 16)
}

#[test]
fn a_world_is_slowed_by_the_part_of_its_accesses_that_are_remote() {
    let mut m = memory(2);
    let a = m.area(0);
    m.used_by(1, vec![(a, 1000)]);
    assert_eq!(m.allocate(a, 2 * GIB, 0, &[0]), 0);
    assert_eq!(m.speed(1, 0, 500), Left { fed: ONE, near: ONE });
    assert_eq!((m.remote_permille(1, 0), m.remote_permille(1, 1)), (0, 1000));
    // m = 0.5, r = 1.6: 1 ÷ 1.3.
    assert!(m.speed(1, 1, 500).near.abs_diff(ONE * 10 / 13) <= 2);
    assert_eq!(m.move_to(a, 1, GIB, GIB), (vec![(0, GIB)], GIB));
    // Half is remote: 1 ÷ 1.15 in both nodes.
    for node in 0..2 {
        assert!(m.speed(1, node, 500).near.abs_diff(ONE * 100 / 115) <= 2);
    }
    assert_eq!((m.free(0), m.free(1)), (3 * GIB, 3 * GIB));
    m.release(a);
    assert_eq!((m.free(0), m.far[1][1]), (4 * GIB, Far::NONE));
}

#[test]
fn hot_pages_come_first_and_count_for_their_accesses() {
    let mut m = memory(2);
    let a = m.area(800);
    m.used_by(1, vec![(a, 1000)]);
    m.allocate(a, 2 * GIB, GIB / 4, &[0]);
    assert_eq!(m.move_to(a, 1, GIB / 4, GIB), (vec![(0, GIB / 4)], 0));
    assert_eq!(m.remote_permille(1, 1), 200, "the hot ones are there");
    assert_eq!(m.move_to(a, 1, GIB, 0), (vec![], 0), "the others may not follow yet");
    assert_eq!(m.move_to(a, 1, GIB, GIB / 2), (vec![(0, GIB / 2)], GIB / 2));
}

#[test]
fn what_does_not_fit_goes_to_the_next_node_and_no_byte_is_lost() {
    let mut m = memory(2);
    let (a, b) = (m.area(0), m.area(500));
    assert_eq!(m.allocate(a, 3 * GIB, 0, &[0, 1]), 0);
    assert_eq!(m.allocate(b, 3 * GIB, GIB, &[0, 1]), 0);
    assert_eq!((m.pages(a), m.pages(b)), (vec![3 * GIB, 0], vec![GIB, 2 * GIB]));
    assert_eq!(m.move_to(b, 0, GIB, GIB), (vec![], 0), "it is full");
    assert_eq!(m.allocate(a, 3 * GIB, 0, &[0, 1]), GIB, "more than there is");
    let all: u64 = [a, b].iter().flat_map(|x| m.pages(*x)).sum();
    assert_eq!(all, 8 * GIB);
}

/// Memory with an area in each of two nodes, and so many worlds that run in node 0: their
/// accesses to each node in permille, what they want and how long they wait for memory.
fn running(of: &[(u64, u64, u64)], moving: u64) -> (Memory, Vec<(u32, u32, u64, u64)>) {
    let mut m = memory(2);
    let areas = [m.area(0), m.area(0)];
    m.allocate(areas[0], GIB, 0, &[0]);
    m.allocate(areas[1], GIB, 0, &[1]);
    m.moves(0, moving);
    let runs: Vec<_> = (0..).zip(of).map(|(w, (_, want, waits))| (w, 0, *want, *waits)).collect();
    for ((world, _, want, _), (own, ..)) in runs.iter().zip(of) {
        m.used_by(*world, vec![(areas[0], *own), (areas[1], 1000 - own)]);
        m.starts(*world, 0, *want);
    }
    m.renew(&runs);
    (m, runs)
}

/// What the worlds get of node 0's memory, of node 1's, and by node 0's link.
fn got(m: &Memory, runs: &[(u32, u32, u64, u64)]) -> [u64; 3] {
    let mut out = [0; 3];
    for (world, node, want, waits) in runs {
        let left = m.speed(*world, *node, *waits);
        for (way, part) in m.ways(*world, *node) {
            out[way.min(2)] += want * (left.fed * left.near / ONE) / ONE * part / 1000;
        }
    }
    out
}

#[test]
fn the_way_to_other_nodes_carries_no_more_than_it_does() {
    for (worlds, moving) in [(2, 0), (3, 0), (5, 0), (3, 4_000), (8, 6_000)] {
        let (m, runs) = running(&vec![(0, 4_000, 500); worlds], moving);
        let (sum, link) = (got(&m, &runs)[2], 10_000 - moving);
        assert!(sum <= link, "{worlds} {moving}: {sum}");
        // Without others' accesses a world goes at 1 ÷ 1.3.
        if 4_000 * worlds as u64 * 10 / 13 > link {
            assert!(sum * 100 >= link * 98, "{worlds} {moving}: {sum} of {link}");
        } else {
            assert_eq!(m.longer, [0; 4]);
        }
    }
}

#[test]
fn a_nodes_memory_gives_no_more_than_it_does_and_the_others_are_as_fast_as_before() {
    // Three ask node 0 for 36,000 where it gives 30,000, and one asks node 1.
    let near = (1000, 12_000, 700);
    let (m, runs) = running(&[near, near, near, (0, 1_000, 350)], 0);
    let [own, other, _] = got(&m, &runs);
    assert!((29_600..=30_000).contains(&own), "{own}");
    // A thousand by distance alone.
    assert_eq!((m.speed(3, 0, 350).fed, other), (ONE, 1_000 * 100 / 121));
    assert_eq!(m.speed(0, 0, 700).near, ONE);
    // Divided among both nodes they get what they want of each, and the link is full: what
    // crosses it is half.
    let half = (500, 6_000, 350);
    let (m, runs) = running(&[half; 3], 0);
    let [own, other, link] = got(&m, &runs);
    assert_eq!((own, m.longer), (other, vec![0; 4]));
    assert!((8_000..=9_000).contains(&own) && link == other, "{own} {link}");
    // Five of 12,000 each: 30,000 of each node, but 10,000 by the link.
    let (m, runs) = running(&[(500, 12_000, 350); 5], 0);
    let [own, other, link] = got(&m, &runs);
    assert!((9_800..=10_000).contains(&link), "{link}");
    assert_eq!((own, other, &m.longer[..2]), (link, link, &[0, 0][..]));
    // Pages that are moved take of it.
    let (m, runs) = running(&[near, near], 9_000);
    let own = got(&m, &runs)[0];
    assert!((20_700..=21_000).contains(&own), "{own}");
}

#[test]
fn a_way_is_free_again_when_those_that_want_it_have_gone() {
    let (mut m, runs) = running(&[(1000, 12_000, 700); 4], 0);
    assert!(m.longer[0] > 0);
    runs.iter().for_each(|(world, ..)| m.stops(*world));
    assert!(m.is_changed());
    m.renew(&[]);
    assert_eq!((m.longer, m.wanted), (vec![0; 4], vec![0; 4]));
}

#[test]
fn worlds_that_do_not_wait_for_memory_get_no_more_than_there_is_either() {
    // One of 350 permille beside three that say that they never wait.
    let burst = (1000, 12_000, 0);
    let (m, runs) = running(&[burst, burst, burst, (1000, 1_000, 350)], 0);
    let own = got(&m, &runs)[0];
    assert!((29_400..=30_000).contains(&own), "{own}");
    assert!(m.speed(3, 0, 350).fed > ONE * 3 / 4, "{:?}", m.speed(3, 0, 350));
}

#[test]
fn ways_that_press_each_other_are_all_kept() {
    let mut dice = dice::Stream::new(3, "bandwidth");
    let (mut full, mut m) = (0, memory(4));
    let areas: Vec<u32> = (0..4).map(|_| m.area(0)).collect();
    (0..4).for_each(|n| _ = m.allocate(areas[n as usize], GIB, 0, &[n]));
    let most = |way: usize| if way < 4 { 30_000 } else { 10_000 };
    // Each host goes on from the last one's.
    for _ in 0..2_000 {
        (0..16).for_each(|world| m.stops(world));
        let mut runs = vec![];
        for world in 0..1 + dice.below(16) as u32 {
            let (node, want) = (dice.below(4) as u32, 1 + dice.below(12_000));
            let own = dice.below(1001);
            let away = areas[dice.below(4) as usize];
            m.used_by(world, vec![(areas[node as usize], own), (away, 1000 - own)]);
            m.starts(world, node, want);
            runs.push((world, node, want, dice.below(1000)));
        }
        m.renew(&runs);
        let mut sums = [0; 8];
        for (world, node, want, waits) in &runs {
            let left = m.speed(*world, *node, *waits);
            for (way, part) in m.ways(*world, *node) {
                sums[way] += want * (left.fed * left.near / ONE) / ONE * part / 1000;
            }
        }
        for (way, sum) in sums.into_iter().enumerate() {
            // Newton's steps end, and others are rounded after it.
            assert!(sum * 1000 <= most(way) * 1005, "{way}: {sum}; {runs:?}");
            // A way on which accesses take longer is used to the full, but for a 64th.
            if m.longer[way] > 0 {
                assert!(sum * 1000 >= most(way) * 950, "{way}: {sum}; {runs:?}");
                full += 1;
            }
        }
    }
    assert!(full > 1_000, "{full}");
}

/// A node of two cores of two threads that gives so much, with two worlds of this profile.
fn node_of_two(bandwidth: u64, profile: Profile) -> Hardware {
    let place = |id: u32| Place { socket: 0, node: 0, llc: 0, core: id / 2, thread: id % 2 };
    let topology = Topology::from_places((0..4).map(place).collect()).expect("a host");
    let machine = Machine {
        private: 1 << 20,
        llc: 1 << 20,
        from_llc_ns: 0,
        from_memory_ns: 0,
        from_node_ns: 0,
        migration_ns: 0,
        bandwidth: 1_000,
    };
    let (sizes, distances) = (vec![GIB], vec![vec![10]]);
    let of = NodeMemory { sizes, distances, bandwidth: vec![bandwidth], link: 1 };
    Hardware::new(&topology, &machine, vec![profile; 3]).with_memory(Some(Memory::new(of, 3)))
}

/// Speeds of the worlds of pCPUs 0 and 2, in permille, once all is as what runs makes it.
fn speeds(hardware: &mut Hardware) -> [u64; 2] {
    while hardware.is_pressed() {
        hardware.renew().into_iter().for_each(|pcpu| hardware.apply(pcpu));
    }
    [0, 2].map(|pcpu| hardware.pass(pcpu, 1_000_000).work_ns / 1_000)
}

const STREAM: Profile = Profile {
    smt_permille: 1000,
    set: 0,
    uncached_permille: 1000,
    bandwidth: 12_000,
    uncached_bandwidth: 12_000,
    memory_permille: 500,
};

#[test]
fn worlds_that_do_not_fit_into_their_llc_want_more_of_their_node() {
    // A quarter of each set is cached, so each wants 15,250 and goes at 625 permille.
    let set = Profile {
        set: 2 << 20,
        uncached_permille: 500,
        bandwidth: 1_000,
        uncached_bandwidth: 20_000,
        ..STREAM
    };
    for (bandwidth, least, most) in [(30_000, 624, 625), (10_000, 320, 328)] {
        let mut hardware = node_of_two(bandwidth, set);
        [0, 2].into_iter().for_each(|p| hardware.occupy(p, Occupant::World(p / 2 + 1)));
        let of = speeds(&mut hardware);
        assert!(of.iter().all(|s| (least..=most).contains(s)), "{bandwidth}: {of:?}");
    }
}

#[test]
fn a_world_whose_twin_has_gone_wants_more_of_its_node() {
    let mut hardware = node_of_two(20_000, STREAM);
    [0, 2].into_iter().for_each(|p| hardware.occupy(p, Occupant::World(p / 2 + 1)));
    hardware.occupy(1, Occupant::Other);
    assert_eq!(speeds(&mut hardware), [500, 1000], "18,000 of 20,000");
    hardware.occupy(1, Occupant::Idle);
    let of = speeds(&mut hardware);
    assert!(of.iter().all(|s| (820..=833).contains(s)), "10,000 of 12,000 each: {of:?}");
}
