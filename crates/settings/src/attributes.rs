//! Settings of a VM or pool from several sources: `user.tandem.*` attributes of its cgroup, a
//! settings file, cpu.max.
//!
//! It parses texts that the caller has read, and layers them; it never accesses a file system.

use crate::{
    LIMIT_MIN, LimitSetting, SharesSetting, VmResources,
    resources::{Said, below_reservation, pool_or_vm},
};
use units::{CpuAmount, Rate, Span, caps};

/// Names of all our attributes begin so.
const PREFIX: &str = "user.tandem.";
/// A burst is 10,000 h at most, as every time in a file is; the kernel lets cpu.max.burst be more
/// than 63 bits of ns.
const BURST_MAX_NS: u64 = 10_000 * 3_600_000_000_000;
const NAMES: &str = "shares, reservation, limit, burst, expandable and scalable";

/// What one place says of a VM or pool; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Shares of the whole VM or pool.
    pub shares: Option<u32>,
    /// What it gets whatever the load.
    pub reservation: Option<CpuAmount>,
    /// What it never exceeds.
    pub limit: Option<LimitSetting>,
    /// CPU time that may be saved up while the limit is not used.
    pub burst: Option<Span>,
    /// Whether reservations below a pool may borrow from its parent.
    pub expandable: Option<bool>,
    /// Whether a pool's shares grow with those of its children.
    pub scalable: Option<bool>,
}

impl Attributes {
    /// What these say, and where they say nothing what `others` say, key by key.
    #[must_use]
    pub fn or(self, others: Attributes) -> Attributes {
        Attributes {
            shares: self.shares.or(others.shares),
            reservation: self.reservation.or(others.reservation),
            limit: self.limit.or(others.limit),
            burst: self.burst.or(others.burst),
            expandable: self.expandable.or(others.expandable),
            scalable: self.scalable.or(others.scalable),
        }
    }

    /// These over what the cgroup itself says (cpu.weight, cpu.max), for a VM of so many vCPUs or
    /// for a pool, on a host whose pCPUs run at `mhz`. A limit of the cgroup below `LIMIT_MIN` is
    /// raised to it. The cgroup's burst goes with the cgroup's limit only; a burst without any
    /// limit does nothing.
    ///
    /// # Errors
    /// Every reason why they cannot hold together, without the object's name.
    pub fn over(
        &self,
        cgroup: VmResources,
        vcpus: Option<u32>,
        mhz: u32,
    ) -> Result<VmResources, Vec<String>> {
        let vcpus = vcpus.map(|v| v.max(1));
        let said = Said {
            reservation: self.reservation,
            limit: self.limit,
            burst: self.burst,
            vcpus,
            mhz: Some(mhz),
        };
        let mut reasons = said.reasons();
        let reservation = self.reservation.map_or(cgroup.reservation, |r| r.rate(mhz));
        let limit = match self.limit {
            None => cgroup.limit.map(|l| l.max(LIMIT_MIN)),
            Some(limit) => limit.amount().map(|l| l.rate(mhz)),
        };
        if let (None, Some(below)) = (self.limit, limit.filter(|l| *l < reservation)) {
            reasons.push(below_reservation(
                &format!("{} in the cgroup's cpu.max", below.percent()),
                &reservation.percent(),
            ));
        }
        let burst_of_cgroup = if self.limit.is_none() { cgroup.burst_ns } else { 0 };
        let burst_ns = limit.map_or(0, |_| self.burst.map_or(burst_of_cgroup, Span::ns));
        if reasons.is_empty() {
            Ok(VmResources {
                shares: self.shares.unwrap_or(cgroup.shares),
                reservation,
                limit,
                burst_ns,
            })
        } else {
            Err(reasons)
        }
    }

