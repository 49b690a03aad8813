//! Drawing lots: which inputs a replay has, in which order subjects are timed, which outputs are looked at. From a secret, so that a run
//! replays and no kernel can foresee it.
//!
//! SplitMix64 is no cryptography: the secret is drawn from the system anew for each run, and the process that runs candidates never has it.

use warpsmith_num::splitmix::SplitMix64;

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Lots(SplitMix64);

impl Lots {
    pub fn new(seed: u64) -> Lots {
        Lots(SplitMix64(seed))
    }

    /// The stream for one purpose and place.
    pub fn of(secret: u64, purpose: &str, place: u64) -> Lots {
        let hash =
            purpose.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let mut lots = Lots::new(secret ^ hash.rotate_left(17));
        let first = lots.draw();
        Lots::new(first ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.bits()
    }

    /// From 0 to `n` - 1; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }

    /// From 0 up to, not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, mean 0 and deviation 1 (the sum of twelve uniform numbers, which never strays beyond 6).
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// The numbers from 0 to `n` - 1 in random order.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
        order
    }
}

/// A secret drawn from the system.
pub fn fresh_secret() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The standard library's hasher is seeded by the system. Zero is the published sequence of inputs, so it is no secret; and JSON readers
    // that know no integers but doubles keep 53 bits.
    (RandomState::new().build_hasher().finish() >> 11).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_comes_and_replays() {
        let mut seen = std::collections::BTreeSet::new();
        let mut lots = Lots::of(7, "order", 0);
        for _ in 0..200 {
            let mut order = lots.order(4);
            seen.insert(order.clone());
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3]);
        }
        assert_eq!(seen.len(), 24);
        assert_eq!(Lots::of(7, "order", 3).draw(), Lots::of(7, "order", 3).draw());
        assert_ne!(Lots::of(7, "order", 3).draw(), Lots::of(7, "order", 4).draw());
        assert_ne!(Lots::of(7, "order", 3).draw(), Lots::of(7, "base", 3).draw());
        assert_eq!((Lots::new(1).below(0), Lots::new(1).order(0)), (0, vec![]));
    }
}
