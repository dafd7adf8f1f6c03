//! What the daemon does for NUMA, in virtual time: a round of the planner every period, homes put
//! into force, memory that follows in steps.

use super::Engine;
use crate::clock::Fixed;
use crate::numa::{Numa, PAGE_STEPS, Seat};
use ::numa::ClientId;
use contract::Scheduler;
use std::collections::BTreeMap;
use units::{PcpuSet, Rate, Span, VmId};
use views::NumaClient;

/// A rate in thousandths of a pCPU.
fn thousandths(rate: Rate) -> u64 {
    rate.over(Span::from_ns(1_000))
}

impl<P: Scheduler> Engine<P> {
    /// The rounds begin, if there are any.
    pub(super) fn await_numa(&mut self) {
        if let Some(n) = self.numa.as_ref().filter(|n| n.is_managed()) {
            self.clock.arm(Fixed::Numa, n.period_ns);
        }
    }

    /// A VM is powered on: homes and memory, before its worlds come to life.
    pub(super) fn numa_starts(&mut self, vm: u32) {
        let now = self.kernel.now();
        let of = self.cast.vm(vm);
        let on = Seat { vm, worlds: of.worlds.clone(), allowed: of.allowed.clone() };
        let each: Vec<Option<PcpuSet>> =
            on.worlds.clone().map(|w| self.cast.spec(w).allowed.clone()).collect();
        let reserved = thousandths(of.resources.reservation);
        let memory = self.hardware.as_mut().and_then(|h| h.memory_mut());
        if let (Some(numa), Some(memory)) = (&mut self.numa, memory) {
            let decisions = {
                numa.planner.reserve(vm, of.vcpus, reserved);
                numa.start(now, &on, &each, memory)
            };
            for d in decisions {
                self.kernel.mark(|| format!("VM {vm}, client {}: {d}", d.client.part));
            }
        }
        self.say_llcs();
        self.say_memory(vm);
    }

    /// Says in the trace where the memory of a VM is.
    fn say_memory(&mut self, vm: u32) {
        let has = self.numa.as_ref().is_some_and(|numa| !numa.parts[vm as usize].is_empty());
        if !has || !self.kernel.is_recorded() {
            return;
        }
        let of = self.vm_memory(vm);
        let homes = of.homes.iter().fold(0, |bits, node| bits | 1 << (node & 63));
        self.kernel.say(|| trace::Kind::Memory {
            vm: VmId(vm as u16),
            bytes: of.bytes,
            homes,
            places: of.places,
            migrations: of.migrations,
        });
    }

    /// Marks what was decided on LLCs.
    fn say_llcs(&mut self) {
        let said = self.numa.as_mut().map_or(vec![], Numa::llcs_said);
        said.into_iter().for_each(|text| self.kernel.mark(|| text));
    }

    /// A VM is powered off.
    pub(super) fn numa_stops(&mut self, vm: u32) {
        self.account_vm(vm);
        let memory = self.hardware.as_mut().and_then(|h| h.memory_mut());
        if let (Some(numa), Some(memory)) = (&mut self.numa, memory) {
            numa.stop(vm, memory);
        }
        self.respeed_vm(vm);
    }

    /// pCPUs of a world's home, by its affinity, if one of them is on line.
    fn home_pcpus(&self, world: u32) -> Option<PcpuSet> {
        let home = self.numa.as_ref().and_then(|n| n.pcpus(world))?;
        let set = match &self.cast.spec(world).allowed {
            Some(allowed) => allowed.and(&home),
            None => home,
        };
        (!set.and(&self.kernel.online()).is_empty()).then_some(set)
    }

    /// pCPUs that a world may use: by its affinity, and within that by its home.
    pub(super) fn allowed(&self, world: u32) -> Option<PcpuSet> {
        self.home_pcpus(world).or_else(|| self.cast.spec(world).allowed.clone())
    }

    /// Puts the home of a world that is there into force; one that has no pCPU on line for it is
    /// none.
    pub(super) fn put_home(&mut self, world: u32) {
        let home = self.numa.as_ref().map(|n| n.home(world)).filter(|h| *h != 0);
        home.into_iter().for_each(|home| self.put(world, home));
    }

