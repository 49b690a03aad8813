// The largest of a value of every thread of a CTA, in every thread. Assumes: kThreads threads, all of them here; values not negative, or any floats.
#pragma once
#include "ptx.cuh"

// shared: a float for each warp, read until all threads have left.
template <int kThreads>
WS_DEV float block_max(float top, float* shared) {
#pragma unroll
    for (i32 lane = 16; lane > 0; lane /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, lane));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = top;
    __syncthreads();
#pragma unroll
    for (i32 i = 0; i < kThreads / 32; ++i) top = fmaxf(top, shared[i]);
    return top;
}
