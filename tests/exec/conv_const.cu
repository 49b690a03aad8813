// A 3 x 3 convolution with its weights in constant memory, and a message.
#include <stdio.h>
__constant__ float c_kernel[3][3] = {{1.f/16, 2.f/16, 1.f/16}, {2.f/16, 4.f/16, 2.f/16}, {1.f/16, 2.f/16, 1.f/16}};
__device__ int d_count = 0;
const int TILE = 14;
__global__ void conv(const float* in, float* out, int H, int W, int* count) {
    __shared__ float s[TILE + 2][TILE + 2];
    int tx = threadIdx.x, ty = threadIdx.y, row_o = blockIdx.y * TILE + ty, col_o = blockIdx.x * TILE + tx, r = row_o - 1, c = col_o - 1;
    s[ty][tx] = (r >= 0 && r < H && c >= 0 && c < W) ? in[r * W + c] : 0.0f;
    __syncthreads();
    if (ty < TILE && tx < TILE && row_o < H && col_o < W) {
        float acc = 0.f;
        #pragma unroll
        for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j) acc += c_kernel[i][j] * s[ty + i][tx + j];
        out[row_o * W + col_o] = acc;
        atomicAdd(&d_count, 1);
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && tx == 0 && ty == 0) printf("conv %d x %d, first %f\n", H, W, in[0]);
}
__global__ void finish(int* count) { *count = d_count; }
