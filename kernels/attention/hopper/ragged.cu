// attention_ragged: FP8 attention of sequences whose lengths, and the places of whose keys, are known to the device only.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Queries lie one sequence behind another (cu_q) or as (B, Hq, Sq, D); keys one behind another (cu_k), in a cache of which a part is used
// (used), or in pages of a pool (pages). Nothing is read on the host, so a captured launch follows the lengths of each replay. Rows are
// packed as in tile.cuh; causal is aligned bottom-right in each sequence. Scales per tensor, sequence and head, or block of 128 tokens.
// Assumes: WS_D 64, 128 or 256; rows on 16 bytes. Lengths are held within the tensors, page numbers within the pool: wrong ones give wrong
// values, never a fault.
// Grid: (row tiles of the longest sequence, Hkv * splits, B). The warpgroups of a CTA take its share of the tiles in turn and meet in shared
// memory; the splits of a row tile meet in `partial`, and the last of them writes (counters return to zero).
// Comes from: split.cu, whose limits on speed it has: a row tile is 64 rows, however few there are. Measured: docs/ledger.md.

#ifndef WS_D
#define WS_D 128
#endif
#ifndef WS_KEYS
#define WS_KEYS 64
#endif
#ifndef WS_WGS
#define WS_WGS 4
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
#include "sequence.cuh"

constexpr i32 STAGES = WS_D == 256 ? 1 : 2;
constexpr u32 kStageBytes = 2 * kTileBytes;
constexpr u32 kGroupBytes = STAGES * kStageBytes + kTileBytes;
constexpr u32 kSwapBytes = WGS * 512 + WGS * D * 256;
constexpr u32 kFlag = WGS * kGroupBytes > kSwapBytes ? WGS * kGroupBytes : kSwapBytes;
constexpr u32 kSharedBytes = kFlag + 16;
static_assert(kSharedBytes <= 232448, "shared memory of a CTA");

WS_DEV void load_ragged_tile(const Params& p, const Ragged& x, const u8* base, i64 page_stride, i64 stride, i32 b, const Sequence& q, i32 first, u32 smem, u32 thread) {
    constexpr u32 kChunks = D / 16, kRows = 128 / kChunks;
    const u32 chunk = thread % kChunks;
    const u32 half = D > 128 ? (chunk >> 3) * (KEYS * 128) : 0;
#pragma unroll
    for (u32 i = 0; i < KEYS / kRows; ++i) {
        const u32 row = thread / kChunks + i * kRows;
        const i32 key = first + static_cast<i32>(row);
        const bool inside = key < q.keys;
        const u8* src = base + chunk * 16;
        if (inside) {
            if (x.pages) {
                const i32 page = min(max(__ldg(x.pages + b * x.pages_b + key / x.page_size), 0), x.page_count - 1);
                src += page * page_stride + key % x.page_size * stride;
            } else {
                src += (q.first_k + key) * stride;
            }
        }
        cp_async_16(smem + half + swizzled<kPitch>(row, D > 128 ? (chunk & 7) : chunk), src, inside ? 16 : 0);
    }
}

