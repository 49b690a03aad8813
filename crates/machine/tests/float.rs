//! Floating-point instructions and conversions: a body of PTX and the bits that come out.

mod common;
use common::{check32, check64, value};

#[test]
fn f32_arithmetic() {
    check32(&[
        ("add.f32 %f0, 0f3F800000, 0f40000000;\nmov.b32 %r63, %f0;", 3f32.to_bits()),
        ("add.rm.f32 %f0, 0f3F800000, 0f2EDBE6FF;\nmov.b32 %r63, %f0;", 1f32.to_bits()),
        ("add.rp.f32 %f0, 0f3F800000, 0f2EDBE6FF;\nmov.b32 %r63, %f0;", 0x3F80_0001),
        ("mul.ftz.f32 %f0, 0f00800000, 0f3F000000;\nmov.b32 %r63, %f0;", 0),
        ("mul.f32 %f0, 0f00800000, 0f3F000000;\nmov.b32 %r63, %f0;", 0x0040_0000),
        ("fma.rn.f32 %f0, 0f3F800001, 0f3F800001, 0fBF800002;\nmov.b32 %r63, %f0;", 0x2880_0000),
        ("fma.rn.sat.f32 %f0, 0f40000000, 0f40000000, 0f00000000;\nmov.b32 %r63, %f0;", 1f32.to_bits()),
        ("div.rn.f32 %f0, 0f3F800000, 0f40400000;\nmov.b32 %r63, %f0;", (1f32 / 3.0).to_bits()),
        ("div.full.f32 %f0, 0f40C00000, 0f40400000;\nmov.b32 %r63, %f0;", 2f32.to_bits()),
        ("sub.f32 %f0, 0f7F800000, 0f7F800000;\nmov.b32 %r63, %f0;", 0x7FFF_FFFF),
        ("min.f32 %f0, 0f7FC00000, 0f40000000;\nmov.b32 %r63, %f0;", 2f32.to_bits()),
        ("max.f32 %f0, 0f7FC00000, 0f7FC00000;\nmov.b32 %r63, %f0;", 0x7FFF_FFFF),
        ("max.NaN.f32 %f0, 0f7FC00000, 0f40000000;\nmov.b32 %r63, %f0;", 0x7FFF_FFFF),
        ("max.f32 %f0, 0f80000000, 0f00000000;\nmov.b32 %r63, %f0;", 0),
        ("min.f32 %f0, 0f00000000, 0f80000000;\nmov.b32 %r63, %f0;", 0x8000_0000),
        ("neg.f32 %f0, 0f3F800000;\nmov.b32 %r63, %f0;", (-1f32).to_bits()),
        ("abs.f32 %f0, 0fBF800000;\nmov.b32 %r63, %f0;", 1f32.to_bits()),
        ("sqrt.rn.f32 %f0, 0f40000000;\nmov.b32 %r63, %f0;", 2f32.sqrt().to_bits()),
        ("rcp.rn.f32 %f0, 0f40800000;\nmov.b32 %r63, %f0;", 0.25f32.to_bits()),
        ("rsqrt.approx.f32 %f0, 0f40800000;\nmov.b32 %r63, %f0;", 0.5f32.to_bits()),
        ("ex2.approx.f32 %f0, 0f40400000;\nmov.b32 %r63, %f0;", 8f32.to_bits()),
        ("ex2.approx.ftz.f32 %f0, 0fC3000000;\nmov.b32 %r63, %f0;", 0),
        ("lg2.approx.f32 %f0, 0f41000000;\nmov.b32 %r63, %f0;", 3f32.to_bits()),
        ("sin.approx.f32 %f0, 0f00000000;\nmov.b32 %r63, %f0;", 0),
        ("cos.approx.f32 %f0, 0f00000000;\nmov.b32 %r63, %f0;", 1f32.to_bits()),
        ("tanh.approx.f32 %f0, 0f42C80000;\nmov.b32 %r63, %f0;", 1f32.to_bits()),
        ("copysign.f32 %f0, 0f80000000, 0f40000000;\nmov.b32 %r63, %f0;", (-2f32).to_bits()),
        ("testp.infinite.f32 %p0, 0f7F800000;\nselp.u32 %r63, 1, 0, %p0;", 1),
    ]);
}

