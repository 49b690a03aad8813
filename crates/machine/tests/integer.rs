//! Integer, logic, shift, comparison and move instructions: a body of PTX and the bits that PTX ISA 9.0 says come out.

mod common;
use common::{check32, check64, lanes};

#[test]
fn bytes_and_halves_at_once() {
    check32(&[
        ("vadd4.u32.u32.u32 %r63, 0x01FF7F80, 0x01010101, 0;", 0x0200_8081),
        ("vadd4.s32.s32.s32.sat %r63, 0x01FF7F80, 0x010101FF, 0;", 0x0200_7F80),
        ("vsub4.u32.u32.u32.sat %r63, 0x05000A01, 0x01010102, 0;", 0x0400_0900),
        ("vabsdiff4.u32.u32.u32 %r63, 0x10FF0005, 0x20000A02, 0;", 0x10FF_0A03),
        ("vabsdiff4.u32.u32.u32.add %r63, 0x10FF0005, 0x20000A02, 100;", 100 + 0x10 + 0xFF + 0x0A + 3),
        ("vavrg4.u32.u32.u32 %r63, 0x00010203, 0x01020305, 0;", 0x0102_0304),
        ("vmax4.s32.s32.s32 %r63, 0x80FF7F01, 0x01010101, 0;", 0x0101_7F01),
        ("vmin4.u32.u32.u32 %r63, 0x80FF7F01, 0x01010101, 0;", 0x0101_0101),
        ("vadd2.u32.u32.u32 %r63, 0xFFFF0001, 0x00010002, 0;", 0x0000_0003),
        ("vmax2.s32.s32.s32 %r63, 0xFFFF0001, 0x00010002, 0;", 0x0001_0002),
    ]);
}

#[test]
fn arithmetic_of_32_bits() {
    check32(&[
        ("add.s32 %r63, 2147483647, 1;", 0x8000_0000),
        ("add.sat.s32 %r63, 2147483647, 1;", 0x7FFF_FFFF),
        ("sub.sat.s32 %r63, -2147483648, 1;", 0x8000_0000),
        ("sub.u32 %r63, 1, 2;", 0xFFFF_FFFF),
        ("mul.lo.s32 %r63, 65537, 65537;", 0x0002_0001),
        ("mul.hi.u32 %r63, -1, -1;", 0xFFFF_FFFE),
        ("mul.hi.s32 %r63, -1, -1;", 0),
        ("mad.lo.s32 %r63, 3, 5, -16;", 0xFFFF_FFFF),
        ("mad.hi.s32 %r63, 1073741824, 4, 7;", 8),
        ("mul24.lo.s32 %r63, 16777215, 2;", 0xFFFF_FFFE),
        ("mul24.hi.u32 %r63, 16777215, 16777215;", 0xFFFF_FE00),
        ("mad24.lo.u32 %r63, 4, 5, 6;", 26),
        ("div.s32 %r63, -7, 2;", -3i32 as u32),
        ("div.u32 %r63, -7, 2;", 0x7FFF_FFFC),
        ("rem.s32 %r63, -7, 3;", -1i32 as u32),
        ("rem.u32 %r63, 7, 3;", 1),
        ("div.s32 %r63, -2147483648, -1;", 0x8000_0000),
        ("min.s32 %r63, -1, 1;", 0xFFFF_FFFF),
        ("min.u32 %r63, -1, 1;", 1),
        ("max.s32 %r63, -1, 1;", 1),
        ("max.relu.s32 %r63, -5, -3;", 0),
        ("abs.s32 %r63, -9;", 9),
        ("neg.s32 %r63, 9;", -9i32 as u32),
        ("sad.s32 %r63, -3, 4, 10;", 17),
        ("sad.u32 %r63, 3, 4, 10;", 11),
    ]);
}

