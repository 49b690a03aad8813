#include <cuda_runtime.h>
struct Mutex { int* m; __device__ void lock() { unsigned ns = 8; while (atomicCAS(m, 0, 1) != 0) { __nanosleep(ns); if (ns < 256) ns *= 2; } __threadfence(); } __device__ void unlock() { __threadfence(); atomicExch(m, 0); } };
__global__ void guarded(int* m, int* count, float* mean, int per) {
    Mutex mx{m};
    for (int k = 0; k < per; ++k) {
        if (threadIdx.x == 0) { mx.lock(); int c = *(volatile int*)count; *(volatile int*)count = c + 1; *(volatile float*)mean = *(volatile float*)mean + 0.5f; mx.unlock(); }
        __syncthreads();
    }
}
__global__ void ticket(unsigned* t, int* order, int* value) {
    if (threadIdx.x == 0) {
        unsigned my = atomicAdd(t, 1);
        while (atomicAdd(t + 1, 0) != my) __nanosleep(20);
        __threadfence();
        order[my] = my; *value = *value * 3 % 1001 + 1;
        __threadfence();
        atomicAdd(t + 1, 1);
    }
}
__global__ void per_thread(int* lock, int* sum) {
    bool done = false;
    while (!done) { if (atomicCAS(lock, 0, 1) == 0) { __threadfence(); *(volatile int*)sum = *(volatile int*)sum + (int)threadIdx.x; __threadfence(); atomicExch(lock, 0); done = true; } }
}
__device__ float atomicMaxF(float* a, float v) { int* p = (int*)a; int old = *p, seen; do { seen = old; if (__int_as_float(seen) >= v) break; old = atomicCAS(p, seen, __float_as_int(v)); } while (seen != old); return __int_as_float(old); }
__global__ void smaxes(const float* x, float* m, int* hist, int n) {
    __shared__ float best; __shared__ int bins[8]; if (threadIdx.x == 0) best = -1e30f; if (threadIdx.x < 8) bins[threadIdx.x] = 0; __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) { atomicMaxF(&best, x[i]); int b = (int)(fabsf(x[i]) * 4) & 7; int old = bins[b], seen; do { seen = old; old = atomicCAS(&bins[b], seen, seen + 1); } while (old != seen); }
    __syncthreads(); if (threadIdx.x == 0) *m = best; if (threadIdx.x < 8) hist[threadIdx.x] = bins[threadIdx.x];
}
__device__ double atomicAddD(double* address, double val) { unsigned long long int* a = (unsigned long long int*)address; unsigned long long int old = *a, assumed; do { assumed = old; old = atomicCAS(a, assumed, __double_as_longlong(val + __longlong_as_double(assumed))); } while (assumed != old); return __longlong_as_double(old); }
__global__ void dsum(const float* x, double* s, int* big, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { atomicAddD(s, rint(x[i] * 16)); atomicMax(big, (int)(x[i] * 100)); } }
__global__ void maxes(const float* x, float* m, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicMaxF(m, x[i]); }
