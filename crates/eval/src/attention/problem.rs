//! One attention problem as numbers: what the oracle and the honest kernel are given.
//!
//! Shapes are (heads, seqlen, head_dim) with heads = batch x heads, all tensors contiguous. Values are either the
//! unquantised numbers or decoded codes with their scales; this module does not know which format they came from.

/// Sizes of one problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Batch times heads.
    pub heads: usize,
    pub seqlen: usize,
    pub head_dim: usize,
}

impl Geometry {
    /// Elements of one tensor.
    pub fn elements(self) -> usize {
        self.heads * self.seqlen * self.head_dim
    }

    /// Multiply-adds of attention over `rows` query rows, without a mask.
    pub fn work(self, rows: usize) -> u128 {
        rows as u128 * self.seqlen as u128 * self.head_dim as u128 * 2
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

/// One of q, k, v: decoded codes (heads, seqlen, head_dim) and their scales.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    pub values: Vec<f32>,
    pub scales: Scales,
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

    /// A token's codes.
    pub fn row(&self, g: Geometry, head: usize, token: usize) -> &[f32] {
        let at = (head * g.seqlen + token) * g.head_dim;
        &self.values[at..at + g.head_dim]
    }
}

/// softmax(q k^T * softmax_scale) v, with a mask aligned to the diagonal or none.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub geometry: Geometry,
    pub causal: bool,
    /// As the kernel receives it.
    pub softmax_scale: f32,
    pub q: Operand,
    pub k: Operand,
    pub v: Operand,
}

impl Problem {
    /// How many keys, from the first on, a query sees.
    pub fn visible(&self, row: usize) -> usize {
        if self.causal { row + 1 } else { self.geometry.seqlen }
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
