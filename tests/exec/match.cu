extern "C" __global__ void k(const unsigned char *x, unsigned *h, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned a = __activemask();
        unsigned m = __match_any_sync(a, (unsigned)x[i]);
        if ((threadIdx.x & 31) == __ffs(m) - 1)
            atomicAdd(h + x[i], __popc(m));
    }
}