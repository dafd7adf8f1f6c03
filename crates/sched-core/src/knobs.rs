//! The scheduler's knobs by name, each change checked against its range before anything is written.

use crate::records::Knobs;

/// One knob of `sched/abi/knobs.def`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Name, as in `--set NAME=VALUE`.
    pub name: &'static str,
    /// Value when nothing is set.
    pub default: u64,
    /// Smallest value allowed.
    pub min: u64,
    /// Largest value allowed.
    pub max: u64,
    /// Unit of the value.
    pub unit: &'static str,
    /// What it decides.
    pub doc: &'static str,
}

/// A change that was refused; nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// No such knob.
    #[error("knob '{name}': cannot set it: there is no such knob; allowed {allowed}")]
    Unknown {
        /// Name as given.
        name: String,
        /// Every name there is.
        allowed: String,
    },
    /// A value outside the knob's range.
    #[error(
        "knob '{name}': cannot set {value} {unit}: allowed {min}..{max} {unit}, default {default}"
    )]
    Range {
        /// Name of the knob.
        name: &'static str,
        /// Value as given.
        value: u64,
        /// Its unit.
        unit: &'static str,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
        /// Its default.
        default: u64,
    },
    /// A co-start threshold that is not below the co-stop threshold.
    #[error(
        "knob 'costart_us': cannot use {costart} us beside costop_us {costop} us: allowed less \
            than costop_us"
    )]
    Thresholds {
        /// `costart_us`.
        costart: u64,
        /// `costop_us`.
        costop: u64,
    },
}

include!(concat!(env!("OUT_DIR"), "/knobs.rs"));

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs::DEFAULT
    }
}

impl Knobs {
    /// Sets one knob.
    ///
    /// # Errors
    /// `KnobError` for an unknown name or a value outside the knob's range.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), KnobError> {
        let Some(i) = KNOBS.iter().position(|k| k.name == name) else {
            let allowed = KNOBS.map(|k| k.name).join(", ");
            return Err(KnobError::Unknown { name: name.to_owned(), allowed });
        };
        let Knob { name, default, min, max, unit, .. } = KNOBS[i];
        if !(min..=max).contains(&value) {
            return Err(KnobError::Range { name, value, unit, min, max, default });
        }
        *self.field(i) = value;
        Ok(())
    }

    /// Holds knobs to each other, once all are set.
    ///
    /// # Errors
    /// `KnobError::Thresholds` if vCPUs would be co-stopped as soon as they are co-started.
    pub fn check(&self) -> Result<(), KnobError> {
        let (costart, costop) = (self.costart_us, self.costop_us);
        if costart < costop { Ok(()) } else { Err(KnobError::Thresholds { costart, costop }) }
    }

    /// Thousandths of its CPU time that a world is charged on a shared core (`cores_charge` in
    /// `sched/law/cores.h`): where VMs do not share cores, a core is charged as one thread.
    #[must_use]
    pub fn charge(&self) -> u64 {
        if self.core_sharing == 1 { 500 } else { self.shared_charge }
    }

    /// Thousandths of its CPU time that a world on a shared core counts for where the host is
    /// divided. Where cores are not shared between VMs, a core counts as one thread: that is sure.
    #[must_use]
    pub fn divided_charge(&self) -> u64 {
        if self.core_sharing != 0 { 500 } else { self.shared_charge }
    }

    /// Value of a knob by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let i = KNOBS.iter().position(|k| k.name == name)?;
        let mut copy = *self;
        Some(*copy.field(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_outside_its_range_is_refused_with_the_range() {
        let mut k = Knobs::default();
        assert_eq!(k.set("quantum_us", 20_000), Ok(()));
        assert_eq!((k.quantum_us, k.get("quantum_us")), (20_000, Some(20_000)));
        let low = k.set("quantum_us", 1).unwrap_err().to_string();
        assert_eq!(
            low,
            "knob 'quantum_us': cannot set 1 us: allowed 1000..1000000 us, default 50000"
        );
        assert!(
            k.set("quantum", 1)
                .unwrap_err()
                .to_string()
                .contains("allowed quantum_us, slice_min_us")
        );
        assert_eq!(k.quantum_us, 20_000);
    }

    #[test]
    fn a_co_start_threshold_is_below_the_co_stop_threshold() {
        let mut k = Knobs::default();
        assert_eq!(
            (k.set("costart_us", 3000), k.set("costop_us", 3001), k.check()),
            (Ok(()), Ok(()), Ok(()))
        );
        assert_eq!(k.set("costop_us", 3000), Ok(()));
        let text = k.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "knob 'costart_us': cannot use 3000 us beside costop_us 3000 us: allowed less than \
                costop_us"
        );
    }
}
