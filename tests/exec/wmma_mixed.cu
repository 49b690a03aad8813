// Products of tf32 and of 8-bit integers by WMMA.
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void tf32(const float* a, const float* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa; wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> acc; wmma::fill_fragment(acc, 0.0f);
    for (int k = 0; k < 32; k += 8) {
        wmma::load_matrix_sync(fa, a + k, 32); wmma::load_matrix_sync(fb, b + k * 16, 16);
        for (int t = 0; t < fa.num_elements; t++) fa.x[t] = wmma::__float_to_tf32(fa.x[t]);
        for (int t = 0; t < fb.num_elements; t++) fb.x[t] = wmma::__float_to_tf32(fb.x[t]);
        wmma::mma_sync(acc, fa, fb, acc);
    }
    wmma::store_matrix_sync(c, acc, 16, wmma::mem_row_major);
}
extern "C" __global__ void s8(const signed char* a, const signed char* b, int* c) {
    __shared__ int tile[16 * 16];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa; wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> acc; wmma::fill_fragment(acc, 0);
    for (int k = 0; k < 64; k += 16) { wmma::load_matrix_sync(fa, a + k, 64); wmma::load_matrix_sync(fb, b + k * 16, 16); wmma::mma_sync(acc, fa, fb, acc); }
    wmma::store_matrix_sync(tile, acc, 16, wmma::mem_col_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) c[i] = tile[(i % 16) * 16 + i / 16];
}
