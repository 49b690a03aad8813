// A sum in two launches: partial sums of blocks, then their sum.
__global__ void reduce(const float* x, float* sums, int n) {
    extern __shared__ float shared[];
    int i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
    float v = 0.0f;
    if (i < n) v += x[i];
    if (i + blockDim.x < n) v += x[i + blockDim.x];
    shared[threadIdx.x] = v;
    __syncthreads();
    for (unsigned d = blockDim.x / 2; d > 0; d >>= 1) {
        if (threadIdx.x < d) shared[threadIdx.x] += shared[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}
