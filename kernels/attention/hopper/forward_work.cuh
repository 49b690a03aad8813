// What forward.cu and forward_f16.cu share: the CTA's list of work, the warps that load and rewrite, where a consumer finds its tiles, the entry's body.
//
// Knows nothing of scores and weights. Wants D, WGS, KEYS, ROWS; the stages kQStages, kStages, kVStages and kVtStages; the map of shared memory: kTileBytes, kQBytes,
// kVtBytes (a slot of V as consumers take it), kWhole (a row tile has a multiple of so many tiles of keys), kK, kV, kVt and what forward_rings.cuh wants; kTransposers, kPacked (V^T comes as consumers take it), kAcross
// (V^T comes, and is rewritten), kBlocks and WS_BLOCKS; kTold (consumers are told of their work, beside Q, by what begin_rows writes); kLogs (with lengths of their own: log-sum-exps may be wanted); kOwnQ (they load Q themselves); kFew (row tiles are of packed rows of a key head, whose Q comes row by row, and their keys are shared out among CTAs: few.cuh); kPasses (a consumer without rows passes over its row tile's keys); kConsumerRegisters, kProducerRegisters; WS_CAUSAL and WS_TRACE.
#pragma once
#include "forward_rings.cuh"
#include "made.cuh"
#include "wgmma.cuh"

#ifndef WS_DRAWN
#define WS_DRAWN 0   // 1: row tiles are drawn from a counter, p.arrived, zero between launches
#endif
constexpr bool kDrawn = WS_DRAWN || kLens;
static_assert(!kDrawn || (kTold && kVStages <= 2 && kBarsRoom == 4), "places of barriers that rings of two leave");

struct Work {
#if WS_LENS == 2
    i32 b = 0, before = 0;   // the sequence, and how many row tiles of a key head come before its own: where the search for the next one begins
#else
    i32 b, before;
#endif
    i32 head, first_row, tiles, first_tile;
    i32 base, split, keys;   // kFew: tiles of keys before its own, which share that is, and keys of the sequence
    i32 queries, first_q, first_k, unit;   // kVarlen: of the sequence; which row tile of all it is
    i32 kv_head;      // kQuick
    i32 ways, more;   // kDecides: CTAs that share a row tile's keys; where each sequence has its own number, shares of all row tiles but their first
    u32 over_ways, over_units, over_row_tiles;   // kQuick, inverses (divide): of ways, of row tiles of a sequence and of a key head, or of key heads (kVarlen)
    u32 over_share;   // the inverse of how many steps a share has at most (few_shares)
    u32 over;   // kFew: few_over

    // The i-th tile of keys: from last to first, but one that every row sees whole comes before all: it gives the rows their references, and
    // then a masked tile is like any other. (A row's only key so far is a poor reference: the next tile's recomputation cost 8 us a row tile.)
    WS_DEV_MEMBER i32 keys_at(i32 i) const { return (kFew ? base : 0) + (!WS_CAUSAL ? tiles - 1 - i : i == 0 ? first_tile : tiles - i > first_tile ? tiles - i : tiles - 1 - i); }
};

// PERF: between drawing a row tile and asking for its keys a loader has nothing else to do, and consumers soon wait: where only the device knows lengths divisions there are products, by numbers that are known before. H200, 2026-11-28, of the time: sequences one behind another 0.968 to 0.984
// (1,234 calls by head dimension and length), prompts over caches whose keys nobody shares 0.976, 0.964, 0.991 at D 64, 128, 256. Losers: dense row tiles 0.98 to 1.015, at D 256, whose loaders have no registers for it, up to 1.0125; few rows over whole keys 0.99 to 1.02.
constexpr bool kQuick = kLens;
WS_DEV u32 inverse_of(i32 by) { return by == 1 ? 0 : 0xFFFFFFFFu / by + 1; }
WS_DEV i32 divide(i32 x, i32 by, u32 inverse, i32& rest) {
    i32 quotient = !kQuick ? x / by : inverse == 0 ? x : static_cast<i32>(__umulhi(x, inverse));   // at most one too many
    rest = x - quotient * by;
    if (kQuick && rest < 0) --quotient, rest += by;
    return quotient;
}
WS_DEV i32 kv_head_of(const Params& p, const Work& w) { return kQuick ? w.kv_head : w.head / p.group; }

