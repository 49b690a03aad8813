//! SplitMix64: a stream of numbers from a seed, for lots, fuzzing and operands of tests, which draw one after the other.
//! Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014). Inputs of tasks come from `philox`.

/// A stream; the same on every platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `bound` - 1, nearly evenly; 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// A place in something of so many elements; 0 where there are none.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn known_answers() {
        // The first values of the reference implementation for seed 1234567 (Vigna, prng.di.unimi.it/splitmix64.c).
        let mut s = SplitMix64(1_234_567);
        assert_eq!([s.bits(), s.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_eq!((s.below(0), s.index(1)), (0, 0));
    }
}
