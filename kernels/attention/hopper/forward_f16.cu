// attention_forward_f16: FP8 attention of many queries over many keys at head dimension 64, with scores, weights and values in f16 and, but for the first rows behind the mask, no exponential at all.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh, with scales per tensor or per head; WS_PACKED: V^T and scales as pack_kv makes them, by block of 128 tokens, and V's mean is added. Any Sq
// and Sk; causal is aligned bottom-right; Hq a multiple of Hkv. No log-sum-exp: p.lse is not looked at (it would be off by the weights' error, 0.03), so the host
// gives calls that want it to forward.cu.
// Assumes: WS_D 64; 128 keys to a tile; tensor maps over (D, S, H, B) whose boxes are 64 (q) and 128 (k, v) rows of 64 bytes, swizzled to their width;
// strides in whole 16 bytes; scales of at least 0.
// Roles: group 0 loads and widens, groups 1 to WGS each own 64 rows of queries.
//     warp 3:     q_empty -> TMA Q -> q_raw        k_empty -> TMA K -> k_full
//     warp 2:     v_empty -> TMA V -> v_full
//     warp 0:     q_empty -> what consumers have to know of the row tile (Told) -> q_full
//     warps 0, 1: v_full, vt_empty -> e4m3 to f16 (widen.cuh) -> vt_full (and v_empty)
//     consumers:  q_full, q_raw -> rows of Q scaled | k_full -> S = Q K^T -> k_empty | weights in S's registers | vt_full -> O += P V -> vt_empty
//   A consumer's steps wait for one another; the other consumers fill the tensor core meanwhile, which is busy for 78% of the time with four of them. Keys run
//   from last to first, but for one tile that all rows see, which comes before all.
//
// Arithmetic, and its error:
//   Scores   are f16 pairs: half the registers of f32. Each row of Q is multiplied by a power of two, in e4m3 and in place, such that |q| |k|, with |k| at most
//            448 sqrt(D), stays in f16 (Cauchy, Schwarz); its inverse goes into the row's factor c. A score is off by 2^-11 of itself.
//   Weights  t = sat(b - c s) is (64 - E) / 64 of a weight of 2^(E - 15). From 1/2 to 1, where no weight is too large, an f16 is a fixed-point number: t's bits are those of 1.0 less 32 E, E's five whole and five broken
//            places, and -32 times them, with those of 1.0 taken out, are the bits of an f16: 2^(E - 15) at whole E, linear between (Schraudolph 1999). Two instructions for two
//            weights, none of them on the MUFU, the one pipe that bounds forward.cu. A weight is 0 to 6% too large, 1.9% RMS once they are normalised, where
//            e4m3 rounds exact weights by 2.6%. (Until 2026-11-26 t was (31 - E) / 31, and a third instruction made a fixed-point number of it: see the losers.)
//   Values   V is widened to f16 and O += P V accumulates in place, in f32: no folding, as only FP8 products have the narrow accumulator.
//   Sums     by the same product: eight columns of ones behind V. So weights that are too large weigh in the sum as they do in the output.
// The reference of a row, b = (48.25 + reference) / 64, is a past maximum, of weight 2^0.75. While a tile's largest weight stays under 2^14 it needs no shuffle and no rescaling (its
// largest score is 16 three-input maxima of pairs). Else the row gets a new reference, and O is rescaled.
// What is no number: a score that is none has t 0, counts as too large, and makes what its row has summed none. So do scales.
// Limits: keys whose logits lie within 1/1,000 of the largest's magnitude of it count as equal to it or not by chance; where that one is beyond 22,000 (32,000 octaves, where b has steps of 16) the row's factor is halved until it is not, and others weigh 2^-8 at most. A factor too small for f16's last place counts as 0: then all keys weigh the same
// (scores would differ by an eighth of an octave at most, and less than that where the row's codes leave room to scale them down). WS_PACKED: it counts as f16's last place, by which scores of codes that are not 0 differ by a quarter of an octave at most.
// Losers (4x16x4096 on an H200, 2026-11-22, us; forward.cu 440): scores in f32 and weights by two FMAs and a byte permutation 408; the next tile's scores issued with this one's
//   values, three consumers, sums by a tree of f16 additions 354; four consumers in this order 323; 104 instead of 112 registers for consumers, and 64 instead of 32 for who widens
//   305; rows of Q scaled by who widens 314 (here 301), and the first tile later; three consumers 328, two 387.
//   H100, 2026-11-26: t from 0 to 1 and another FMA that makes it a number of fixed point 293 (291 so), causal 171 (158), 1x32x16384 2,405 (2,256), 2x8x2048 20.4 (19.4). E up to 16 alone, of which t has twice the places: relF 5% smaller, but new references
//   more often: 302, 161, 2,344, 19.7.
//   A head's first rows behind the mask, which see one tile of keys, have weights by exponentials in f16 (first_rows), H100, 2026-11-28: relF of 512 random rows over FA3 FP8's, its mean, its spread and how often chance brings it over 1.02, 4x16x4096 0.962, 0.028, 1.9% to 0.945, 0.018, 0.6%;
//   1x32x16384 0.958, 0.027, 2.0% to 0.947, 0.021, 0.3%. Times 0.99 to 1.00 of before from 2,048 keys on; over fewer, where it is not done, 1.01 (16x16x1024) to 1.05 (64x16x300) the day before.
//   A row's halvings of its factor (raise) in local memory, H100, 2026-11-27: 1 to 2% slower, few rows 2 to 4% (a kernel with a stack starts later); in registers (here) 0.6% slower than none.
//   Exact weights, exponentials in f16 by the MUFU, for warps whose rows are peaked (peaked.cuh), H100, 2026-11-26: errors 0.31 to 1.0 of FA3 FP8's instead of 1.1 to 1.5 for queries 2 to 4 times standard normal ones, but both are less than 1% of what the quantiser loses there; such rows 15 to 40%
//   slower, and all others 1 to 5%, as the sums are asked once in each row tile (2x8x2048 causal 17.2 us instead of 16.3, 16x16x1024 92.1 instead of 89.6).
//   A consumer without rows passes over its row tile's keys behind the mask (kPasses), H100, 2026-11-27, times as long as multiplying zeros: 64x16x300 by four 0.84, by two 0.94, 8x16x1100 0.94, 4x16x2900 0.965; meeting the others at its end 0.87, 0.98, 0.945, 0.965;
//   without the mask, where whoever has rows takes as long alone, 64x16x300 1.02, 16x8x1300 1.005, 4x16x2900 1.00 (8x16x1100 0.95).
// Measured: docs/ledger.md. Comes from: forward.cu.
#include "params.cuh"
#include "widen.cuh"

