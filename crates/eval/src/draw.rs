//! Input values from the counter-based generator: the distributions that workloads are made of.
//!
//! A value depends only on (seed, tensor name, index), so inputs are the same on every machine and for any number of
//! threads; transcendental functions are `libm`'s. Knows nothing of formats: it draws f32 numbers.
//! Why needles: on normal inputs a kernel that skips the last key at 16,384 keys errs less than an honest FP8 one;
//! where one query in four looks for one key, it errs nine times the limit.

use crate::attention::{Geometry, Sight};
use rayon::prelude::*;
use warpsmith_num::philox::Philox4x32;
use warpsmith_spec::words::Distribution;

/// What a stream of the generator is for; part of its identity.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Base,
    OutlierPlace,
    OutlierValue,
    Shift,
    Needles,
    Constant,
    Lengths,
    Pages,
}

/// Draws values and indices, each named by what it is for.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    seed: u64,
}

impl Source {
    /// `seed` is the record's; a `secret` of zero is the published sequence.
    pub fn new(seed: u64, secret: u64) -> Source {
        Source { seed: seed ^ secret.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn stream(&self, tensor: &str, purpose: Purpose) -> Philox4x32 {
        // FNV-1a of the tensor's name, so that streams do not depend on the order of tensors.
        let hash = tensor.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ b as u64).wrapping_mul(0x100_0000_01b3));
        Philox4x32::new(self.seed, hash.wrapping_mul(8).wrapping_add(purpose as u64))
    }

    /// `n` standard normal numbers.
    pub fn normal(&self, tensor: &str, n: usize) -> Vec<f32> {
        normal(self.stream(tensor, Purpose::Base), n)
    }

    /// `n` numbers in [0, 1).
    pub fn uniform(&self, tensor: &str, n: usize) -> Vec<f64> {
        let stream = self.stream(tensor, Purpose::Base);
        (0..n as u64).map(|i| unit(stream.at(i / 4)[(i % 4) as usize])).collect()
    }

    /// Values of one tensor of a task that is not attention. Needles and peaked have no meaning there: normal.
    pub fn tensor(&self, distribution: Distribution, name: &str, n: usize) -> Vec<f32> {
        match distribution {
            Distribution::Zeros => vec![0.0; n],
            Distribution::Constant | Distribution::Equal => vec![self.constant(name); n],
            _ => {
                let mut x = self.normal(name, n);
                if distribution == Distribution::Outliers {
                    self.add_outliers(name, &mut x);
                }
                if distribution == Distribution::Shifted {
                    let shift = normal(self.stream(name, Purpose::Shift), 1)[0] * 4.0;
                    x.iter_mut().for_each(|x| *x += shift);
                }
                x
            }
        }
    }

    /// Normal numbers (heads ..., tokens, channels), every channel of every head with an offset of its own.
    pub fn channels(&self, name: &str, shape: &[u64]) -> Vec<f32> {
        let [heads @ .., tokens, channels] = shape else {
            return self.normal(name, shape.iter().product::<u64>() as usize);
        };
        let (heads, width) = (heads.iter().product::<u64>() as usize, *channels as usize);
        let head = (*tokens as usize * width).max(1);
        let shift = normal(self.stream(name, Purpose::Shift), heads * width);
        let mut x = self.normal(name, heads * head);
        x.iter_mut().enumerate().for_each(|(i, x)| *x += 4.0 * shift[i / head * width + i % width]);
        x
    }

    fn constant(&self, name: &str) -> f32 {
        // Away from zero, either sign.
        let x = unit(self.stream(name, Purpose::Constant).at(0)[0]) as f32;
        if x < 0.5 { x - 1.0 } else { x }
    }

    fn add_outliers(&self, name: &str, x: &mut [f32]) {
        let place = self.stream(name, Purpose::OutlierPlace);
        let value = self.stream(name, Purpose::OutlierValue);
        for (i, x) in x.iter_mut().enumerate() {
            if unit(place.at(i as u64 / 4)[i % 4]) < 1e-3 {
                *x += 100.0 * pair(value.at(i as u64))[0] as f32;
            }
        }
    }

    /// q, k, v of attention.
    pub fn attention(&self, distribution: Distribution, g: Geometry, causal: bool) -> Drawn {
        self.attention_of(distribution, g, &Sight::full(causal))
    }

