//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "cub_reduce"
//! grid = ["S", "B * H"]
//! block = [64]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

#include <cub/block/block_reduce.cuh>
extern "C" __global__ void cub_reduce(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    using Reduce = cub::BlockReduce<float, 64>;
    __shared__ typename Reduce::TempStorage temp; __shared__ float m_all, l_all, p[64];
    const int t = threadIdx.x, bh = blockIdx.y; const size_t head = (size_t)bh * S * 64;
    float m = -1e30f, l = 0.f, o = 0.f;
    for (int base = 0; base < S; base += 64) {
        float s = -1e30f;
        if (base + t < S) { s = 0.f; for (int d = 0; d < 64; ++d) s += dec(q[head + (size_t)blockIdx.x * 64 + d]) * dec(k[head + (size_t)(base + t) * 64 + d]); s *= softmax_scale * q_scale[bh] * k_scale[bh]; }
        const float top = Reduce(temp).Reduce(s, [](float a, float b) { return fmaxf(a, b); });
        if (t == 0) m_all = fmaxf(m, top);
        __syncthreads();
        const float nm = m_all, w = base + t < S ? __expf(s - nm) : 0.f;
        p[t] = w;
        const float part = Reduce(temp).Sum(w);
        if (t == 0) l_all = part;
        __syncthreads();
        const float c = __expf(m - nm); l = l * c + l_all; o *= c; m = nm;
        for (int j = 0; j < min(64, S - base); ++j) o += p[j] * dec(v[head + (size_t)(base + j) * 64 + t]);
        __syncthreads();
    }
    out[head + (size_t)blockIdx.x * 64 + t] = __float2half(o * v_scale[bh] / l);
}