#ifndef WS_D
#define WS_D 64
#endif
#ifndef WS_WGS
#define WS_WGS 4
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif
#ifndef WS_FEW
#define WS_FEW 0   // row tiles are of packed rows of a key head, and CTAs share out their keys: few.cuh
#endif
#ifndef WS_LENS
#define WS_LENS 0   // with WS_FEW: sequences have lengths of their own, and perhaps pages; 2: or lie one behind another
#endif
#ifndef WS_TRACE
#define WS_TRACE 0
#endif
#ifndef WS_PACKED
#define WS_PACKED 0   // p.v is V^T in the order of transpose.cuh, (B, Hkv, D, keys in whole tiles); scales differ between blocks of 128 tokens; p.v_mean, if there, is added
#endif
#ifndef WS_WIDEQ
#define WS_WIDEQ 0   // with WS_PACKED: p.q is of 16 bits, bf16 or f16 as the output is, and each of its rows gets a power of two of its own beside q_scale, which may be null
#endif
#ifndef WS_EXACT_FROM
#define WS_EXACT_FROM 2048   // keys from which on a head's first rows behind the mask have exact weights
#endif
#define WS_BLOCKS WS_PACKED

constexpr i32 D = WS_D, WGS = WS_WGS, KEYS = 128, ROWS = 64 * WGS;
static_assert(D == 64, "measured at head dimension 64 only; widen.cuh and the product of values have no other");
static_assert(WGS == 2 || WGS == 4, "two or four consumers: three lost, and straddle blocks of 128 queries");
constexpr bool kPacked = false, kAcross = WS_PACKED, kBlocks = WS_BLOCKS, kTold = true, kWideQ = WS_WIDEQ, kFew = WS_FEW, kOwnQ = kWideQ, kLens = WS_LENS, kLogs = false, kRelative = false, kAgain = false;
constexpr bool kExactly = WS_CAUSAL && !kFew && !WS_PACKED && !WS_OUT_CODES;   // first_rows
constexpr bool kPasses = WS_CAUSAL && !kFew;   // whether a consumer without rows, of a head's last row tile, passes over its keys
static_assert(WS_PACKED || !kWideQ, "queries of 16 bits go with packed values");
static_assert(!kBlocks || !kFew, "few rows take V as it comes");
static_assert(!kLens || kFew, "lengths of their own: few rows");
constexpr u32 kPitch = D;
constexpr u32 kTileBytes = KEYS * D, kQBytes = ROWS * D, kOnesBytes = kAcross ? 1024 : 2048;
constexpr u32 kHalf = kTileBytes + kOnesBytes;   // kAcross: V^T of 64 keys, 64 rows of dimensions, and eight of ones behind them
constexpr u32 kVtBytes = kAcross ? 2 * kHalf : 2 * kTileBytes;
constexpr i32 kQStages = 2, kStages = 4, kVStages = 2, kVtStages = 4;
constexpr i32 kTransposers = 2, kWhole = 1;   // warps, which widen here; tiles of keys at a time
// setmaxnreg can only share out what the launch allocated: threads times (65536 / threads, rounded down to a multiple of 8).
constexpr i32 kConsumerRegisters = WGS == 4 ? 104 : 216, kProducerRegisters = WGS == 4 ? 64 : 72;
static_assert(kConsumerRegisters * WGS + kProducerRegisters <= 65536 / ((WGS + 1) * 128) / 8 * 8 * (WGS + 1), "more registers than the launch allocates: setmaxnreg would wait for ever");