    /// The same of sequences with lengths of their own.
    pub fn attention_of(&self, distribution: Distribution, g: Geometry, sight: &Sight) -> Drawn {
        let sizes = [("q", g.elements()), ("k", g.elements_k()), ("v", g.elements_k())];
        if matches!(distribution, Distribution::Zeros | Distribution::Constant) {
            let [q, k, v] = sizes.map(|(name, n)| self.tensor(distribution, name, n));
            return Drawn { q, k, v, needles: Vec::new() };
        }
        let [mut q, mut k, mut v] = sizes.map(|(name, n)| self.normal(name, n));
        let mut needles = Vec::new();
        match distribution {
            Distribution::Needles => {
                for head in 0..g.heads {
                    let square = g.heads == g.heads_k && g.seqlen == g.seqlen_k && sight.lengths.is_empty();
                    let placed =
                        if square { self.needles(g, head, sight.causal) } else { self.needles_seen(g, head, sight) };
                    for n in &placed {
                        let from = (g.key_head(head) * g.seqlen_k + n.key as usize) * g.head_dim;
                        let to = (head * g.seqlen + n.row as usize) * g.head_dim;
                        for (to, from) in q[to..to + g.head_dim].iter_mut().zip(&k[from..from + g.head_dim]) {
                            *to = 3.0 * from;
                        }
                    }
                    needles.push(placed);
                }
            }
            Distribution::Outliers => {
                for (name, x) in [("q", &mut q), ("k", &mut k), ("v", &mut v)] {
                    self.add_outliers(name, x);
                }
            }
            Distribution::Peaked => q.iter_mut().for_each(|x| *x *= 6.0),
            Distribution::Shifted => {
                for (name, x, size) in [("k", &mut k, 4.0), ("v", &mut v, 2.0)] {
                    let shift = normal(self.stream(name, Purpose::Shift), g.heads_k * g.head_dim);
                    for (i, x) in x.iter_mut().enumerate() {
                        *x += size * shift[i / (g.seqlen_k * g.head_dim) * g.head_dim + i % g.head_dim];
                    }
                }
            }
            Distribution::Equal => {
                let head = g.seqlen_k * g.head_dim;
                for keys in k.chunks_mut(head) {
                    let (first, rest) = keys.split_at_mut(g.head_dim);
                    rest.chunks_mut(g.head_dim).for_each(|key| key.copy_from_slice(first));
                }
                v.fill(1.0);
            }
            Distribution::Normal | Distribution::Constant | Distribution::Zeros => {}
        }
        Drawn { q, k, v, needles }
    }

    /// One row of every four, and a key that it may see: the last that anybody sees, the first, then the edges of tiles of 16.
    fn needles_seen(&self, g: Geometry, head: usize, sight: &Sight) -> Vec<Needle> {
        let mut dice = Dice::of(self.stream("needles", Purpose::Needles), (head as u64) << 40);
        let s = sight.length(g, head).q;
        let rows: Vec<u32> = (0..s.div_ceil(4))
            .map(|i| if 4 * i + 4 >= s { s as u32 - 1 } else { (4 * i + dice.below(4)) as u32 })
            .collect();
        let seen = |row: u32| sight.visible(g, head, row as usize) as u32;
        let most = rows.iter().map(|r| seen(*r)).max().unwrap_or(0);
        if most == 0 {
            return Vec::new();
        }
        let mut edges: Vec<u32> = (0..most)
            .step_by(16)
            .flat_map(|b| [b, (b + 15).min(most - 1)])
            .filter(|&k| k != 0 && k != most - 1)
            .collect();
        dice.shuffle(&mut edges);
        let mut wanted: Vec<u32> = [most - 1, 0].into_iter().chain(edges).take(rows.len()).collect();
        wanted.dedup();
        wanted.sort_unstable_by(|a, b| b.cmp(a));
        // As under a mask: the last keys choose first among the rows that see them; what a row sees grows with it.
        let mut free = rows;
        let mut placed = Vec::with_capacity(free.len());
        for key in wanted {
            let from = free.partition_point(|&row| seen(row) <= key);
            if from < free.len() {
                let row = free.remove(from + dice.below(free.len() - from));
                placed.push(Needle { row, key });
            }
        }
        for row in free.into_iter().filter(|r| seen(*r) > 0) {
            placed.push(Needle { row, key: dice.below(seen(row) as usize) as u32 });
        }
        placed.sort();
        placed
    }

    /// Lengths of caches of at most `most` keys: a whole one, then others; none at all for the third of three or more.
    pub fn cache_lengths(&self, sequences: usize, most: usize) -> Vec<usize> {
        let mut dice = Dice::of(self.stream("cache_seqlens", Purpose::Lengths), 0);
        (0..sequences)
            .map(|i| match i {
                0 => most,
                2 => 0,
                _ => 1 + dice.below(most),
            })
            .collect()
    }

