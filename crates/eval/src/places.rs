//! Where the tokens of an attention problem lie in the kernel's memory, by layout, and the tensors that tell the kernel.
//!
//! Numbers are always (heads, tokens, head_dim); what differs between layouts is only where a row's bytes go. Memory that no token
//! has (behind the end of a cache, pages of nobody) holds NaN: a kernel that lets it into its sums shows it. A page that a table need
//! not name is a spare one, so that reading it is no fault.

use crate::attention::{Geometry, Length};
use crate::draw::Source;
use crate::values::Tensor;
use warpsmith_spec::words::{DType, Layout};

/// The places of all rows of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    layout: Layout,
    g: Geometry,
    /// One for each sequence; empty: all are whole.
    pub lengths: Vec<Length>,
    batch: usize,
    /// First tokens of the sequences, and behind the last one: queries and keys.
    starts: [Vec<usize>; 2],
    page_size: usize,
    /// Pages of each sequence, one sequence behind another.
    pages: Vec<usize>,
}

/// Sizes that the task's tensors give: tokens of q and of k and v in layout `ragged`, and pages in layout `paged`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub q: usize,
    pub k: usize,
    pub pages: usize,
    pub page_size: usize,
}

impl Places {
    /// Draws lengths and pages. The error says what does not fit.
    pub fn new(source: &Source, layout: Layout, g: Geometry, batch: usize, totals: Totals) -> Result<Places, String> {
        let mut places = Places {
            layout,
            g,
            lengths: Vec::new(),
            batch,
            starts: [Vec::new(), Vec::new()],
            page_size: totals.page_size.max(1),
            pages: Vec::new(),
        };
        match layout {
            Layout::Dense | Layout::Tokens | Layout::Packed | Layout::Wide => {}
            Layout::Lengths | Layout::Paged => {
                let lengths = source.cache_lengths(batch, g.seqlen_k);
                places.lengths = lengths.into_iter().map(|k| Length { q: g.seqlen, k }).collect();
            }
            Layout::Ragged => {
                let [q, k] = [("cu_seqlens_q", g.seqlen, totals.q), ("cu_seqlens_k", g.seqlen_k, totals.k)]
                    .map(|(name, most, total)| source.ragged_lengths(name, batch, most, total.min(batch * most)));
                places.lengths = q.iter().zip(&k).map(|(q, k)| Length { q: *q, k: *k }).collect();
                places.starts = [starts(&q), starts(&k)];
                let ends = places.starts.each_ref().map(|s| s.last().copied().unwrap_or(0));
                if ends != [totals.q, totals.k] {
                    return Err(format!(
                        "{batch} sequences of at most {} queries and {} keys are not {} and {} tokens",
                        g.seqlen, g.seqlen_k, totals.q, totals.k
                    ));
                }
            }
        }
        if layout == Layout::Paged {
            let each = g.seqlen_k.div_ceil(places.page_size);
            if totals.pages <= batch * each {
                return Err(format!(
                    "{} pages are not enough: {batch} sequences have {each} each, and one is spare",
                    totals.pages
                ));
            }
            places.pages = source.permutation(totals.pages).into_iter().map(|p| p as usize).collect();
        }
        Ok(places)
    }

    /// Row of q's memory, in rows of head_dim elements.
    pub fn q(&self, head: usize, row: usize) -> Option<usize> {
        let heads = self.g.heads / self.batch;
        let (b, h) = (head / heads, head % heads);
        match self.layout {
            Layout::Dense | Layout::Packed | Layout::Wide | Layout::Lengths | Layout::Paged => {
                Some(head * self.g.seqlen + row)
            }
            Layout::Tokens => Some((b * self.g.seqlen + row) * heads + h),
            Layout::Ragged => (row < self.lengths[b].q).then(|| (self.starts[0][b] + row) * heads + h),
        }
    }

    /// Row of k's and v's memory.
    pub fn k(&self, head: usize, token: usize) -> Option<usize> {
        let heads = self.g.heads_k / self.batch;
        let (b, h) = (head / heads, head % heads);
        let there = self.lengths.get(b).is_none_or(|l| token < l.k);
        if !there {
            return None;
        }
        Some(match self.layout {
            Layout::Dense | Layout::Packed | Layout::Wide => head * self.g.seqlen_k + token,
            Layout::Tokens | Layout::Lengths => (b * self.g.seqlen_k + token) * heads + h,
            Layout::Paged => {
                let page = self.pages[b * self.g.seqlen_k.div_ceil(self.page_size) + token / self.page_size];
                (page * self.page_size + token % self.page_size) * heads + h
            }
            Layout::Ragged => (self.starts[1][b] + token) * heads + h,
        })
    }

    /// Row of out's memory, in rows of head_dim elements.
    pub fn out(&self, head: usize, row: usize) -> Option<usize> {
        match self.layout {
            Layout::Ragged => self.q(head, row),
            _ => Some(head * self.g.seqlen + row),
        }
    }

    /// Element of lse's memory: (B, Hq, Sq), or (Hq, tokens) where sequences lie one behind another.
    pub fn lse(&self, head: usize, row: usize) -> Option<usize> {
        let heads = self.g.heads / self.batch;
        let (b, h) = (head / heads, head % heads);
        match self.layout {
            Layout::Ragged => {
                let total = self.starts[0].last().copied().unwrap_or(0);
                (row < self.lengths[b].q).then(|| h * total + self.starts[0][b] + row)
            }
            _ => Some(head * self.g.seqlen + row),
        }
    }

    /// Whether a row of (heads, tokens) lies just there, so that nothing has to be said of rows.
    pub fn is_plain(&self) -> bool {
        self.layout != Layout::Ragged
    }

