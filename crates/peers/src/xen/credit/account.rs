//! Credits: how many each active domain is given, and what comes of having none. It queues nothing
//! but what it parks.
//!
//! *Law*: each 30 ms every pCPU brings 300 credits, and a negative balance of the last time as many
//! more. Of them a domain gets a part by weight times active vCPUs, at most 300 for each of these
//! (more while the balance is negative) and at most its cap; what is above that goes to the domains
//! after it. A domain that was cut when others could use more comes first the next time. Its active
//! vCPUs get equal parts, rounded up.
//! - Below 0 a vCPU is OVER, else UNDER. It has -300 at least: what it used beyond is lost.
//! - Above 300 it is active no more, and keeps half. It is active again when a tick finds it
//!   running.
//! - One of a capped domain is parked below minus its part of the cap, until it has 0 again.
//!
//! *Source*: csched_acct.
//!
//! *Example*: weights of 128 and 896, 8 vCPUs each, 8 pCPUs: 2,400 credits, of which 300 and 2,100
//! are given: 38 (37.5) and 263 a vCPU. One that ran for 30 ms on its 38 is at -262; one more run
//! and it is at -300 instead of -524. That is why 7.00 becomes some 6.

use super::{Credit, Priority, TSLICE_NS};
use contract::{Callback, Hold};

/// Credits of a ms of CPU time.
const PER_MS: u64 = 10;
/// Credits of a pCPU between two accountings, and the most and the least of a vCPU.
const PER_SLICE: i64 = (TSLICE_NS / 1_000_000 * PER_MS) as i64;

/// An active domain, to be given credits.
#[derive(Clone, Copy, Debug)]
struct Claim {
    weight: i128,
    vcpus: i128,
    cap: i128,
}

impl Claim {
    /// Most credits of the domain, where `lacks` credits are missing in all.
    fn peak(self, lacks: i128, total: i128) -> i128 {
        let part = lacks * self.weight * self.vcpus;
        let peak = self.vcpus * i128::from(PER_SLICE) + up(part, total);
        if self.cap > 0 { peak.min(self.cap_credits()) } else { peak }
    }

    /// Credits that its cap is worth between two accountings.
    fn cap_credits(self) -> i128 {
        up(self.cap * i128::from(PER_SLICE), 100)
    }
}

/// A quotient, rounded up.
fn up(n: i128, by: i128) -> i128 {
    (n + by - 1) / by
}

/// What each of these domains gets a vCPU, and which of them come first the next time.
fn divide(claims: &[Claim], pcpus: i64, balance: i64) -> Vec<(i64, bool)> {
    let total: i128 = claims.iter().map(|c| c.weight * c.vcpus).sum();
    let lacks = i128::from((-balance).max(0));
    let mut credits = i128::from(pcpus * PER_SLICE) + lacks;
    let (mut left, mut wanted) = (total, false);
    let give = |claim: &Claim| {
        left -= claim.weight * claim.vcpus;
        let peak = claim.peak(lacks, total);
        let fair = up(credits * claim.weight * claim.vcpus, total);
        let cut = fair >= peak;
        if !cut {
            wanted = true;
        } else if left > 0 {
            credits += up((fair - peak) * total, left);
        }
        (up(fair.min(peak), claim.vcpus) as i64, cut && wanted)
    };
    claims.iter().map(give).collect()
}

impl Credit {
    /// Takes the credits that the world on a pCPU has used since the last time.
    pub(super) fn burn(&mut self, pcpu: u32, now_ns: u64) {
        let ran = self.machine.charge(pcpu, now_ns);
        let account = &mut self.worlds[self.machine.current(pcpu) as usize];
        let used = ran * PER_MS + account.residual;
        account.residual = used % 1_000_000;
        account.credit -= (used / 1_000_000) as i64;
    }

    /// A world is given credits from now on.
    pub(super) fn activate(&mut self, world: u32) {
        let account = &mut self.worlds[world as usize];
        account.active = true;
        let vm = account.vm;
        self.active_worlds[vm as usize].insert(0, world);
        if self.active_worlds[vm as usize].len() == 1 {
            self.active.insert(0, vm);
        }
    }

    /// A world is given no more credits.
    pub(super) fn deactivate(&mut self, world: u32) {
        let account = &mut self.worlds[world as usize];
        account.active = false;
        let vm = account.vm;
        self.active_worlds[vm as usize].retain(|w| *w != world);
        if self.active_worlds[vm as usize].is_empty() {
            self.active.retain(|v| *v != vm);
        }
    }