    /// Lengths of at most `most` tokens whose sum is `total`, which is at most `sequences * most`; where four or more sequences leave
    /// room for it, one of them has none.
    pub fn ragged_lengths(&self, name: &str, sequences: usize, most: usize, total: usize) -> Vec<usize> {
        let mut dice = Dice::of(self.stream(name, Purpose::Lengths), 0);
        let mut lengths: Vec<usize> = (0..sequences).map(|_| dice.below(most + 1)).collect();
        // Which one depends on the tensor: so there are queries without keys, and keys without queries.
        let none = dice.below(sequences.max(1));
        let may = |i: usize| sequences < 4 || i != none || total > (sequences - 1) * most;
        if !may(none) {
            lengths[none] = 0;
        }
        let sum: usize = lengths.iter().sum();
        let mut excess = sum.saturating_sub(total);
        let mut missing = total.saturating_sub(sum);
        for (i, length) in lengths.iter_mut().enumerate() {
            let more = if may(i) { missing.min(most - *length) } else { 0 };
            let less = excess.min(*length);
            *length = *length + more - less;
            (missing, excess) = (missing - more, excess - less);
        }
        lengths
    }

    /// Numbers below `n` in an order without order.
    pub fn permutation(&self, n: usize) -> Vec<u32> {
        let mut found: Vec<u32> = (0..n as u32).collect();
        Dice::of(self.stream("pages", Purpose::Pages), 0).shuffle(&mut found);
        found
    }

    /// One row of every four, and the key that it looks for.
    fn needles(&self, g: Geometry, head: usize, causal: bool) -> Vec<Needle> {
        let mut dice = Dice::of(self.stream("needles", Purpose::Needles), (head as u64) << 40);
        let s = g.seqlen;
        let mut rows: Vec<u32> = (0..s.div_ceil(4)).map(|i| (4 * i + dice.below((s - 4 * i).min(4))) as u32).collect();
        let last = s as u32 - 1;
        if causal && let Some(end) = rows.last_mut() {
            // Under the mask only the last row sees the last key.
            *end = last;
        }
        // The last key certainly, the first, then the edges of tiles.
        let mut wanted: Vec<u32> = (0..s)
            .step_by(16)
            .flat_map(|b| [b as u32, (b + 15).min(s - 1) as u32])
            .filter(|&k| k != 0 && k != last)
            .collect();
        dice.shuffle(&mut wanted);
        let mut first = vec![last];
        if s > 1 && rows.len() > 1 {
            first.push(0);
        }
        first.extend(wanted);
        if causal { place_causal(&mut dice, rows, first) } else { place(&mut dice, rows, first, s) }
    }
}

/// What was drawn for attention, unquantised.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    /// For each head, sorted by row; empty where the distribution has none.
    pub needles: Vec<Vec<Needle>>,
}

/// A query that looks for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needle {
    pub row: u32,
    pub key: u32,
}

fn place(dice: &mut Dice, mut rows: Vec<u32>, wanted: Vec<u32>, seqlen: usize) -> Vec<Needle> {
    dice.shuffle(&mut rows);
    let mut keys: Vec<u32> = wanted;
    keys.truncate(rows.len());
    while keys.len() < rows.len() {
        keys.push(dice.below(seqlen) as u32);
    }
    let mut placed: Vec<Needle> = rows.into_iter().zip(keys).map(|(row, key)| Needle { row, key }).collect();
    placed.sort();
    placed
}

/// A row sees keys up to its own. The wanted keys choose among rows at or after them, the last keys first, so that an
/// early key cannot take the only row that a late one has; a key that finds none is left out.
fn place_causal(dice: &mut Dice, rows: Vec<u32>, wanted: Vec<u32>) -> Vec<Needle> {
    let mut free = rows;
    let mut placed = Vec::with_capacity(free.len());
    let mut wanted: Vec<u32> = wanted.into_iter().take(free.len()).collect();
    wanted.sort_unstable_by(|a, b| b.cmp(a));
    for key in wanted {
        let from = free.partition_point(|&row| row < key);
        if from < free.len() {
            let row = free.remove(from + dice.below(free.len() - from));
            placed.push(Needle { row, key });
        }
    }
    for row in free {
        placed.push(Needle { row, key: dice.below(row as usize + 1) as u32 });
    }
    placed.sort();
    placed
}

/// Indices in sequence from one stream.
pub(crate) struct Dice {
    stream: Philox4x32,
    counter: u64,
    left: usize,
    words: [u32; 4],
}

impl Dice {
    pub(crate) fn new(seed: u64, stream: u64) -> Dice {
        Dice::of(Philox4x32::new(seed, stream), 0)
    }

    fn of(stream: Philox4x32, counter: u64) -> Dice {
        Dice { stream, counter, left: 0, words: [0; 4] }
    }

    /// A number below `n`, which is at least 1 and below 2^32. Lemire's multiplication; its bias of n / 2^32 does not matter here.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        if self.left == 0 {
            self.words = self.stream.at(self.counter);
            self.counter += 1;
            self.left = 4;
        }
        self.left -= 1;
        ((self.words[self.left] as u64 * n as u64) >> 32) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

