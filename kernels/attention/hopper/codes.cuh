// Weights as codes of e4m3 by fixed-point arithmetic, without exponentials: forward_e4m3.cu and tiny.cu make them so.
//
// t = (32 - E) / 32, held within 0 and 1, is a weight of 2^(E - 7). Knows nothing of scores.
#pragma once
#include "half.cuh"

constexpr float kOctaves = 32.0f;
constexpr float kReference = 17.046875f;   // 32 - E of the largest weight, 2^8, less 3/64: by so much of 0.0575 octaves weights linear between powers of two, 4% too large in the mean, are meant to be

// A pair of weights: each half's upper byte is a code. `one` is 1.0 twice, from a register: as a constant it would make two instructions of one. What is no number has t 0 and becomes -2^-9: so whoever uses this looks for such scores himself.
// From 1/2 to 1, where no weight is too large, an f16 is a fixed-point number: t's bits are those of 1.0 less 64 E, E's four whole and six broken places, and -32 times them is a code of 8 bits and eight more. What is missing between
// powers of two, 2^f - 1 - f, is a parabola within 0.0059: v = a (1 - f) - b, and -v v - d is of such a size that its bits, as f16 below its normal numbers, are what is to be added. So 16 bits of the
// exact weight's logarithm (0.13% off, RMS) and half a code's place, whose upper eight are the code: rounded once, as FA3 rounds exact weights.
WS_DEV u32 codes_of(u32 t, u32 one) {
    constexpr u32 kA = 0x2EA12EA1u, kB = 0xAEDAAEDAu;   // v is 0.00647 (g - 0.5376), g = 1 - f: g comes as (1 + g / 16)
    constexpr u32 kD = 0x80378030u;                      // minus 48 units of 2^-24 (with 53 a hidden key would weigh something); the sign, and 7 more in the upper half, are what 32 times 1.0's bits leave
    u32 u;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(u) : "r"(t), "r"(0x003F003Fu), "r"(one));
    const u32 v = fma_f16x2(u, kA, kB);
    return t * (0u - 32u) + fma_f16x2(v, neg_f16x2(v), kD);
}