#[test]
fn arithmetic_of_16_bits_stays_within_them() {
    check32(&[
        ("mov.u16 %h0, 65535;\nadd.u16 %h1, %h0, 2;\ncvt.u32.u16 %r63, %h1;", 1),
        ("mov.u16 %h0, 0;\nsub.u16 %h1, %h0, 1;\ncvt.u32.u16 %r63, %h1;", 0xFFFF),
        ("mov.u16 %h0, 300;\nmul.lo.u16 %h1, %h0, 300;\ncvt.u32.u16 %r63, %h1;", 90000 & 0xFFFF),
        ("mov.u16 %h0, -300;\nmul.wide.s16 %r63, %h0, 300;", -90000i32 as u32),
        ("mov.u16 %h0, -2;\nmul.hi.s16 %h1, %h0, 3;\ncvt.u32.u16 %r63, %h1;", 0xFFFF),
        ("mov.u16 %h0, -8;\nshr.s16 %h1, %h0, 1;\ncvt.u32.u16 %r63, %h1;", 0xFFFC),
        ("mov.u16 %h0, -8;\nshr.u16 %h1, %h0, 1;\ncvt.u32.u16 %r63, %h1;", 0x7FFC),
        ("mov.u16 %h0, 1;\nshl.b16 %h1, %h0, 16;\ncvt.u32.u16 %r63, %h1;", 0),
        ("mov.b16 %h0, 5;\nnot.b16 %h1, %h0;\ncvt.u32.u16 %r63, %h1;", 0xFFFA),
        ("mov.u16 %h0, -5;\nmov.u16 %h1, 3;\nmin.s16 %h2, %h0, %h1;\ncvt.s32.s16 %r63, %h2;", -5i32 as u32),
        ("mov.u16 %h0, -5;\nneg.s16 %h1, %h0;\ncvt.u32.u16 %r63, %h1;", 5),
        ("mov.u16 %h0, -7;\ndiv.s16 %h1, %h0, 2;\ncvt.u32.u16 %r63, %h1;", 0xFFFD),
        ("mov.u16 %h0, 7;\nmad.lo.s16 %h1, %h0, 7, -50;\ncvt.u32.u16 %r63, %h1;", 0xFFFF),
        ("mov.u16 %h0, -5;\nmov.u16 %h1, 3;\nsetp.lt.s16 %p0, %h0, %h1;\nselp.u32 %r63, 1, 0, %p0;", 1),
        ("mov.u16 %h0, -5;\nmov.u16 %h1, 3;\nsetp.lt.u16 %p0, %h0, %h1;\nselp.u32 %r63, 1, 0, %p0;", 0),
    ]);
}

#[test]
fn arithmetic_of_64_bits() {
    check64(&[
        ("add.s64 %rd29, 9223372036854775807, 1;", 1 << 63),
        ("sub.u64 %rd29, 0, 1;", u64::MAX),
        ("mul.lo.s64 %rd29, 4294967297, 4294967297;", 0x0000_0002_0000_0001),
        ("mul.hi.u64 %rd29, -1, -1;", u64::MAX - 1),
        ("mul.hi.s64 %rd29, -1, -1;", 0),
        ("mul.wide.s32 %rd29, -2, 3;", -6i64 as u64),
        ("mul.wide.u32 %rd29, -1, -1;", 0xFFFF_FFFE_0000_0001),
        ("mov.u64 %rd2, 10;\nmad.wide.s32 %rd29, -2, 3, %rd2;", 4),
        ("mov.u64 %rd2, 10;\nmad.lo.s64 %rd29, %rd2, %rd2, %rd2;", 110),
        ("div.s64 %rd29, -7, 2;", -3i64 as u64),
        ("rem.u64 %rd29, 7, 4;", 3),
        ("abs.s64 %rd29, -5;", 5),
        ("neg.s64 %rd29, 5;", -5i64 as u64),
        ("min.s64 %rd29, -5, 3;", -5i64 as u64),
        ("max.u64 %rd29, -5, 3;", -5i64 as u64),
        ("mov.u64 %rd2, 1;\nshl.b64 %rd29, %rd2, 63;", 1 << 63),
        ("mov.u64 %rd2, 1;\nshl.b64 %rd29, %rd2, 64;", 0),
        ("mov.s64 %rd2, -8;\nshr.s64 %rd29, %rd2, 100;", u64::MAX),
        ("mov.s64 %rd2, -8;\nshr.u64 %rd29, %rd2, 60;", 15),
        ("mov.b64 %rd2, 5;\nnot.b64 %rd29, %rd2;", !5),
        ("mov.b64 %rd2, {1, 2};\nmov.b64 %rd29, %rd2;", 0x2_0000_0001),
    ]);
}

