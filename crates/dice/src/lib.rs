//! Random numbers that a seed decides, for simulated runs, drills and tests: the same on every
//! machine, in integers only, and never from the machine's own entropy.
//!
//! Seeds are written down, in scenarios, tests and documents, so both sequences are part of what
//! Tandem promises: a test holds each to its author's own numbers.
//!
//! | type | algorithm | for |
//! |---|---|---|
//! | [`Stream`] | PCG-XSH-RR 64/32, a stream a name | what happens within a simulated run |
//! | [`Draw`] | SplitMix64 | hosts, trees, events and bytes that a test or a drill makes up |

mod stream;

pub use stream::Stream;

/// Numbers drawn from a seed by SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable
/// Pseudorandom Number Generators", 2014). Any seed will do, 0 and neighbours among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    /// The numbers of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, each about equally likely (bias below n / 2^64).
    ///
    /// # Panics
    /// When `n` is 0.
    pub const fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// One of these, each about equally likely.
    ///
    /// # Panics
    /// When there is none.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_splitmix64() {
        let mut draw = Draw::new(1_234_567);
        let want = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| draw.bits()), want);
        assert_eq!(Draw::new(0).bits(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn a_draw_below_a_bound_is_the_rest_of_the_bits_and_one_of_many_has_its_index() {
        let draw = || Draw::new(1_234_567);
        assert_eq!(draw().below(1000), 317);
        assert_eq!(draw().of(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]), "h");
    }
}
