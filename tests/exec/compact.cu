#include <cuda_runtime.h>
#define FLAG_AGG 1u
#define FLAG_PRE 2u
template <int NT> __global__ void compact(const int* in, int n, int* out, int* total, unsigned long long* state, unsigned* ticket) {
    __shared__ unsigned tile; __shared__ int wsum[NT / 32 + 1]; __shared__ int prefix;
    if (threadIdx.x == 0) tile = atomicAdd(ticket, 1u);
    __syncthreads();
    int i = tile * NT + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int v = i < n ? in[i] : 0; bool p = i < n && v > 0;
    unsigned m = __ballot_sync(~0u, p); int r = __popc(m & ((1u << lane) - 1));
    if (lane == 0) wsum[warp] = __popc(m);
    __syncthreads();
    if (warp == 0) { int s = lane < NT / 32 ? wsum[lane] : 0, t = s; for (int o = 1; o < 32; o *= 2) { int u = __shfl_up_sync(~0u, t, o); if (lane >= o) t += u; } if (lane < NT / 32) wsum[lane] = t - s; if (lane == 31) wsum[NT / 32] = t; }
    __syncthreads();
    int agg = wsum[NT / 32];
    if (warp == 0) {
        if (lane == 0) { unsigned long long w = ((unsigned long long)(tile == 0 ? FLAG_PRE : FLAG_AGG) << 32) | (unsigned)agg; atomicExch(&state[tile], w); }
        int ex = 0;
        if (tile > 0) for (int base = (int)tile - 1;; base -= 32) {
            int at = base - lane; unsigned long long w = (unsigned long long)FLAG_PRE << 32;
            if (at >= 0) do { w = *(volatile unsigned long long*)&state[at]; } while ((w >> 32) == 0);
            unsigned pre = __ballot_sync(~0u, (w >> 32) == FLAG_PRE); int stop = __ffs(pre) - 1;
            int c = (stop < 0 || lane <= stop) ? (int)(unsigned)w : 0; c = __reduce_add_sync(~0u, c); ex += c;
            if (stop >= 0) break;
        }
        if (lane == 0) { if (tile) atomicExch(&state[tile], ((unsigned long long)FLAG_PRE << 32) | (unsigned)(ex + agg)); prefix = ex; if (i + NT >= n) *total = ex + agg; }
    }
    __syncthreads();
    if (p) out[prefix + wsum[warp] + r] = v;
}
