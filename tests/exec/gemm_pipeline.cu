// A product by mma.sync with three stages of asynchronous copies.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <stdint.h>
__device__ __forceinline__ void ldm4(uint32_t* r, const void* p) { uint32_t a = (uint32_t)__cvta_generic_to_shared(p); asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a)); }
__device__ __forceinline__ void mma(float* c, const uint32_t* a, const uint32_t* b) { asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); }
constexpr int BM = 64, BN = 32, BK = 32, PAD = 8, STAGES = 3;
__global__ void __launch_bounds__(128) hgemm(const half* A, const half* B, float* C, int M, int N, int K) {
    __shared__ __align__(16) half sa[STAGES][BM][BK + PAD]; __shared__ __align__(16) half sb[STAGES][BN][BK + PAD];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32; float acc[4][4] = {};
    auto load = [&](int st, int k0) {
        for (int c = threadIdx.x; c < BM * BK / 8; c += 128) __pipeline_memcpy_async(&sa[st][c / (BK / 8)][c % (BK / 8) * 8], A + (blockIdx.y * BM + c / (BK / 8)) * K + k0 + c % (BK / 8) * 8, 16);
        for (int c = threadIdx.x; c < BN * BK / 8; c += 128) __pipeline_memcpy_async(&sb[st][c / (BK / 8)][c % (BK / 8) * 8], B + (blockIdx.x * BN + c / (BK / 8)) * K + k0 + c % (BK / 8) * 8, 16);
    };
    int tiles = K / BK;
    for (int s = 0; s < STAGES - 1; ++s) { if (s < tiles) load(s, s * BK); __pipeline_commit(); }
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(STAGES - 2); __syncthreads();
        if (t + STAGES - 1 < tiles) load((t + STAGES - 1) % STAGES, (t + STAGES - 1) * BK);
        __pipeline_commit();
        int st = t % STAGES;
        for (int kk = 0; kk < BK; kk += 16) {
            uint32_t a[4]; ldm4(a, &sa[st][warp * 16 + lane % 16][kk + lane / 16 * 8]);
            for (int n = 0; n < BN; n += 16) { uint32_t b[4]; ldm4(b, &sb[st][n + lane % 8 + lane / 16 * 8][kk + lane / 8 % 2 * 8]); mma(acc[n / 8], a, b); mma(acc[n / 8 + 1], a, b + 2); }
        }
    }
    for (int n = 0; n < 4; ++n) { int r = blockIdx.y * BM + warp * 16 + lane / 4, c = blockIdx.x * BN + n * 8 + lane % 4 * 2; *(float2*)&C[r * N + c] = make_float2(acc[n][0], acc[n][1]); *(float2*)&C[(r + 8) * N + c] = make_float2(acc[n][2], acc[n][3]); }
}
