//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_80", "sm_90"]
//! constraints = ["D == 64 || D == 128"]
//! formats = ["e4m3", "e5m2", "u8"]
//! scales = ["head", "tensor", "block"]
//! defines = ["D", "format", "scales"]
//! precision = "f16"
//! [[launch]]
//! entry = "fp8_sdpa_level_01"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [128]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]

// Level 01, WMMA for Q K^T: half of the arithmetic goes to the tensor cores.
//
//   out = softmax(softmax_scale * (q q_scale) (k k_scale)^T) (v v_scale), row by row, keys in tiles with a running maximum.
//
// Shapes    q, k, v (B, H, S, D) codes of 8 bits, contiguous; scales f32; out f16 (B, H, S, D). causal: row i sees keys 0..i.
//           Scales (), (B, H) or (B, H, ceil(S / 128)): each tile of keys lies in one block of 128, and so do a warp's rows.
// Assumes   D 64 or 128; any S; positive scales. All three formats are exact in f16.
// Roles     A CTA of four warps owns 64 queries of one head, a warp 16 of them. Q stays in WMMA fragments. A tile of 2048 / D
//           keys at a time:
//             stage K as f16, V as f32 -> barrier -> S = Q K^T by WMMA, to shared memory -> softmax, P over S -> P V by FMA -> barrier
//           In softmax and P V two neighbouring lanes share a row; S and P are the warp's own, so they need no barrier of the CTA.
// Changed   Against level 00: Q K^T by wmma.mma m16n16k16 f16 with f32 accumulators; scores pass through shared memory, since
//           nobody may know how an accumulator lies in registers.
// Predicted Of the two equal products one goes to a unit four times as fast: 1 / (1/2 + 1/8) = 1.6 times at best, less what the
//           scores' way through shared memory costs (8 bytes written and 8 read a score).
// Resources Registers at D 64: 125 (sm_89), 89 (sm_90); at 128: 169, 133; no spills. Shared memory 31,232 and 35,072 bytes.
//           (e4m3, NVRTC and ptxas 13.0.88.)
// Measured  49.9 us on an H200 at 1x8x512x64, no mask, e4m3, graph replay with cold inputs: 1.63 times level 00's speed.
// From      level_00.

#include <mma.h>
#include <warpsmith/fp8.cuh>
#include <warpsmith/scales.cuh>
#include <warpsmith/shfl.cuh>

constexpr int kHeadDim = WS_D;
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kBlockM = 16 * kWarps, kBlockN = 2048 / kHeadDim;
constexpr int kRowK = kHeadDim + 8;  // halves: 16 bytes of padding move each row by four banks
constexpr int kRowS = kBlockN + 4;   // floats, likewise
constexpr int kLaneDims = kHeadDim / 2, kLaneKeys = kBlockN / 2;  // two lanes share a row
static_assert(kHeadDim == 64 || kHeadDim == 128, "a tile of 2048 codes is one 16-byte load a thread");
static_assert(kBlockN * kHeadDim == 16 * kThreads, "each thread stages 16 codes of K");
static_assert(warpsmith::kScaleBlock % kBlockN == 0, "a tile has one scale");

using namespace nvcuda;
using FragmentQ = wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major>;
using FragmentK = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major>;
using FragmentS = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// Sixteen codes of a row, widened to f16. Rows past the end repeat the last one: their weight is zero.
static __device__ __forceinline__ void stage_f16(__half* smem_tile, const u8* gmem_tile, u32 chunk, int last_row)
{
    constexpr int kChunks = kHeadDim / 16;
    const int row = chunk / kChunks, column = chunk % kChunks * 16;
    const uint4 codes = *reinterpret_cast<const uint4*>(gmem_tile + min(row, last_row) * kHeadDim + column);
    uint4 lo, hi;
    warpsmith::decode_f16(lo, hi, codes);
    uint4* dst = reinterpret_cast<uint4*>(smem_tile + row * kRowK + column);
    dst[0] = lo;
    dst[1] = hi;
}