WS_DEV void load_rows(u32 smem, const TensorMap* map, u32 bar, i32 rows, i32 first, i32 head, i32 b) {
#pragma unroll
    for (i32 half = 0; half < (D + 127) / 128; ++half) tma_load_4d(smem + half * rows * 128, map, bar, half * 128, first, head, b);
}

#include "few.cuh"

// kRelative: the block of scales of a tile of keys, of which one may lie behind all; and what scales of a row tile's tiles are relative to, that of its first, or 1 where it is 0, far off or no number.
WS_DEV i32 tile_scaled(const Params& p, i32 tile) { return min(tile, (p.Sk - 1) / KEYS); }
WS_DEV float base_scale(float first) { return first >= 0x1p-60f && first <= 0x1p60f ? first : 1.0f; }
WS_DEV float relative(float scale, float base) { return scale == base ? 1.0f : __fdiv_rn(scale, base); }

// Of the tiles of keys, how many some of 64 rows from group_row on see: the others are passed over. And the key from which on a mask is wanted.
WS_DEV i32 tiles_seen(const Params& p, const Work& w, i32 group_row) {
    if (kFew) return few_tiles_seen(p, w, group_row);
    if (kPasses && group_row >= p.Sq) return 0;
    return WS_CAUSAL ? max(0, min(w.tiles, (min(p.Sk, p.Sk - p.Sq + group_row + 64) + KEYS - 1) / KEYS)) : w.tiles;
}
WS_DEV i32 clear_keys(const Params& p, i32 group_row) { return WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + group_row + 1) : p.Sk; }

// Without the mask: how many keys of a row tile's tiles lie behind all.
WS_DEV i32 keys_behind(const Params& p, const Work& w) { return kFew ? max(0, (w.base + w.tiles) * KEYS - few_keys(p, w)) : w.tiles * KEYS - p.Sk; }

WS_DEV i32 row_tiles_of(const Params& p) { return p.row_tiles * p.Hq * p.B; }

// The t-th of so many row tiles. kFew: how many there are shows in the end.
WS_DEV bool work_at(const Params& p, i32 t, i32 total, Work& w) {
    if (kFew) return few_work_at(p, t, w);
    if (t >= total) return false;
    // Sections of heads whose row tiles leave SMs even, and whose K and V the L2 holds (the host's choice); in a section the longest rows first.
    const i32 per_section = p.section * p.row_tiles, section = t / per_section, heads = min(p.section, p.Hq * p.B - section * p.section);
    t -= section * per_section;
    const i32 m = p.row_tiles - 1 - t / heads, bh = section * p.section + t % heads;
    w.b = bh / p.Hq;
    w.head = bh % p.Hq;
    w.first_row = m * ROWS;
    const i32 last = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + min(p.Sq, w.first_row + ROWS)) : p.Sk;
    w.tiles = last > 0 ? (last + KEYS * kWhole - 1) / (KEYS * kWhole) * kWhole : 0;   // one tile more may lie behind all keys: it comes as zeros
    w.first_tile = max(0, min(p.Sk, p.Sk - p.Sq + w.first_row + 1) / KEYS - 1);
    return true;
}

// The i-th of this CTA in a list that CTAs share out: rounds run forwards and backwards in turn, so that shares of a falling list of lengths are even. kDrawn: its first is the list's, and all
// others are drawn from a counter when they are wanted: no list is even where lengths are not known, or where some SM is slower. Which CTA does a row tile does not show in its outputs.
WS_DEV i32 listed(i32 i) { return i * gridDim.x + ((WS_CAUSAL && !kFew && (i & 1)) ? gridDim.x - 1 - blockIdx.x : blockIdx.x); }

WS_DEV bool work_of(const Params& p, i32 i, Work& w) {
    const i32 total = row_tiles_of(p);
    return work_at(p, listed(i), total, w);
}

// The next row tile, for the loader of K, one thread or (kFew) a warp, which draws and tells the other roles. Whoever draws last of all puts the counter back: each row tile but the CTAs' first ones was drawn once,
// and then each CTA that had a first one drew in vain, as many times as there are row tiles.
WS_DEV bool draw_work(const Params& p, const Bars& bars, i32 i, Work& w, Ring<2>& drawn) {
    if (!kDrawn || i == 0) return work_of(p, i, w);
    const bool one = !kFew || threadIdx.x % 32 == 0;
    i32 n = 0;
    if (one) n = atomicAdd(p.arrived, 1);
    if (kFew) n = __shfl_sync(0xFFFFFFFFu, n, 0);
    const i32 t = gridDim.x + n;
    if (one) {
        mbarrier_wait(bars.drawn_empty(drawn.slot), drawn.phase ^ 1);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(bars.drawn(drawn.slot)), "r"(t) : "memory");
        mbarrier_arrive(bars.drawn_full(drawn.slot));
    }
    drawn.next();
    if (work_at(p, t, row_tiles_of(p), w)) return true;
    if (one && n == (kFew ? few_all(p, w) : row_tiles_of(p)) - 1) *p.arrived = 0;
    return false;
}