    fn put(&mut self, world: u32, home: u64) {
        let home = if self.home_pcpus(world).is_some() { home } else { 0 };
        let allowed = self.allowed(world);
        self.books.home(self.kernel.now(), world, allowed);
        self.cause = (None, 0);
        self.call(|p, k| p.home(k, world, home));
        self.settle(u32::MAX);
    }

    /// pCPUs have come or gone: homes are put into force anew.
    pub(super) fn renew_homes(&mut self) {
        let (now, online) = (self.kernel.now(), self.kernel.online());
        if let Some(numa) = self.numa.as_mut().filter(|n| n.is_managed()) {
            for d in numa.set_online(now, &online) {
                self.kernel.mark(|| format!("VM {}, client {}: {d}", d.client.vm, d.client.part));
            }
            self.say_llcs();
            let there = |w: &u32| self.kernel.is_there(*w);
            let worlds: Vec<u32> = self.cast.worlds().filter(there).collect();
            worlds.into_iter().for_each(|w| self.put_home(w));
        }
    }

    /// A round of the planner.
    pub(super) fn numa_round(&mut self) {
        let now = self.kernel.now();
        (0..self.kernel.pcpus()).for_each(|p| self.account(p));
        self.update();
        let (tree, vms) = self.planner.tree(&self.cast, false);
        let entitled = |wanted: &BTreeMap<u32, u64>| {
            let demands: Vec<u64> =
                vms.iter().map(|vm| wanted.get(vm).copied().unwrap_or(0)).collect();
            vms.iter().copied().zip(tree.divide(1000, &demands).leaves).collect()
        };
        let (books, cast, kernel) = (&self.books, &self.cast, &self.kernel);
        let times = |world: u32| {
            if !kernel.is_there(world) {
                return (0, 0);
            }
            let t = books.times(now, world, cast.output(world));
            // What a limit holds back wants no CPU.
            // Entitled is what is charged, so used is it as well.
            (t.run_ns + t.ready_ns.saturating_sub(t.limited_ns) + t.costop_ns, t.used_ns)
        };
        let memory = self.hardware.as_ref().and_then(|h| h.memory());
        let (Some(numa), Some(memory)) = (&mut self.numa, memory) else { return };
        let of = |vm: u32| Some((vm, self.policy.take_talks(vm)?));
        if let Some(counted) = self.cast.on().into_iter().map(of).collect::<Option<Vec<_>>>() {
            let of = |(of, by): (u32, Vec<(u32, u64)>)| by.into_iter().map(move |b| (b.0, of, b.1));
            numa.talks = counted.into_iter().flat_map(of).collect();
        }
        let moved = std::mem::take(&mut numa.moved);
        let seen = numa.seen(memory);
        numa.parts.iter_mut().flatten().for_each(|p| p.cold_moved = 0);
        let loads = numa.loads(now, memory, times, entitled);
        self.books.homes(now, &seen, moved);
        for vm in self.cast.on() {
            let of = self.cast.vm(vm);
            numa.planner.reserve(vm, of.vcpus, thousandths(of.resources.reservation));
        }
        numa.set_taken(tree.taken());
        let decisions = numa.planner.round(now, &loads);
        let left = numa.leave();
        numa.note(&decisions);
        numa.orders = numa.planner.memory_orders();
        numa.steps = PAGE_STEPS;
        let again = now + numa.period_ns;
        let worlds = |d: &::numa::Decision| {
            numa.parts[d.client.vm as usize][d.client.part as usize].worlds.clone()
        };
        let moved: Vec<u32> = decisions.iter().flat_map(worlds).collect();
        for d in &decisions {
            let cpu = [::numa::Reason::Imbalance, ::numa::Reason::Swap].contains(&d.reason);
            if cpu {
                self.books.home_changed(now, d);
            }
            self.kernel.mark(|| format!("VM {}, client {}: {d}", d.client.vm, d.client.part));
        }
        let Some(numa) = &mut self.numa else { return };
        let worlds = numa.llc_round(now);
        self.say_llcs();
        for world in left {
            if self.kernel.is_there(world) {
                self.put(world, 0);
            }
        }
        let moved = moved.into_iter().chain(worlds);
        for world in moved.collect::<std::collections::BTreeSet<_>>() {
            if self.kernel.is_there(world) {
                self.put_home(world);
            }
        }
        (0..self.cast.vms().len() as u32).for_each(|vm| self.say_memory(vm));
        self.clock.arm(Fixed::Numa, again);
        if !self.clock.is_armed(Fixed::Pages) {
            self.pages();
        }
    }

