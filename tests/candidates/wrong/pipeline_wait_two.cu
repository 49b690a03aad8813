//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "pipeline_wait_two"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [64]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]

// expect: faulted
#include <cuda_fp16.h>
#include <cuda_fp8.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

#include <cuda_pipeline.h>
extern "C" __global__ void __launch_bounds__(64) pipeline_wait_two(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    __shared__ __align__(16) unsigned char sk[2][32 * 64], sv[2][32 * 64];
    const int t = threadIdx.x, row = blockIdx.x * 64 + t, bh = blockIdx.y;
    const size_t head = (size_t)bh * S * 64;
    const float scale = softmax_scale * q_scale[bh] * k_scale[bh];
    float qf[64], o[64], m = -INFINITY, l = 0.f;
    for (int d = 0; d < 64; ++d) { qf[d] = row < S ? dec(q[head + (size_t)row * 64 + d]) * scale : 0.f; o[d] = 0.f; }
    const int tiles = (S + 31) / 32;
    auto fetch = [&](int tile) {
        for (int i = t; i < 128; i += 64) {
            const int key = tile * 32 + i / 4;
            const size_t at = head + (size_t)min(key, S - 1) * 64 + (i % 4) * 16;
            __pipeline_memcpy_async(&sk[tile & 1][i * 16], k + at, 16, key < S ? 0 : 16);
            __pipeline_memcpy_async(&sv[tile & 1][i * 16], v + at, 16, key < S ? 0 : 16);
        }
        __pipeline_commit();
    };
    fetch(0);
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) { fetch(tile + 1); __pipeline_wait_prior(2); } else __pipeline_wait_prior(0);
        __syncthreads();
        for (int j = 0; j < min(32, S - tile * 32); ++j) {
            float s = 0.f;
            for (int d = 0; d < 64; ++d) s = fmaf(qf[d], dec(sk[tile & 1][j * 64 + d]), s);
            const float nm = fmaxf(m, s), c = __expf(m - nm), p = __expf(s - nm); m = nm; l = l * c + p;
            for (int d = 0; d < 64; ++d) o[d] = o[d] * c + p * dec(sv[tile & 1][j * 64 + d]);
        }
        __syncthreads();
    }
    if (row < S) for (int d = 0; d < 64; ++d) out[head + (size_t)row * 64 + d] = __float2half(o[d] * v_scale[bh] / l);
}
