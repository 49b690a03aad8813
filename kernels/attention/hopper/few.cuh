// kFew: few rows of queries over many keys, for forward_f16.cu and forward_e4m3.cu. Row r of a key head is query r % Sq of query head r / Sq of its group, so that a row tile has as many
// rows as there are, and K and V are read once for all of them; p.tiles_per_worker CTAs share out a row tile's keys, and the last of them to come adds what they have.
//
// Comes within forward_work.cuh. Wants p.row_tiles row tiles of a key head, scratch of kFewFloats for each CTA of each row tile in p.partial, and in p.arrived 4 WGS counters for each row
// tile, zero between launches. Work::head is the key head's first query head.
#pragma once
#include "half.cuh"
#include "ragged.cuh"
#include "scale.cuh"

// WS_LENS: sequences have lengths of their own, and perhaps pages, of 8 to 64 keys or whole tiles; what both kinds of entry take.
#if WS_LENS
struct FewParams : Params {
    Ragged x;
};
WS_DEV i32 keys_of(const Params& p, i32 b) { return min(max(__ldg(static_cast<const FewParams&>(p).x.used + b), 0), p.Sk); }

// A tile of keys from first_key on: a box, or as many as pages make of it. Of pages behind the last key's it takes that one.
WS_DEV void few_load(const Params& p, const Work& w, u32 smem, const TensorMap* map, u32 bar, i32 first_key, i32 kv_head) {
    const Ragged& x = static_cast<const FewParams&>(p).x;
    if (!x.pages) load_rows(smem, map, bar, KEYS, first_key, kv_head, w.b);
    else {
        const i32 box = min(KEYS, x.page_size);
#pragma unroll 1
        for (i32 at = 0; at < KEYS; at += box) {
            const i32 key = min(first_key + at, w.keys - 1), page = min(max(__ldg(x.pages + w.b * x.pages_b + key / x.page_size), 0), x.page_count - 1);
#pragma unroll
            for (i32 half = 0; half < (D + 127) / 128; ++half) tma_load_4d(smem + (half * KEYS + at) * kPitch, map, bar, half * 128, (first_key + at) % x.page_size, kv_head, page);
        }
    }
    copies_issued(bar);
}

// Behind the last key lies anything, NaN too, which times 0 is NaN: V's rows there become zeros, before two warps rewrite the t-th tile.
WS_DEV void few_clear(const Work& w, i32 t, u32 v, u32 warp, u32 lane) {
    const i32 there = max(0, w.keys - w.keys_at(t) * KEYS);   // a step of two tiles may end behind all keys
    if (there >= KEYS) return;
    for (u32 i = there * (kPitch / 16) + warp * 32 + lane; i < KEYS * (kPitch / 16); i += 64)
#pragma unroll
        for (u32 half = 0; half < (D + 127) / 128; ++half) store_shared_16(v + half * KEYS * 128 + 16 * i, 0, 0, 0, 0);
    named_barrier_sync(7, 64);
}
#else
using FewParams = Params;
WS_DEV i32 keys_of(const Params& p, i32) { return p.Sk; }
WS_DEV void few_load(const Params&, const Work&, u32, const TensorMap*, u32, i32, i32) {}
WS_DEV void few_clear(const Work&, i32, u32, u32, u32) {}
#endif

// Of a row tile's sequence.
WS_DEV i32 few_keys(const Params& p, const Work& w) { return kLens ? w.keys : p.Sk; }

struct Queries {
    i32 first, last;   // the least and the greatest
};

// Of so many packed rows from `row` on, of which some are there.
WS_DEV Queries queries_of(const Params& p, i32 row, i32 rows) {
    const i32 end = min(p.group * p.Sq, row + rows) - 1, head = row / p.Sq;
    const bool one = end / p.Sq == head;   // query head
    return {one ? row - head * p.Sq : 0, one ? end - head * p.Sq : p.Sq - 1};
}

WS_DEV i32 few_tiles_seen(const Params& p, const Work& w, i32 group_row) {
    if (group_row >= p.group * p.Sq) return 0;
    const i32 keys = few_keys(p, w), seen = min(keys, keys - p.Sq + queries_of(p, group_row, 64).last + 1);
    return WS_CAUSAL ? max(0, min(w.tiles, (seen + KEYS - 1) / KEYS - w.base)) : w.tiles;
}

// The key from which on 64 rows want a mask.
WS_DEV i32 few_clear_keys(const Params& p, const Work& w, i32 group_row) {
    const i32 keys = few_keys(p, w);
    return WS_CAUSAL ? min(keys, keys - p.Sq + queries_of(p, group_row, 64).first + 1) : keys;
}

