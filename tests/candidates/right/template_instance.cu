//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "attend<64, true>"
//! grid = ["ceil_div(S, 32)", "B * H"]
//! block = [32]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_fp8.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

// An entry that is a template's instance; its `static` helper has internal linkage, which the compiler marks with an id of its own.
template <int kDim, bool kFast>
__global__ void attend(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, long long S) {
    const int row = blockIdx.x * 32 + threadIdx.x, bh = blockIdx.y;
    if (row >= S) return;
    const size_t head = (size_t)bh * S * kDim;
    float qf[kDim], o[kDim], m = -INFINITY, l = 0.f;
    for (int d = 0; d < kDim; ++d) { qf[d] = dec(q[head + (size_t)row * kDim + d]) * softmax_scale * q_scale[bh] * k_scale[bh]; o[d] = 0.f; }
    for (int j = 0; j < S; ++j) {
        float s = 0.f;
        for (int d = 0; d < kDim; ++d) s = fmaf(qf[d], dec(k[head + (size_t)j * kDim + d]), s);
        const float nm = fmaxf(m, s), c = kFast ? exp2f((m - nm) * 1.44269504f) : expf(m - nm), p = kFast ? exp2f((s - nm) * 1.44269504f) : expf(s - nm); m = nm; l = l * c + p;
        for (int d = 0; d < kDim; ++d) o[d] = o[d] * c + p * dec(v[head + (size_t)j * kDim + d]);
    }
    for (int d = 0; d < kDim; ++d) out[head + (size_t)row * kDim + d] = __float2half(o[d] * v_scale[bh] / l);
}