// Shared memory: Q | K | V | V in f16 | barriers | scales | Told of each slot of Q | factors of its rows | ones, 16 keys of 128 bytes.
constexpr u32 kK = kQStages * kQBytes, kV = kK + kStages * kTileBytes, kVt = kV + kVStages * kTileBytes, kBars = kVt + kVtStages * kVtBytes;
constexpr u32 kBarsRoom = 4, kScales = kBars + 256, kScaleSlots = 8;
constexpr u32 kRecords = kScales + (kBlocks ? 2 * 4 * kScaleSlots : 0), kRecordBytes = kLens ? 48 : 32;
constexpr u32 kFactors = kRecords + kQStages * kRecordBytes, kFactorBytes = kFew ? 4 * ROWS : 0, kRecordsEnd = kFactors + kQStages * kFactorBytes;   // of rows of Q
constexpr u32 kOnes = (kRecordsEnd + 1023) / 1024 * 1024, kSharedBytes = kAcross ? kRecordsEnd : kOnes + kOnesBytes;
static_assert(kVStages <= static_cast<i32>(kScaleSlots) && kStages <= static_cast<i32>(kScaleSlots), "a scale is not overwritten before it was read");
static_assert(kSharedBytes <= 232448, "shared memory of a CTA");

constexpr float kOctaves = 64.0f;
// 64 - E of a row's reference. Its weight is 2^0.75 and, linear between 1 and 2, 4% too large like weights on average. (With E 15 it would be exact and all others too large: in
// causal rows of few keys that made relF 4 to 6% larger.)
constexpr float kReference = 48.25f;
constexpr float kUnseen = -65504.0f, kMostOctaves = 3.2e4f;

#include "pairs.cuh"

// The largest of V's scales among a row tile's keys: tiles are widened relative to it, so that one head's outputs add up. By a whole warp.
WS_DEV float largest_v_scale(const Params& p, const Work& w, u32 lane) {
    const float* at = p.v_scale + w.b * p.vs_b + kv_head_of(p, w) * p.vs_h;
    float top = 0.0f;
    for (i32 t = lane; t < w.tiles; t += 32) top = fmaxf(top, load_f32(at + t * p.vs_t));
#pragma unroll
    for (u32 i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, i));
    return top;
}