#[test]
fn f64_arithmetic() {
    check64(&[
        ("add.rn.f64 %d0, 0d3FF0000000000000, 0d4000000000000000;\nmov.b64 %rd29, %d0;", 3f64.to_bits()),
        ("add.rp.f64 %d0, 0d3FF0000000000000, 0d3BF0000000000000;\nmov.b64 %rd29, %d0;", 0x3FF0_0000_0000_0001),
        (
            "fma.rn.f64 %d0, 0d3FF0000000000001, 0d3FF0000000000001, 0dBFF0000000000002;\nmov.b64 %rd29, %d0;",
            0x3970_0000_0000_0000,
        ),
        ("div.rn.f64 %d0, 0d3FF0000000000000, 0d4008000000000000;\nmov.b64 %rd29, %d0;", (1f64 / 3.0).to_bits()),
        ("sqrt.rn.f64 %d0, 0d4000000000000000;\nmov.b64 %rd29, %d0;", 2f64.sqrt().to_bits()),
        ("max.f64 %d0, 0d7FF8000000000000, 0d4000000000000000;\nmov.b64 %rd29, %d0;", 2f64.to_bits()),
        ("cvt.f64.f32 %d0, 0f3FC00000;\nmov.b64 %rd29, %d0;", 1.5f64.to_bits()),
        ("cvt.rn.f64.s32 %d0, -7;\nmov.b64 %rd29, %d0;", (-7f64).to_bits()),
        ("cvt.rzi.s64.f64 %rd29, 0dC00C000000000000;", -3i64 as u64),
    ]);
}

#[test]
fn halves_and_pairs() {
    check32(&[
        // 1.5 + 2.0; pairs (1.5, 2.0) + (2.0, 2.0)
        ("mov.b16 %h0, 0x3E00;\nmov.b16 %h1, 0x4000;\nadd.f16 %h2, %h0, %h1;\ncvt.u32.u16 %r63, %h2;", 0x4300),
        ("add.f16x2 %r63, 0x40003E00, 0x40004000;", 0x4400_4300),
        ("mul.f16x2 %r63, 0x40003E00, 0x40004000;", 0x4400_4200),
        ("fma.rn.f16x2 %r63, 0x40003E00, 0x40004000, 0x3C003C00;", 0x4500_4400),
        ("fma.rn.relu.f16x2 %r63, 0xC0003E00, 0x40004000, 0x3C003C00;", 0x0000_4400),
        ("max.f16x2 %r63, 0x40007E00, 0x3C004000;", 0x4000_4000),
        ("neg.f16x2 %r63, 0x40003E00;", 0xC000_BE00),
        ("abs.f16x2 %r63, 0xC000BE00;", 0x4000_3E00),
        ("fma.rn.bf16x2 %r63, 0x40003FC0, 0x40004000, 0x3F803F80;", 0x40A0_4080),
        ("mov.b16 %h0, 0x3FC0;\nmov.b16 %h1, 0x4000;\nfma.rn.bf16 %h2, %h0, %h1, %h1;\ncvt.u32.u16 %r63, %h2;", 0x40A0),
        ("mov.b16 %h0, 0x4400;\nmov.b16 %h1, 0x3C00;\nsetp.gt.f16 %p0, %h0, %h1;\nselp.u32 %r63, 1, 0, %p0;", 1),
        ("setp.gt.f16x2 %p0|%p1, 0x3C004400, 0x3C003C00;\nselp.u32 %r1, 1, 0, %p0;\nselp.u32 %r63, 5, %r1, %p1;", 1),
        ("mov.b16 %h0, 0x4200;\nex2.approx.f16 %h1, %h0;\ncvt.u32.u16 %r63, %h1;", 0x4800),
        ("tanh.approx.f16x2 %r63, 0x00000000;", 0),
    ]);
}