extern "C" __global__ void __launch_bounds__(WGS * 128, 1) attention_ragged(const __grid_constant__ Params p, const __grid_constant__ Ragged x) {
    extern __shared__ __align__(1024) u8 smem[];
    const u32 group = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, lane4 = lane % 4;
    const u32 base = smem_addr(smem) + group * kGroupBytes;
    const u32 vt = base + STAGES * kStageBytes, barrier = 1 + group;
    let_next_kernel_start();
    wait_for_earlier_kernels();

    const i32 b = blockIdx.z, kv_head = blockIdx.y / x.splits, split = blockIdx.y % x.splits, row_base = blockIdx.x * 64;
    const Sequence seq = sequence_of(p, x, b);
    const i32 rows = p.group * seq.queries;
    if (row_base >= rows) return;   // the whole CTA; its counter is never asked for
    i32 head[2], query[2], limit[2];
    bool valid[2];
    float q_scale[2];
    u32 q[D / 8];
    const u8* q_base = p.q + (x.cu_q ? seq.first_q * p.q_s : b * p.q_b);
#pragma unroll
    for (i32 h = 0; h < 2; ++h) {
        const i32 r = row_base + warp * 16 + lane / 4 + 8 * h;
        query[h] = r / p.group;
        head[h] = kv_head * p.group + r % p.group;
        valid[h] = r < rows;
        limit[h] = WS_CAUSAL ? min(seq.keys, seq.keys - seq.queries + query[h] + 1) : seq.keys;
        const u8* src = q_base + head[h] * p.q_h + query[h] * p.q_s + lane4 * 4;
#pragma unroll
        for (i32 i = 0; i < D / 16; ++i) q[2 * i + h] = valid[h] ? load_u32(src + 16 * i) : 0;
        q_scale[h] = valid[h] ? load_f32(p.q_scale + b * p.qs_b + head[h] * p.qs_h + (query[h] >> 7) * p.qs_t) * p.softmax_scale_log2 : 0.0f;
    }
    const bool warp_has_rows = row_base + static_cast<i32>(warp) * 16 < rows;
    const float* ks = p.k_scale + b * p.ks_b + kv_head * p.ks_h;
    const float* vs = p.v_scale + b * p.vs_b + kv_head * p.vs_h;
    const u8* k = p.k + kv_head * p.k_h + (x.pages || x.cu_k ? 0 : b * p.k_b);
    const u8* v = p.v + kv_head * p.v_h + (x.pages || x.cu_k ? 0 : b * p.v_b);

    // The share of this split in the tiles that any row of the tile sees.
    const i32 last_query = min(seq.queries, (row_base + 63) / p.group + 1);
    const i32 last = WS_CAUSAL ? min(seq.keys, seq.keys - seq.queries + last_query) : seq.keys;
    const i32 clear = WS_CAUSAL ? min(seq.keys, seq.keys - seq.queries + row_base / p.group + 1) : seq.keys;
    const i32 all = last > 0 ? (last + KEYS - 1) / KEYS : 0, share = (all + x.splits - 1) / x.splits;
    const i32 begin = min(all, split * share), end = min(all, begin + share);
    State st;
    reset(st);
    auto load = [&](i32 t, u32 slot) {
        if (t < end) {
            load_ragged_tile(p, x, k, p.k_b, p.k_s, b, seq, t * KEYS, base + slot * kStageBytes, thread);
            load_ragged_tile(p, x, v, p.v_b, p.v_s, b, seq, t * KEYS, base + slot * kStageBytes + kTileBytes, thread);
        }
        cp_async_commit();
    };
    load(begin + group, 0);
    i32 slot = 0;
    for (i32 t = begin + group; t < end; t += WGS) {
        const float k_scale = ks[(t * KEYS >> 7) * p.ks_t], v_scale = vs[(t * KEYS >> 7) * p.vs_t];
        cp_async_wait<0>();
        fence_async_shared();
        named_barrier_sync(barrier, 128);
        if (STAGES > 1) load(t + WGS, slot ^ 1);
        tile(st, q, base + slot * kStageBytes, vt, q_scale[0] * k_scale, q_scale[1] * k_scale, v_scale, t * KEYS, clear, limit[0], limit[1], warp_has_rows, barrier,
             warp, lane);
        if (STAGES == 1 && t + WGS < end) {
            named_barrier_sync(barrier, 128);
            load(t + WGS, 0);
        }
        if (STAGES > 1) slot ^= 1;
    }
    finish_sums(st);

    // The warpgroups meet: each weighs its output, hands the others their dimensions of it, and finishes its own.
    cp_async_wait<0>();
    __syncthreads();
    float* stats = reinterpret_cast<float*>(smem);                  // [WGS][2][64]: maximum, sum
    float4* swap = reinterpret_cast<float4*>(smem + WGS * 512);     // [to][from][D / 16 / WGS][2][128]
    const u32 row = warp * 16 + lane / 4;
    if (lane4 == 0) {
        stats[group * 128 + row] = st.max0;
        stats[group * 128 + row + 8] = st.max1;
        stats[group * 128 + 64 + row] = st.sum0;
        stats[group * 128 + 64 + row + 8] = st.sum1;
    }
    __syncthreads();
    float top0 = kNegInf, top1 = kNegInf, sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (i32 g = 0; g < WGS; ++g) {
        top0 = fmaxf(top0, stats[g * 128 + row]);
        top1 = fmaxf(top1, stats[g * 128 + row + 8]);
    }
    const float b0 = top0 == kNegInf ? 0.0f : top0, b1 = top1 == kNegInf ? 0.0f : top1;
#pragma unroll
    for (i32 g = 0; g < WGS; ++g) {
        sum0 += stats[g * 128 + 64 + row] * ex2(stats[g * 128 + row] - b0);
        sum1 += stats[g * 128 + 64 + row + 8] * ex2(stats[g * 128 + row + 8] - b1);
    }
    const float f0 = sum0 > 0.0f ? ex2(st.max0 - b0) / sum0 : 0.0f, f1 = sum1 > 0.0f ? ex2(st.max1 - b1) / sum1 : 0.0f;
    constexpr i32 kChunks = D / 16 / WGS;
    static_assert(WGS <= D / 16 && (D / 16) % WGS == 0, "the warpgroups share the output's dimensions evenly");
#pragma unroll
    for (i32 c = 0; c < D / 16; ++c) {
        float* o = st.o + 8 * c;
        // Columns of block 2 c are dimensions 4 j and 4 j + 2, of block 2 c + 1 4 j + 1 and 4 j + 3 (transpose.cuh).
        const float4 y0 = make_float4(o[0] * f0, o[4] * f0, o[1] * f0, o[5] * f0), y1 = make_float4(o[2] * f1, o[6] * f1, o[3] * f1, o[7] * f1);
        const u32 to = c / kChunks, i = c % kChunks;
        if (to == group) {
            o[0] = y0.x, o[1] = y0.y, o[2] = y0.z, o[3] = y0.w, o[4] = y1.x, o[5] = y1.y, o[6] = y1.z, o[7] = y1.w;
        } else {
            swap[((to * WGS + group) * kChunks + i) * 256 + thread] = y0;
            swap[((to * WGS + group) * kChunks + i) * 256 + 128 + thread] = y1;
        }
    }
    __syncthreads();
    const i64 at0 = (x.cu_q ? seq.first_q * x.o_s : b * x.o_b) + head[0] * x.o_h + query[0] * x.o_s;
    const i64 at1 = (x.cu_q ? seq.first_q * x.o_s : b * x.o_b) + head[1] * x.o_h + query[1] * x.o_s;
    const i64 unit = (static_cast<i64>(b) * p.Hkv + kv_head) * gridDim.x + blockIdx.x;
    float* mine = p.partial + (unit * x.splits + split) * (64 * (D + 2));   // [64] of (maximum, sum), then [64][D]
#pragma unroll
    for (i32 c = 0; c < D / 16; ++c) {
        if (c / kChunks != group) continue;
        float* o = st.o + 8 * c;
#pragma unroll
        for (u32 g = 0; g < WGS; ++g) {
            if (g == group) continue;
            const float4 y0 = swap[((group * WGS + g) * kChunks + c % kChunks) * 256 + thread];
            const float4 y1 = swap[((group * WGS + g) * kChunks + c % kChunks) * 256 + 128 + thread];
            o[0] += y0.x, o[1] += y0.y, o[2] += y0.z, o[3] += y0.w, o[4] += y1.x, o[5] += y1.y, o[6] += y1.z, o[7] += y1.w;
        }
        if (x.splits == 1) {
            if (valid[0]) store_out4(p, at0 + 16 * c + 4 * lane4, o[0], o[1], o[2], o[3]);
            if (valid[1]) store_out4(p, at1 + 16 * c + 4 * lane4, o[4], o[5], o[6], o[7]);
        } else {
            if (valid[0]) __stcg(reinterpret_cast<float4*>(mine + 128 + row * D + 16 * c + 4 * lane4), make_float4(o[0], o[1], o[2], o[3]));
            if (valid[1]) __stcg(reinterpret_cast<float4*>(mine + 128 + (row + 8) * D + 16 * c + 4 * lane4), make_float4(o[4], o[5], o[6], o[7]));
        }
    }
    const i64 l0 = (x.cu_q ? seq.first_q * x.l_s : b * x.l_b);
    if (group == 0 && lane4 == 0) {
        if (x.splits == 1) {
            if (p.lse && valid[0]) p.lse[l0 + head[0] * x.l_h + query[0] * x.l_s] = log_sum(top0, sum0);
            if (p.lse && valid[1]) p.lse[l0 + head[1] * x.l_h + query[1] * x.l_s] = log_sum(top1, sum1);
        } else {
            if (valid[0]) __stcg(reinterpret_cast<float2*>(mine) + row, make_float2(top0, sum0));
            if (valid[1]) __stcg(reinterpret_cast<float2*>(mine) + row + 8, make_float2(top1, sum1));
        }
    }
    if (x.splits == 1) return;

    __threadfence();
    __syncthreads();
    i32* flag = reinterpret_cast<i32*>(smem + kFlag);
    if (threadIdx.x == 0) {
        const bool is_last = atomicAdd(p.arrived + unit, 1) == x.splits - 1;
        if (is_last) p.arrived[unit] = 0;
        *flag = is_last;
    }
    __syncthreads();
    if (!*flag) return;
    __threadfence();
    const float* parts = p.partial + unit * x.splits * (64 * (D + 2));
    for (i32 i = threadIdx.x; i < min(64, rows - row_base) * (D / 4); i += WGS * 128) {
        const i32 r = i / (D / 4), d = i % (D / 4) * 4;
        float top = kNegInf, sum = 0.0f;
        float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (i32 s = 0; s < x.splits; ++s) top = fmaxf(top, __ldcg(reinterpret_cast<const float2*>(parts + s * (64 * (D + 2))) + r).x);
        const float zero_top = top == kNegInf ? 0.0f : top;
#pragma unroll 4
        for (i32 s = 0; s < x.splits; ++s) {
            const float* from = parts + s * (64 * (D + 2));
            const float2 ms = __ldcg(reinterpret_cast<const float2*>(from) + r);
            const float4 y = __ldcg(reinterpret_cast<const float4*>(from + 128 + r * D + d));
            const float f = ms.y * ex2(ms.x - zero_top);
            sum += f;
            acc.x = fmaf(y.x, f, acc.x), acc.y = fmaf(y.y, f, acc.y), acc.z = fmaf(y.z, f, acc.z), acc.w = fmaf(y.w, f, acc.w);
        }
        const float f = sum > 0.0f ? 1.0f / sum : 0.0f;
        const i32 packed = row_base + r, qi = packed / p.group, hi = kv_head * p.group + packed % p.group;
        store_out4(p, (x.cu_q ? seq.first_q * x.o_s : b * x.o_b) + hi * x.o_h + qi * x.o_s + d, acc.x * f, acc.y * f, acc.z * f, acc.w * f);
        if (p.lse && d == 0) p.lse[l0 + hi * x.l_h + qi * x.l_s] = log_sum(top, sum);
    }
}