// A tile's scale relative to the largest, in a pair.
WS_DEV u32 relative_scale(float scale, float top) { return twice(top > 0.0f ? scale * rcp(top) : 0.0f * scale); }

constexpr i32 kSums = D / 2, kOutputs = kSums + 4;   // an accumulator's words: a thread's dimensions of two rows, then each row's sum, twice

// O += P V and sums += P 1, issued, not waited for. v: the slot's start, and from there to the ones as the leading offset; a step of keys goes on in V and not in the ones.
WS_DEV void issue_values(float (&o)[kOutputs], const Pairs& w, u32 v) {
    wgmma_fence();
#pragma unroll
    for (i32 k = 0; k < KEYS / 16; ++k) {
        const u32 a[4] = {w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]};
        constexpr u32 kStep = 16 * 128 / 16;
        if (kAcross) wgmma_f16<false>(o, a, desc_at<128>(v, k / 4 * kHalf + k % 4 * 32));
        else wgmma_f16<true>(o, a, desc_at<128>(v + k * kStep - (k * kStep << 16), 0));
    }
    wgmma_commit();
}

WS_DEV u32 values_desc(u32 base, u32 slot) {
    constexpr u32 kSlot = kVtBytes / 16;
    if (kAcross) return desc_low(base + kVt) + slot * kSlot;
    return ((kOnes - kVt) / 16 << 16 | (base + kVt) >> 4) + slot * (kSlot - (kSlot << 16));
}

// Weights from scores, in place, by the negative of c and b in pairs.
WS_DEV void weigh(Pairs& s, u32 c0, u32 c1, u32 b0, u32 b1) {
    constexpr u32 kOne = 0x3C003C00u;
#pragma unroll
    for (i32 e = 0; e < KEYS / 4; ++e) {
        const u32 t = fma_sat_f16x2(s[e], e & 1 ? c1 : c0, e & 1 ? b1 : b0);
        s[e] = t * (0u - 32u) + kOne * 32u;   // one multiply-add: halves of kOne - t, which is not below 0 in either, 32 times
    }
}

// The same with exponentials, where b has place for them. Says whether it has.
WS_DEV bool weigh_exactly(Pairs& s, u32 c0, u32 c1, u32 b0, u32 b1) {
    constexpr u32 kMinus64 = 0xD400D400u, k49 = 0x52205220u;   // log2 of a weight is 49 - 64 t
    if (!__all_sync(0xFFFFFFFFu, fmaxf(fabsf(first_of(b0)), fabsf(first_of(b1))) <= 32.0f)) return false;
    const u32 m[2] = {mul_f16x2(c0, kMinus64), mul_f16x2(c1, kMinus64)}, n[2] = {fma_f16x2(b0, kMinus64, k49), fma_f16x2(b1, kMinus64, k49)};
#pragma unroll
    for (i32 e = 0; e < KEYS / 4; ++e) s[e] = ex2_f16x2(fma_f16x2(s[e], m[e & 1], n[e & 1]));
    return true;
}

constexpr u32 kLeast = 0x385E385Eu;   // 1/2 + 2^-4.4: t of a weight of 2^14.06, the largest that is taken as it is

// Whether no weight of them is too large: of t at least `least`, in f16, twice. A NaN is too large.
WS_DEV bool none_too_large(u32 top0, u32 top1, u32 c0, u32 c1, u32 b0, u32 b1, u32 least) {
    const u32 t = min_f16x2(fma_sat_f16x2(top0, c0, b0), fma_sat_f16x2(top1, c1, b1));
    return ((t - least) & 0x80008000u) == 0;   // both at least; a borrow comes from one that is not
}

