// attention_split: FP8 attention whose keys are split over the warpgroups of a CTA.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh. Rows are packed: row r of a key head is query r / group of query head r % group, 64 rows to a tile; so grouped
// heads and few queries share one pass over the keys. Any Sq, Sk, group; scales per tensor, head or block of 128 tokens.
// Assumes: WS_D 64, 128 or 256; WS_KEYS 64 or 128; rows on 16 bytes.
// Roles: every warpgroup is alone: it loads its own tiles with cp.async (WS_STAGES deep), multiplies, transposes V, multiplies.
//     tile t:  wait(t) | bar | load(t + STAGES - 1) | S = Q K^T (wgmma, Q in registers) . V^T meanwhile | bar | softmax | T = P V, O = O a + T
//   grid (row tiles, Hkv, B); warpgroup w takes tiles w, w + WGS, ...; outputs are combined through shared memory.
// Every tile's product starts from zero and is added to f32, so the tensor core's narrow accumulator never sums over more than WS_KEYS keys.
// Loser: keys over the warpgroups of the whole grid, combined by whichever comes last: decode.cu and few.cuh took all that it was for (2026-11-25: 3 of 16,816 choices for 4,204 random shapes were still it).
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
}
