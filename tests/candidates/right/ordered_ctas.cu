//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [workspace.state]
//! dtype = "f32"
//! shape = ["B * H", "S", "66"]
//! [workspace.flag]
//! dtype = "i32"
//! shape = ["B * H", "ceil_div(S, 64)"]
//! init = "zero"
//! [[launch]]
//! entry = "ordered_ctas"
//! grid = ["ceil_div(S, 64)", "ceil_div(S, 64)", "B * H"]
//! block = [64]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "state", "flag"]
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

// Slices of keys fold into the state of a row tile in order: CTA y waits for CTA y - 1 by a flag in global memory.
extern "C" __global__ void ordered_ctas(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S, float* state, int* flag) {
    const int row = blockIdx.x * 64 + threadIdx.x, bh = blockIdx.z; const size_t head = (size_t)bh * S * 64;
    float o[64], m = -INFINITY, l = 0.f; for (int d = 0; d < 64; ++d) o[d] = 0.f;
    const float scale = softmax_scale * q_scale[bh] * k_scale[bh];
    if (row < S) for (int j = blockIdx.y * 64; j < min(S, (int)blockIdx.y * 64 + 64); ++j) {
        float s = 0.f; for (int d = 0; d < 64; ++d) s += dec(q[head + (size_t)row * 64 + d]) * dec(k[head + (size_t)j * 64 + d]); s *= scale;
        const float nm = fmaxf(m, s), c = __expf(m - nm), p = __expf(s - nm); m = nm; l = l * c + p;
        for (int d = 0; d < 64; ++d) o[d] = o[d] * c + p * dec(v[head + (size_t)j * 64 + d]);
    }
    int* mine = flag + bh * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) { int seen; do { asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory"); if (seen < (int)blockIdx.y) __nanosleep(50); } while (seen < (int)blockIdx.y); }
    __syncthreads();
    float* st = state + ((size_t)bh * S + min(row, S - 1)) * 66;
    if (row < S) {
        if (blockIdx.y) { const float pm = __ldcg(st + 64), nm = fmaxf(m, pm), a = __expf(pm - nm), b = __expf(m - nm); for (int d = 0; d < 64; ++d) o[d] = o[d] * b + __ldcg(st + d) * a; l = l * b + __ldcg(st + 65) * a; m = nm; }
        if (blockIdx.y + 1 == gridDim.y) for (int d = 0; d < 64; ++d) out[head + (size_t)row * 64 + d] = __float2half(o[d] * v_scale[bh] / l);
        else { for (int d = 0; d < 64; ++d) __stcg(st + d, o[d]); __stcg(st + 64, m); __stcg(st + 65, l); }
    }
    __syncthreads();
    if (threadIdx.x == 0) { __threadfence(); asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(mine), "r"((int)blockIdx.y + 1) : "memory"); }
}
