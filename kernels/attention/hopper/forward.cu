// attention_forward: FP8 attention of many queries over many keys, warp-specialised and persistent.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh, with scales per tensor or per head (WS_BLOCKS: or per block of 128 tokens; WS_PACKED: and V^T). Any Sq and Sk; causal is aligned bottom-right; Hq a multiple of Hkv.
// Assumes: WS_D 64, 128 or 256; 128 keys to a tile; tensor maps over (D, S, H, B) whose boxes are 64 (q) and 128 (k, v) rows of at
// most 128 bytes, swizzled to their width; strides in whole 16 bytes.
// Roles: group 0 loads and transposes, groups 1 to WGS each own 64 rows of queries.
//     warp 3:     q_empty -> TMA Q -> q_full        k_empty -> TMA K -> k_full
//     warp 2:     v_empty -> TMA V -> v_full
//     warps 0, 1: v_full, vt_empty -> ldmatrix, permute, stmatrix -> vt_full (and v_empty)
//     WS_PACKED: V comes transposed (by pack_kv or transpose.cu), and nobody transposes: warp 2: vt_empty -> TMA V^T -> vt_full
//     WS_FEW: row tiles of packed rows, whose Q a warp copies row by row beside a factor for each (few.cuh); with any scales, and the log-sum-exp that the kernels with scores in f16 do not know
//     consumers:  q_full | k_full -> S = Q K^T -> k_empty | softmax in registers | vt_full -> T = P V -> vt_empty | O = O a + T
//   A consumer's steps wait for one another; the other consumers fill the tensor core meanwhile (WS_TURNS: in a fixed order). Keys run from last to
//   first, but for one tile that all rows see, which comes before all.
// Peaked rows (peaked.cuh), and warps that have met a weight beyond e4m3's: from then on each tile's maxima are looked for and references are the row's maxima, of weight 2^8, as FA3's are: errors 0.97 to 1.12 of FA3 FP8's instead of 1.1 to 2.3 times
//   as large, and 1.1 to 1.9 times as fast (each new maximum had its tile's scores made again). Where nothing is peaked it costs 1 to 3% at D 256, 2 to 6% at D 64 and 128 (H100, 2026-11-26). WS_SERIAL goes on as before: a warp cannot have its warpgroup's product alone.
//   They are asked for with 0.2 octaves to spare: of warps that are not peaked one in a thousand followed without, and where each CTA has one row tile that one held back all (1x32-8x512x8192x128 causal 91 to 96 us instead of 83; errors of rows 1.2 to 1.4 times as wide 1.0 to 1.09 of FA3 FP8's instead of 1.02 to 1.12).
// The tensor core's narrow accumulator never sums over more than 512 keys (WS_KEEP: the product of four tiles, else of one, is then added
// to f32), so the error does not grow with their number.
// Losers (4x16x4096 on an H200, 2026-11-21, us at D 64 and D 128; the version they were compared with 437 and 604, this one 410 and 530):
//   a maximum, a rescaling and a fold for every tile 492, 676; FlashAttention-3's order of issue at two groups 636, 854; values and the next
//   scores issued together 640, 751; a quarter of the exponentials on the FMA pipe +5 to +10%; scores accumulated and exponentiated in f16
//   (half the registers, hardly any interference, but MUFU.EX2.F16 is slower) 465, 701, and lse off by 1e-2; the rare path through local
//   memory 505, 646; sums of the rounded probabilities 462, 665; finer sums and a shift of 5 instead of 3: 495, 646, no more accurate. On 2026-11-22, against 411, 601
//   (D 256: 540): row sums by the tensor core, from eight rows of ones behind V^T, 3% fewer cycles a tile at D 64, but lse is that of the rounded weights (0.057 off), and D 128
//   spills; the first half's exponentials kept before the wait for the second (ptxas hoists the wait) 462, 634, 542; the next tile's first scores under this one's last values
//   418, 625, and D 256 waits for a third slot of K. Against 411, 587: at most two of three consumers exponentiate at a time, in a fixed order, 412, 583 (one: 552, 703; with
//   turns too 264 instead of 254 causal); at D 256 one of two, without turns, 291 instead of 293 causal, 519 instead of 515; turns that end with the last slice of values issued
//   instead of the next scores: 2% better to 7% worse. Four consumers at D 64 with a tile's keys in quarters, two under way: ptxas serialises (C7511).
//   D 256 over V^T that is made before, 2026-11-23 (4x8x4096, 1x8x16384: 502, 1859 with the launch): in turns 503 to 522, 1885 to 1951 (causal they win: 300, 1002 instead of 311, 1061); a tile's
//   scores by two products 499 to 502, 1862 to 1869; one slot of Q and four of K 490 to 510, 1816 to 1877.
//   Overlap inside of a warpgroup (halves of a tile with scores of their own, values over 512 keys, nothing under way between rounds of two tiles; not serialised): cycles for 64 rows and a tile
//   1,024 instead of 918 at D 128 (two consumers), 730 instead of 723 at D 64 (three): the two or three that are left exponentiate at the same time.
//   Over few keys, 2026-11-25 (docs/ledger-shapes.md): outputs by bulk copies out of Q's room, so that no consumer waits for its stores, 0.98 to 1.02 times as fast; sixteen bytes a lane instead of eight
//   alike (no stores at all 5 to 8% faster: it is their bytes); Q's room given back before the wait for V^T 1% slower behind the mask; the next row tile looked up ahead at D 64 and 128 up to 4% slower.
//   WS_FEW, H100, 2026-11-25: without turns 2 to 8% slower where two consumers work (19x64-8x46x603x256 70.4 us instead of 69.1, 29x64-8x22x7221x64 237.7 instead of 219.5; D 64 causal alike); a tile's
//   scores by one product at D 64 and 128 1 to 3% slower; one tile's maxima for references without a mask: the last tile may hold few keys, and then all of the next one is made again (49x64-16x132x132x256 512 us, where the kernel for many queries has 280).
//   Beside peaked rows, D 64 4x16x4096 with a log-sum-exp full and causal, H100, 2026-11-26 (never asked for 422, 255; as shipped 439 to 454, 267): asked once, after four tiles, 438, 261, but errors up to 1.4 of FA3 FP8's instead of 1.27; loops of tiles between questions
//   439, 271 (D 128 3 to 5% slower). WS_LENS: three consumers at D 128 2 to 45% slower than two (8x16-16x2048 causal 233 instead of 204), at D 64 with 160 and 32 registers 6 to 20% slower than with 152 and 56; no turns 2 to 7% slower; what is told read again after the loop alike.
//   The wait for a tile's second scores, H100, 2026-11-27, as long as with a wait in both branches of the question whether rows are peaked (which synccheck refuses, and which ptxas hoists above all but five exponentials): one product and one wait (here without the mask, at D 256
//   and 128) 0.95 to 1.03, at D 64 behind it 1.00 to 1.04; both products waited for before the question 0.99 to 1.04; the first half's exponentials before the wait (here at D 64 behind the mask) 0.97 to 1.02, without the mask 1.00 to 1.07; four, eight, sixteen of them 1.00 to 1.10; only their arguments 0.99 to 1.06.
//   Row tiles drawn behind the mask, with log-sum-exps, H100, 2026-11-27, the best of five sizes of sections, times as long as by the list: 4x8x4096x256 0.995, 8x8x2048x256 1.01, 4x16x4096x128 0.98, 8x16x2048x128 1.00, 16x16x1024x128 1.01, 1x16x16384x128 1.00: not done.
// Measured: docs/ledger.md, docs/ledger-shapes.md. Comes from: split.cu.
#include "params.cuh"
#include "scale.cuh"
#include "softmax.cuh"
#include "transpose.cuh"

