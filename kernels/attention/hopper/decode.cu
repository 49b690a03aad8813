// attention_decode: FP8 attention of at most 16 packed rows over long caches; bound by reading K and V once.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh; row r of a key head is query r / group of query head r % group, group * Sq at most 16 (WS_ROWS 8: at most 8).
// Assumes: WS_D 64, 128 or 256; rows on 16 bytes; scales per tensor, head or block of 128 tokens.
// Work: all (unit, tile) pairs in order, unit = (b, key head), tile = WS_KEYS keys, in equal shares to the CTAs; a CTA's warps take its
//   tiles in turn, each alone: its own ring of WS_STAGES tiles by cp.async, products by mma.sync in f16 (K, V and Q are exact in f16; P is
//   f16, so this kernel rounds less than one with P in e4m3), accumulation in f32. No barrier but where a unit ends: there the warps'
//   outputs are added through shared memory, and a unit that several CTAs share is finished by the last of them (counters return to zero).
//   Loads of the next unit's tiles go on meanwhile.
// PERF: at 20 bytes a clock and SM, the rate of the memory, the conversions to f16 take a quarter of their pipe, the products less.
// Losers: split.cu with WS_STREAM 1 (wgmma, 64 rows of which 4 are used; three barriers a tile): 2.4 to 3.1 TB/s on an H200, 2026-11-21.
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
#define WS_STAGES 3
#endif
#ifndef WS_ROWS
#define WS_ROWS 8
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif

#include "params.cuh"
#include "softmax.cuh"
#include "transpose.cuh"

constexpr i32 D = WS_D, KEYS = WS_KEYS, WARPS = WS_WARPS, STAGES = WS_STAGES, HALVES = WS_ROWS / 8, THREADS = 32 * WARPS;
static_assert(D == 64 || D == 128 || D == 256, "head dimensions are 64, 128 and 256");
static_assert(KEYS % 16 == 0 && (WS_ROWS == 8 || WS_ROWS == 16), "tiles of whole products");
constexpr u32 kPitch = D < 128 ? D : 128;
constexpr u32 kTileBytes = KEYS * D, kStageBytes = 2 * kTileBytes, kWarpBytes = STAGES * kStageBytes;
constexpr u32 kSums = WARPS * kWarpBytes;            // [warp][8] of (maximum, sum)
constexpr i32 WIDE = D < 128 ? D : 128;              // dimensions that the warps add at a time
constexpr u32 kSwap = kSums + WARPS * 64;            // [warp][8][WIDE] f32
constexpr u32 kFlag = kSwap + WARPS * 8 * WIDE * 4;
constexpr u32 kSharedBytes = kFlag + 16;
static_assert(kSharedBytes <= 232448, "shared memory of a CTA");

WS_DEV void load_half_tile(const u8* src, i64 stride, i32 first, i32 keys, u32 smem, u32 lane) {
    constexpr u32 kChunks = D / 16, kRows = kChunks < 32 ? 32 / kChunks : 1;
    const u32 chunk = lane % kChunks, half = D > 128 ? (chunk >> 3) * (KEYS * 128) : 0;
#pragma unroll
    for (u32 i = 0; i < KEYS / kRows; ++i) {
        const u32 row = lane / kChunks + i * kRows;
        const i32 key = first + static_cast<i32>(row);
        const bool inside = key < keys;
        cp_async_16(smem + half + swizzled<kPitch>(row, D > 128 ? (chunk & 7) : chunk), src + (inside ? key : 0) * stride + chunk * 16, inside ? 16 : 0);
    }
}

// P is f16 here, and times a ratio of V's scales: 2^4 at most leaves room for both.
constexpr float kShift = 4.0f;

struct State {
    float o[D / 8][4];        // block 2 c and 2 c + 1: dimensions 16 c + 4 j + {0, 2} and {1, 3}; elements 2 and 3 are row + 8
    float top[2], sum[2];
};

