// kTold: what consumers are told of each row tile beside its Q, by a warp that knows it anyway: in forward_f16.cu and forward_e4m3.cu, and in forward.cu where only the device knows lengths.
//
// Wants what forward_work.cuh does, and kRecords and kRecordBytes: two records of Told, for the slots of Q, or for its only one in turn, so that a row tile's record outlives its Q.
#pragma once
#include "forward_work.cuh"
#include "queries.cuh"
#include "scale.cuh"

// What consumers have to know of a row tile; tiles is less than 0 where there is none any more.
struct Told {
    Work w;               // kDecides: w.split has the number of shares above its 16 bits, for few_add
    i32 head;             // of all sequences; where these lie one behind another, of its own
    float c, v_scale;     // scores' factor, in log2 units, and outputs'; kBlocks: without K's scale, and without what differs between tiles of V
    float c_later;        // kBlocks: that of rows in the next block of 128 queries
    i32 even;             // kRelative: how many tiles, from the first on, have the first one's scales, which are in c and v_scale
};

WS_DEV void tell(u32 to, const Told& x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.head), "r"(x.w.first_row), "r"(x.w.tiles), "r"(x.w.first_tile) : "memory");
    if (kFew) asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + 16), "r"(x.w.over), "f"(x.v_scale), "r"(x.w.base), "r"(kDecides ? x.w.split | x.w.ways << 16 : x.w.split) : "memory");
#if WS_LENS == 2
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + 32), "r"(x.w.keys), "r"(x.w.queries), "r"(x.w.first_q), "r"(x.w.unit) : "memory");
#elif WS_LENS
    // PERF: queries, which are p's, too: read from there ptxas 13.0 serialises the products of three consumers behind the mask over V^T (C7511).
    if (kPacked) asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + 32), "r"(x.w.keys), "r"(x.w.queries), "r"(0), "r"(0) : "memory");
    else asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + 32), "r"(x.w.keys) : "memory");
#endif
    if (!kFew) asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + 16), "f"(x.c), "f"(x.v_scale), "f"(x.c_later), "r"(x.even) : "memory");
}

WS_DEV Told told(u32 from) {
    Told x{};
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.head), "=r"(x.w.first_row), "=r"(x.w.tiles), "=r"(x.w.first_tile) : "r"(from) : "memory");
    if (kFew) {
        // PERF: offsets within the instructions. Added before, ptxas 13.0 keeps the products' descriptors in ordinary registers where lengths are told, too, and each product waits for R2UR: D 128 1.06 times as long behind the mask, 1.09 without it, D 256 1.05 behind it (H200, 2026-11-28, 882 calls).
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4 + 16];" : "=r"(x.w.over), "=f"(x.v_scale), "=r"(x.w.base), "=r"(x.w.split) : "r"(from) : "memory");
#if WS_LENS == 2
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4 + 32];" : "=r"(x.w.keys), "=r"(x.w.queries), "=r"(x.w.first_q), "=r"(x.w.unit) : "r"(from) : "memory");
#elif WS_LENS
        if (kPacked) asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4 + 32];" : "=r"(x.w.keys), "=r"(x.w.queries), "=r"(x.w.first_q), "=r"(x.w.unit) : "r"(from) : "memory");
        else asm volatile("ld.shared.b32 %0, [%1 + 32];" : "=r"(x.w.keys) : "r"(from) : "memory");
#endif
    } else if (kRelative) asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=f"(x.c), "=f"(x.v_scale), "=f"(x.c_later), "=r"(x.even) : "r"(from + 16) : "memory");
    else if (kBlocks) asm volatile("ld.shared.v4.f32 {%0, %1, %2, _}, [%3];" : "=f"(x.c), "=f"(x.v_scale), "=f"(x.c_later) : "r"(from + 16) : "memory");
    else asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.c), "=f"(x.v_scale) : "r"(from + 16) : "memory");
    return x;
}

// Whether a group's rows are of the block of 128 queries behind that of the row tile's first one.
WS_DEV bool later_block(const Work& w, u32 group) { return kBlocks && !kFew && (w.first_row & 64) + 64 * group >= 128; }

WS_DEV u32 record_at(u32 base, const Ring<kQStages>& q) { return base + kRecords + (kQStages == 1 ? q.phase : q.slot) * kRecordBytes; }

// By one warp, while Q is on its way. v_scale: kBlocks, what outputs are to be multiplied by.
WS_DEV void tell_rows(const Params& p, u32 base, const Bars& bars, const Ring<kQStages>& q, const Work* w, u32 lane, float v_scale) {
    Told x{};
    x.w.tiles = -1;
    if (w) {
        const i32 kv_head = kv_head_of(p, *w);
        const float* q_scales = p.q_scale + w->b * p.qs_b + w->head * p.qs_h;
        const i32 block = kBlocks ? w->first_row >> 7 : 0, last = (p.Sq - 1) >> 7;
        const bool unit = kFew || kWideQ && !p.q_scale;   // kFew: rows are of several heads, and each has a factor of its own
        const float q_scale = unit ? 1.0f : load_f32(q_scales + block * p.qs_t), later = unit ? 1.0f : kBlocks ? load_f32(q_scales + min(block + 1, last) * p.qs_t) : 0.0f;
        float k_scale = kBlocks || kFew ? 1.0f : load_f32(p.k_scale + w->b * p.ks_b + kv_head * p.ks_h);
        x.v_scale = kBlocks ? v_scale : load_f32(p.v_scale + w->b * p.vs_b + kv_head * p.vs_h);
#if WS_EVEN
        if (kRelative && w->tiles > 0) {
            const float* k_scales = p.k_scale + w->b * p.ks_b + kv_head * p.ks_h;
            const float* v_scales = p.v_scale + w->b * p.vs_b + kv_head * p.vs_h;
            const i32 first = tile_scaled(p, w->keys_at(0));
            const float k_first = load_f32(k_scales + first * p.ks_t), v_first = load_f32(v_scales + first * p.vs_t);
            k_scale = base_scale(k_first), x.v_scale = base_scale(v_first);
            i32 even = k_scale == k_first && x.v_scale == v_first ? w->tiles : 0;
            for (i32 i = static_cast<i32>(lane); i < even; i += 32) {
                const i32 at = tile_scaled(p, w->keys_at(i));
                if (load_f32(k_scales + at * p.ks_t) != k_first || load_f32(v_scales + at * p.vs_t) != v_first) even = i;
            }
            x.even = __reduce_min_sync(0xFFFFFFFFu, even);
        }
#endif
        x.w = *w;
        x.head = (kFew && kVarlen ? 0 : w->b * p.Hq) + w->head;
        if (!kFew) x.c = score_factor(q_scale * k_scale * p.softmax_scale_log2);
        x.c_later = score_factor(later * (kRelative ? k_scale : 1.0f) * p.softmax_scale_log2);
    }
    mbarrier_wait(bars.q_empty(q.slot), q.phase ^ 1);
    if (kWideQ && x.w.tiles > 0) prefetch_rows(p, x.head, x.w.first_row, ROWS, lane);   // a row tile ahead of who reads them
    // Consumers wait for Q where they see keys. Where not, nobody may give Q's room back before who loads Q knew that it was free: else two phases pass, and it waits for ever.
    if (!kOwnQ && x.w.tiles == 0) mbarrier_wait(bars.q_raw(q.slot), q.phase);
    __syncwarp();   // a lane that lags would wait for a phase that has passed twice
    if (lane == 0) {
        tell(record_at(base, q), x);
        mbarrier_arrive(bars.q_full(q.slot));
    }
}
