// cvt between f32, f16 and the 8-bit floats, two elements at a time; `lo` is the element of the lower address.
#pragma once
#include <warpsmith/types.cuh>

namespace ptx {

static __device__ __forceinline__ u32 cvt_rn_f16x2_f32(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// Both halves of a word, widened.
static __device__ __forceinline__ void cvt_f32_f16(float& lo, float& hi, u32 halves)
{
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(lo), "=f"(hi) : "r"(halves));
}

// Four floats to four e4m3 codes, `a` in the lowest byte; beyond 448 they saturate. sm_89 and later.
static __device__ __forceinline__ u32 cvt_rn_satfinite_e4m3x2_f32(float a, float b, float c, float d)
{
    u32 r;
    asm("{ .reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, %2, %1; cvt.rn.satfinite.e4m3x2.f32 h, %4, %3; mov.b32 %0, {l, h}; }"
        : "=r"(r)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return r;
}

// sm_89 and later. Four e4m3 codes to two words of halves; exact.
static __device__ __forceinline__ void cvt_rn_f16x2_e4m3x2(u32& lo, u32& hi, u32 codes)
{
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }"
        : "=r"(lo), "=r"(hi)
        : "r"(codes));
}

}  // namespace ptx
