//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "producer_consumer"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [96]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_fp8.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

// Two consumer warps, one producer warp; full and empty named barriers for two stages.
static __device__ __forceinline__ void arrive(int id) { asm volatile("bar.arrive %0, 96;" ::"r"(id) : "memory"); }
static __device__ __forceinline__ void wait(int id) { asm volatile("bar.sync %0, 96;" ::"r"(id) : "memory"); }
extern "C" __global__ void __launch_bounds__(96) producer_consumer(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    __shared__ float sk[2][16][64], sv[2][16][64];
    const int t = threadIdx.x, bh = blockIdx.y, tiles = (S + 15) / 16;
    const size_t head = (size_t)bh * S * 64;
    if (t >= 64) {
        for (int i = 0; i < tiles; ++i) {
            const int st = i & 1;
            if (i >= 2) wait(3 + st);
            for (int e = t - 64; e < 1024; e += 32) { const int j = i * 16 + e / 64; const size_t at = head + (size_t)min(j, S - 1) * 64 + e % 64; sk[st][e / 64][e % 64] = dec(k[at]); sv[st][e / 64][e % 64] = dec(v[at]); }
            arrive(1 + st);
        }
        return;
    }
    const int row = blockIdx.x * 64 + t;
    float qf[64], o[64], m = -INFINITY, l = 0.f;
    for (int d = 0; d < 64; ++d) { qf[d] = row < S ? dec(q[head + (size_t)row * 64 + d]) * softmax_scale * q_scale[bh] * k_scale[bh] : 0.f; o[d] = 0.f; }
    for (int i = 0; i < tiles; ++i) {
        const int st = i & 1;
        wait(1 + st);
        for (int j = 0; j < min(16, S - i * 16); ++j) {
            float s = 0.f;
            for (int d = 0; d < 64; ++d) s = fmaf(qf[d], sk[st][j][d], s);
            const float nm = fmaxf(m, s), c = __expf(m - nm), p = __expf(s - nm); m = nm; l = l * c + p;
            for (int d = 0; d < 64; ++d) o[d] = o[d] * c + p * sv[st][j][d];
        }
        if (i + 2 < tiles) arrive(3 + st);
    }
    if (row < S) for (int d = 0; d < 64; ++d) out[head + (size_t)row * 64 + d] = __float2half(o[d] * v_scale[bh] / l);
}