    /// Rows of (heads, tokens) to where they lie; the rest is NaN.
    pub fn place(&self, dtype: DType, rows: &[u8], shape: &[u64], keys: bool) -> Vec<u8> {
        let width = self.g.head_dim * dtype.bytes() as usize;
        let poison = if matches!(dtype, DType::E4m3 | DType::E5m2) { 0x7f } else { 0xff };
        let mut memory = vec![poison; shape.iter().product::<u64>() as usize * dtype.bytes() as usize];
        let tokens = if keys { self.g.seqlen_k } else { self.g.seqlen };
        for (i, row) in rows.chunks_exact(width).enumerate() {
            let (head, token) = (i / tokens, i % tokens);
            let at = if keys { self.k(head, token) } else { self.q(head, token) };
            if let Some(to) = at.and_then(|at| memory.get_mut(at * width..(at + 1) * width)) {
                to.copy_from_slice(row);
            }
        }
        memory
    }

    /// The tensor that tells the kernel about it, by its name in the task; None: there is none of that name.
    pub fn tensor(&self, name: &str, shape: &[u64]) -> Option<Tensor> {
        let numbers: Vec<i32> = match name {
            "cache_seqlens" => self.lengths.iter().map(|l| l.k as i32).collect(),
            "cu_seqlens_q" => self.starts[0].iter().map(|n| *n as i32).collect(),
            "cu_seqlens_k" => self.starts[1].iter().map(|n| *n as i32).collect(),
            "page_table" => {
                let each = self.g.seqlen_k.div_ceil(self.page_size);
                let spare = self.pages.last().copied().unwrap_or(0);
                let used = |b: usize| self.lengths.get(b).map_or(0, |l| l.k.div_ceil(self.page_size));
                let page = |i: usize| if i % each < used(i / each) { self.pages[i] } else { spare };
                (0..self.batch * each).map(|i| page(i) as i32).collect()
            }
            _ => return None,
        };
        let bytes = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        Some(Tensor { name: name.to_string(), dtype: DType::I32, shape: shape.to_vec(), bytes })
    }
}

fn starts(lengths: &[usize]) -> Vec<usize> {
    let mut at = 0;
    let mut found = vec![0];
    found.extend(lengths.iter().map(|n| {
        at += n;
        at
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four sequences of at most 50 queries and 100 keys, six query heads on two key heads.
    const G: Geometry = Geometry { heads: 24, seqlen: 50, heads_k: 8, seqlen_k: 100, head_dim: 16 };
    const TOTALS: Totals = Totals { q: 150, k: 300, pages: 29, page_size: 16 };

    #[test]
    fn every_token_has_a_place_of_its_own_and_comes_back_from_it() {
        for layout in Layout::ALL {
            let places = Places::new(&Source::new(3, 0), *layout, G, 4, TOTALS).expect("they fit");
            for (keys, heads, tokens) in [(false, 24, 50), (true, 8, 100)] {
                let mut seen = std::collections::BTreeSet::new();
                for head in 0..heads {
                    for token in 0..tokens {
                        let at = if keys { places.k(head, token) } else { places.q(head, token) };
                        assert!(at.is_none_or(|at| seen.insert(at)), "{layout}, head {head}, token {token}: taken");
                    }
                }
                let length = |l: &Length| if keys { l.k } else { l.q };
                let wanted = if places.lengths.is_empty() {
                    heads * tokens
                } else {
                    places.lengths.iter().map(length).sum::<usize>() * heads / 4
                };
                assert_eq!(seen.len(), wanted, "{layout}, keys {keys}");
            }
        }
    }

    #[test]
    fn lengths_hold_the_ends_that_kernels_get_wrong() {
        let of = |layout| Places::new(&Source::new(0, 0), layout, G, 4, TOTALS).expect("they fit").lengths;
        for layout in [Layout::Lengths, Layout::Paged] {
            let k: Vec<usize> = of(layout).iter().map(|l| l.k).collect();
            assert!(k[0] == 100 && k[2] == 0 && k.iter().all(|n| *n <= 100), "{k:?}");
        }
        let ragged = of(Layout::Ragged);
        assert_eq!(ragged.iter().map(|l| (l.q, l.k)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)), (150, 300));
        assert!(ragged.iter().any(|l| l.k == 0) && ragged.iter().all(|l| l.q <= 50 && l.k <= 100), "{ragged:?}");
        assert!(of(Layout::Tokens).is_empty());
    }

    #[test]
    fn pages_behind_the_end_are_the_spare_one_and_what_nobody_has_is_nan() {
        let places = Places::new(&Source::new(0, 0), Layout::Paged, G, 4, TOTALS).expect("they fit");
        let table = places.tensor("page_table", &[4, 7]).expect("its name");
        let pages: Vec<i32> = table.bytes.chunks(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert_eq!(pages.len(), 28);
        assert!(pages[14..21].iter().all(|p| *p == pages[14]), "the third sequence has no keys: {pages:?}");
        let rows = vec![1u8; 8 * 100 * 16];
        let memory = places.place(DType::E4m3, &rows, &[29, 16, 2, 16], true);
        let ones = memory.iter().filter(|b| **b == 1).count();
        assert_eq!(ones, places.lengths.iter().map(|l| l.k).sum::<usize>() * 2 * 16);
        assert!(memory.iter().all(|b| *b == 1 || *b == 0x7f));
        assert!(places.tensor("no such", &[1]).is_none());
        let small = Totals { pages: 28, ..TOTALS };
        assert!(Places::new(&Source::new(0, 0), Layout::Paged, G, 4, small).is_err());
    }
}
