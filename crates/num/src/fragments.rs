//! Which matrix element each lane of a warp holds, for `mma.sync`, `wmma` and `wgmma`.
//!
//! Sources: PTX ISA 9.0, "Matrix fragments for mma" (one rule covers all shapes of m16n8 and m8n8 but the f16 m8n8k4 of Volta, see
//! [`mma_element`]) and "Register fragments and shared memory matrix layouts" of wgmma. WMMA's layouts are opaque in the ISA; sm_80 and
//! later compute `wmma` with `mma.sync`, and its fragments lie accordingly. All of WMMA's below were read back from an H200 (2026-11-21,
//! CUDA 13.0: every type and shape of A, B and C, loaded row-major and column-major alike; bf16 as far as its 8 bits tell places apart); those of `mma.sync` and of wgmma's registers are
//! confirmed by the products in `tests/h200.rs`. A kernel that depends on WMMA's places is not portable by the ISA's word.
//!
//! Elements of a fragment are counted as C++ (`frag.x[i]`) and PTX do: from the lowest bits of the first register up.

/// An operand of D = A x B + C. C and D lie alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// m x k
    A,
    /// k x n
    B,
    /// m x n
    C,
}

/// Row and column of the operand's own matrix: A is m x k, B is k x n, C is m x n.
pub type Place = (usize, usize);

/// Elements of an operand in each lane's registers, for `mma.sync`: the fragment's length.
pub fn mma_len(operand: Operand, m: usize, n: usize, k: usize) -> usize {
    match operand {
        Operand::A => m * k / 32,
        Operand::B => k * n / 32,
        Operand::C => m * n / 32,
    }
}

/// Where element `index` of `lane`'s fragment lies, for `mma.sync` of m16n8 and m8n8 shapes.
///
/// `bits` is the element width of A and B (4, 8, 16, 32; 64 counts as 32 does: one element a register). C and D always come in pairs
/// of neighbouring columns, whatever their type.
pub fn mma_element(operand: Operand, m: usize, bits: usize, lane: usize, index: usize) -> Place {
    let (group, thread) = (lane / 4, lane % 4);
    let packed = (32 / bits).max(1);
    let (register, element) = (index / packed, index % packed);
    match operand {
        Operand::A if m == 16 => (group + 8 * (register % 2), (register / 2) * 4 * packed + thread * packed + element),
        Operand::A => (group, register * 4 * packed + thread * packed + element),
        Operand::B => (register * 4 * packed + thread * packed + element, group),
        Operand::C => (group + 8 * (index / 2), thread * 2 + index % 2),
    }
}

/// Distinct elements of an operand in each lane's registers, for `wmma`. An f16 A or B fragment has 16 elements whatever the shape:
/// beyond the distinct ones they repeat from the first.
pub fn wmma_len(operand: Operand, m: usize, n: usize, k: usize) -> usize {
    mma_len(operand, m, n, k)
}

/// Where element `index` of the accumulator of `thread` (0 to 127, in the warpgroup) lies, for `wgmma` m64nN.
pub fn wgmma_accumulator_element(thread: usize, index: usize) -> Place {
    let (row, column) = mma_element(Operand::C, 16, 32, thread % 32, index % 4);
    (row + 16 * (thread / 32), column + 8 * (index / 4))
}

/// Where element `index` of an A operand in registers of `thread` (0 to 127) lies, for `wgmma` m64nN: four registers a step.
pub fn wgmma_a_element(bits: usize, thread: usize, index: usize) -> Place {
    let (row, column) = mma_element(Operand::A, 16, bits, thread % 32, index);
    (row + 16 * (thread / 32), column)
}

