//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "local_array"
//! grid = ["ceil_div(S, 32)", "B * H"]
//! block = [32]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_fp8.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

extern "C" __global__ void local_array(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    const int row = blockIdx.x * 32 + threadIdx.x, bh = blockIdx.y;
    if (row >= S) return;
    const size_t head = (size_t)bh * S * 64;
    float o[64]; int order[16]; float score[16];
    for (int d = 0; d < 64; ++d) o[d] = 0.f;
    float m = -INFINITY, l = 0.f;
    for (int base = 0; base < S; base += 16) {
        const int n = min(16, S - base);
        for (int j = 0; j < n; ++j) {
            float s = 0.f;
            for (int d = 0; d < 64; ++d) s += dec(q[head + (size_t)row * 64 + d]) * dec(k[head + (size_t)(base + j) * 64 + d]);
            score[j] = s * softmax_scale * q_scale[bh] * k_scale[bh];
            int at = j;  // insertion sort, by dynamic indices
            while (at > 0 && score[order[at - 1]] < score[j]) { order[at] = order[at - 1]; --at; }
            order[at] = j;
        }
        const float nm = fmaxf(m, score[order[0]]), c = __expf(m - nm);
        l *= c; for (int d = 0; d < 64; ++d) o[d] *= c;
        for (int i = 0; i < n; ++i) { const int j = order[i]; const float p = __expf(score[j] - nm); l += p; for (int d = 0; d < 64; ++d) o[d] += p * dec(v[head + (size_t)(base + j) * 64 + d]); }
        m = nm;
    }
    for (int d = 0; d < 64; ++d) out[head + (size_t)row * 64 + d] = __float2half(o[d] * v_scale[bh] / l);
}
