//! `mma.sync` of each element type against a plain product; the places of elements are PTX ISA 9.0's formulas.

mod common;
use common::{kernel, run};
use warpsmith_machine::End;
use warpsmith_num::{bf16, e4m3, f16};

/// Small whole numbers, so that every format and every order of summation is exact.
fn number(row: usize, col: usize, seed: usize) -> i32 {
    ((row * 7 + col * 3 + seed) % 5) as i32 - 2
}

struct Case {
    opcode: &'static str,
    k: usize,
    /// Elements of a 32-bit register.
    packed: usize,
    encode: fn(i32) -> u32,
    integer: bool,
}

/// One register of A: rows g and g + 8 alternate, then the next group of columns.
fn a_place(case: &Case, lane: usize, register: usize, e: usize) -> (usize, usize) {
    let (g, t) = (lane / 4, lane % 4);
    (g + 8 * (register % 2), (register / 2) * 4 * case.packed + t * case.packed + e)
}

fn b_place(case: &Case, lane: usize, register: usize, e: usize) -> (usize, usize) {
    (register * 4 * case.packed + (lane % 4) * case.packed + e, lane / 4)
}

#[test]
fn products_of_every_element_type() {
    let cases = [
        Case {
            opcode: "m16n8k16.row.col.f32.f16.f16.f32",
            k: 16,
            packed: 2,
            encode: |v| f16::from_f32(v as f32).into(),
            integer: false,
        },
        Case {
            opcode: "m16n8k8.row.col.f32.f16.f16.f32",
            k: 8,
            packed: 2,
            encode: |v| f16::from_f32(v as f32).into(),
            integer: false,
        },
        Case {
            opcode: "m16n8k16.row.col.f32.bf16.bf16.f32",
            k: 16,
            packed: 2,
            encode: |v| bf16::from_f32(v as f32).into(),
            integer: false,
        },
        Case {
            opcode: "m16n8k8.row.col.f32.tf32.tf32.f32",
            k: 8,
            packed: 1,
            encode: |v| (v as f32).to_bits(),
            integer: false,
        },
        Case {
            opcode: "m16n8k32.row.col.f32.e4m3.e4m3.f32",
            k: 32,
            packed: 4,
            encode: |v| e4m3::from_f32(v as f32).into(),
            integer: false,
        },
        Case { opcode: "m16n8k32.row.col.s32.s8.s8.s32", k: 32, packed: 4, encode: |v| v as u8 as u32, integer: true },
        Case {
            opcode: "m16n8k16.row.col.s32.s8.u8.s32",
            k: 16,
            packed: 4,
            encode: |v| v.unsigned_abs(),
            integer: true,
        },
    ];
    for case in cases {
        let (an, bn) = (16 * case.k / 32 / case.packed, 8 * case.k / 32 / case.packed);
        let mut input = Vec::new();
        for lane in 0..32 {
            for (count, place, seed) in
                [(an, a_place as fn(&Case, usize, usize, usize) -> (usize, usize), 0), (bn, b_place, 1)]
            {
                for register in 0..count {
                    let bits = 32 / case.packed;
                    let word = (0..case.packed).fold(0, |w, e| {
                        let (row, col) = place(&case, lane, register, e);
                        w | (case.encode)(number(row, col, seed)) << (bits * e % 32)
                    });
                    input.extend(word.to_le_bytes());
                }
            }
        }
        let registers =
            |first: usize, n: usize| (first..first + n).map(|r| format!("%r{r}")).collect::<Vec<_>>().join(", ");
        let mut body = format!("mul.wide.u32 %rd2, %r0, {};\nadd.u64 %rd3, %rd0, %rd2;\n", 4 * (an + bn));
        for r in 0..an + bn {
            body += &format!("ld.global.u32 %r{}, [%rd3+{}];\n", 10 + r, 4 * r);
        }
        let one = if case.integer { 1 } else { 1f32.to_bits() };
        for r in 0..4 {
            body += &format!("mov.b32 %r{}, {one};\n", 30 + r);
        }
        body += &format!(
            "mma.sync.aligned.{} {{{}}}, {{{}}}, {{{}}}, {{{}}};\nmul.wide.u32 %rd4, %r0, 16;\nadd.u64 %rd5, %rd1, %rd4;\n",
            case.opcode,
            registers(40, 4),
            registers(10, an),
            registers(10 + an, bn),
            registers(30, 4)
        );
        body += "st.global.v4.u32 [%rd5], {%r40, %r41, %r42, %r43};";
        let r = run(&kernel(&body), &input, 512, 32);
        assert_eq!(r.outcome.end, End::Completed, "{}: {:?}", case.opcode, r.outcome.findings);
        assert_eq!(r.outcome.findings, []);
        let absolute = case.opcode.contains("u8");
        for (n, word) in r.words().into_iter().enumerate() {
            let (lane, e) = (n / 4, n % 4);
            let (row, col) = (lane / 4 + 8 * (e / 2), 2 * (lane % 4) + e % 2);
            let size = |v: i32| if absolute { v.abs() } else { v };
            let sum: i32 = 1 + (0..case.k).map(|k| size(number(row, k, 0)) * size(number(k, col, 1))).sum::<i32>();
            let got = if case.integer { word as i32 } else { f32::from_bits(word) as i32 };
            assert_eq!(got, sum, "{} at ({row}, {col})", case.opcode);
        }
    }
}

#[test]
fn an_undefined_element_spoils_its_row_only() {
    // Lane 5 (group 1) leaves its first A register undefined: row 1 of the result is undefined, row 0 is not.
    let body = |stored: &str| {
        format!(
            "mov.b32 %r20, 0;\nsetp.eq.u32 %p0, %r0, 5;\n@%p0 bra SKIP;\nmov.b32 %r10, 0;\nSKIP:\n\
             mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%r40, %r41, %r42, %r43}}, {{%r10, %r20, %r20, %r20}}, {{%r20, %r20}}, {{%r20, %r20, %r20, %r20}};\n\
             mov.b32 %r63, {stored};\nsetp.ge.u32 %p1, %r0, 4;\nsetp.lt.u32 %p2, %r0, 8;\nand.pred %p3, %p1, %p2;\nselp.b32 %r63, %r63, 0, %p3;\n\
             mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;"
        )
    };
    let bad = run(&kernel(&body("%r40")), &[0; 4], 128, 32);
    assert_eq!(bad.kinds(), ["uninitialized_read"], "{:#?}", bad.outcome.findings);
    assert_eq!(bad.outcome.findings[0].count, 4, "the four lanes that hold row 1");
    // Row 9, held by the same lanes, is defined.
    assert_eq!(run(&kernel(&body("%r42")), &[0; 4], 128, 32).kinds(), Vec::<&str>::new());
}