// For the other roles: one thread, or a warp.
template <bool kWarp>
WS_DEV bool next_work(const Params& p, const Bars& bars, i32 i, Work& w, Ring<2>& drawn) {
    if (!kDrawn || i == 0) return work_of(p, i, w);
    i32 t;
    mbarrier_wait(bars.drawn_full(drawn.slot), drawn.phase);
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(t) : "r"(bars.drawn(drawn.slot)) : "memory");
    if (kWarp) __syncwarp();
    if (!kWarp || threadIdx.x % 32 == 0) mbarrier_arrive(bars.drawn_empty(drawn.slot));
    drawn.next();
    return work_at(p, t, row_tiles_of(p), w);
}

// With kBlocks a tile's scale goes beside its barrier before the arrival, which lets consumers see it. It is asked for before the tile's slot is waited for, so
// that nothing waits for it here; and the bytes are announced before the arrival, as the copy shall not wait for it either.
WS_DEV void announce(u32 bar) {
    if (kBlocks) mbarrier_expect_only(bar, kTileBytes);
    else mbarrier_expect_tx(bar, kTileBytes);
}

// V^T of whole heads' scales is made by a kernel right before this one, which begins to be placed when all others have ended (transpose.cu): nothing else waits for it.
constexpr bool kMade = kPacked && !kBlocks;
// Or, where the host has a number of workers in p.tiles_per_worker, by some of the SMs while the others have begun: V^T's loader waits for each tile by itself.
constexpr bool kBeside = kMade && WS_DRAWN;
constexpr bool kLooksAhead = kBeside && D == 256;   // for the next tiles, while slots are taken (H100, 2026-11-27, behind the mask 0.99 of the time at D 256; at D 128, where 64 bytes more are spilled, 1.02)

// Which tiles of that V^T there are, as its loader sees them: p.tiles_per_worker is the logarithm of how many workers make them, p.tiles_per_unit their sections' heads of V.
struct MadeTiles {
    bool beside, all;
    i32 place = 0, step = 0;   // a head's last tile among all, and how much later each one before it comes

    WS_DEV_MEMBER explicit MadeTiles(const Params& p) : beside(kBeside && p.tiles_per_worker > 0), all(!beside) {}
    WS_DEV_MEMBER MadeOrder order(const Params& p) const { return {p.B * p.Hkv, p.tiles_per_unit, (p.Sk + KEYS - 1) / KEYS}; }
    WS_DEV_MEMBER void head(const Params& p, i32 head) {
        if (all) return;
        all = made_so_far(p.arrived + kMadeDone) >> p.tiles_per_worker != 0;
        if (all) fence_async_global();
        place = order(p).place(head, step);
    }
    WS_DEV_MEMBER void await(const Params& p, i32 block) const {
        const i32 before = (p.Sk + KEYS - 1) / KEYS - 1 - block, n = place + before * step;
        if (all || before < 0) return;   // or the tile lies behind all keys
        const i32* const counter = p.arrived + kMadeTiles + (n & ((1 << p.tiles_per_worker) - 1));
        while (made_so_far(counter) <= n >> p.tiles_per_worker) {}
        fence_async_global();
    }
    // Once for each loader. The last one puts the counters back, behind the last word of who makes tiles.
    WS_DEV_MEMBER void end(const Params& p) const {
        if (!beside) return;
        wait_for_earlier_kernels();
        if (add_in_order(p.arrived + kMadeEnds, 1) != static_cast<i32>(gridDim.x) - 1) return;
        for (i32 i = kMadeEnds; i < kMadeTiles + (1 << p.tiles_per_worker); ++i) p.arrived[i] = 0;
    }
};