#ifndef WS_D
#define WS_D 128
#endif
#ifndef WS_WGS
#define WS_WGS 3
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif
#ifndef WS_POLY
#define WS_POLY 2
#endif
#ifndef WS_KEEP
#define WS_KEEP 0
#endif
#ifndef WS_TURNS
#define WS_TURNS 0
#endif
#ifndef WS_SERIAL
#define WS_SERIAL 0   // a tile's keys in halves, one after the other in the same registers: room for four consumers at D 64
#endif
#ifndef WS_LOOKS
#define WS_LOOKS (WS_CAUSAL && !WS_SERIAL ? 3 : 1)   // tiles of a row tile whose maxima become the references: more make short rows more accurate
#endif
#ifndef WS_TRACE
#define WS_TRACE 0
#endif
#ifndef WS_PACKED
#define WS_PACKED 0   // p.v is V^T as transpose.cuh would make it, (B, Hkv, D, keys in whole tiles), and p.v_mean, if there, is added to the output
#endif
#ifndef WS_BLOCKS
#define WS_BLOCKS WS_PACKED   // scales may differ between blocks of 128 tokens
#endif
#ifndef WS_WIDE
#define WS_WIDE (!WS_SERIAL && (!WS_CAUSAL || WS_D == 256 || WS_D == 128 && (WS_BLOCKS || !WS_PACKED)))   // a tile's scores by one product for all of its keys: Q is read once, against half of the scores early
#endif
#ifndef WS_WIDEQ
#define WS_WIDEQ 0   // with WS_PACKED: p.q is of 16 bits, bf16 or f16 as the output is, and each of its rows gets a power of two of its own beside q_scale, which may be null
#endif
#ifndef WS_FEW
#define WS_FEW 0   // row tiles are of packed rows of a key head, and CTAs may share out their keys: few.cuh
#endif
#ifndef WS_LENS
#define WS_LENS 0   // with WS_FEW: sequences have lengths of their own, and perhaps pages; 2: or lie one behind another
#endif
#ifndef WS_QSTAGES
#define WS_QSTAGES (WS_D == 256 && (WS_CAUSAL || !WS_PACKED) || WS_WIDEQ ? 1 : 2)
#endif
#ifndef WS_KSTAGES
#define WS_KSTAGES (WS_D != 256 ? 4 : !WS_PACKED ? 2 : WS_CAUSAL || WS_WIDEQ ? 4 : 3)
#endif
#ifndef WS_VSTAGES
#define WS_VSTAGES (WS_D != 256 ? 4 : 2)   // of V^T
#endif

