// One warpgroup's online softmax over tiles of keys: what split.cu and ragged.cu share. Knows nothing of where tiles come from.
//
// Wants WS_POLY besides tile.cuh's own; K of the tile lies at `stage`, V behind it, `vt` is room for V transposed.
#pragma once
#include "scale.cuh"
#include "softmax.cuh"
#include "tile.cuh"

// A warpgroup's state over one unit.
struct State {
    float o[D / 2];
    float max0, max1, sum0, sum1;   // in powers of two; sums are this thread's own share
};

WS_DEV void reset(State& s) {
#pragma unroll
    for (i32 i = 0; i < D / 2; ++i) s.o[i] = 0.0f;
    s.max0 = s.max1 = kNegInf;
    s.sum0 = s.sum1 = 0.0f;
}

// One tile, its K and V already in shared memory at `stage`.
WS_DEV void tile(State& st, const u32 (&q)[D / 8], u32 stage, u32 vt, float c0, float c1, float v_scale, i32 first_key, i32 clear, i32 limit0,
                 i32 limit1, bool warp_has_rows, u32 barrier, u32 warp, u32 lane) {
    float s[KEYS / 2];
    c0 = score_factor(c0);
    c1 = score_factor(c1);
    issue_scores(s, q, stage);
    transpose_tile<D, KEYS>(stage + kTileBytes, vt, warp, 4, lane);
    fence_async_shared();
    named_barrier_sync(barrier, 128);
    wgmma_wait<0>();
    pin(s);

    u32 pr[KEYS / 8];
    float a0 = 1.0f, a1 = 1.0f;
    if (warp_has_rows) {
        // Uniform over the warpgroup; it also covers the zeros that fill a last, ragged tile.
        if (first_key + KEYS > clear) mask_keys(s, first_key + 2 * static_cast<i32>(lane % 4), limit0, limit1);
        float t0, t1;
        row_max(s, t0, t1);
        const float m0 = fmaxf(st.max0, quad_max(t0) * c0), m1 = fmaxf(st.max1, quad_max(t1) * c1);
        const float b0 = m0 == kNegInf ? 0.0f : m0, b1 = m1 == kNegInf ? 0.0f : m1;   // a row that has seen no key
        a0 = ex2(st.max0 - b0);
        a1 = ex2(st.max1 - b1);
        st.max0 = m0;
        st.max1 = m1;
        st.sum0 *= a0;
        st.sum1 *= a1;
        exponentials<KEYS / 2, WS_POLY>(s, c0, c1, kPShift - b0, kPShift - b1, st.sum0, st.sum1);
        pack_probabilities(s, pr);
    } else {
#pragma unroll
        for (i32 i = 0; i < KEYS / 8; ++i) pr[i] = 0;
    }

#pragma unroll
    for (i32 n = 0; n < D / 64; ++n) {
        float t[32];
        pin(pr);
        issue_values(t, pr, vt, n);
        wgmma_wait<0>();
        pin(t);
#pragma unroll
        for (i32 i = 0; i < 32; i += 4) {
            float* o = st.o + 32 * n + i;
            o[0] = fmaf(t[i], v_scale, o[0] * a0);
            o[1] = fmaf(t[i + 1], v_scale, o[1] * a0);
            o[2] = fmaf(t[i + 2], v_scale, o[2] * a1);
            o[3] = fmaf(t[i + 3], v_scale, o[3] * a1);
        }
    }
}

WS_DEV float log_sum(float top, float sum) { return sum > 0.0f ? (top + lg2(sum) - kPShift) * kLn2 : kNegInf; }

// A row without any key leaves max at minus infinity; its weights are whatever the exponentials gave, and are dropped.
WS_DEV void finish_sums(State& st) {
    const float sum0 = quad_sum(st.sum0), sum1 = quad_sum(st.sum1);   // before the choice: a shuffle under a condition that differs between lanes never returns
    st.sum0 = st.max0 == kNegInf ? 0.0f : sum0;
    st.sum1 = st.max1 == kNegInf ? 0.0f : sum1;
}
