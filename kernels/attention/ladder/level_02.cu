//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_80", "sm_90"]
//! constraints = ["D == 64 || D == 128"]
//! formats = ["e4m3", "e5m2", "u8"]
//! scales = ["head", "tensor", "block"]
//! defines = ["D", "format", "scales"]
//! precision = "f16"
//! [[launch]]
//! entry = "fp8_sdpa_level_02"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [128]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]

// Level 02, cp.async double buffer: the next tile travels while this one is worked on.
//
//   out = softmax(softmax_scale * (q q_scale) (k k_scale)^T) (v v_scale), row by row, keys in tiles with a running maximum.
//
// Shapes    q, k, v (B, H, S, D) codes of 8 bits, contiguous; scales f32; out f16 (B, H, S, D). causal: row i sees keys 0..i.
//           Scales (), (B, H) or (B, H, ceil(S / 128)): each tile of keys lies in one block of 128, and so do a warp's rows.
// Assumes   D 64 or 128; any S; positive scales. All three formats are exact in f16.
// Roles     A CTA of four warps owns 64 queries of one head, a warp 16 of them. Q stays in WMMA fragments. A tile of 2048 / D
//           keys at a time:
//             wait for the codes of this tile -> barrier -> start copying those of the next -> widen: K to f16, V to f32 -> barrier
//             -> S = Q K^T by WMMA, to shared memory -> softmax, P over S -> P V by FMA
//           In softmax and P V two neighbouring lanes share a row; S and P are the warp's own, so they need no barrier of the CTA.
// Changed   Against level 01: K and V reach shared memory as codes by cp.async, into the half of a ring of two that is not in use;
//           widening reads them there. The first barrier also says that all warps are done with the previous tile.
// Predicted Global latency, about 600 cycles a tile that four warps a CTA cannot hide, leaves the path; the price is one more
//           pass of the codes through shared memory (1 byte a code written, 1 read). Little at level 01's speed: FMAs dominate.
// Resources Registers at D 64: 120 (sm_89), 111 (sm_90); at 128: 169, 130; no spills. Shared memory 39,424 and 43,264 bytes.
//           (e4m3, NVRTC and ptxas 13.0.88.)
// Measured  38.1 us on an H200 at 1x8x512x64, no mask, e4m3, graph replay with cold inputs: 1.31 times level 01's speed.
// From      level_01.

#include <mma.h>
#include <warpsmith/cp_async.cuh>
#include <warpsmith/fp8.cuh>
#include <warpsmith/scales.cuh>
#include <warpsmith/shfl.cuh>

constexpr int kHeadDim = WS_D;
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kBlockM = 16 * kWarps, kBlockN = 2048 / kHeadDim;
constexpr int kNumStages = 2, kTileBytes = kBlockN * kHeadDim;
constexpr int kRowK = kHeadDim + 8;  // halves: 16 bytes of padding move each row by four banks
constexpr int kRowS = kBlockN + 4;   // floats, likewise
constexpr int kLaneDims = kHeadDim / 2, kLaneKeys = kBlockN / 2;  // two lanes share a row
static_assert(kHeadDim == 64 || kHeadDim == 128, "a tile of 2048 codes is one 16-byte load a thread");
static_assert(kTileBytes == 16 * kThreads, "each thread copies 16 codes of K and 16 of V");
static_assert(warpsmith::kScaleBlock % kBlockN == 0, "a tile has one scale");

using namespace nvcuda;
using FragmentQ = wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major>;
using FragmentK = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major>;
using FragmentS = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// Starts the copy of one tile of codes, 16 to a thread. Rows past the end repeat the last one: their weight is zero.
static __device__ __forceinline__ void copy_tile(u8* smem_codes, const u8* gmem_tile, int last_row)
{
    constexpr int kChunks = kHeadDim / 16;
    const int row = threadIdx.x / kChunks, column = threadIdx.x % kChunks * 16;
    ptx::cp_async_16(smem_address(smem_codes + threadIdx.x * 16), gmem_tile + static_cast<u32>(min(row, last_row) * kHeadDim + column));
}

