//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [workspace.ticket]
//! dtype = "u32"
//! shape = ["1"]
//! init = "zero"
//! [[launch]]
//! entry = "persistent"
//! grid = ["min(8, B * H * ceil_div(S, 32))"]
//! block = [32]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "B * H", "ticket"]
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

extern "C" __global__ void persistent(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S, int heads, unsigned* ticket) {
    const int tiles = (S + 31) / 32, total = tiles * heads;
    while (true) {
        unsigned t = 0;
        if (threadIdx.x == 0) t = atomicAdd(ticket, 1u);
        t = __shfl_sync(0xffffffffu, t, 0);
        if (t >= total) break;
        const int bh = t / tiles, row = (t % tiles) * 32 + threadIdx.x;
        if (row < S) {
            const size_t head = (size_t)bh * S * 64;
            const uint4* q4 = (const uint4*)(q + head + (size_t)row * 64);
            float qf[64], o[64], m = -INFINITY, l = 0.f;
            for (int i = 0; i < 4; ++i) { uint4 u = __ldg(q4 + i); const unsigned w4[4] = {u.x, u.y, u.z, u.w}; for (int j = 0; j < 16; ++j) qf[i * 16 + j] = dec((w4[j / 4] >> (8 * (j % 4))) & 255) * softmax_scale * q_scale[bh] * k_scale[bh]; }
            for (int d = 0; d < 64; ++d) o[d] = 0.f;
            for (int j = 0; j < S; ++j) {
                float s = 0.f;
                for (int d = 0; d < 64; ++d) s = fmaf(qf[d], dec(k[head + (size_t)j * 64 + d]), s);
                const float nm = fmaxf(m, s), c = __expf(m - nm), p = __expf(s - nm); m = nm; l = l * c + p;
                for (int d = 0; d < 64; ++d) o[d] = o[d] * c + p * dec(v[head + (size_t)j * 64 + d]);
            }
            for (int d = 0; d < 64; ++d) out[head + (size_t)row * 64 + d] = __float2half(__fdividef(o[d] * v_scale[bh], l));
        }
        __syncwarp();
    }
}