    /// A step of the memory that follows: what is moved now is under way until the next.
    pub(super) fn pages(&mut self) {
        let Some(numa) = &self.numa else { return };
        let (orders, step_ns) = (numa.orders.clone(), numa.period_ns / PAGE_STEPS);
        let mut carried: BTreeMap<u32, u64> = BTreeMap::new();
        for (i, order) in orders.iter().enumerate() {
            let vm = order.client.vm;
            self.account_vm(vm);
            let memory = self.hardware.as_mut().and_then(|h| h.memory_mut());
            let (Some(numa), Some(memory)) = (&mut self.numa, memory) else { return };
            let (most, cold) = numa.step(order);
            let part = &mut numa.parts[vm as usize][order.client.part as usize];
            let (moved, colds) = memory.move_to(part.area, order.to, most, cold);
            part.cold_moved += colds;
            numa.orders[i].cold -= colds.min(numa.orders[i].cold);
            for (from, bytes) in moved {
                part.moved += bytes;
                numa.moved += bytes;
                numa.orders[i].bytes -= bytes.min(numa.orders[i].bytes);
                *carried.entry(from).or_insert(0) += bytes;
                *carried.entry(order.to).or_insert(0) += bytes;
            }
            self.respeed_vm(vm);
        }
        if let Some(numa) = &mut self.numa {
            numa.steps = numa.steps.saturating_sub(1);
        }
        if let Some(memory) = self.hardware.as_mut().and_then(|h| h.memory_mut()) {
            for node in 0..memory.nodes().sizes.len() as u32 {
                let bytes = carried.get(&node).copied().unwrap_or(0);
                memory.moves(node, bytes * 1_000 / step_ns);
            }
        }
        self.hardware_later();
        if !carried.is_empty() {
            self.clock.arm(Fixed::Pages, self.kernel.now() + step_ns);
        }
    }

    /// What runs of a VM is accounted at the speed that held until now.
    fn account_vm(&mut self, vm: u32) {
        for pcpu in self.runs_on(vm) {
            self.account(pcpu);
        }
    }

    /// What runs of a VM goes as its memory is now.
    fn respeed_vm(&mut self, vm: u32) {
        for pcpu in self.runs_on(vm) {
            if let Some(hardware) = &mut self.hardware {
                hardware.apply(pcpu);
            }
            self.arm_done(pcpu);
        }
        self.hardware_later();
    }

    fn runs_on(&self, vm: u32) -> Vec<u32> {
        let worlds = &self.cast.vm(vm).worlds;
        (0..self.kernel.pcpus()).filter(|p| worlds.contains(&self.kernel.current(*p))).collect()
    }

    /// NUMA of a VM, a client each; nothing where memory is near everywhere.
    pub(super) fn numa_result(&self, vm: u32) -> Vec<NumaClient> {
        let memory = self.hardware.as_ref().and_then(|h| h.memory());
        let (Some(numa), Some(memory)) = (&self.numa, memory) else { return vec![] };
        let name = |of: ClientId| self.cast.vm(of.vm).name.clone();
        let client = |p: &crate::numa::Part| {
            let bytes = memory.pages(p.area);
            let home = numa.planner.home(p.id);
            NumaClient {
                vcpus: p.worlds.end - p.worlds.start,
                home,
                changes: p.changes.iter().map(|(r, n)| (r.name().to_owned(), *n)).collect(),
                moved_bytes: p.moved,
                decisions: numa.decisions(p),
                llcs: numa.llcs_of(p),
                bytes,
                notes: numa.notes(p),
                talks: numa.planner.talks(p.id).map(|(of, n)| (name(of), n)).collect(),
            }
        };
        numa.parts[vm as usize].iter().map(client).collect()
    }
}
