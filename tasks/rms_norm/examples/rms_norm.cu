//! task = "rms_norm"
//! targets = ["sm_80", "sm_89", "sm_90"]
//! [levers]
//! THREADS = [128, 256]
//! [[launch]]
//! entry = "rms_norm"
//! grid = ["R"]
//! block = ["THREADS"]
//! args = ["x", "weight", "out", "eps", "C"]

// out[r, c] = x[r, c] / sqrt(mean_c(x[r, c]^2) + eps) * weight[c]; one block for each row, any number of columns.
// The squares are summed by thread, then by warp with shuffles, then over the warps through shared memory.

static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps, at most one block's worth");

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm(const float* __restrict__ x,       // (R, C)
         const float* __restrict__ weight,  // (C)
         float* __restrict__ out,           // (R, C)
         float eps, int C)
{
    constexpr int kNumWarps = THREADS / 32;
    __shared__ float smem_sums[kNumWarps];

    const size_t row = (size_t)blockIdx.x * C;
    float sum = 0.f;
    for (int c = threadIdx.x; c < C; c += THREADS) sum = fmaf(x[row + c], x[row + c], sum);
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) smem_sums[threadIdx.x / 32] = sum;
    __syncthreads();

    float total = 0.f;
    for (int warp = 0; warp < kNumWarps; ++warp) total += smem_sums[warp];
    const float scale = 1.f / sqrtf(total / (float)C + eps);
    for (int c = threadIdx.x; c < C; c += THREADS) out[row + c] = x[row + c] * scale * weight[c];
}
