//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_90"]
//! constraints = ["D == 64"]
//! [[launch]]
//! entry = "divergent_barrier"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [64]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]

// The twin of divergent_barrier: all threads wait, whether they stage anything or not.

#define WS_FORMAT WS_E4M3
#include <warpsmith/fp8.cuh>

constexpr int kHeadDim = 64, kBlockM = 64, kBlockN = 16, kGroups = kHeadDim / 4;  // groups of four codes

extern "C" __global__ void __launch_bounds__(kBlockM)
divergent_barrier(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v, const float* __restrict__ q_scale,
                  const float* __restrict__ k_scale, const float* __restrict__ v_scale, u16* __restrict__ out, float softmax_scale, int seqlen)
{
    __shared__ float4 smem_k[kBlockN][kGroups];
    __shared__ float4 smem_v[kBlockN][kGroups];
    const int row = blockIdx.x * kBlockM + threadIdx.x, head = blockIdx.y;
    const size_t head_offset = static_cast<size_t>(head) * seqlen * kHeadDim;
    const u32* gmem_q = reinterpret_cast<const u32*>(q + head_offset) + static_cast<size_t>(min(row, seqlen - 1)) * kGroups;
    const u32* gmem_k = reinterpret_cast<const u32*>(k + head_offset);
    const u32* gmem_v = reinterpret_cast<const u32*>(v + head_offset);
    const float scale = q_scale[head] * k_scale[head] * softmax_scale * 1.4426950408889634f;

    float4 reg_q[kGroups], reg_o[kGroups] = {};
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
        const float4 x = warpsmith::decode_f32(gmem_q[i]);
        reg_q[i] = {x.x * scale, x.y * scale, x.z * scale, x.w * scale};
    }
    float row_max = -1e30f, row_sum = 0.f;
    for (int n0 = 0; n0 < seqlen; n0 += kBlockN) {
        if (threadIdx.x < 3 * kBlockN)
            for (int i = threadIdx.x; i < kBlockN * kGroups; i += 3 * kBlockN) {
                const int n = i / kGroups, key = min(n0 + n, seqlen - 1);
                smem_k[n][i % kGroups] = warpsmith::decode_f32(gmem_k[key * kGroups + i % kGroups]);
                smem_v[n][i % kGroups] = warpsmith::decode_f32(gmem_v[key * kGroups + i % kGroups]);
            }
        __syncthreads();
        for (int n = 0; n < min(kBlockN, seqlen - n0); ++n) {
            float4 dot = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
            for (int i = 0; i < kGroups; ++i) {
                const float4 x = smem_k[n][i];
                dot = {fmaf(reg_q[i].x, x.x, dot.x), fmaf(reg_q[i].y, x.y, dot.y), fmaf(reg_q[i].z, x.z, dot.z), fmaf(reg_q[i].w, x.w, dot.w)};
            }
            const float s = dot.x + dot.y + dot.z + dot.w;
            if (s > row_max) {
                const float rescale = ptx::ex2_approx_ftz(row_max - s);
                row_max = s;
                row_sum *= rescale;
#pragma unroll
                for (float4& o : reg_o) o = {o.x * rescale, o.y * rescale, o.z * rescale, o.w * rescale};
            }
            const float p = ptx::ex2_approx_ftz(s - row_max);
            row_sum += p;
#pragma unroll
            for (int i = 0; i < kGroups; ++i) {
                const float4 x = smem_v[n][i];
                reg_o[i] = {fmaf(p, x.x, reg_o[i].x), fmaf(p, x.y, reg_o[i].y), fmaf(p, x.z, reg_o[i].z), fmaf(p, x.w, reg_o[i].w)};
            }
        }
        __syncthreads();
    }

    const float descale = v_scale[head] / row_sum;
    if (row < seqlen) {
        uint2* gmem_o = reinterpret_cast<uint2*>(out + head_offset) + static_cast<size_t>(row) * kGroups;
#pragma unroll
        for (int i = 0; i < kGroups; ++i)
            gmem_o[i] = {ptx::cvt_rn_f16x2_f32(reg_o[i].x * descale, reg_o[i].y * descale),
                         ptx::cvt_rn_f16x2_f32(reg_o[i].z * descale, reg_o[i].w * descale)};
    }
}