// kFew: by a warp, of which one thread asks for K.
WS_DEV void produce_qk(const Params& p, const TensorMap* qm, const TensorMap* km, u32 base, const Bars& bars, Work w) {
    Ring<kQStages> q;
    Ring<kStages> k;
    Ring<2> drawn;
#if WS_BLOCKS
    u32 n = 0;
    float k_base = 1.0f, v_base = 1.0f;
#endif
    if (kLens && !kMade) wait_for_earlier_kernels();   // lengths may be what they make
    auto load_k = [&](i32 i, i32 kv_head) {
#if WS_BLOCKS
        const i32 block = kRelative ? tile_scaled(p, w.keys_at(i)) : w.keys_at(i);
        float scale = load_f32(p.k_scale + w.b * p.ks_b + kv_head * p.ks_h + block * p.ks_t), v_scale = 1.0f;
        if (kRelative) {
            v_scale = load_f32(p.v_scale + w.b * p.vs_b + kv_head * p.vs_h + block * p.vs_t);
            if (i == 0) k_base = base_scale(scale), v_base = base_scale(v_scale);
            scale = relative(scale, k_base), v_scale = relative(v_scale, v_base);
        }
#endif
        if (!kFew || threadIdx.x % 32 == 0) {
            mbarrier_wait(bars.k_empty(k.slot), k.phase ^ 1);
            announce(bars.k_full(k.slot));
            if (kLens) few_load(p, w, base + kK + k.slot * kTileBytes, km, bars.k_full(k.slot), w.keys_at(i) * KEYS, kv_head);
            else load_rows(base + kK + k.slot * kTileBytes, km, bars.k_full(k.slot), KEYS, w.keys_at(i) * KEYS, kv_head, w.b);
        }
#if WS_BLOCKS
        if (!kFew || threadIdx.x % 32 == 0) {
            if (kRelative) store_shared_f32(bars.v_scale(n), v_scale);   // n + 8 comes when K's slot is free again, behind whose step this was read
            store_shared_f32(bars.k_scale(n++), scale);
            mbarrier_arrive(bars.k_full(k.slot));
        }
#endif
        k.next();
    };
    constexpr i32 kEarly = kOwnQ || kQStages != 1 ? 0 : kFew ? kStages : 1;   // where Q's only room is still taken, the first tile of keys comes before it, or as many as there is room for
    for (i32 round = 0; draw_work(p, bars, round, w, drawn); ++round) {
        if (!kMade && round == 0) wait_for_earlier_kernels();
        if (!kTold && w.tiles == 0) continue;
        const i32 kv_head = kv_head_of(p, w);
        const u32 q_there = kTold ? bars.q_raw(q.slot) : bars.q_full(q.slot);
#if WS_FEW
        {
            const i32 early = min(kEarly, w.tiles);
            for (i32 i = 0; i < early; ++i) load_k(i, kv_head);
            mbarrier_wait(bars.q_empty(q.slot), q.phase ^ 1);
            if (!kTold || w.tiles > 0) few_bring_rows(p, w, qm, base + q.slot * kQBytes, base + kFactors + q.slot * kFactorBytes, q_there, threadIdx.x % 32);
            else if (!few_boxes(p)) cp_async_arrive(q_there);
            else if (threadIdx.x % 32 == 0) mbarrier_arrive(q_there);
            __syncwarp();
            if (threadIdx.x % 32 == 0) mbarrier_arrive(q_there);
            q.next();
#pragma unroll 1
            for (i32 i = early; i < w.tiles; ++i) load_k(i, kv_head);
            __syncwarp();
            continue;
        }
#endif
        if (kEarly) load_k(0, kv_head);
        if (!kOwnQ) {
            mbarrier_wait(bars.q_empty(q.slot), q.phase ^ 1);
            mbarrier_expect_tx(q_there, kTold && w.tiles == 0 ? 0 : kQBytes);
#pragma unroll
            for (i32 g = 0; g < WGS; ++g)
                if (!kTold || w.tiles != 0) load_rows(base + q.slot * kQBytes + g * 64 * D, qm, q_there, 64, w.first_row + 64 * g, w.head, w.b);
            q.next();
        }
#pragma unroll 1
        for (i32 i = kEarly; i < w.tiles; ++i) load_k(i, kv_head);
    }
}

