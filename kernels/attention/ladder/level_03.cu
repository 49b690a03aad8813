//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_80", "sm_90"]
//! constraints = ["D == 64 || D == 128"]
//! formats = ["e4m3", "e5m2", "u8"]
//! scales = ["head", "tensor", "block"]
//! defines = ["D", "format", "scales"]
//! precision = "f16"
//! [[launch]]
//! entry = "fp8_sdpa_level_03"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [128]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]

// Level 03, WMMA for P V too: no product is left to the FMA pipe.
//
//   out = softmax(softmax_scale * (q q_scale) (k k_scale)^T) (v v_scale), row by row, keys in tiles with a running maximum.
//
// Shapes    q, k, v (B, H, S, D) codes of 8 bits, contiguous; scales f32; out f16 (B, H, S, D). causal: row i sees keys 0..i.
//           Scales (), (B, H) or (B, H, ceil(S / 128)): each tile of keys lies in one block of 128, and so do a warp's rows.
// Assumes   D 64 or 128; any S; positive scales. All three formats are exact in f16.
// Roles     A CTA of four warps owns 64 queries of one head, a warp 16 of them. Q stays in WMMA fragments. A tile of 2048 / D
//           keys at a time:
//             wait for the codes of this tile -> barrier -> start copying those of the next -> widen K and V to f16 -> barrier
//             -> S = Q K^T by WMMA, to shared memory -> softmax, P as f16 over S -> P V by WMMA, to shared memory -> added to O
//           In softmax and in O two neighbouring lanes share a row. S, P and the tile's P V share one area, which is the warp's own:
//           its barrier is __syncwarp.
// Changed   Against level 02: P V by wmma.mma. O stays in registers, by rows, since it must be rescaled by rows; what a tile adds
//           comes to it through shared memory. V is widened to f16 as K is.
// Predicted The other product goes there too: (1/2 + 1/8) / (1/4) = 2.5 times at best. Shared memory takes over as the bound, so
//           rather 1.5 to 2: scores, probabilities and 16 x D floats of P V a tile all pass through it.
// Resources Registers at D 64: 124 (sm_89), 128 (sm_90); at 128: 198, 196; no spills. Shared memory 35,840 and 39,424 bytes.
//           (e4m3, NVRTC and ptxas 13.0.88.)
// Measured  19.2 us on an H200 at 1x8x512x64, no mask, e4m3, graph replay with cold inputs: 1.99 times level 02's speed.
// From      level_02.

#include <mma.h>
#include <warpsmith/cp_async.cuh>
#include <warpsmith/fp8.cuh>
#include <warpsmith/scales.cuh>
#include <warpsmith/shfl.cuh>

constexpr int kHeadDim = WS_D;
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kBlockM = 16 * kWarps, kBlockN = 2048 / kHeadDim;
constexpr int kNumStages = 2, kTileBytes = kBlockN * kHeadDim;
constexpr int kRow = kHeadDim + 8;  // halves: 16 bytes of padding move each row by four banks
constexpr int kRowS = kBlockN + 4;   // floats, likewise
constexpr int kLaneKeys = kBlockN / 2;  // two lanes share a row
static_assert(kHeadDim == 64 || kHeadDim == 128, "a tile of 2048 codes is one 16-byte load a thread");
static_assert(kTileBytes == 16 * kThreads, "each thread copies 16 codes of K and 16 of V");
static_assert(warpsmith::kScaleBlock % kBlockN == 0, "a tile has one scale");

using namespace nvcuda;
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major>;
using FragmentK = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major>;
using FragmentV = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major>;
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
    uint4* dst = reinterpret_cast<uint4*>(smem_tile + row * kRow + column);
    dst[0] = lo;
    dst[1] = hi;
}

