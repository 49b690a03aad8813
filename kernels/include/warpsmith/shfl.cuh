// shfl.sync: a word from another lane; all 32 lanes take part.
#pragma once
#include <warpsmith/types.cuh>

namespace ptx {

static __device__ __forceinline__ float shfl_sync_bfly(float x, int lane_mask)
{
    float y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x), "r"(lane_mask));
    return y;
}

static __device__ __forceinline__ float shfl_sync_idx(float x, int lane)
{
    float y;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x), "r"(lane));
    return y;
}

}  // namespace ptx
