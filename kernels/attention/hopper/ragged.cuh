// Where sequences lie whose lengths only the device knows: what ragged.cu, and decode.cu with WS_LENS, are told beside Params.
#pragma once
#include "params.cuh"

// Sq and Sk of Params are the most that a sequence has. The host mirrors it: _params.py.
struct Ragged {
    const i32* cu_q;    // (B + 1,), or null: every sequence has Sq queries
    const i32* cu_k;    // (B + 1,), or null
    const i32* used;    // (B,) keys of each sequence, or null: Sk
    const i32* pages;   // (B, pages of a sequence), or null
    i64 pages_b;
    i64 o_b, o_h, o_s, l_b, l_h, l_s;   // strides of out and lse; the first is unused with cu_q
    i32 total_q, total_k;               // tokens of q and of k where they lie one behind another
    i32 page_size, page_count, splits;
};

// The sum of the lanes' numbers up to each one's own.
WS_DEV i32 warp_sums(i32 x, u32 lane) {
#pragma unroll
    for (u32 i = 1; i < 32; i *= 2) {
        const i32 before = __shfl_up_sync(0xFFFFFFFFu, x, i);
        if (lane >= i) x += before;
    }
    return x;
}

// One behind another: rows of the output that are of no sequence, or behind as many as one may have, become zeros, and their log-sum-exps (if any) minus infinity: a share of them by one of `warps` warps of all CTAs.
template <i32 kD>
WS_DEV void clear_gaps(const Params& p, const Ragged& x, i32 warp, i32 warps, i32 lane, float* lse) {
    const i64 row_bytes = static_cast<i64>(p.Hq) * kD * (WS_OUT == kOutE4m3 ? 1 : 2);
    auto begin_of = [&](i32 b) { return min(max(__ldg(x.cu_q + b), 0), x.total_q); };
#pragma unroll 1
    for (i32 b0 = 0; b0 <= p.B; b0 += 32) {
        // What lies behind sequence b - 1, up to the next.
        const i32 b = b0 + lane, to = b < p.B ? begin_of(b) : b == p.B ? x.total_q : 0, from = b == 0 ? 0 : b <= p.B ? min(begin_of(b), begin_of(b - 1) + p.Sq) : to;
        for (u32 left = __ballot_sync(0xFFFFFFFFu, from < to); left; left &= left - 1) {
            const i32 at = __ffs(static_cast<i32>(left)) - 1;
            u8* out = static_cast<u8*>(p.out);
            const i64 first = __shfl_sync(0xFFFFFFFFu, from, at), end = __shfl_sync(0xFFFFFFFFu, to, at);
            for (i64 i = first * row_bytes + 16 * (warp * 32 + lane); i < end * row_bytes; i += 16 * 32 * warps) *reinterpret_cast<uint4*>(out + i) = make_uint4(0, 0, 0, 0);
            if (!lse) continue;
            for (i32 head = warp; head < p.Hq; head += warps)
                for (i64 i = first + lane; i < end; i += 32) lse[static_cast<i64>(head) * x.total_q + i] = __uint_as_float(0xFF800000u);   // minus infinity
        }
    }
}
