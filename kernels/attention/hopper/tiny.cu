// attention_tiny: FP8 attention of launch-bound shapes: each CTA of a cluster has one tile of keys, and all meet once.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh; a cluster has 64 WS_WGS packed rows (rows.cuh) and WS_CTAS tiles of WS_KEYS keys, at most CTAS * KEYS keys.
// Assumes: scales per tensor or head; WS_D 64, 128 or 256; CTAS at most D / 16; strides in whole 16 bytes; tensor maps over (D, S, H, B) whose
// boxes are 64 WGS (q) and KEYS (k, v) rows of at most 128 bytes, swizzled to their width.
// Grid: (row tiles * CTAS; Hkv; B). What bounds such a shape is the length of one chain of latencies, and the instructions of few warps: so all
// is asked for at once, and a CTA's tile of keys is as long as registers allow where the CTAs of a small one would not fit the SMs together.
//     TMA Q, K, V | S = Q K^T, V^T meanwhile | softmax of this tile alone | O = P V | send maxima, sums, and the other CTAs' share of O
//         in f16 (st.async to distributed shared memory, counted by an mbarrier: a cluster barrier would first drain all memory) | weigh, add, store
//   A tile of keys that none of a CTA's rows sees is not loaded, but its CTA finishes its share of the output.
//   WS_FOLDED (causal, two groups): a CTA has a row tile from each end and every CTAS-th span of 128 keys, and passes over spans that are not seen: boxes
//   of 64 (q) and 128 (k, v) rows. WS_SERIAL (two spans, D 64): their scores are in registers one after the other, each under the maximum so far.
//   Weights are made as codes of e4m3 without exponentials (codes.cuh), but for some groups of 16 keys (WS_MUFU), and their sums by eight rows of ones behind V^T: so they are those of rounded weights. Against exponentials, three eighths of them as polynomials, with f32 sums
//   (H100, 2026-11-27): 590 instead of 900 instructions a thread for a softmax of 256 keys, 162 to 198 registers instead of 236 to 250; 2x8x512x64 4.20 us instead of 4.56 (causal 4.03, 4.28), 1x8x512x64 3.14 (3.26; causal 3.21, 3.38), 1x32-8x1x1024x64 2.85 (3.09),
//   D 128 and 256 1 to 3%; errors of normal inputs within 0.3% (causal 2% less), of even ones 0.5% more. Not where a log-sum-exp may be wanted (WS_LSE), which wants sums before rounding: made besides, under a branch, they cost
//   such calls 5 to 23% and others 0 to 9%. Nor with WS_SERIAL, where ptxas 13.0 serialises products (C7512).
//   Of at most eight packed rows (a few tokens) each thread's second row is none. Its place in the operand holds what rounding to e4m3 takes from the first one's weights, times 16: so the product gives both, and weights have eight bits instead of
//   four. H100, 2026-11-27, tiles of 128 keys: relF 0.90 to 0.91 of what it was (one token over 512 keys 0.045, FA3 FP8 0.051), 1x8-8x1x512x64 2.25 us instead of 2.31, as half of the exponentials go; more rows 0 to 2.5% slower. Not in tiles of 256 keys (more rows 10% slower), nor at D 256 (4%).
// Losers (mission 1x8x512x64 on an H200, 2026-11-21, graph replay): split.cu, four warpgroups of 128 keys on the same 64 rows 8.0 us (four
// warps a scheduler, 2200 instructions each); a cluster of two CTAs of 64 rows by 256 keys 5.6 us (2300 cycles of it for 36 KB a CTA from the L2);
// loads by cp.async 4.4 us; slices of Q, K and V by multicast to the CTAs of a cluster of 8 that share them 4.2 instead of 4.1, and 7.7 instead of 5.0
// at 2x8x512x64: a large cluster finds its place later than the bytes cost; V transposed by warps of their own (registers) 6.0. On 2026-11-22, against 3.75: two
// groups that share a CTA's keys 3.84; maxima as whole numbers, three at a time, 3.84; masks by R2P from a word of bits: nothing. Against
// 3.24 (small 4.48): the first span's maxima under the transposition of V: nothing. On an H100, 2026-11-27, against 3.14 (small 4.24, causal 4.03, wide 4.07, causal 4.20): no group, a quarter, a half of all by the MUFU 3.17, 3.14, 3.16 (small 4.29, 4.25, 4.31; wide 4.09, 4.07, 4.05); values of 32 keys at a time
// 3.15 (small 4.22, causal 4.21), of 64 with two groups small 4.20 (here), causal 4.10; the next kernel placed at the start 3.21 (small 4.27). Small with WS_SERIAL, a span's values before the next one's scores, 128 registers so that the next launch's CTA finds room: 4.49, causal 4.46 (serialised, C7512).
// Measured: docs/ledger.md. Comes from: split.cu.

