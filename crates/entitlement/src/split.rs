//! Solves the restricted case of `fluid` by splitting the host at minimum cuts; it only ever meets
//! whole units.
//!
//! Law (Fujishige 1980, Groenevelt 1991): let `K` be all that a group of VMs can use together and
//! `W` the sum of their weights. Ask for `x_i = w_i·K/W`. If that flows, it is the fair result. If
//! not, the VMs on the source's side of the minimum cut ask for more than their side `S` has; their
//! fair result is that of the side alone, and the others' that of the rest alone:
//! - the atoms in `S` are used up by the VMs of that side, so the rest never sees them;
//! - a class that the cut saturates belongs to a VM of `S` but uses pCPUs of the rest: its whole
//!   amount is `own` to the VM, and `fixed` demand on the rest;
//! - a VM whose own cap the cut saturates is of `S` with all of that cap `own`, and `fixed` demand
//!   on the rest, in whichever of its classes there is room.
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
    /// The most it gets, `own` and all.
    most: u64,
    /// Set and amount of each class still in the group.
    classes: Vec<(u32, u64)>,
}

/// Demand that comes first and is always met, within these sets and amounts.
struct Fixed {
    amount: u64,
    classes: Vec<(u32, u64)>,
}

/// VMs that share atoms with each other and with no other VM.
struct Group {
    vms: Vec<Member>,
    fixed: Vec<Fixed>,
    atoms: Vec<u32>,
    /// All that the VMs can use together.
    usable: u64,
}

const SOURCE: usize = 0;
const SINK: usize = 1;

/// `Fluid::divide` for demands with restricted classes, of which each gets so much at most.
pub(crate) fn divide(fluid: &Fluid, one: u64, demands: &[Demand], most: &[u64]) -> Vec<u64> {
    let weights: u128 = demands.iter().map(|d| u128::from(d.weight)).sum();
    assert!(
        weights < 1 << 64,
        "weights: cannot divide exactly: seen a sum of {weights}, allowed below 2^64"
    );
    let mut out = vec![0; demands.len()];
    let mut scratch = Scratch::new(fluid, one);
    let mut whole = Group::of(fluid, one, demands, most);
    whole.vms.retain(|vm| vm.weight > 0);
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

/// What can flow to the pCPUs that the demands' classes may use, of each so much at most.
pub(crate) fn flows(fluid: &Fluid, one: u64, demands: &[Demand], most: &[u64]) -> u64 {
    Scratch::new(fluid, one).usable(&Group::of(fluid, one, demands, most))
}

impl Group {
    /// All of a host; what can be used is not known yet.
    fn of(fluid: &Fluid, one: u64, demands: &[Demand], most: &[u64]) -> Group {
        let vm = |(index, d): (usize, &Demand)| {
            let classes = d.classes.iter().map(|c| (c.0, c.1.min(fluid.room(c.0, one))));
            let classes: Vec<(u32, u64)> = classes.filter(|c| c.1 > 0).collect();
            let member = Member { index, weight: d.weight, own: 0, most: most[index], classes };
            (member.wanted() > 0).then_some(member)
        };
        let vms = demands.iter().enumerate().filter_map(vm).collect();
        Group { vms, fixed: vec![], atoms: (0..fluid.atoms() as u32).collect(), usable: 0 }
    }
}

impl Member {
    fn wanted(&self) -> u128 {
        (u128::from(self.own) + sum(&self.classes)).min(u128::from(self.most))
    }

    /// Whether less than all that its classes want is the most it gets.
    fn is_capped(&self) -> bool {
        u128::from(self.own) + sum(&self.classes) > u128::from(self.most)
    }
}

/// What classes want together.
fn sum(classes: &[(u32, u64)]) -> u128 {
    classes.iter().map(|c| u128::from(c.1)).sum()
}

/// What is on the source's side of a cut, of VMs by position and of atoms and sets by id.
struct Side {
    vms: Vec<bool>,
    /// Whether a VM is there with what is behind its cap.
    within: Vec<bool>,
    fixed: Vec<bool>,
    sets: Vec<bool>,
    atoms: Vec<bool>,
}

struct Scratch<'a> {
    fluid: &'a Fluid,
    one: u64,
    /// Node of each set and atom in the graph under construction, 0 for none.
    set_node: Vec<usize>,
    atom_node: Vec<usize>,
    /// Node of what is behind each VM's cap, or of the VM.
    within: Vec<usize>,
    graph: Graph,
}

