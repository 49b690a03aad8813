// A warp for each row, four numbers a load, a double for the sum.
__global__ void matvec(const float4* A, const float4* x, double* y, int rows, int cols4) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    double sum = 0.0;
    for (int c = lane; c < cols4; c += 32) {
        float4 a = A[row * cols4 + c], b = x[c];
        sum += (double)a.x * b.x + (double)a.y * b.y + (double)a.z * b.z + (double)a.w * b.w;
    }
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) y[row] = sum;
}
