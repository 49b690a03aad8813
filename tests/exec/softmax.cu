// A row for each block, its threads a template argument.
#include <cuda_fp16.h>

template <typename T> __device__ float as_float(T x) { return float(x); }

template <typename T, int THREADS>
__global__ void softmax(const T* x, float* y, int cols) {
    __shared__ float shared[THREADS];
    const T* row = x + blockIdx.x * cols;
    float most = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += THREADS) most = fmaxf(most, as_float(row[c]));
    shared[threadIdx.x] = most;
    __syncthreads();
    for (int d = THREADS / 2; d > 0; d /= 2) {
        if (threadIdx.x < d) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + d]);
        __syncthreads();
    }
    most = shared[0];
    __syncthreads();
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += THREADS) sum += expf(as_float(row[c]) - most);
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int d = THREADS / 2; d > 0; d /= 2) {
        if (threadIdx.x < d) shared[threadIdx.x] += shared[threadIdx.x + d];
        __syncthreads();
    }
    for (int c = threadIdx.x; c < cols; c += THREADS) y[blockIdx.x * cols + c] = expf(as_float(row[c]) - most) / shared[0];
}