#ifndef WS_D
#define WS_D 64
#endif
#ifndef WS_KEYS
#define WS_KEYS 128
#endif
#ifndef WS_WGS
#define WS_WGS 1
#endif
#ifndef WS_CTAS
#define WS_CTAS 4
#endif
#ifndef WS_BLOCKS
#define WS_BLOCKS 1   // CTAs that an SM shall hold at least
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif
#ifndef WS_GROUPED
#define WS_GROUPED 0
#endif
#ifndef WS_POLY
#define WS_POLY 2
#endif
#ifndef WS_LSE
#define WS_LSE 0   // 1: a log-sum-exp may be wanted
#endif
#ifndef WS_SERIAL
#define WS_SERIAL 0   // spans of keys one after the other, each under the maximum so far: 128 registers, which leave the next launch room
#endif
#ifndef WS_FOLDED
#define WS_FOLDED 0   // causal: a CTA has a row tile from each end, and every CTAS-th span of keys, so that all have as much to do
#endif
#ifndef WS_TRACE
#define WS_TRACE 0
#endif
#ifndef WS_MUFU
#define WS_MUFU (WS_D == 128 && WS_KEYS == 256 ? 0x55 : 0x92)   // of eight groups of 16 keys, a bit each: whose weights are exponentials where others are not
#endif

#include "scale.cuh"
#include "softmax.cuh"
#include "codes.cuh"
#include "rows.cuh"

constexpr i32 CTAS = WS_CTAS, ROWS = 64 * WGS, THREADS = 128 * WGS;
constexpr i32 kChunks = D / 16 / CTAS;   // chunks of 16 dimensions that a CTA finishes
static_assert(D / 16 % CTAS == 0, "the CTAs of a cluster share the output's dimensions evenly");
constexpr i32 SPAN = KEYS < 128 ? KEYS : 128, SPANS = KEYS / SPAN;   // keys of a product, and of a row of V^T
static_assert(KEYS == 64 || KEYS == 128 || (KEYS == 256 && D <= 128), "a tile is 64, 128 or, up to D 128, 256 keys");
static_assert(CTAS <= 8, "a portable cluster");
static_assert(!WS_FOLDED || (WS_CAUSAL && WGS == 2), "two row tiles, one from each end");
// Pieces of a span whose values are asked for as soon as their weights are there, while the next one's exponentials run.
constexpr bool kCodes = !WS_LSE && !WS_SERIAL;   // weights without exponentials, and sums by a product
constexpr i32 PIECES = SPANS > 1 && (WGS == 1 || kCodes && !WS_FOLDED) ? 2 : 1, PIECE = SPAN / PIECES;
constexpr i32 STRIDE = WS_FOLDED ? CTAS * SPAN : SPAN;   // from a span of this CTA to its next
constexpr u32 kQBytes = ROWS * D;
constexpr u32 kK = kQBytes, kV = kK + kTileBytes, kVt = kV + kTileBytes;
constexpr u32 kVtSpan = SPAN * D + (kCodes ? 8 * SPAN : 0);    // V^T of a span, and ones
constexpr u32 kSwap = kVt + SPANS * kVtSpan;                        // [group][part][chunk][128] of 16 bytes
constexpr u32 kStats = kSwap + WGS * CTAS * kChunks * 2048;    // [group][part][64] of (maximum, sum)
constexpr u32 kBars = kStats + WGS * CTAS * 512;               // Q and K there, V there, then a group's statistics and its outputs
constexpr u32 kSharedBytes = kBars + 128;
static_assert(kSharedBytes <= 232448, "shared memory of a CTA");

#if WS_TRACE
#define MARK(i) if (thread == 0) reinterpret_cast<u32*>(p.partial)[((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * WGS * 16 + group * 16 + i] = clock()
#else
#define MARK(i)
#endif

// How many spans of keys some row of the 64 from first_row on sees.
WS_DEV i32 spans_of(const Params& p, i32 first_row) {
    const i32 rows = WS_GROUPED ? p.Sq * p.group : p.Sq, last = min(rows, first_row + 64) - 1;
    if (first_row >= rows) return 0;
    const i32 limit = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + (WS_GROUPED ? last / p.group : last) + 1) : p.Sk;
    return limit > 0 ? (limit + SPAN - 1) / SPAN : 0;
}