// One tile at `k`, its V behind it. q: f16 operands, two registers for row T / 4 and two for row + 8 a step of 16 dimensions.
WS_DEV void tile(State& st, const u32 (&q)[D / 16][2 * HALVES], u32 k, const float (&c)[2], float v_scale, i32 first_key, i32 clear, const i32 (&limit)[2], u32 lane) {
    float s[KEYS / 8][4];
#pragma unroll
    for (i32 n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (i32 e = 0; e < 4; ++e) s[n][e] = 0.0f;
#pragma unroll
        for (i32 i = 0; i < D / 64; ++i) {
            // Eight keys by 64 dimensions: four blocks of 16 bytes, each a step of 16 dimensions (in the order of its bytes).
            u32 r[4];
            const u32 chunk = 4 * i + lane / 8, half = D > 128 ? (chunk >> 3) * (KEYS * 128) : 0;
            ldmatrix_x4(r, k + half + swizzled<kPitch>(8 * n + lane % 8, D > 128 ? (chunk & 7) : chunk));
#pragma unroll
            for (i32 x = 0; x < 4; ++x) {
                u32 b0, b1;
                f16_of_e4m3(r[x], b0, b1);
                const u32(&a)[2 * HALVES] = q[4 * i + x];
                mma_f16(s[n], a[0], HALVES > 1 ? a[2 * HALVES - 2] : 0, a[1], HALVES > 1 ? a[2 * HALVES - 1] : 0, b0, b1);
            }
        }
    }
    float a[2] = {1.0f, 1.0f};
#pragma unroll
    for (i32 h = 0; h < HALVES; ++h) {
        if (first_key + KEYS > clear) {
#pragma unroll
            for (i32 n = 0; n < KEYS / 8; ++n)
#pragma unroll
                for (i32 e = 0; e < 2; ++e)
                    if (first_key + 8 * n + 2 * static_cast<i32>(lane % 4) + e >= limit[h]) s[n][2 * h + e] = kNegInf;
        }
        float t = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
        for (i32 n = 1; n < KEYS / 8; ++n) t = fmaxf(t, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        t = quad_max(t);
        const float top = fmaxf(st.top[h], t == kNegInf ? kNegInf : t * c[h]), zero_top = top == kNegInf ? 0.0f : top;
        a[h] = ex2(st.top[h] - zero_top);
        st.top[h] = top;
        float sum = st.sum[h] * a[h];
#pragma unroll
        for (i32 n = 0; n < KEYS / 8; ++n)
#pragma unroll
            for (i32 e = 0; e < 2; ++e) {
                s[n][2 * h + e] = ex2(fmaf(s[n][2 * h + e], c[h], kShift - zero_top));
                sum += s[n][2 * h + e];
            }
        st.sum[h] = sum;
    }
    // v_scale is this block's over the head's first: 1 where the head has one scale, which comes at the end.
#pragma unroll
    for (i32 n = 0; n < D / 8; ++n)
#pragma unroll
        for (i32 h = 0; h < HALVES; ++h) st.o[n][2 * h] *= a[h], st.o[n][2 * h + 1] *= a[h];
#pragma unroll
    for (i32 g = 0; g < KEYS / 16; ++g) {
        const u32 a0 = f16x2(s[2 * g][0] * v_scale, s[2 * g][1] * v_scale), a2 = f16x2(s[2 * g + 1][0] * v_scale, s[2 * g + 1][1] * v_scale);
        const u32 a1 = HALVES > 1 ? f16x2(s[2 * g][2] * v_scale, s[2 * g][3] * v_scale) : 0, a3 = HALVES > 1 ? f16x2(s[2 * g + 1][2] * v_scale, s[2 * g + 1][3] * v_scale) : 0;
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
                mma_f16(st.o[2 * (2 * i + x)], a0, a1, a2, a3, even0, even1);
                mma_f16(st.o[2 * (2 * i + x) + 1], a0, a1, a2, a3, odd0, odd1);
            }
        }
    }
}

WS_DEV float log_sum(float top, float sum) { return sum > 0.0f ? (top + lg2(sum) - kShift) * kLn2 : kNegInf; }

// Row r of a unit in the output.
WS_DEV i64 out_row(const Params& p, i32 b, i32 kv_head, i32 r) { return (static_cast<i64>(b) * p.Hq + kv_head * p.group + r % p.group) * p.Sq + r / p.group; }

