//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "two_pass_atomics"
//! grid = ["S", "B * H"]
//! block = [128]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

extern "C" __global__ void two_pass_atomics(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    __shared__ float qf[64], acc[64], sum; __shared__ int top;
    const int t = threadIdx.x, bh = blockIdx.y; const size_t head = (size_t)bh * S * 64;
    if (t < 64) { qf[t] = dec(q[head + (size_t)blockIdx.x * 64 + t]) * softmax_scale * q_scale[bh] * k_scale[bh]; acc[t] = 0.f; }
    if (t == 0) { sum = 0.f; top = 0x80000000; }
    __syncthreads();
    auto score = [&](int j) { float s = 0.f; const unsigned* kp = (const unsigned*)(k + head + (size_t)j * 64); for (int i = 0; i < 16; ++i) { unsigned u; asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(u) : "l"(kp + i)); for (int b = 0; b < 4; ++b) s += qf[i * 4 + b] * dec(__byte_perm(u, 0, 0x4440 + b)); } return s; };
    auto order = [](float x) { int i = __float_as_int(x); return i ^ ((i >> 31) & 0x7fffffff); };
    for (int j = t; j < S; j += 128) atomicMax(&top, order(score(j)));
    __syncthreads();
    const float m = __int_as_float(top ^ ((top >> 31) & 0x7fffffff));
    for (int j = t; j < S; j += 128) {
        const float p = exp2f((score(j) - m) * 1.4426950408889634f);
        atomicAdd(&sum, p);
        for (int d = 0; d < 64; ++d) atomicAdd(&acc[(d + t) & 63], p * dec(v[head + (size_t)j * 64 + ((d + t) & 63)]));
    }
    __syncthreads();
    if (t < 32) ((__half2*)(out + head + (size_t)blockIdx.x * 64))[t] = __floats2half2_rn(acc[2 * t] * v_scale[bh] / sum, acc[2 * t + 1] * v_scale[bh] / sum);
}
