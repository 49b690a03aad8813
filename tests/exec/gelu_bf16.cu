// The tanh form of GELU on bf16, two elements a thread, its constants in a structure passed by value.
#include <cuda_bf16.h>

struct Gelu {
    float a, b;
    int pairs;
};

__global__ void gelu(const __nv_bfloat162* x, __nv_bfloat162* y, Gelu p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.pairs) return;
    float2 v = __bfloat1622float2(x[i]);
    v.x = 0.5f * v.x * (1.0f + tanhf(p.a * (v.x + p.b * v.x * v.x * v.x)));
    v.y = 0.5f * v.y * (1.0f + tanhf(p.a * (v.y + p.b * v.y * v.y * v.y)));
    y[i] = __float22bfloat162_rn(v);
}