    /// Takes over one attribute.
    fn set(&mut self, key: &str, text: &str, vcpus: Option<u32>) -> Result<(), String> {
        let flag = |text: &str| match text {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(format!("seen '{}', allowed true or false", shown(text))),
        };
        match key {
            "shares" => {
                let shares = text
                    .parse()
                    .map_or_else(|_| SharesSetting::Preset(shown(text)), SharesSetting::Number);
                self.shares = Some(pool_or_vm(&shares, vcpus)?);
            }
            "reservation" => {
                self.reservation = Some(text.parse::<CpuAmount>().map_err(|e| e.to_string())?)
            }
            "limit" => self.limit = Some(text.parse::<LimitSetting>().map_err(|e| e.to_string())?),
            "burst" => self.burst = Some(text.parse::<Span>().map_err(|e| e.to_string())?),
            "expandable" | "scalable" if vcpus.is_some() => {
                return Err("seen on a VM, allowed on a pool only; remove it".to_owned());
            }
            "expandable" => self.expandable = flag(text)?,
            "scalable" => self.scalable = flag(text)?,
            _ => {
                return Err(format!(
                    "seen a name that means nothing, allowed {PREFIX}* with {NAMES}; remove it"
                ));
            }
        }
        Ok(())
    }
}

/// What the extended attributes of a cgroup's folder say of the VM (of so many vCPUs) or pool
/// (`None`) that it is. Attributes of others are passed over. Each amount is checked alone, as far
/// as that needs no speed of the pCPUs; `Attributes::over` finds those that contradict each other.
///
/// # Errors
/// Every reason, each with `object` and the attribute's name; then none of them counts.
pub fn from_attributes(
    object: &str,
    attributes: &[(String, Vec<u8>)],
    vcpus: Option<u32>,
) -> Result<Attributes, Vec<String>> {
    let mut out = Attributes::default();
    let mut reasons = vec![];
    let ours =
        attributes.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value)));
    for (key, value) in ours {
        let set = match std::str::from_utf8(value) {
            Ok(text) => out.set(key, text.trim(), vcpus),
            Err(_) => Err(format!(
                "seen {} bytes that are no UTF-8, allowed text such as 250%; write it anew",
                value.len()
            )),
        };
        reasons
            .extend(set.err().map(|reason| format!("{object}: {PREFIX}{}: {reason}", shown(key))));
    }
    let limit = Said { limit: out.limit, burst: out.burst, ..Said::default() };
    let misfits = limit.reasons().into_iter().chain(limit.loose_burst(true));
    reasons.extend(misfits.map(|reason| format!("{object}: {PREFIX}{reason}")));
    if reasons.is_empty() { Ok(out) } else { Err(reasons) }
}

/// The start of a text as an error shows it, without control characters.
fn shown(text: &str) -> String {
    text.trim().chars().take(40).collect::<String>().escape_debug().to_string()
}

