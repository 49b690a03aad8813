// The three 8-bit formats of the inputs, decoded; -DWS_FORMAT=WS_E4M3 | WS_E5M2 | WS_U8 says which. A code times its scale is
// the value, and the scale is the kernel's business.
//
//   e4m3   1 sign, 4 exponent bits (bias 7), 3 of mantissa, largest 448. The code, shifted into an f16, is the value times
//          2^-8, subnormals too, because f16 has the same layout with a bias of 15: sm_80 multiplies by 256 in f16, which is
//          exact; sm_89 has a conversion. Code 0x7f and 0xff are NaN; sm_80's way reads them as 480: quantisers never make them.
//   e5m2   the upper byte of an f16.
//   u8     code - 128, exact in f16: 0x6400 + code is 1024 + code.
#pragma once
#include <warpsmith/cvt.cuh>
#include <warpsmith/math.cuh>

#ifndef WS_E4M3
#define WS_E4M3 0
#define WS_E5M2 1
#define WS_U8 2
#endif
#ifndef WS_FORMAT
#error "say -DWS_FORMAT=WS_E4M3, WS_E5M2 or WS_U8"
#endif
static_assert(WS_FORMAT == WS_E4M3 || WS_FORMAT == WS_E5M2 || WS_FORMAT == WS_U8, "an input format that is none of the three");

namespace warpsmith {

// Four codes to two words of halves, in the order of their addresses.
static __device__ __forceinline__ void decode_f16(u32& lo, u32& hi, u32 codes)
{
#if WS_FORMAT == WS_U8
    lo = ptx::sub_f16x2(ptx::prmt(codes, 0x64646464u, 0x4140), 0x64806480u);
    hi = ptx::sub_f16x2(ptx::prmt(codes, 0x64646464u, 0x4342), 0x64806480u);
#elif WS_FORMAT == WS_E5M2
    lo = ptx::prmt(codes, 0u, 0x1404);
    hi = ptx::prmt(codes, 0u, 0x3424);
#elif __CUDA_ARCH__ >= 890
    ptx::cvt_rn_f16x2_e4m3x2(lo, hi, codes);
#else
    const u32 l = ptx::prmt(codes, 0u, 0x1404), h = ptx::prmt(codes, 0u, 0x3424);
    lo = ptx::mul_f16x2((l & 0x80008000u) | ((l & 0x7f007f00u) >> 1), 0x5c005c00u);
    hi = ptx::mul_f16x2((h & 0x80008000u) | ((h & 0x7f007f00u) >> 1), 0x5c005c00u);
#endif
}

// Sixteen codes to sixteen halves.
static __device__ __forceinline__ void decode_f16(uint4& lo, uint4& hi, uint4 codes)
{
    decode_f16(lo.x, lo.y, codes.x);
    decode_f16(lo.z, lo.w, codes.y);
    decode_f16(hi.x, hi.y, codes.z);
    decode_f16(hi.z, hi.w, codes.w);
}

// Four codes to f32.
static __device__ __forceinline__ float4 decode_f32(u32 codes)
{
    u32 lo, hi;
    decode_f16(lo, hi, codes);
    float4 x;
    ptx::cvt_f32_f16(x.x, x.y, lo);
    ptx::cvt_f32_f16(x.z, x.w, hi);
    return x;
}

}  // namespace warpsmith
