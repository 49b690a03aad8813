// Scores in pairs of f16, as forward_f16.cu and forward_e4m3.cu have them: rows of Q scaled so that no score leaves f16, the product,
// hidden keys, and the largest.
//
// A score's weight is a function of t = sat(b - c s), in pairs: t falls by 1 / kOctaves for each octave, and is kReference / kOctaves for the row's reference.
// Wants what told.cuh does, kOctaves, and kAgain: scale_rows reads its rows twice.
// What is no number: a score that is none has t 0, and is the largest. So do scales.
#pragma once
#include "half.cuh"
#include "softmax.cuh"
#include "told.cuh"
#include "wgmma_f16.cuh"

// Scores in pairs of keys: words 2 b and 2 b + 1 are a thread's two rows, of keys 8 b + 2 (lane % 4) + {0, 1}. Four words are also the A operand for 16 keys.
using Pairs = u32[KEYS / 4];

// S = Q K^T, issued, not waited for. q and k are low words of descriptors.
WS_DEV void issue_scores(Pairs& s, u32 q, u32 k) {
    wgmma_fence();
#pragma unroll
    for (i32 i = 0; i < D / 32; ++i) {
        const u64 a = desc_at<kPitch>(q, i / 4 * (64 * 128) + i % 4 * 32), b = desc_at<kPitch>(k, i / 4 * (KEYS * 128) + i % 4 * 32);
        if (i == 0) wgmma_pairs_first(s, a, b);
        else wgmma_pairs(s, a, b);
    }
    wgmma_commit();
}

// Hides keys from a limit on. first_key is the tile's first key plus 2 (lane % 4).
WS_DEV void hide_keys(Pairs& s, i32 first_key, i32 limit0, i32 limit1) {
    constexpr u32 kNone = 0xFC00FC00u;   // minus infinity, twice
#pragma unroll
    for (i32 e = 0; e < KEYS / 4; ++e) {
        const i32 left = (e & 1 ? limit1 : limit0) - first_key;
        const u32 one = (s[e] & 0xFFFFu) | 0xFC000000u;   // PERF: made for each pair: made under the condition, ptxas 13.0 serialises all products (C7511)
        s[e] = left > 8 * (e / 2) + 1 ? s[e] : left > 8 * (e / 2) ? one : kNone;
    }
}

// Hides what a thread's two rows, of which row0 is the first, do not see of tile t.
WS_DEV void hide_unseen(Pairs& s, const Params& p, i32 t, i32 row0, u32 lane4) {
    const i32 seen = p.Sk - p.Sq + row0 + 1;
    hide_keys(s, t * KEYS + 2 * static_cast<i32>(lane4), WS_CAUSAL ? min(p.Sk, seen) : p.Sk, WS_CAUSAL ? min(p.Sk, seen + 8) : p.Sk);
}

// The same of packed rows.
WS_DEV void hide_few(Pairs& s, const Params& p, const Work& w, i32 t, i32 row0, u32 lane4) {
    hide_keys(s, t * KEYS + 2 * static_cast<i32>(lane4), few_seen(p, w, row0), few_seen(p, w, row0 + 8));
}

// A thread's largest scores of its two rows, in pairs: of a tile, or (more) of that and what they were before.
WS_DEV void largest_scores(const Pairs& s, bool more, u32& top0, u32& top1) {
    if (!more) top0 = s[0], top1 = s[1];
#pragma unroll
    for (i32 e = more ? 0 : 2; e < KEYS / 4; e += 2) top0 = max_nan_f16x2(top0, s[e]), top1 = max_nan_f16x2(top1, s[e + 1]);
}

// Times the square of |q|: that of |q| 448 sqrt(D) / 65504, with 2% to spare for the norm's rounding.
constexpr float kScoresInF16 = 1.02f * 448.0f * 448.0f * D / (65504.0f * 65504.0f);