#[test]
fn extended_precision_carries() {
    check64(&[
        ("add.cc.u32 %r1, -1, 1;\naddc.u32 %r2, 0, 0;\nmov.b64 %rd29, {%r1, %r2};", 1 << 32),
        ("sub.cc.u32 %r1, 0, 1;\nsubc.u32 %r2, 5, 0;\nmov.b64 %rd29, {%r1, %r2};", 0x4_FFFF_FFFF),
        // The flag is the adder's carry: 1 when a subtraction does not borrow.
        ("sub.cc.u32 %r1, 5, 3;\naddc.u32 %r2, 0, 0;\nmov.b64 %rd29, {%r1, %r2};", 0x1_0000_0002),
        ("sub.cc.u32 %r1, 3, 5;\naddc.u32 %r2, 0, 0;\nmov.b64 %rd29, {%r1, %r2};", 0xFFFF_FFFE),
        ("sub.cc.u32 %r1, 3, 5;\nsubc.u32 %r2, 0, 0;\nmov.b64 %rd29, {%r1, %r2};", 0xFFFF_FFFF_FFFF_FFFE),
        ("mad.lo.cc.u32 %r1, -1, 2, 2;\nmadc.hi.u32 %r2, -1, 2, 0;\nmov.b64 %rd29, {%r1, %r2};", 0x2_0000_0000),
        ("add.cc.u64 %rd2, -1, 1;\naddc.u64 %rd29, 0, 0;", 1),
    ]);
}

#[test]
fn shifts_clamp_and_bits_are_counted() {
    check32(&[
        ("shl.b32 %r63, 1, 31;", 0x8000_0000),
        ("shl.b32 %r63, 1, 32;", 0),
        ("shr.u32 %r63, -1, 32;", 0),
        ("shr.s32 %r63, -1, 40;", u32::MAX),
        ("shf.l.wrap.b32 %r63, 0x80000000, 1, 33;", 3),
        ("shf.r.wrap.b32 %r63, 2, 1, 1;", 0x8000_0001),
        ("shf.l.clamp.b32 %r63, 7, 9, 40;", 7),
        ("shf.r.clamp.b32 %r63, 7, 9, 40;", 9),
        ("popc.b32 %r63, 0xF0F0;", 8),
        ("mov.b64 %rd2, -1;\npopc.b64 %r63, %rd2;", 64),
        ("clz.b32 %r63, 1;", 31),
        ("clz.b32 %r63, 0;", 32),
        ("mov.b64 %rd2, 1;\nclz.b64 %r63, %rd2;", 63),
        ("brev.b32 %r63, 1;", 0x8000_0000),
        ("bfind.u32 %r63, 0x100;", 8),
        ("bfind.s32 %r63, -1;", u32::MAX),
        ("bfind.shiftamt.u32 %r63, 1;", 31),
        ("bfe.u32 %r63, 0xABCD1234, 8, 8;", 0x12),
        ("bfe.s32 %r63, 0x0000F000, 12, 4;", u32::MAX),
        ("bfe.u32 %r63, -1, 4, 0;", 0),
        ("bfe.s32 %r63, 0x80000000, 28, 20;", 0xFFFF_FFF8),
        ("bfi.b32 %r63, 0xF, 0, 28, 8;", 0xF000_0000),
        ("bfi.b32 %r63, 0xAB, 0xFFFFFFFF, 8, 8;", 0xFFFF_ABFF),
        ("fns.b32 %r63, 0xF0, 0, 2;", 5),
        ("szext.wrap.s32 %r63, 0xFF, 8;", u32::MAX),
        ("bmsk.clamp.b32 %r63, 4, 8;", 0xFF0),
        ("cnot.b32 %r63, 0;", 1),
        ("dp4a.s32.s32 %r63, 0x01FF02FE, 0x01010101, 10;", 10),
        ("dp4a.u32.u32 %r63, 0xFFFFFFFF, 0x01010101, 0;", 1020),
        ("dp2a.lo.s32.s32 %r63, 0x00020003, 0x00000405, 1;", 24),
    ]);
}

#[test]
fn bytes_are_permuted_and_logic_follows_its_table() {
    check32(&[
        ("prmt.b32 %r63, 0x33221100, 0x77665544, 0x7531;", 0x7755_3311),
        ("prmt.b32 %r63, 0x33228100, 0x77665544, 0x9999;", u32::MAX),
        ("prmt.b32.f4e %r63, 0x33221100, 0x77665544, 1;", 0x4433_2211),
        ("prmt.b32.rc8 %r63, 0x33221100, 0, 2;", 0x2222_2222),
        ("lop3.b32 %r63, 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA, 0xE8;", 0xE8E8_E8E8),
        ("lop3.b32 %r63, 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA, 0x96;", 0x9696_9696),
        ("and.b32 %r63, 0xFF00, 0x0FF0;", 0x0F00),
        ("xor.b32 %r63, 0xFF00, 0x0FF0;", 0xF0F0),
        ("mov.b32 %r63, {0x1234, 0x5678};", 0x5678_1234),
        ("mov.b32 {%h0, %h1}, 0x56781234;\ncvt.u32.u16 %r63, %h1;", 0x5678),
        ("mov.b32 %r1, {1, 2, 3, 4};\nmov.b32 %r63, %r1;", 0x0403_0201),
    ]);
}

