// Arithmetic that C++ has no operator for.
#pragma once
#include <warpsmith/types.cuh>

namespace ptx {

// 2^x to about two units in the last place; -inf gives 0.
static __device__ __forceinline__ float ex2_approx_ftz(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Byte i of the result is byte (selector >> 4 i) & 7 of the eight bytes b:a, a being the lower four.
static __device__ __forceinline__ u32 prmt(u32 a, u32 b, u32 selector)
{
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

static __device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b)
{
    u32 r;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

static __device__ __forceinline__ u32 sub_f16x2(u32 a, u32 b)
{
    u32 r;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

}  // namespace ptx
