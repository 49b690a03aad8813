// The online softmax on a warpgroup's score accumulators, and the e4m3 probabilities that it leaves as operand registers.
//
// A thread holds two rows: element 4 b + {0, 1} of its accumulator is row 0, 4 b + {2, 3} row 1, of keys 8 b + 2 (lane % 4) + {0, 1}.
// Four neighbouring elements of one row in blocks 2 g and 2 g + 1 become one A-operand register; the order of keys that this implies,
// position 4 j + {0, 1, 2, 3} for keys 2 j + {0, 1, 8, 9} of 16, is the one in which transpose.cuh lays V. No shuffle is needed.
// Probabilities are 2^(x - max + shift); with kPShift e4m3 has normal numbers down to 2^-14 of the maximum.
// Source: the exponent split is that of Cody and Waite; its use beside the MUFU that of FlashAttention-4 (2026).
#pragma once
#include "ptx.cuh"

constexpr float kPShift = 8.0f;
constexpr float kLn2 = 0.6931471805599453f;
#define kNegInf __int_as_float(static_cast<int>(0xFF800000))

// 2^(32 u - 16) for u in [0, 1], on the FMA pipe: relative error at most 0.2%, where e4m3 rounds by up to 6%. Exact at whole exponents.
// Seven issue slots with the saturating FMA that makes u, none of them the MUFU.
WS_DEV float exp2_unit(float u) {
    constexpr float kMagic = 12582912.0f;   // 1.5 * 2^23: adding it rounds to a whole number, which is then in the low bits
    constexpr float kUnder = 1.52587890625e-5f;   // 2^-16
    const float r = fmaf(u, 32.0f, kMagic);
    const float whole = r - kMagic;
    const float f = fmaf(u, 32.0f, -whole);
    const float p = fmaf(f, fmaf(f, 0.24f * kUnder, 0.703f * kUnder), kUnder);
    return __int_as_float(__float_as_int(p) + (__float_as_int(r) << 23));
}

WS_DEV float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

WS_DEV float quad_sum(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

// The largest of a thread's two rows, over its own elements only.
template <int N>
WS_DEV void row_max(const float (&s)[N], float& top0, float& top1) {
    float a0 = s[0], a1 = s[1], b0 = s[2], b1 = s[3];
#pragma unroll
    for (int i = 4; i < N; i += 4) {
        a0 = fmaxf(a0, s[i]);
        a1 = fmaxf(a1, s[i + 1]);
        b0 = fmaxf(b0, s[i + 2]);
        b1 = fmaxf(b1, s[i + 3]);
    }
    top0 = fmaxf(a0, a1);
    top1 = fmaxf(b0, b1);
}

// s[] becomes 2^(c s + bias), in place, and its row sums are added to sum0 and sum1. kPoly of 8 key blocks go to the FMA pipe. kRows 1: the first row's alone.
template <int N, int kPoly, int kRows = 2>
WS_DEV void exponentials(float (&s)[N], float c0, float c1, float bias0, float bias1, float& sum0, float& sum1) {
    const float u0 = c0 * 0.03125f, u1 = c1 * 0.03125f, v0 = fmaf(bias0, 0.03125f, 0.5f), v1 = fmaf(bias1, 0.03125f, 0.5f);
    float t0 = 0.0f, t1 = 0.0f;
#pragma unroll
    for (int b = 0; b < N / 4; ++b) {
        // Spread evenly, so that both pipes have work at any time.
        const bool poly = ((b + 1) * kPoly) / 8 != (b * kPoly) / 8;
        if (poly) {
            s[4 * b] = exp2_unit(fma_sat(s[4 * b], u0, v0));
            s[4 * b + 1] = exp2_unit(fma_sat(s[4 * b + 1], u0, v0));
            if (kRows > 1) {
                s[4 * b + 2] = exp2_unit(fma_sat(s[4 * b + 2], u1, v1));
                s[4 * b + 3] = exp2_unit(fma_sat(s[4 * b + 3], u1, v1));
            }
        } else {
            s[4 * b] = ex2(fmaf(s[4 * b], c0, bias0));
            s[4 * b + 1] = ex2(fmaf(s[4 * b + 1], c0, bias0));
            if (kRows > 1) {
                s[4 * b + 2] = ex2(fmaf(s[4 * b + 2], c1, bias1));
                s[4 * b + 3] = ex2(fmaf(s[4 * b + 3], c1, bias1));
            }
        }
        sum0 += s[4 * b];
        t0 += s[4 * b + 1];
        if (kRows > 1) {
            sum1 += s[4 * b + 2];
            t1 += s[4 * b + 3];
        }
    }
    sum0 += t0;
    sum1 += t1;
}

// Probabilities as A-operand registers: p[4 k .. 4 k + 3] is the operand of the product over keys 32 k to 32 k + 31.
template <int N>
WS_DEV void pack_probabilities(const float (&s)[N], u32 (&p)[N / 4]) {
#pragma unroll
    for (int g = 0; g < N / 8; ++g) {
        p[4 * (g / 2) + 2 * (g % 2)] = e4m3x4(s[8 * g], s[8 * g + 1], s[8 * g + 4], s[8 * g + 5]);
        p[4 * (g / 2) + 2 * (g % 2) + 1] = e4m3x4(s[8 * g + 2], s[8 * g + 3], s[8 * g + 6], s[8 * g + 7]);
    }
}

// Hides keys from a limit on. first_key is the tile's first key plus 2 (lane % 4).
template <int N>
WS_DEV void mask_keys(float (&s)[N], i32 first_key, i32 limit0, i32 limit1) {
    const i32 left0 = limit0 - first_key, left1 = limit1 - first_key;   // compared with constants: one instruction fewer for every key
#pragma unroll
    for (int b = 0; b < N / 4; ++b) {
        s[4 * b] = left0 > 8 * b ? s[4 * b] : kNegInf;
        s[4 * b + 1] = left0 > 8 * b + 1 ? s[4 * b + 1] : kNegInf;
        s[4 * b + 2] = left1 > 8 * b ? s[4 * b + 2] : kNegInf;
        s[4 * b + 3] = left1 > 8 * b + 1 ? s[4 * b + 3] : kNegInf;
    }
}
