// Numbers to e4m3 and e5m2, and back to half.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void to_fp8(const float* x, __nv_fp8_e4m3* a, __nv_fp8_e5m2* b, int n, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        a[i] = __nv_fp8_e4m3(x[i] * scale);
        b[i] = __nv_fp8_e5m2(x[i] * scale);
    }
}

extern "C" __global__ void from_fp8(const __nv_fp8_e4m3* a, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __half(a[i]);
}
