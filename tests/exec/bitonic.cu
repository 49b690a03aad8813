// A bitonic sort: in shared memory first, then step by step.
__device__ inline void Comparator(float &a, float &b, unsigned dir) { if ((a > b) == dir) { float t = a; a = b; b = t; } }
__global__ void bitonicSortShared(float *d, unsigned n) {
    __shared__ float s[256];
    d += blockIdx.x * 256;
    s[threadIdx.x] = d[threadIdx.x]; s[threadIdx.x + 128] = d[threadIdx.x + 128];
    unsigned dirBlock = blockIdx.x & 1 ^ 1;
    for (unsigned size = 2; size < 256; size <<= 1) {
        unsigned ddd = dirBlock ^ ((threadIdx.x & (size / 2)) != 0) ^ 0;
        for (unsigned stride = size / 2; stride > 0; stride >>= 1) { __syncthreads(); unsigned pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1)); Comparator(s[pos], s[pos + stride], ddd); }
    }
    for (unsigned stride = 128; stride > 0; stride >>= 1) { __syncthreads(); unsigned pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1)); Comparator(s[pos], s[pos + stride], dirBlock); }
    __syncthreads();
    d[threadIdx.x] = s[threadIdx.x]; d[threadIdx.x + 128] = s[threadIdx.x + 128];
}
__global__ void bitonic_step(float *v, int j, int k) { unsigned i = threadIdx.x + blockDim.x * blockIdx.x, ixj = i ^ j; if (ixj > i) { if ((i & k) == 0) { if (v[i] > v[ixj]) { float t = v[i]; v[i] = v[ixj]; v[ixj] = t; } } else if (v[i] < v[ixj]) { float t = v[i]; v[i] = v[ixj]; v[ixj] = t; } } }