constexpr i32 D = WS_D, WGS = WS_WGS, KEYS = 128, ROWS = 64 * WGS;
constexpr bool kTurns = WS_TURNS;   // consumers issue values and the next scores in turns, so that the others exponentiate meanwhile
constexpr bool kWide = WS_WIDE, kSerial = WS_SERIAL;
// The next row tile and its scales are looked up before this one's outputs fill the way to memory: 1,900 cycles of divisions and loads, 6% of six tiles of keys. And where Q has one
// slot, the next one's Q comes while this one's last values are made.
constexpr bool kAhead = WS_D == 256 && !WS_BLOCKS && !WS_WIDEQ && !WS_LENS, kEarlyQ = WS_D == 256 && WS_QSTAGES == 1 && !WS_WIDEQ && !WS_KEEP;
constexpr bool kScaleLate = WS_D != 64 || WS_PACKED;   // a tile's scale is multiplied while its scores are made: at D 64, by block, ptxas makes 12% slower code of it
static_assert(!kSerial || (!kWide && !kTurns && !WS_KEEP), "halves one after the other: neither wide nor in turns");
constexpr bool kKeep = WS_KEEP;   // the values' accumulator lives through kFold tiles: D / 2 more registers, a quarter of the additions
constexpr i32 kFold = 512 / KEYS;
constexpr bool kPacked = WS_PACKED, kBlocks = WS_BLOCKS, kAcross = false, kTold = WS_LENS, kWideQ = WS_WIDEQ, kFew = WS_FEW, kOwnQ = kWideQ, kLens = WS_LENS, kLogs = true, kRelative = false;
constexpr bool kPasses = false;   // a consumer without rows passing over its keys: 1.00 to 1.02 of the time (H100, 2026-11-27)
static_assert(kPacked && !kSerial || !kWideQ, "queries of 16 bits come with V^T");
static_assert(!kBlocks || !kKeep, "V's scale differs between tiles: their products do not add up");
static_assert(D == 64 || D == 128 || D == 256, "head dimensions are 64, 128 and 256");
static_assert(WGS >= (kFew && D == 256 ? 1 : 2) && WGS <= 4, "two to four consumers; one of few rows at head dimension 256");
static_assert(!kFew || (!kPacked && !kSerial && !kKeep && WGS <= (D == 64 ? 3 : 2)), "few rows take V as it comes, by one or two consumers, at head dimension 64 by two or three");
static_assert(!kLens || kFew, "lengths of their own: few rows");
constexpr u32 kPitch = D < 128 ? D : 128;
constexpr u32 kTileBytes = KEYS * D, kQBytes = ROWS * D;
constexpr i32 kQStages = WS_QSTAGES, kStages = WS_KSTAGES, kVtStages = WS_VSTAGES;
constexpr i32 kVStages = kPacked ? 0 : 2;
static_assert(kQStages >= 1 && kQStages <= 2 && kStages <= 8 && kVtStages <= 8, "stages: room for barriers");
constexpr i32 kTransposers = 2, kWhole = 1;   // warps; tiles of keys at a time
// setmaxnreg can only share out what the launch allocated: threads times (65536 / threads, rounded down to a multiple of 8).
constexpr i32 kConsumerRegisters = WGS == 4 ? 112 : WGS == 3 ? (kFew ? 152 : 160) : kFew && D != 256 ? 216 : 232, kProducerRegisters = WGS == 1 || kFew && D != 256 && WGS == 2 ? 72 : WGS == 3 && kFew ? 56 : WGS == 2 ? 40 : 32;
static_assert(kConsumerRegisters * WGS + kProducerRegisters <= 65536 / ((WGS + 1) * 128) / 8 * 8 * (WGS + 1), "more registers than the launch allocates: setmaxnreg would wait for ever");

// Shared memory: Q | K | V | V^T | barriers.
constexpr u32 kK = kQStages * kQBytes, kV = kK + kStages * kTileBytes, kVtBytes = kTileBytes, kVt = kV + kVStages * kTileBytes, kBars = kVt + kVtStages * kVtBytes;
// Then, with kBlocks, the scales of the last tiles of K and of V: more than are under way, as a tile may wait in two rings.
constexpr u32 kBarsRoom = kStages > 4 || kVtStages > 4 ? 8 : 4, kScales = kBars + (kBarsRoom == 4 ? 256 : 512), kScaleSlots = 8;
static_assert(kVStages + kVtStages <= static_cast<i32>(kScaleSlots) && kStages <= static_cast<i32>(kScaleSlots), "a scale is not overwritten before it was read");
// Then, kTold: two records of what consumers are told of row tiles, and, kFew: factors of the rows of each slot of Q.
constexpr u32 kRecords = kScales + (kBlocks ? 2 * 4 * kScaleSlots : 0), kRecordBytes = kTold ? 48 : 0;
constexpr u32 kFactors = kRecords + 2 * kRecordBytes, kFactorBytes = kFew ? 4 * ROWS : 0;
constexpr u32 kSharedBytes = kFactors + kQStages * kFactorBytes;
static_assert(kSharedBytes <= 232448, "shared memory of a CTA");

#include "forward_work.cuh"
#include "half.cuh"
#include "peaked.cuh"
#include "queries.cuh"
#include "told.cuh"

// S = Q K^T for one half of a tile's keys, issued, not waited for. q and k are low words of descriptors, as vt below.
WS_DEV void issue_scores(float (&s)[KEYS / 4], u32 q, u32 k, i32 half) {
    wgmma_fence();
#pragma unroll
    for (i32 i = 0; i < D / 32; ++i) {
        const u64 a = desc_at<kPitch>(q, (i / 4) * (64 * 128) + (i % 4) * 32);
        const u64 b = desc_at<kPitch>(k, half * (KEYS / 2 * kPitch) + (i / 4) * (KEYS * 128) + (i % 4) * 32);
        wgmma(s, a, b, i != 0);
    }
    wgmma_commit();
}

// The same for all of the tile's keys: Q is read once.
WS_DEV void issue_scores_wide(float (&s)[KEYS / 2], u32 q, u32 k) {
    wgmma_fence();
#pragma unroll
    for (i32 i = 0; i < D / 32; ++i) wgmma(s, desc_at<kPitch>(q, (i / 4) * (64 * 128) + (i % 4) * 32), desc_at<kPitch>(k, (i / 4) * (KEYS * 128) + (i % 4) * 32), i != 0);
    wgmma_commit();
}

