//! Solves the restricted case of `fluid` by splitting the host at minimum cuts; it only ever meets
//! whole units.
//!
//! Law (Fujishige 1980, Groenevelt 1991): let `K` be all that a group of VMs can use together and
//! `W` the sum of their weights. Ask for `x_i = w_i·K/W`. If that flows, it is the fair result. If
//! not, the VMs on the source's side of the minimum cut ask for more than their side `S` has; their
//! fair result is that of the side alone, and the others' that of the rest alone:
//! - the atoms in `S` are used up by the VMs of that side, so the rest never sees them;
//! - a class that the cut saturates belongs to a VM of `S` but uses pCPUs of the rest: its whole
//!   amount is `own` to the VM, and `fixed` demand on the rest.
//!
//! Both sides are the same problem with whole-number capacities, so no fraction is ever nested.
//! Each split makes two groups, so n VMs need at most 2n-1 flows, of shrinking size.
//!
//! Units: the caller's; a flow is scaled by `W`, so that `w_i·K/W` is whole too.

use crate::{
    Demand, Fluid,
    fill::by_weight,
    flow::{Graph, UNBOUNDED},
};

/// A VM in a group.
struct Member {
    index: usize,
    weight: u64,
    /// Amount that is its already, from classes cut off to another group.
    own: u64,
    /// Set and amount of each class still in the group.
    classes: Vec<(u32, u64)>,
}

/// VMs that share atoms with each other and with no other VM.
struct Group {
    vms: Vec<Member>,
    /// Set and amount of demand that comes first, always met.
    fixed: Vec<(u32, u64)>,
    atoms: Vec<u32>,
    /// All that the VMs can use together.
    usable: u64,
}

const SOURCE: usize = 0;
const SINK: usize = 1;

/// `Fluid::divide` for demands with restricted classes.
pub(crate) fn divide(fluid: &Fluid, one: u64, demands: &[Demand]) -> Vec<u64> {
    let weights: u128 = demands.iter().map(|d| u128::from(d.weight)).sum();
    assert!(
        weights < 1 << 64,
        "weights: cannot divide exactly: seen a sum of {weights}, allowed below 2^64"
    );
    let mut out = vec![0; demands.len()];
    let mut scratch = Scratch::new(fluid, one);
    let room =
        |set: u32| fluid.sets[set as usize].iter().map(|a| fluid.capacity(*a, one)).sum::<u64>();
    let vm = |(index, d): (usize, &Demand)| {
        let classes: Vec<(u32, u64)> =
            d.classes.iter().map(|c| (c.0, c.1.min(room(c.0)))).filter(|c| c.1 > 0).collect();
        (d.weight > 0 && !classes.is_empty()).then_some(Member {
            index,
            weight: d.weight,
            own: 0,
            classes,
        })
    };
    let vms: Vec<Member> = demands.iter().enumerate().filter_map(vm).collect();
    let mut whole =
        Group { vms, fixed: vec![], atoms: (0..fluid.atoms() as u32).collect(), usable: 0 };
    whole.usable = scratch.usable(&whole);
    let mut open = vec![whole];
    while let Some(group) = open.pop() {
        if group.vms.iter().map(Member::wanted).sum::<u128>() == u128::from(group.usable) {
            group.vms.iter().for_each(|vm| out[vm.index] = vm.wanted() as u64);
            continue;
        }
        match scratch.cut(&group) {
            Some(side) => open.extend(scratch.split(group, &side)),
            None => {
                let claims: Vec<(usize, u64)> =
                    group.vms.iter().map(|vm| (vm.index, vm.weight)).collect();
                by_weight(group.usable, &claims, |i, units| out[i] = units);
            }
        }
    }
    out
}

impl Member {
    fn wanted(&self) -> u128 {
        u128::from(self.own) + self.classes.iter().map(|c| u128::from(c.1)).sum::<u128>()
    }
}

/// What is on the source's side of a cut, of VMs by position and of atoms and sets by id.
struct Side {
    vms: Vec<bool>,
    sets: Vec<bool>,
    atoms: Vec<bool>,
}

struct Scratch<'a> {
    fluid: &'a Fluid,
    one: u64,
    /// Node of each set and atom in the graph under construction, 0 for none.
    set_node: Vec<usize>,
    atom_node: Vec<usize>,
    graph: Graph,
}

