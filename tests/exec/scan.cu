// Exclusive prefix sums of one block, up and down a tree (Blelloch); two elements a thread.
__global__ void exclusive_scan(const int* in, int* out, int n) {
    extern __shared__ int t[];
    int i = threadIdx.x, offset = 1;
    t[2 * i] = in[2 * i];
    t[2 * i + 1] = in[2 * i + 1];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (i < d) t[offset * (2 * i + 2) - 1] += t[offset * (2 * i + 1) - 1];
        offset *= 2;
    }
    if (i == 0) t[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (i < d) {
            int left = offset * (2 * i + 1) - 1, right = offset * (2 * i + 2) - 1;
            int v = t[left];
            t[left] = t[right];
            t[right] += v;
        }
    }
    __syncthreads();
    out[2 * i] = t[2 * i];
    out[2 * i + 1] = t[2 * i + 1];
}
