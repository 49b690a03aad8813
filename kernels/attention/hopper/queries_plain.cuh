// Queries of 16 bits from e4m3 codes, plainly and exactly, for gates of kernels that take such queries: their scale stays what it was.
//
// Wants WS_D and WS_OUT.
#pragma once
#include "params.cuh"

// A thread for each dimension of a row; to (B, Hq, Sq, D), contiguous.
extern "C" __global__ void __launch_bounds__(256) widen_queries(const u8* q, u16* to, i64 q_b, i64 q_h, i64 q_s) {
    const i64 row = (static_cast<i64>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    u32 low, high;
    f16_of_e4m3(q[blockIdx.z * q_b + blockIdx.y * q_h + blockIdx.x * q_s + threadIdx.x], low, high);
    float x, y;
    f32_of_f16x2(low, x, y);
    to[row * WS_D + threadIdx.x] = static_cast<u16>(WS_OUT == kOutF16 ? low : bf16x2(x, y));
}

// Params whose queries are those.
WS_DEV Params with_wide_queries(const Params& p, const void* q) {
    Params x = p;
    x.q = static_cast<const u8*>(q);
    x.q_s = WS_D;
    x.q_h = static_cast<i64>(p.Sq) * WS_D;
    x.q_b = p.Hq * x.q_h;
    return x;
}
