//! Philox4x32-10, the counter-based generator of Salmon et al. (SC'11): any draw can be had on its own, so inputs are the same
//! however many threads make them. Checked against the known answers of Random123's kat_vectors.

/// A generator: a key (the seed) and a stream (the upper half of the counter).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Philox4x32 {
    key: [u32; 2],
    stream: [u32; 2],
}

impl Philox4x32 {
    /// Draws of different seeds or streams are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { key: halves(seed), stream: halves(stream) }
    }

    /// The four words at `counter`.
    pub fn at(&self, counter: u64) -> [u32; 4] {
        let [low, high] = halves(counter);
        rounds([low, high, self.stream[0], self.stream[1]], self.key)
    }

    /// Draw `index` of a uniform distribution over [0, 1), with 53 bits.
    pub fn uniform(&self, index: u64) -> f64 {
        let words = self.at(index / 2);
        let pair = if index.is_multiple_of(2) { [words[0], words[1]] } else { [words[2], words[3]] };
        unit(pair)
    }

    /// Draw `index` of the standard normal distribution (Box-Muller; a counter makes two).
    pub fn normal(&self, index: u64) -> f64 {
        let [a, b, c, d] = self.at(index / 2);
        // 1 - u is in (0, 1], so the logarithm is finite; the largest magnitude is 8.6.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit([a, b])));
        let angle = std::f64::consts::TAU * unit([c, d]);
        radius * if index.is_multiple_of(2) { libm::cos(angle) } else { libm::sin(angle) }
    }

    /// The numbers 0 to `len` - 1 in random order, each order as likely (Fisher and Yates, from counter 0).
    pub fn permutation(&self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for left in (2..=len).rev() {
            // A bias of `left` / 2^53 is left, too little for any test to see.
            let chosen = (self.uniform((len - left) as u64) * left as f64) as usize;
            order.swap(left - 1, chosen.min(left - 1));
        }
        order
    }
}

/// 53 bits of two words as a number in [0, 1).
fn unit([high, low]: [u32; 2]) -> f64 {
    let word = (high as u64) << 32 | low as u64;
    (word >> 11) as f64 / (1u64 << 53) as f64
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn rounds(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let first = counter[0] as u64 * 0xd251_1f53;
        let second = counter[2] as u64 * 0xcd9e_8d57;
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_of_random123() {
        let rows = [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ];
        for (counter, key, want) in rows {
            assert_eq!(rounds(counter, key), want);
        }
    }

    #[test]
    fn seed_stream_and_counter_are_where_random123_has_them() {
        let generator = Philox4x32::new(0x299f31d0_a4093822, 0x03707344_13198a2e);
        assert_eq!(generator.at(0x85a308d3_243f6a88), [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]);
    }

    #[test]
    fn draws_have_their_distributions_moments() {
        let generator = Philox4x32::new(1, 2);
        let n = 100_000;
        let moments = |draw: &dyn Fn(u64) -> f64| {
            let mean = (0..n).map(draw).sum::<f64>() / n as f64;
            let square = (0..n).map(|i| draw(i) * draw(i)).sum::<f64>() / n as f64;
            let fourth = (0..n).map(|i| draw(i).powi(4)).sum::<f64>() / n as f64;
            let next = (0..n).map(|i| draw(i) * draw(i + 1)).sum::<f64>() / n as f64;
            [mean, square, fourth, next]
        };
        let normal = moments(&|i| generator.normal(i));
        let uniform = moments(&|i| generator.uniform(i));
        for (got, want) in [(normal, [0.0, 1.0, 3.0, 0.0]), (uniform, [0.5, 1.0 / 3.0, 0.2, 0.25])] {
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() < 0.05, "{got} is not near {want}");
            }
        }
    }

    #[test]
    fn normals_have_the_same_bits_everywhere() {
        let generator = Philox4x32::new(42, 7);
        let sum = (0..1000).fold(0u64, |sum, i| sum.rotate_left(5) ^ generator.normal(i).to_bits());
        assert_eq!(sum, 11580780917033323649, "pinned on x86-64");
    }

    #[test]
    fn permutations_hold_every_number_once_and_differ_by_seed() {
        for len in [0, 1, 2, 100] {
            let mut order = Philox4x32::new(5, 0).permutation(len);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..len));
        }
        assert_ne!(Philox4x32::new(5, 0).permutation(50), Philox4x32::new(6, 0).permutation(50));
        // Each of the six orders of three numbers about equally often.
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..6000 {
            *counts.entry(Philox4x32::new(seed, 0).permutation(3)).or_insert(0) += 1;
        }
        assert!(counts.len() == 6 && counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
