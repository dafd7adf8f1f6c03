//! Where each pCPU is in the host: as a trace has it, or by the counts of a document where these
//! leave one answer; else unknown.

use crate::model::Map;
use crate::told::Cast;
use units::PcpuId;
use views::{HostCounts, Where};

/// The map of a host.
///
/// A document has counts alone. In the simulator and in the lab pCPUs are numbered thread by
/// thread, core by core (docs/scenarios.md), so equal parts leave one answer. A live host may
/// number them otherwise.
pub(crate) fn map(place: Option<Where>, host: &HostCounts, cast: Option<&Cast>) -> Map {
    cast.and_then(|c| told(c, place.map(|_| host)))
        .or_else(|| counted(place, host))
        .unwrap_or(Map { source: "none", ..Map::default() })
}

fn told(cast: &Cast, host: Option<&HostCounts>) -> Option<Map> {
    let places: Vec<_> =
        (0..cast.pcpus).map(|p| cast.places.get(&PcpuId(p as u16))).collect::<Option<_>>()?;
    // Nodes of a socket follow each other, as firmware numbers them.
    let nodes_per_socket = host
        .filter(|h| h.sockets > 0 && h.nodes % h.sockets == 0)
        .map(|h| (h.nodes / h.sockets) as u16);
    let socket = |node: u16| nodes_per_socket.map_or(0, |n| node / n.max(1));
    let pcpus: Vec<[u16; 5]> =
        places.iter().map(|p| [socket(p.node), p.node, p.llc, p.core, p.smt]).collect();
    (!pcpus.is_empty()).then_some(Map {
        source: "trace",
        pcpus,
        sockets: nodes_per_socket.is_some(),
    })
}

fn counted(place: Option<Where>, h: &HostCounts) -> Option<Map> {
    if !matches!(place, Some(Where::Sim | Where::Lab)) {
        return None;
    }
    let levels = [h.sockets, h.nodes, h.llcs, h.cores, h.pcpus];
    let even = |w: &[usize]| w[0] > 0 && w[1] % w[0] == 0;
    if h.pcpus == 0 || !levels.windows(2).all(even) {
        return None;
    }
    let of = |p: usize, level: usize| (p / (h.pcpus / level)) as u16;
    let at = |p| {
        [
            of(p, h.sockets),
            of(p, h.nodes),
            of(p, h.llcs),
            of(p, h.cores),
            (p % (h.pcpus / h.cores)) as u16,
        ]
    };
    Some(Map { source: "counts", pcpus: (0..h.pcpus).map(at).collect(), sockets: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostCounts = HostCounts { pcpus: 8, cores: 4, llcs: 2, nodes: 2, sockets: 1 };

    #[test]
    fn equal_parts_of_a_simulated_host_have_one_place_each() {
        let m = map(Some(Where::Sim), &HOST, None);
        assert_eq!(
            (m.source, m.pcpus[0], m.pcpus[3], m.pcpus[6]),
            ("counts", [0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 1, 1, 3, 0])
        );
    }

    #[test]
    fn what_counts_do_not_tell_stays_unknown() {
        assert_eq!(map(Some(Where::Live), &HOST, None), Map { source: "none", ..Map::default() });
        assert_eq!(map(Some(Where::Sim), &HostCounts { cores: 3, ..HOST }, None).source, "none");
    }
}
