// Kernels that the tests of timing launch on a device. timed.ptx is made of it by toolkit 13.0:
//     nvcc -ptx -arch=compute_80 timed.cu -o timed.ptx
// with its `.version 9.0` lowered to 8.4, so that drivers from 12.4 on take it.
#include <stdint.h>

extern "C" __global__ void empty(const float* x, float* y, int n) {}

extern "C" __global__ void copy(const float* x, float* y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];
}

// Reads n floats, four at a time, and writes one sum for each thread.
extern "C" __global__ void read_all(const float4* x, float* y, int n)
{
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        float4 v = x[i];
        sum += v.x + v.y + v.z + v.w;
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// The same, and asks that what it reads stays in L2.
extern "C" __global__ void read_and_keep(const float4* x, float* y, int n)
{
    float sum = 0;
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        float4 v;
        asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(x + i), "l"(policy));
        sum += v.x + v.y + v.z + v.w;
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void half_written(const float* x, float* y, int n)
{
    for (int i = threadIdx.x; i < n / 2; i += blockDim.x) y[i] = x[i];
}

extern "C" __global__ void changes_input(float* x, float* y, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];
    __syncthreads();
    if (threadIdx.x == 0) x[3] += 1.0f;
}

extern "C" __global__ void overrun(const float* x, float* y, int n)
{
    for (int i = threadIdx.x; i < n + 2; i += blockDim.x) y[i] = 1.0f;
}

// Counts in a workspace that has to be zero before each call.
extern "C" __global__ void counts(const float* x, float* y, int n, float* zero)
{
    if (threadIdx.x == 0 && blockIdx.x == 0) zero[0] += 1.0f;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + zero[0];
}

// Right until its 20th launch since it was loaded; one block.
__device__ int launches;
extern "C" __global__ void fails_at_20(const float* x, float* y, int n)
{
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(&launches, 1) + 1;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];
    if (mine == 20 && threadIdx.x == 0) *(float*)((uintptr_t)y + (1ull << 46)) = 1.0f;
}

// The same in a launch that comes with others under way.
extern "C" __global__ void fails_at_500(const float* x, float* y, int n)
{
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(&launches, 1) + 1;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];
    if (mine == 500 && threadIdx.x == 0) *(float*)((uintptr_t)y + (1ull << 46)) = 1.0f;
}

extern "C" __global__ void differs_at_500(const float* x, float* y, int n)
{
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(&launches, 1) + 1;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + (mine == 500 && i == 77 ? 1.0f : 0.0f);
}

// Writes only when called for the first time: what it wrote then is hoped to be there still.
extern "C" __global__ void lazy(const float* x, float* y, int n)
{
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(&launches, 1) + 1;
    __syncthreads();
    for (int i = threadIdx.x; i < n && mine == 1; i += blockDim.x) y[i] = x[i];
}

extern "C" __global__ void hang(const float* x, volatile float* y, int n)
{
    while (y[0] != 12345.0f) {}
}