#[test]
fn comparisons_choose_and_combine() {
    check32(&[
        ("setp.lt.s32 %p0, -1, 1;\nselp.b32 %r63, 7, 9, %p0;", 7),
        ("setp.lo.u32 %p0, -1, 1;\nselp.b32 %r63, 7, 9, %p0;", 9),
        ("setp.eq.s32 %p1, 1, 1;\nsetp.gt.and.s32 %p0, 2, 1, %p1;\nselp.b32 %r63, 7, 9, %p0;", 7),
        ("setp.eq.s32 %p1, 1, 1;\nsetp.gt.and.s32 %p0, 2, 1, !%p1;\nselp.b32 %r63, 7, 9, %p0;", 9),
        ("setp.eq.s32 %p0|%p1, 1, 2;\nselp.b32 %r63, 7, 9, %p1;", 7),
        ("setp.lt.f32 %p0, 0f7FC00000, 0f00000000;\nselp.b32 %r63, 7, 9, %p0;", 9),
        ("setp.ltu.f32 %p0, 0f7FC00000, 0f00000000;\nselp.b32 %r63, 7, 9, %p0;", 7),
        ("setp.ne.f32 %p0, 0f7FC00000, 0f00000000;\nselp.b32 %r63, 7, 9, %p0;", 9),
        ("setp.neu.f32 %p0, 0f7FC00000, 0f00000000;\nselp.b32 %r63, 7, 9, %p0;", 7),
        ("setp.nan.f32 %p0, 0f7FC00000, 0f00000000;\nselp.b32 %r63, 7, 9, %p0;", 7),
        ("setp.num.f32 %p0, 0f3F800000, 0f00000000;\nselp.b32 %r63, 7, 9, %p0;", 7),
        ("setp.gt.ftz.f32 %p0, 0f00000001, 0f00000000;\nselp.b32 %r63, 7, 9, %p0;", 9),
        ("setp.lt.f64 %p0, 0dBFF0000000000000, 0d0000000000000000;\nselp.b32 %r63, 7, 9, %p0;", 7),
        ("setp.ge.s64 %p0, -5, -5;\nselp.b32 %r63, 7, 9, %p0;", 7),
        ("set.lt.u32.s32 %r63, -1, 1;", u32::MAX),
        ("set.lt.f32.s32 %f0, -1, 1;\nmov.b32 %r63, %f0;", 0x3F80_0000),
        ("slct.s32.s32 %r63, 7, 9, -1;", 9),
        ("slct.s32.f32 %r63, 7, 9, 0f80000000;", 7),
        (
            "setp.eq.s32 %p0, 1, 1;\nsetp.eq.s32 %p1, 1, 2;\nxor.pred %p2, %p0, %p1;\nnot.pred %p3, %p2;\nor.pred %p4, %p3, %p1;\nselp.b32 %r63, 7, 9, %p4;",
            9,
        ),
    ]);
}

#[test]
fn special_registers_tell_lanes_apart() {
    let expected = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<_>>();
    for (body, f) in [
        ("mov.u32 %r63, %laneid;", (|l| l) as fn(u32) -> u32),
        ("mov.u32 %r63, %tid.x;", |l| l),
        ("mov.u32 %r63, %lanemask_lt;", |l| (1 << l) - 1),
        ("mov.u32 %r63, %lanemask_ge;", |l| u32::MAX << l),
        ("mov.u32 %r63, %lanemask_gt;", |l| !((2u64 << l) as u32).wrapping_sub(1)),
        ("mov.u32 %r63, %ntid.x;", |_| 32),
        ("mov.u32 %r63, %nctaid.z;", |_| 1),
        ("mad.lo.s32 %r63, %tid.x, WARP_SZ, 1;", |l| 32 * l + 1),
    ] {
        assert_eq!(lanes(body), expected(f), "{body}");
    }
}
