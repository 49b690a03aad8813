//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_80", "sm_90"]
//! constraints = ["D == 64 || D == 128"]
//! formats = ["e4m3", "e5m2", "u8"]
//! scales = ["head", "tensor", "block"]
//! defines = ["D", "format", "scales"]
//! precision = "f16"
//! [[launch]]
//! entry = "fp8_sdpa_level_00"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = ["2 * D"]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]

// Level 00, scalar: the plain kernel that the others are measured against.
//
//   out = softmax(softmax_scale * (q q_scale) (k k_scale)^T) (v v_scale), row by row, keys in tiles with a running maximum.
//
// Shapes    q, k, v (B, H, S, D) codes of 8 bits, contiguous; scales f32; out f16 (B, H, S, D). causal: row i sees keys 0..i.
//           Scales (), (B, H) or (B, H, ceil(S / 128)): each tile of keys lies in one block of 128, and so do a warp's rows.
// Assumes   D 64 or 128; any S; positive scales.
// Roles     A CTA owns 64 queries of one head. D / 32 neighbouring lanes share a query; each keeps 32 dimensions of q and of the
//           output in registers, every (D / 32)-th group of four, so that they read a row of K or V without bank conflicts.
//           Keys come in tiles of 32, widened to f32 in shared memory, and leave it in steps of 8:
//             stage K, V -> barrier -> 4 x (8 scores in registers -> maximum, rescale, exp -> P V) -> barrier
// Changed   Nothing: this is where the ladder starts. One FMA for each product, no tensor cores.
// Predicted The FMA pipe bounds it: 2 x S x S x D FMAs a head at 128 a cycle on an sm_89 SM, a quarter of what its tensor cores
//           multiply in f16 and an eighth of what they do in FP8. Softmax and decoding hide behind that.
// Resources Registers at D 64: 114 (sm_89), 115 (sm_90); at 128: 136, 132; no spills. Shared memory 16,384 and 32,768 bytes.
//           (e4m3, NVRTC and ptxas 13.0.88.)
// Measured  81.5 us on an H200 at 1x8x512x64, no mask, e4m3, graph replay with cold inputs.
// From      None.

#include <warpsmith/fp8.cuh>
#include <warpsmith/scales.cuh>
#include <warpsmith/shfl.cuh>

constexpr int kHeadDim = WS_D;
constexpr int kBlockM = 64, kBlockN = 32, kStep = 8;
constexpr int kLaneDims = 32, kLanesPerRow = kHeadDim / kLaneDims, kThreads = kBlockM * kLanesPerRow;
static_assert(kHeadDim == 64 || kHeadDim == 128, "a row is shared by two or four lanes");
static_assert(warpsmith::kScaleBlock % kBlockN == 0, "a tile has one scale");

