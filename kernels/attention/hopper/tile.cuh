// What the kernels without a producer share: tiles that a warpgroup loads by itself with cp.async, and the products of one.
//
// A tile has 64 packed rows (rows.cuh). Knows nothing of softmax.
#pragma once
#include "rows.cuh"

static_assert(KEYS == 64 || KEYS == 128, "a tile is 64 or 128 keys");

WS_DEV void load_q(const Params& p, i32 b, const Row& r, u32 lane4, u32 (&q)[D / 8], u32 at) {
    const u8* src = p.q + b * p.q_b + r.head * p.q_h + r.query * p.q_s + lane4 * 4;
#pragma unroll
    for (i32 i = 0; i < D / 16; ++i) q[2 * i + at] = r.valid ? load_u32(src + 16 * i) : 0;
}

template <u32 kThreads = 128>
WS_DEV void load_tile(const u8* src, i64 stride, i32 first, i32 keys, u32 smem, u32 thread) {
    constexpr u32 kChunks = D / 16, kRows = kThreads / kChunks;
    static_assert(KEYS % kRows == 0, "every pass of the threads loads whole rows of the tile");
    const u32 chunk = thread % kChunks;
    const u32 half = D > 128 ? (chunk >> 3) * (KEYS * 128) : 0;
#pragma unroll
    for (u32 i = 0; i < KEYS / kRows; ++i) {
        const u32 row = thread / kChunks + i * kRows;
        const i32 key = first + static_cast<i32>(row);
        const bool inside = key < keys;
        cp_async_16(smem + half + swizzled<kPitch>(row, D > 128 ? (chunk & 7) : chunk), src + (inside ? key : 0) * stride + chunk * 16, inside ? 16 : 0);
    }
}

// S = Q K^T of one tile, issued, not waited for. Q's registers are A operands.
WS_DEV void issue_scores(float (&s)[KEYS / 2], const u32 (&q)[D / 8], u32 k) {
    const u32 k_low = desc_low(k);
    wgmma_fence();
#pragma unroll
    for (i32 i = 0; i < D / 32; ++i) {
        const u32 a[4] = {q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]};
        const u64 b = desc_at<kPitch>(k_low, (i / 4) * (KEYS * 128) + (i % 4) * 32);
        wgmma(s, a, b, i != 0);
    }
    wgmma_commit();
}

// T = P V for 64 of the head's dimensions, issued, not waited for.
WS_DEV void issue_values(float* t, const u32 (&pr)[KEYS / 8], u32 vt, i32 slice) {
    float(&x)[32] = *reinterpret_cast<float(*)[32]>(t);
    const u32 vt_low = desc_low(vt);
    wgmma_fence();
#pragma unroll
    for (i32 k = 0; k < KEYS / 32; ++k) {
        const u32 a[4] = {pr[4 * k], pr[4 * k + 1], pr[4 * k + 2], pr[4 * k + 3]};
        const u64 b = desc_at<KEYS>(vt_low, slice * (64 * KEYS) + k * 32);
        wgmma(x, a, b, k != 0);
    }
    wgmma_commit();
}
