//! Where the lanes of a warp access: addresses that neighbours share stand there once.

use super::planes::{LANE_SHIFT, SEVERAL};

/// Addresses of an access, each with the tag of who is there: a lane, or several.
#[derive(Debug)]
pub struct Places {
    at: [u32; 32],
    tags: [u64; 32],
    count: usize,
}

impl Places {
    /// Those of the lanes of `m`.
    ///
    /// PERF: equal addresses are found where they usually are, at distances of powers of two; others may stay apart, which is right too.
    #[inline(always)]
    pub fn new(m: u32, at: &[u32; 32]) -> Places {
        let (mut repeated, mut several) = (0u32, 0u32);
        let first = at[m.trailing_zeros() as usize & 31];
        if [1, 2, 4, 8, 16].iter().any(|d| at[*d] == at[0] || at[31 - d] == at[31]) {
            let mut shifted = [0u32; 48];
            shifted[16..].copy_from_slice(at);
            for d in [1usize, 2, 4, 8, 16] {
                let mut bits = [0u32; 32];
                for (l, (bit, (at, before))) in bits.iter_mut().zip(at.iter().zip(&shifted[16 - d..])).enumerate() {
                    *bit = if at == before { 1 << l } else { 0 };
                }
                let same = bits.iter().fold(0, |a, b| a | b) & m & (m << d);
                repeated |= same;
                several |= same | same >> d;
            }
        }
        if repeated == 0 && m == u32::MAX {
            return Places { at: *at, tags: std::array::from_fn(|l| (l as u64) << LANE_SHIFT), count: 32 };
        }
        let mut p = Places { at: [first; 32], tags: [0; 32], count: 0 };
        let mut left = m & !repeated;
        while left != 0 {
            let l = left.trailing_zeros() as usize;
            left &= left - 1;
            p.at[p.count] = at[l];
            p.tags[p.count] = (l as u64) << LANE_SHIFT | if several >> l & 1 != 0 { SEVERAL } else { 0 };
            p.count += 1;
        }
        p
    }

    /// The addresses.
    #[inline(always)]
    pub fn at(&self) -> &[u32] {
        &self.at[..self.count]
    }

    /// Addresses with their tags.
    #[inline(always)]
    pub(super) fn tagged(&self) -> impl Iterator<Item = (usize, u64)> {
        self.at().iter().zip(&self.tags).map(|(at, tag)| (*at as usize, *tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_active_lane_is_at_a_place_and_shared_ones_say_so() {
        let patterns: [fn(u32) -> u32; 6] =
            [|l| l, |_| 3, |l| l / 2, |l| l % 2, |l| l * 7 % 32 / 3, |l| l % 8 * 4 + l / 16];
        for (n, pattern) in patterns.into_iter().enumerate() {
            for m in [u32::MAX, 1, 1 << 31, 0x8000_0001, 0x5555_5555, 0x00FF_0000] {
                // Lanes that take no part stand where the first one does.
                let at: [u32; 32] =
                    std::array::from_fn(|l| pattern(if m >> l & 1 != 0 { l as u32 } else { m.trailing_zeros() }) * 16);
                let p = Places::new(m, &at);
                let active: Vec<u32> = (0..32).filter(|l| m >> l & 1 != 0).collect();
                for &l in &active {
                    assert!(p.at().contains(&at[l as usize]), "{n} {m:x} {l}");
                }
                for (place, tag) in p.tagged() {
                    let here: Vec<u64> =
                        active.iter().filter(|l| at[**l as usize] as usize == place).map(|l| u64::from(*l)).collect();
                    assert!(here.contains(&(tag >> LANE_SHIFT & 31)), "{n} {m:x}");
                    // Alone, or one of several entries for one place, which are merged later.
                    assert!(tag & SEVERAL == 0 || here.len() > 1, "{n} {m:x}");
                    let entries = p.at().iter().filter(|a| **a as usize == place).count();
                    assert!(here.len() == 1 || tag & SEVERAL != 0 || entries > 1, "{n} {m:x}");
                }
            }
        }
    }
}