// T = P V for 64 of the head's dimensions, issued, not waited for.
WS_DEV void issue_values(float (&t)[32], const u32 (&pr)[2][KEYS / 16], u32 vt, i32 slice, i32 accumulate) {
    wgmma_fence();
#pragma unroll
    for (i32 k = 0; k < KEYS / 32; ++k) {
        const u32(&h)[KEYS / 16] = pr[k / 2];
        const u32 a[4] = {h[4 * (k % 2)], h[4 * (k % 2) + 1], h[4 * (k % 2) + 2], h[4 * (k % 2) + 3]};
        const u64 b = desc_at<128>(vt, slice * (64 * 128) + k * 32);
        wgmma(t, a, b, k != 0 || accumulate);
    }
    wgmma_commit();
}

// What a thread keeps of its two rows. The reference is a past maximum of the row, in log2 units: probabilities are
// 2^(c s - reference + kShift). It need not be the maximum, as long as no probability exceeds e4m3's 448; and none does if the sum of those of
// one thread does not. So the usual tile needs no maximum, no shuffle and no rescaling: its sum is the certificate. (Maxima are what
// suffers most beside wgmma: max.f32 falls from 64 to 35 lanes a clock while f32 accumulators are written, fma.f32 does not; H200, 2026-11-21.)
constexpr float kShift = 3.0f;       // 32 equal keys of a thread sum to 256: certain
constexpr float kPeakedShift = 8.0f; // of peaked rows: their references are their maxima
constexpr float kLargest = 448.0f;

struct Consumer {
    float o[D / 2 + (kFew ? 2 : 0)];   // kFew: each row's sum behind it, for who adds
    // The reference is kept in what exponents are made of alone (two registers fewer, and c may be another one for each tile): it is kShift - bias,
    // and minus infinity where no key was seen.
    float sum0, sum1, c0, c1, bias0, bias1;   // c0 and c1 are one but for kWideQ
    u32 next;   // the tile from which on to ask again whether the warp's rows are peaked, and kRefers

    static constexpr u32 kRefers = 0x80000000u, kPeaked = ~0u, kBegins = ~1u;   // each tile's maxima are looked for: the row tile's first ones, or all, as rows are peaked, or will be from the next one on
    WS_DEV_MEMBER bool refers() const { return static_cast<i32>(next) < 0; }
    WS_DEV_MEMBER bool is_due(i32 tile) const { return tile >= static_cast<i32>(next & ~kRefers); }

    // Whether a warp's rows are peaked.
    WS_DEV_MEMBER void ask(const Params& p, const Work& w, i32 done) {
        const float all0 = quad_sum(sum0), all1 = quad_sum(sum1);
        const Peaked x = peaked<KEYS>(unseen0() ? 0.0f : 0.125f * all0, unseen1() ? 0.0f : 0.125f * all1, done, !WS_CAUSAL ? keys_behind(p, w) : done > 1 ? 2 * KEYS : 0, WS_LOOKS == 1 ? -0.3f : WS_LOOKS == 2 ? 0.2f : 0.5f);   // 0.2 octaves to spare
        next = x.rows ? kBegins : x.again;
    }

    WS_DEV_MEMBER void reset() {
#pragma unroll
        for (i32 i = 0; i < D / 2; ++i) o[i] = 0.0f;
        bias0 = bias1 = -kNegInf;
        sum0 = sum1 = 0.0f;
        next = kRefers | WS_LOOKS;
    }

    WS_DEV_MEMBER bool unseen0() const { return bias0 == -kNegInf; }
    WS_DEV_MEMBER bool unseen1() const { return bias1 == -kNegInf; }

    // New references: the maxima so far. Returns what all that was summed under the old ones is worth. The larger a reference, the smaller its
    // bias. A row that has seen no key weighs its hidden ones by any bias that is finite, and is to be doubted afterwards.
    WS_DEV_MEMBER void raise(float t0, float t1, float& a0, float& a1, bool& doubt0, bool& doubt1) {
        const bool peaked = next >= kBegins;
        const float shift = peaked ? kPeakedShift : kShift, lift = next == kBegins ? kPeakedShift - kShift : 0.0f;
        if (peaked) next = kPeaked;
        const float least0 = fminf(bias0 + lift, fmaf(-quad_max(t0), c0, shift)), least1 = fminf(bias1 + lift, fmaf(-quad_max(t1), c1, shift));
        doubt0 = least0 == -kNegInf;
        doubt1 = least1 == -kNegInf;
        const float new0 = doubt0 ? kShift : least0, new1 = doubt1 ? kShift : least1;
        a0 = ex2(new0 - bias0);
        a1 = ex2(new1 - bias1);
        bias0 = new0;
        bias1 = new1;
        sum0 *= a0;
        sum1 *= a1;
    }

    // A row without a key so far has no reference: its next exponentials shall overflow, and so fail to be certain.
    WS_DEV_MEMBER void doubt(bool doubt0, bool doubt1) {
        if (doubt0) bias0 = -kNegInf;
        if (doubt1) bias1 = -kNegInf;
    }

    WS_DEV_MEMBER void scale(float (&x)[32], float a0, float a1) const {
#pragma unroll
        for (i32 i = 0; i < 32; i += 4) x[i] *= a0, x[i + 1] *= a0, x[i + 2] *= a1, x[i + 3] *= a1;
    }

    WS_DEV_MEMBER void scale_output(float a0, float a1) {
#pragma unroll
        for (i32 i = 0; i < D / 2; i += 4) o[i] *= a0, o[i + 1] *= a0, o[i + 2] *= a1, o[i + 3] *= a1;
    }

    WS_DEV_MEMBER void fold(const float (&x)[32], i32 slice, float v_scale) {
#pragma unroll
        for (i32 i = 0; i < 32; ++i) o[32 * slice + i] = kBlocks ? fmaf(x[i], v_scale, o[32 * slice + i]) : o[32 * slice + i] + x[i];
    }
};

