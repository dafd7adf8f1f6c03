//! Changes of shares, reservations and limits of VMs and pools while a run goes on: in which order
//! they come, what each object has from then on, and why a change is refused.

use crate::{
    LimitSetting, PoolSpec, Run, RunSpec, SharesSetting, VmResources, VmSpec,
    checks::too_many_limits, pools::place,
};
use serde::{Deserialize, Serialize};
use units::{CpuAmount, Span};

/// Settings that one VM or pool has from some time on; what is left out stays as it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeSpec {
    /// When, from the start of the run.
    pub at: Span,
    /// Name of the VM, as it is once VMs are counted out; a change has this or `pool`.
    pub vm: Option<String>,
    /// Name of the pool.
    pub pool: Option<String>,
    /// Its shares from then on.
    pub shares: Option<SharesSetting>,
    /// Its reservation from then on.
    pub reservation: Option<CpuAmount>,
    /// Its limit from then on; `unlimited` takes the limit away, and its burst with it.
    pub limit: Option<LimitSetting>,
    /// Its burst from then on.
    pub burst: Option<Span>,
}

/// What a change is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Changed {
    /// A VM, by its position among the run's.
    Vm(usize),
    /// A pool, by its index among the placed ones; the root, 0, never changes.
    Pool(usize),
}

/// A change in the scheduler's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, from the start of the run.
    pub at: Span,
    /// Whose settings.
    pub of: Changed,
    /// All of its settings from then on.
    pub resources: VmResources,
}

/// The changes of a run in the order in which they come, those of one moment in the file's order.
/// The run's VMs are counted out. What an object began with is judged elsewhere, and its tree too.
///
/// # Errors
/// Every reason why one cannot be.
pub fn changes(spec: &RunSpec) -> Result<Vec<Change>, Vec<String>> {
    let mhz = spec.host.mhz;
    let placed = place(&spec.pools, mhz).unwrap_or_default();
    let (mut vms, mut pools) = (spec.vms.clone(), spec.pools.clone());
    let (mut out, mut reasons) = (vec![], vec![]);
    for (number, change) in in_order(spec) {
        let mut say = |r: String| reasons.push(format!("change {number} {}: {r}", change.title()));
        change.reasons().into_iter().for_each(&mut say);
        let done = match (&change.vm, &change.pool) {
            (Some(name), None) => {
                let at = vms.iter().position(|v| v.name == *name);
                at.map(|at| (Changed::Vm(at), change.of_vm(&mut vms[at], mhz)))
            }
            (None, Some(name)) => {
                let place = placed.iter().position(|p| p.name == *name).unwrap_or(0);
                let pool = pools.iter_mut().find(|p| p.name == *name);
                pool.map(|pool| (Changed::Pool(place), change.of_pool(pool, mhz)))
            }
            _ => continue,
        };
        match done {
            None => say(change.unknown()),
            Some((_, Err(all))) => all.into_iter().for_each(say),
            Some((of, Ok(resources))) => {
                out.push(Change { at: change.at, of, resources });
                too_many_limits(limits(&vms, &pools)).into_iter().for_each(say);
            }
        }
    }
    if reasons.is_empty() { Ok(out) } else { Err(reasons) }
}

/// Why changes are refused that come after the end of every run; one run may be shorter.
pub(crate) fn too_late(runs: &[Run]) -> Vec<String> {
    let ends = runs.iter().map(|r| r.spec.duration).max().unwrap_or_default();
    let all = runs.first().map(|r| in_order(&r.spec)).unwrap_or_default();
    let late = all.into_iter().filter(|(_, c)| c.at >= ends);
    let reason = |(number, c): (usize, &ChangeSpec)| {
        format!(
            "change {number} {}: at: seen {}, allowed before the run ends ({ends}); it would \
                never come",
            c.title(),
            c.at
        )
    };
    late.map(reason).collect()
}

/// Changes in the order of time, each with its number in the file from 1.
fn in_order(spec: &RunSpec) -> Vec<(usize, &ChangeSpec)> {
    let mut all: Vec<(usize, &ChangeSpec)> = (1..).zip(&spec.changes).collect();
    all.sort_by_key(|(_, c)| c.at);
    all
}

/// Pools with the settings that are in force just before `until` after the start of a run.
#[must_use]
pub fn pools_at(spec: &RunSpec, until: Span) -> Vec<PoolSpec> {
    let mut pools = spec.pools.clone();
    for (_, change) in in_order(spec).into_iter().filter(|(_, c)| c.at < until) {
        if let Some(pool) = pools.iter_mut().find(|p| change.pool.as_ref() == Some(&p.name)) {
            let _refused_elsewhere = change.of_pool(pool, spec.host.mhz);
        }
    }
    pools
}

