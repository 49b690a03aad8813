// attention_tiny: FP8 attention of launch-bound shapes: each CTA of a cluster has one tile of keys, and all meet once.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh; 64 WS_WGS packed rows (tile.cuh) to a cluster of WS_CTAS CTAs, at most CTAS * KEYS keys.
// Assumes: scales per tensor or head; WS_D 64, 128 or 256; CTAS at most D / 16; rows on 16 bytes.
// Grid: (row tiles * CTAS, Hkv, B). What bounds such a shape is the length of one chain of latencies, the instructions of few warps, and
// what the L2 delivers to all SMs at once: so a CTA has many rows and few keys, and nothing is read twice within it.
//     cp.async K, V; load Q | S = Q K^T, V^T meanwhile | softmax of this tile alone | O = P V | send maxima, sums, and the other CTAs'
//     share of O in f16 (st.async to distributed shared memory, counted by an mbarrier: a cluster barrier would first drain all memory) |
//     weigh, add, store
// Losers (mission 1x8x512x64 on an H200, 2026-11-21, graph replay): split.cu, four warpgroups of 128 keys on the same 64 rows 8.0 us (four
// warps a scheduler, 2200 instructions each); a cluster of two CTAs of 64 rows by 256 keys 5.6 us (2300 cycles of it for 36 KB a CTA from the L2).
// Measured: docs/ledger.md. Comes from: split.cu.

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

constexpr i32 CTAS = WS_CTAS, THREADS = 128 * WGS, kChunks = D / 16 / CTAS;   // chunks of 16 dimensions that a CTA finishes
static_assert(D / 16 % CTAS == 0, "the CTAs of a cluster share the output's dimensions evenly");
constexpr u32 kV = kTileBytes, kVt = 2 * kTileBytes;
constexpr u32 kSwap = 3 * kTileBytes;                          // [group][part][chunk][128] of 16 bytes
constexpr u32 kStats = kSwap + WGS * CTAS * kChunks * 2048;    // [group][part][64] of (maximum, sum)
constexpr u32 kBars = kStats + WGS * CTAS * 512;               // [group]
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
    const u32 shared = smem_addr(smem), part = CTAS > 1 ? blockIdx.x % CTAS : 0;
    const i32 b = blockIdx.z, kv_head = blockIdx.y, row_base = (blockIdx.x / CTAS * WGS + group) * 64, first_key = part * KEYS;
    MARK(0);
    const u32 bar = shared + kBars + group * 8;
    if (thread == 0) {
        mbarrier_init(bar, 1);
        mbarrier_expect_tx(bar, (CTAS - 1) * kChunks * 2048 + CTAS * 512);
        mbarrier_init_fence();
    }
    if (CTAS > 1) {
        // Its other half is before the first store to another CTA: by then every CTA has started and made its barriers.
        __syncwarp();
        cluster_arrive_relaxed();
    }

    wait_for_earlier_kernels();
    load_tile<THREADS>(p.k + b * p.k_b + kv_head * p.k_h, p.k_s, first_key, p.Sk, shared, threadIdx.x);
    load_tile<THREADS>(p.v + b * p.v_b + kv_head * p.v_h, p.v_s, first_key, p.Sk, shared + kV, threadIdx.x);
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
    __syncthreads();
    MARK(2);

    float s[KEYS / 2], o[D / 2];
    u32 pr[KEYS / 8];
    issue_scores(s, q, shared);
    transpose_tile<D, KEYS>(shared + kV, shared + kVt, threadIdx.x / 32, 4 * WGS, lane);
    fence_async_shared();
    __syncthreads();
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
    for (i32 n = 0; n < D / 64; ++n) issue_values(o + 32 * n, pr, shared + kVt, n);
    // A row of this tile without any key has no say.
    sum0 = quad_sum(sum0);   // before the choice: a shuffle under a condition that differs between lanes never returns
    sum1 = quad_sum(sum1);
    sum0 = m0 == kNegInf ? 0.0f : sum0;
    sum1 = m1 == kNegInf ? 0.0f : sum1;
    const float i0 = sum0 > 0.0f ? rcp(sum0) : 0.0f, i1 = sum1 > 0.0f ? rcp(sum1) : 0.0f;
    if (CTAS > 1) cluster_wait();
    const u32 row = warp * 16 + lane / 4;
    const u32 stats_at = shared + kStats + (group * CTAS + part) * 512 + row * 8;
#pragma unroll
    for (u32 owner = lane4; owner < CTAS; owner += 4) {
        const u32 to = cluster_addr(stats_at, owner), to_bar = cluster_addr(bar, owner);
        cluster_send2(to, to_bar, m0, sum0);
        cluster_send2(to + 64, to_bar, m1, sum1);
    }
    wgmma_wait<0>();
    pin(o);
    MARK(6);
    // Outputs of one part alone are at most 448: f16 holds them to 11 bits.
    float mine[kChunks][8];
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
    const i64 at0 = out_row(p, b, r0), at1 = out_row(p, b, r1);
    MARK(7);
    let_next_kernel_start();   // PERF: earlier, the next kernel's CTAs take issue slots from these: 5.3 us instead of 4.5 at the mission shape
    mbarrier_wait(bar, 0);
    MARK(8);

    const float2* stats = reinterpret_cast<const float2*>(smem + kStats) + group * CTAS * 64;
    float2 st0[CTAS], st1[CTAS];
    float top0 = kNegInf, top1 = kNegInf;
#pragma unroll
    for (i32 i = 0; i < CTAS; ++i) {
        st0[i] = stats[i * 64 + row];
        st1[i] = stats[i * 64 + row + 8];
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
#pragma unroll
    for (u32 c = 0; c < kChunks; ++c) {
        float y[8];
#pragma unroll
        for (u32 e = 0; e < 8; ++e) y[e] = mine[c][e] * (e < 4 ? own0 : own1);
#pragma unroll
        for (u32 i = 0; i < CTAS; ++i) {
            if (i == part) continue;   // its own share is not in shared memory
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
    if (p.lse && part == 0 && lane4 == 0) {
        if (r0.valid) p.lse[at0] = all0 > 0.0f ? (top0 + lg2(all0) - kPShift) * kLn2 : kNegInf;
        if (r1.valid) p.lse[at1] = all1 > 0.0f ? (top1 + lg2(all1) - kPShift) * kLn2 : kNegInf;
    }
    MARK(9);
}
