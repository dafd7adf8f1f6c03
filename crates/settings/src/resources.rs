//! Shares, reservation, limit and burst of one VM or pool: whether they are consistent, and the
//! rates that result.
//!
//! It checks one object alone. Admission control checks whether all reservations together fit the
//! host.

use crate::{LimitSetting, SharesSetting};
use units::{CpuAmount, Rate, Span, caps};

/// The least a limit may be, 1 % of a pCPU: even a parked world runs now and then, since the kernel
/// ejects a scheduler that leaves a task waiting for 30 s.
pub const LIMIT_MIN: Rate = Rate(10_486);
/// Pools' presets are those of a VM with so many vCPUs (VMware vSphere Resource Management: 2000,
/// 4000, 8000).
const VCPUS_OF_A_POOLS_PRESET: u32 = 4;
/// Any speed will do to compare two amounts in MHz.
const ANY_MHZ: u32 = 1_000;

/// What a VM or pool is given, in the scheduler's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmResources {
    /// Shares of the whole VM, compared with its siblings' only.
    pub shares: u32,
    /// What it gets whatever the load.
    pub reservation: Rate,
    /// What it never exceeds; `None` is unlimited.
    pub limit: Option<Rate>,
    /// CPU time in ns that may be saved up while the limit is not used.
    pub burst_ns: u64,
}

impl VmResources {
    /// A pool of which nothing is said: normal shares, no reservation, no limit.
    pub const POOL: VmResources =
        VmResources { shares: 4_000, reservation: Rate(0), limit: None, burst_ns: 0 };
}

/// What is said of a VM or pool, as a file or an attribute has it; `None` is not said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    pub reservation: Option<CpuAmount>,
    pub limit: Option<LimitSetting>,
    pub burst: Option<Span>,
    /// vCPUs of a VM; `None` for a pool, and where they are not known yet.
    pub vcpus: Option<u32>,
    /// Speed of a pCPU; `None` where it is not known yet, and then amounts in MHz are compared with
    /// each other only.
    pub mhz: Option<u32>,
}

impl Said {
    fn rate(&self, amount: CpuAmount) -> Option<Rate> {
        if amount.is_mhz() { Some(amount.rate(self.mhz?)) } else { Some(amount.rate(ANY_MHZ)) }
    }

    fn limit(&self) -> Option<CpuAmount> {
        self.limit.and_then(LimitSetting::amount)
    }

    /// How a reason names an amount: as written, and what that is on this host where it does not
    /// say so itself.
    fn named(&self, amount: CpuAmount) -> String {
        match self.rate(amount) {
            Some(rate) if amount.is_mhz() => format!("{amount} ({} of a pCPU)", rate.percent()),
            _ => amount.to_string(),
        }
    }

    /// Everything about the amounts that cannot be, without the object's name.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut out = vec![];
        let limit = self.limit();
        // A VM's reservation is held to its vCPUs below.
        let amounts =
            [("reservation", self.reservation.filter(|_| self.vcpus.is_none())), ("limit", limit)];
        for (what, amount) in amounts.iter().filter_map(|(what, a)| Some((what, (*a)?))) {
            if self.rate(amount).is_some_and(|r| r > Rate::pcpus(caps::PCPUS_MAX as u64)) {
                out.push(format!(
                    "{what}: seen {}, allowed up to {} pCPUs; write less",
                    self.named(amount),
                    caps::PCPUS_MAX
                ));
            }
        }
        if let (Some(vcpus), Some(amount)) = (self.vcpus, self.reservation) {
            let most = Rate::pcpus(u64::from(vcpus));
            if self.rate(amount).is_some_and(|r| r > most) {
                let seen = self.named(amount);
                out.push(format!(
                    "reservation: seen {seen}, allowed up to {}, one pCPU for each vCPU; lower it",
                    most.percent()
                ));
            }
        }
        if let Some(amount) = limit.filter(|l| self.rate(*l).is_some_and(|r| r < LIMIT_MIN)) {
            out.push(format!(
                "limit: seen {}, allowed 1 % of a pCPU or more: even what is held back must run \
                    now and then, since the kernel ejects \
                 a scheduler that leaves a task waiting for 30 s; raise it, or power the VM off",
                self.named(amount)
            ));
        }
        if let (Some(limit), Some(reservation)) = (limit, self.reservation) {
            let rates = self.rate(limit).zip(self.rate(reservation));
            let both_mhz = limit.is_mhz() && reservation.is_mhz();
            let rates = rates
                .or_else(|| both_mhz.then(|| (limit.rate(ANY_MHZ), reservation.rate(ANY_MHZ))));
            if rates.is_some_and(|(l, r)| l < r) {
                out.push(below_reservation(&self.named(limit), &self.named(reservation)));
            }
        }
        out
    }

    /// A burst that no limit goes with; `elsewhere` when the limit may be said elsewhere.
    pub(crate) fn loose_burst(&self, elsewhere: bool) -> Option<String> {
        let burst = self.burst.filter(|b| *b > Span::ZERO)?;
        let without = if elsewhere {
            self.limit == Some(LimitSetting::Unlimited)
        } else {
            self.limit().is_none()
        };
        without.then(|| {
            format!(
                "burst: seen {burst} without a limit, allowed only with one; give \
            a limit, or leave it out"
            )
        })
    }
}

/// The reason against a limit that cuts into what is guaranteed.
pub(crate) fn below_reservation(limit: &str, reservation: &str) -> String {
    format!(
        "limit: seen {limit}, allowed its reservation of {reservation} or more; raise the limit, \
            or lower the reservation"
    )
}

/// The resources of something whose every setting is in one place; `vcpus` is `None` for a pool.
///
/// # Errors
/// Every reason, without the object's name.
pub(crate) fn resolve(
    shares: &SharesSetting,
    said: &Said,
    mhz: u32,
) -> Result<VmResources, Vec<String>> {
    let mut reasons = vec![];
    let shares = pool_or_vm(shares, said.vcpus).unwrap_or_else(|e| {
        reasons.push(e);
        1
    });
    reasons.extend(said.reasons());
    reasons.extend(said.loose_burst(false));
    if !reasons.is_empty() {
        return Err(reasons);
    }
    Ok(VmResources {
        shares,
        reservation: said.reservation.map_or(Rate(0), |r| r.rate(mhz)),
        limit: said.limit().map(|l| l.rate(mhz)),
        burst_ns: said.limit().and(said.burst).map_or(0, Span::ns),
    })
}

/// Shares of a VM with so many vCPUs, or of a pool.
///
/// # Errors
/// A reason without the object's name.
pub(crate) fn pool_or_vm(shares: &SharesSetting, vcpus: Option<u32>) -> Result<u32, String> {
    shares.resolve(vcpus.unwrap_or(VCPUS_OF_A_POOLS_PRESET).max(1)).map(units::Shares::get)
}
