// attention_split: FP8 attention whose keys are split over the warpgroups of a CTA (WS_STREAM 0) or of the whole grid (WS_STREAM 1).
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh. Rows are packed: row r of a key head is query r / group of query head r % group, 64 rows to a tile; so grouped
// heads and few queries share one pass over the keys. Any Sq, Sk, group; scales per tensor, head or block of 128 tokens.
// Assumes: WS_D 64, 128 or 256; WS_KEYS 64 or 128; rows on 16 bytes.
// Roles: every warpgroup is alone: it loads its own tiles with cp.async (WS_STAGES deep), multiplies, transposes V, multiplies.
//     tile t:  wait(t) | bar | load(t + STAGES - 1) | S = Q K^T (wgmma, Q in registers) . V^T meanwhile | bar | softmax | T = P V, O = O a + T
//   WS_STREAM 0: grid (row tiles, Hkv, B); warpgroup w takes tiles w, w + WGS, ...; outputs are combined through shared memory.
//   WS_STREAM 1: warpgroups are workers on equal shares of all (unit, tile) pairs in order, unit = (b, key head); a unit in several
//     shares is combined by whichever worker comes last, in the same launch (counters return to zero).
// Every tile's product starts from zero and is added to f32, so the tensor core's narrow accumulator never sums over more than WS_KEYS keys.
// Measured: docs/ledger.md. Comes from: ladder level 08, with Hopper's instructions.

#ifndef WS_D
#define WS_D 64
#endif
#ifndef WS_KEYS
#define WS_KEYS 128
#endif
#ifndef WS_WGS
#define WS_WGS 4
#endif
#ifndef WS_STAGES
#define WS_STAGES 1
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif
#ifndef WS_STREAM
#define WS_STREAM 0
#endif
#ifndef WS_GROUPED
#define WS_GROUPED 1
#endif
#ifndef WS_POLY
#define WS_POLY 2
#endif

#include "online.cuh"

constexpr i32 STAGES = WS_STAGES;
constexpr u32 kStageBytes = 2 * kTileBytes;                      // K, V
constexpr u32 kGroupBytes = STAGES * kStageBytes + kTileBytes;   // and V^T

extern "C" __global__ void __launch_bounds__(WGS * 128, 1) attention_split(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) u8 smem[];
    const u32 group = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, lane4 = lane % 4;
    const u32 base = smem_addr(smem) + group * kGroupBytes;
    const u32 vt = base + STAGES * kStageBytes, barrier = 1 + group;
    State st;
    u32 q[D / 8];
    let_next_kernel_start();
    wait_for_earlier_kernels();

#if !WS_STREAM
    const i32 b = blockIdx.z, kv_head = blockIdx.y, row_base = blockIdx.x * 64;
    const Row r0 = row_of(p, row_base + warp * 16 + lane / 4, kv_head), r1 = row_of(p, row_base + warp * 16 + lane / 4 + 8, kv_head);
    const bool warp_has_rows = (row_base + static_cast<i32>(warp) * 16) < p.group * p.Sq;
    const u8* k = p.k + b * p.k_b + kv_head * p.k_h;
    const u8* v = p.v + b * p.v_b + kv_head * p.v_h;
    i32 last = p.Sk;   // keys that any row of the tile sees
    if (WS_CAUSAL) last = min(last, p.Sk - p.Sq + min(p.Sq, (row_base + 63) / p.group + 1));
    const i32 clear = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + row_base / p.group + 1) : p.Sk;   // every row sees the keys before it
    const i32 tiles = last > 0 ? (last + KEYS - 1) / KEYS : 0;
    reset(st);

    auto load = [&](i32 t, u32 slot) {
        if (t < tiles) {
            load_tile(k, p.k_s, t * KEYS, p.Sk, base + slot * kStageBytes, thread);
            load_tile(v, p.v_s, t * KEYS, p.Sk, base + slot * kStageBytes + kTileBytes, thread);
        }
        cp_async_commit();
    };
    constexpr i32 kAhead = STAGES > 1 ? STAGES - 1 : 1;
