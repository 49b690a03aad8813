constexpr int E = 16;
extern "C" __global__ void gate(const float *logits, int *ids, float *w, int *counts, int n) {
    __shared__ int c[E];
    if (threadIdx.x < E)
        c[threadIdx.x] = 0;
    __syncthreads();
    int row = blockIdx.x * (blockDim.x / E) + threadIdx.x / E, e = threadIdx.x % E;
    bool on = row < n;
    float v = on ? logits[row * E + e] : -INFINITY, m = v;
    for (int o = E / 2; o; o >>= 1)
        m = fmaxf(m, __shfl_xor_sync(~0u, m, o, E));
    float p = on ? __expf(v - m) : 0.f, keep = p, w0 = 0;
    for (int k = 0; k < 2; k++) {
        float b = keep;
        int bi = e;
        for (int o = E / 2; o; o >>= 1) {
            float ob = __shfl_xor_sync(~0u, b, o, E);
            int oi = __shfl_xor_sync(~0u, bi, o, E);
            if (ob > b || (ob == b && oi < bi)) {
                b = ob;
                bi = oi;
            }
        }
        if (e == bi)
            keep = -1.f;
        if (on && e == 0) {
            ids[row * 2 + k] = bi;
            atomicAdd(&c[bi], 1);
            if (k == 0)
                w0 = b;
            else {
                w[row * 2] = w0 / (w0 + b);
                w[row * 2 + 1] = b / (w0 + b);
            }
        }
    }
    __syncthreads();
    if (threadIdx.x < E && c[threadIdx.x])
        atomicAdd(&counts[threadIdx.x], c[threadIdx.x]);
}
extern "C" __global__ void offsets(const int *counts, int *off) {
    int l = threadIdx.x, v = l < E ? counts[l] : 0, s = v;
    for (int o = 1; o < 32; o *= 2) {
        int t = __shfl_up_sync(~0u, s, o);
        if (l >= o)
            s += t;
    }
    if (l < E)
        off[l] = s - v;
}