// One row's new reference, from a thread's largest score and the pairs that weights are made of: that score's t becomes kReference / kOctaves, and b does not fall. Returns what all
// that was summed before is worth under it: no number where a score is none. Where the largest logit is beyond kMostOctaves, c takes a power of two less than there is (and `step`, of which c is made for each tile), 2^-less: so far from 0
// neighbours among f16 scores are 8 octaves apart even then, so that no key but the largest, or its like, weighs anything either way.
WS_DEV float raise(u32 tops, u32& c_pair, u32& b_pair, float& step, u32& less) {
    const float b = first_of(b_pair), c = first_of(c_pair);
    float top = first_of(max_nan_f16x2(tops, tops >> 16 | tops << 16));
    top = max_nan(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
    top = max_nan(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
    const float x = top * c * -kOctaves;
    if (x != kNegInf && (fabsf(x) > kMostOctaves || less > 0)) {
        const float whole = __uint_as_float((127 + less) << 23), far = fabsf(x * whole) * (1.0f / kMostOctaves);
        const u32 now_less = far > 1.0f ? (__float_as_uint(far) >> 23) - 126 : 0;
        if (now_less != less && (b == kUnseen || x > kOctaves * b - kReference)) {
            const float more = whole * __uint_as_float((127 - now_less) << 23);
            less = now_less;
            step *= more;
            c_pair = twice(c * more);
            b_pair = twice((kReference + x * more) * (1.0f / kOctaves));
            return b == kUnseen ? 0.0f : ex2((kOctaves * b - kReference - x) * whole);
        }
    }
    const float want = fmaxf((kReference + x) * (1.0f / kOctaves), b), now = first_of(twice(want));   // still kUnseen where no key is seen. At kMostOctaves f16 has steps of 16 octaves
    b_pair = twice(now);
    return x != x ? __int_as_float(0x7FC00000) : b == kUnseen ? 0.0f : ex2(kOctaves * (b - now));
}

// What a thread keeps of its two rows.
struct Consumer {
    float o[kOutputs];

    WS_DEV_MEMBER void reset() {
#pragma unroll
        for (i32 i = 0; i < kOutputs; ++i) o[i] = 0.0f;
    }

    WS_DEV_MEMBER void scale_output(float a0, float a1) {
#pragma unroll
        for (i32 i = 0; i < kOutputs; i += 4) o[i] *= a0, o[i + 1] *= a0, o[i + 2] *= a1, o[i + 3] *= a1;
    }

    WS_DEV_MEMBER void scale_sums(float a0, float a1) { o[kSums] *= a0, o[kSums + 2] *= a1; }
};

// Rows that see one tile of keys at most, a head's first ones: by exact weights, as each of their few weights' errors shows, and half of all rows' squared outputs are theirs.
WS_DEV void first_rows(const Params& p, const Rings& io, Place& n, const Told& x, u32 base, const Ring<kQStages>& q, u32 group, u32 thread) {
    const Work& w = x.w;
    const u32 warp = thread / 32, lane4 = thread % 4;
    const i32 group_row = w.first_row + 64 * group, row0 = group_row + 16 * warp + thread % 32 / 4;
    float step0, step1;
    if (!kOwnQ) mbarrier_wait(io.bars.q_raw(q.slot), q.phase);
    prepare_rows(p, x, group_row + 16 * warp, base + q.slot * kQBytes + (group * 64 + 16 * warp) * kPitch, 0, thread % 32, x.c, step0, step1);
    u32 c0 = factor_pair(step0), c1 = factor_pair(step1), b0 = twice(kUnseen), b1 = b0, less0 = 0, less1 = 0, top0, top1;
    fence_async_shared();
    named_barrier_sync(8 + group, 128);
    io.wait_k(n);
    Pairs s;
    issue_scores(s, desc_low(base) + q.slot * (kQBytes / 16) + group * (64 * D / 16), io.k_desc(n));
    wgmma_wait<0>();
    pin(s);
    io.release_k(n);
    hide_unseen(s, p, w.keys_at(0), row0, lane4);
    largest_scores(s, false, top0, top1);
    Consumer me;
    me.reset();
    me.scale_sums(raise(top0, c0, b0, step0, less0), raise(top1, c1, b1, step1, less1));   // a factor which is no number has to reach the output
    if (!weigh_exactly(s, c0, c1, b0, b1)) weigh(s, c0, c1, b0, b1);
    pin(s);
    io.wait_vt(n);
    issue_values(me.o, s, values_desc(base, vt_slot(n)));
    wgmma_wait<0>();
    pin(me.o);
    io.release_vt(n);
    ++n;
#pragma unroll 1
    for (i32 t = w.tiles - 1; t > 0; --t, ++n) io.pass_over(n);
    const float sum0 = me.o[kSums], sum1 = me.o[kSums + 2];
    store_rows<1>(p, me.o, static_cast<i64>(x.head) * p.Sq, row0, lane4, sum0 == 0.0f ? 0.0f : x.v_scale * rcp(sum0), sum1 == 0.0f ? 0.0f : x.v_scale * rcp(sum1));
}

WS_DEV void consume(const Params& p, u32 base, const Bars& bars, u32 group, u32 thread) {
    const u32 warp = thread / 32, lane = thread % 32, lane4 = lane % 4;
    const Rings io{bars, base, lane == 0};
    Ring<kQStages> q;
    Place n{};
#if WS_TRACE
    u32 laps[6] = {}, lap = clock();
    const u64 began = nanoseconds();
#endif
#pragma unroll 1
    for (;;) {
        mbarrier_wait(bars.q_full(q.slot), q.phase);
        const Told x = told(base + kRecords + q.slot * kRecordBytes);
        const Work& w = x.w;
        if (w.tiles < 0) break;
        if (kExactly && p.Sk >= WS_EXACT_FROM && w.tiles > 0 && tiles_seen(p, w, w.first_row + 64 * group) == 1) {
            first_rows(p, io, n, x, base, q, group, thread);
            __syncwarp();
            io.release(bars.q_empty(q.slot));
            q.next();
            continue;
        }
        const i32 group_row = w.first_row + 64 * group, row0 = group_row + 16 * warp + lane / 4;
        Consumer me;
        me.reset();
        u32 b0 = twice(kUnseen), b1 = b0;
        u32 less0 = 0, less1 = 0;   // powers of two that c is less than it is
        if (w.tiles > 0) {
            const i32 mine = tiles_seen(p, w, group_row), clear = kFew ? few_clear_keys(p, w, group_row) : clear_keys(p, group_row);
            const u32 q_at = base + q.slot * kQBytes + (group * 64 + 16 * warp) * kPitch;
            const float c = later_block(w, group) ? x.c_later : x.c;
            float step0, step1;
            if (!kOwnQ) mbarrier_wait(bars.q_raw(q.slot), q.phase);
            prepare_rows(p, x, group_row + 16 * warp, q_at, base + kFactors + q.slot * kFactorBytes + 4 * (group * 64 + 16 * warp), lane, c, step0, step1);
            u32 c0 = factor_pair(step0), c1 = factor_pair(step1);
            fence_async_shared();
            named_barrier_sync(8 + group, 128);
            const u32 q_desc = desc_low(base) + q.slot * (kQBytes / 16) + group * (64 * D / 16);
            Pairs s;   // scores, then their weights
            i32 j = 0;
            if (mine > 0) {
                io.wait_k(n);
                LAP(5);
#pragma unroll 1
                for (;;) {
                    const i32 t = w.keys_at(j);
                    LAP(0);
                    issue_scores(s, q_desc, io.k_desc(n));
                    if (kBlocks) {   // while the scores are made
                        const float k_scale = load_shared_f32(bars.k_scale(number(n)));
                        c0 = factor_pair(step0 * k_scale);
                        c1 = factor_pair(step1 * k_scale);
                    }
                    io.wait_vt(n);
                    LAP(3);
                    wgmma_wait<0>();
                    pin(s);
                    LAP(1);
                    io.release_k(n);
                    if ((WS_CAUSAL || j == 0) && (t + 1) * KEYS > clear) {   // without the mask the only tile with a tail comes first
                        if (kFew) hide_few(s, p, w, t, row0, lane4);
                        else hide_unseen(s, p, t, row0, lane4);
                    }
                    u32 top0, top1;
                    largest_scores(s, false, top0, top1);
                    if (!__all_sync(0xFFFFFFFFu, none_too_large(top0, top1, c0, c1, b0, b1, kLeast))) {
                        const float a0 = raise(top0, c0, b0, step0, less0), a1 = raise(top1, c1, b1, step1, less1);
                        if (j > 0) me.scale_output(a0, a1);
                        else me.scale_sums(a0, a1);   // nothing is there yet; but a factor which is no number has to reach the output
                    }
                    weigh(s, c0, c1, b0, b1);
                    pin(s);
                    LAP(2);
                    issue_values(me.o, s, values_desc(base, vt_slot(n)));
                    const Place now = n;
                    ++n;
                    ++j;
                    if (WS_CAUSAL && j == 1) {
#pragma unroll 1
                        for (; j < w.tiles && w.keys_at(j) >= (kFew ? w.base : 0) + mine; ++j, ++n) io.pass_over(n);
                    }
                    const bool more = j < w.tiles;
                    if (more) io.wait_k(n);
                    wgmma_wait<0>();
                    pin(me.o);
                    LAP(4);
                    io.release_vt(now);
                    if (!more) break;
                }
            }
#pragma unroll 1
            for (; j < w.tiles; ++j, ++n) io.pass_over(n);
        }
        __syncwarp();
        io.release(bars.q_empty(q.slot));
        q.next();
        auto reference = [](u32 b, u32 less) { return (kOctaves * first_of(b) - kReference) * __uint_as_float((127 + less) << 23) + kReference; };   // of whole logits
        float reference0 = reference(b0, less0), reference1 = reference(b1, less1);
        if (kFew && (few_without_rows(p, w, group) || !few_add(p, w, x.head, group, thread, me.o, reference0, reference1))) continue;

        const float sum0 = me.o[kSums], sum1 = me.o[kSums + 2];   // 0 for a row that saw no key
        float f0 = sum0 == 0.0f ? 0.0f : x.v_scale * rcp(sum0), f1 = sum1 == 0.0f ? 0.0f : x.v_scale * rcp(sum1);
        if (kAcross) {
            add_mean(p, me.o, x.head / p.group, lane4, f0, f1, sum0 != 0.0f, sum1 != 0.0f);
            f0 = f1 = 1.0f;
        }
        if (kFew) store_few<1>(p, me.o, few_out_row(p, w, x.head, row0), few_out_row(p, w, x.head, row0 + 8), lane4, f0, f1);
        else store_rows<kAcross ? 4 : 1>(p, me.o, static_cast<i64>(x.head) * p.Sq, row0, lane4, f0, f1);
    }
#if WS_TRACE
    const u64 ended = nanoseconds();
    if (thread == 0) write_laps(p, group, laps, ended - began, number(n));
#endif
}

extern "C" __global__ void __launch_bounds__((WGS + 1) * 128, 1)
    attention_forward_f16(const __grid_constant__ FewParams p, const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                          const __grid_constant__ TensorMap v_map) {
    extern __shared__ __align__(1024) u8 memory[];
    constexpr u32 kWords = kOnesBytes / 4;
    for (u32 i = threadIdx.x; i < kWords * (kAcross ? 2 * kVtStages : 1); i += blockDim.x)
        reinterpret_cast<u32*>(memory + (kAcross ? kVt + i / kWords * kHalf + kTileBytes : kOnes))[i % kWords] = 0x3C003C00u;
    fence_async_shared();
    if (threadIdx.x == 0) {
        prefetch_tensor_map(&q_map);
        prefetch_tensor_map(&k_map);
        prefetch_tensor_map(&v_map);
    }
    float v_top = 0.0f;
    auto widen = [&](u32 from, u32 to, u32 warp, u32 lane, u32 n) {
        if (kAcross) widen_across<KEYS, kTransposers, kHalf>(from, to, warp, lane, relative_scale(load_shared_f32(Bars{smem_addr(memory) + kBars}.v_scale(n)), v_top));
        else widen_share<KEYS, kTransposers>(from, to, warp, lane);
    };
    auto begin_rows = [&](u32 base, const Bars& bars, const Ring<kQStages>& q, const Work* w, u32 warp, u32 lane) {
        if (kBlocks && w) v_top = largest_v_scale(p, *w, lane);
        if (warp == 0) tell_rows(p, base, bars, q, w, lane, v_top);
    };
    auto consumer = [&](u32 base, const Bars& bars, u32 group, u32 thread) { consume(p, base, bars, group, thread); };
    forward_roles(p, &q_map, &k_map, &v_map, widen, begin_rows, consumer);
}
