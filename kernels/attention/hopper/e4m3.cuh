// Floats to e4m3 codes on any card from Ampere on: to nearest even, saturating at 448. Ada and later have an instruction.
#pragma once
#include "ptx.cuh"

// One code, without it.
WS_DEV u32 e4m3_of(float x) {
    const u32 sign = __float_as_uint(x) >> 24 & 0x80;
    const float m = fminf(fabsf(x), 448.0f);
    if (!(fabsf(x) >= 0.0f)) return 0x7F;
    if (m < 0.015625f) return sign | static_cast<u32>(__float2int_rn(m * 512.0f));   // subnormals; 8 of them is the first normal number
    const u32 bits = __float_as_uint(m), rounded = bits + 0x7FFFF + (bits >> 20 & 1);
    return sign | ((rounded >> 20) - (120 << 3));
}

// Four, the first in the low byte.
WS_DEV u32 codes_of_four(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
    return e4m3x4(a, b, c, d);
#else
    return e4m3_of(a) | e4m3_of(b) << 8 | e4m3_of(c) << 16 | e4m3_of(d) << 24;
#endif
}