extern "C" __global__ void __launch_bounds__(THREADS, 1) attention_decode(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) u8 smem[];
    const u32 thread = threadIdx.x, warp = thread / 32, lane = thread % 32, lane4 = lane % 4;
    const u32 ring = smem_addr(smem) + warp * kWarpBytes;
    const i32 begin = blockIdx.x * p.tiles_per_worker, end = min(p.total_tiles, begin + p.tiles_per_worker);
    const i32 rows = p.group * p.Sq;
    const bool blocks = p.vs_t != 0;
    if (begin >= end) return;
    let_next_kernel_start();
    wait_for_earlier_kernels();

    // The loader runs ahead of the products by STAGES - 1 tiles, through the ends of units.
    i32 load_at = begin + warp, load_unit = load_at / p.tiles_per_unit, load_tile = load_at % p.tiles_per_unit, fill = 0;
    auto load = [&]() {
        if (load_at < end) {
            const i32 b = load_unit / p.Hkv, h = load_unit % p.Hkv;
            load_half_tile(p.k + b * p.k_b + h * p.k_h, p.k_s, load_tile * KEYS, p.Sk, ring + fill * kStageBytes, lane);
            load_half_tile(p.v + b * p.v_b + h * p.v_h, p.v_s, load_tile * KEYS, p.Sk, ring + fill * kStageBytes + kTileBytes, lane);
            load_at += WARPS;
            load_tile += WARPS;
            while (load_tile >= p.tiles_per_unit) load_tile -= p.tiles_per_unit, ++load_unit;
        }
        fill = fill + 1 == STAGES ? 0 : fill + 1;
        cp_async_commit();
    };
#pragma unroll
    for (i32 i = 0; i < STAGES - 1; ++i) load();

    i32 slot = 0, at = begin + warp;
    for (i32 start = begin; start < end;) {
        const i32 unit = start / p.tiles_per_unit, unit_first = unit * p.tiles_per_unit, stop = min(end, unit_first + p.tiles_per_unit);
        const i32 b = unit / p.Hkv, kv_head = unit % p.Hkv;
        const float* ks = p.k_scale + b * p.ks_b + kv_head * p.ks_h;
        const float* vs = p.v_scale + b * p.vs_b + kv_head * p.vs_h;
        u32 q[D / 16][2 * HALVES];
        float q_scale[2];
        i32 limit[2];
#pragma unroll
        for (i32 h = 0; h < HALVES; ++h) {
            const i32 r = lane / 4 + 8 * h, query = r / p.group, head = kv_head * p.group + r % p.group;
            const bool valid = r < rows;
            const u8* src = p.q + b * p.q_b + head * p.q_h + query * p.q_s + 4 * lane4;
#pragma unroll
            for (i32 i = 0; i < D / 16; ++i) f16_of_e4m3(valid ? *reinterpret_cast<const u32*>(src + 16 * i) : 0, q[i][2 * h], q[i][2 * h + 1]);
            q_scale[h] = valid ? p.q_scale[b * p.qs_b + head * p.qs_h + (query >> 7) * p.qs_t] * p.softmax_scale_log2 : 0.0f;
            limit[h] = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + query + 1) : p.Sk;
        }
        const i32 clear = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + 1) : p.Sk;
        const float k_head = ks[0], v_head = vs[0] > 0.0f ? vs[0] : 1.0f, v_inverse = 1.0f / v_head;
        State st;
#pragma unroll
        for (i32 n = 0; n < D / 8; ++n)
#pragma unroll
            for (i32 e = 0; e < 4; ++e) st.o[n][e] = 0.0f;
        st.top[0] = st.top[1] = kNegInf;
        st.sum[0] = st.sum[1] = 0.0f;
#pragma unroll 1
        for (; at < stop; at += WARPS) {
            const i32 first_key = (at - unit_first) * KEYS;
            const float k_scale = p.ks_t ? ks[(first_key >> 7) * p.ks_t] : k_head, v_scale = blocks ? vs[(first_key >> 7) * p.vs_t] * v_inverse : 1.0f;
            const float c[2] = {q_scale[0] * k_scale, HALVES > 1 ? q_scale[1] * k_scale : 0.0f};
            cp_async_wait<STAGES - 2>();
            __syncwarp();   // every lane's pieces are there, and every lane is done with the slot that load() fills
            load();
            tile(st, q, ring + slot * kStageBytes, c, v_scale, first_key, clear, limit, lane);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }

        // The unit's share of this CTA, eight rows at a time.
        const bool whole = start == unit_first && stop == unit_first + p.tiles_per_unit;
        const i32 head_floats = 2 * ((rows + 1) & ~1);
        const i64 slot_floats = head_floats + rows * D;
        float* mine = p.partial + (static_cast<i64>(blockIdx.x) * 2 + (start == unit_first)) * slot_floats;
        float2* sums = reinterpret_cast<float2*>(smem + kSums);
        float* swap = reinterpret_cast<float*>(smem + kSwap);
