#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void mm(const signed char *A, const signed char *B, int *C) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> c;
    wmma::fill_fragment(c, 0);
    for (int k = 0; k < 32; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::row_major> b;
        wmma::load_matrix_sync(a, A + k, 32);
        wmma::load_matrix_sync(b, B + k * 16, 16);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
}