template <int D, int BM, int BN, bool CAUSAL>
__global__ void __launch_bounds__(BM)
    fa2(const float *__restrict__ Q, const float *__restrict__ K, const float *__restrict__ V, float *__restrict__ O, int S, float sc) {
    __shared__ __align__(16) float ks[BN][D], vs[BN][D];
    int b = blockIdx.y, row = blockIdx.x * BM + threadIdx.x;
    const float *q = Q + (b * S + row) * D;
    float qr[D], o[D];
#pragma unroll
    for (int i = 0; i < D; i++) {
        qr[i] = q[i] * sc * 1.4426950408889634f;
        o[i] = 0;
    }
    float m = -1e30f, l = 0;
    for (int n0 = 0; n0 < S; n0 += BN) {
        for (int i = threadIdx.x; i < BN * D / 4; i += BM) {
            ((float4 *)ks)[i] = ((const float4 *)(K + (b * S + n0) * D))[i];
            ((float4 *)vs)[i] = ((const float4 *)(V + (b * S + n0) * D))[i];
        }
        __syncthreads();
        float s[BN], mn = m;
#pragma unroll
        for (int j = 0; j < BN; j++) {
            float a = 0;
#pragma unroll
            for (int i = 0; i < D; i++)
                a += qr[i] * ks[j][i];
            if (CAUSAL && n0 + j > row)
                a = -1e30f;
            s[j] = a;
            mn = fmaxf(mn, a);
        }
        float al = exp2f(m - mn);
        l *= al;
        for (int i = 0; i < D; i++)
            o[i] *= al;
#pragma unroll
        for (int j = 0; j < BN; j++) {
            float p = exp2f(s[j] - mn);
            l += p;
            for (int i = 0; i < D; i++)
                o[i] += p * vs[j][i];
        }
        m = mn;
        __syncthreads();
    }
    float r = 1.f / l;
    for (int i = 0; i < D; i++)
        O[(b * S + row) * D + i] = o[i] * r;
}
template __global__ void fa2<32, 16, 8, true>(const float *, const float *, const float *, float *, int, float);