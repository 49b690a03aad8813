// attention_decode: FP8 attention of at most 16 packed rows over long caches, or (WS_MORE) of 16 or 32 at a time; bound by reading K and V once.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh; row r of a key head is query r / group of query head r % group, group * Sq at most 16 (WS_ROWS 8: at most 8; WS_MORE: 256).
// Assumes: WS_D 64, 128 or 256; scales per tensor, head or block of 128 tokens; tensor maps over (D, S, H, B) whose boxes are KEYS (k, v)
// rows of at most 128 bytes, swizzled to their width; strides in whole 16 bytes.
// Work: unit = (b, key head; with WS_MORE, and WS_ROWS packed rows), tile = WS_KEYS keys. Teams of p.tiles_per_worker CTAs take the units in turn, each CTA an equal stretch of a unit's
//   keys; a CTA's warps take its tiles in turn, each alone: its own ring of WS_STAGES tiles by TMA, one under way, products by mma.sync in f16 (K, V and Q are
//   exact in f16; P is f16, so this kernel rounds less than one with P in e4m3), accumulation in f32. Keys are the products' rows and queries
//   their columns (S^T = K Q^T, O^T = V^T P^T), so that eight queries fill them. A maximum is taken only where a score exceeds the old one by far.
//   Where a unit ends the warps' outputs are added through shared memory: a unit of one CTA by the last of its warps to come, without a barrier; a team's by
//   all warps, each its slice of the outputs, and then, slice by slice, by the last of the team's warps to come (p.arrived: WARPS counters for each eight rows of a
//   unit, zero between launches). Loads of the next unit's tiles go on meanwhile. Of at most eight rows, up to D 128, where each CTA has one unit: by the CTA that began last (kWaits),
//   which waits for words that are not empty instead of for a fence, a counter and then the words.
//   WS_SPREAD, where teams would leave SMs without work (lengths of their own, units that are no multiple of teams): equal stretches of all sequences' tiles (decode_spread.cuh).
//   The first tiles of every warp are brought to the L2 while earlier kernels end, as hints; behind them each tile is asked for when the one before is there.
// Losers (H200, 2026-11-21): split.cu with WS_STREAM 1 (wgmma, 64 rows of which 4 are used; three barriers a tile) 2.4 to 3.1 TB/s; queries as
//   the products' rows and tiles by cp.async 69.8 us at 1x131072 (D 128, 32-8 heads), 43.7 at 8x16384 (D 256, 16-2); tiles drawn by the warps of a
//   team from a counter, in their order: all end within 7% (equal shares: 20%), and 86.7 us; 256 bytes promoted to the L2 5% slower than 128; teams that are
//   clusters of 8 and add in shared memory (2026-11-22) 50.7 instead of 38.9 at 8x16384 (D 256), 10.4 instead of 9.7 at 1x8192: they do not find their places at once. On
// 2026-11-22, against 65.0 at 1x131072 and 9.5 at 1x8192: the end of a unit run once without effect while the first bytes are under way (cold instructions were suspected) 68.0,
// 12.2; tiles and stages that leave an SM room for the next launch's CTA 73 to 96, 10.8 to 15 (64 KB under way on an SM are too few, four warps too); such a cluster of 16 10.6.
// On 2026-11-22 at 1x8192, 8x16384 (D 256), against 9.1, 37.7 and, as it is now, 9.0, 35.9: a counter for each unit and a last CTA with addresses as constants 9.1, 37.0; no counter, the team's last
// CTA waits for words that are not zero 9.3, 37.4; two tiles of every warp into the L2 before the earlier kernel has ended 9.8, 37.5 (at D 256 with three stages 0.15 better, elsewhere worse);
// one ring for all warps of a CTA 9.4, 35.8, or with one box of all warps' keys 35.7 and 1% faster at 1x131072, 8x16384 and 16x64-8x8192 of D 128, 0.5% slower at 128x2048.
// On 2026-11-28 at 1x8192 on an H100, us (10.25 before; docs/ledger-shapes.md, "Decode: hints, one tile under way, words that are waited for"): hints 9.5, one tile under way 9.6, both 8.5, words waited for instead of counters besides 8.0, hints before a CTA's
// barriers are made 7.8. Losers: V's tiles hinted too 8.8 to 9.4 (not where caches are small); hints by TMA 8.7, in whose queue loads then stand; CTAs that find room on an SM beside those of the launch before 8.6 to 11.0; the next launch let start later, alike; 600 to 2,000 cycles between
// requests instead of a wait 9.6 to 10.3; tiles of 64 keys 8.8 to 9.0, of 16 8.5 (faster where a warp has but one of 32: there); sums by halves of warps 0.25 slower; tickets and fences by warps that multiply 0.4 to 1.4 slower, as their answers come behind the tiles.
// Measured: docs/ledger.md. Comes from: split.cu.

#ifndef WS_D
#define WS_D 128
#endif
#ifndef WS_KEYS
#define WS_KEYS 32
#endif
#ifndef WS_WARPS
#define WS_WARPS 8
#endif
#ifndef WS_STAGES
#define WS_STAGES 2
#endif
#ifndef WS_ROWS
#define WS_ROWS 8
#endif
#ifndef WS_RING
#define WS_RING 0    // 1: a CTA has one unit at most, and its exchange lies in the ring, as D 256 wants
#endif
#ifndef WS_APART
#define WS_APART (WS_D == 256 || WS_ROWS >= 16)   // 1: K and V of a tile have barriers of their own
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif
#ifndef WS_TRACE
#define WS_TRACE 0
#endif
#ifndef WS_LENS
#define WS_LENS 0   // 1: sequences have lengths of their own, and perhaps pages of whole tiles; 2 (with WS_SPREAD): they lie one behind another
#endif

#ifndef WS_MORE
#define WS_MORE 0   // 1: more than WS_ROWS packed rows: p.row_tiles units, one behind another, are those of one key head, and read the same keys
#endif

#ifndef WS_SPREAD
#define WS_SPREAD 0   // 1: a CTA takes an equal stretch of the tiles that all sequences have, one behind another, of one head
#endif

#include "params.cuh"
#include "softmax.cuh"
#include "transpose.cuh"
#if WS_LENS
#include "ragged.cuh"
#endif
#if WS_LENS == 2
constexpr bool kTokens = true;
static_assert(WS_SPREAD, "whose sequences lie one behind another");
#else
constexpr bool kTokens = false;
#endif

