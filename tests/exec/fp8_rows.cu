// Rows to e4m3 with a scale each, and back.
#include <cuda_fp8.h>
#include <cuda_fp16.h>
__global__ void quant(const float* x, __nv_fp8_e4m3* q, float* scale, int cols) {
    const float* row = x + blockIdx.x * cols; float m = 0.f;
    for (int i = threadIdx.x; i < cols; i += 32) m = fmaxf(m, fabsf(row[i]));
    for (int o = 16; o; o /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
    float s = m / 448.f; if (threadIdx.x == 0) scale[blockIdx.x] = s;
    for (int i = threadIdx.x; i < cols; i += 32) q[blockIdx.x * cols + i] = __nv_fp8_e4m3(row[i] / s);
}
__global__ void dequant(const __nv_fp8x4_e4m3* q, const float* scale, float4* y, __half2* h, int n4, int per_row) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n4) return;
    float4 v = static_cast<float4>(q[i]); float s = scale[i / per_row]; y[i] = make_float4(v.x * s, v.y * s, v.z * s, v.w * s);
    __nv_fp8x2_e5m2 p(make_float2(v.x, v.y)); h[i] = static_cast<__half2>(p);
}
