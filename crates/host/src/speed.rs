//! The speed of a pCPU of this host in MHz, to convert reservations and limits in MHz; it reads and
//! never sets a speed.

use crate::discover::Roots;
use serde::{Deserialize, Serialize};
use std::fs;

/// What a speed may be, as in the settings file.
const ALLOWED: std::ops::RangeInclusive<u32> = 100..=10_000;
/// Where nothing says how fast a pCPU is.
const ASSUMED_MHZ: u32 = 2_000;

/// The speed of a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speed {
    /// In MHz.
    pub mhz: u32,
    /// Its source.
    pub from: SpeedSource,
}

/// Source of the speed of a pCPU, the first that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeedSource {
    /// `[host] mhz` of the settings file.
    File,
    /// `base_frequency` of pCPU 0: what it runs at without turbo.
    BaseFrequency,
    /// `cpuinfo_max_freq` of pCPU 0.
    MaxFrequency,
    /// `cpu MHz` of /proc/cpuinfo.
    CpuMhz,
    /// The model's name in /proc/cpuinfo.
    ModelName,
    /// No source.
    Assumed,
}

impl Speed {
    /// The speed of this host's pCPUs; `file` is what the settings file says.
    #[must_use]
    pub fn of(roots: &Roots, file: Option<u32>) -> Speed {
        let khz = |name: &str| {
            let text =
                fs::read_to_string(roots.sys.join("devices/system/cpu/cpu0/cpufreq").join(name))
                    .ok()?;
            text.trim().parse::<u32>().ok().map(|khz| (khz + 500) / 1000)
        };
        let mut known = [
            (file, SpeedSource::File),
            (khz("base_frequency"), SpeedSource::BaseFrequency),
            (khz("cpuinfo_max_freq"), SpeedSource::MaxFrequency),
        ]
        .into_iter()
        .filter_map(|(mhz, from)| Some(Speed { mhz: mhz?, from }));
        known
            .find(Speed::can_be)
            .or_else(|| Speed::of_cpuinfo(roots))
            .unwrap_or(Speed { mhz: ASSUMED_MHZ, from: SpeedSource::Assumed })
    }

    /// By /proc/cpuinfo, which a large host takes long to write.
    fn of_cpuinfo(roots: &Roots) -> Option<Speed> {
        let info = fs::read_to_string(roots.proc_fs.join("cpuinfo")).ok()?;
        let of = |key: &str| {
            info.lines()
                .find_map(|l| l.strip_prefix(key)?.trim_start().strip_prefix(':').map(str::trim))
        };
        let now = of("cpu MHz").and_then(|t| thousandths(t)?.checked_add(500)).map(|t| t / 1000);
        let known = [
            (now, SpeedSource::CpuMhz),
            (of("model name").and_then(at_ghz), SpeedSource::ModelName),
        ];
        known
            .into_iter()
            .filter_map(|(mhz, from)| Some(Speed { mhz: mhz?, from }))
            .find(Speed::can_be)
    }

    fn can_be(&self) -> bool {
        ALLOWED.contains(&self.mhz)
    }
}

/// `… CPU @ 2.40GHz` as MHz.
fn at_ghz(name: &str) -> Option<u32> {
    thousandths(name.rsplit_once('@')?.1.trim().strip_suffix("GHz")?.trim())
}

/// A decimal number in thousandths; further digits are cut off.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    #[test]
    fn the_first_that_says_how_fast_a_pcpu_is_counts() {
        let t = MadeUp::new("speed");
        let seen = |t: &MadeUp| Speed::of(&t.roots(), None);
        assert_eq!(seen(&t), Speed { mhz: 2000, from: SpeedSource::Assumed });
        t.put("proc/cpuinfo", b"processor\t: 0\nmodel name\t: Any(R) CPU E5-2680 v4 @ 2.40GHz\n");
        assert_eq!(seen(&t), Speed { mhz: 2400, from: SpeedSource::ModelName });
        t.put("proc/cpuinfo", b"model name\t: Any CPU @ 2.40GHz\ncpu MHz\t\t: 2599.998\n");
        assert_eq!(seen(&t), Speed { mhz: 2600, from: SpeedSource::CpuMhz });
        t.put("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", b"3700000\n");
        assert_eq!(seen(&t), Speed { mhz: 3700, from: SpeedSource::MaxFrequency });
        t.put("sys/devices/system/cpu/cpu0/cpufreq/base_frequency", b"2100000\n");
        assert_eq!(seen(&t), Speed { mhz: 2100, from: SpeedSource::BaseFrequency });
        assert_eq!(Speed::of(&t.roots(), Some(1800)), Speed { mhz: 1800, from: SpeedSource::File });
    }

    #[test]
    fn a_speed_that_cannot_be_is_passed_over() {
        let t = MadeUp::new("odd-speed");
        t.put("sys/devices/system/cpu/cpu0/cpufreq/base_frequency", b"0\n");
        t.put("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", b"fast\n");
        t.put("proc/cpuinfo", b"cpu MHz : 99999999.5\nmodel name : x @ 1.5GHz\n");
        assert_eq!(Speed::of(&t.roots(), None), Speed { mhz: 1500, from: SpeedSource::ModelName });
    }
}
