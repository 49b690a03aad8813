// Through a tile in shared memory, padded against bank conflicts.
namespace demo {
template <int TILE>
__global__ void transpose(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += blockDim.y) {
        int y = blockIdx.y * TILE + j;
        if (x < cols && y < rows) tile[j][threadIdx.x] = in[y * cols + x];
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += blockDim.y) {
        int y = blockIdx.x * TILE + j;
        if (x < rows && y < cols) out[y * rows + x] = tile[threadIdx.x][j];
    }
}
template __global__ void transpose<32>(const float*, float*, int, int);
}  // namespace demo
