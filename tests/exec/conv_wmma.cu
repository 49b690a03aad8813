#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void conv(const half *x, const half *w, float *y) {
    constexpr int C = 8, H = 10, W = 10, KK = C * 9, KP = 80;
    __shared__ __align__(32) half a[16][KP], b[KP][16];
    __shared__ __align__(32) float o[16][16];
    int l = threadIdx.x, p0 = blockIdx.x * 16;
    for (int i = l; i < 16 * KP; i += 32)
        a[i / KP][i % KP] = i % KP < KK ? w[i / KP * KK + i % KP] : __float2half(0.f);
    for (int i = l; i < KP * 16; i += 32) {
        int k = i / 16, p = p0 + i % 16, c = k / 9, ky = k % 9 / 3 - 1, kx = k % 3 - 1, yy = p / W + ky, xx = p % W + kx;
        b[k][i % 16] = k < KK && p < H * W && yy >= 0 && yy < H && xx >= 0 && xx < W ? x[(c * H + yy) * W + xx] : __float2half(0.f);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.f);
    for (int k = 0; k < KP; k += 16) {
        wmma::load_matrix_sync(fa, &a[0][k], KP);
        wmma::load_matrix_sync(fb, &b[k][0], 16);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(&o[0][0], fc, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = l; i < 256; i += 32)
        if (p0 + i % 16 < H * W)
            y[(i / 16) * H * W + p0 + i % 16] = o[i / 16][i % 16];
}