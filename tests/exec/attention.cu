// A thread for each query, with the running maximum of an online softmax.
#define D 32

extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* out, int n, float scale, bool causal) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float acc[D] = {}, most = -INFINITY, sum = 0.0f;
    for (int j = 0; j < (causal ? i + 1 : n); ++j) {
        float s = 0.0f;
        for (int d = 0; d < D; ++d) s += q[i * D + d] * k[j * D + d];
        s *= scale;
        float next = fmaxf(most, s), keep = __expf(most - next), p = __expf(s - next);
        sum = sum * keep + p;
        for (int d = 0; d < D; ++d) acc[d] = acc[d] * keep + p * v[j * D + d];
        most = next;
    }
    for (int d = 0; d < D; ++d) out[i * D + d] = acc[d] / sum;
}
