// attention_tiny: FP8 attention of launch-bound shapes: each warpgroup of a cluster has one tile of keys, and all meet once.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh; 64 packed rows (tile.cuh) to a cluster of WS_CTAS CTAs of WS_WGS warpgroups, at most CTAS * WGS * KEYS keys.
// Assumes: scales per tensor or head; WS_D 64, 128 or 256; CTAS * WGS at most D / 16; rows on 16 bytes.
// Grid: (row tiles * CTAS, Hkv, B). What bounds such a shape is the length of one chain of latencies and the instructions of few warps:
//     cp.async K, V; load Q | S = Q K^T, V^T meanwhile | softmax of this tile alone | O = P V | send maxima, sums and three quarters of O
//     to the warpgroups that finish them (st.async to distributed shared memory, counted by
//     an mbarrier: a cluster barrier would first drain all memory) | weigh, add, store
// Measured: docs/ledger.md. Comes from: split.cu, where the same work took 8 us of instructions in four warps a scheduler.

#ifndef WS_D
#define WS_D 64
#endif
#ifndef WS_KEYS
#define WS_KEYS 128
#endif
#ifndef WS_WGS
#define WS_WGS 2
#endif
#ifndef WS_CTAS
#define WS_CTAS 2
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
#ifndef WS_TRACE
#define WS_TRACE 0
#endif

#include "softmax.cuh"
#include "tile.cuh"

constexpr i32 CTAS = WS_CTAS, PARTS = CTAS * WGS, kChunks = D / 16 / PARTS;   // chunks of 16 dimensions that a warpgroup finishes
static_assert(D / 16 % PARTS == 0, "the warpgroups of a cluster share the output's dimensions evenly");
constexpr u32 kSwap = WGS * 3 * kTileBytes;                    // [owner][part][chunk][2][128] of 16 bytes
constexpr u32 kStats = kSwap + WGS * PARTS * kChunks * 4096;   // [owner][part][64] of (maximum, sum)
constexpr u32 kBars = kStats + WGS * PARTS * 512;             // [owner]
constexpr u32 kSharedBytes = kBars + 64;
static_assert(kSharedBytes <= 232448, "shared memory of a CTA");

#if WS_TRACE
#define MARK(i) if (thread == 0) reinterpret_cast<u32*>(p.partial)[((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * WGS * 16 + group * 16 + i] = clock()
#else
#define MARK(i)
#endif

extern "C" __global__ void __cluster_dims__(WS_CTAS, 1, 1) __launch_bounds__(WGS * 128, 1) attention_tiny(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) u8 smem[];
    const u32 group = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, lane4 = lane % 4;
    const u32 shared = smem_addr(smem), base = shared + group * 3 * kTileBytes, v_at = base + kTileBytes, vt = v_at + kTileBytes;
    const u32 rank = CTAS > 1 ? blockIdx.x % CTAS : 0, part = rank * WGS + group;
    const i32 b = blockIdx.z, kv_head = blockIdx.y, row_base = blockIdx.x / CTAS * 64, first_key = part * KEYS;
    MARK(0);
    const u32 bar = shared + kBars + group * 8;
    if (thread == 0) {
        mbarrier_init(bar, 1);
        mbarrier_expect_tx(bar, (PARTS - 1) * kChunks * 4096 + PARTS * 512);
        mbarrier_init_fence();
    }
    if (CTAS > 1) {
        // Its other half is before the first store to another CTA: by then every CTA has started and made its barriers.
        __syncwarp();
        cluster_arrive_relaxed();
    }

    load_tile(p.k + b * p.k_b + kv_head * p.k_h, p.k_s, first_key, p.Sk, base, thread);
    load_tile(p.v + b * p.v_b + kv_head * p.v_h, p.v_s, first_key, p.Sk, v_at, thread);
    cp_async_commit();
    const Row r0 = row_of(p, row_base + warp * 16 + lane / 4, kv_head), r1 = row_of(p, row_base + warp * 16 + lane / 4 + 8, kv_head);
    u32 q[D / 8];
    load_q(p, b, r0, lane4, q, 0);
    load_q(p, b, r1, lane4, q, 1);
    const float k_scale = load_f32(p.k_scale + b * p.ks_b + kv_head * p.ks_h), v_scale = load_f32(p.v_scale + b * p.vs_b + kv_head * p.vs_h);
    const float c0 = q_scale_of(p, b, r0) * k_scale, c1 = q_scale_of(p, b, r1) * k_scale;
    MARK(1);
    cp_async_wait<0>();
    fence_async_shared();
    named_barrier_sync(1 + group, 128);
    MARK(2);

    float s[KEYS / 2], o[D / 2];
    u32 pr[KEYS / 8];
    issue_scores(s, q, base);
    transpose_tile<D, KEYS>(v_at, vt, warp, 4, lane);
    fence_async_shared();
    named_barrier_sync(1 + group, 128);
    wgmma_wait<0>();
    pin(s);
    MARK(3);
    const i32 clear = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + (WS_GROUPED ? row_base / p.group : row_base) + 1) : p.Sk;
    if (first_key + KEYS > clear) mask_keys(s, first_key + 2 * static_cast<i32>(lane4), r0.limit, r1.limit);
    float m0, m1, sum0 = 0.0f, sum1 = 0.0f;
    row_max(s, m0, m1);
    m0 = quad_max(m0) * c0;
    m1 = quad_max(m1) * c1;
    MARK(4);
    exponentials<KEYS / 2, WS_POLY>(s, c0, c1, kPShift - (m0 == kNegInf ? 0.0f : m0), kPShift - (m1 == kNegInf ? 0.0f : m1), sum0, sum1);
    pack_probabilities(s, pr);
    pin(pr);
    MARK(5);
