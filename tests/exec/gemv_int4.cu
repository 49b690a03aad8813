#include <cuda_fp16.h>
__device__ __forceinline__ unsigned lop(unsigned a) {
    unsigned r;
    asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(r) : "r"(a));
    return r;
}
extern "C" __global__ void gemv(const unsigned *__restrict__ w, const __half *__restrict__ s, const __half *__restrict__ x, float *y,
                                int groups) {
    int row = blockIdx.x * blockDim.y + threadIdx.y, l = threadIdx.x;
    float acc = 0;
    unsigned p = w[row * 8 + l];
    __half sc = s[row * groups + l / (8 / groups)];
    for (int j = 0; j < 4; j++) {
        unsigned h = lop(p >> (4 * j));
        __half2 v = __hsub2(*reinterpret_cast<__half2 *>(&h), __float2half2_rn(1032.f));
        acc += __half2float(__low2half(v)) * __half2float(sc) * __half2float(x[l * 8 + j]) +
               __half2float(__high2half(v)) * __half2float(sc) * __half2float(x[l * 8 + j + 4]);
    }
    for (int o = 4; o; o >>= 1)
        acc += __shfl_down_sync(0xffffffffu, acc, o, 8);
    if (l == 0)
        y[row] = acc;
}