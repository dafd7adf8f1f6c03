//! A host that divides the CPU of each node by shares, and whose memory moves by the planner's
//! orders: what tests of the planner run it against.

use numa::{Client, ClientId, Decision, Knobs, Load, Node, Planner, Reason};

/// Bytes of a GiB.
pub const GIB: u64 = 1 << 30;
/// Time between two rounds, in ns.
pub const ROUND_NS: u64 = 2_000_000_000;

/// The only client of a VM.
pub fn id(vm: u32) -> ClientId {
    ClientId { vm, part: 0 }
}

/// A client, with what it does.
pub struct Vm {
    pub id: ClientId,
    pub vcpus: u32,
    /// What it wants now, in thousandths of a pCPU.
    pub wants: u64,
    /// Bytes by node.
    pub memory: Vec<u64>,
    pub talks: Vec<(ClientId, u64)>,
    /// What it had in all rounds, in thousandths of a pCPU times rounds.
    pub used: u64,
}

/// The host, its clients and the planner of their homes.
pub struct Host {
    pub planner: Planner,
    pub nodes: Vec<Node>,
    pub vms: Vec<Vm>,
    pub rounds: u64,
    /// Bytes that were moved.
    pub moved: u64,
    pub decisions: Vec<Decision>,
    pub loads: Vec<Load>,
}

impl Host {
    /// A host of such nodes without VMs.
    pub fn new(nodes: usize, cores: u32, knobs: Knobs) -> Host {
        let nodes = vec![Node { cores, memory: 64 * GIB }; nodes];
        Host {
            planner: Planner::new(nodes.clone(), knobs),
            nodes,
            vms: vec![],
            rounds: 0,
            moved: 0,
            decisions: vec![],
            loads: vec![],
        }
    }

    /// A VM with its memory at home, which wants all of its vCPUs.
    pub fn start(&mut self, vm: u32, vcpus: u32) -> u32 {
        self.start_parts(vm, &[vcpus]);
        self.home(vm)
    }

    /// The same of a wide VM, by the vCPUs of its parts.
    pub fn start_parts(&mut self, vm: u32, parts: &[u32]) {
        let client = |(part, vcpus): (u32, &u32)| Client {
            id: ClientId { vm, part },
            vcpus: *vcpus,
            memory: GIB,
            nodes: 0,
            siblings_most: 0,
        };
        let clients: Vec<Client> = (0..).zip(parts).map(client).collect();
        let placed = self.planner.add(self.rounds * ROUND_NS, &clients);
        assert_eq!(placed.len(), parts.len());
        for c in &clients {
            let mut memory = vec![0; self.nodes.len()];
            memory[self.planner.home(c.id).unwrap() as usize] = c.memory;
            let wants = 1000 * u64::from(c.vcpus);
            self.vms.push(Vm { id: c.id, vcpus: c.vcpus, wants, memory, talks: vec![], used: 0 });
        }
        self.decisions.extend(placed);
    }

    /// Home of a VM of one client.
    pub fn home(&self, vm: u32) -> u32 {
        self.planner.home(id(vm)).expect("it is there")
    }

    /// A VM of one client.
    pub fn vm(&mut self, vm: u32) -> &mut Vm {
        self.vms.iter_mut().find(|v| v.id == id(vm)).expect("it is there")
    }

    /// Equal shares a vCPU, up to what each wants.
    pub fn divide(capacity: u64, wants: &[(u64, u64)]) -> Vec<u64> {
        let mut got = vec![0; wants.len()];
        for _ in 0..50 {
            let left = capacity - got.iter().sum::<u64>();
            let open: Vec<usize> = (0..wants.len()).filter(|i| got[*i] < wants[*i].0).collect();
            let weights: u64 = open.iter().map(|i| wants[*i].1).sum();
            for i in open {
                got[i] += (left * wants[i].1 / weights).min(wants[i].0 - got[i]);
            }
        }
        got
    }

    /// What the clients do until the next round.
    pub fn feed(&mut self) {
        let all: Vec<(u64, u64)> = self.vms.iter().map(|v| (v.wants, u64::from(v.vcpus))).collect();
        let capacity = self.nodes.iter().map(|n| 1000 * u64::from(n.cores)).sum();
        let entitled = Host::divide(capacity, &all);
        let mut used = vec![0; self.vms.len()];
        for (n, node) in (0..).zip(&self.nodes) {
            let here: Vec<usize> = (0..self.vms.len())
                .filter(|i| self.planner.home(self.vms[*i].id) == Some(n))
                .collect();
            let wants: Vec<(u64, u64)> = here.iter().map(|i| all[*i]).collect();
            let got = Host::divide(1000 * u64::from(node.cores), &wants);
            here.iter().zip(got).for_each(|(i, got)| used[*i] = got);
        }
        // One without a home has what it is entitled to.
        for (i, v) in self.vms.iter().enumerate() {
            if self.planner.home(v.id).is_none() {
                used[i] = entitled[i];
            }
        }
        self.loads = (0..self.vms.len())
            .map(|i| {
                let v = &mut self.vms[i];
                v.used += used[i];
                Load {
                    id: v.id,
                    wanted: v.wants,
                    used: used[i],
                    entitled: entitled[i],
                    memory: v.memory.clone(),
                    talks: v.talks.clone(),
                }
            })
            .collect();
    }

    /// A round, and the memory that moves by it.
    pub fn round(&mut self) -> Vec<Decision> {
        self.rounds += 1;
        self.feed();
        let out = self.planner.round(self.rounds * ROUND_NS, &self.loads);
        self.decisions.extend(&out);
        for order in self.planner.memory_orders() {
            let v = self.vms.iter_mut().find(|v| v.id == order.client).unwrap();
            let mut left = order.cold;
            for n in 0..v.memory.len() {
                if n as u32 != order.to {
                    let bytes = v.memory[n].min(left);
                    v.memory[n] -= bytes;
                    v.memory[order.to as usize] += bytes;
                    self.moved += bytes;
                    left -= bytes;
                }
            }
        }
        out
    }

    /// So many rounds.
    pub fn rounds(&mut self, n: u64) {
        (0..n).for_each(|_| _ = self.round());
    }

    /// Changes for a reason.
    pub fn count(&self, reason: Reason) -> usize {
        self.decisions.iter().filter(|d| d.reason == reason).count()
    }

    /// What each VM had.
    pub fn used(&self) -> Vec<u64> {
        self.vms.iter().map(|v| v.used).collect()
    }
}