constexpr i32 D = WS_D, KEYS = WS_KEYS, WARPS = WS_WARPS, STAGES = WS_STAGES, HALVES = WS_ROWS / 8, THREADS = 32 * WARPS;
constexpr bool kSpread = WS_SPREAD, kWaits = HALVES == 1 && D <= 128 && (!kSpread || WS_LENS);     // the CTA of a team that began last waits for the others' outputs, if each has one unit. Which one it is a warp of its own finds out, beside which 168 registers are left for each thread
constexpr i32 ALL_THREADS = kWaits ? THREADS + 32 : THREADS;
static_assert(STAGES >= 2, "a tile is asked for while another is read");
static_assert(D == 64 || D == 128 || D == 256, "head dimensions are 64, 128 and 256");
static_assert(KEYS % 16 == 0 && (WS_ROWS == 8 || WS_ROWS == 16 || WS_ROWS == 32 && D < 256), "tiles of whole products, and registers for the outputs");
constexpr u32 kPitch = D < 128 ? D : 128;
constexpr u32 kTileBytes = KEYS * D, kStageBytes = 2 * kTileBytes, kWarpBytes = STAGES * kStageBytes;
constexpr u32 kSums = WARPS * kWarpBytes;            // [warp][kSwapRows] of (maximum, sum)
constexpr i32 PITCH = D + 4;                         // four more keep banks apart
constexpr bool kRoom = HALVES * 8 * (PITCH * 4 + 8) <= kWarpBytes;
static_assert(!kSpread || (!WS_RING && !WS_TRACE), "a CTA has several units");
static_assert(!WS_RING || kRoom, "the exchange fits a warp's ring");
constexpr bool kWholeSwap = kSpread && HALVES > 1 && D <= 128;   // all rows at once: CTAs that share a unit end it in one way
constexpr u32 kSwapRows = kWholeSwap ? WS_ROWS : 8;
constexpr u32 kSwap = kSums + WARPS * kSwapRows * 8;   // [warp][kSwapRows][PITCH] f32
constexpr bool kQShared = WS_ROWS == 32;             // queries lie in shared memory, a copy for each warp: there are no registers left for them
constexpr u32 kQ = (kSwap + (WS_RING ? 0 : WARPS * kSwapRows * PITCH * 4) + 127) / 128 * 128, kQBytes = kQShared ? WS_ROWS * D * 2 : 0;   // [warp][step of 16 dimensions][half of the rows][lane][4]
constexpr u32 kBars = kQShared ? kQ + WARPS * kQBytes : kSwap + (WS_RING ? 0 : WARPS * kSwapRows * PITCH * 4), kBarBytes = WS_APART ? 16 : 8;   // [warp][stage]; K's and V's
constexpr u32 kCount = kBars + WARPS * STAGES * kBarBytes, kFree = kCount + 8;   // warps that have come to a unit's end; a barrier: the exchange's room is free again
constexpr u32 kAdds = kFree + 8;   // whether this CTA is the one that waits
constexpr u32 kSharedBytes = kAdds + 8;
static_assert(kSharedBytes <= 232448, "shared memory of a CTA");

constexpr i32 kHinted = 2, kHintedV = D == 256 ? 1 : 0;   // tiles of a warp whose K, whose V are asked for before earlier kernels have ended
constexpr bool kHintsAlone = kWaits && WS_LENS;           // by the warp that has no tiles, a lane for each tile
static_assert(kHinted * WARPS <= 32, "a lane for each tile");
constexpr i64 kFewBytes = 4608 << 10;                     // of caches so small that V of all those tiles is

// P is f16 here, and times a ratio of V's scales, 1 at most. Where there is no such ratio a score may exceed its row's
// reference by kSlack before that is raised.
constexpr float kShift = 4.0f, kSlack = 6.0f;

struct State {
    float o[D / 16][HALVES][4];   // dimensions 16 c + 2 r + {0, 1} (elements 0, 1 and 2, 3; r = lane / 4) of queries 8 h + 2 (lane % 4) + {0, 1}
    float top[HALVES][2], sum[HALVES][2];
};

WS_DEV float column_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 4));
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 8));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 16));
}

WS_DEV float column_sum(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 4);
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 8);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 16);
}