#pragma unroll
    for (i32 n = 0; n < D / 64; ++n) issue_values(o + 32 * n, pr, vt, n);
    // A row of this tile without any key has no say.
    sum0 = m0 == kNegInf ? 0.0f : quad_sum(sum0);
    sum1 = m1 == kNegInf ? 0.0f : quad_sum(sum1);
    if (CTAS > 1) cluster_wait();
    else __syncthreads();
    const u32 row = warp * 16 + lane / 4;
#pragma unroll
    for (u32 owner = lane4; owner < PARTS; owner += 4) {
        const u32 to = cluster_addr(shared + kStats + ((owner % WGS) * PARTS + part) * 512 + row * 8, owner / WGS);
        const u32 to_bar = cluster_addr(shared + kBars + owner % WGS * 8, owner / WGS);
        cluster_send2(to, to_bar, m0, sum0);
        cluster_send2(to + 64, to_bar, m1, sum1);
    }
    wgmma_wait<0>();
    pin(o);
    MARK(6);
    float mine[kChunks][8];
#pragma unroll
    for (u32 c = 0; c < D / 16; ++c) {
        // Columns of block 2 c are dimensions 4 j and 4 j + 2, of block 2 c + 1 4 j + 1 and 4 j + 3 (transpose.cuh).
        constexpr u32 kOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};
        const u32 owner = c / kChunks, i = c % kChunks;
        const float* x = o + 8 * c;
        if (owner == part) {
#pragma unroll
            for (u32 e = 0; e < 8; ++e) mine[i][e] = x[kOrder[e]];
        } else {
            const u32 to = cluster_addr(shared + kSwap + (((owner % WGS) * PARTS + part) * kChunks + i) * 4096 + thread * 16, owner / WGS);
            const u32 to_bar = cluster_addr(shared + kBars + owner % WGS * 8, owner / WGS);
            cluster_send4(to, to_bar, x[0], x[4], x[1], x[5]);
            cluster_send4(to + 2048, to_bar, x[2], x[6], x[3], x[7]);
        }
    }
    MARK(7);
    mbarrier_wait(bar, 0);
    MARK(8);

    const float2* stats = reinterpret_cast<const float2*>(smem + kStats) + group * PARTS * 64;
    float2 st0[PARTS], st1[PARTS];
    float top0 = kNegInf, top1 = kNegInf;
#pragma unroll
    for (i32 i = 0; i < PARTS; ++i) {
        st0[i] = stats[i * 64 + row];
        st1[i] = stats[i * 64 + row + 8];
        top0 = fmaxf(top0, st0[i].x);
        top1 = fmaxf(top1, st1[i].x);
    }
    float all0 = 0.0f, all1 = 0.0f;
    const float z0 = top0 == kNegInf ? 0.0f : top0, z1 = top1 == kNegInf ? 0.0f : top1;
#pragma unroll
    for (i32 i = 0; i < PARTS; ++i) {
        st0[i].x = ex2(st0[i].x - z0);
        st1[i].x = ex2(st1[i].x - z1);
        all0 = fmaf(st0[i].x, st0[i].y, all0);
        all1 = fmaf(st1[i].x, st1[i].y, all1);
    }
    const float f0 = all0 > 0.0f ? v_scale * rcp(all0) : 0.0f, f1 = all1 > 0.0f ? v_scale * rcp(all1) : 0.0f;
    const float w0 = ex2(m0 - z0), w1 = ex2(m1 - z1);
    const i64 at0 = out_row(p, b, r0), at1 = out_row(p, b, r1);
#pragma unroll
    for (u32 c = 0; c < kChunks; ++c) {
        float y[8];
#pragma unroll
        for (u32 e = 0; e < 8; ++e) y[e] = mine[c][e] * (e < 4 ? w0 : w1);
#pragma unroll
        for (u32 i = 0; i < PARTS; ++i) {
            if (i == part) continue;   // its own share is not in shared memory
            const float4* from = reinterpret_cast<const float4*>(smem + kSwap + ((group * PARTS + i) * kChunks + c) * 4096 + thread * 16);
            const float4 a = from[0], d = from[128];
            y[0] = fmaf(a.x, st0[i].x, y[0]), y[1] = fmaf(a.y, st0[i].x, y[1]), y[2] = fmaf(a.z, st0[i].x, y[2]), y[3] = fmaf(a.w, st0[i].x, y[3]);
            y[4] = fmaf(d.x, st1[i].x, y[4]), y[5] = fmaf(d.y, st1[i].x, y[5]), y[6] = fmaf(d.z, st1[i].x, y[6]), y[7] = fmaf(d.w, st1[i].x, y[7]);
        }
        const u32 dim = 16 * (part * kChunks + c) + 4 * lane4;
        if (r0.valid) store_out4(p, at0 * D + dim, y[0] * f0, y[1] * f0, y[2] * f0, y[3] * f0);
        if (r1.valid) store_out4(p, at1 * D + dim, y[4] * f1, y[5] * f1, y[6] * f1, y[7] * f1);
    }
    if (p.lse && part == 0 && lane4 == 0) {
        if (r0.valid) p.lse[at0] = all0 > 0.0f ? (top0 + lg2(all0) - kPShift) * kLn2 : kNegInf;
        if (r1.valid) p.lse[at1] = all1 > 0.0f ? (top1 + lg2(all1) - kPShift) * kLn2 : kNegInf;
    }
    MARK(9);
}