#[test]
fn conversions() {
    check32(&[
        ("cvt.rni.s32.f32 %r63, 0f40200000;", 2),
        ("cvt.rzi.s32.f32 %r63, 0fC0200000;", -2i32 as u32),
        ("cvt.rmi.s32.f32 %r63, 0fC0200000;", -3i32 as u32),
        ("cvt.rpi.s32.f32 %r63, 0f40200000;", 3),
        ("cvt.rzi.s32.f32 %r63, 0f4F800000;", 0x7FFF_FFFF),
        ("cvt.rzi.u32.f32 %r63, 0fBF800000;", 0),
        ("cvt.rzi.s32.f32 %r63, 0f7FC00000;", 0),
        ("cvt.rn.f32.s32 %f0, -3;\nmov.b32 %r63, %f0;", (-3f32).to_bits()),
        ("cvt.rn.f32.u32 %f0, -1;\nmov.b32 %r63, %f0;", 4294967296f32.to_bits()),
        ("cvt.rz.f32.u32 %f0, -1;\nmov.b32 %r63, %f0;", 4294967040f32.to_bits()),
        ("cvt.rni.f32.f32 %f0, 0f40600000;\nmov.b32 %r63, %f0;", 4f32.to_bits()),
        ("cvt.sat.f32.f32 %f0, 0f40600000;\nmov.b32 %r63, %f0;", 1f32.to_bits()),
        ("cvt.rn.f16.f32 %h0, 0f3F800000;\ncvt.u32.u16 %r63, %h0;", 0x3C00),
        ("mov.b16 %h0, 0x7E01;\ncvt.f32.f16 %f0, %h0;\nmov.b32 %r63, %f0;", 0x7FFF_FFFF),
        ("cvt.rn.bf16.f32 %h0, 0f3F808000;\ncvt.u32.u16 %r63, %h0;", 0x3F80),
        ("cvt.rz.f16.f32 %h0, 0f477FFFFF;\ncvt.u32.u16 %r63, %h0;", 0x7BFF),
        ("cvt.rn.f16x2.f32 %r63, 0f3F800000, 0f40000000;", 0x3C00_4000),
        ("cvt.rn.relu.f16x2.f32 %r63, 0fBF800000, 0f40000000;", 0x0000_4000),
        ("cvt.rn.bf16x2.f32 %r63, 0f3F800000, 0f40000000;", 0x3F80_4000),
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, 0f43FA0000, 0f3F800000;\ncvt.u32.u16 %r63, %h0;", 0x7E38),
        ("cvt.rn.satfinite.e5m2x2.f32 %h0, 0f3F800000, 0f40000000;\ncvt.u32.u16 %r63, %h0;", 0x3C40),
        ("mov.b16 %h0, 0x3840;\ncvt.rn.f16x2.e4m3x2 %r63, %h0;", 0x3C00_4000),
        ("mov.b16 %h0, 0x3C40;\ncvt.rn.f16x2.e5m2x2 %r63, %h0;", 0x3C00_4000),
        ("cvt.rn.satfinite.e4m3x2.f16x2 %h0, 0x3C004000;\ncvt.u32.u16 %r63, %h0;", 0x3840),
        ("cvt.rna.tf32.f32 %r63, 0f3F801000;", 0x3F80_2000),
        ("mov.u16 %h0, 0xFF80;\ncvt.s32.s8 %r63, %h0;", 0xFFFF_FF80),
        ("mov.u16 %h0, 0x01FF;\ncvt.u32.u8 %r63, %h0;", 0xFF),
        ("cvt.pack.sat.u8.s32.b32 %r63, 300, -5, 0x12345678;", 0x5678_FF00),
        ("cvt.pack.sat.s16.s32 %r63, 40000, -40000;", 0x7FFF_8000),
        ("cvt.rzi.s32.f64 %r63, 0d7FF8000000000000;", 0x8000_0000),
        ("cvt.sat.u8.s32 %h0, 300;\ncvt.u32.u16 %r63, %h0;", 255),
        ("cvt.sat.s8.s32 %h0, -300;\ncvt.s32.s16 %r63, %h0;", -128i32 as u32),
        ("mov.b64 %rd2, 0x1FFFFFFFF;\ncvt.u32.u64 %r63, %rd2;", u32::MAX),
        ("mov.b64 %rd2, 0x12345;\ncvt.u16.u64 %h0, %rd2;\ncvt.u32.u16 %r63, %h0;", 0x2345),
    ]);
    check64(&[
        ("cvt.s64.s32 %rd29, -2;", -2i64 as u64),
        ("cvt.u64.u32 %rd29, -2;", 0xFFFF_FFFE),
        ("mov.u16 %h0, -2;\ncvt.s64.s16 %rd29, %h0;", -2i64 as u64),
        ("mov.u16 %h0, -2;\ncvt.u64.u16 %rd29, %h0;", 0xFFFE),
    ]);
}

#[test]
fn approximations_follow_the_device_at_the_edges() {
    // Sequences as ptxas 13.0 compiles them for sm_90; PTX ISA 9.0, "div", "sin", "rcp.approx.ftz.f64".
    for (body, expected) in [
        // A divisor above 2^126 has a reciprocal that is flushed.
        ("div.approx.f32 %f0, 0f7E967699, 0f7F000000;\nmov.b32 %r63, %f0;", 0u64),
        ("div.approx.f32 %f0, 0fFE967699, 0f7F000000;\nmov.b32 %r63, %f0;", 0x8000_0000),
        ("div.approx.f32 %f0, 0f7F800000, 0f7F000000;\nmov.b32 %r63, %f0;", 0x7FFF_FFFF),
        ("div.full.f32 %f0, 0f7F000000, 0f7F000000;\nmov.b32 %r63, %f0;", 0x3F80_0000),
        // Far from zero the operand is a whole number of turns.
        ("sin.approx.f32 %f0, 0f60000000;\nmov.b32 %r63, %f0;", 0),
        ("cos.approx.f32 %f0, 0f60000000;\nmov.b32 %r63, %f0;", 0x3F80_0000),
        ("mov.f64 %d1, 0d4008000000000000;\nrcp.approx.ftz.f64 %d0, %d1;\nmov.b64 {%r63, %r62}, %d0;", 0),
        ("neg.f32 %f0, 0fFFC00001;\nmov.b32 %r63, %f0;", 0x7FFF_FFFF),
    ] {
        assert_eq!(value(body, false), u64::from(expected as u32), "{body}");
    }
}