// V does not wait for K's slots: it has a transposition before it. Packed, it needs none, and goes straight to where that would have put it. The scale of
// the n-th tile takes the place of one eight before it, which has been read: the transposition, or this, waited for its slot of V^T.
WS_DEV void produce_v(const Params& p, const TensorMap* vm, u32 base, const Bars& bars, Work w) {
    Ring<kPacked ? kVtStages : kVStages> v;
    Ring<2> drawn;
#if WS_BLOCKS
    u32 n = 0;
#endif
    MadeTiles made(p);
    if (kLens) wait_for_earlier_kernels();
    for (i32 round = 0; next_work<false>(p, bars, round, w, drawn); ++round) {
        if (!made.beside && round == 0) wait_for_earlier_kernels();
        const i32 kv_head = kv_head_of(p, w);
        made.head(p, w.b * p.Hkv + kv_head);
        i32 there = 0;   // tiles that are
#pragma unroll 1
        for (i32 i = 0; i < w.tiles; ++i) {
            const u32 full = kPacked ? bars.vt_full(v.slot) : bars.v_full(v.slot);
#if WS_BLOCKS
            const float scale = kRelative ? 1.0f : load_f32(p.v_scale + w.b * p.vs_b + kv_head * p.vs_h + w.keys_at(i) * p.vs_t);
#endif
            if (kLooksAhead && !made.all) {
                for (; there <= i; ++there) made.await(p, w.keys_at(there));
                for (; there < min(w.tiles, i + 4) && !mbarrier_test(bars.vt_empty(v.slot), v.phase ^ 1); ++there) made.await(p, w.keys_at(there));
            } else made.await(p, w.keys_at(i));
            mbarrier_wait(kPacked ? bars.vt_empty(v.slot) : bars.v_empty(v.slot), v.phase ^ 1);
            if (kRelative) mbarrier_expect_tx(full, kTileBytes);   // its scales come with K
            else announce(full);
            if (kPacked) tma_load_4d(base + kVt + v.slot * kVtBytes, vm, full, kFew ? few_made_key(p, w, w.keys_at(i)) : w.keys_at(i) * KEYS, 0, kv_head, kVarlen ? 0 : w.b);
            else if (kAcross) tma_load_4d(base + kV + v.slot * kTileBytes, vm, full, w.keys_at(i) * KEYS, 0, kv_head, w.b);
            else if (kLens) few_load(p, w, base + kV + v.slot * kTileBytes, vm, full, w.keys_at(i) * KEYS, kv_head);
            else load_rows(base + kV + v.slot * kTileBytes, vm, full, KEYS, w.keys_at(i) * KEYS, kv_head, w.b);
#if WS_BLOCKS
            if (!kRelative) {
                store_shared_f32(bars.v_scale(n++), scale);
                mbarrier_arrive(full);
            }
#endif
            v.next();
        }
    }
    made.end(p);
}

// V as it comes to V as consumers take it, in another slot: rewrite(from, to, warp, lane, tiles so far) does a warp's share. Before a row tile's first, and once at the end,
// comes begin_rows(base, bars, slot of Q, work or null, warp, lane).
template <typename Rewrite, typename Begin>
WS_DEV void rewrite_values(const Params& p, u32 base, const Bars& bars, u32 warp, u32 lane, Work w, Rewrite rewrite, Begin begin_rows) {
    Ring<kVStages> v;
    Ring<kVtStages> vt;
    Ring<kQStages> q;
    Ring<2> drawn;
    u32 n = 0;
    if (kLens && !kMade) wait_for_earlier_kernels();
    for (i32 i = 0; next_work<true>(p, bars, i, w, drawn); ++i) {
        if (!kMade && i == 0) wait_for_earlier_kernels();
        if (kTold) begin_rows(base, bars, q, &w, warp, lane);
        q.next();
        for (i32 t = 0; !kPacked && t < w.tiles; ++t) {
            mbarrier_wait(bars.v_full(v.slot), v.phase);
            if (kLens) few_clear(w, t, base + kV + v.slot * kTileBytes, warp, lane);
            mbarrier_wait(bars.vt_empty(vt.slot), vt.phase ^ 1);
            rewrite(base + kV + v.slot * kTileBytes, base + kVt + vt.slot * kVtBytes, warp, lane, n++);
            fence_async_shared();
            __syncwarp();
            if (lane == 0) {
                mbarrier_arrive(bars.v_empty(v.slot));
                mbarrier_arrive(bars.vt_full(vt.slot));
            }
            v.next();
            vt.next();
        }
    }
    if (kTold) begin_rows(base, bars, q, static_cast<const Work*>(nullptr), warp, lane);
}

// Where a consumer warpgroup finds its n-th tile of keys, and how it gives it back.
struct Rings {
    const Bars& bars;
    u32 base;
    bool elected;