WS_DEV bool few_work_of(const Params& p, i32 i, Work& w) {
    const i32 splits = p.tiles_per_worker, units = p.row_tiles * p.Hkv * p.B, t = i * gridDim.x + blockIdx.x, unit = t / splits;
    if (unit >= units) return false;
    w.split = t - unit * splits;
    const i32 kv_head = unit / p.row_tiles;
    w.b = kv_head / p.Hkv;
    w.head = (kv_head - w.b * p.Hkv) * p.group;
    w.first_row = (unit - kv_head * p.row_tiles) * ROWS;
    w.keys = keys_of(p, w.b);
    const Queries q = queries_of(p, w.first_row, ROWS);
    const i32 last = WS_CAUSAL ? min(w.keys, w.keys - p.Sq + q.last + 1) : w.keys;
    const i32 steps = last > 0 ? (last + KEYS * kWhole - 1) / (KEYS * kWhole) : 0, share = (steps + splits - 1) / splits;
    w.base = min(steps, w.split * share) * kWhole;
    w.tiles = min(steps, (w.split + 1) * share) * kWhole - w.base;
    w.first_tile = max(0, min(w.tiles - 1, min(w.keys, w.keys - p.Sq + q.first + 1) / KEYS - 1 - w.base));
    return true;
}

// A packed row of a key head whose first query head, of all sequences', is `head`: where it lies, or null behind the last one. c: times its scale.
WS_DEV const u8* few_row(const Params& p, i32 head, i32 row, float& c) {
    const i32 b = head / p.Hq, of_group = row / p.Sq, h = head - b * p.Hq + of_group, query = row - of_group * p.Sq;
    if (of_group >= p.group) return nullptr;
    c = score_factor(c * load_f32(p.q_scale + b * p.qs_b + h * p.qs_h + (query >> 7) * p.qs_t));
    return p.q + b * p.q_b + h * p.q_h + query * p.q_s;
}

// Whether a thread's i-th word of n is of its second row: outputs come in fours, two and two, then each row's sum, once or twice.
WS_DEV constexpr bool of_second_row(i32 i, i32 n) { return n % 4 == 0 || i < n - 2 ? i % 4 >= 2 : i == n - 1; }

// A CTA's part of a row tile: its threads' words, one behind another. N: a thread's outputs and sums; then its rows' references.
template <i32 N>
struct FewPart {
    static constexpr i32 kWords = N + 2, kThreads = 128 * WGS;
    float* all;
    i32 splits;

    WS_DEV_MEMBER float* part(i32 split) const { return all + static_cast<i64>(split) * (kWords * kThreads); }
};

// Leaves a thread's outputs, relative to 2^top, for whoever comes last of those that share the row tile's keys, by warps; there adds all of them, in their order, and returns true.
template <i32 N>
WS_DEV bool few_add(const Params& p, const Work& w, i32 head, u32 group, u32 thread, float (&o)[N], float top0, float top1) {
    const i32 splits = p.tiles_per_worker;
    if (splits == 1) return true;
    const u32 warp = thread / 32, lane = thread % 32;
    const i32 unit = head / p.group * p.row_tiles + w.first_row / ROWS;
    const FewPart<N> parts{p.partial + static_cast<i64>(unit) * splits * (FewPart<N>::kWords * FewPart<N>::kThreads) + group * 128 + thread, splits};
    float* mine = parts.part(w.split);
#pragma unroll
    for (i32 i = 0; i < N; ++i) __stcg(mine + i * FewPart<N>::kThreads, o[i]);
    __stcg(mine + N * FewPart<N>::kThreads, top0);
    __stcg(mine + (N + 1) * FewPart<N>::kThreads, top1);
    i32* counter = p.arrived + (unit * WGS + group) * 4 + warp;
    i32 before = 0;
    __syncwarp();
    if (lane == 0) before = add_in_order(counter, 1);
    if (__shfl_sync(0xFFFFFFFFu, before, 0) != splits - 1) return false;
    __syncwarp();   // what lane 0 has acquired all may read
    if (lane == 0) *counter = 0;
    float most0 = __ldcg(mine + N * FewPart<N>::kThreads), most1 = __ldcg(mine + (N + 1) * FewPart<N>::kThreads);
#pragma unroll 1
    for (i32 s = 0; s < splits; ++s) {
        const float* x = parts.part(s) + N * FewPart<N>::kThreads;
        most0 = fmaxf(most0, __ldcg(x)), most1 = fmaxf(most1, __ldcg(x + FewPart<N>::kThreads));
    }
#pragma unroll
    for (i32 i = 0; i < N; ++i) o[i] = 0.0f;
#pragma unroll 1
    for (i32 s = 0; s < splits; ++s) {
        const float* x = parts.part(s);
        const float f0 = ex2(__ldcg(x + N * FewPart<N>::kThreads) - most0), f1 = ex2(__ldcg(x + (N + 1) * FewPart<N>::kThreads) - most1);
#pragma unroll
        for (i32 i = 0; i < N; ++i) o[i] = fmaf(__ldcg(x + i * FewPart<N>::kThreads), of_second_row(i, N) ? f1 : f0, o[i]);
    }
    return true;
}
