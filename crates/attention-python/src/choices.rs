//! The heuristic's choices for Python, which makes the same where there is no wheel.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warpsmith_attention::heuristic::{self, Shape};
use warpsmith_attention::{Choice, Mask};

/// Rows and keys, which the heuristic counts in 32 bits as the kernels do; Python's own takes any number.
const MOST: u64 = i32::MAX as u64;
/// Keys of all sequences of a paged cache, which may share pages.
const MOST_IN_PAGES: u64 = 1 << 40;

/// Batch, heads of K, queries that share one, queries, keys, head dimension; then truths: causal, plain, packed, lse, wide, fast.
#[derive(FromPyObject)]
pub struct Numbers([u64; 12]);

impl Numbers {
    /// `None` where a number is none that a problem has.
    fn shape(&self) -> Option<Shape> {
        let [batch, heads_kv, group, seqlen_q, seqlen_k, head_dim, causal, plain, packed, lse, wide, fast] = self.0;
        let at_most = |n: u64, most: u64| u32::try_from(n).ok().filter(|_| n > 0 && n <= most);
        Some(Shape {
            batch: at_most(batch, 65_535)?,
            heads_kv: at_most(heads_kv, 65_535)?,
            group: at_most(group, 1 << 20)?,
            seqlen_q: at_most(seqlen_q, 1 << 26)?,
            seqlen_k: at_most(seqlen_k, 1 << 26)?,
            head_dim: at_most(head_dim, 256).filter(|n| matches!(n, 64 | 128 | 256))?,
            mask: if causal != 0 { Mask::Causal } else { Mask::Full },
            plain: plain != 0,
            packed: packed != 0,
            lse: lse != 0,
            wide: wide != 0,
            fast: fast != 0,
            shared: 1,
        })
    }

    /// Of sequences with so many queries, and keys, in all.
    fn with_tokens(&self, q: u64, k: u64, most_keys: u64) -> Option<Shape> {
        let s = self.shape()?;
        let (heads_q, heads_kv) = (u64::from(s.heads_kv) * u64::from(s.group), u64::from(s.heads_kv));
        let few = |heads: u64, tokens: u64, most| tokens > 0 && heads.checked_mul(tokens).is_some_and(|n| n <= most);
        (few(heads_q, q, MOST) && few(heads_kv, k, most_keys)).then_some(s)
    }

    fn alike(&self, most_keys: u64) -> Option<Shape> {
        let [batch, _, _, seqlen_q, seqlen_k, ..] = self.0;
        self.with_tokens(batch.checked_mul(seqlen_q)?, batch.checked_mul(seqlen_k)?, most_keys)
    }
}

/// In the order of Python's fields, the first five and the others.
fn said<'py>(py: Python<'py>, c: &Choice) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)> {
    let defines = PyTuple::new(py, &c.instance.defines)?;
    let grid = PyTuple::new(py, c.grid)?;
    let boxes: Vec<u32> = c.boxes.iter().flat_map(|(q, k)| [*q, *k]).collect();
    let boxes = PyTuple::new(py, boxes)?;
    let first = (c.instance.file, defines, grid, c.block, c.shared_bytes).into_pyobject(py)?;
    let (of_unit, of_worker, tiles) = (c.tiles_per_unit, c.tiles_per_worker, c.total_tiles);
    let (floats, units) = (c.partial_floats, c.units);
    let others = (of_unit, of_worker, tiles, c.row_tiles, c.section, floats, units, boxes, c.splits, c.transposes);
    Ok((first, others.into_pyobject(py)?))
}

type Said<'py> = PyResult<Option<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)>>;

/// `_heuristic.choose`; None beyond what is counted in, for this and the others.
#[pyfunction]
pub fn choose<'py>(py: Python<'py>, shape: Numbers, sms: u32) -> Said<'py> {
    shape.alike(MOST).map(|s| said(py, &heuristic::choose(&s, sms.max(1)))).transpose()
}

/// `_heuristic.choose_lengths`.
#[pyfunction]
#[pyo3(signature = (shape, sms, page))]
pub fn choose_lengths<'py>(py: Python<'py>, shape: Numbers, sms: u32, page: Option<u32>) -> Said<'py> {
    let page = page.filter(|page| *page > 0);
    let most_keys = if page.is_some() { MOST_IN_PAGES } else { MOST };
    shape.alike(most_keys).map(|s| said(py, &heuristic::choose_lengths(&s, sms.max(1), page))).transpose()
}

/// `_tokens.choose_varlen`.
#[pyfunction]
pub fn choose_varlen<'py>(py: Python<'py>, shape: Numbers, tokens_q: u64, tokens_k: u64, sms: u32) -> Said<'py> {
    let whole = |s: &Shape| u64::from(s.seqlen_q) <= tokens_q && u64::from(s.seqlen_k) <= tokens_k;
    let shape = shape.with_tokens(tokens_q, tokens_k, MOST).filter(whole);
    shape.map(|s| said(py, &heuristic::choose_varlen(&s, (tokens_q, tokens_k), sms.max(1)))).transpose()
}

/// `_heuristic.packed_fits`.
#[pyfunction]
pub fn packed_fits(shape: Numbers, sms: u32) -> Option<bool> {
    Some(heuristic::packed_fits(&shape.alike(MOST)?, sms.max(1)))
}