// Sixteen codes of a row, widened to f16.
static __device__ __forceinline__ void widen_f16(__half* smem_tile, const u8* codes, u32 chunk, int last_row)
{
    constexpr int kChunks = kHeadDim / 16;
    const int row = chunk / kChunks, column = chunk % kChunks * 16;
    uint4 lo, hi;
    warpsmith::decode_f16(lo, hi, *reinterpret_cast<const uint4*>(codes + min(row, last_row) * kHeadDim + column));
    uint4* dst = reinterpret_cast<uint4*>(smem_tile + row * kRowK + column);
    dst[0] = lo;
    dst[1] = hi;
}

// A tile of codes, widened to f32, without padding: two neighbouring lanes read one row.
static __device__ __forceinline__ void widen_f32(float* smem_tile, const u8* codes)
{
#pragma unroll
    for (int j = 0; j < kTileBytes / 4 / kThreads; ++j) {
        const u32 i = j * kThreads + threadIdx.x;
        reinterpret_cast<float4*>(smem_tile)[i] = warpsmith::decode_f32(reinterpret_cast<const u32*>(codes)[i]);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
fp8_sdpa_level_02(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v,
                  const float* __restrict__ q_scale, const float* __restrict__ k_scale, const float* __restrict__ v_scale,
                  u16* __restrict__ out, float softmax_scale, int seqlen, int causal)
{
    __shared__ __align__(16) u8 smem_codes[kNumStages][2][kTileBytes];  // K, V as they come
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

    const int row_end = causal ? min(seqlen, row + 1) : seqlen;        // keys that this row sees
    const int cta_end = causal ? min(seqlen, m0 + kBlockM) : seqlen;  // keys that any row of the CTA sees
    const int tiles = (cta_end + kBlockN - 1) / kBlockN;
    const auto copy = [&](int tile) {
        // phase: stage
        if (tile < tiles) {
            const size_t first = head_offset + static_cast<size_t>(tile) * kTileBytes;
            copy_tile(smem_codes[tile % kNumStages][0], k + first, seqlen - 1 - tile * kBlockN);
            copy_tile(smem_codes[tile % kNumStages][1], v + first, seqlen - 1 - tile * kBlockN);
        }
        ptx::cp_async_commit_group();
    };
    // phase: prologue
    for (int tile = 0; tile < kNumStages - 1; ++tile) copy(tile);

#pragma unroll
    for (int j = 0; j < kBlockM / kBlockN; ++j)
        widen_f16(smem_q, q + head_offset + static_cast<size_t>(m0) * kHeadDim, j * kThreads + threadIdx.x, seqlen - 1 - m0);
    __syncthreads();
    FragmentQ reg_q[kHeadDim / 16];  // (16, D)
#pragma unroll
    for (int kk = 0; kk < kHeadDim / 16; ++kk) wmma::load_matrix_sync(reg_q[kk], smem_q + warp * 16 * kRowK + kk * 16, kRowK);

    float4 reg_o[kLaneDims / 4];  // (D / 2,), every second group of four
#pragma unroll
    for (int i = 0; i < kLaneDims / 4; ++i) reg_o[i] = {0.f, 0.f, 0.f, 0.f};
    float row_max = ninf, row_sum = 0.f;  // of the scores before scaling; of the lane's keys
    for (int tile = 0; tile < tiles; ++tile) {
        const int n0 = tile * kBlockN, stage = tile % kNumStages;
        const float k_descale = warpsmith::tile_scale(k_scale, head, n0, seqlen), v_descale = warpsmith::tile_scale(v_scale, head, n0, seqlen);
        // phase: stage
        ptx::cp_async_wait_group<kNumStages - 2>();
        __syncthreads();
        copy(tile + kNumStages - 1);
        widen_f16(smem_k, smem_codes[stage][0], threadIdx.x, kBlockN);
        widen_f32(smem_v, smem_codes[stage][1]);
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
