// The eight largest of each row.
template <int K> __global__ void topk(const float* x, float* v, int* ids, int n) {
    extern __shared__ unsigned char raw[]; float* s = (float*)raw; int* taken = (int*)(s + n);
    for (int i = threadIdx.x; i < n; i += blockDim.x) { s[i] = x[blockIdx.x * n + i]; taken[i] = 0; }
    __syncthreads();
    for (int k = 0; k < K; ++k) {
        float best = -INFINITY; int at = -1;
        for (int i = threadIdx.x; i < n; i += blockDim.x) if (!taken[i] && s[i] > best) { best = s[i]; at = i; }
        for (int o = 16; o; o >>= 1) { float b = __shfl_down_sync(0xffffffff, best, o); int a = __shfl_down_sync(0xffffffff, at, o); if (b > best || (b == best && a < at)) { best = b; at = a; } }
        __shared__ float wb[4]; __shared__ int wa[4];
        if (threadIdx.x % 32 == 0) { wb[threadIdx.x / 32] = best; wa[threadIdx.x / 32] = at; }
        __syncthreads();
        if (threadIdx.x == 0) { for (int w = 1; w < blockDim.x / 32; ++w) if (wb[w] > best) { best = wb[w]; at = wa[w]; } v[blockIdx.x * K + k] = best; ids[blockIdx.x * K + k] = at; taken[at] = 1; }
        __syncthreads();
    }
}