extern "C" __global__ void __launch_bounds__(kThreads, kHeadDim == 64 ? 4 : 2)
fp8_sdpa_level_03(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v,
                  const float* __restrict__ q_scale, const float* __restrict__ k_scale, const float* __restrict__ v_scale,
                  u16* __restrict__ out, float softmax_scale, int seqlen, int causal)
{
    __shared__ __align__(16) u8 smem_codes[kNumStages][2][kTileBytes];  // K, V as they come
    __shared__ __align__(32) __half smem_q[kBlockM * kRow];
    __shared__ __align__(32) __half smem_k[kBlockN * kRow];
    __shared__ __align__(32) __half smem_v[kBlockN * kRow];
    __shared__ __align__(32) float smem_s[kWarps][16 * kRowS];  // scores, then probabilities, then what the tile adds to O

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
    FragmentA reg_q[kHeadDim / 16];  // (16, D)
#pragma unroll
    for (int kk = 0; kk < kHeadDim / 16; ++kk) wmma::load_matrix_sync(reg_q[kk], smem_q + warp * 16 * kRow + kk * 16, kRow);

    float reg_o[kHeadDim / 16][8] = {};  // (D / 2,), eight of each sixteen
    float row_max = ninf, row_sum = 0.f;  // of the scores before scaling; of the lane's keys
    for (int tile = 0; tile < tiles; ++tile) {
        const int n0 = tile * kBlockN, stage = tile % kNumStages;
        const float k_descale = warpsmith::tile_scale(k_scale, head, n0, seqlen), v_descale = warpsmith::tile_scale(v_scale, head, n0, seqlen);
        // phase: stage
        ptx::cp_async_wait_group<kNumStages - 2>();
        __syncthreads();
        copy(tile + kNumStages - 1);
        widen_f16(smem_k, smem_codes[stage][0], threadIdx.x, kBlockN);
        widen_f16(smem_v, smem_codes[stage][1], threadIdx.x, kBlockN);
        __syncthreads();

        // phase: scores
#pragma unroll
        for (int nb = 0; nb < kBlockN; nb += 16) {
            FragmentS acc;  // (16, 16)
            wmma::fill_fragment(acc, 0.f);
#pragma unroll
            for (int kk = 0; kk < kHeadDim / 16; ++kk) {
                FragmentK b;
                wmma::load_matrix_sync(b, smem_k + nb * kRow + kk * 16, kRow);
                wmma::mma_sync(acc, reg_q[kk], b, acc);
            }
            wmma::store_matrix_sync(smem_s[warp] + nb, acc, kRowS, wmma::mem_row_major);
        }
        __syncwarp();

        // phase: softmax
        const float4* lane_s = reinterpret_cast<const float4*>(smem_s[warp] + lane / 2 * kRowS + part * kLaneKeys);
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
        __syncwarp();
        uint4* lane_p = reinterpret_cast<uint4*>(smem_s[warp] + lane / 2 * kRowS) + part * kLaneKeys / 8;
#pragma unroll
        for (int i = 0; i < kLaneKeys; i += 8)
            lane_p[i / 8] = {ptx::cvt_rn_f16x2_f32(s[i], s[i + 1]), ptx::cvt_rn_f16x2_f32(s[i + 2], s[i + 3]),
                             ptx::cvt_rn_f16x2_f32(s[i + 4], s[i + 5]), ptx::cvt_rn_f16x2_f32(s[i + 6], s[i + 7])};
        __syncwarp();
        FragmentA reg_p[kBlockN / 16];  // (16, kBlockN)
#pragma unroll
        for (int kk = 0; kk < kBlockN / 16; ++kk)
            wmma::load_matrix_sync(reg_p[kk], reinterpret_cast<const __half*>(smem_s[warp]) + kk * 16, 2 * kRowS);

        // phase: values
#pragma unroll
        for (int d0 = 0; d0 < kHeadDim; d0 += kBlockN) {  // as many columns of P V as the area has room for
            __syncwarp();
#pragma unroll
            for (int db = 0; db < kBlockN; db += 16) {
                FragmentS acc;  // (16, 16)
                wmma::fill_fragment(acc, 0.f);
#pragma unroll
                for (int kk = 0; kk < kBlockN / 16; ++kk) {
                    FragmentV b;
                    wmma::load_matrix_sync(b, smem_v + kk * 16 * kRow + d0 + db, kRow);
                    wmma::mma_sync(acc, reg_p[kk], b, acc);
                }
                wmma::store_matrix_sync(smem_s[warp] + db, acc, kRowS, wmma::mem_row_major);
            }
            __syncwarp();
#pragma unroll
            for (int db = 0; db < kBlockN; db += 16) {
                const float4* lane_pv = reinterpret_cast<const float4*>(smem_s[warp] + lane / 2 * kRowS + db + part * 8);
                const float4 lo = lane_pv[0], hi = lane_pv[1];
                const float pv[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
                for (int i = 0; i < 8; ++i) reg_o[(d0 + db) / 16][i] = fmaf(reg_o[(d0 + db) / 16][i], rescale, pv[i] * v_descale);
            }
        }
    }

    // phase: store
    row_sum += ptx::shfl_sync_bfly(row_sum, 1);
    const float descale = warpsmith::head_scale(v_scale, head) / row_sum;
    if (row < seqlen) {
        uint4* gmem_o = reinterpret_cast<uint4*>(out + head_offset + static_cast<size_t>(row) * kHeadDim) + part;
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i) {
            const float(&o)[8] = reg_o[i];
            gmem_o[2 * i] = {ptx::cvt_rn_f16x2_f32(o[0] * descale, o[1] * descale), ptx::cvt_rn_f16x2_f32(o[2] * descale, o[3] * descale),
                             ptx::cvt_rn_f16x2_f32(o[4] * descale, o[5] * descale), ptx::cvt_rn_f16x2_f32(o[6] * descale, o[7] * descale)};
        }
    }
}