// One tile at `k`, its V behind it. queries(i, room): f16 operands of the i-th 16 dimensions, two registers for eight queries, perhaps in that room. v_wait is called before V is read.
template <class Queries, class VWait>
WS_DEV void tile(State& st, Queries queries, u32 k, const float (&c)[HALVES][2], float v_scale, float slack, i32 first_key, i32 clear,
                 const i32 (&limit)[HALVES][2], u32 lane, VWait v_wait) {
    // Two sums a product, of the even and of the odd steps, where registers allow it: half the chain.
    float s[KEYS / 16][HALVES][4], odd[kQShared ? 1 : KEYS / 16][HALVES][4];
#pragma unroll
    for (i32 g = 0; g < KEYS / 16; ++g)
#pragma unroll
        for (i32 h = 0; h < HALVES; ++h)
#pragma unroll
            for (i32 e = 0; e < 4; ++e) s[g][h][e] = odd[kQShared ? 0 : g][h][e] = 0.0f;
#pragma unroll
    for (i32 i = 0; i < D / 32; ++i) {
        u32 room0[2 * HALVES], room1[2 * HALVES];
        const u32(&q0)[2 * HALVES] = queries(2 * i, room0), (&q1)[2 * HALVES] = queries(2 * i + 1, room1);
#pragma unroll
        for (i32 g = 0; g < KEYS / 16; ++g) {
            // Sixteen keys by 32 dimensions: keys 0-7 and 8-15 of 16 bytes, then of the next 16: each a step of 16 dimensions (in the order of its bytes).
            u32 r[4], a0, a1, a2, a3;
            const u32 chunk = 2 * i + lane / 16, half = D > 128 ? (chunk >> 3) * (KEYS * 128) : 0;
            ldmatrix_x4(r, k + half + swizzled<kPitch>(16 * g + lane % 16, D > 128 ? (chunk & 7) : chunk));
            f16_of_e4m3(r[0], a0, a2);
            f16_of_e4m3(r[1], a1, a3);
#pragma unroll
            for (i32 h = 0; h < HALVES; ++h) mma_f16(s[g][h], a0, a1, a2, a3, q0[2 * h], q0[2 * h + 1]);
            f16_of_e4m3(r[2], a0, a2);
            f16_of_e4m3(r[3], a1, a3);
#pragma unroll
            for (i32 h = 0; h < HALVES; ++h) mma_f16(kQShared ? s[g][h] : odd[kQShared ? 0 : g][h], a0, a1, a2, a3, q1[2 * h], q1[2 * h + 1]);
        }
    }
    bool low = true;
#pragma unroll
    for (i32 h = 0; h < HALVES; ++h)
#pragma unroll
        for (i32 g = 0; g < KEYS / 16; ++g)
#pragma unroll
            for (i32 e = 0; e < 4; ++e) {
                float& x = s[g][h][e];
                x = (kQShared ? x : x + odd[kQShared ? 0 : g][h][e]) * c[h][e % 2];
                if (first_key + KEYS > clear && first_key + 16 * g + static_cast<i32>(lane / 4) + 8 * (e / 2) >= limit[h][e % 2]) x = kNegInf;
                low = low && !(x > st.top[h][e % 2] + slack);
            }
    if (!__all_sync(0xFFFFFFFFu, low)) {
#pragma unroll
        for (i32 h = 0; h < HALVES; ++h)
#pragma unroll
            for (i32 e = 0; e < 2; ++e) {
                float t = fmaxf(s[0][h][e], s[0][h][e + 2]);
#pragma unroll
                for (i32 g = 1; g < KEYS / 16; ++g) t = fmaxf(t, fmaxf(s[g][h][e], s[g][h][e + 2]));
                t = fmaxf(st.top[h][e], column_max(t));
                const float a = ex2(st.top[h][e] - (t == kNegInf ? 0.0f : t));
                st.top[h][e] = t;
                st.sum[h][e] *= a;
#pragma unroll
                for (i32 n = 0; n < D / 16; ++n) st.o[n][h][e] *= a, st.o[n][h][e + 2] *= a;
            }
    }
    // P^T as an operand: eight by eight transpositions within the warp. v_scale is this block's over the largest: 1 where the head has
    // one scale, which comes at the end.
    u32 pr[KEYS / 16][HALVES][2];
#pragma unroll
    for (i32 h = 0; h < HALVES; ++h) {
        const float bias0 = kShift - (st.top[h][0] == kNegInf ? 0.0f : st.top[h][0]), bias1 = kShift - (st.top[h][1] == kNegInf ? 0.0f : st.top[h][1]);
#pragma unroll
        for (i32 g = 0; g < KEYS / 16; ++g) {
#pragma unroll
            for (i32 e = 0; e < 2; ++e) {
                const float x = ex2(s[g][h][2 * e] + bias0), y = ex2(s[g][h][2 * e + 1] + bias1);
                st.sum[h][0] += x;
                st.sum[h][1] += y;
                pr[g][h][e] = transpose_8x8(f16x2(x * v_scale, y * v_scale));
            }
        }
    }
    v_wait();
#pragma unroll
    for (i32 g = 0; g < KEYS / 16; ++g) {
#pragma unroll
        for (i32 i = 0; i < D / 32; ++i) {
            // Sixteen keys by 32 dimensions, transposed in pairs of bytes: keys 2 j, 2 j + 1 of dimensions 2 r, 2 r + 1 (r = lane / 4).
            u32 r[4];
            const u32 chunk = 2 * i + lane / 16, half = D > 128 ? (chunk >> 3) * (KEYS * 128) : 0;
            ldmatrix_x4_trans(r, k + kTileBytes + half + swizzled<kPitch>(16 * g + lane % 16, D > 128 ? (chunk & 7) : chunk));
#pragma unroll
            for (i32 x = 0; x < 2; ++x) {
                u32 even0, odd0, even1, odd1;
                f16_of_e4m3(__byte_perm(r[2 * x], 0, 0x3120), even0, odd0);
                f16_of_e4m3(__byte_perm(r[2 * x + 1], 0, 0x3120), even1, odd1);
#pragma unroll
                for (i32 h = 0; h < HALVES; ++h) mma_f16(st.o[2 * i + x][h], even0, odd0, even1, odd1, pr[g][h][0], pr[g][h][1]);
            }
        }
    }
}

// Clocks of one thread of each CTA, of its last unit: start, earlier kernels done, first tile there, products done, (index 4) all warps' outputs there, (6) end.
#if WS_TRACE
#define MARK(i) if (threadIdx.x == 0) reinterpret_cast<u32*>(p.partial)[p.total_tiles * p.tiles_per_worker * kPartFloats + blockIdx.x * 8 + i] = clock()
#define MARK_FIRST(i) if (unit == team && slot == 0 && phase == 0) MARK(i)
#else
#define MARK(i)
#define MARK_FIRST(i)
#endif

#include "decode_parts.cuh"

#if WS_LENS
WS_DEV void store_zeros(u32 addr) { asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(addr), "r"(0) : "memory"); }
#endif

WS_DEV float log_sum(float top, float sum) { return sum > 0.0f ? (top + lg2(sum) - kShift) * kLn2 : kNegInf; }

// What a unit is: p.row_tiles of them with WS_MORE, else one, belong to a key head.
WS_DEV i32 head_of(const Params& p, i32 unit) { return WS_MORE ? unit / p.row_tiles : unit; }
WS_DEV i32 first_row_of(const Params& p, i32 unit) { return WS_MORE ? unit % p.row_tiles * WS_ROWS : 0; }

// Packed row r is query r / group; a division once, then a product: r is at most 15 (WS_MORE: 255, and the group too). PERF: the last CTA waited for divisions.
WS_DEV u32 over_group(const Params& p) { return (65535u + p.group) / p.group; }
WS_DEV i32 query_of(i32 r, u32 over) { return static_cast<i32>(static_cast<u32>(r) * over >> 16); }

// Packed row r in the output. kTokens: the sequence's first query is `first` of all.
WS_DEV i64 out_row(const Params& p, u32 over, i32 b, i32 kv_head, i32 r, i32 first) {
    const i32 query = query_of(r, over);
    if (kTokens) return static_cast<i64>(first + query) * p.Hq + kv_head * p.group + r - query * p.group;
    return (static_cast<i64>(b) * p.Hq + kv_head * p.group + r - query * p.group) * p.Sq + query;
}

// A row of the output among log-sum-exps, which come by heads where sequences lie one behind another.
WS_DEV i64 lse_row(const Params& p, i64 row, i32 total_q) { return kTokens ? row % p.Hq * total_q + row / p.Hq : row; }

