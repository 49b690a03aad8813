#define STAGES 3
#define BM 32
#define BN 16
#define BK 16
__device__ __forceinline__ void cp16(void *s, const void *g) {
    unsigned a = (unsigned)__cvta_generic_to_shared(s);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(a), "l"(g));
}
__device__ __forceinline__ unsigned tf(float x) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}
struct Smem {
    float a[STAGES][BM][BK + 4];
    float b[STAGES][BK][BN + 8];
};
extern "C" __global__ void __launch_bounds__(64)
    gemm(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C, int M, int N, int Kd) {
    extern __shared__ __align__(16) unsigned char raw[];
    Smem &s = *reinterpret_cast<Smem *>(raw);
    int t = threadIdx.x, w = t / 32, l = t % 32, g = l / 4, q = l % 4, m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    auto load = [&](int st, int k0) {
        for (int i = t; i < BM * BK / 4; i += 64) {
            int r = i / (BK / 4), c = i % (BK / 4) * 4;
            cp16(&s.a[st][r][c], A + (m0 + r) * Kd + k0 + c);
        }
        for (int i = t; i < BK * BN / 4; i += 64) {
            int r = i / (BN / 4), c = i % (BN / 4) * 4;
            cp16(&s.b[st][r][c], B + (k0 + r) * N + n0 + c);
        }
    };
    float acc[2][4] = {};
    int tiles = Kd / BK;
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < tiles)
            load(i, i * BK);
        asm volatile("cp.async.commit_group;\n");
    }
    for (int k = 0; k < tiles; k++) {
        asm volatile("cp.async.wait_group %0;\n" ::"n"(STAGES - 2));
        __syncthreads();
        int nx = k + STAGES - 1;
        if (nx < tiles)
            load(nx % STAGES, nx * BK);
        asm volatile("cp.async.commit_group;\n");
        int st = k % STAGES;
        for (int kk = 0; kk < BK; kk += 8) {
            unsigned a[4] = {tf(s.a[st][w * 16 + g][kk + q]), tf(s.a[st][w * 16 + g + 8][kk + q]), tf(s.a[st][w * 16 + g][kk + q + 4]),
                             tf(s.a[st][w * 16 + g + 8][kk + q + 4])};
            for (int n = 0; n < 2; n++) {
                unsigned b0 = tf(s.b[st][kk + q][n * 8 + g]), b1 = tf(s.b[st][kk + q + 4][n * 8 + g]);
                asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                             : "+f"(acc[n][0]), "+f"(acc[n][1]), "+f"(acc[n][2]), "+f"(acc[n][3])
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
            }
        }
    }
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 4; i++)
            C[(m0 + w * 16 + g + i / 2 * 8) * N + n0 + n * 8 + q * 2 + i % 2] = acc[n][i];
}