//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "cuda_barrier"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [64]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

#include <cuda/barrier>
extern "C" __global__ void cuda_barrier(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ float sk[32][64], sv[32][64];
    const int t = threadIdx.x, row = blockIdx.x * 64 + t, bh = blockIdx.y; const size_t head = (size_t)bh * S * 64;
    if (t == 0) init(&bar, 64);
    __syncthreads();
    float qf[64], o[64], m = -INFINITY, l = 0.f; for (int d = 0; d < 64; ++d) { qf[d] = row < S ? dec(q[head + (size_t)row * 64 + d]) * softmax_scale * q_scale[bh] * k_scale[bh] : 0.f; o[d] = 0.f; }
    for (int base = 0; base < S; base += 32) {
        for (int i = t; i < 2048; i += 64) { const int j = min(base + i / 64, S - 1); sk[i / 64][i % 64] = dec(k[head + (size_t)j * 64 + i % 64]); sv[i / 64][i % 64] = dec(v[head + (size_t)j * 64 + i % 64]); }
        bar.arrive_and_wait();
        for (int j = 0; j < min(32, S - base); ++j) { float s = 0.f; for (int d = 0; d < 64; ++d) s = fmaf(qf[d], sk[j][d], s); const float nm = fmaxf(m, s), c = __expf(m - nm), p = __expf(s - nm); m = nm; l = l * c + p; for (int d = 0; d < 64; ++d) o[d] = o[d] * c + p * sv[j][d]; }
        bar.arrive_and_wait();
    }
    if (row < S) for (int d = 0; d < 64; ++d) out[head + (size_t)row * 64 + d] = __float2half(o[d] * v_scale[bh] / l);
}