/// Limit and burst in ns that a cgroup's cpu.max and cpu.max.burst say, `None` if it has no limit.
/// `burst` is `None` where the kernel has no such file. The rate is rounded to the nearest, and no
/// more than the largest host; it may be below `LIMIT_MIN`.
///
/// # Errors
/// What was seen in place of what the kernel writes.
pub fn parse_cpu_max(text: &str, burst: Option<&str>) -> Result<Option<(Rate, u64)>, String> {
    let bad = || {
        format!(
            "cpu.max: seen '{}', allowed QUOTA PERIOD in us as in '50000 100000', or max PERIOD",
            shown(text)
        )
    };
    let number =
        |t: &str| t.bytes().all(|b| b.is_ascii_digit()).then(|| t.parse::<u64>().ok()).flatten();
    let burst_us = match burst {
        None => 0,
        Some(t) => number(t.trim())
            .ok_or_else(|| format!("cpu.max.burst: seen '{}', allowed a number of us", shown(t)))?,
    };
    let [quota, period] =
        text.split_whitespace().collect::<Vec<_>>().try_into().map_err(|_| bad())?;
    let period = number(period).filter(|p| *p > 0).ok_or_else(bad)?;
    if quota == "max" {
        return Ok(None);
    }
    let quota = u128::from(number(quota).ok_or_else(bad)?);
    let rate = ((quota << Rate::SHIFT) + u128::from(period) / 2) / u128::from(period);
    let most = Rate::pcpus(caps::PCPUS_MAX as u64);
    Ok(Some((
        Rate(rate.min(u128::from(most.0)) as u64),
        burst_us.saturating_mul(1_000).min(BURST_MAX_NS),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: VmResources =
        VmResources { shares: 1000, reservation: Rate(0), limit: None, burst_ns: 0 };

    fn read(pairs: &[(&str, &str)], vcpus: Option<u32>) -> Result<Attributes, Vec<String>> {
        let all: Vec<_> =
            pairs.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
        from_attributes("cgroup '/a'", &all, vcpus)
    }

    #[test]
    fn attributes_are_read_for_vms_and_pools() {
        let all = [
            ("user.tandem.shares", "high\n"),
            ("user.tandem.reservation", "50%"),
            ("user.tandem.limit", " 2.4GHz"),
            ("user.tandem.burst", "20ms"),
            ("user.tandem.expandable", "false"),
            ("user.tandem.scalable", "true"),
            ("security.selinux", "\u{0}"),
            ("user.tandemonium", "?"),
        ];
        let pool = read(&all, None).unwrap();
        assert_eq!(
            (pool.shares, pool.expandable, pool.scalable),
            (Some(8000), Some(false), Some(true))
        );
        assert_eq!(
            (pool.reservation, pool.burst),
            (Some(CpuAmount::percent(50)), Some(Span::from_ms(20)))
        );
        assert_eq!(pool.limit, Some(LimitSetting::Amount(CpuAmount::mhz(2400))));
        assert_eq!(read(&all[..4], Some(3)).unwrap().shares, Some(6000));
        assert_eq!(
            read(&[("user.tandem.limit", "-1")], Some(1)).unwrap().limit,
            Some(LimitSetting::Unlimited)
        );
        assert_eq!(read(&[], None).unwrap(), Attributes::default());
    }

    #[test]
    fn every_attribute_that_means_nothing_is_refused_by_its_name() {
        let bytes = ("user.tandem.burst".to_owned(), vec![0xff, 0]);
        assert_eq!(
            from_attributes("vm 'a'", &[bytes], Some(1)).unwrap_err(),
            ["vm 'a': user.tandem.burst: seen 2 bytes that are no UTF-8, allowed text such as \
                    250%; write it anew"]
        );
        let all = [
            ("user.tandem.share", "3"),
            ("user.tandem.shares", "0"),
            ("user.tandem.reservation", "much"),
            ("user.tandem.limit", ""),
            ("user.tandem.expandable", "yes"),
        ];
        let seen = read(&all, None).unwrap_err();
        let starts = [
            "cgroup '/a': user.tandem.share: seen a name that means nothing, allowed user.tandem.* \
                with shares, reservation, limit, burst, \
             expandable and scalable; remove it",
            "cgroup '/a': user.tandem.shares: shares: cannot use 0: allowed 1..262144",
            "cgroup '/a': user.tandem.reservation: CPU amount: cannot read 'much': seen the unit \
                'much'",
            "cgroup '/a': user.tandem.limit: CPU amount: cannot read '': seen nothing",
            "cgroup '/a': user.tandem.expandable: seen 'yes', allowed true or false",
        ];
        assert_eq!(seen.len(), starts.len(), "{seen:?}");
        for (seen, start) in seen.iter().zip(starts) {
            assert!(seen.starts_with(start), "{seen}");
        }
        assert_eq!(
            read(&[("user.tandem.scalable", "true")], Some(2)).unwrap_err(),
            ["cgroup '/a': user.tandem.scalable: seen on a VM, allowed on a pool only; remove it"]
        );
    }

    #[test]
    fn amounts_that_can_never_be_are_refused_and_those_that_contradict_each_other_are_read() {
        let refused = |pairs: &[(&str, &str)], vcpus| read(pairs, vcpus).unwrap_err();
        let low = refused(&[("user.tandem.limit", "0.5%")], Some(2));
        let start = "cgroup '/a': user.tandem.limit: seen 0.5%, allowed 1 % of a pCPU or more";
        assert!(low.len() == 1 && low[0].starts_with(start), "{low:?}");
        let both = [("user.tandem.reservation", "300%"), ("user.tandem.limit", "50%")];
        let reasons = read(&both, Some(2)).unwrap().over(PLAIN, Some(2), 2000).unwrap_err();
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons[0].starts_with("reservation: seen 300%, allowed up to 200 %"));
        assert!(reasons[1].starts_with("limit: seen 50%, allowed its reservation of 300% or more"));
        let seen =
            read(&[("user.tandem.limit", "unlimited"), ("user.tandem.burst", "1ms")], Some(2))
                .unwrap_err();
        assert_eq!(
            seen,
            ["cgroup '/a': user.tandem.burst: seen 1ms without a limit, allowed only with one; \
                    give a limit, or leave it out"]
        );
        // The limit may be the cgroup's own.
        assert!(read(&[("user.tandem.burst", "1ms")], Some(2)).is_ok());
    }

    #[test]
    fn the_file_counts_before_attributes_and_they_before_the_cgroup() {
        let file = read(&[("user.tandem.shares", "7")], None).unwrap();
        let own =
            read(&[("user.tandem.shares", "8"), ("user.tandem.reservation", "1000MHz")], None)
                .unwrap();
        let cgroup = VmResources { limit: Some(Rate::ONE), burst_ns: 5, ..PLAIN };
        let half = Rate(Rate::ONE.0 / 2);
        let all = file.or(own).over(cgroup, Some(1), 2000).unwrap();
        assert_eq!(
            all,
            VmResources { shares: 7, reservation: half, limit: Some(Rate::ONE), burst_ns: 5 }
        );
        let none = Attributes {
            limit: Some(LimitSetting::Unlimited),
            burst: Some(Span::from_ms(1)),
            ..Attributes::default()
        };
        assert_eq!(none.over(cgroup, None, 2000).unwrap(), VmResources { shares: 1000, ..PLAIN });
        let limit = Attributes {
            limit: Some(LimitSetting::Amount(CpuAmount::percent(50))),
            ..Attributes::default()
        };
        assert_eq!(
            limit.over(cgroup, None, 2000).unwrap(),
            VmResources { limit: Some(half), ..PLAIN }
        );
        let tiny = VmResources { limit: Some(Rate(1)), ..PLAIN };
        assert_eq!(Attributes::default().over(tiny, Some(1), 2000).unwrap().limit, Some(LIMIT_MIN));
        assert_eq!(
            own.over(VmResources { limit: Some(Rate(half.0 / 2)), ..PLAIN }, Some(1), 2000)
                .unwrap_err(),
            ["limit: seen 25 % in the cgroup's cpu.max, allowed its reservation of 50 % or \
                    more; raise the limit, or lower the reservation"]
        );
    }

    #[test]
    fn the_kernels_cpu_max_is_a_rate_and_a_burst() {
        assert_eq!(parse_cpu_max("max 100000\n", Some("0\n")), Ok(None));
        assert_eq!(parse_cpu_max("max 100000\n", Some("5000")), Ok(None));
        assert_eq!(parse_cpu_max("50000 100000\n", None), Ok(Some((Rate(Rate::ONE.0 / 2), 0))));
        assert_eq!(
            parse_cpu_max("800000 200000\n", Some("20000\n")),
            Ok(Some((Rate::pcpus(4), 20_000_000)))
        );
        // 1/3 is 349525.33 units, 2/3 are 699050.67.
        assert_eq!(parse_cpu_max("1000 3000", None), Ok(Some((Rate(349_525), 0))));
        assert_eq!(parse_cpu_max("2000 3000", None), Ok(Some((Rate(699_051), 0))));
        assert_eq!(
            parse_cpu_max("18446744073709551615 1", Some("18446744073709551615")),
            Ok(Some((Rate::pcpus(1024), BURST_MAX_NS)))
        );
        for text in [
            "",
            "max",
            "50000",
            "50000 0",
            "-1 100000",
            "+5 100000",
            "5e3 100000",
            "1 2 3",
            "max max",
            "99999999999999999999 1",
        ] {
            let all = format!(
                "cpu.max: seen '{text}', allowed QUOTA PERIOD in us as in '50000 100000', or max \
                    PERIOD"
            );
            assert_eq!(parse_cpu_max(text, None), Err(all));
        }
        for text in ["", "max", "-5", "1 2"] {
            assert_eq!(
                parse_cpu_max("max 100000", Some(text)),
                Err(format!("cpu.max.burst: seen '{text}', allowed a number of us"))
            );
        }
    }
}