impl<'a> Scratch<'a> {
    fn new(fluid: &'a Fluid, one: u64) -> Scratch<'a> {
        Scratch {
            fluid,
            one,
            set_node: vec![0; fluid.sets.len()],
            atom_node: vec![0; fluid.atoms()],
            graph: Graph::default(),
        }
    }

    fn capacity(&self, atom: u32) -> u64 {
        self.fluid.capacity(atom, self.one)
    }

    /// Builds the graph of a group with all capacities times `scale`, VM `k` at node 2 + k asking
    /// for `ask(k)`, and pushes all that fits.
    fn flow(&mut self, group: &Group, scale: u128, ask: impl Fn(&Member) -> u128) -> u128 {
        self.set_node.fill(0);
        self.atom_node.fill(0);
        let mut nodes = 2 + group.vms.len();
        for atom in &group.atoms {
            self.atom_node[*atom as usize] = nodes;
            nodes += 1;
        }
        let mut sets = vec![];
        for (set, _) in group.vms.iter().flat_map(|vm| &vm.classes).chain(&group.fixed) {
            if self.set_node[*set as usize] == 0 {
                self.set_node[*set as usize] = nodes;
                nodes += 1;
                sets.push(*set);
            }
        }
        let graph = &mut self.graph;
        graph.begin(nodes);
        for (k, vm) in group.vms.iter().enumerate() {
            graph.edge(SOURCE, 2 + k, ask(vm));
            if vm.own > 0 {
                graph.edge(2 + k, SINK, u128::from(vm.own) * scale);
            }
            for (set, amount) in &vm.classes {
                graph.edge(2 + k, self.set_node[*set as usize], u128::from(*amount) * scale);
            }
        }
        for (set, amount) in &group.fixed {
            graph.edge(SOURCE, self.set_node[*set as usize], u128::from(*amount) * scale);
        }
        for set in sets {
            for atom in &self.fluid.sets[set as usize] {
                if self.atom_node[*atom as usize] != 0 {
                    graph.edge(
                        self.set_node[set as usize],
                        self.atom_node[*atom as usize],
                        UNBOUNDED,
                    );
                }
            }
        }
        for atom in &group.atoms {
            graph.edge(
                self.atom_node[*atom as usize],
                SINK,
                u128::from(self.fluid.capacity(*atom, self.one)) * scale,
            );
        }
        graph.run(SOURCE, SINK)
    }

    /// All that the VMs of a group can use together.
    fn usable(&mut self, group: &Group) -> u64 {
        self.flow(group, 1, Member::wanted) as u64
    }

    /// The side that asks for more than it has when all ask in proportion to their weights, if any.
    fn cut(&mut self, group: &Group) -> Option<Side> {
        let weight: u128 = group.vms.iter().map(|vm| u128::from(vm.weight)).sum();
        let fixed: u128 = group.fixed.iter().map(|f| u128::from(f.1)).sum();
        let usable = u128::from(group.usable);
        let flow = self.flow(group, weight, |vm| u128::from(vm.weight) * usable);
        if flow == (usable + fixed) * weight {
            return None;
        }
        let graph = &self.graph;
        let reached =
            |nodes: &[usize]| nodes.iter().map(|n| *n != 0 && graph.reached(*n)).collect();
        Some(Side {
            vms: (0..group.vms.len()).map(|k| graph.reached(2 + k)).collect(),
            sets: reached(&self.set_node),
            atoms: reached(&self.atom_node),
        })
    }

    /// The two groups of a cut, each complete in itself.
    fn split(&self, group: Group, side: &Side) -> [Group; 2] {
        let empty = || Group { vms: vec![], fixed: vec![], atoms: vec![], usable: 0 };
        let (mut near, mut far) = (empty(), empty());
        let mut near_usable: u128 = 0;
        for atom in group.atoms {
            if side.atoms[atom as usize] {
                near_usable += u128::from(self.capacity(atom));
                near.atoms.push(atom);
            } else {
                far.atoms.push(atom);
            }
        }
        let mut near_fixed: u128 = 0;
        for (set, amount) in group.fixed {
            if side.sets[set as usize] {
                near_fixed += u128::from(amount);
                near.fixed.push((set, amount));
            } else {
                far.fixed.push((set, amount));
            }
        }
        for (k, mut vm) in group.vms.into_iter().enumerate() {
            let (inside, outside) =
                vm.classes.iter().partition::<Vec<(u32, u64)>, _>(|c| side.sets[c.0 as usize]);
            if side.vms[k] {
                vm.own += outside.iter().map(|c| c.1).sum::<u64>();
                far.fixed.extend(outside);
                near_usable += u128::from(vm.own);
                vm.classes = inside;
                near.vms.push(vm);
            } else {
                vm.classes = outside;
                far.vms.push(vm);
            }
        }
        near.usable = (near_usable - near_fixed) as u64;
        far.usable = group.usable - near.usable;
        debug_assert!(!near.vms.is_empty() && !far.vms.is_empty());
        [near, far]
    }
}