#pragma unroll
    for (i32 i = 0; i < kAhead; ++i) load(group + i * WGS, i);
    load_q(p, b, r0, lane4, q, 0);
    load_q(p, b, r1, lane4, q, 1);
    const float q0 = q_scale_of(p, b, r0), q1 = q_scale_of(p, b, r1);
    const float* ks = p.k_scale + b * p.ks_b + kv_head * p.ks_h;
    const float* vs = p.v_scale + b * p.vs_b + kv_head * p.vs_h;

    i32 slot = 0;
    for (i32 t = group; t < tiles; t += WGS) {
        const float k_scale = ks[(t * KEYS >> 7) * p.ks_t], v_scale = vs[(t * KEYS >> 7) * p.vs_t];
        cp_async_wait<kAhead - 1>();
        fence_async_shared();
        named_barrier_sync(barrier, 128);
        if (STAGES > 1) load(t + kAhead * WGS, slot == 0 ? STAGES - 1 : slot - 1);
        tile(st, q, base + slot * kStageBytes, vt, q0 * k_scale, q1 * k_scale, v_scale, t * KEYS, clear, r0.limit, r1.limit, warp_has_rows, barrier, warp, lane);
        if (STAGES == 1 && t + WGS < tiles) {
            named_barrier_sync(barrier, 128);
            load(t + WGS, 0);
        }
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }
    finish_sums(st);

    // Combine: every warpgroup scales its output by its weight, hands three quarters of it to the others, and finishes the rest.
    __syncthreads();
    float* rows = reinterpret_cast<float*>(smem);                       // [WGS][2][64]: max, sum
    float4* swap = reinterpret_cast<float4*>(smem + WGS * 512);         // [to][from][D / 8 / WGS][128]
    const u32 row = warp * 16 + lane / 4;
    if (lane4 == 0) {
        rows[group * 128 + row] = st.max0;
        rows[group * 128 + row + 8] = st.max1;
        rows[group * 128 + 64 + row] = st.sum0;
        rows[group * 128 + 64 + row + 8] = st.sum1;
    }
    __syncthreads();
    float top0 = kNegInf, top1 = kNegInf, sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (i32 g = 0; g < WGS; ++g) {
        top0 = fmaxf(top0, rows[g * 128 + row]);
        top1 = fmaxf(top1, rows[g * 128 + row + 8]);
    }
    const float b0 = top0 == kNegInf ? 0.0f : top0, b1 = top1 == kNegInf ? 0.0f : top1;
#pragma unroll
    for (i32 g = 0; g < WGS; ++g) {
        sum0 += rows[g * 128 + 64 + row] * ex2(rows[g * 128 + row] - b0);
        sum1 += rows[g * 128 + 64 + row + 8] * ex2(rows[g * 128 + row + 8] - b1);
    }
    const float f0 = sum0 > 0.0f ? ex2(st.max0 - b0) / sum0 : 0.0f, f1 = sum1 > 0.0f ? ex2(st.max1 - b1) / sum1 : 0.0f;
    constexpr i32 kChunks = D / 16 / WGS;   // chunks of 16 dimensions that each warpgroup finishes
    static_assert(WGS <= D / 16 && (D / 16) % WGS == 0, "the warpgroups share the output's dimensions evenly");
#pragma unroll
    for (i32 c = 0; c < D / 16; ++c) {
        float* o = st.o + 8 * c;
        // Columns of block 2 c are dimensions 4 j and 4 j + 2, of block 2 c + 1 4 j + 1 and 4 j + 3 (transpose.cuh).
        const float4 x = make_float4(o[0] * f0, o[4] * f0, o[1] * f0, o[5] * f0), y = make_float4(o[2] * f1, o[6] * f1, o[3] * f1, o[7] * f1);
        const u32 to = c / kChunks, i = c % kChunks;
        if (to == group) {
            o[0] = x.x, o[1] = x.y, o[2] = x.z, o[3] = x.w, o[4] = y.x, o[5] = y.y, o[6] = y.z, o[7] = y.w;
        } else {
            swap[((to * WGS + group) * kChunks + i) * 256 + thread] = x;
            swap[((to * WGS + group) * kChunks + i) * 256 + 128 + thread] = y;
        }
    }
    __syncthreads();
    const i64 at0 = out_row(p, b, r0), at1 = out_row(p, b, r1);
