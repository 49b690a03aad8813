// A sparse matrix by rows, and by elements with atomics.
template <typename T, int TPR> __global__ void csr_vector(int rows, const int* __restrict__ rowptr, const int* __restrict__ col, const T* __restrict__ val, const T* __restrict__ x, T* y) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / TPR, lane = threadIdx.x % TPR;
    T sum = 0;
    if (row < rows) for (int i = rowptr[row] + lane; i < rowptr[row + 1]; i += TPR) sum += val[i] * __ldg(&x[col[i]]);
    for (int o = TPR / 2; o > 0; o /= 2) sum += __shfl_down_sync(0xffffffff, sum, o, TPR);
    if (row < rows && lane == 0) y[row] = sum;
}
__global__ void csr_atomic(int nnz, int rows, const int* rowptr, const int* col, const float* val, const float* x, double* y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < nnz; i += gridDim.x * blockDim.x) { int lo = 0, hi = rows; while (hi - lo > 1) { int mid = (lo + hi) / 2; if (rowptr[mid] <= i) lo = mid; else hi = mid; } atomicAdd(&y[lo], (double)val[i] * x[col[i]]); }
}
