//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "constant_lut"
//! grid = ["ceil_div(S, 32)", "B * H"]
//! block = [32]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_fp8.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

__constant__ float exponent[16] = {0.001953125f, 0.015625f, 0.03125f, 0.0625f, 0.125f, 0.25f, 0.5f, 1.f, 2.f, 4.f, 8.f, 16.f, 32.f, 64.f, 128.f, 256.f};
__device__ const double unit = 0.125;
static __device__ float lut(unsigned char c) { const int e = (c >> 3) & 15, f = c & 7; const double x = e ? exponent[e] * (1.0 + f * unit) : f * (double)exponent[0]; return (float)(c & 128 ? -x : x); }
extern "C" __global__ void constant_lut(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    const int row = blockIdx.x * 32 + threadIdx.x, bh = blockIdx.y;
    if (row >= S) return;
    const size_t head = (size_t)bh * S * 64;
    double o[64], m = -1e300, l = 0;
    float qf[64];
    for (int d = 0; d < 64; ++d) { qf[d] = lut(q[head + (size_t)row * 64 + d]); o[d] = 0; }
    for (int j = 0; j < S; ++j) {
        double s = 0;
        for (int d = 0; d < 64; ++d) s += (double)qf[d] * lut(k[head + (size_t)j * 64 + d]);
        s *= (double)softmax_scale * q_scale[bh] * k_scale[bh];
        const double nm = fmax(m, s), c = exp(m - nm), p = exp(s - nm); m = nm; l = l * c + p;
        for (int d = 0; d < 64; ++d) o[d] = o[d] * c + p * lut(v[head + (size_t)j * 64 + d]);
    }
    for (int d = 0; d < 64; ++d) out[head + (size_t)row * 64 + d] = __double2half(o[d] * v_scale[bh] / l);
}
