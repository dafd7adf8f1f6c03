//! The clients that a VM is divided into, and whose memory each of them uses.

use super::{Part, Wants};
use vnuma::{Case, Vcpus};

/// The clients of a VM on nodes with room for `room` vCPUs of it, each with its virtual node (VS51
/// "vNUMA: Challenges and Best Practices"). A guest that knows of no nodes has one.
pub(super) fn clients(vcpus: u32, w: Wants, room: u32) -> Vec<(u32, Vcpus)> {
    let size = match (w.vnuma, w.virtual_node) {
        (true, 0) => room,
        (true, size) => size,
        (false, _) => vcpus,
    };
    let mut first = 0;
    let node = |count: u32| {
        first += count;
        Vcpus { first: first - count, count }
    };
    let nodes: Vec<Vcpus> = vnuma::balanced(vcpus, size).into_iter().map(node).collect();
    let (case, parts) = vnuma::clients(&nodes, room);
    let of = |part: Vcpus| {
        let inside = nodes.iter().position(|n| n.meets(part)).unwrap_or(0);
        let at = if case == Case::Irreconcilable { 0 } else { inside as u32 };
        (at, part)
    };
    parts.into_iter().map(of).collect()
}

/// Areas that the worlds of a client use, and for how many of their accesses each: those of their
/// virtual node above all; where there is one for all clients, all alike.
pub(super) fn areas(parts: &[Part], own: &Part, w: Wants) -> Vec<(u32, u64)> {
    let near = |p: &&Part| p.virtual_node == own.virtual_node;
    let all: u64 = parts.iter().map(|p| p.bytes).sum();
    let of_node: u64 = parts.iter().filter(near).map(|p| p.bytes).sum();
    let shared = if of_node == all { 1000 } else { w.shared_permille };
    let part = |p: &Part| {
        let of_all = shared * p.bytes / all.max(1);
        let of_own = (1000 - shared) * p.bytes / of_node.max(1);
        (p.area, of_all + if near(&p) { of_own } else { 0 })
    };
    parts.iter().map(part).collect()
}