#pragma unroll
    for (i32 c = 0; c < D / 16; ++c) {
        if (c / kChunks != group) continue;
        float* o = st.o + 8 * c;
#pragma unroll
        for (u32 g = 0; g < WGS; ++g) {
            if (g == group) continue;
            const float4 x = swap[((group * WGS + g) * kChunks + c % kChunks) * 256 + thread];
            const float4 y = swap[((group * WGS + g) * kChunks + c % kChunks) * 256 + 128 + thread];
            o[0] += x.x, o[1] += x.y, o[2] += x.z, o[3] += x.w, o[4] += y.x, o[5] += y.y, o[6] += y.z, o[7] += y.w;
        }
        if (r0.valid) store_out4(p, at0 * D + 16 * c + 4 * lane4, o[0], o[1], o[2], o[3]);
        if (r1.valid) store_out4(p, at1 * D + 16 * c + 4 * lane4, o[4], o[5], o[6], o[7]);
    }
    if (p.lse && group == 0 && lane4 == 0) {
        if (r0.valid) p.lse[at0] = log_sum(top0, sum0);
        if (r1.valid) p.lse[at1] = log_sum(top1, sum1);
    }
#else
    // Worker w of gridDim.x * WGS takes tiles [w * share, (w + 1) * share) of all units in order.
    const i32 worker = blockIdx.x * WGS + group;
    const i32 begin = min(p.total_tiles, worker * p.tiles_per_worker), end = min(p.total_tiles, begin + p.tiles_per_worker);
    const i32 rows = p.group * p.Sq;   // at most 64
    const i32 clear = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + 1) : p.Sk;
    i32 load_unit = begin / p.tiles_per_unit, load_tile_index = begin % p.tiles_per_unit, loaded = begin;
    i32 fill = 0;
    auto load = [&]() {
        if (loaded < end) {
            const i32 b = load_unit / p.Hkv, h = load_unit % p.Hkv;
            load_tile(p.k + b * p.k_b + h * p.k_h, p.k_s, load_tile_index * KEYS, p.Sk, base + fill * kStageBytes, thread);
            load_tile(p.v + b * p.v_b + h * p.v_h, p.v_s, load_tile_index * KEYS, p.Sk, base + fill * kStageBytes + kTileBytes, thread);
            ++loaded;
            if (++load_tile_index == p.tiles_per_unit) load_tile_index = 0, ++load_unit;
            fill = fill + 1 == STAGES ? 0 : fill + 1;
        }
        cp_async_commit();
    };
