//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "writes_scale"
//! grid = ["ceil_div(S, 4)", "B * H"]
//! block = [32, 4]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]

// expect: faulted
#include <cuda_fp16.h>
#include <cuda_fp8.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }
static __device__ float wsum(float x) { for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o); return x; }
static __device__ float wmax(float x) { for (int o = 16; o; o >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o)); return x; }

extern "C" __global__ void writes_scale(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    const int lane = threadIdx.x, w = threadIdx.y, row = blockIdx.x * 4 + w, bh = blockIdx.y;
    __shared__ float qs[4][64];
    const size_t head = (size_t)bh * S * 64;
    const float scale = softmax_scale * q_scale[bh] * k_scale[bh];

    if (row >= S) return;
    qs[w][lane] = dec(q[head + (size_t)row * 64 + lane]); qs[w][lane + 32] = dec(q[head + (size_t)row * 64 + lane + 32]);
    __syncwarp();
    float m = -INFINITY, l = 0.f, a0 = 0.f, a1 = 0.f;
    for (int base = 0; base < S; base += 32) {
        const int j = base + lane; float s = -INFINITY;
        if (j < S) { s = 0.f; for (int d = 0; d < 64; ++d) s += qs[w][d] * dec(k[head + (size_t)j * 64 + d]); s *= scale; }
        const float nm = fmaxf(m, wmax(s));
        const float c = __expf(m - nm), p = j < S ? __expf(s - nm) : 0.f;
        l = l * c + wsum(p); a0 *= c; a1 *= c; m = nm;
        const int n = min(32, (int)(S) - base);
        for (int t = 0; t < n; ++t) { const float pt = __shfl_sync(0xffffffffu, p, t);
            a0 += pt * dec(v[head + (size_t)(base + t) * 64 + lane]); a1 += pt * dec(v[head + (size_t)(base + t) * 64 + lane + 32]); }
    }
    out[head + (size_t)row * 64 + lane] = __float2half(a0 * v_scale[bh] / l); out[head + (size_t)row * 64 + lane + 32] = __float2half(a1 * v_scale[bh] / l);
    ((float*)v_scale)[bh] = 1.f;
}