// Multiplies each row of Q by a power of two, 2^-k, for which no score leaves f16: the warp's own 16 rows, in place, two lanes to a row. Returns the row's factor c / kOctaves
// of such scores. Where that would round to 0 in f16 the row becomes 0 instead: its keys weigh the same (kBlocks: it is not all of it yet).
// kFew: c is each row's own, from `factors`. known: c has K's scale. reach: how many octaves its scores are at most from 0, whatever codes keys are.
WS_DEV float scale_rows(u32 q, u32 factors, u32 lane, float c, bool known, float& reach) {
    constexpr u32 kChunks = D / 32;   // of 16 codes, of a lane
    const u32 row = lane / 2, first = (lane & 1) * kChunks, turned = D == 256 ? (lane & 1) * 4 : 0;   // else a row's two lanes would meet in the same banks
    auto at = [&](u32 i) { return q + (first + i) / 8 * (64 * 128) + swizzled<kPitch>(row, (first + i) % 8 ^ turned); };   // at D 256 the second half of the dimensions lies behind
    u32 h[D / 4], norm = 0;
    if (kFew) c = load_shared_f32(factors + 4 * row);
#pragma unroll
    for (u32 i = 0; i < kChunks; ++i) {
        u32 r[4];
        load_shared_16(r, at(i));
#pragma unroll
        for (u32 e = 0; e < 4; ++e) f16_of_e4m3(r[e], h[8 * i + 2 * e], h[8 * i + 2 * e + 1]);
    }
#pragma unroll
    for (u32 i = 0; i < D / 4; ++i) {
        const u32 x = mul_f16x2(h[i], 0x2C002C00u);   // 2^-4, so that squares stay in f16
        norm = fma_f16x2(x, x, norm);
    }
    float low, high;
    f32_of_f16x2(norm, low, high);
    float norm2 = (low + high) * 256.0f;
    norm2 += __shfl_xor_sync(0xFFFFFFFFu, norm2, 1);
    const float need = norm2 * kScoresInF16;   // 4^k is to be at least that. A row that holds a NaN has the largest k
    reach = sqrtf(need) * 65504.0f * c;
    const i32 octaves = static_cast<i32>(__float_as_uint(need) >> 23) - 127 + 1;   // need < 2^octaves
    // Where logits are small it may be more, so that c / kOctaves keeps five bits as f16: two keys' logits of 0.1 octaves would else be up to a quarter off. Not for more bits, as small codes of rows with large ones lose theirs.
    const i32 precise = !known ? -8 : -20 - (static_cast<i32>(__float_as_uint(c * (1.0f / kOctaves)) >> 23) - 127);
    const i32 k = max(-8, min(D == 256 ? 10 : 9, max((octaves + 1) >> 1, precise)));   // rows of 448 need as many
    const float step = c * __uint_as_float((127 + k) << 23) * (1.0f / kOctaves);
    const u32 power = !kBlocks && step < 0x1p-25f ? 0 : (15 - k) << 10, by = power | power << 16;
#pragma unroll
    for (u32 i = 0; i < kChunks; ++i) {
        u32 r[4];
        if (kAgain) {
            load_shared_16(r, at(i));
#pragma unroll
            for (u32 e = 0; e < 4; ++e) f16_of_e4m3(r[e], h[8 * i + 2 * e], h[8 * i + 2 * e + 1]);
        }
#pragma unroll
        for (u32 e = 0; e < 4; ++e) r[e] = e4m3x4_of_f16x2(mul_f16x2(h[8 * i + 2 * e], by), mul_f16x2(h[8 * i + 2 * e + 1], by));
        store_shared_16(at(i), r[0], r[1], r[2], r[3]);
    }
    return step;
}

// The warp's own 16 rows of Q, at q, factors of theirs beside (kFew), made so that no score leaves f16: of codes in place, or of queries of 16 bits. The factors c / kOctaves of a thread's two rows. Returns how many octaves the scores of one of the lane's rows are at most from 0, if it knows.
WS_DEV float prepare_rows(const Params& p, const Told& x, i32 first_row, u32 q, u32 factors, u32 lane, float c, float& step0, float& step1) {
    float reach = 1.0e30f;
    if (kWideQ) {
        u32 most;
        quantise_rows(p, x.head, first_row, q, lane, kScoresInF16, step0, step1, most);
        reach = sqrtf(__uint_as_float(most)) * 1.0625f * 65504.0f * c;   // codes are rounded
        step0 *= c * (1.0f / kOctaves);
        step1 *= c * (1.0f / kOctaves);
    } else {
        const float step = scale_rows(q, factors, lane, c, !kBlocks || kRelative && x.even == x.w.tiles, reach);
        step0 = __shfl_sync(0xFFFFFFFFu, step, 2 * (lane / 4));
        step1 = __shfl_sync(0xFFFFFFFFu, step, 2 * (lane / 4) + 16);
    }
    return reach;
}

// The negative factor as a pair: never 0, as 0 times a hidden key's score is no number; and no number where it is none itself, or infinite.
// PERF: that by an addition, as a choice made all that is the same in a warp, places in the rings and descriptors, ordinary registers (ptxas 13.0).
WS_DEV u32 factor_pair(float step) { return twice(fmaf(step, 0.0f, -fminf(fmaxf(step, 0x1p-24f), 65504.0f))); }