    WS_DEV_MEMBER void release(u32 bar) const {
        if (elected) mbarrier_arrive(bar);
    }
    WS_DEV_MEMBER u32 k_at(Place n) const { return base + kK + k_slot(n) * kTileBytes; }
    WS_DEV_MEMBER u32 k_desc(Place n) const { return desc_low(base + kK) + k_slot(n) * (kTileBytes / 16); }
    WS_DEV_MEMBER u32 vt_desc(Place n) const { return desc_low(base + kVt) + vt_slot(n) * (kVtBytes / 16); }
    WS_DEV_MEMBER void wait_k(Place n) const { mbarrier_wait(bars.k_full(k_slot(n)), k_phase(n)); }
    WS_DEV_MEMBER void wait_vt(Place n) const { mbarrier_wait(bars.vt_full(vt_slot(n)), vt_phase(n)); }
    WS_DEV_MEMBER void release_k(Place n) const { release(bars.k_empty(k_slot(n))); }
    WS_DEV_MEMBER void release_vt(Place n) const { release(bars.vt_empty(vt_slot(n))); }
    // Neither looked at.
    WS_DEV_MEMBER void pass_over(Place n) const {
        wait_k(n);
        if (kFew || kPasses) __syncwarp();   // a group without rows passes over all tiles: no lane may lag by two phases
        release_k(n);
        wait_vt(n);
        if (kPasses) __syncwarp();
        release_vt(n);
    }
};

// O times its rows' factors, and V's mean for the rows that see a key: what a thread has of two rows, in the order in which V^T lies. head: of all
// sequences' heads of K and V.
template <i32 N>
WS_DEV void add_mean(const Params& p, float (&o)[N], i64 head, u32 lane4, float f0, float f1, bool seen0, bool seen1) {
    const float4* from = reinterpret_cast<const float4*>(p.v_mean + head * D) + lane4;
    const float g0 = seen0 ? 1.0f : 0.0f, g1 = seen1 ? 1.0f : 0.0f;
#pragma unroll
    for (i32 j = 0; j < D / 16; ++j) {
        float4 m = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (p.v_mean) m = from[4 * j];
        const float mean[4] = {m.x, m.z, m.y, m.w};   // the order of an accumulator's dimensions
#pragma unroll
        for (i32 e = 0; e < 4; ++e) {
            float& o0 = o[8 * j + e % 2 + e / 2 * 4];
            float& o1 = o[8 * j + e % 2 + e / 2 * 4 + 2];
            o0 = fmaf(o0, f0, mean[e] * g0);
            o1 = fmaf(o1, f1, mean[e] * g1);
        }
    }
}

// A thread's two rows of an output, or of as many of its dimensions as there are, from `first` on: o times f0 and f1, from row0 of a head on, whose rows are those from `at` on of all. kSecond: where the second of four neighbouring dimensions lies, 4 as V^T has them, 1 as V does.
template <i32 kSecond, i32 N>
WS_DEV void store_rows(const Params& p, const float (&o)[N], i64 at, i32 row0, u32 lane4, float f0, float f1, i32 first = 0) {
    constexpr i32 kThird = 5 - kSecond;
    const i64 to = (at + row0) * D + first + 4 * lane4;
    if (row0 < p.Sq) {
#pragma unroll
        for (i32 j = 0; j < N / 8; ++j) store_out4(p, to + 16 * j, o[8 * j] * f0, o[8 * j + kSecond] * f0, o[8 * j + kThird] * f0, o[8 * j + 5] * f0);
    }
    if (row0 + 8 < p.Sq) {
#pragma unroll
        for (i32 j = 0; j < N / 8; ++j) store_out4(p, to + 8 * D + 16 * j, o[8 * j + 2] * f1, o[8 * j + 2 + kSecond] * f1, o[8 * j + 2 + kThird] * f1, o[8 * j + 7] * f1);
    }
}

