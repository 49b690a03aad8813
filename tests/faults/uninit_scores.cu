//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_90"]
//! constraints = ["D == 64"]
//! [[launch]]
//! entry = "uninit_scores"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [128]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]

// An uninitialised read: of the two lanes that share a row of scores only the even one has filled its array, and the shuffles ask
// the odd one (lane | 1 where lane & ~1 was meant). What comes is whatever the odd lane's register held. The kernel compiles without a
// warning, its SASS has the tensor-core instructions one hopes for, and on a GPU nearly every output is wrong.

#define WS_FORMAT WS_E4M3
#include <mma.h>
#include <warpsmith/fp8.cuh>
using namespace nvcuda;

constexpr int kHeadDim = 64, kBlockM = 64, kBlockN = 16;
constexpr int kRow = kHeadDim + 8, kRowS = kBlockN + 4, kRowO = kHeadDim + 4;  // with 16 bytes of padding

using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major>;
using FragmentK = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major>;
using FragmentV = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major>;
using FragmentS = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// Sixteen codes, widened. Rows past the end repeat the last one: their weight is zero.
static __device__ __forceinline__ void stage(__half* smem_tile, const u8* gmem_tile, int chunk, int last_row)
{
    const int row = chunk / 4, column = chunk % 4 * 16;
    uint4* dst = reinterpret_cast<uint4*>(smem_tile + row * kRow + column);
    warpsmith::decode_f16(dst[0], dst[1], *reinterpret_cast<const uint4*>(gmem_tile + min(row, last_row) * kHeadDim + column));
}

extern "C" __global__ void __launch_bounds__(128)
uninit_scores(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v, const float* __restrict__ q_scale,
              const float* __restrict__ k_scale, const float* __restrict__ v_scale, u16* __restrict__ out, float softmax_scale, int seqlen)
{
    __shared__ __align__(32) __half smem_q[kBlockM * kRow], smem_k[kBlockN * kRow], smem_v[kBlockN * kRow];
    __shared__ __align__(32) float smem_s[4][16 * kRowS], smem_o[4][16 * kRowO];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % 2;  // two lanes share a row
    const int m0 = blockIdx.x * kBlockM, row = m0 + warp * 16 + lane / 2, head = blockIdx.y;
    const size_t head_offset = static_cast<size_t>(head) * seqlen * kHeadDim;
    const float scale = q_scale[head] * k_scale[head] * softmax_scale * 1.4426950408889634f;
    float4* const lane_o = reinterpret_cast<float4*>(smem_o[warp] + lane / 2 * kRowO + part * kHeadDim / 2);

    for (int j = 0; j < 2; ++j) stage(smem_q, q + head_offset + static_cast<size_t>(m0) * kHeadDim, j * 128 + threadIdx.x, seqlen - 1 - m0);
    for (int i = 0; i < 8; ++i) lane_o[i] = {0.f, 0.f, 0.f, 0.f};
    __syncthreads();
    FragmentA reg_q[4];
    for (int kk = 0; kk < 4; ++kk) wmma::load_matrix_sync(reg_q[kk], smem_q + warp * 16 * kRow + kk * 16, kRow);

    float row_max = -1e30f, row_sum = 0.f;
    for (int n0 = 0; n0 < seqlen; n0 += kBlockN) {
        const size_t tile = head_offset + static_cast<size_t>(n0) * kHeadDim;
        if (warp < 2)
            stage(smem_k, k + tile, threadIdx.x, seqlen - 1 - n0);
        else
            stage(smem_v, v + tile, threadIdx.x - 64, seqlen - 1 - n0);
        __syncthreads();

        FragmentS acc;
        wmma::fill_fragment(acc, 0.f);
        for (int kk = 0; kk < 4; ++kk) {
            FragmentK b;
            wmma::load_matrix_sync(b, smem_k + kk * 16, kRow);
            wmma::mma_sync(acc, reg_q[kk], b, acc);
        }
        wmma::store_matrix_sync(smem_s[warp], acc, kRowS, wmma::mem_row_major);
        __syncwarp();

        // The even lane of a row reads all sixteen scores; its neighbour gets the upper half by shuffle.
        float scores[16], s[8];
        if (part == 0) {
            const float4* row_s = reinterpret_cast<const float4*>(smem_s[warp] + lane / 2 * kRowS);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float4 x = row_s[j];
                scores[4 * j] = x.x, scores[4 * j + 1] = x.y, scores[4 * j + 2] = x.z, scores[4 * j + 3] = x.w;
            }
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float low = __shfl_sync(~0u, scores[j], lane | 1);  // fault: uninitialized_read
            const float high = __shfl_sync(~0u, scores[8 + j], lane | 1);  // fault: uninitialized_read
            s[j] = part == 0 ? low : high;
        }

        float tile_max = row_max;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            s[j] = n0 + part * 8 + j < seqlen ? s[j] * scale : -1e30f;
            tile_max = fmaxf(tile_max, s[j]);
        }
        tile_max = fmaxf(tile_max, __shfl_xor_sync(~0u, tile_max, 1));
        const float rescale = ptx::ex2_approx_ftz(row_max - tile_max);
        row_max = tile_max;
        row_sum *= rescale;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            s[j] = ptx::ex2_approx_ftz(s[j] - tile_max);
            row_sum += s[j];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float4 o = lane_o[i];
            lane_o[i] = {o.x * rescale, o.y * rescale, o.z * rescale, o.w * rescale};
        }
        __syncwarp();
        __half* const smem_p = reinterpret_cast<__half*>(smem_s[warp]);  // over the scores, 2 kRowS halves a row
#pragma unroll
        for (int j = 0; j < 8; ++j) smem_p[lane / 2 * 2 * kRowS + part * 8 + j] = __float2half(s[j]);
        __syncwarp();
        FragmentA reg_p;
        wmma::load_matrix_sync(reg_p, smem_p, 2 * kRowS);

        for (int db = 0; db < 4; ++db) {
            FragmentV b;
            wmma::load_matrix_sync(b, smem_v + db * 16, kRow);
            wmma::load_matrix_sync(acc, smem_o[warp] + db * 16, kRowO, wmma::mem_row_major);
            wmma::mma_sync(acc, reg_p, b, acc);
            wmma::store_matrix_sync(smem_o[warp] + db * 16, acc, kRowO, wmma::mem_row_major);
        }
        __syncthreads();
    }

    row_sum += __shfl_xor_sync(~0u, row_sum, 1);
    const float descale = v_scale[head] / row_sum;
    if (row < seqlen) {
        uint2* gmem_o = reinterpret_cast<uint2*>(out + head_offset + static_cast<size_t>(row) * kHeadDim + part * kHeadDim / 2);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float4 o = lane_o[i];
            gmem_o[i] = {ptx::cvt_rn_f16x2_f32(o.x * descale, o.y * descale), ptx::cvt_rn_f16x2_f32(o.z * descale, o.w * descale)};
        }
    }
}