// The scores of one warp's 16 rows again, by the warp alone, sixteen keys at a time: few registers, for a rare case.
WS_DEV void scores_again(volatile float* to, u32 q, u32 k, u32 lane) {
#pragma unroll 1
    for (u32 n = 0; n < KEYS / 16; ++n) {
        float s[8] = {};
#pragma unroll 1
        for (u32 i = 0; i < D / 32; ++i) {
            const u32 chunk = 2 * (i % 4) + lane / 16;   // of 16 bytes, within 128
            u32 a[4], b[4];   // b: 8 keys by 16 bytes: keys 0-7, keys 8-15, then the next 16 bytes of both
            ldmatrix_x4(a, q + (i / 4) * (64 * 128) + swizzled<kPitch>(lane % 16, chunk));
            ldmatrix_x4(b, k + (i / 4) * (KEYS * 128) + swizzled<kPitch>(16 * n + lane % 16, chunk));
            mma_e4m3(s, a, b[0], b[2]);
            mma_e4m3(s + 4, a, b[1], b[3]);
        }
#pragma unroll
        for (u32 e = 0; e < 8; ++e) to[8 * n + e] = s[e];
    }
}

// A tile, as the maker of its weights sees it: the warp's rows of Q and the keys, both also as descriptors, and what of it is seen.
struct Tile {
    u32 q_desc, k_desc, q_at, k_at, lane;
    i32 first_key, limit0, limit1;   // of this thread
    bool first, masked;              // first: before it there are no references
    float q_factor;                  // kBlocks: this and the scale at scale_at make its c
    u32 scale_at;
};

// WS_SERIAL: a tile's weights by halves. They are loops, so that the halves' scores share their registers (unrolled, ptxas has both at once and spills O);
// pr moves along. The first tile's scores are made twice, for the references and for the weights.
WS_DEV void weigh_in_halves(Consumer& me, const Tile& tile, float (&x)[KEYS / 4], u32 (&pr)[2][KEYS / 16], float& t0, float& t1) {
    auto scores = [&](i32 half) {
        issue_scores(x, tile.q_desc, tile.k_desc, half);
        if (kBlocks) me.c0 = me.c1 = score_factor(tile.q_factor * load_shared_f32(tile.scale_at));   // read again for each half: it comes while the scores are made
        wgmma_wait<0>();
        pin(x);
    };
    auto hide = [&](i32 half) { mask_keys(x, tile.first_key + half * (KEYS / 2), tile.limit0, tile.limit1); };
    float top0 = kNegInf, top1 = kNegInf, a0, a1;
    bool doubt0 = false, doubt1 = false;
    auto look = [&] {
        float u0, u1;
        row_max(x, u0, u1);
        top0 = fmaxf(top0, u0);
        top1 = fmaxf(top1, u1);
    };
    if (tile.first) {
#pragma unroll 1
        for (i32 half = 0; half < 2; ++half) {
            scores(half);
            if (tile.masked) hide(half);
            look();
        }
        me.raise(top0, top1, a0, a1, doubt0, doubt1);
        if (WS_LOOKS > 1) me.scale_output(a0, a1);
    }
#pragma unroll 1
    for (i32 half = 0; half < 2; ++half) {
#pragma unroll
        for (i32 e = 0; e < KEYS / 16; ++e) pr[0][e] = pr[1][e];
        scores(half);
        if ((WS_CAUSAL || tile.first) && tile.masked) hide(half);
        exponentials<KEYS / 4, WS_POLY>(x, me.c0, me.c1, me.bias0, me.bias1, t0, t1);
        pack_probabilities(x, pr[1]);
    }
    if (tile.first) {
        me.doubt(doubt0, doubt1);
    } else if (!__all_sync(0xFFFFFFFFu, t0 <= kLargest && t1 <= kLargest)) {
        float again[KEYS / 2];
        volatile float* to = again;
        scores_again(to, tile.q_at, tile.k_at, tile.lane);
        auto reload = [&](i32 half) {
#pragma unroll
            for (i32 e = 0; e < KEYS / 4; ++e) x[e] = to[half * (KEYS / 4) + e];
            if (tile.masked) hide(half);
        };
#pragma unroll 1
        for (i32 half = 0; half < 2; ++half) {
            reload(half);
            look();
        }
        me.raise(top0, top1, a0, a1, doubt0, doubt1);
        me.scale_output(a0, a1);
        t0 = t1 = 0.0f;
#pragma unroll 1
        for (i32 half = 0; half < 2; ++half) {
#pragma unroll
            for (i32 e = 0; e < KEYS / 16; ++e) pr[0][e] = pr[1][e];
            reload(half);
            exponentials<KEYS / 4, 0>(x, me.c0, me.c1, me.bias0, me.bias1, t0, t1);
            pack_probabilities(x, pr[1]);
        }
        me.doubt(doubt0, doubt1);
    }
}

// What a consumer warpgroup knows of the tile of queries that it works on.
struct Consume : Rings {
    u32 group;

    // Each consumer has the turn once for the first scores of a row tile, then once for each tile's values and the next one's scores.
    WS_DEV_MEMBER void await_turn() const {
        if (kTurns) named_barrier_sync(1 + group, 256);
    }
    WS_DEV_MEMBER void pass_turn() const {
        if (kTurns) named_barrier_arrive(1 + (group + 1 == WGS ? 0 : group + 1), 256);
    }
    // Of the tile that was waited for.
    WS_DEV_MEMBER float k_scale(Place n) const { return load_shared_f32(bars.k_scale(number(n))); }
    WS_DEV_MEMBER float v_scale(Place n) const { return load_shared_f32(bars.v_scale(number(n))); }
};

// A row tile's scales as they come from memory.
struct Scales {
    float q = 0.0f, k = 0.0f, v = 0.0f;
};

