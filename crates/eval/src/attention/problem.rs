//! One attention problem as numbers: what the oracle and the honest kernel are given.
//!
//! Shapes are (heads, seqlen, head_dim) with heads = batch x heads, all tensors contiguous whatever the kernel's memory looks like.
//! Values are either the unquantised numbers or decoded codes with their scales; this module does not know which format they came from.

/// Sizes of one problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Batch times query heads.
    pub heads: usize,
    /// Queries of a sequence, at most.
    pub seqlen: usize,
    /// Batch times key heads; it divides `heads`.
    pub heads_k: usize,
    /// Keys of a sequence, at most.
    pub seqlen_k: usize,
    pub head_dim: usize,
}

impl Geometry {
    /// As many keys as queries, and a key head for each query head.
    pub const fn square(heads: usize, seqlen: usize, head_dim: usize) -> Geometry {
        Geometry { heads, seqlen, heads_k: heads, seqlen_k: seqlen, head_dim }
    }

    /// Elements of q.
    pub fn elements(self) -> usize {
        self.heads * self.seqlen * self.head_dim
    }

    /// Elements of k, or of v.
    pub fn elements_k(self) -> usize {
        self.heads_k * self.seqlen_k * self.head_dim
    }

    /// The key head of a query head.
    pub fn key_head(self, head: usize) -> usize {
        head / (self.heads / self.heads_k.max(1)).max(1)
    }

    /// Multiply-adds of attention over `rows` query rows, without a mask.
    pub fn work(self, rows: usize) -> u128 {
        rows as u128 * self.seqlen_k as u128 * self.head_dim as u128 * 2
    }
}

/// The lengths of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    pub q: usize,
    pub k: usize,
}

/// Which keys the queries see: the mask, and lengths of sequences where they differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// Aligned bottom-right: a sequence's last query sees its last key.
    pub causal: bool,
    /// One for each sequence; empty: all are as long as the geometry says.
    pub lengths: Vec<Length>,
}

impl Sight {
    pub const fn full(causal: bool) -> Sight {
        Sight { causal, lengths: Vec::new() }
    }

    /// The lengths that a query head's sequence has.
    pub fn length(&self, g: Geometry, head: usize) -> Length {
        let whole = Length { q: g.seqlen, k: g.seqlen_k };
        let heads = (g.heads / self.lengths.len().max(1)).max(1);
        self.lengths.get(head / heads).copied().unwrap_or(whole)
    }

    /// How many keys, from the first on, a query sees.
    pub fn visible(&self, g: Geometry, head: usize, row: usize) -> usize {
        let Length { q, k } = self.length(g, head);
        if self.causal { (k + row + 1).saturating_sub(q).min(k) } else { k }
    }
}

/// How a tensor's scales are laid out. A value is `code * scale`.
#[derive(Debug, Clone, PartialEq)]
pub enum Scales {
    /// Not quantised: the values are themselves.
    One,
    Tensor(f32),
    /// One for each head.
    Head(Vec<f32>),
    /// One for each `tokens` tokens of a head, `per_head` of them.
    Block {
        values: Vec<f32>,
        per_head: usize,
        tokens: usize,
    },
}

/// One of q, k, v: decoded codes (heads, seqlen, head_dim), their scales, and what was taken out of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    pub values: Vec<f32>,
    pub scales: Scales,
    /// Of k and v: (heads, head_dim), to be added to every token of the head; empty: nothing was taken out.
    pub means: Vec<f32>,
}

impl Operand {
    /// The scale of a token's codes.
    pub fn scale(&self, head: usize, token: usize) -> f32 {
        match &self.scales {
            Scales::One => 1.0,
            Scales::Tensor(s) => *s,
            Scales::Head(s) => s[head],
            Scales::Block { values, per_head, tokens } => values[head * per_head + token / tokens],
        }
    }

    /// What was taken out of every token of a head, if anything.
    pub fn mean(&self, width: usize, head: usize) -> Option<&[f32]> {
        self.means.get(head * width..(head + 1) * width)
    }

    /// A token's codes, where heads have `tokens` of them.
    pub fn row(&self, tokens: usize, width: usize, head: usize, token: usize) -> &[f32] {
        let at = (head * tokens + token) * width;
        &self.values[at..at + width]
    }
}

/// softmax(q k^T * softmax_scale) v, with a mask aligned bottom-right or none. A row that sees no key is 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub geometry: Geometry,
    pub sight: Sight,
    /// As the kernel receives it.
    pub softmax_scale: f32,
    pub q: Operand,
    pub k: Operand,
    pub v: Operand,
}

impl Problem {
    /// How many keys, from the first on, a query sees.
    pub fn visible(&self, head: usize, row: usize) -> usize {
        self.sight.visible(self.geometry, head, row)
    }
}

/// Which query rows are judged, for each head, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSet {
    pub heads: Vec<Vec<u32>>,
    /// Rows that there are.
    pub all: usize,
}

impl RowSet {
    /// Every row.
    pub fn all(g: Geometry) -> RowSet {
        RowSet { heads: vec![(0..g.seqlen as u32).collect(); g.heads], all: g.heads * g.seqlen }
    }

    /// Without the rows that no sequence has.
    pub fn existing(mut self, g: Geometry, sight: &Sight) -> RowSet {
        for (head, rows) in self.heads.iter_mut().enumerate() {
            let length = sight.length(g, head).q;
            rows.retain(|r| (*r as usize) < length);
        }
        self.all = (0..g.heads).map(|head| sight.length(g, head).q).sum();
        self
    }

    /// Rows that are judged.
    pub fn len(&self) -> usize {
        self.heads.iter().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// (head, row) of each judged row, in the order of the oracle's rows.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.heads.iter().enumerate().flat_map(|(h, rows)| rows.iter().map(move |&r| (h, r as usize)))
    }
}