// The first row of a group of a folded CTA. The middle row tile of an odd number is the first group's.
WS_DEV i32 folded_row(const Params& p, i32 row_tile, i32 group) {
    const i32 tiles = ((WS_GROUPED ? p.Sq * p.group : p.Sq) + 63) / 64, other = tiles - 1 - row_tile;
    return 64 * (group == 0 ? row_tile : other > row_tile ? other : tiles);
}

// How many tiles of keys some row of a row tile sees: from the first on.
WS_DEV i32 parts_of(const Params& p, i32 row_tile) {
    const i32 rows = WS_GROUPED ? p.Sq * p.group : p.Sq, last = min(rows, (row_tile + 1) * ROWS) - 1;
    if (row_tile * ROWS >= rows) return 0;
    const i32 limit = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + (WS_GROUPED ? last / p.group : last) + 1) : p.Sk;
    return limit > 0 ? (limit + KEYS - 1) / KEYS : 0;
}

WS_DEV void load_rows(u32 smem, u32 half_bytes, const TensorMap* map, u32 bar, i32 first, i32 head, i32 b) {
#pragma unroll
    for (i32 half = 0; half < (D + 127) / 128; ++half) tma_load_4d(smem + half * half_bytes, map, bar, half * 128, first, head, b);
}

// The first row's probabilities as operand registers, and in the second row's place what rounding takes from them, times kRest.
constexpr bool kMaySplit = WGS == 1 && KEYS == 128;
constexpr float kRest = 16.0f;   // of at most 2^8, half of e4m3's last place, 2^4
template <int N>
WS_DEV void split_probabilities(const float (&s)[N], u32 (&p)[N / 4]) {
#pragma unroll
    for (int g = 0; g < N / 8; ++g) {
        const u32 x = f16x2(s[8 * g], s[8 * g + 1]), y = f16x2(s[8 * g + 4], s[8 * g + 5]), whole = e4m3x4_of_f16x2(x, y);
        u32 a, b;
        f16_of_e4m3(whole, a, b);
        p[4 * (g / 2) + 2 * (g % 2)] = whole;
        p[4 * (g / 2) + 2 * (g % 2) + 1] = e4m3x4_of_f16x2(mul_f16x2(sub_f16x2(x, a), twice(kRest)), mul_f16x2(sub_f16x2(y, b), twice(kRest)));
    }
}

// Probabilities as operand registers, from scores: 2^(c s + bias), of groups of 16 keys in kMufu by exponentials, of others as codes.
template <u32 kMufu, int N>
WS_DEV void weigh(const float (&s)[N], u32 (&p)[N / 4], float c0, float c1, float bias0, float bias1) {
    // t of codes.cuh: held from above alone, as no score is above its row's largest.
    const float n0 = c0 * (-1.0f / kOctaves), n1 = c1 * (-1.0f / kOctaves);
    const float b0 = fmaf(bias0, -1.0f / kOctaves, (kReference + kPShift) / kOctaves), b1 = fmaf(bias1, -1.0f / kOctaves, (kReference + kPShift) / kOctaves);
    u32 one = 0x3C003C00u;
    asm("" : "+r"(one));
    auto codes = [&](float x, float y, float n, float b) { return codes_of(f16x2(fma_sat(x, n, b), fma_sat(y, n, b)), one); };
#pragma unroll
    for (int g = 0; g < N / 8; ++g) {
        const float* x = s + 8 * g;
        u32& row0 = p[4 * (g / 2) + 2 * (g % 2)];
        u32& row1 = p[4 * (g / 2) + 2 * (g % 2) + 1];
        if (kMufu >> g & 1) {
            row0 = e4m3x4(ex2(fmaf(x[0], c0, bias0)), ex2(fmaf(x[1], c0, bias0)), ex2(fmaf(x[4], c0, bias0)), ex2(fmaf(x[5], c0, bias0)));
            row1 = e4m3x4(ex2(fmaf(x[2], c1, bias1)), ex2(fmaf(x[3], c1, bias1)), ex2(fmaf(x[6], c1, bias1)), ex2(fmaf(x[7], c1, bias1)));
        } else {
            row0 = __byte_perm(codes(x[0], x[1], n0, b0), codes(x[4], x[5], n0, b0), 0x7531);
            row1 = __byte_perm(codes(x[2], x[3], n1, b1), codes(x[6], x[7], n1, b1), 0x7531);
        }
    }
}

