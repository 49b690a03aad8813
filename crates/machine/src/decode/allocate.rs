//! Gives the registers of a function their rows.

use warpsmith_ptx::ast::Function;

use super::width_of;
use crate::code::{FIRST_FREE, RowId, Width};

/// Rows of a function's registers, and the first free row.
pub struct Rows {
    pub row_of: Vec<RowId>,
    pub next: RowId,
}

/// Takes the next row of the given width; 64-bit rows are pairs.
pub fn fresh(next: &mut RowId, width: Width) -> RowId {
    let row = *next;
    *next += if width == Width::W64 { 2 } else { 1 };
    row
}

/// One row for each register.
pub fn allocate(f: &Function) -> Rows {
    let mut next = FIRST_FREE;
    let row_of = f.registers.iter().map(|r| fresh(&mut next, width_of(r.ty).unwrap_or(Width::W64))).collect();
    Rows { row_of, next }
}