fn unit(word: u32) -> f64 {
    word as f64 / 4294967296.0
}

/// Box and Muller: two independent normal numbers of two words (the other two are not used).
fn pair(words: [u32; 4]) -> [f64; 2] {
    box_muller(words[0], words[1])
}

fn box_muller(a: u32, b: u32) -> [f64; 2] {
    let radius = (-2.0 * libm::log((a as f64 + 0.5) / 4294967296.0)).sqrt();
    let (sin, cos) = libm::sincos(std::f64::consts::TAU * unit(b));
    [radius * cos, radius * sin]
}

fn normal(stream: Philox4x32, n: usize) -> Vec<f32> {
    let mut out = vec![0.0f32; n];
    out.par_chunks_mut(4096).enumerate().for_each(|(block, out)| {
        for (i, out) in out.chunks_mut(4).enumerate() {
            let words = stream.at(block as u64 * 1024 + i as u64);
            let four = [box_muller(words[0], words[1]), box_muller(words[2], words[3])];
            for (to, from) in out.iter_mut().zip(four.as_flattened()) {
                *to = *from as f32;
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: Geometry = Geometry::square(3, 512, 16);

    #[test]
    fn normal_numbers_are_normal_and_repeat() {
        let x = Source::new(1, 0).normal("q", 100_000);
        let mean = x.iter().sum::<f32>() / 1e5;
        let variance = x.iter().map(|x| x * x).sum::<f32>() / 1e5;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
        assert_eq!(x[..5000], Source::new(1, 0).normal("q", 5000));
        assert_ne!(x[..8], Source::new(2, 0).normal("q", 8));
        assert_ne!(x[..8], Source::new(1, 9).normal("q", 8));
        assert_ne!(x[..8], Source::new(1, 0).normal("k", 8));
    }

    #[test]
    fn the_published_sequence_does_not_drift() {
        let bits: Vec<u32> = Source::new(0, 0).normal("q", 4).iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, PUBLISHED, "inputs of every past record depend on these");
    }
    const PUBLISHED: [u32; 4] = [3213909649, 3180826790, 1070295262, 3220306697];

    #[test]
    fn needles_cover_first_last_and_tile_edges_and_respect_the_mask() {
        for causal in [false, true] {
            for seqlen in [1, 2, 31, 32, 100, 512, 777] {
                let g = Geometry::square(3, seqlen, 16);
                let drawn = Source::new(7, 0).attention(Distribution::Needles, g, causal);
                for (head, needles) in drawn.needles.iter().enumerate() {
                    let keys: Vec<u32> = needles.iter().map(|n| n.key).collect();
                    assert_eq!(needles.len(), seqlen.div_ceil(4));
                    assert!(keys.contains(&(seqlen as u32 - 1)), "last key, {seqlen} keys, causal {causal}");
                    assert!(seqlen < 5 || keys.contains(&0), "first key, {seqlen} keys, causal {causal}");
                    if seqlen >= 100 {
                        let edges: Vec<u32> =
                            (0..seqlen as u32).step_by(16).flat_map(|b| [b, (b + 15).min(seqlen as u32 - 1)]).collect();
                        let missed = edges.iter().filter(|e| !keys.contains(e)).count();
                        assert!(
                            missed <= if causal { 2 } else { 0 },
                            "{missed} edges missed of {seqlen}, causal {causal}"
                        );
                    }
                    for n in needles {
                        assert!(!causal || n.row >= n.key, "row {} looks for key {} behind the mask", n.row, n.key);
                        let at = |i: u32| (head * seqlen + i as usize) * g.head_dim;
                        assert_eq!(drawn.q[at(n.row)], 3.0 * drawn.k[at(n.key)]);
                    }
                }
            }
        }
    }

    #[test]
    fn distributions_are_what_they_say() {
        let of = |d| Source::new(0, 0).attention(d, G, false);
        let largest = |x: &[f32]| x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        assert!(of(Distribution::Zeros).q.iter().all(|x| *x == 0.0));
        let constant = of(Distribution::Constant);
        assert!(constant.v.iter().all(|x| *x == constant.v[0] && x.abs() >= 0.5));
        assert!(largest(&of(Distribution::Outliers).k) > 50.0 && largest(&of(Distribution::Normal).k) < 7.0);
        assert!(largest(&of(Distribution::Peaked).q) > 20.0);
        let shifted = of(Distribution::Shifted);
        let mean = (0..512).map(|t| shifted.k[t * 16]).sum::<f32>() / 512.0;
        let other = (0..512).map(|t| shifted.k[(512 + t) * 16]).sum::<f32>() / 512.0;
        assert!((mean - other).abs() > 0.3, "each head has its own shift: {mean}, {other}");
    }
}
