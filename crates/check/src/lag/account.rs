//! A VM's account of lag: what it asked for and used, and how far it is from the ideal; held to the
//! bound that it is given.

use crate::{
    Invariant, Violation, VmTerms,
    verdict::{Log, VmVerdict},
    window::Share,
};
use units::VmId;

/// A VM's account; never taken away, so that a VM that left can still be asked about. What each
/// event changes comes first, in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct LagAccount {
    /// Time of its runnable worlds in the window, of each instant no more than the host has pCPUs,
    /// and up to when.
    pub(super) wanted: u64,
    pub(super) until: u64,
    /// Worlds that are runnable, those that it has, and the most it ever had.
    pub(super) awake: u32,
    pub(super) worlds: u32,
    pub(super) worlds_max: u32,
    pub(super) idled: bool,
    pub(super) gone: bool,
    pub(super) over: bool,
    pub(super) lag: i64,
    /// Position among the shares of the window that closes.
    pub(super) position: usize,
    pub(super) used: u64,
    pub(super) entitled: i64,
    /// When it was entitled to more than shared cores give, last.
    pub(super) whole_at: Option<u64>,
    pub(super) owed_max: u64,
    pub(super) surplus_max: u64,
    pub(super) id: VmId,
    pub(super) name: String,
    pub(super) terms: VmTerms,
}

impl LagAccount {
    /// Of a VM that begins.
    pub(super) fn new(id: VmId, name: &str, terms: VmTerms) -> LagAccount {
        LagAccount {
            id,
            name: name.to_owned(),
            terms,
            gone: false,
            worlds: 0,
            worlds_max: 0,
            awake: 0,
            wanted: 0,
            until: 0,
            idled: false,
            lag: 0,
            entitled: 0,
            used: 0,
            over: false,
            whole_at: None,
            owed_max: 0,
            surplus_max: 0,
            position: 0,
        }
    }

    pub(super) fn want(&mut self, now: u64, pcpus: u64) {
        self.wanted += u64::from(self.awake).min(pcpus) * (now - self.until);
        self.until = now;
    }

    pub(super) fn share(&self) -> Share {
        Share { lag: self.lag, idled: self.idled, ..Share::default() }
    }

    pub(super) fn worlds_at_once(&self, pcpus: u64) -> u64 {
        u64::from(self.worlds_max).min(pcpus)
    }

    /// Holds its distance from the ideal to the bound; an excursion is one violation.
    pub(super) fn hold(&mut self, now: u64, apart: i64, allowed: u64, log: &mut Log) {
        self.owed_max = self.owed_max.max((-apart).max(0) as u64);
        self.surplus_max = self.surplus_max.max(apart.max(0) as u64);
        let over = apart.unsigned_abs() > allowed;
        if over && !self.over {
            let side = if apart < 0 { "behind" } else { "ahead of" };
            log.add(Invariant::Lag, || Violation {
                invariant: Invariant::Lag,
                at_ns: now,
                vm: Some((self.id, self.name.clone())),
                world: None,
                pcpu: None,
                seen: format!("{} ns {side} the ideal", apart.unsigned_abs()),
                allowed: format!("{allowed} ns"),
            });
        }
        self.over = over;
    }

    pub(super) fn verdict(&self) -> VmVerdict {
        VmVerdict {
            vm: self.id,
            name: self.name.clone(),
            used_ns: self.used,
            entitled_ns: self.entitled.max(0) as u64,
            owed_max_ns: self.owed_max,
            surplus_max_ns: self.surplus_max,
        }
    }
}