WS_DEV Scales scales_of(const Params& p, const Work& w) {
    const i32 kv_head = w.head / p.group;
    if (kFew) return {0.0f, 0.0f, load_f32(p.v_scale + w.b * p.vs_b + kv_head * p.vs_h)};   // rows have factors of their own
    return {load_f32(p.q_scale + w.b * p.qs_b + w.head * p.qs_h), load_f32(p.k_scale + w.b * p.ks_b + kv_head * p.ks_h), load_f32(p.v_scale + w.b * p.vs_b + kv_head * p.vs_h)};
}

WS_DEV void consume(const Params& p, u32 base, const Bars& bars, u32 group, u32 thread) {
    const u32 warp = thread / 32, lane = thread % 32, lane4 = lane % 4;
    const Consume io{{bars, base, lane == 0}, group};
    if (group == WGS - 1) io.pass_turn();
    Ring<kQStages> q;
    Place n{};
    Work w;
#if WS_TRACE
    u32 laps[6] = {}, lap = clock();
    const u64 began = nanoseconds();
#endif
    Scales scales;
    bool more = kAhead && work_of(p, 0, w);
    if (more) scales = scales_of(p, w);
    Told is;   // kTold: what the row tile is
    auto begin = [&](i32 i) {
        if (!kTold) return kAhead ? more : work_of(p, i, w);
        mbarrier_wait(bars.q_full(q.slot), q.phase);
        is = told(record_at(base, q));
        w = is.w;
        return w.tiles >= 0;
    };
#pragma unroll 1
    for (i32 i = 0; begin(i); ++i) {
        const i32 group_row = w.first_row + 64 * group, row0 = group_row + 16 * warp + lane / 4;
        const i32 kv_head = w.head / p.group;
        const float v_scale = kAhead ? scales.v : kBlocks || kTold ? 1.0f : load_f32(p.v_scale + w.b * p.vs_b + kv_head * p.vs_h);   // wanted at the end only
        Consumer me;
        me.reset();
        float q_factor = 0.0f, q_factor1 = 0.0f;   // 64 rows lie in one block of tokens; the second one is kWideQ's
        if (kFew) me.c0 = me.c1 = 0.0f;   // they come with Q
        else if (kAhead) me.c0 = me.c1 = score_factor(scales.q * scales.k * p.softmax_scale_log2);
        else if (kWideQ && !p.q_scale) q_factor = p.softmax_scale_log2;
        else if (kBlocks) q_factor = load_f32(p.q_scale + w.b * p.qs_b + w.head * p.qs_h + (min(group_row, p.Sq - 1) >> 7) * p.qs_t) * p.softmax_scale_log2;
        else me.c0 = me.c1 = score_factor(p.q_scale[w.b * p.qs_b + w.head * p.qs_h] * p.k_scale[w.b * p.ks_b + kv_head * p.ks_h] * p.softmax_scale_log2);
        if (w.tiles > 0) {
            const i32 mine = tiles_seen(p, w, group_row), clear = kFew ? few_clear_keys(p, w, group_row) : clear_keys(p, group_row);
            const u32 q_at = base + q.slot * kQBytes + group * 64 * D;
            const u32 q_desc = desc_low(base) + q.slot * (kQBytes / 16) + group * (64 * D / 16);
            if (kWideQ) {
                float unit0, unit1;
                u32 most;
                named_barrier_sync(8 + group, 128);   // all warps have read the last row tile's
                quantise_rows(p, w.b * p.Hq + w.head, group_row + 16 * warp, q_at + kPitch * 16 * warp, lane, 1.0f / (448.0f * 448.0f), unit0, unit1, most);
                q_factor1 = q_factor * unit1;
                q_factor *= unit0;
                fence_async_shared();
                named_barrier_sync(8 + group, 128);
                Work next;
                if (work_of(p, i + 1, next)) prefetch_rows(p, next.b * p.Hq + next.head, next.first_row + 64 * group + 16 * warp, 16, lane);
            } else {
                mbarrier_wait(kTold ? bars.q_raw(q.slot) : bars.q_full(q.slot), q.phase);
                if (kFew) {
                    fence_async_shared();   // rows came by ordinary copies
                    const u32 factors = base + kFactors + q.slot * kFactorBytes + 4 * (group * 64 + 16 * warp + lane / 4);
                    q_factor = me.c0 = load_shared_f32(factors);
                    q_factor1 = me.c1 = load_shared_f32(factors + 32);
                }
            }
            float all[KEYS / 2], x[kKeep ? D / 64 : 1][32];
            float(&s)[2][KEYS / 4] = *reinterpret_cast<float(*)[2][KEYS / 4]>(all);
            u32 pr[2][KEYS / 16];
            if (kSerial) {   // which moves them along; elsewhere the zeros would cost registers, as the compiler keeps them through the loop
#pragma unroll
                for (i32 e = 0; e < KEYS / 16; ++e) pr[1][e] = 0;
            }
            i32 held = 0;   // tiles in x
#pragma unroll 1
            for (i32 j = 0; j < w.tiles; ++j, ++n) {
                const i32 t = w.keys_at(j);
                LAP(5);
                io.wait_k(n);
                LAP(0);
                if (j == 0) io.await_turn();
                if (kFew ? mine == 0 : WS_CAUSAL && t >= mine) {
                    io.pass_turn();
                    if (kFew) __syncwarp();   // a group without rows passes over all tiles: no lane may lag by two phases
                    io.release_k(n);
                    io.wait_vt(n);
                    io.release_vt(n);
                    io.await_turn();
                    if (j + 1 == w.tiles) {
                        io.pass_turn();
                        if (kEarlyQ) io.release(bars.q_empty(q.slot));
                    }
                    continue;
                }
                const bool masked = (t + 1) * KEYS > clear;
                float t0 = 0.0f, t1 = 0.0f;
                bool certain = false;
                const u32 k_desc = io.k_desc(n);
                if (kSerial) {
                    const i32 seen = p.Sk - p.Sq + row0 + 1;
                    const Tile tile{q_desc, k_desc, q_at + (D > 64 ? 128 : 64) * 16 * warp, io.k_at(n), lane, t * KEYS + 2 * static_cast<i32>(lane4), WS_CAUSAL ? min(p.Sk, seen) : p.Sk,
                                    WS_CAUSAL ? min(p.Sk, seen + 8) : p.Sk, j < WS_LOOKS, masked, q_factor, bars.k_scale(number(n))};
                    weigh_in_halves(me, tile, s[0], pr, t0, t1);
                } else {
                    if (kBlocks && !kScaleLate) {
                        const float k_scale = io.k_scale(n);
                        me.c0 = score_factor(q_factor * k_scale);
                        me.c1 = kFew ? score_factor(q_factor1 * k_scale) : me.c0;
                    }
                    if (kWide) {
                        issue_scores_wide(all, q_desc, k_desc);
                    } else {
                        issue_scores(s[0], q_desc, k_desc, 0);
                        issue_scores(s[1], q_desc, k_desc, 1);
                    }
                    io.pass_turn();
                    if (me.is_due(j)) me.ask(p, w, j);   // this and the next, while the scores are made
                    if (kBlocks && kScaleLate) {
                        const float k_scale = io.k_scale(n);
                        me.c0 = score_factor(q_factor * k_scale);
                        me.c1 = kWideQ || kFew ? score_factor(q_factor1 * k_scale) : me.c0;
                    }
                    wgmma_wait<kWide ? 0 : 1>();
                    pin(s[0]);
                    if (kWide) pin(s[1]);
                    LAP(1);
                    auto hide = [&](i32 half) {
                        const i32 seen = p.Sk - p.Sq + row0 + 1, first_key = t * KEYS + half * (KEYS / 2) + 2 * static_cast<i32>(lane4);
                        if (kFew) {
                            mask_keys(s[half], first_key, few_seen(p, w, row0), few_seen(p, w, row0 + 8));
                            return;
                        }
                        mask_keys(s[half], first_key, WS_CAUSAL ? min(p.Sk, seen) : p.Sk, WS_CAUSAL ? min(p.Sk, seen + 8) : p.Sk);
                    };
                    // The wait lies between two conditions, not in both branches of one: a warpgroup's warps shall meet at one (synccheck).
                    const bool follows = !me.refers();
                    auto weigh = [&](i32 half) {
                        if (WS_CAUSAL && masked) hide(half);
                        exponentials<KEYS / 4, WS_POLY>(s[half], me.c0, me.c1, me.bias0, me.bias1, t0, t1);
                        pack_probabilities(s[half], pr[half]);
                    };
                    if (!kWide) {
                        if (follows) weigh(0);
                        wgmma_wait<0>();
                        pin(s[1]);
                    }
                    if (follows) {
                        if (kWide) weigh(0);
                        weigh(1);
                        certain = __all_sync(0xFFFFFFFFu, t0 <= kLargest && t1 <= kLargest);   // nor is it for a NaN: a masked key of a row that has seen none
                        if (!certain) {
                            me.next = Consumer::kBegins;   // where one is, others follow
                            // A new maximum: the exponentials are lost. Through local memory, so that this rare path costs the others no registers.
                            float scores[KEYS / 2];
                            volatile float* to = scores;
                            scores_again(to, q_at + (D > 64 ? 128 : 64) * 16 * warp, io.k_at(n), lane);
#pragma unroll
                            for (i32 e = 0; e < KEYS / 2; ++e) s[e / (KEYS / 4)][e % (KEYS / 4)] = to[e];
                        }
                    }
                    if (!certain) {
                        if (masked) {
                            hide(0);
                            hide(1);
                        }
                        float top0, top1, other0, other1, a0, a1;
                        bool doubt0, doubt1;
                        row_max(s[0], top0, top1);
                        row_max(s[1], other0, other1);
                        me.raise(fmaxf(top0, other0), fmaxf(top1, other1), a0, a1, doubt0, doubt1);
                        if (!__all_sync(0xFFFFFFFFu, a0 == 1.0f && a1 == 1.0f)) {
                            me.scale_output(a0, a1);
                            if (kKeep && held) {
#pragma unroll
                                for (i32 i = 0; i < (kKeep ? D / 64 : 0); ++i) me.scale(x[i], a0, a1);
                            }
                        }
                        t0 = t1 = 0.0f;
#pragma unroll
                        for (i32 i = 0; i < 2; ++i) {
                            exponentials<KEYS / 4, 0>(s[i], me.c0, me.c1, me.bias0, me.bias1, t0, t1);
                            pack_probabilities(s[i], pr[i]);
                        }
                        me.doubt(doubt0, doubt1);
                    }
                }
                me.sum0 += t0;
                me.sum1 += t1;
                io.release_k(n);
                pin(pr[0]);
                pin(pr[1]);
                LAP(2);
                io.wait_vt(n);
                io.await_turn();
                LAP(3);
                const u32 vt_desc = io.vt_desc(n);
                const float v_of_tile = kBlocks ? io.v_scale(n) : 1.0f;
                if (kKeep) {
#pragma unroll
                    for (i32 i = 0; i < (kKeep ? D / 64 : 0); ++i) issue_values(x[i], pr, vt_desc, i, held);
                    wgmma_wait<0>();
#pragma unroll
                    for (i32 i = 0; i < (kKeep ? D / 64 : 0); ++i) pin(x[i]);
                    if (++held == kFold || j == w.tiles - 1) {   // its last tile is tile 0, or the only one
#pragma unroll
                        for (i32 i = 0; i < (kKeep ? D / 64 : 0); ++i) me.fold(x[i], i, 1.0f);
                        held = 0;
                    }
                } else {
                    // Two slices of 64 dimensions at a time are under way; each is folded while the next one runs.
                    float y[2][32];
                    issue_values(y[0], pr, vt_desc, 0, 0);
                    if (kEarlyQ && j + 1 == w.tiles) io.release(bars.q_empty(q.slot));   // behind the mask 1% faster here than before the wait for V^T
#pragma unroll
                    for (i32 i = 0; i < D / 64; ++i) {
                        if (i + 1 < D / 64) {
                            issue_values(y[(i + 1) % 2], pr, vt_desc, i + 1, 0);
                            wgmma_wait<1>();
                        } else {
                            wgmma_wait<0>();
                        }
                        pin(y[i % 2]);
                        me.fold(y[i % 2], i, v_of_tile);
                    }
                }
                io.release_vt(n);
                if (j + 1 == w.tiles) io.pass_turn();
                LAP(4);
            }
            if (!kWideQ) {
                if (!kEarlyQ) io.release(bars.q_empty(q.slot));
                q.next();
            }
        } else if (kTold) {
            __syncwarp();
            io.release(bars.q_empty(q.slot));
            q.next();
        }

#if WS_FEW
        const Work done = w;   // whose outputs these are
#endif
        const i64 own_at = kAhead && !kFew ? (static_cast<i64>(w.b) * p.Hq + w.head) * p.Sq : 0;
        if (kAhead) {
            more = work_of(p, i + 1, w);
            scales = scales_of(p, w);   // of this one again where there is no other
        }
        const i32 row1 = row0 + 8;
        const float all0 = quad_sum(me.sum0), all1 = quad_sum(me.sum1);   // before the choice: a shuffle under a condition that differs between lanes never returns
        float sum0 = me.unseen0() ? 0.0f : all0, sum1 = me.unseen1() ? 0.0f : all1;
#if WS_FEW
        constexpr float kLowest = -1e30f;   // the reference of a row that has seen no key: finite, as others are taken from it
        const i32 head = kTold ? is.head : done.b * p.Hq + done.head;
        float top0 = me.unseen0() ? kLowest : -me.bias0, top1 = me.unseen1() ? kLowest : -me.bias1;
        me.o[D / 2] = sum0, me.o[D / 2 + 1] = sum1;
        if (few_without_rows(p, done, group) || !few_add(p, done, head, group, thread, me.o, top0, top1)) continue;
        sum0 = me.o[D / 2], sum1 = me.o[D / 2 + 1], me.bias0 = -top0, me.bias1 = -top1;
#endif
        const float by = kTold ? is.v_scale : v_scale;
        float f0 = sum0 > 0.0f ? by * rcp(sum0) : 0.0f, f1 = sum1 > 0.0f ? by * rcp(sum1) : 0.0f;
        if (kPacked && kBlocks) {   // V's mean, for rows that see a key
            add_mean(p, me.o, static_cast<i64>(w.b) * p.Hkv + kv_head, lane4, f0, f1, sum0 > 0.0f, sum1 > 0.0f);
            f0 = f1 = 1.0f;
        }
#if WS_FEW
        const i64 at0 = few_out_row(p, done, head, row0), at1 = few_out_row(p, done, head, row1);
        store_few<4>(p, me.o, at0, at1, lane4, f0, f1);
        if (p.lse && lane4 == 0) {
            if (at0 >= 0) p.lse[few_lse_row(p, done, head, row0, at0)] = sum0 > 0.0f ? (lg2(sum0) - me.bias0) * kLn2 : kNegInf;
            if (at1 >= 0) p.lse[few_lse_row(p, done, head, row1, at1)] = sum1 > 0.0f ? (lg2(sum1) - me.bias1) * kLn2 : kNegInf;
        }
#else
        const i64 at = kAhead ? own_at : (static_cast<i64>(w.b) * p.Hq + w.head) * p.Sq;
        store_rows<4>(p, me.o, at, row0, lane4, f0, f1);
        if (p.lse && lane4 == 0) {
            if (row0 < p.Sq) p.lse[at + row0] = sum0 > 0.0f ? (lg2(sum0) - me.bias0) * kLn2 : kNegInf;
            if (row1 < p.Sq) p.lse[at + row1] = sum1 > 0.0f ? (lg2(sum1) - me.bias1) * kLn2 : kNegInf;
        }
#endif
    }
#if WS_TRACE
    const u64 ended = nanoseconds();
    if (thread == 0) write_laps(p, group, laps, ended - began, number(n));
#endif
}

#ifndef WS_MAP
#define WS_MAP const __grid_constant__ TensorMap   // as_function.cuh has its own
#endif
extern "C" __global__ void __launch_bounds__((WGS + 1) * 128, 1)
    attention_forward(const __grid_constant__ FewParams p, WS_MAP q_map, WS_MAP k_map, WS_MAP v_map) {
    auto transpose = [](u32 from, u32 to, u32 warp, u32 lane, u32) { transpose_share<D, KEYS, kTransposers>(from, to, warp, lane); };
    auto consumer = [&](u32 base, const Bars& bars, u32 group, u32 thread) { consume(p, base, bars, group, thread); };
    auto begin_rows = [&](u32 base, const Bars& bars, const Ring<kQStages>& q, const Work* w, u32 warp, u32 lane) {
        if (kTold && warp == 0) tell_rows(p, base, bars, q, w, lane, 1.0f);
    };
    forward_roles(p, &q_map, &k_map, &v_map, transpose, begin_rows, consumer);
}