// A tile of codes, widened to f32, without padding: two neighbouring lanes read one row.
static __device__ __forceinline__ void stage_f32(float* smem_tile, const u8* gmem_tile, int last_row)
{
    constexpr int kGroups = kHeadDim / 4;  // of four codes, in a row
#pragma unroll
    for (int j = 0; j < kBlockN * kGroups / kThreads; ++j) {
        const u32 i = j * kThreads + threadIdx.x, group = i % kGroups;
        const int row = i / kGroups;
        const u32 codes = reinterpret_cast<const u32*>(gmem_tile)[min(row, last_row) * kGroups + group];
        reinterpret_cast<float4*>(smem_tile)[i] = warpsmith::decode_f32(codes);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
fp8_sdpa_level_01(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v,
                  const float* __restrict__ q_scale, const float* __restrict__ k_scale, const float* __restrict__ v_scale,
                  u16* __restrict__ out, float softmax_scale, int seqlen, int causal)
{
    __shared__ __align__(32) __half smem_q[kBlockM * kRowK];
    __shared__ __align__(32) __half smem_k[kBlockN * kRowK];
    __shared__ __align__(32) float smem_v[kBlockN * kHeadDim];
    __shared__ __align__(32) float smem_s[kWarps][16 * kRowS];  // scores, then probabilities

    // phase: prologue
    const u32 head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % 2;
    const int m0 = blockIdx.x * kBlockM, row = m0 + warp * 16 + lane / 2;
    const size_t head_offset = static_cast<size_t>(head) * seqlen * kHeadDim;
    const float q_descale = warpsmith::scale_of(q_scale, head, min(row, seqlen - 1), seqlen);
    const float scale = q_descale * warpsmith::head_scale(k_scale, head) * softmax_scale * 1.4426950408889634f;  // exp(x) = 2^(x log2 e)
    const float ninf = __int_as_float(0xff800000);

#pragma unroll
    for (int j = 0; j < kBlockM / kBlockN; ++j)
        stage_f16(smem_q, q + head_offset + static_cast<size_t>(m0) * kHeadDim, j * kThreads + threadIdx.x, seqlen - 1 - m0);
    __syncthreads();
    FragmentQ reg_q[kHeadDim / 16];  // (16, D)
#pragma unroll
    for (int kk = 0; kk < kHeadDim / 16; ++kk) wmma::load_matrix_sync(reg_q[kk], smem_q + warp * 16 * kRowK + kk * 16, kRowK);

    float4 reg_o[kLaneDims / 4];  // (D / 2,), every second group of four
#pragma unroll
    for (int i = 0; i < kLaneDims / 4; ++i) reg_o[i] = {0.f, 0.f, 0.f, 0.f};
    float row_max = ninf, row_sum = 0.f;  // of the scores before scaling; of the lane's keys
    const int row_end = causal ? min(seqlen, row + 1) : seqlen;        // keys that this row sees
    const int cta_end = causal ? min(seqlen, m0 + kBlockM) : seqlen;  // keys that any row of the CTA sees

    for (int n0 = 0; n0 < cta_end; n0 += kBlockN) {
        // phase: stage
        const size_t tile = head_offset + static_cast<size_t>(n0) * kHeadDim;
        const float k_descale = warpsmith::tile_scale(k_scale, head, n0, seqlen), v_descale = warpsmith::tile_scale(v_scale, head, n0, seqlen);
        stage_f16(smem_k, k + tile, threadIdx.x, seqlen - 1 - n0);
        stage_f32(smem_v, v + tile, seqlen - 1 - n0);
        __syncthreads();

        // phase: scores
#pragma unroll
        for (int nb = 0; nb < kBlockN; nb += 16) {
            FragmentS acc;  // (16, 16)
            wmma::fill_fragment(acc, 0.f);
#pragma unroll
            for (int kk = 0; kk < kHeadDim / 16; ++kk) {
                FragmentK b;
                wmma::load_matrix_sync(b, smem_k + nb * kRowK + kk * 16, kRowK);
                wmma::mma_sync(acc, reg_q[kk], b, acc);
            }
            wmma::store_matrix_sync(smem_s[warp] + nb, acc, kRowS, wmma::mem_row_major);
        }
        __syncwarp();

        // phase: softmax
        float4* lane_s = reinterpret_cast<float4*>(smem_s[warp] + lane / 2 * kRowS + part * kLaneKeys);
        float s[kLaneKeys], tile_max = row_max;
#pragma unroll
        for (int i = 0; i < kLaneKeys / 4; ++i) {
            const float4 x = lane_s[i];
            const int key = n0 + part * kLaneKeys + 4 * i;
            s[4 * i] = key < row_end ? x.x * k_descale : ninf;
            s[4 * i + 1] = key + 1 < row_end ? x.y * k_descale : ninf;
            s[4 * i + 2] = key + 2 < row_end ? x.z * k_descale : ninf;
            s[4 * i + 3] = key + 3 < row_end ? x.w * k_descale : ninf;
        }
#pragma unroll
        for (int i = 0; i < kLaneKeys; ++i) tile_max = fmaxf(tile_max, s[i]);
        tile_max = fmaxf(tile_max, ptx::shfl_sync_bfly(tile_max, 1));
        const float rescale = ptx::ex2_approx_ftz((row_max - tile_max) * scale), offset = -tile_max * scale;
        row_max = tile_max;
        row_sum *= rescale;
#pragma unroll
        for (int i = 0; i < kLaneKeys; ++i) {
            s[i] = ptx::ex2_approx_ftz(fmaf(s[i], scale, offset));
            row_sum += s[i];
        }
#pragma unroll
        for (int i = 0; i < kLaneKeys / 4; ++i)
            lane_s[i] = {s[4 * i] * v_descale, s[4 * i + 1] * v_descale, s[4 * i + 2] * v_descale, s[4 * i + 3] * v_descale};
        __syncwarp();

        // phase: values
#pragma unroll
        for (int i = 0; i < kLaneDims / 4; ++i) {
            reg_o[i].x *= rescale;
            reg_o[i].y *= rescale;
            reg_o[i].z *= rescale;
            reg_o[i].w *= rescale;
        }
#pragma unroll 2
        for (int n = 0; n < kBlockN; n += 4) {
            const float4 p4 = *reinterpret_cast<const float4*>(smem_s[warp] + lane / 2 * kRowS + n);
            const float p[4] = {p4.x, p4.y, p4.z, p4.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float4* value = reinterpret_cast<const float4*>(smem_v + (n + j) * kHeadDim) + part;
#pragma unroll
                for (int i = 0; i < kLaneDims / 4; ++i) {
                    const float4 x = value[2 * i];
                    reg_o[i].x = fmaf(p[j], x.x, reg_o[i].x);
                    reg_o[i].y = fmaf(p[j], x.y, reg_o[i].y);
                    reg_o[i].z = fmaf(p[j], x.z, reg_o[i].z);
                    reg_o[i].w = fmaf(p[j], x.w, reg_o[i].w);
                }
            }
        }
        __syncthreads();
    }

    // phase: store
    row_sum += ptx::shfl_sync_bfly(row_sum, 1);
    const float descale = warpsmith::head_scale(v_scale, head) / row_sum;
    if (row < seqlen) {
        uint2* gmem_o = reinterpret_cast<uint2*>(out + head_offset + static_cast<size_t>(row) * kHeadDim);
#pragma unroll
        for (int i = 0; i < kLaneDims / 4; ++i)
            gmem_o[2 * i + part] = {ptx::cvt_rn_f16x2_f32(reg_o[i].x * descale, reg_o[i].y * descale),
                                    ptx::cvt_rn_f16x2_f32(reg_o[i].z * descale, reg_o[i].w * descale)};
    }
}
