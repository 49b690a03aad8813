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

// In two steps, a barrier between them, of a value of every thread that is neither negative nor no number. shared: a float for each warp.
template <int kThreads>
WS_DEV void leave_max(float top, float* shared) {
    u32 y;
    asm volatile("redux.sync.max.u32 %0, %1, 0xFFFFFFFF;" : "=r"(y) : "r"(__float_as_uint(top)) : "memory");
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = __uint_as_float(y);
}

template <int kThreads>
WS_DEV float max_left(const float* shared) {
    float top = shared[0];
#pragma unroll
    for (i32 i = 1; i < kThreads / 32; ++i) top = fmaxf(top, shared[i]);
    return top;
}