#pragma unroll
        for (i32 h = 0; h < HALVES; ++h) {
            const i32 count = min(8, rows - 8 * h);
            if (count <= 0) break;
            const float sum = quad_sum(st.sum[h]);
#pragma unroll
            for (i32 wide = 0; wide < D; wide += WIDE) {
                __syncthreads();
                if (lane4 == 0) sums[warp * 8 + lane / 4] = make_float2(st.top[h], st.top[h] == kNegInf ? 0.0f : sum);
                if (static_cast<i32>(lane / 4) < count) {
#pragma unroll
                    for (i32 n = 0; n < WIDE / 16; ++n) {
                        const i32 m = wide / 16 + n;
                        *reinterpret_cast<float4*>(swap + (warp * 8 + lane / 4) * WIDE + 16 * n + 4 * lane4) =
                            make_float4(st.o[2 * m][2 * h], st.o[2 * m + 1][2 * h], st.o[2 * m][2 * h + 1], st.o[2 * m + 1][2 * h + 1]);
                    }
                }
                __syncthreads();
                for (i32 i = thread; i < count * (WIDE / 4); i += THREADS) {
                    const i32 r = i / (WIDE / 4), d = i % (WIDE / 4) * 4;
                    float top = kNegInf, all = 0.0f;
#pragma unroll
                    for (i32 w = 0; w < WARPS; ++w) top = fmaxf(top, sums[w * 8 + r].x);
                    const float zero_top = top == kNegInf ? 0.0f : top;
                    float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                    for (i32 w = 0; w < WARPS; ++w) {
                        const float2 ms = sums[w * 8 + r];
                        const float f = ex2(ms.x - zero_top);
                        const float4 x = *reinterpret_cast<const float4*>(swap + (w * 8 + r) * WIDE + d);
                        all = fmaf(ms.y, f, all);
                        acc.x = fmaf(x.x, f, acc.x), acc.y = fmaf(x.y, f, acc.y), acc.z = fmaf(x.z, f, acc.z), acc.w = fmaf(x.w, f, acc.w);
                    }
                    if (whole) {
                        const float f = all > 0.0f ? v_head * rcp(all) : 0.0f;
                        const i64 to = out_row(p, b, kv_head, r + 8 * h);
                        store_out4(p, to * D + wide + d, acc.x * f, acc.y * f, acc.z * f, acc.w * f);
                        if (p.lse && wide + d == 0) p.lse[to] = log_sum(top, all);
                    } else {
                        __stcg(reinterpret_cast<float4*>(mine + head_floats + (r + 8 * h) * D + wide + d), acc);
                        if (wide + d == 0) __stcg(reinterpret_cast<float2*>(mine) + r + 8 * h, make_float2(top, all));
                    }
                }
            }
        }
        if (!whole) {
            __threadfence();
            __syncthreads();
            const i32 w0 = unit_first / p.tiles_per_worker, w1 = (unit_first + p.tiles_per_unit - 1) / p.tiles_per_worker;
            i32* flag = reinterpret_cast<i32*>(smem + kFlag);
            if (thread == 0) {
                const bool last = atomicAdd(p.arrived + unit, 1) == w1 - w0;
                if (last) p.arrived[unit] = 0;
                *flag = last;
            }
            __syncthreads();
            if (*flag) {
                __threadfence();
                for (i32 i = thread; i < rows * (D / 4); i += THREADS) {
                    const i32 r = i / (D / 4), d = i % (D / 4) * 4;
                    // A running maximum, so that each share is read once.
                    float top = kNegInf, sum = 0.0f;
                    float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
                    for (i32 w = w0; w <= w1; ++w) {
                        const float* from = p.partial + (static_cast<i64>(w) * 2 + (unit_first >= w * p.tiles_per_worker)) * slot_floats;
                        const float2 ms = __ldcg(reinterpret_cast<const float2*>(from) + r);
                        const float4 x = __ldcg(reinterpret_cast<const float4*>(from + head_floats + r * D + d));
                        const float next = fmaxf(top, ms.x), zero_next = next == kNegInf ? 0.0f : next;
                        const float f = ex2(top - zero_next), g = ex2(ms.x - zero_next);
                        top = next;
                        sum = fmaf(sum, f, ms.y * g);
                        acc.x = fmaf(acc.x, f, x.x * g), acc.y = fmaf(acc.y, f, x.y * g), acc.z = fmaf(acc.z, f, x.z * g), acc.w = fmaf(acc.w, f, x.w * g);
                    }
                    const float f = sum > 0.0f ? v_head * rcp(sum) : 0.0f;
                    const i64 to = out_row(p, b, kv_head, r);
                    store_out4(p, to * D + d, acc.x * f, acc.y * f, acc.z * f, acc.w * f);
                    if (p.lse && d == 0) p.lse[to] = log_sum(top, sum);
                }
            }
        }
        start = stop;
    }
}