// A tile of codes, widened to f32 in shared memory. Rows past the end repeat the last one: their weight is zero.
static __device__ __forceinline__ void stage_tile(float* smem_tile, const u8* gmem_tile, int last_row)
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
fp8_sdpa_level_00(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v,
                  const float* __restrict__ q_scale, const float* __restrict__ k_scale, const float* __restrict__ v_scale,
                  u16* __restrict__ out, float softmax_scale, int seqlen, int causal)
{
    __shared__ __align__(16) float smem_k[kBlockN * kHeadDim];
    __shared__ __align__(16) float smem_v[kBlockN * kHeadDim];
    // phase: prologue
    const u32 head = blockIdx.y, part = threadIdx.x % kLanesPerRow;
    const int m0 = blockIdx.x * kBlockM, row = m0 + threadIdx.x / kLanesPerRow;
    const size_t head_offset = static_cast<size_t>(head) * seqlen * kHeadDim;
    const float q_descale = warpsmith::scale_of(q_scale, head, min(row, seqlen - 1), seqlen);
    const float scale = q_descale * warpsmith::head_scale(k_scale, head) * softmax_scale * 1.4426950408889634f;  // exp(x) = 2^(x log2 e)
    const float ninf = __int_as_float(0xff800000);

    float4 reg_q[kLaneDims / 4], reg_o[kLaneDims / 4];  // (32,)
    {
        const u32* gmem_q = reinterpret_cast<const u32*>(q + head_offset + static_cast<size_t>(min(row, seqlen - 1)) * kHeadDim);
#pragma unroll
        for (int i = 0; i < kLaneDims / 4; ++i) {
            const float4 x = warpsmith::decode_f32(gmem_q[i * kLanesPerRow + part]);
            reg_q[i] = {x.x * scale, x.y * scale, x.z * scale, x.w * scale};
            reg_o[i] = {0.f, 0.f, 0.f, 0.f};
        }
    }
    float row_max = ninf, row_sum = 0.f;
    const int row_end = causal ? min(seqlen, row + 1) : seqlen;        // keys that this row sees
    const int cta_end = causal ? min(seqlen, m0 + kBlockM) : seqlen;  // keys that any row of the CTA sees

    for (int n0 = 0; n0 < cta_end; n0 += kBlockN) {
        // phase: stage
        const size_t tile = head_offset + static_cast<size_t>(n0) * kHeadDim;
        const float k_descale = warpsmith::tile_scale(k_scale, head, n0, seqlen), v_descale = warpsmith::tile_scale(v_scale, head, n0, seqlen);
        stage_tile(smem_k, k + tile, seqlen - 1 - n0);
        stage_tile(smem_v, v + tile, seqlen - 1 - n0);
        __syncthreads();

#pragma unroll 1
        for (int step = 0; step < kBlockN; step += kStep) {
            // phase: scores
            float s[kStep], tile_max = row_max;
#pragma unroll
            for (int n = 0; n < kStep; ++n) {
                const float4* key = reinterpret_cast<const float4*>(smem_k + (step + n) * kHeadDim) + part;
                float dot = 0.f;
#pragma unroll
                for (int i = 0; i < kLaneDims / 4; ++i) {
                    const float4 x = key[i * kLanesPerRow];
                    dot = fmaf(reg_q[i].x, x.x, dot);
                    dot = fmaf(reg_q[i].y, x.y, dot);
                    dot = fmaf(reg_q[i].z, x.z, dot);
                    dot = fmaf(reg_q[i].w, x.w, dot);
                }
#pragma unroll
                for (int d = 1; d < kLanesPerRow; d *= 2) dot += ptx::shfl_sync_bfly(dot, d);
                s[n] = n0 + step + n < row_end ? dot * k_descale : ninf;
                tile_max = fmaxf(tile_max, s[n]);
            }
            // phase: softmax
            const float rescale = ptx::ex2_approx_ftz(row_max - tile_max);
            row_max = tile_max;
            row_sum *= rescale;
#pragma unroll
            for (int i = 0; i < kLaneDims / 4; ++i) {
                reg_o[i].x *= rescale;
                reg_o[i].y *= rescale;
                reg_o[i].z *= rescale;
                reg_o[i].w *= rescale;
            }
            // phase: values
#pragma unroll
            for (int n = 0; n < kStep; ++n) {
                const float p = ptx::ex2_approx_ftz(s[n] - row_max);
                row_sum += p;
                const float pv = p * v_descale;
                const float4* value = reinterpret_cast<const float4*>(smem_v + (step + n) * kHeadDim) + part;
#pragma unroll
                for (int i = 0; i < kLaneDims / 4; ++i) {
                    const float4 x = value[i * kLanesPerRow];
                    reg_o[i].x = fmaf(pv, x.x, reg_o[i].x);
                    reg_o[i].y = fmaf(pv, x.y, reg_o[i].y);
                    reg_o[i].z = fmaf(pv, x.z, reg_o[i].z);
                    reg_o[i].w = fmaf(pv, x.w, reg_o[i].w);
                }
            }
        }
        __syncthreads();
    }

    // phase: store
    const float descale = warpsmith::head_scale(v_scale, head) / row_sum;
    if (row < seqlen) {
        uint2* gmem_o = reinterpret_cast<uint2*>(out + head_offset + static_cast<size_t>(row) * kHeadDim);
#pragma unroll
        for (int i = 0; i < kLaneDims / 4; ++i)
            gmem_o[i * kLanesPerRow + part] = {ptx::cvt_rn_f16x2_f32(reg_o[i].x * descale, reg_o[i].y * descale),
                                               ptx::cvt_rn_f16x2_f32(reg_o[i].z * descale, reg_o[i].w * descale)};
    }
}
