//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "bf16x2_products"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [64]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_fp8.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

#include <cuda_bf16.h>
extern "C" __global__ void bf16x2_products(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    const int row = blockIdx.x * 64 + threadIdx.x, bh = blockIdx.y;
    __shared__ __half2 sk[32][32];
    __shared__ __nv_bfloat162 sv[32][32];
    const size_t head = (size_t)bh * S * 64;
    __half2 qf[32]; float o[64], m = -INFINITY, l = 0.f;
    for (int d = 0; d < 32; ++d) { qf[d] = row < S ? __floats2half2_rn(dec(q[head + (size_t)row * 64 + 2 * d]), dec(q[head + (size_t)row * 64 + 2 * d + 1])) : __float2half2_rn(0.f); }
    for (int d = 0; d < 64; ++d) o[d] = 0.f;
    for (int base = 0; base < S; base += 32) {
        __syncthreads();
        for (int i = threadIdx.x; i < 1024; i += 64) { const int j = base + i / 32; const bool in = j < S; const size_t at = head + (size_t)j * 64 + (i % 32) * 2;
            sk[i / 32][i % 32] = in ? __floats2half2_rn(dec(k[at]), dec(k[at + 1])) : __float2half2_rn(0.f);
            sv[i / 32][i % 32] = in ? __floats2bfloat162_rn(dec(v[at]), dec(v[at + 1])) : __float2bfloat162_rn(0.f); }
        __syncthreads();
        for (int j = 0; j < min(32, S - base); ++j) {
            float s = 0.f;
            for (int d = 0; d < 32; ++d) { const float2 f = __half22float2(__hmul2(qf[d], __float2half2_rn(0.00390625f))), g = __half22float2(sk[j][d]); s += (f.x * g.x + f.y * g.y) * 256.f; }
            s *= softmax_scale * q_scale[bh] * k_scale[bh];
            const float nm = fmaxf(m, s), c = __expf(m - nm), p = __expf(s - nm); m = nm; l = l * c + p;
            for (int d = 0; d < 32; ++d) { const float2 f = __bfloat1622float2(sv[j][d]); o[2 * d] = o[2 * d] * c + p * f.x; o[2 * d + 1] = o[2 * d + 1] * c + p * f.y; }
        }
    }
    if (row < S) for (int d = 0; d < 64; d += 2) *(__half2*)(out + head + (size_t)row * 64 + d) = __floats2half2_rn(o[d] * v_scale[bh] / l, o[d + 1] * v_scale[bh] / l);
}
