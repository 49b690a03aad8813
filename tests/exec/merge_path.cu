#include <cuda_runtime.h>
template <typename T> __device__ int merge_path(const T* a, int na, const T* b, int nb, int diag) {
    int lo = max(0, diag - nb), hi = min(diag, na);
    while (lo < hi) { int mid = (lo + hi) >> 1; if (a[mid] <= b[diag - 1 - mid]) lo = mid + 1; else hi = mid; }
    return lo;
}
template <typename T, int NT, int VT> __global__ void merge_kernel(const T* a, int na, const T* b, int nb, T* out) {
    constexpr int NV = NT * VT;
    __shared__ T s[NV + 1];
    int d0 = min(blockIdx.x * NV, na + nb), d1 = min(d0 + NV, na + nb);
    __shared__ int bounds[2];
    if (threadIdx.x < 2) bounds[threadIdx.x] = merge_path(a, na, b, nb, threadIdx.x ? d1 : d0);
    __syncthreads();
    int a0 = bounds[0], a1 = bounds[1], b0 = d0 - a0, b1 = d1 - a1, la = a1 - a0, lb = b1 - b0;
    for (int i = threadIdx.x; i < la + lb; i += NT) s[i] = i < la ? a[a0 + i] : b[b0 + i - la];
    __syncthreads();
    int diag = min(VT * (int)threadIdx.x, la + lb);
    int i = merge_path(s, la, s + la, lb, diag), j = diag - i;
    T r[VT];
#pragma unroll
    for (int k = 0; k < VT; ++k) {
        bool p = j >= lb || (i < la && s[i] <= s[la + j]);
        if (i < la || j < lb) r[k] = p ? s[i++] : s[la + j++];
    }
    __syncthreads();
    for (int k = 0; k < VT; ++k) if (diag + k < la + lb) s[diag + k] = r[k];
    __syncthreads();
    for (int k = threadIdx.x; k < la + lb; k += NT) out[d0 + k] = s[k];
}
