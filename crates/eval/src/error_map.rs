//! Where an output errs: a small picture of characters, by tile of rows and within the tile.
//!
//! A kernel that is wrong is seldom wrong everywhere: a missed key block, a swapped fragment, an edge that is cut off each leave
//! their own pattern. Pure functions of numbers. Limits: 32 lines by 64 tiles, and 16 rows by 16 groups of columns.

use crate::oracle::Expected;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use warpsmith_spec::record::ErrorMap;

const LINES: u64 = 32;
const TILES: u64 = 64;
/// Rows of a tensor-core fragment.
const FRAGMENT: u64 = 16;
const COLUMNS: u64 = 16;

/// Squares of errors and of the wanted values that fall into one cell.
#[derive(Clone, Copy, Default)]
struct Cell {
    error: f64,
    size: f64,
    /// The worst row's share of the limit so far, where rows are looked at one by one.
    worst: f64,
    seen: bool,
    broken: bool,
}

impl Cell {
    fn character(self, share: f64) -> char {
        match (self.seen, self.broken) {
            (false, _) => '.',
            (true, true) => 'n',
            (true, false) => ErrorMap::level(share),
        }
    }
}

/// The picture of the judged elements `got`; nothing where there are none.
pub fn error_map(expected: &Expected, got: &[f64], limit_worst_row: f64) -> Option<ErrorMap> {
    let width = expected.width.max(1);
    let shape = &expected.spec.shape;
    if got.is_empty() || got.len() != expected.kernel.len() || shape.is_empty() {
        return None;
    }
    // A tensor of rows of `width`: rows of one leading index, then how many leading indices there are.
    let rows_total = expected.rows_total().max(1);
    let rows = if shape.len() >= 2 && shape.last() == Some(&(width as u64)) {
        shape[shape.len() - 2].max(1)
    } else {
        rows_total
    };
    let leading = rows_total.div_ceil(rows);
    let leading_per_line = leading.div_ceil(LINES).max(1);
    let rows_per_tile = rows.div_ceil(TILES).next_multiple_of(FRAGMENT).min(rows.max(1));
    let columns_per_cell = (width as u64).div_ceil(COLUMNS).max(1);
    let (lines, tiles) = (leading.div_ceil(leading_per_line) as usize, rows.div_ceil(rows_per_tile) as usize);
    let groups = (width as u64).div_ceil(columns_per_cell) as usize;
    let mut by_tile = vec![Cell::default(); lines * tiles];
    let mut within = vec![Cell::default(); FRAGMENT as usize * groups];
    let limit = limit_worst_row.max(f64::MIN_POSITIVE);
    for (i, (got, want)) in got.chunks(width).zip(expected.kernel.chunks(width)).enumerate() {
        let row = (expected.element(i * width) / width) as u64;
        let (line, row) = ((row / rows / leading_per_line) as usize, row % rows);
        let Some(cell) = by_tile.get_mut(line * tiles + (row / rows_per_tile) as usize) else { continue };
        let (mut error, mut size) = (0.0, 0.0);
        for (column, (&g, &w)) in got.iter().zip(want).enumerate() {
            let inner = &mut within[(row % FRAGMENT) as usize * groups + column / columns_per_cell as usize];
            inner.seen = true;
            let difference = if g.is_finite() { g - w } else { w };
            inner.broken |= !g.is_finite();
            cell.broken |= !g.is_finite();
            inner.error += difference * difference;
            inner.size += w * w;
            error += difference * difference;
            size += w * w;
        }
        cell.seen = true;
        cell.worst = cell.worst.max(share(error, size, limit));
    }
    let text = |cells: &[Cell], share_of: &dyn Fn(&Cell) -> f64| -> String {
        cells.iter().map(|c| c.character(share_of(c))).collect()
    };
    Some(ErrorMap {
        tiles: by_tile.chunks(tiles.max(1)).map(|l| text(l, &|c| c.worst)).collect(),
        leading_per_line,
        rows_per_tile,
        within: within.chunks(groups.max(1)).map(|l| text(l, &|c| share(c.error, c.size, limit))).collect(),
        columns_per_cell,
    })
}

/// A relative error as a part of the limit. Something where nothing is wanted is beyond every limit.
fn share(error: f64, size: f64, limit: f64) -> f64 {
    if error == 0.0 { 0.0 } else { ((error.sqrt() / size.sqrt().max(1e-300)) / limit).min(1e300) }
}

/// 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::OutputSpec;
    use warpsmith_spec::words::DType;

    fn expected(shape: &[u64], rows: Option<Vec<u64>>) -> Expected {
        let width = *shape.last().unwrap() as usize;
        let judged = rows.as_ref().map_or(shape.iter().product::<u64>() as usize / width, Vec::len);
        Expected {
            spec: OutputSpec { name: "out".into(), dtype: DType::F16, shape: shape.to_vec() },
            kind: crate::oracle::Kind::PLAIN,
            width,
            rows,
            kernel: vec![1.0; judged * width],
            end_to_end: None,
        }
    }

    #[test]
    fn a_wrong_row_shows_in_its_tile_and_its_place_within_the_tile() {
        let e = expected(&[1, 2, 64, 32], None);
        let mut got = e.kernel.clone();
        // Head 1, row 35: the third tile, row 3 of a fragment, columns 4 and 5.
        let at = (64 + 35) * 32 + 4;
        (got[at], got[at + 1]) = (9.0, 9.0);
        let map = error_map(&e, &got, 0.06).unwrap();
        assert_eq!((map.rows_per_tile, map.leading_per_line, map.columns_per_cell), (16, 1, 2));
        assert_eq!(map.tiles, ["0000", "0080"]);
        assert_eq!(map.within[3], "0080000000000000");
        assert_eq!(map.within.iter().filter(|l| l.chars().all(|c| c == '0')).count(), 15);
    }

    #[test]
    fn what_was_not_judged_and_what_is_no_number_have_their_own_characters() {
        let e = expected(&[1, 1, 64, 16], Some(vec![0, 40]));
        let mut got = e.kernel.clone();
        got[17] = f64::NAN;
        let map = error_map(&e, &got, 0.06).unwrap();
        assert_eq!(map.tiles, ["0.n."]);
        assert!(map.within[8].starts_with("0n") && map.within[0].starts_with('0') && map.within[1].starts_with('.'));
    }

    #[test]
    fn any_shape_stays_small() {
        for shape in [&[3u64][..], &[1, 1], &[4, 1000, 4096, 8], &[7, 5, 3, 300], &[100_000, 2]] {
            let e = expected(shape, None);
            let map = error_map(&e, &e.kernel, 0.06).unwrap();
            let cells: usize = map.tiles.iter().chain(&map.within).map(String::len).sum();
            assert!(cells <= 32 * 64 + 256 && map.tiles.iter().all(|l| !l.is_empty()), "{shape:?}: {cells}");
        }
    }
}
