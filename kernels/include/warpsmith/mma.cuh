// mma.sync: one wrapper for each tensor-core instruction that the kernels use; D += A * B in registers.
// Fragments as in the PTX ISA ("Matrix fragments for mma.m16n8k16 / m16n8k32"): with g = lane / 4 and t = lane % 4,
// the accumulator's words are (row g, columns 2t, 2t+1) and (row g + 8, the same columns).
#pragma once
#include <warpsmith/types.cuh>

namespace ptx {

// f16 x f16 -> f32, 16 x 8 x 16. sm_80 and later.
static __device__ __forceinline__ void mma_m16n8k16_f32_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// e4m3 x e4m3 -> f32, 16 x 8 x 32. sm_89 and later. Ada keeps 13 bits of the accumulator: fold it into f32 often.
static __device__ __forceinline__ void mma_m16n8k32_f32_e4m3_e4m3(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// e5m2 x e5m2 -> f32, 16 x 8 x 32. sm_89 and later.
static __device__ __forceinline__ void mma_m16n8k32_f32_e5m2_e5m2(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// e4m3 x e5m2 -> f32, 16 x 8 x 32: probabilities in e4m3 against values in e5m2. sm_89 and later.
static __device__ __forceinline__ void mma_m16n8k32_f32_e4m3_e5m2(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace ptx
