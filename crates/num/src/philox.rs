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
}
