// Arithmetic on pairs of f16, as Hopper has it: one thin wrapper for each instruction, and what forward_f16.cu makes of a few of them.
//
// Knows nothing of attention. Source: PTX ISA 9.0, 9.7.4 (half precision), 9.7.9.22 (cvt). A pair's first value is in the low half of its word.
#pragma once
#include "ptx.cuh"

// The pair's first value; of f32 both.
WS_DEV u32 twice(float x) { return f16x2(x, x); }
WS_DEV float first_of(u32 pair) {
    float low, high;
    f32_of_f16x2(pair, low, high);
    return low;
}

WS_DEV u32 mul_f16x2(u32 a, u32 b) {
    u32 y;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// An operand's sign, where one that is used follows.
WS_DEV u32 neg_f16x2(u32 a) {
    u32 y;
    asm("neg.f16x2 %0, %1;" : "=r"(y) : "r"(a));
    return y;
}

WS_DEV u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u32 y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

// Held within 0 and 1; what is no number becomes 0.
WS_DEV u32 fma_sat_f16x2(u32 a, u32 b, u32 c) {
    u32 y;
    asm("fma.rn.sat.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

WS_DEV u32 sub_f16x2(u32 a, u32 b) {
    u32 y;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// The number, if one of them is none.
WS_DEV u32 min_f16x2(u32 a, u32 b) {
    u32 y;
    asm("min.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// Not a number if one of them is none.
WS_DEV u32 max_nan_f16x2(u32 a, u32 b) {
    u32 y;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

WS_DEV u32 ex2_f16x2(u32 x) {
    u32 y;
    asm("ex2.approx.f16x2 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Two pairs to four e4m3 bytes; saturating, to nearest even.
WS_DEV u32 e4m3x4_of_f16x2(u32 low, u32 high) {
    u32 y;
    asm("{.reg .b16 l, h;\n"
        "cvt.rn.satfinite.e4m3x2.f16x2 l, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f16x2 h, %2;\n"
        "mov.b32 %0, {l, h};}"
        : "=r"(y)
        : "r"(low), "r"(high));
    return y;
}

WS_DEV void load_shared_16(u32 (&r)[4], u32 addr) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}

WS_DEV void store_shared_16(u32 addr, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
