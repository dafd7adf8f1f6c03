//! Random numbers of a run: a stream for each name, such as a world's, under the run's seed; it
//! never mixes one stream's numbers into another's.

/// PCG-XSH-RR 64/32 (M. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
/// Algorithms", 2014). The stream is chosen by name, so that a VM more changes no other VM's
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    state: u64,
    stream: u64,
}

const STEP: u64 = 6_364_136_223_846_793_005;
/// ln 2 with 32 fraction bits, rounded down.
const LN2: u64 = 2_977_044_471;

impl Stream {
    /// The stream of `name` under `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Stream {
        // FNV-1a: names are short and come from the scenario, not from an adversary.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Stream::numbered(seed, hash)
    }

    /// The stream of a number under `seed`.
    fn numbered(seed: u64, number: u64) -> Stream {
        let mut stream = Stream { state: 0, stream: number << 1 | 1 };
        stream.bits();
        stream.state = stream.state.wrapping_add(seed);
        stream.bits();
        stream
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(STEP).wrapping_add(self.stream);
        let xored = ((old >> 18) ^ old) >> 27;
        (xored as u32).rotate_right((old >> 59) as u32)
    }

    /// Below `n`, each about equally likely (bias below n / 2^32); 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(n) * u128::from(self.bits())) >> 32) as u64
    }

    /// Exponential with this mean, cut at 16 times the mean, at least 1.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let minus_ln = minus_ln(self.bits());
        let value = (u128::from(mean) * u128::from(minus_ln)) >> 32;
        (value as u64).min(mean.saturating_mul(16)).max(1)
    }
}

/// -ln((x + 1) / 2^32) with 32 fraction bits; error below 2^-20.
fn minus_ln(x: u32) -> u64 {
    let x = u64::from(x) + 1;
    let whole = 63 - x.leading_zeros();
    // log2 of the mantissa bit by bit: squaring doubles the logarithm.
    let mut mantissa = x << (31 - whole.min(31)) >> u32::from(whole == 32);
    let mut log2 = u64::from(whole) << 32;
    for bit in (8..32).rev() {
        mantissa = (mantissa * mantissa) >> 31;
        if mantissa >> 32 != 0 {
            mantissa >>= 1;
            log2 |= 1 << bit;
        }
    }
    let below = (32_u64 << 32) - log2;
    ((u128::from(below) * u128::from(LN2)) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_authors_own_program() {
        let mut stream = Stream::numbered(42, 54);
        let want = [0xa15c_02b7, 0x7b47_f409, 0xba1d_3330, 0x83d2_f293, 0xbfa4_784b, 0xcbed_606e];
        assert_eq!([(); 6].map(|()| stream.bits()), want);
    }

    #[test]
    fn a_stream_depends_on_seed_and_name_alone() {
        let draw = |seed, name| {
            let mut r = Stream::new(seed, name);
            [r.bits(), r.bits(), r.bits()]
        };
        assert_eq!(draw(1, "a/vcpu0"), draw(1, "a/vcpu0"));
        assert_ne!(draw(1, "a/vcpu0"), draw(2, "a/vcpu0"));
        assert_ne!(draw(1, "a/vcpu0"), draw(1, "a/vcpu1"));
    }

    #[test]
    fn the_logarithm_is_right_at_its_ends_and_in_the_middle() {
        for x in [0_u32, 1, 7, 1000, 1 << 16, 1 << 31, u32::MAX / 3, u32::MAX - 1, u32::MAX] {
            let real = -((f64::from(x) + 1.0) / 4_294_967_296.0).ln();
            let ours = minus_ln(x) as f64 / 4_294_967_296.0;
            assert!((real - ours).abs() < 1e-6, "{x}: {real} {ours}");
        }
    }

    #[test]
    fn exponential_numbers_have_their_mean_and_are_cut() {
        let mut r = Stream::new(1, "mean");
        let n = 100_000;
        let draws: Vec<u64> = (0..n).map(|_| r.exponential(1_000_000)).collect();
        let mean = draws.iter().sum::<u64>() / n;
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
        assert!(draws.iter().all(|d| (1..=16_000_000).contains(d)));
        // One in e is above the mean: 36.8 %.
        let above = draws.iter().filter(|d| **d > 1_000_000).count();
        assert!((36_000..37_600).contains(&above), "{above}");
    }
}