/// How many limits there are on VMs that are counted out and on pools.
pub(crate) fn limits(vms: &[VmSpec], pools: &[PoolSpec]) -> u64 {
    let limited = |l: &Option<LimitSetting>| l.is_some_and(|l| l.amount().is_some());
    let of_vms: u64 = vms.iter().filter(|v| limited(&v.limit)).map(|v| u64::from(v.count)).sum();
    of_vms + pools.iter().filter(|p| limited(&p.limit)).count() as u64
}

impl ChangeSpec {
    /// What its reasons are about.
    fn title(&self) -> String {
        let name = |kind: &str, n: &Option<String>| n.as_ref().map(|n| format!(", {kind} '{n}'"));
        let of: String =
            [name("vm", &self.vm), name("pool", &self.pool)].into_iter().flatten().collect();
        format!("(at {}{of})", self.at)
    }

    /// What is wrong with it, whatever it is of.
    fn reasons(&self) -> Vec<String> {
        let mut out = vec![];
        if self.at == Span::ZERO {
            out.push(
                "at: seen 0s, allowed 1ns or more; write it into the object itself".to_owned(),
            );
        }
        let named = [self.vm.is_some(), self.pool.is_some()].iter().filter(|n| **n).count();
        if named != 1 {
            out.push(format!("vm, pool: seen {named} of them, allowed exactly one"));
        }
        let said = [
            self.shares.is_some(),
            self.reservation.is_some(),
            self.limit.is_some(),
            self.burst.is_some(),
        ];
        if !said.contains(&true) {
            out.push(
                "seen nothing that changes, allowed shares, reservation, limit and burst; give one"
                    .to_owned(),
            );
        }
        out
    }

    /// The reason against a name that no VM or pool has.
    fn unknown(&self) -> String {
        match (&self.vm, &self.pool) {
            (Some(vm), _) => format!("vm: seen '{vm}', allowed the names of its VMs"),
            (_, pool) => format!(
                "pool: seen '{}', allowed the name of a [[pool]]",
                pool.as_deref().unwrap_or("")
            ),
        }
    }

    /// A burst goes with its limit.
    fn burst(&self, before: Option<Span>) -> Option<Span> {
        let gone = self.limit == Some(LimitSetting::Unlimited);
        self.burst.or(before.filter(|_| !gone))
    }

    /// Applies it to a VM, which stays as it is if that cannot be.
    fn of_vm(&self, vm: &mut VmSpec, mhz: u32) -> Result<VmResources, Vec<String>> {
        let new = VmSpec {
            shares: self.shares.clone().unwrap_or_else(|| vm.shares.clone()),
            reservation: self.reservation.or(vm.reservation),
            limit: self.limit.or(vm.limit),
            burst: self.burst(vm.burst),
            ..vm.clone()
        };
        let resources = new.resources(mhz)?;
        *vm = new;
        Ok(resources)
    }