impl<'a> Scratch<'a> {
    fn new(fluid: &'a Fluid, one: u64) -> Scratch<'a> {
        Scratch {
            fluid,
            one,
            set_node: vec![0; fluid.sets.len()],
            atom_node: vec![0; fluid.atoms()],
            within: vec![],
            graph: Graph::default(),
        }
    }

    fn capacity(&self, atom: u32) -> u64 {
        self.fluid.capacity(atom, self.one)
    }

    /// Builds the graph of a group with all capacities times `scale`, VM `k` at node 2 + k asking
    /// for `ask(k)`, and pushes all that fits. Behind the VMs are the fixed demands, and the
    /// classes of VMs with a cap of their own.
    fn flow(&mut self, group: &Group, scale: u128, ask: impl Fn(&Member) -> u128) -> u128 {
        self.set_node.fill(0);
        self.atom_node.fill(0);
        self.within.clear();
        let mut nodes = 2 + group.vms.len() + group.fixed.len();
        for (k, vm) in group.vms.iter().enumerate() {
            self.within.push(if vm.is_capped() { nodes } else { 2 + k });
            nodes += usize::from(vm.is_capped());
        }
        for atom in &group.atoms {
            self.atom_node[*atom as usize] = nodes;
            nodes += 1;
        }
        let mut sets = vec![];
        let of_vms = group.vms.iter().flat_map(|vm| &vm.classes);
        for (set, _) in of_vms.chain(group.fixed.iter().flat_map(|f| &f.classes)) {
            if self.set_node[*set as usize] == 0 {
                self.set_node[*set as usize] = nodes;
                nodes += 1;
                sets.push(*set);
            }
        }
        let graph = &mut self.graph;
        graph.begin(nodes);
        for (k, vm) in group.vms.iter().enumerate() {
            let within = self.within[k];
            graph.edge(SOURCE, 2 + k, ask(vm));
            if vm.is_capped() {
                graph.edge(2 + k, within, u128::from(vm.most) * scale);
            }
            if vm.own > 0 {
                graph.edge(within, SINK, u128::from(vm.own) * scale);
            }
            for (set, amount) in &vm.classes {
                graph.edge(within, self.set_node[*set as usize], u128::from(*amount) * scale);
            }
        }
        for (f, fixed) in group.fixed.iter().enumerate() {
            let at = 2 + group.vms.len() + f;
            graph.edge(SOURCE, at, u128::from(fixed.amount) * scale);
            for (set, amount) in &fixed.classes {
                graph.edge(at, self.set_node[*set as usize], u128::from(*amount) * scale);
            }
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

    /// All that the VMs of a group without fixed demand can use together.
    fn usable(&mut self, group: &Group) -> u64 {
        self.flow(group, 1, Member::wanted) as u64
    }

    /// The side that asks for more than it has when all ask in proportion to their weights, if any.
    fn cut(&mut self, group: &Group) -> Option<Side> {
        let weight: u128 = group.vms.iter().map(|vm| u128::from(vm.weight)).sum();
        let fixed: u128 = group.fixed.iter().map(|f| u128::from(f.amount)).sum();
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
            within: reached(&self.within),
            fixed: (0..group.fixed.len()).map(|f| graph.reached(2 + group.vms.len() + f)).collect(),
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
        let alone = |class: &(u32, u64)| Fixed { amount: class.1, classes: vec![*class] };
        let parted = |classes: Vec<(u32, u64)>| -> (Vec<_>, Vec<_>) {
            classes.into_iter().partition(|c| side.sets[c.0 as usize])
        };
        let mut near_fixed: u128 = 0;
        for (f, fixed) in group.fixed.into_iter().enumerate() {
            let (inside, outside) = parted(fixed.classes);
            if side.fixed[f] {
                far.fixed.extend(outside.iter().map(alone));
                let amount = fixed.amount - sum(&outside) as u64;
                near_fixed += u128::from(amount);
                near.fixed.push(Fixed { amount, classes: inside });
            } else {
                far.fixed.push(Fixed { amount: fixed.amount, classes: outside });
            }
        }
        for (k, mut vm) in group.vms.into_iter().enumerate() {
            let (inside, outside) = parted(std::mem::take(&mut vm.classes));
            if side.vms[k] && side.within[k] {
                vm.own += sum(&outside) as u64;
                far.fixed.extend(outside.iter().map(alone));
                vm.classes = inside;
            } else if side.vms[k] {
                far.fixed.push(Fixed { amount: vm.most - vm.own, classes: outside });
                vm.own = vm.most;
            } else {
                vm.classes = outside;
            }
            if side.vms[k] {
                near_usable += u128::from(vm.own);
                near.vms.push(vm);
            } else {
                far.vms.push(vm);
            }
        }
        near.usable = (near_usable - near_fixed) as u64;
        far.usable = group.usable - near.usable;
        debug_assert!(!near.vms.is_empty() && !far.vms.is_empty());
        [near, far]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::PcpuSet;

    /// Of a VM's cap its classes get what there is room for: not a fixed part of it each.
    #[test]
    fn what_a_capped_vm_gets_is_where_others_leave_room() {
        let host = PcpuSet::first(2);
        let sets = ["0".parse().unwrap(), "1".parse().unwrap()];
        let fluid = Fluid::new(&host, &sets);
        let ask = |classes: &[(u32, u64)]| Demand { weight: 1, classes: classes.into() };
        let wide = ask(&[(0, 10), (1, 10)]);
        let [near, far] = [ask(&[(0, 10)]), ask(&[(1, 10)])];
        let none = u64::MAX;
        let two = [wide.clone(), near.clone()];
        assert_eq!(divide(&fluid, 10, &two, &[10, none]), [10, 10]);
        let three = [wide.clone(), near.clone(), far.clone()];
        assert_eq!(divide(&fluid, 10, &three, &[4, none, none]), [4, 8, 8]);
        // Where two compete nothing is left for it.
        let four = [wide, near, far.clone(), far];
        assert_eq!(divide(&fluid, 10, &four, &[4, none, none, none]), [4, 6, 5, 5]);
    }
}
