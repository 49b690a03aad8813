// A radix sort of one block, by votes.
__global__ void radix_sort(unsigned* d, int n) {
    __shared__ unsigned a[256], b[256]; __shared__ int sums[8]; unsigned t = threadIdx.x; a[t] = d[t]; __syncthreads();
    unsigned *src = a, *dst = b;
    for (int bit = 0; bit < 16; ++bit) {
        unsigned v = src[t]; int zero = !(v >> bit & 1); unsigned bal = __ballot_sync(~0u, zero); int lane = t & 31, w = t >> 5; int before = __popc(bal & ((1u << lane) - 1));
        if (lane == 0) sums[w] = __popc(bal);
        __syncthreads();
        int base = 0, total = 0; for (int i = 0; i < 8; ++i) { if (i < w) base += sums[i]; total += sums[i]; }
        int zeros_before = base + before; int at = zero ? zeros_before : total + (int)t - zeros_before; dst[at] = v;
        __syncthreads(); unsigned* s = src; src = dst; dst = s;
    }
    d[t] = src[t];
    if (__syncthreads_and(t == 0 || src[t - 1] <= src[t]) == 0) __trap();
    if (__syncthreads_count(1) != n) asm("trap;");
}
