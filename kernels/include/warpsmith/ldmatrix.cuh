// ldmatrix: four 8 x 8 matrices of 16-bit elements from shared memory; lane 8i + j gives the address of row j of matrix i,
// 16-byte aligned. Register i then holds, in lane 4g + t, elements 2t and 2t + 1 of row g; with .trans, of column g.
#pragma once
#include <warpsmith/types.cuh>

namespace ptx {

static __device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 smem_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_row)
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], u32 smem_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_row)
                 : "memory");
}

}  // namespace ptx