// The same of packed rows: at0 and at1 say which rows of the output they are, if not less than 0.
template <i32 kSecond, i32 N>
WS_DEV void store_few(const Params& p, const float (&o)[N], i64 at0, i64 at1, u32 lane4, float f0, float f1) {
    constexpr i32 kThird = 5 - kSecond;
    if (at0 >= 0) {
#pragma unroll
        for (i32 j = 0; j < D / 16; ++j) store_out4(p, at0 * D + 4 * lane4 + 16 * j, o[8 * j] * f0, o[8 * j + kSecond] * f0, o[8 * j + kThird] * f0, o[8 * j + 5] * f0);
    }
    if (at1 >= 0) {
#pragma unroll
        for (i32 j = 0; j < D / 16; ++j) store_out4(p, at1 * D + 4 * lane4 + 16 * j, o[8 * j + 2] * f1, o[8 * j + 2 + kSecond] * f1, o[8 * j + 2 + kThird] * f1, o[8 * j + 7] * f1);
    }
}

// Cycles of one warp of each consumer, by phase: K awaited, scores, softmax, V awaited, values and folding, all else; then the total in ns.
#if WS_TRACE
#define LAP(i) do { const u32 now = clock(); laps[i] += now - lap; lap = now; } while (0)
#define LAPS_PARAMETERS , u32 (&laps)[6], u32& lap
#define LAPS , laps, lap
#else
#define LAP(i)
#define LAPS_PARAMETERS
#define LAPS
#endif

#if WS_TRACE
WS_DEV u64 nanoseconds() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
WS_DEV void write_laps(const Params& p, u32 group, const u32 (&laps)[6], u64 ns, u32 tiles) {
    u32* to = reinterpret_cast<u32*>(p.partial) + (blockIdx.x * WGS + group) * 8;
    for (i32 j = 0; j < 6; ++j) to[j] = laps[j];
    to[6] = static_cast<u32>(ns);
    to[7] = tiles;
}
#endif

// The entry's body: group 0 loads and rewrites, each other group is consume(base, bars, group, thread). Roles wait for earlier kernels once they know their first work: its
// divisions are 1% of a launch of one row tile a CTA.
template <typename Rewrite, typename Begin, typename Consume>
WS_DEV void forward_roles(const Params& p, const TensorMap* q_map, const TensorMap* k_map, const TensorMap* v_map, Rewrite rewrite, Begin begin_rows, Consume consume) {
    extern __shared__ __align__(1024) u8 smem[];
    const u32 base = smem_addr(smem), group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0), thread = threadIdx.x % 128;   // a shuffle tells the compiler that all lanes have the same
    const Bars bars{base + kBars};
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < kQStages; ++i) mbarrier_init(bars.q_full(i), kFew && !kTold ? few_arrivals(p) : 1), mbarrier_init(bars.q_empty(i), 4 * WGS);
        for (u32 i = 0; i < kStages; ++i) mbarrier_init(bars.k_full(i), 1), mbarrier_init(bars.k_empty(i), 4 * WGS);
        for (u32 i = 0; i < kVStages; ++i) mbarrier_init(bars.v_full(i), 1), mbarrier_init(bars.v_empty(i), kTransposers);
        for (u32 i = 0; i < kVtStages; ++i) mbarrier_init(bars.vt_full(i), kPacked ? 1 : kTransposers), mbarrier_init(bars.vt_empty(i), 4 * WGS);
        if (kTold)
            for (u32 i = 0; i < kQStages; ++i) mbarrier_init(bars.q_raw(i), kFew ? few_arrivals(p) : 1);
        if (kDrawn)
            for (u32 i = 0; i < 2; ++i) mbarrier_init(bars.drawn_full(i), 1), mbarrier_init(bars.drawn_empty(i), (kPacked ? 1 : kTransposers) + 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    let_next_kernel_start();
    if (group == 0) {
        registers_lower<kProducerRegisters>();
        Work w;
        if (kQuick) few_prepare(p, w);
        few_decide(p, thread % 32, w);
        if (!kPacked ? thread / 32 < kTransposers : kTold && thread < 32) rewrite_values(p, base, bars, thread / 32, thread % 32, w, rewrite, begin_rows);
        else if (thread == 64) produce_v(p, v_map, base, bars, w);
        else if (kFew ? thread >= 96 : thread == 96) produce_qk(p, q_map, k_map, base, bars, w);
    } else {
        registers_raise<kConsumerRegisters>();
        if (!kMade) wait_for_earlier_kernels();   // PERF: whoever is told need not; but without it ptxas 13.0 serialises the products of an instance (C7511)
        consume(base, bars, group - 1, thread);
#if WS_LENS == 2
        clear_gaps<D>(p, ragged(p), (blockIdx.x * WGS + group - 1) * 4 + thread / 32, gridDim.x * WGS * 4, thread % 32, kLogs ? p.lse : nullptr);
#endif
    }
}
