//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "wmma_bf16"
//! grid = ["ceil_div(S, 16)", "B * H"]
//! block = [32]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

using namespace nvcuda;
extern "C" __global__ void wmma_bf16(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, __half* out, float softmax_scale, int S) {
    __shared__ __align__(32) __nv_bfloat16 sq[16 * 64], sk[16 * 64], sv[16 * 64], sp[16 * 16];
    __shared__ __align__(32) float ss[16 * 16], so[16 * 64], sm[16], sl[16];
    const int lane = threadIdx.x, bh = blockIdx.y, m0 = blockIdx.x * 16; const size_t head = (size_t)bh * S * 64;
    const float scale = q_scale[bh] * k_scale[bh] * softmax_scale;
    for (int i = lane; i < 1024; i += 32) { sq[i] = __float2bfloat16(m0 + i / 64 < S ? dec(q[head + (size_t)m0 * 64 + i]) : 0.f); so[i] = 0.f; }
    if (lane < 16) { sm[lane] = -1e30f; sl[lane] = 0.f; }
    for (int n0 = 0; n0 < S; n0 += 16) {
        for (int i = lane; i < 1024; i += 32) { const bool in = n0 + i / 64 < S; sk[i] = __float2bfloat16(in ? dec(k[head + (size_t)n0 * 64 + i]) : 0.f); sv[i] = __float2bfloat16(in ? dec(v[head + (size_t)n0 * 64 + i]) : 0.f); }
        __syncwarp();
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> c; wmma::fill_fragment(c, 0.f);
        for (int kk = 0; kk < 4; ++kk) { wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a; wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> b; wmma::load_matrix_sync(a, sq + kk * 16, 64); wmma::load_matrix_sync(b, sk + kk * 16, 64); wmma::mma_sync(c, a, b, c); }
        for (int i = 0; i < c.num_elements; ++i) c.x[i] *= scale;
        wmma::store_matrix_sync(ss, c, 16, wmma::mem_row_major);
        __syncwarp();
        if (lane < 16) {
            float m = sm[lane]; const int n = min(16, S - n0);
            for (int j = 0; j < n; ++j) m = fmaxf(m, ss[lane * 16 + j]);
            const float corr = __expf(sm[lane] - m); float l = sl[lane] * corr;
            for (int j = 0; j < 16; ++j) { const float p = j < n ? __expf(ss[lane * 16 + j] - m) : 0.f; l += p; sp[lane * 16 + j] = __float2bfloat16(p); }
            for (int d = 0; d < 64; ++d) so[lane * 64 + d] *= corr;
            sm[lane] = m; sl[lane] = l;
        }
        __syncwarp();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> pa; wmma::load_matrix_sync(pa, sp, 16);
        for (int t = 0; t < 4; ++t) { wmma::fragment<wmma::accumulator, 16, 16, 16, float> o; wmma::load_matrix_sync(o, so + t * 16, 64, wmma::mem_row_major); wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> vb; wmma::load_matrix_sync(vb, sv + t * 16, 64); wmma::mma_sync(o, pa, vb, o); wmma::store_matrix_sync(so + t * 16, o, 64, wmma::mem_row_major); }
        __syncwarp();
    }
    for (int i = lane; i < 1024; i += 32) if (m0 + i / 64 < S) out[head + (size_t)m0 * 64 + i] = __float2half(so[i] * v_scale[bh] / sl[i / 64]);
}
