#define FLT_MAX 3.402823466e+38f
extern "C" __global__ void pa(const float *q, const float *kc, const float *vc, const int *pt, const int *len, float *o, int maxp,
                              float sc) {
    int b = blockIdx.x, t = threadIdx.x, L = len[b];
    extern __shared__ float lg[];
    __shared__ float qs[32], red[4];
    if (t < 32)
        qs[t] = q[b * 32 + t];
    __syncthreads();
    float m = -FLT_MAX;
    for (int i = t; i < L; i += blockDim.x) {
        const float *k = kc + (pt[b * maxp + i / 8] * 8 + i % 8) * 32;
        float s = 0;
        for (int d = 0; d < 32; d += 4) {
            float4 a = *(const float4 *)(k + d);
            s += a.x * qs[d] + a.y * qs[d + 1] + a.z * qs[d + 2] + a.w * qs[d + 3];
        }
        s *= sc;
        lg[i] = s;
        m = fmaxf(m, s);
    }
    for (int o2 = 16; o2; o2 >>= 1)
        m = fmaxf(m, __shfl_xor_sync(~0u, m, o2));
    if (t % 32 == 0)
        red[t / 32] = m;
    __syncthreads();
    m = fmaxf(red[0], red[1]);
    float l = 0;
    __syncthreads();
    for (int i = t; i < L; i += blockDim.x) {
        float e = __expf(lg[i] - m);
        lg[i] = e;
        l += e;
    }
    for (int o2 = 16; o2; o2 >>= 1)
        l += __shfl_xor_sync(~0u, l, o2);
    if (t % 32 == 0)
        red[t / 32] = l;
    __syncthreads();
    l = red[0] + red[1];
    if (t < 32) {
        float a = 0;
        for (int i = 0; i < L; i++)
            a += lg[i] * vc[(pt[b * maxp + i / 8] * 8 + i % 8) * 32 + t];
        o[b * 32 + t] = a / l;
    }
}