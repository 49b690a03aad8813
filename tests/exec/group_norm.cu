template <typename T> struct Welford { T mean, m2, n; };
template <typename T> __device__ Welford<T> combine(Welford<T> a, Welford<T> b) {
    if (b.n == T(0))
        return a;
    T n = a.n + b.n, d = b.mean - a.mean, r = b.n / n;
    return {a.mean + d * r, a.m2 + b.m2 + d * d * a.n * r, n};
}
template <typename T> __device__ Welford<T> warp_all(Welford<T> v) {
    for (int m = 1; m < 32; m *= 2) {
        Welford<T> o = {__shfl_down_sync(~0u, v.mean, m), __shfl_down_sync(~0u, v.m2, m), __shfl_down_sync(~0u, v.n, m)};
        v = combine(v, o);
    }
    return v;
}
template <typename T> __device__ Welford<T> block_all(Welford<T> v) {
    __shared__ Welford<T> part[32];
    v = warp_all(v);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : Welford<T>{0, 0, 0};
        v = warp_all(v);
        if (threadIdx.x == 0)
            part[0] = v;
    }
    __syncthreads();
    return part[0];
}
extern "C" __global__ void gn(const float *x, float *y, int per, float eps) {
    const float *p = x + (size_t)blockIdx.x * per;
    Welford<float> v = {0, 0, 0};
    for (int i = threadIdx.x; i < per; i += blockDim.x)
        v = combine(v, Welford<float>{p[i], 0, 1});
    v = block_all(v);
    float r = rsqrtf(v.m2 / v.n + eps);
    for (int i = threadIdx.x; i < per; i += blockDim.x)
        y[(size_t)blockIdx.x * per + i] = (p[i] - v.mean) * r;
}