    /// The same to a pool.
    fn of_pool(&self, pool: &mut PoolSpec, mhz: u32) -> Result<VmResources, Vec<String>> {
        let new = PoolSpec {
            shares: self.shares.clone().unwrap_or_else(|| pool.shares.clone()),
            reservation: self.reservation.or(pool.reservation),
            limit: self.limit.or(pool.limit),
            burst: self.burst(pool.burst),
            ..pool.clone()
        };
        let resources = new.resources(mhz)?;
        *pool = new;
        Ok(resources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ScenarioError, raw::parse};
    use units::Rate;

    const HOST: &str = "[host]\ncores_per_llc = 4\nmhz = 1000\n[[pool]]\nname = 'p'\n[[pool]]\n\
        name = 'q'\nparent = 'p'\nlimit = '300%'\nburst = '5ms'\n[[vm]]\nname = 'a'\nvcpus = 2\n\
        count = 2\npool = 'q'\nreservation = '50%'\n";

    fn read(changes: &str) -> Result<RunSpec, Vec<String>> {
        match parse("t.toml", "t", &format!("{HOST}{changes}")) {
            Ok(mut scenario) => Ok(scenario.runs.remove(0).spec),
            Err(ScenarioError::Invalid { reasons, .. }) => Err(reasons),
            Err(other) => Err(vec![other.to_string()]),
        }
    }

    /// Why this one change is refused.
    fn refused(keys: &str) -> Vec<String> {
        read(&format!("[[change]]\n{keys}")).expect_err("it is refused")
    }

    #[test]
    fn changes_come_in_the_order_of_time_and_what_they_leave_out_stays() {
        let spec = read(
            "[[change]]\nat = '3s'\npool = 'q'\nlimit = 'unlimited'\n\
             [[change]]\nat = '1s'\nvm = 'a-2'\nlimit = '1.5GHz'\nshares = 'high'\n\
             [[change]]\nat = '3s'\nvm = 'a-2'\nreservation = '10%'\n\
             [[change]]\nat = '2s'\npool = 'q'\nlimit = '50%'\n",
        )
        .expect("it is read");
        let all = changes(&spec).expect("they can be");
        let seen: Vec<_> = all
            .iter()
            .map(|c| {
                let r = c.resources;
                (c.at.ns() / 1_000_000_000, c.of, r.shares, r.reservation, r.limit, r.burst_ns)
            })
            .collect();
        let (half, limit) = (Rate(Rate::ONE.0 / 2), Some(Rate(Rate::ONE.0 * 3 / 2)));
        let tenth = CpuAmount::percent(10).rate(1000);
        assert_eq!(
            seen,
            [
                (1, Changed::Vm(1), 4000, half, limit, 0),
                (2, Changed::Pool(2), 4000, Rate(0), Some(half), 5_000_000),
                (3, Changed::Pool(2), 4000, Rate(0), None, 0),
                (3, Changed::Vm(1), 4000, tenth, limit, 0),
            ]
        );
        let limit = |s| pools_at(&spec, Span::from_ms(s))[1].limit.and_then(LimitSetting::amount);
        let percent = CpuAmount::percent;
        assert_eq!([2000, 2001, 3001].map(limit), [Some(percent(300)), Some(percent(50)), None]);
        let written = toml::to_string(&spec).expect("it is written");
        let again = parse("t.toml", "t", &written).expect("it is read again");
        assert_eq!(changes(&again.runs[0].spec), Ok(all));
    }

    #[test]
    fn what_cannot_change_is_refused_with_its_reason() {
        assert_eq!(
            refused("at = '1s'\nlimit = '50%'"),
            ["change 1 (at 1s): vm, pool: seen 0 of them, allowed exactly one"]
        );
        assert_eq!(
            refused("at = '1s'\nvm = 'a-1'\npool = 'p'\nshares = 1"),
            ["change 1 (at 1s, vm 'a-1', pool 'p'): vm, pool: seen 2 of them, allowed exactly one"]
        );
        assert_eq!(
            refused("at = '1s'\nvm = 'a'\nshares = 1"),
            ["change 1 (at 1s, vm 'a'): vm: seen 'a', allowed the names of its VMs"]
        );
        assert_eq!(
            refused("at = '1s'\npool = 'a-1'\nshares = 1"),
            ["change 1 (at 1s, pool 'a-1'): pool: seen 'a-1', allowed the name of a [[pool]]"]
        );
        assert_eq!(
            refused("at = '0s'\npool = 'p'"),
            [
                "change 1 (at 0s, pool 'p'): at: seen 0s, allowed 1ns or more; write it into the \
                    object itself",
                "change 1 (at 0s, pool 'p'): seen nothing that changes, allowed shares, \
                    reservation, limit and burst; give one",
            ]
        );
        let text = refused("at = '1s'\nvm = 'a-1'\nlimit = '49%'\nshares = 0");
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text[0].starts_with("change 1 (at 1s, vm 'a-1'): ") && text[0].contains("use 0"));
        assert!(text[1].contains("limit: seen 49%, allowed its reservation of 50%"), "{text:?}");
        assert_eq!(
            refused("at = '1s'\npool = 'p'\nburst = '1ms'"),
            ["change 1 (at 1s, pool 'p'): burst: seen 1ms without a limit, allowed only with \
                    one; give a limit, or leave it out"]
        );
        let text = refused("at = '1s'\npool = 'p'\nlimit = '3 cats'");
        assert!(text.len() == 1 && text[0].starts_with("change 1: limit: "), "{text:?}");
    }

    #[test]
    fn a_change_is_held_to_what_the_ones_before_it_have_made() {
        let raise = "[[change]]\nat = '1s'\nvm = 'a-1'\nreservation = '200%'\n";
        let limit = "[[change]]\nat = '2s'\nvm = 'a-1'\nlimit = '150%'\n";
        assert!(read(limit).is_ok());
        let text = read(&format!("{limit}{raise}")).expect_err("below what is reserved by then");
        assert!(
            text.len() == 1 && text[0].starts_with("change 1 (at 2s, vm 'a-1'): limit: seen 150%"),
            "{text:?}"
        );
    }
}
