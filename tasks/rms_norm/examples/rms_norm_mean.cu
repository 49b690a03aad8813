//! task = "rms_norm"
//! targets = ["sm_80", "sm_89", "sm_90"]
//! [[launch]]
//! entry = "rms_norm_mean"
//! grid = ["R"]
//! block = [32]
//! args = ["x", "weight", "out", "eps", "C"]

// Wrong on purpose: the mean is taken off first, as in LayerNorm. On inputs whose mean is near zero the two are alike, which is
// what makes the mistake easy to miss; relative limits see it.

static __device__ float warp_sum(float v)
{
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

extern "C" __global__ void __launch_bounds__(32)
rms_norm_mean(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, float eps, int C)
{
    const size_t row = (size_t)blockIdx.x * C;
    float sum = 0.f;
    for (int c = threadIdx.x; c < C; c += 32) sum += x[row + c];
    const float mean = warp_sum(sum) / (float)C;
    float squares = 0.f;
    for (int c = threadIdx.x; c < C; c += 32) squares = fmaf(x[row + c] - mean, x[row + c] - mean, squares);
    const float scale = 1.f / sqrtf(warp_sum(squares) / (float)C + eps);
    for (int c = threadIdx.x; c < C; c += 32) out[row + c] = (x[row + c] - mean) * scale * weight[c];
}
