//! A set of pCPUs, written as the kernel writes it: `0-3,8`.

use crate::{PcpuId, caps::PCPUS_MAX};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{borrow::Cow, fmt, str::FromStr};

const WORDS: usize = PCPUS_MAX / 64;

/// A set of pCPUs of one host.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PcpuSet([u64; WORDS]);

/// A text that is no set of pCPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pCPU list: cannot read '{seen}': allowed ids 0..{max} as in '0-3,8', at least \
    one", max = PCPUS_MAX - 1)]
pub struct PcpuSetError {
    /// What was given.
    pub seen: String,
}

impl PcpuSet {
    /// The set without members.
    #[must_use]
    pub const fn empty() -> PcpuSet {
        PcpuSet([0; WORDS])
    }

    /// pCPUs 0 to n-1.
    #[must_use]
    pub fn first(n: usize) -> PcpuSet {
        (0..n).map(|i| PcpuId(i as u16)).collect()
    }

    /// Adds a member.
    pub fn insert(&mut self, p: PcpuId) {
        self.0[p.0 as usize / 64] |= 1 << (p.0 % 64);
    }

    /// Whether `p` is a member.
    #[must_use]
    pub fn contains(&self, p: PcpuId) -> bool {
        self.0.get(p.0 as usize / 64).is_some_and(|w| w >> (p.0 % 64) & 1 == 1)
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = PcpuId> + '_ {
        (0..PCPUS_MAX as u16).map(PcpuId).filter(|p| self.contains(*p))
    }

    /// The largest member.
    #[must_use]
    pub fn last(&self) -> Option<PcpuId> {
        self.0
            .iter()
            .enumerate()
            .rev()
            .find(|w| *w.1 != 0)
            .map(|(i, w)| PcpuId((i * 64 + 63 - w.leading_zeros() as usize) as u16))
    }

    /// Members of both sets.
    #[must_use]
    pub fn and(&self, other: &PcpuSet) -> PcpuSet {
        PcpuSet(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Members of either set.
    #[must_use]
    pub fn or(&self, other: &PcpuSet) -> PcpuSet {
        PcpuSet(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// The set as words of 64 bits, lowest pCPU in bit 0 of word 0.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.0
    }
}

impl FromIterator<PcpuId> for PcpuSet {
    fn from_iter<I: IntoIterator<Item = PcpuId>>(ids: I) -> PcpuSet {
        let mut set = PcpuSet::empty();
        ids.into_iter().for_each(|p| set.insert(p));
        set
    }
}

impl FromStr for PcpuSet {
    type Err = PcpuSetError;

    fn from_str(text: &str) -> Result<PcpuSet, PcpuSetError> {
        let bad = || PcpuSetError { seen: text.to_owned() };
        let mut set = PcpuSet::empty();
        for part in text.trim().split(',') {
            let (lo, hi) = part.split_once('-').unwrap_or((part, part));
            let lo: usize = lo.trim().parse().map_err(|_| bad())?;
            let hi: usize = hi.trim().parse().map_err(|_| bad())?;
            if lo > hi || hi >= PCPUS_MAX {
                return Err(bad());
            }
            (lo..=hi).for_each(|i| set.insert(PcpuId(i as u16)));
        }
        Ok(set)
    }
}

impl fmt::Display for PcpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().map(|p| p.0).peekable();
        let mut first = true;
        while let Some(lo) = ids.next() {
            let mut hi = lo;
            while ids.peek() == Some(&(hi + 1)) {
                hi = ids.next().unwrap_or(hi);
            }
            if !std::mem::take(&mut first) {
                f.write_str(",")?;
            }
            if lo == hi { write!(f, "{lo}")? } else { write!(f, "{lo}-{hi}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for PcpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl JsonSchema for PcpuSet {
    fn schema_name() -> Cow<'static, str> {
        "PcpuSet".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Numbers of pCPUs, such as 0-3,8.",
            "type": "string"
        })
    }
}

impl Serialize for PcpuSet {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PcpuSet {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<PcpuSet, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_the_kernels_list_format() {
        let set: PcpuSet = "0-3,8,64-65".parse().unwrap();
        assert_eq!((set.len(), set.last()), (7, Some(PcpuId(65))));
        assert_eq!(set.to_string(), "0-3,8,64-65");
        for text in ["", "3-1", "1024", "a", "0-", "1,,2"] {
            assert!(text.parse::<PcpuSet>().is_err(), "{text}");
        }
    }
}