#if WS_SPREAD
#include "decode_spread.cuh"
#endif

extern "C" __global__ void __launch_bounds__(ALL_THREADS, 1)
    attention_decode(const __grid_constant__ Params p, const __grid_constant__ TensorMap, const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map
#if WS_LENS
                     , const __grid_constant__ Ragged x
#endif
    ) {
    extern __shared__ __align__(1024) u8 smem[];
    const u32 thread = threadIdx.x, warp = thread / 32, lane = thread % 32, lane4 = lane % 4;
    const u32 ring = smem_addr(smem) + warp * kWarpBytes, bars = smem_addr(smem) + kBars + warp * STAGES * kBarBytes;
    const i32 team_size = kSpread ? 1 : p.tiles_per_worker, team = blockIdx.x / team_size, part = blockIdx.x % team_size, teams = gridDim.x / team_size;
    const i32 units = p.total_tiles, per_unit = p.tiles_per_unit, rows_of_all = p.group * p.Sq;
    const bool blocks = p.vs_t != 0;
    const u32 over = over_group(p);
    MARK(0);
#if WS_LENS
    // A sequence's own tiles are shared out, and what is used of its cache is read.
#if WS_LENS == 2
    auto keys_at = [&](i32 b) { return tokens_of(p, x, min(b, p.B - 1)).tiled; };
#else
    auto keys_in = [&](i32 used) { return min(max(used, 0), p.Sk); };
    auto keys_at = [&](i32 b) { return keys_in(x.used[min(b, p.B - 1)]); };   // not as constant: CTAs must agree
    auto keys_of = [&](i32 unit) { return keys_in(__ldg(x.used + head_of(p, min(unit, units - 1)) / p.Hkv)); };
#endif
#endif
#if WS_SPREAD && WS_LENS
    Stretch placed;
    placed.place_in(units / p.B);
#endif
#if WS_SPREAD && !WS_LENS
    const Stretch own = stretch_of(p);
    const i32 first_tile = own.from + static_cast<i32>(warp), stop = own.to;   // of all sequences'
#elif WS_LENS
    auto first_of = [&](i32 keys) { return part * (((keys + KEYS - 1) / KEYS + team_size - 1) / team_size) + static_cast<i32>(warp); };
    auto stop_of = [&](i32 keys) {
        const i32 tiles = (keys + KEYS - 1) / KEYS;
        return min(tiles, (part + 1) * ((tiles + team_size - 1) / team_size));
    };
#else
    const i32 share = (per_unit + team_size - 1) / team_size, first_tile = part * share + warp, stop = min(per_unit, (part + 1) * share);
#endif
    // The first tiles of each warp into the L2 while the earlier kernels end: hints, of which nothing is read. Lengths and pages may not be written yet: wherever they point to, it is within the cache.
    auto bring = [&] {
        if (!kSpread && team >= units) return;
        const i32 b = head_of(p, team) / p.Hkv;
        i32 h = head_of(p, team) % p.Hkv;
#if WS_LENS
#if WS_SPREAD
#if WS_LENS == 2
        auto keys_now = [&](i32 b) { return tokens_of<true>(p, x, min(b, p.B - 1)).tiled; };
#else
        auto keys_now = [&](i32 b) { return keys_in(static_cast<i32>(load_u32(x.used + min(b, p.B - 1)))); };
#endif
        Stretch own = stretch_of(p, placed, keys_now, lane);
        const i32 first_tile = own.from + static_cast<i32>(warp), stop = own.to;
#else
        const i32 keys = keys_in(static_cast<i32>(load_u32(x.used + b))), first_tile = first_of(keys), stop = stop_of(keys);
#endif
        const i64 caches = kTokens ? x.total_k : x.pages ? static_cast<i64>(x.page_count) * x.page_size : static_cast<i64>(p.B) * p.Sk, most = (kTokens ? x.total_k : x.pages ? x.page_size : p.Sk) - 1;
#else
        const i64 caches = static_cast<i64>(p.B) * p.Sk, most = p.Sk - 1;
#endif
        const i32 of_v = caches * p.Hkv * (2 * D) <= kFewBytes ? kHinted : kHintedV;
        auto hint = [&](i32 row, i32 first, bool v) {
#pragma unroll
            for (i32 c = lane * kPitch; c < KEYS * D; c += 32 * kPitch) {
                const i64 key = min(static_cast<i64>(first + c / D), most);
                prefetch_l2(p.k + row * p.k_b + h * p.k_h + key * p.k_s + c % D);
                if (v) prefetch_l2(p.v + row * p.v_b + h * p.v_h + key * p.v_s + c % D);
            }
        };
        auto find = [&](i32& row, i32& first) {
#if WS_LENS == 2
            first += tokens_of<true>(p, x, row).first_k, row = 0;
#elif WS_LENS
            if (x.pages) {
                row = min(max(static_cast<i32>(load_u32(x.pages + row * x.pages_b + first / x.page_size)), 0), x.page_count - 1);
                first %= x.page_size;
            }
#endif
        };
        if (kHintsAlone) {
            // All warps' by the one that has no tiles: the others do not wait for lengths and pages.
            const i32 tile = first_tile - WARPS + static_cast<i32>(lane);
            i32 row = b, first = tile * KEYS;
#if WS_SPREAD && WS_LENS
            h = head_of(p, own.place);
            while (tile < stop && tile >= own.begin + own.tiles && own.sequence < p.B) own.begin += own.with_end(own.tiles), own.tiles = tiles_in(keys_now(++own.sequence));
            row = min(own.sequence, p.B - 1), first = min(max((tile - own.begin) * KEYS, 0), p.Sk - 1);   // whatever lengths were
#endif
            if (lane < kHinted * WARPS && tile < stop) find(row, first);
#pragma unroll 1
            for (i32 i = 0; i < min(kHinted * WARPS, stop - first_tile + WARPS); ++i) hint(__shfl_sync(0xFFFFFFFFu, row, i), __shfl_sync(0xFFFFFFFFu, first, i), i < of_v * WARPS);
        } else {
#pragma unroll
            for (i32 i = 0; i < kHinted; ++i) {
                i32 row = b, first = (first_tile + i * WARPS) * KEYS;
                if (first_tile + i * WARPS >= stop) break;
#if WS_SPREAD && WS_LENS
                while (first_tile + i * WARPS >= own.begin + own.tiles && own.sequence < p.B) own.begin += own.with_end(own.tiles), own.tiles = tiles_in(keys_now(++own.sequence));
                row = min(own.sequence, p.B - 1), h = head_of(p, own.place), first = min(max((first_tile + i * WARPS - own.begin) * KEYS, 0), p.Sk - 1);   // whatever lengths were
#elif WS_SPREAD
                row = (first_tile + i * WARPS) / (per_unit + p.section), h = head_of(p, own.place), first = min((first_tile + i * WARPS) % (per_unit + p.section), per_unit - 1) * KEYS;
#endif
                find(row, first);
                hint(row, first, i < of_v);
            }
        }
    };
    if (!kHintsAlone && warp < WARPS) bring();
    if (thread == 0) {
        *reinterpret_cast<u32*>(smem + kCount) = 0;
        mbarrier_init(smem_addr(smem) + kFree, 1);
    }
    __syncthreads();
#if !WS_SPREAD
    const bool waits = kWaits && team_size > 1 && units == teams;
#endif
#if !WS_SPREAD || WS_LENS
    if (kWaits && warp == WARPS) {
        // Of a team's CTAs the last one to come here adds their outputs: all others are under way, so it may wait for them. PERF: while tiles are read an answer takes 1 to 4 us, and nothing else waits for this warp's.
        let_next_kernel_start();
        if (kHintsAlone) bring();
        wait_for_earlier_kernels();
#if WS_SPREAD
        const Stretch own = stretch_of(p, placed, keys_at, lane);
        const i32 sharers = (own.tiles + own.share - 1) / own.share, cta = own.place * own.count + own.nth, first_cta = own.place * own.count + own.begin / own.share;
        const bool waits = own.alone && own.from < own.to && sharers > 1;
#else
        const i32 sharers = team_size, cta = blockIdx.x, first_cta = team;
#endif
        if (waits) {
            float* const mine = p.partial + static_cast<i64>(cta) * kPartFloats;
            const float e = __uint_as_float(kEmpty);
            for (i32 i = lane; i < kPartFloats / 4; i += 32) put(mine + 4 * i, make_float4(e, e, e, e));
            __syncwarp();
            if (lane == 0) {
                const bool last = add_in_order(p.arrived + first_cta * WARPS, 1) == sharers - 1;
                if (last) p.arrived[first_cta * WARPS] = 0;
                *reinterpret_cast<volatile u32*>(smem + kAdds) = last;
            }
            __syncwarp();
            named_barrier_arrive(1, ALL_THREADS);
        }
        return;
    }
#endif
    if (lane == 0) {
        for (u32 i = 0; i < STAGES * kBarBytes / 8; ++i) mbarrier_init(bars + 8 * i, 1);
        mbarrier_init_fence();
        prefetch_tensor_map(&k_map);
        prefetch_tensor_map(&v_map);
    }
    __syncwarp();
    let_next_kernel_start();
    wait_for_earlier_kernels();
    MARK(1);

    // The next tile to ask for.
    struct Cursor {
        i32 unit, tile, stop, b, h;
        i32 begin, tiles;   // kSpread: the sequence's, of all of them, as `tile` and `stop` are: what the CTA has of this one ends there
        i32 first_k;        // kTokens: the sequence's first key of all
    };
#if WS_SPREAD
#if WS_LENS
    const Stretch own = stretch_of(p, placed, keys_at, lane);
#endif
    Cursor at{0, own.from + static_cast<i32>(warp), own.stop_in(own.begin, own.tiles), own.sequence, head_of(p, own.place), own.begin, own.tiles, 0};
#if WS_LENS == 2
    if (own.from < own.to) at.first_k = tokens_of(p, x, at.b).first_k;
#endif
#elif WS_LENS
    Cursor at{team, first_of(keys_of(team)), stop_of(keys_of(team)), head_of(p, team) / p.Hkv, head_of(p, team) % p.Hkv};
#else
    Cursor at{team, first_tile, stop, head_of(p, team) / p.Hkv, head_of(p, team) % p.Hkv};
#endif
    // On to a unit that has it, if this one has no more.
    auto settle = [&] {
#if WS_SPREAD
        while (at.tile >= at.begin + at.tiles && at.begin + own.with_end(at.tiles) < own.to) {
            at.begin += own.with_end(at.tiles), ++at.b;
            at.tile = max(at.tile, at.begin + ((at.tile - at.begin) & (WARPS - 1)));
#if WS_LENS == 2
            const Tokens tokens = tokens_of(p, x, min(at.b, p.B - 1));
            at.tiles = tiles_in(tokens.tiled), at.first_k = tokens.first_k;
#elif WS_LENS
            at.tiles = tiles_in(keys_at(at.b));
#endif
            at.stop = own.stop_in(at.begin, at.tiles);
        }
#else
        while (at.tile >= at.stop && at.unit < units) {
#if WS_LENS
            at.unit += teams;
            at.tile = first_of(keys_of(at.unit)), at.stop = stop_of(keys_of(at.unit));
#else
            at.unit = first_tile < stop ? at.unit + teams : units, at.tile = first_tile;
#endif
            if (at.unit >= units) break;
            const i32 head = head_of(p, at.unit);
            at.b = head / p.Hkv, at.h = head % p.Hkv;
        }
#endif
    };
    auto load = [&](u32 slot) {
        if ((kSpread ? at.tile < at.stop : at.unit < units) && lane == 0) {
            i32 row = at.b, first = (kSpread ? at.tile - at.begin : at.tile) * KEYS;
#if WS_LENS == 2
            first += at.first_k, row = 0;
#elif WS_LENS
            if (x.pages) {
                row = min(max(__ldg(x.pages + row * x.pages_b + first / x.page_size), 0), x.page_count - 1);
                first %= x.page_size;
            }
#endif
            const u32 to = ring + slot * kStageBytes, k_bar = bars + slot * kBarBytes, v_bar = WS_APART ? k_bar + 8 : k_bar;
            mbarrier_expect_tx(k_bar, WS_APART ? kTileBytes : kStageBytes);
#pragma unroll
            for (i32 i = 0; i < (D + 127) / 128; ++i) tma_load_4d(to + i * KEYS * 128, &k_map, k_bar, i * 128, first, at.h, row);
            if (WS_APART) mbarrier_expect_tx(v_bar, kTileBytes);
#pragma unroll
            for (i32 i = 0; i < (D + 127) / 128; ++i) tma_load_4d(to + kTileBytes + i * KEYS * 128, &v_map, v_bar, i * 128, first, at.h, row);
        }
    };
    settle();
    load(0);
    at.tile += WARPS;
    settle();

    u32 slot = 0, phase = 0, free_phase = 0;
#if WS_SPREAD
    for (i32 sequence = own.sequence, begin = own.begin, tiles = own.tiles; begin < own.to; begin += own.with_end(tiles), ++sequence) {
#if WS_LENS == 2
        const Tokens tokens = tokens_of(p, x, min(sequence, p.B - 1));
        tiles = tiles_in(tokens.tiled);
#elif WS_LENS
        tiles = tiles_in(keys_at(sequence));
#endif
        // Of the unit's tiles those from `since` to `stop` are this CTA's, and its warps go on in turn where they were.
        const i32 since = max(0, own.from - begin), stop = own.stop_in(begin, tiles) - begin, first_tile = since + ((static_cast<i32>(warp) - (begin + since - own.from)) & (WARPS - 1));
        if (since >= tiles) continue;   // its end alone
        const bool is_first = sequence == own.sequence, is_last = begin + own.with_end(tiles) >= own.to, whole = since == 0 && stop == tiles;
        const i32 begun_by = whole ? 0 : begin / own.share, sharers = whole ? 1 : (begin + tiles - 1) / own.share - begun_by + 1;
        const bool waits = kWaits && own.alone && sharers > 1;
        const i32 unit = sequence * own.beside + own.place;
#else
    const i32 sharers = team_size;
    for (i32 unit = team; unit < units; unit += teams) {
        const bool is_first = unit == team, is_last = unit + teams >= units;
#endif
#if WS_LENS == 2
        const i32 queries = tokens.queries, all_rows = p.group * queries, keys = tokens.tiled, first_q = tokens.first_q, total_q = x.total_q;
#else
        const i32 queries = p.Sq, all_rows = rows_of_all, first_q = 0, total_q = 0;
#endif
        const i32 head = head_of(p, unit), first_row = first_row_of(p, unit), rows = min(WS_MORE ? WS_ROWS : all_rows, all_rows - first_row);
        const i32 b = head / p.Hkv, kv_head = head % p.Hkv;
#if WS_LENS == 2
#elif WS_LENS
        const i32 keys = keys_of(unit);
#if !WS_SPREAD
        const i32 first_tile = first_of(keys), stop = stop_of(keys);
#endif
#else
        const i32 keys = p.Sk;
#endif
#if !WS_SPREAD
        const i32 since = first_tile - static_cast<i32>(warp);
#endif
        const float* ks = p.k_scale + b * p.ks_b + kv_head * p.ks_h;
        const float* vs = p.v_scale + b * p.vs_b + kv_head * p.vs_h;
        u32 q[kQShared ? 1 : D / 16][2 * HALVES];
        const u32 q_at = smem_addr(smem) + kQ + warp * kQBytes + lane * 16;
        float q_scale[HALVES][2];
        i32 limit[HALVES][2];
#pragma unroll
        for (i32 h = 0; h < HALVES; ++h) {
            const i32 r = first_row + lane / 4 + 8 * h;
            const bool valid = r < all_rows;
            const i32 row_query = query_of(r, over);
            const u8* src = p.q + (kTokens ? first_q * p.q_s : b * p.q_b) + (kv_head * p.group + r - row_query * p.group) * p.q_h + row_query * p.q_s + 4 * lane4;
#pragma unroll
            for (i32 i = 0; i < D / 16; ++i) {
                u32 x0, x1;
                f16_of_e4m3(valid ? *reinterpret_cast<const u32*>(src + 16 * i) : 0, x0, x1);
                if (kQShared) asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(q_at + (i * (HALVES / 2) + h / 2) * 512 + h % 2 * 8), "r"(x0), "r"(x1) : "memory");
                else q[kQShared ? 0 : i][2 * h] = x0, q[kQShared ? 0 : i][2 * h + 1] = x1;
            }
#pragma unroll
            for (i32 e = 0; e < 2; ++e) {
                const i32 column = first_row + 8 * h + 2 * lane4 + e, query = query_of(column, over), q_head = kv_head * p.group + column - query * p.group;
                q_scale[h][e] = column < all_rows ? p.q_scale[b * p.qs_b + q_head * p.qs_h + (query >> 7) * p.qs_t] * p.softmax_scale_log2 : 0.0f;
                limit[h][e] = WS_CAUSAL ? min(keys, keys - queries + query + 1) : keys;
            }
        }
        const i32 clear = WS_CAUSAL ? min(keys, keys - queries + 1) : keys;
        // One scale comes at the end, whatever it is. Of several the largest among the CTA's own keys comes with a warp's outputs, and the others are taken relative to it: not the first one, as P times a ratio of 4,096 is beyond f16.
        const float k_head = ks[0];
        float v_most = 1.0f;
        if (blocks) {
            v_most = 0.0f;
            const i32 last = min(stop * KEYS, keys) - 1;
            for (i32 t = (since * KEYS >> 7) + static_cast<i32>(lane); t <= last >> 7; t += 32) v_most = fmaxf(v_most, vs[t * p.vs_t]);
#pragma unroll
            for (u32 i = 16; i > 0; i /= 2) v_most = fmaxf(v_most, __shfl_xor_sync(0xFFFFFFFFu, v_most, i));
            if (!(v_most > 0.0f)) v_most = 1.0f;
        }
        const float v_head = blocks ? 1.0f : vs[0], v_inverse = 1.0f / v_most;
        State st;
#pragma unroll
        for (i32 n = 0; n < D / 16; ++n)
#pragma unroll
            for (i32 h = 0; h < HALVES; ++h)
#pragma unroll
                for (i32 e = 0; e < 4; ++e) st.o[n][h][e] = 0.0f;
#pragma unroll
        for (i32 h = 0; h < HALVES; ++h) st.top[h][0] = st.top[h][1] = kNegInf, st.sum[h][0] = st.sum[h][1] = 0.0f;
#pragma unroll 1
        for (i32 t = first_tile; t < stop; t += WARPS) {
            mbarrier_wait(bars + slot * kBarBytes, phase);
            MARK_FIRST(2);
            load(slot + 1 == STAGES ? 0 : slot + 1);   // of which every lane has read what was there
            const i32 first_key = t * KEYS;
            const float k_scale = p.ks_t ? ks[(first_key >> 7) * p.ks_t] : k_head, v_scale = blocks ? vs[(first_key >> 7) * p.vs_t] * v_inverse : 1.0f;
            float c[HALVES][2];
#pragma unroll
            for (i32 h = 0; h < HALVES; ++h) c[h][0] = q_scale[h][0] * k_scale, c[h][1] = q_scale[h][1] * k_scale;
            auto v_wait = [&] {
                if (WS_APART) mbarrier_wait(bars + slot * kBarBytes + 8, phase);
#if WS_LENS
                if (first_key + KEYS > keys) {
                    // Behind the last key lies anything, NaN too, which times 0 is NaN: V's rows there become zeros.
                    const u32 v = ring + slot * kStageBytes + kTileBytes;
                    for (u32 i = (keys - first_key) * (kPitch / 16) + lane; i < KEYS * (kPitch / 16); i += 32)
#pragma unroll
                        for (u32 half = 0; half < (D + 127) / 128; ++half) store_zeros(v + half * KEYS * 128 + 16 * i);
                    fence_async_shared();   // the slot's next tile comes by the asynchronous proxy
                    __syncwarp();
                }
#endif
            };
            auto queries = [&](i32 step, u32 (&x)[2 * HALVES]) -> const u32 (&)[2 * HALVES] {   // each lane reads what it has written
                if (!kQShared) return q[kQShared ? 0 : step];
#pragma unroll
                for (i32 e = 0; e < HALVES / 2; ++e)
                    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(x[4 * e]), "=r"(x[4 * e + 1]), "=r"(x[4 * e + 2]), "=r"(x[4 * e + 3])
                                 : "r"(q_at + (step * (HALVES / 2) + e) * 512)
                                 : "memory");
                return x;
            };
            tile(st, queries, ring + slot * kStageBytes, c, v_scale, blocks ? 0.0f : kSlack, first_key, clear, limit, lane, v_wait);
            __syncwarp();   // every lane is done with the slot
            at.tile += WARPS;
            settle();
            if (++slot == STAGES) slot = 0, phase ^= 1;
        }

        MARK(3);
        if (HALVES == 1 && sharers == 1 && !WS_RING) {
            // No barrier: each warp leaves its outputs and goes on to the next unit; the last one to come adds them.
            float* swap = reinterpret_cast<float*>(smem + kSwap);
            float2* sums = reinterpret_cast<float2*>(smem + kSums);
            const float sum0 = column_sum(st.sum[0][0]), sum1 = column_sum(st.sum[0][1]);
            mbarrier_wait(smem_addr(smem) + kFree, free_phase ^ 1);
            free_phase ^= 1;
            if (lane < 4) {
                sums[warp * 8 + 2 * lane] = make_float2(st.top[0][0], st.top[0][0] == kNegInf ? 0.0f : sum0);
                sums[warp * 8 + 2 * lane + 1] = make_float2(st.top[0][1], st.top[0][1] == kNegInf ? 0.0f : sum1);
            }
#pragma unroll
            for (i32 e = 0; e < 2; ++e) {
                if (2 * static_cast<i32>(lane4) + e < rows) {
                    float* to = swap + (warp * 8 + 2 * lane4 + e) * PITCH + 2 * (lane / 4);
#pragma unroll
                    for (i32 n = 0; n < D / 16; ++n) *reinterpret_cast<float2*>(to + 16 * n) = make_float2(st.o[n][0][e] * v_most, st.o[n][0][e + 2] * v_most);
                }
            }
            __syncwarp();
            u32 before = 0;
            if (lane == 0) asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;" : "=r"(before) : "r"(smem_addr(smem) + kCount) : "memory");
            before = __shfl_sync(0xFFFFFFFFu, before, 0);
            if (before == WARPS - 1) {
                if (lane == 0) *reinterpret_cast<volatile u32*>(smem + kCount) = 0;
#pragma unroll 1
                for (i32 i = lane; i < rows * (D / 4); i += 32) {
                    const i32 r = i / (D / 4), d = i % (D / 4) * 4;
                    float top = kNegInf, all = 0.0f;
                    float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                    float2 ms[WARPS];
                    float4 x[WARPS];
#pragma unroll
                    for (i32 w = 0; w < WARPS; ++w) ms[w] = sums[w * 8 + r], x[w] = *reinterpret_cast<const float4*>(swap + (w * 8 + r) * PITCH + d);
#pragma unroll
                    for (i32 w = 0; w < WARPS; ++w) top = fmaxf(top, ms[w].x);
                    const float zero_top = top == kNegInf ? 0.0f : top;
#pragma unroll
                    for (i32 w = 0; w < WARPS; ++w) {
                        const float f = ex2(ms[w].x - zero_top);
                        all = fmaf(ms[w].y, f, all);
                        acc.x = fmaf(x[w].x, f, acc.x), acc.y = fmaf(x[w].y, f, acc.y), acc.z = fmaf(x[w].z, f, acc.z), acc.w = fmaf(x[w].w, f, acc.w);
                    }
                    const float f = all > 0.0f ? v_head * rcp(all) : 0.0f;
                    const i64 to = out_row(p, over, b, kv_head, first_row + r, first_q);
                    store_out4(p, to * D + d, acc.x * f, acc.y * f, acc.z * f, acc.w * f);
                    if (p.lse && d == 0) p.lse[lse_row(p, to, total_q)] = log_sum(top, all);
                }
                __syncwarp();
                if (lane == 0) mbarrier_arrive(smem_addr(smem) + kFree);
            }
            MARK(6);
            continue;
        }
        // The unit's share of this CTA, eight rows at a time.
#if WS_SPREAD
        // Of a unit that was begun before in the CTA's first place, of one that is not ended in its second one. Which CTA has begun it says which unit's counters they are.
        const i32 places = own.place * own.count, shared_unit = places + begun_by, first_off = begin > begun_by * own.share ? static_cast<i32>(gridDim.x) * kPartFloats : 0;
        float* const parts = p.partial + static_cast<i64>(shared_unit) * kPartFloats;
        float* const mine = p.partial + static_cast<i64>(places + own.nth + (own.from - begin == since ? 0 : gridDim.x)) * kPartFloats;
        if (HALVES == 1) {
            mbarrier_wait(smem_addr(smem) + kFree, free_phase ^ 1);
            free_phase ^= 1;
        }
#else
        const i32 shared_unit = unit, first_off = 0;
        float* const parts = p.partial + static_cast<i64>(unit) * team_size * kPartFloats;
        float* const mine = parts + part * kPartFloats;
#endif
        // Where no more tiles come, all rows at once, each warp's in its own ring.
        const bool in_ring = WS_RING || (HALVES > 1 && kRoom && !kSpread && is_last), at_once = HALVES == 1 || in_ring || kWholeSwap;
        auto swap_of = [&](u32 w) { return reinterpret_cast<float*>(smem + (in_ring ? w * kWarpBytes : kSwap + w * (kSwapRows * PITCH * 4))); };
        auto sums_of = [&](u32 w) { return reinterpret_cast<float2*>(smem + (in_ring ? w * kWarpBytes + HALVES * 8 * PITCH * 4 : kSums + w * (kSwapRows * 8))); };
#pragma unroll
        for (i32 h = 0; h < HALVES; ++h) {
            const i32 count = min(8, rows - 8 * h);
            const u32 place = at_once ? 8 * h : 0;
            const float sum0 = column_sum(st.sum[h][0]), sum1 = column_sum(st.sum[h][1]);
            if (!in_ring && (kWholeSwap ? h == 0 && !is_first : h > 0 || !is_first)) named_barrier_sync(1, THREADS);   // others read what was there
            if (lane < 4) {
                sums_of(warp)[place + 2 * lane] = make_float2(st.top[h][0], st.top[h][0] == kNegInf ? 0.0f : sum0);
                sums_of(warp)[place + 2 * lane + 1] = make_float2(st.top[h][1], st.top[h][1] == kNegInf ? 0.0f : sum1);
            }
#pragma unroll
            for (i32 e = 0; e < 2; ++e) {
                if (2 * static_cast<i32>(lane4) + e < count) {
                    float* to = swap_of(warp) + (place + 2 * lane4 + e) * PITCH + 2 * (lane / 4);
#pragma unroll
                    for (i32 n = 0; n < D / 16; ++n) *reinterpret_cast<float2*>(to + 16 * n) = make_float2(st.o[n][h][e] * v_most, st.o[n][h][e + 2] * v_most);
                }
            }
            if (at_once && h + 1 < HALVES) continue;
            named_barrier_sync(1, waits ? ALL_THREADS : THREADS);
            MARK(4);
            const i32 first = at_once ? 0 : 8 * h;
            // Item i of these rows, over the CTA's warps.
            auto own = [&](i32 i) {
                const i32 r = i / (D / 4), d = i % (D / 4) * 4;
                float2 ms[WARPS];
                float4 x[WARPS];
#pragma unroll
                for (i32 w = 0; w < WARPS; ++w) ms[w] = sums_of(w)[r], x[w] = *reinterpret_cast<const float4*>(swap_of(w) + r * PITCH + d);
                float top = ms[0].x, all = 0.0f;
#pragma unroll
                for (i32 w = 1; w < WARPS; ++w) top = fmaxf(top, ms[w].x);
                const float zero_top = top == kNegInf ? 0.0f : top;
                float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                for (i32 w = 0; w < WARPS; ++w) {
                    const float f = ex2(ms[w].x - zero_top);
                    all = fmaf(ms[w].y, f, all);
                    acc.x = fmaf(x[w].x, f, acc.x), acc.y = fmaf(x[w].y, f, acc.y), acc.z = fmaf(x[w].z, f, acc.z), acc.w = fmaf(x[w].w, f, acc.w);
                }
                return Piece{top, all, acc};
            };
            // Item g of the unit.
            auto leave = [&](i32 g, const Piece& a) {
                put(mine + kHeadFloats + g * 4, make_float4(told(a.acc.x), a.acc.y, told(a.acc.z), a.acc.w));
                if (g % kSegment == 0) put(mine + g / kSegment * 2, make_float2(told(a.top), a.sum));
            };
            auto finish = [&](i32 g, const Piece& a) {
                const float f = a.sum > 0.0f ? v_head * rcp(a.sum) : 0.0f;
                const i32 d = g % (D / 4) * 4;
                const i64 to = out_row(p, over, b, kv_head, first_row + g / (D / 4), first_q);
                store_out4(p, to * D + d, a.acc.x * f, a.acc.y * f, a.acc.z * f, a.acc.w * f);
                if (p.lse && d == 0) p.lse[lse_row(p, to, total_q)] = log_sum(a.top, a.sum);
            };
            const Piece none{kNegInf, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
            constexpr bool kSometimesBoth = (WS_RING || kRoom ? HALVES : 1) * 8 * (D / 4) > THREADS;
            const i32 items = (at_once ? rows : count) * (D / 4), shift = first * (D / 4);
            i32* counter = p.arrived + (shared_unit * HALVES + (at_once ? 0 : h)) * WARPS + warp;
#pragma unroll 1
            for (i32 i = thread; i < items; i += 2 * THREADS, counter += WARPS) {
                const i32 g = shift + i;
                const bool both = kSometimesBoth && i + THREADS < items;   // for all of a warp or none: items are whole warps' but at D 64, where they are THREADS at most
                Piece a = own(i), o = none;
                if (both) o = own(i + THREADS);
                if (sharers > 1) {
                    leave(g, a);
                    if (both) leave(g + THREADS, o);
                    const u32 lanes = D >= 128 || items - (i - static_cast<i32>(lane)) >= 32 ? 0xFFFFFFFFu : 0xFFFFu;   // D 64: the upper half may have no item
                    if (waits) {
                        if (*reinterpret_cast<volatile u32*>(smem + kAdds) == 0) continue;
                    } else {
                        i32 before = 0;
                        __syncwarp(lanes);
                        if (lane == 0) before = add_in_order(counter, 1);
                        if (__shfl_sync(lanes, before, 0) != sharers - 1) continue;
                        __syncwarp(lanes);   // what lane 0 has acquired all may read
                        if (lane == 0) *counter = 0;
                    }
                    a = o = none;
                    if (both) gather<true>(a, o, parts, sharers, g, first_off);
                    else gather<false>(a, o, parts, sharers, g, first_off);
                    if (!both) merge(a, o);
                }
                finish(g, a);
                if (both) finish(g + THREADS, o);
            }
        }
        if (kSpread && HALVES == 1 && !is_last) {
            named_barrier_sync(1, THREADS);
            if (thread == 0) mbarrier_arrive(smem_addr(smem) + kFree);
        }
        MARK(6);
    }
#if WS_LENS == 2
    clear_gaps<D>(p, x, blockIdx.x * WARPS + warp, gridDim.x * WARPS, lane, p.lse);
#endif
}
