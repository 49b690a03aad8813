//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_90"]
//! constraints = ["D == 64"]               # shapes it is for; others are not applicable
//! [levers]
//! WARPS = [8, 4]                          # #defined for the compiler; the first is the default, --set WARPS=4 chooses
//! [[launch]]
//! entry = "@NAME@"
//! grid = ["ceil_div(S, WARPS)", "B * H"]  # formulas over the shape and the levers
//! block = ["32 * WARPS"]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]

// out = softmax(q k^T * softmax_scale) v, with a causal mask if `causal` is 1.
//
// q, k, v: e4m3 (B, H, S, 64), out: f16 of the same shape, scales: f32 (B, H), x = code * scale.
// A warp takes one query. Keys come in tiles of 32 through shared memory, widened to f32, and each lane scores one of them; a
// running maximum and sum (online softmax) let the tiles be seen once. Then each lane gathers two of the 64 output columns.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

constexpr int kHeadDim = 64;
constexpr int kTile = 32;  // keys of a tile, one for each lane
constexpr unsigned kAll = 0xffffffffu;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kMasked = -1e30f;  // finite, so that differences of two masked scores are no NaN

static __device__ float warp_max(float v)
{
    for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(kAll, v, offset));
    return v;
}

static __device__ float warp_sum(float v)
{
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(kAll, v, offset);
    return v;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
@NAME@(const __nv_fp8_e4m3* __restrict__ q,     // (B, H, S, D)
       const __nv_fp8_e4m3* __restrict__ k,     // (B, H, S, D)
       const __nv_fp8_e4m3* __restrict__ v,     // (B, H, S, D)
       const float* __restrict__ q_scale,       // (B, H)
       const float* __restrict__ k_scale,       // (B, H)
       const float* __restrict__ v_scale,       // (B, H)
       __half* __restrict__ out,                // (B, H, S, D)
       float softmax_scale, int S, int causal)
{
    // One column of padding: lane j reads row j, and 65 is odd, so the 32 lanes meet 32 banks.
    __shared__ float smem_k[kTile][kHeadDim + 1];
    __shared__ float smem_v[kTile][kHeadDim + 1];
    __shared__ float smem_q[WARPS][kHeadDim];

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, bh = blockIdx.y;
    const size_t head = (size_t)bh * S * kHeadDim;
    const int first_row = blockIdx.x * WARPS;
    // A warp beyond the last query does its work twice rather than leave: all warps have to meet at the barriers.
    const int row = min(first_row + warp, S - 1);

    // Scores in units of log2, so that exp2f does for exp.
    const float scale = q_scale[bh] * k_scale[bh] * softmax_scale * kLog2e;
    for (int d = lane; d < kHeadDim; d += 32) smem_q[warp][d] = float(q[head + (size_t)row * kHeadDim + d]) * scale;

    float reg_max = kMasked, reg_sum = 0.f, reg_out[2] = {0.f, 0.f};
    const int num_keys = causal ? min(S, first_row + WARPS) : S;
    for (int first_key = 0; first_key < num_keys; first_key += kTile) {
        __syncthreads();  // nobody reads the tile before any more
        for (int i = threadIdx.x; i < kTile * kHeadDim; i += 32 * WARPS) {
            const int key = i / kHeadDim, d = i % kHeadDim;
            const bool inside = first_key + key < S;
            const size_t at = head + (size_t)(first_key + key) * kHeadDim + d;
            smem_k[key][d] = inside ? float(k[at]) : 0.f;
            smem_v[key][d] = inside ? float(v[at]) : 0.f;
        }
        __syncthreads();

        float score = 0.f;
#pragma unroll
        for (int d = 0; d < kHeadDim; ++d) score = fmaf(smem_q[warp][d], smem_k[lane][d], score);
        const int key = first_key + lane;
        if (key >= S || (causal && key > row)) score = kMasked;

        // Key 0 is seen by every query, so from the first tile on the maximum is a real score and masked ones weigh nothing.
        const float new_max = fmaxf(reg_max, warp_max(score));
        const float rescale = exp2f(reg_max - new_max);
        const float p = exp2f(score - new_max);
        reg_max = new_max;
        reg_sum = reg_sum * rescale + warp_sum(p);
        reg_out[0] *= rescale;
        reg_out[1] *= rescale;
#pragma unroll
        for (int j = 0; j < kTile; ++j) {
            const float weight = __shfl_sync(kAll, p, j);
            reg_out[0] = fmaf(weight, smem_v[j][lane], reg_out[0]);
            reg_out[1] = fmaf(weight, smem_v[j][lane + 32], reg_out[1]);
        }
    }

    if (first_row + warp < S) {
        const float scale_out = v_scale[bh] / reg_sum;
        __half* out_row = out + head + (size_t)row * kHeadDim;
        out_row[lane] = __float2half(reg_out[0] * scale_out);
        out_row[lane + 32] = __float2half(reg_out[1] * scale_out);
    }
}