/// Where element `index` of `lane`'s fragment lies, for `wmma` of m16n16, m32n8, m8n32 and m8n8 shapes; `index` may run past the
/// distinct elements (see [`wmma_len`]). `bits` is the element width of A and B.
pub fn wmma_element(operand: Operand, m: usize, n: usize, k: usize, bits: usize, lane: usize, index: usize) -> Place {
    let index = index % wmma_len(operand, m, n, k).max(1);
    if m == 8 && n == 32 {
        // Computed as the transposed product, m32n8.
        let transposed = match operand {
            Operand::A => Operand::B,
            Operand::B => Operand::A,
            Operand::C => Operand::C,
        };
        let (row, column) = wmma_element(transposed, n, m, k, bits, lane, index);
        return (column, row);
    }
    let tile_m = m.min(16);
    let tile = mma_len(operand, tile_m, 8, k);
    let (row, column) = mma_element(operand, tile_m, bits, lane, index % tile);
    match operand {
        Operand::A => (row + tile_m * (index / tile), column),
        Operand::B => (row, column + 8 * (index / tile)),
        Operand::C if m > 16 => (row + 16 * (index / tile), column),
        Operand::C => (row, column + 8 * (index / tile)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_once(rows: usize, columns: usize, len: usize, place: impl Fn(usize, usize) -> Place) {
        let mut held = vec![0; rows * columns];
        for lane in 0..rows * columns / len {
            for index in 0..len {
                let (row, column) = place(lane, index);
                assert!(row < rows && column < columns, "lane {lane} element {index}: ({row}, {column})");
                held[row * columns + column] += 1;
            }
        }
        assert!(held.iter().all(|&count| count == 1), "{rows}x{columns}: {held:?}");
    }

    #[test]
    fn every_element_of_an_mma_tile_is_held_once() {
        // m, k, bits of A and B
        let rows = [
            (16, 16, 16),
            (16, 8, 16),
            (16, 4, 32),
            (16, 8, 32),
            (16, 16, 8),
            (16, 32, 8),
            (8, 16, 8),
            (8, 4, 64),
            (16, 4, 64),
            (16, 8, 64),
            (16, 16, 64),
        ];
        for (m, k, bits) in rows {
            let n = 8;
            for (operand, rows, columns) in [(Operand::A, m, k), (Operand::B, k, n), (Operand::C, m, n)] {
                held_once(rows, columns, mma_len(operand, m, n, k), |lane, index| {
                    mma_element(operand, m, bits, lane, index)
                });
            }
        }
    }

    #[test]
    fn every_element_of_a_wmma_tile_is_held_once() {
        // m, n, k, bits of A and B
        let rows = [
            (16, 16, 16, 16),
            (32, 8, 16, 16),
            (8, 32, 16, 16),
            (16, 16, 16, 8),
            (32, 8, 16, 8),
            (8, 32, 16, 8),
            (16, 16, 8, 32),
            (8, 8, 4, 64),
        ];
        for (m, n, k, bits) in rows {
            for (operand, rows, columns) in [(Operand::A, m, k), (Operand::B, k, n), (Operand::C, m, n)] {
                held_once(rows, columns, wmma_len(operand, m, n, k), |lane, index| {
                    wmma_element(operand, m, n, k, bits, lane, index)
                });
            }
        }
    }

    #[test]
    fn every_element_of_a_wgmma_tile_is_held_once() {
        for n in [8, 64, 256] {
            held_once(64, n, n / 2, wgmma_accumulator_element);
        }
        for (bits, k) in [(8, 32), (16, 16), (32, 8)] {
            held_once(64, k, k / 2, |thread, index| wgmma_a_element(bits, thread, index));
        }
    }

    #[test]
    fn wmma_fragments_lie_as_an_h200_has_them() {
        // m, n, k, bits, operand, lane, the places of its first eight elements.
        let rows: [([usize; 4], Operand, usize, [Place; 8]); 8] = [
            ([16, 16, 16, 16], Operand::A, 0, [(0, 0), (0, 1), (8, 0), (8, 1), (0, 8), (0, 9), (8, 8), (8, 9)]),
            ([16, 16, 16, 16], Operand::B, 5, [(2, 1), (3, 1), (10, 1), (11, 1), (2, 9), (3, 9), (10, 9), (11, 9)]),
            ([16, 16, 16, 16], Operand::C, 5, [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]),
            ([32, 8, 16, 16], Operand::C, 4, [(1, 0), (1, 1), (9, 0), (9, 1), (17, 0), (17, 1), (25, 0), (25, 1)]),
            ([8, 32, 16, 16], Operand::B, 4, [(0, 1), (1, 1), (0, 9), (1, 9), (8, 1), (9, 1), (8, 9), (9, 9)]),
            ([8, 32, 16, 16], Operand::C, 4, [(0, 1), (1, 1), (0, 9), (1, 9), (0, 17), (1, 17), (0, 25), (1, 25)]),
            // Four distinct elements, repeated.
            ([8, 32, 16, 16], Operand::A, 5, [(1, 2), (1, 3), (1, 10), (1, 11), (1, 2), (1, 3), (1, 10), (1, 11)]),
            ([16, 16, 8, 32], Operand::A, 1, [(0, 1), (8, 1), (0, 5), (8, 5), (0, 1), (8, 1), (0, 5), (8, 5)]),
        ];
        for ([m, n, k, bits], operand, lane, want) in rows {
            for (index, want) in want.into_iter().enumerate() {
                let got = wmma_element(operand, m, n, k, bits, lane, index);
                assert_eq!(got, want, "m{m}n{n}k{k} {operand:?}, lane {lane}, element {index}");
            }
        }
    }
}
