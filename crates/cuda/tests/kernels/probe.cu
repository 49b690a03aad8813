// Kernels that the tests on a device launch. probe.ptx and probe.sm_90.cubin are made of it by toolkit 13.0:
//     nvcc -ptx -arch=compute_75 probe.cu -o probe.ptx
//     nvcc -cubin -arch=sm_90 probe.cu -o probe.sm_90.cubin
// (probe.ptx lacks what needs compute capability 9.0.)
#include <stdint.h>

extern "C" __global__ void scale(const float* x, float* y, float alpha, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = alpha * x[i];
}

// Doubles in place, one block, through dynamic shared memory that begins `offset` floats in.
extern "C" __global__ void through_shared(float* x, int n, int offset)
{
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[offset + i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = 2.0f * tile[offset + n - 1 - i];
}

// Reads what nobody wrote.
extern "C" __global__ void copy_unwritten(const float* workspace, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = workspace[i];
}

// Writes `extra` elements too many; a negative number: that many before the start as well.
extern "C" __global__ void overrun(float* y, int n, int extra)
{
    int count = extra > 0 ? n + extra : n;
    int first = extra < 0 ? extra : 0;
    for (int i = first + (int)threadIdx.x; i < count; i += blockDim.x) y[i] = 1.0f;
}

extern "C" __global__ void half_written(float* y, int n)
{
    for (int i = threadIdx.x; i < n / 2; i += blockDim.x) y[i] = 1.0f;
}

extern "C" __global__ void changes_input(float* x) { x[threadIdx.x] += 1.0f; }

extern "C" __global__ void illegal_address(float* y) { *(float*)((uintptr_t)y + (1ull << 46)) = 1.0f; }

extern "C" __global__ void misaligned(float* y) { *(float*)((uintptr_t)y + 1 + threadIdx.x) = 1.0f; }

extern "C" __global__ void trapped(float* y, int go)
{
    if (go) __trap();
    y[threadIdx.x] = 1.0f;
}

extern "C" __global__ void hang(volatile int* y)
{
    while (y[0] != 12345) {}
}

// What a launch leaves behind in the module: 1 at the first launch after loading.
__device__ int launches;
extern "C" __global__ void count_launches(int* y) { *y = ++launches; }

extern "C" int printf(const char*, ...);
extern "C" __global__ void talk(int* y)
{
    printf("line %d of a kernel\n", (int)threadIdx.x);
    *y = 1;
}

#if __CUDA_ARCH__ >= 900
// Each block writes its rank in its cluster and the cluster's size.
extern "C" __global__ void cluster_ranks(int* y)
{
    uint32_t rank, size;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    if (threadIdx.x == 0) { y[2 * blockIdx.x] = rank; y[2 * blockIdx.x + 1] = size; }
}

struct alignas(64) TensorMap { char bytes[128]; };

// Copies one 32 x 8 box of 4-byte elements at (column, row) by TMA; one warp.
extern "C" __global__ void tma_tile(const __grid_constant__ TensorMap map, int* y, int column, int row)
{
    __shared__ alignas(128) int tile[256];
    __shared__ alignas(8) uint64_t barrier;
    uint32_t bar = (uint32_t)__cvta_generic_to_shared(&barrier);
    uint32_t to = (uint32_t)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(bar));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; wait: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra wait; }" ::"r"(bar) : "memory");
    for (int i = threadIdx.x; i < 256; i += blockDim.x) y[i] = tile[i];
}
#endif
