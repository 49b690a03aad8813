//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [workspace.partial]
//! dtype = "f32"
//! shape = ["B * H", "ceil_div(S, 128)", "S", "66"]
//! [workspace.counter]
//! dtype = "u32"
//! shape = ["B * H", "ceil_div(S, 32)"]
//! init = "zero"
//! [[launch]]
//! entry = "last_block"
//! grid = ["ceil_div(S, 32)", "ceil_div(S, 128)", "B * H"]
//! block = [32]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "partial", "counter", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_fp8.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

extern "C" __global__ void last_block(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float* partial, unsigned int* counter, float softmax_scale, int S) {
    const int row = blockIdx.x * 32 + threadIdx.x, slice = blockIdx.y, bh = blockIdx.z, slices = gridDim.y;
    const size_t head = (size_t)bh * S * 64;
    const float scale = softmax_scale * q_scale[bh] * k_scale[bh];
    float* mine = partial + (((size_t)bh * slices + slice) * S + min(row, S - 1)) * 66;
    if (row < S) {
        float qf[64], o[64], m = -INFINITY, l = 0.f;
        for (int d = 0; d < 64; ++d) { qf[d] = dec(q[head + (size_t)row * 64 + d]) * scale; o[d] = 0.f; }
        for (int j = slice * 128; j < min(S, slice * 128 + 128); ++j) {
            float s = 0.f;
            for (int d = 0; d < 64; ++d) s = fmaf(qf[d], dec(k[head + (size_t)j * 64 + d]), s);
            const float nm = fmaxf(m, s), c = __expf(m - nm), p = __expf(s - nm); m = nm; l = l * c + p;
            for (int d = 0; d < 64; ++d) o[d] = o[d] * c + p * dec(v[head + (size_t)j * 64 + d]);
        }
        for (int d = 0; d < 64; ++d) mine[d] = o[d];
        mine[64] = m; mine[65] = l;
    }
    __threadfence();
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counter + bh * gridDim.x + blockIdx.x, 1u) == slices - 1;
    __syncthreads();
    if (!last || row >= S) return;
    __threadfence();
    float m = -INFINITY, l = 0.f, o[64];
    for (int d = 0; d < 64; ++d) o[d] = 0.f;
    for (int s = 0; s < slices; ++s) {
        const float* p = partial + (((size_t)bh * slices + s) * S + row) * 66;
        const float nm = fmaxf(m, p[64]), a = __expf(m - nm), b = __expf(p[64] - nm);
        for (int d = 0; d < 64; ++d) o[d] = o[d] * a + p[d] * b;
        l = l * a + p[65] * b; m = nm;
    }
    for (int d = 0; d < 64; ++d) out[head + (size_t)row * 64 + d] = __float2half(o[d] * v_scale[bh] / l);
}