WS_DEV float quad_larger(float x) {
    x = max_nan(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return max_nan(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

// The largest of a thread's two rows, or of those before.
template <int N>
WS_DEV void largest(const float (&s)[N], float& top0, float& top1) {
    float a0 = s[0], a1 = s[1], b0 = s[2], b1 = s[3];
#pragma unroll
    for (int i = 4; i < N; i += 4) a0 = max_nan(a0, s[i]), a1 = max_nan(a1, s[i + 1]), b0 = max_nan(b0, s[i + 2]), b1 = max_nan(b1, s[i + 3]);
    top0 = max_nan(top0, max_nan(a0, a1));
    top1 = max_nan(top1, max_nan(b0, b1));
}

// V^T lies in pieces of SPAN keys.
template <int kWarps>
WS_DEV void transpose_spans(u32 shared, u32 part, u32 lane) {
#pragma unroll
    for (i32 i = 0; i < SPANS; ++i) transpose_share<D, SPAN, kWarps>(shared + kV + i * SPAN * D, shared + kVt + i * kVtSpan, part, lane);
}

#ifndef WS_MAP
#define WS_MAP const __grid_constant__ TensorMap   // as_function.cuh has its own
#endif
extern "C" __global__ void __cluster_dims__(WS_CTAS, 1, 1) __launch_bounds__(THREADS, WS_BLOCKS)
    attention_tiny(const __grid_constant__ Params p, WS_MAP q_map, WS_MAP k_map, WS_MAP v_map) {
    extern __shared__ __align__(1024) u8 smem[];
    const u32 group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0), thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, lane4 = lane % 4;
    const u32 shared = smem_addr(smem), part = CTAS > 1 ? blockIdx.x % CTAS : 0;
    const i32 b = blockIdx.z, kv_head = blockIdx.y, row_tile = blockIdx.x / CTAS, first_key = part * (WS_FOLDED ? SPAN : KEYS);
    const i32 row_base = WS_FOLDED ? folded_row(p, row_tile, group) : row_tile * ROWS + static_cast<i32>(group) * 64;
    const i32 spans = WS_FOLDED ? spans_of(p, row_base) : 0;   // that this group's rows see
    auto parts_of_group = [&](u32 g) { return WS_FOLDED ? min(CTAS, spans_of(p, folded_row(p, row_tile, g))) : parts_of(p, row_tile); };
    const i32 parts = WS_FOLDED ? min(CTAS, spans) : parts_of(p, row_tile);
    const bool active = static_cast<i32>(part) < parts;
    const u32 k_full = shared + kBars, v_full = k_full + 8, stats_bar = k_full + 16 + 16 * group, bar = stats_bar + 8;
    MARK(0);
    if (threadIdx.x == 0) {
        mbarrier_init(k_full, 1);
        mbarrier_init(v_full, 1);
        for (u32 i = 0; i < 2 * WGS; ++i) mbarrier_init(k_full + 16 + 8 * i, 1);
        mbarrier_init_fence();
        for (u32 g = 0; g < WGS; ++g) {
            const i32 of_group = parts_of_group(g);
            if (CTAS > 1) mbarrier_expect_tx(k_full + 16 + 16 * g, of_group * 512);
            mbarrier_expect_tx(k_full + 24 + 16 * g, (of_group - (static_cast<i32>(part) < of_group)) * kChunks * 2048);
        }
        if (!WS_GROUPED) prefetch_tensor_map(&q_map);
        prefetch_tensor_map(&k_map);
        prefetch_tensor_map(&v_map);
    }
    if (kCodes) {
        constexpr u32 kWords = 8 * SPAN / 4;   // of a span's ones
        for (u32 i = threadIdx.x; i < SPANS * kWords; i += THREADS) reinterpret_cast<u32*>(smem + kVt + i / kWords * kVtSpan + SPAN * D)[i % kWords] = 0x38383838u;
    }
    __syncthreads();
    if (CTAS > 1) cluster_arrive_relaxed();   // its other half is before the first store to another CTA: by then every CTA has started and made its barriers
    wait_for_earlier_kernels();
    if (threadIdx.x == 0 && (active || WS_FOLDED)) {
        constexpr i32 kBoxes = WS_FOLDED ? SPANS : 1;   // folded: boxes of 64 rows of Q and of a span of K and V
        mbarrier_expect_tx(k_full, kTileBytes + (WS_GROUPED ? 0 : kQBytes));
        if (!WS_GROUPED) {
#pragma unroll
            for (i32 g = 0; g < (WS_FOLDED ? WGS : 1); ++g) load_rows(shared + g * 64 * kPitch, ROWS * 128, &q_map, k_full, WS_FOLDED ? folded_row(p, row_tile, g) : row_tile * ROWS, kv_head, b);
        }
#pragma unroll
        for (i32 j = 0; j < kBoxes; ++j) load_rows(shared + kK + j * SPAN * kPitch, KEYS * 128, &k_map, k_full, first_key + j * STRIDE, kv_head, b);
        mbarrier_expect_tx(v_full, kTileBytes);
#pragma unroll
        for (i32 j = 0; j < kBoxes; ++j) load_rows(shared + kV + j * SPAN * kPitch, KEYS * 128, &v_map, v_full, first_key + j * STRIDE, kv_head, b);
    }
    __syncwarp();

    const u32 q_at = shared + group * 64 * kPitch;   // D 256: its second half is ROWS * 128 bytes on
    const Row r0 = row_of(p, row_base + warp * 16 + lane / 4, kv_head), r1 = row_of(p, row_base + warp * 16 + lane / 4 + 8, kv_head);
    const i64 at0 = out_row(p, b, r0), at1 = out_row(p, b, r1);
    if (WS_GROUPED) {
#pragma unroll
        for (u32 i = thread; i < 64 * D / 16; i += 128) {
            const u32 r = i / (D / 16), chunk = i % (D / 16);
            const Row row = row_of(p, row_base + r, kv_head);
            cp_async_16(q_at + (D > 128 ? (chunk >> 3) * (ROWS * 128) : 0) + swizzled<kPitch>(r, D > 128 ? (chunk & 7) : chunk),
                        p.q + (row.valid ? b * p.q_b + row.head * p.q_h + row.query * p.q_s : 0) + chunk * 16, row.valid ? 16 : 0);
        }
        cp_async_commit();
    }
    const bool split = kMaySplit && (WS_GROUPED ? p.Sq * p.group : p.Sq) <= 8;   // a thread's second row is none: it holds what rounding takes from the first one's weights
    const float k_scale = load_f32(p.k_scale + b * p.ks_b + kv_head * p.ks_h), v_scale = load_f32(p.v_scale + b * p.vs_b + kv_head * p.vs_h);
    // Not multiplied here: a product would wait for its loads.
    const float q_scale0 = load_f32(p.q_scale + b * p.qs_b + r0.head * p.qs_h), q_scale1 = WS_GROUPED ? load_f32(p.q_scale + b * p.qs_b + r1.head * p.qs_h) : q_scale0;
    auto transpose_v = [&] {
        constexpr u32 kWarps = 4 * WGS < SPAN / 16 ? 4 * WGS : SPAN / 16;
        mbarrier_wait(v_full, 0);
        if (threadIdx.x / 32 < kWarps) transpose_spans<kWarps>(shared, threadIdx.x / 32, lane);
        fence_async_shared();
    };
    float mine[kChunks][8] = {};
    float2 only0 = make_float2(kNegInf, 0.0f), only1 = only0;   // CTAS 1: what others are sent
    const u32 row = warp * 16 + lane / 4;
    if (active) {
        MARK(1);
        if (WS_GROUPED) {
            cp_async_wait<0>();
            fence_async_shared();
            named_barrier_sync(WGS == 1 ? 1 : 1 + group, 128);
        }
        mbarrier_wait(k_full, 0);
        MARK(2);
        constexpr i32 ATONCE = WS_SERIAL ? 1 : SPANS;   // spans whose scores are in registers together
        constexpr i32 kSums = D / 2, kOutputs = kSums + (kCodes ? 4 : 0);   // a thread's dimensions of two rows, then each row's sum, twice
        float s[ATONCE][SPAN / 2], o[kOutputs];
        u32 pr[SPANS][SPAN / 8];
        const u32 q_desc = desc_low(q_at), k_desc = desc_low(shared + kK), vt_desc = desc_low(shared + kVt);
        auto issue_scores = [&](float (&x)[SPAN / 2], i32 j) {
#pragma unroll
            for (i32 i = 0; i < D / 32; ++i)
                wgmma(x, desc_at<kPitch>(q_desc, (i / 4) * (ROWS * 128) + (i % 4) * 32), desc_at<kPitch>(k_desc, j * SPAN * kPitch + (i / 4) * (KEYS * 128) + (i % 4) * 32), i != 0);
        };
        wgmma_fence();
#pragma unroll
        for (i32 j = 0; j < ATONCE; ++j) issue_scores(s[j], j);
        wgmma_commit();
        const float c0 = score_factor(q_scale0 * k_scale * p.softmax_scale_log2), c1 = score_factor(q_scale1 * k_scale * p.softmax_scale_log2);
        transpose_v();
        if (WS_FOLDED) named_barrier_sync(8, THREADS);
        else __syncthreads();
        wgmma_wait<0>();
#pragma unroll
        for (i32 j = 0; j < ATONCE; ++j) pin(s[j]);
        MARK(3);
        let_next_kernel_start();   // PERF: its start takes as long as what is left; later (after the exchange) 3.75 us instead of 3.35 at the mission shape
        const i32 clear = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + (WS_GROUPED ? row_base / p.group : row_base) + 1) : p.Sk;
        float m0 = kNegInf, m1 = kNegInf, sum0 = 0.0f, sum1 = 0.0f;
        float older0 = 1.0f, older1 = 1.0f;   // serial: what the first span's outputs are worth under the second's maximum
#if WS_SERIAL
#pragma unroll
        for (i32 j = 0; j < SPANS; ++j) {
            const i32 first = first_key + j * STRIDE;
            if (j > 0) {
                wgmma_fence();
                issue_scores(s[0], j);
                wgmma_commit();
                wgmma_wait<0>();
                pin(s[0]);
            }
            if (WS_FOLDED && first >= spans * SPAN) {   // no row sees any of it
#pragma unroll
                for (i32 i = 0; i < SPAN / 8; ++i) pr[j][i] = 0;
                continue;
            }
            if (first + SPAN > clear) mask_keys(s[0], first + 2 * static_cast<i32>(lane4), r0.limit, r1.limit);
            float t0 = kNegInf, t1 = kNegInf;
            largest(s[0], t0, t1);
            t0 = max_nan(m0, quad_larger(t0) * c0);
            t1 = max_nan(m1, quad_larger(t1) * c1);
            const float z0 = t0 == kNegInf ? 0.0f : t0, z1 = t1 == kNegInf ? 0.0f : t1;
            if (j > 0) {
                older0 = ex2(m0 - z0);
                older1 = ex2(m1 - z1);
                sum0 *= older0;
                sum1 *= older1;
            }
            m0 = t0;
            m1 = t1;
            exponentials<SPAN / 2, WS_POLY>(s[0], c0, c1, kPShift - z0, kPShift - z1, sum0, sum1);
            pack_probabilities(s[0], pr[j]);
            pin(pr[j]);
        }
        MARK(4);
#else
#pragma unroll
        for (i32 j = 0; j < SPANS; ++j) {
            const i32 first = first_key + j * STRIDE;
            if (WS_FOLDED && first >= spans * SPAN) continue;   // no row sees any of it
            if (first + SPAN > clear) mask_keys(s[j], first + 2 * static_cast<i32>(lane4), r0.limit, r1.limit);
            largest(s[j], m0, m1);
        }
        m0 = quad_larger(m0) * c0;
        m1 = quad_larger(m1) * c1;
        MARK(4);
        const float bias0 = kPShift - (m0 == kNegInf ? 0.0f : m0), bias1 = kPShift - (m1 == kNegInf ? 0.0f : m1);
#pragma unroll
        for (i32 j = 0; j < SPANS; ++j) {
            const bool unseen = WS_FOLDED && first_key + j * STRIDE >= spans * SPAN;
#pragma unroll
            for (i32 h = 0; h < PIECES; ++h) {
                float(&x)[PIECE / 2] = *reinterpret_cast<float(*)[PIECE / 2]>(s[j] + h * (PIECE / 2));
                u32(&y)[PIECE / 8] = *reinterpret_cast<u32(*)[PIECE / 8]>(pr[j] + h * (PIECE / 8));
                if (unseen) {
#pragma unroll
                    for (i32 i = 0; i < PIECE / 8; ++i) y[i] = 0;
                } else if (kMaySplit && split) {
                    exponentials<PIECE / 2, WS_POLY, 1>(x, c0, c1, bias0, bias1, sum0, sum1);
                    split_probabilities(x, y);
                } else if (kCodes) {
                    if (h == 0) weigh<WS_MUFU>(x, y, c0, c1, bias0, bias1);
                    else weigh<(WS_MUFU >> PIECE / 16)>(x, y, c0, c1, bias0, bias1);
                } else {
                    exponentials<PIECE / 2, WS_POLY>(x, c0, c1, bias0, bias1, sum0, sum1);
                    pack_probabilities(x, y);
                }
                pin(y);
                wgmma_fence();
#pragma unroll
                for (i32 n = 0; n < D / 64; ++n) {
#pragma unroll
                    for (i32 k = 0; k < PIECE / 32; ++k) {
                        const u32 a[4] = {y[4 * k], y[4 * k + 1], y[4 * k + 2], y[4 * k + 3]};
                        const u64 vt = desc_at<SPAN>(vt_desc, j * kVtSpan + n * (64 * SPAN) + h * PIECE + k * 32);
                        const bool more = j != 0 || h != 0 || k != 0;
                        if (kCodes && n == D / 64 - 1) wgmma(*reinterpret_cast<float(*)[36]>(o + kSums - 32), a, vt, more);
                        else wgmma(*reinterpret_cast<float(*)[32]>(o + 32 * n), a, vt, more);
                    }
                }
                wgmma_commit();
            }
        }
#endif
        MARK(5);
#if WS_SERIAL
        static_assert(D == 64 && SPANS == 2, "an accumulator for each of two spans");
        float first_o[D / 2];
        wgmma_fence();
#pragma unroll
        for (i32 k = 0; k < KEYS / 32; ++k) {
            const u32(&h)[SPAN / 8] = pr[k * 32 / SPAN];
            const i32 i = 4 * (k % (SPAN / 32));
            const u32 a[4] = {h[i], h[i + 1], h[i + 2], h[i + 3]};
            wgmma(k * 32 < SPAN ? first_o : o, a, desc_at<SPAN>(vt_desc, k * 32 / SPAN * kVtSpan + k * 32 % SPAN), k * 32 % SPAN != 0);
        }
        wgmma_commit();
#endif
        if (kCodes) {
            if (CTAS > 1) cluster_wait();
            wgmma_wait<0>();
            pin(o);
        }
        if (!kCodes || kMaySplit && split) {
            sum0 = quad_sum(sum0);   // before the choice: a shuffle under a condition that differs between lanes never returns
            sum1 = quad_sum(sum1);
        } else {
            sum0 = m0 == m0 ? o[kOutputs - 4] : m0;
            sum1 = m1 == m1 ? o[kOutputs - 2] : m1;
        }
        // A row of this tile without any key has no say.
        sum0 = m0 == kNegInf ? 0.0f : sum0;
        sum1 = m1 == kNegInf ? 0.0f : sum1;
        const float i0 = sum0 == 0.0f ? 0.0f : rcp(sum0), i1 = sum1 == 0.0f ? 0.0f : rcp(sum1);
        if (!kCodes && CTAS > 1) cluster_wait();
        if (CTAS > 1) {
            const u32 stats_at = shared + kStats + (group * CTAS + part) * 512 + row * 8;
#pragma unroll
            for (u32 owner = lane4; owner < CTAS; owner += 4) {
                const u32 to = cluster_addr(stats_at, owner), to_bar = cluster_addr(stats_bar, owner);
                cluster_send2(to, to_bar, m0, sum0);
                cluster_send2(to + 64, to_bar, m1, sum1);
            }
        } else {
            only0 = make_float2(m0, sum0);
            only1 = make_float2(m1, sum1);
        }
        if (!kCodes) {
            wgmma_wait<0>();
            pin(o);
        }
#if WS_SERIAL
        pin(first_o);
#pragma unroll
        for (i32 i = 0; i < D / 2; ++i) o[i] = fmaf(first_o[i], i % 4 < 2 ? older0 : older1, o[i]);
#endif
        if (kMaySplit && split) {
#pragma unroll
            for (i32 i = 0; i < D / 2; i += 4) o[i] = fmaf(o[i + 2], 1.0f / kRest, o[i]), o[i + 1] = fmaf(o[i + 3], 1.0f / kRest, o[i + 1]);
        }
        MARK(6);
        // Outputs of one part alone are at most 448: f16 holds them to 11 bits.
        const u32 swap_at = shared + kSwap + (group * CTAS + part) * kChunks * 2048 + thread * 16;
#pragma unroll
        for (u32 owner = 0; owner < CTAS; ++owner) {
            const u32 to = cluster_addr(swap_at, owner), to_bar = cluster_addr(bar, owner);
#pragma unroll
            for (u32 i = 0; i < kChunks; ++i) {
                // Columns of block 2 c are dimensions 4 j and 4 j + 2, of block 2 c + 1 4 j + 1 and 4 j + 3 (transpose.cuh).
                const float* x = o + 8 * (owner * kChunks + i);
                const float y[8] = {x[0] * i0, x[4] * i0, x[1] * i0, x[5] * i0, x[2] * i1, x[6] * i1, x[3] * i1, x[7] * i1};
                if (owner == part) {
#pragma unroll
                    for (u32 e = 0; e < 8; ++e) mine[i][e] = y[e];
                } else {
                    cluster_send4(to + i * 2048, to_bar, f16x2(y[0], y[1]), f16x2(y[2], y[3]), f16x2(y[4], y[5]), f16x2(y[6], y[7]));
                }
            }
        }
    }
    if (!active) {
        if (WS_FOLDED) {
            transpose_v();   // the other group counts on its warps
            named_barrier_arrive(8, THREADS);
        }
        let_next_kernel_start();
        if (CTAS > 1) cluster_wait();
    }
    MARK(7);
    if (CTAS > 1) mbarrier_wait(stats_bar, 0);
    MARK(8);

    const float2* stats = reinterpret_cast<const float2*>(smem + kStats) + group * CTAS * 64;
    float2 st0[CTAS], st1[CTAS];
    float top0 = kNegInf, top1 = kNegInf;
#pragma unroll
    for (i32 i = 0; i < CTAS; ++i) {
        // A part that saw nothing sent nothing.
        st0[i] = CTAS == 1 ? only0 : i < parts ? stats[i * 64 + row] : make_float2(kNegInf, 0.0f);
        st1[i] = CTAS == 1 ? only1 : i < parts ? stats[i * 64 + row + 8] : make_float2(kNegInf, 0.0f);
        top0 = fmaxf(top0, st0[i].x);
        top1 = fmaxf(top1, st1[i].x);
    }
    float all0 = 0.0f, all1 = 0.0f, own0 = 0.0f, own1 = 0.0f;
    const float z0 = top0 == kNegInf ? 0.0f : top0, z1 = top1 == kNegInf ? 0.0f : top1;
#pragma unroll
    for (i32 i = 0; i < CTAS; ++i) {
        st0[i].x = ex2(st0[i].x - z0) * st0[i].y;
        st1[i].x = ex2(st1[i].x - z1) * st1[i].y;
        all0 += st0[i].x;
        all1 += st1[i].x;
        if (i == part) own0 = st0[i].x, own1 = st1[i].x;
    }
    const float f0 = all0 > 0.0f ? v_scale * rcp(all0) : 0.0f, f1 = all1 > 0.0f ? v_scale * rcp(all1) : 0.0f;
    if (CTAS > 1) mbarrier_wait(bar, 0);
#pragma unroll
    for (u32 c = 0; c < kChunks; ++c) {
        float y[8];
#pragma unroll
        for (u32 e = 0; e < 8; ++e) y[e] = mine[c][e] * (e < 4 ? own0 : own1);
#pragma unroll
        for (i32 i = 0; i < CTAS; ++i) {
            if (i == static_cast<i32>(part) || i >= parts) continue;   // its own share is not in shared memory
            const uint4 x = *reinterpret_cast<const uint4*>(smem + kSwap + ((group * CTAS + i) * kChunks + c) * 2048 + thread * 16);
            const u32 pair[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (u32 e = 0; e < 4; ++e) {
                float low, high;
                f32_of_f16x2(pair[e], low, high);
                y[2 * e] = fmaf(low, e < 2 ? st0[i].x : st1[i].x, y[2 * e]);
                y[2 * e + 1] = fmaf(high, e < 2 ? st0[i].x : st1[i].x, y[2 * e + 1]);
            }
        }
        const u32 dim = 16 * (part * kChunks + c) + 4 * lane4;
        if (r0.valid) store_out4(p, at0 * D + dim, y[0] * f0, y[1] * f0, y[2] * f0, y[3] * f0);
        if (r1.valid) store_out4(p, at1 * D + dim, y[4] * f1, y[5] * f1, y[6] * f1, y[7] * f1);
    }
    if (!kCodes && p.lse && part == 0 && lane4 == 0) {
        if (r0.valid) p.lse[at0] = all0 > 0.0f ? (top0 + lg2(all0) - kPShift) * kLn2 : kNegInf;
        if (r1.valid) p.lse[at1] = all1 > 0.0f ? (top1 + lg2(all1) - kPShift) * kLn2 : kNegInf;
    }
    MARK(9);
}
