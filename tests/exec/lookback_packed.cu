#include <cuda/atomic>
enum : unsigned { EMPTY = 0, PARTIAL = 1, PREFIX = 2 };
using State = cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>;
__device__ int warp_scan(int v) {
    for (int o = 1; o < 32; o *= 2) {
        int t = __shfl_up_sync(~0u, v, o);
        if ((threadIdx.x & 31) >= o)
            v += t;
    }
    return v;
}
extern "C" __global__ void scan(const int *x, int *y, unsigned long long *st, unsigned *ticket, int n) {
    __shared__ unsigned tile;
    __shared__ int ws[8];
    __shared__ int before;
    if (threadIdx.x == 0)
        tile = atomicAdd(ticket, 1u);
    __syncthreads();
    int i = tile * 256 + threadIdx.x, v = i < n ? x[i] : 0, s = warp_scan(v), w = threadIdx.x / 32;
    if ((threadIdx.x & 31) == 31)
        ws[w] = s;
    __syncthreads();
    if (w == 0) {
        int t = threadIdx.x < 8 ? ws[threadIdx.x] : 0;
        t = warp_scan(t);
        if (threadIdx.x < 8)
            ws[threadIdx.x] = t;
    }
    __syncthreads();
    if (w)
        s += ws[w - 1];
    if (threadIdx.x == 0) {
        int total = ws[7], run = 0;
        State(st[tile]).store((unsigned long long)(tile ? PARTIAL : PREFIX) << 32 | (unsigned)total, cuda::memory_order_relaxed);
        for (int p = (int)tile - 1; p >= 0;) {
            unsigned long long q;
            while (((q = State(st[p]).load(cuda::memory_order_relaxed)) >> 32) == EMPTY) {
            }
            run += (int)(unsigned)q;
            if (q >> 32 == PREFIX)
                break;
            p--;
        }
        if (tile)
            State(st[tile]).store((unsigned long long)PREFIX << 32 | (unsigned)(run + total), cuda::memory_order_relaxed);
        before = run;
    }
    __syncthreads();
    if (i < n)
        y[i] = s + before;
}