#pragma unroll
    for (i32 i = 0; i < STAGES - 1; ++i) load();

    i32 unit = begin / p.tiles_per_unit, t = begin % p.tiles_per_unit, slot = 0;
    i32 at = begin;
    while (at < end) {
        const i32 b = unit / p.Hkv, kv_head = unit % p.Hkv;
        const Row r0 = row_of(p, warp * 16 + lane / 4, kv_head), r1 = row_of(p, warp * 16 + lane / 4 + 8, kv_head);
        const bool warp_has_rows = static_cast<i32>(warp) * 16 < rows;
        load_q(p, b, r0, lane4, q, 0);
        load_q(p, b, r1, lane4, q, 1);
        const float q0 = q_scale_of(p, b, r0), q1 = q_scale_of(p, b, r1);
        const float* ks = p.k_scale + b * p.ks_b + kv_head * p.ks_h;
        const float* vs = p.v_scale + b * p.vs_b + kv_head * p.vs_h;
        const i32 first = t, stop = min(p.tiles_per_unit, t + (end - at));
        reset(st);
        for (; t < stop; ++t, ++at) {
            const float k_scale = ks[(t * KEYS >> 7) * p.ks_t], v_scale = vs[(t * KEYS >> 7) * p.vs_t];
            cp_async_wait<STAGES - 2>();
            fence_async_shared();
            named_barrier_sync(barrier, 128);
            load();
            tile(st, q, base + slot * kStageBytes, vt, q0 * k_scale, q1 * k_scale, v_scale, t * KEYS, clear, r0.limit, r1.limit, warp_has_rows, barrier, warp, lane);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        finish_sums(st);
        const i64 at0 = out_row(p, b, r0), at1 = out_row(p, b, r1);
        if (first == 0 && stop == p.tiles_per_unit) {
            const float f0 = st.sum0 > 0.0f ? 1.0f / st.sum0 : 0.0f, f1 = st.sum1 > 0.0f ? 1.0f / st.sum1 : 0.0f;
#pragma unroll
            for (i32 c = 0; c < D / 16; ++c) {
                const float* o = st.o + 8 * c;
                if (r0.valid) store_out4(p, at0 * D + 16 * c + 4 * lane4, o[0] * f0, o[4] * f0, o[1] * f0, o[5] * f0);
                if (r1.valid) store_out4(p, at1 * D + 16 * c + 4 * lane4, o[2] * f1, o[6] * f1, o[3] * f1, o[7] * f1);
            }
            if (p.lse && lane4 == 0) {
                if (r0.valid) p.lse[at0] = log_sum(st.max0, st.sum0);
                if (r1.valid) p.lse[at1] = log_sum(st.max1, st.sum1);
            }
        } else {
            // Slot 0 of a worker is for the unit that began before it, slot 1 for the one that goes on after it. Maxima and sums lie first.
            const i32 head_floats = 2 * ((rows + 1) & ~1);
            const i64 slot_floats = head_floats + rows * D;
            float* mine = p.partial + (worker * 2 + (first == 0)) * slot_floats;
            const i32 i0 = warp * 16 + lane / 4, i1 = i0 + 8;
#pragma unroll
            for (i32 c = 0; c < D / 16; ++c) {
                const float* o = st.o + 8 * c;
                if (r0.valid) __stcg(reinterpret_cast<float4*>(mine + head_floats + i0 * D + 16 * c + 4 * lane4), make_float4(o[0], o[4], o[1], o[5]));
                if (r1.valid) __stcg(reinterpret_cast<float4*>(mine + head_floats + i1 * D + 16 * c + 4 * lane4), make_float4(o[2], o[6], o[3], o[7]));
            }
            if (lane4 == 0) {
                if (r0.valid) __stcg(reinterpret_cast<float2*>(mine) + i0, make_float2(st.max0, st.sum0));
                if (r1.valid) __stcg(reinterpret_cast<float2*>(mine) + i1, make_float2(st.max1, st.sum1));
            }
            __threadfence();
            named_barrier_sync(barrier, 128);
            const i32 w0 = unit * p.tiles_per_unit / p.tiles_per_worker, w1 = ((unit + 1) * p.tiles_per_unit - 1) / p.tiles_per_worker;
            i32* flag = reinterpret_cast<i32*>(smem + WGS * kGroupBytes) + group;
            if (thread == 0) {
                const i32 before = atomicAdd(p.arrived + unit, 1);
                const i32 is_last = before == w1 - w0;
                if (is_last) p.arrived[unit] = 0;
                *flag = is_last;
            }
            named_barrier_sync(barrier, 128);
            if (*flag) {
                __threadfence();
                for (i32 i = thread; i < rows * (D / 4); i += 128) {
                    const i32 r = i / (D / 4), d = i % (D / 4) * 4;
                    float top = kNegInf;
                    for (i32 w = w0; w <= w1; ++w) {
                        const float* from = p.partial + (w * 2 + (w == w0 && unit * p.tiles_per_unit >= w * p.tiles_per_worker)) * slot_floats;
                        top = fmaxf(top, __ldcg(reinterpret_cast<const float2*>(from) + r).x);
                    }
                    const float zero_top = top == kNegInf ? 0.0f : top;
                    float sum = 0.0f;
                    float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
                    for (i32 w = w0; w <= w1; ++w) {
                        const float* from = p.partial + (w * 2 + (w == w0 && unit * p.tiles_per_unit >= w * p.tiles_per_worker)) * slot_floats;
                        const float2 ms = __ldcg(reinterpret_cast<const float2*>(from) + r);
                        const float4 x = __ldcg(reinterpret_cast<const float4*>(from + head_floats + r * D + d));
                        const float f = ex2(ms.x - zero_top);
                        sum += ms.y * f;
                        acc.x += x.x * f, acc.y += x.y * f, acc.z += x.z * f, acc.w += x.w * f;
                    }
                    const float f = sum > 0.0f ? 1.0f / sum : 0.0f;
                    const Row row = row_of(p, r, kv_head);
                    const i64 to = out_row(p, b, row);
                    store_out4(p, to * D + d, acc.x * f, acc.y * f, acc.z * f, acc.w * f);
                    if (p.lse && d == 0) p.lse[to] = log_sum(top, sum);
                }
            }
        }
        t = 0;
        ++unit;
    }
#endif
}