    fn claim(&self, vm: u32) -> Claim {
        let domain = self.domains.of(vm);
        let vcpus = self.active_worlds[vm as usize].len() as i128;
        Claim { weight: i128::from(domain.weight), vcpus, cap: i128::from(domain.cap) }
    }

    /// Gives credits to all that are active.
    pub(super) fn account(&mut self, k: &mut Callback<'_>) {
        let order = self.active.clone();
        let claims: Vec<Claim> = order.iter().map(|vm| self.claim(*vm)).collect();
        let pcpus = (0..self.machine.len()).filter(|p| self.machine.is_online(*p)).count() as i64;
        let parts = divide(&claims, pcpus, self.balance);
        self.balance = 0;
        for ((vm, claim), (each, first)) in order.into_iter().zip(claims).zip(parts) {
            if first {
                self.active.retain(|v| *v != vm);
                self.active.insert(0, vm);
            }
            let cap = up(claim.cap_credits(), claim.vcpus) as i64;
            for world in self.active_worlds[vm as usize].clone() {
                self.worlds[world as usize].credit += each;
                self.balance += self.judge(k, world, (claim.cap > 0).then_some(cap));
            }
        }
        self.epoch += 1;
    }

    /// Priority of a world by its credit, which is returned, and whether it is parked, where it may
    /// use no more than `cap`.
    fn judge(&mut self, k: &mut Callback<'_>, world: u32, cap: Option<i64>) -> i64 {
        let account = &mut self.worlds[world as usize];
        if account.credit < 0 {
            account.priority = Priority::Over;
            let parks = cap.is_some_and(|cap| account.credit < -cap) && !account.parked;
            account.credit = account.credit.max(-PER_SLICE);
            if parks {
                self.park(k, world);
            }
        } else {
            account.priority = Priority::Under;
            let stops = account.credit > PER_SLICE;
            if stops {
                account.credit /= 2;
            }
            if account.parked {
                self.unpark(k, world);
            }
            if stops {
                self.deactivate(world);
            }
        }
        self.worlds[world as usize].credit
    }

    /// A world runs no more until it is unparked.
    fn park(&mut self, k: &mut Callback<'_>, world: u32) {
        let account = &mut self.worlds[world as usize];
        account.parked = true;
        let at = account.at;
        if account.queued {
            account.waits_parked = true;
            self.remove(world);
            k.kernel.hold(world, Hold::Limited);
        } else if self.machine.current(at) == world {
            self.machine.reschedule(k, at);
        }
    }

    /// A world may run again; it is not boosted.
    fn unpark(&mut self, k: &mut Callback<'_>, world: u32) {
        let account = &mut self.worlds[world as usize];
        account.parked = false;
        if std::mem::take(&mut account.waits_parked) {
            k.kernel.hold(world, Hold::None);
            if !self.machine.may_run(k.task(world), self.worlds[world as usize].at) {
                self.worlds[world as usize].at = self.pick(k, world, true);
            }
            self.wakes(k, world);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(weight: i128, vcpus: i128, cap: i128) -> Claim {
        Claim { weight, vcpus, cap }
    }

    #[test]
    fn credits_go_by_weight_and_active_vcpus_rounded_up() {
        let two = [claim(128_000, 8, 0), claim(896_000, 8, 0)];
        assert_eq!(divide(&two, 8, 0), [(38, false), (263, false)]);
        // 400 credits that were lost come back, 50 and 350 of them.
        assert_eq!(divide(&two, 8, -400), [(44, false), (307, false)]);
    }

    #[test]
    fn what_a_domain_cannot_use_goes_to_those_after_it_and_it_comes_first_the_next_time() {
        // One vCPU can use 300 of the 1,350 that are its part.
        let (one, eight) = (claim(900, 1, 0), claim(100, 8, 0));
        assert_eq!(divide(&[one, eight], 8, 0), [(300, false), (263, false)]);
        assert_eq!(divide(&[eight, one], 8, 0), [(142, false), (300, true)]);
    }

    #[test]
    fn a_cap_bounds_what_a_domain_is_given() {
        assert_eq!(divide(&[claim(256, 8, 400)], 8, 0), [(150, false)]);
        assert_eq!(divide(&[claim(256, 1, 25)], 8, 0), [(75, false)]);
    }
}
