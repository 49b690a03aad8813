//! task = "@NAME@"
//! targets = ["sm_80", "sm_89", "sm_90"]
//! [[launch]]
//! entry = "@NAME@_rows"
//! grid = ["R"]
//! block = [128]
//! args = ["x", "y", "out", "a", "C"]

// out[r, c] = a * x[r, c] + y[r, c]; one block for each row.
extern "C" __global__ void @NAME@_rows(const float* __restrict__ x,  // (R, C)
                                       const float* __restrict__ y,  // (R, C)
                                       float* __restrict__ out,      // (R, C)
                                       float a, int C)
{
    const size_t row = (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[row + c] = a * x[row + c] + y[row + c];
}
