extern "C" __global__ void fft(const float2 *x, float2 *y) {
    __shared__ float2 s[2][128];
    int t = threadIdx.x;
    const int n = 128;
    s[0][t] = x[blockIdx.x * n + t];
    s[0][t + 64] = x[blockIdx.x * n + t + 64];
    __syncthreads();
    int p = 0;
    for (int m = 1; m < n; m *= 2) {
        int k = t & (m - 1), j = (t - k) * 2 + k;
        float2 a = s[p][t], b = s[p][t + 64];
        float sn, cs;
        sincospif(-(float)k / m, &sn, &cs);
        float2 r = {b.x * cs - b.y * sn, b.x * sn + b.y * cs};
        s[p ^ 1][j] = {a.x + r.x, a.y + r.y};
        s[p ^ 1][j + m] = {a.x - r.x, a.y - r.y};
        p ^= 1;
        __syncthreads();
    }
    y[blockIdx.x * n + t] = s[p][t];
    y[blockIdx.x * n + t + 64] = s[p][t + 64];
}