// attention's products alone, at D 128: how many cycles, at what clock, for how long. What a kernel between them has to live up to.
//
//     nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -DCONSUMERS=3 benches/products.cu -o products && ./products
//
// Each consumer warpgroup multiplies 64 rows by 128 keys again and again, as forward_e4m3.cu does: scores in f16 of e4m3 operands in shared memory, then values of e4m3 weights in registers, in two slices of 64
// dimensions, the second with the sums. Codes are those of normal numbers; four slots of keys and values are taken in turn; nothing is loaded, exponentiated or stored. One line for every 16th quarter of a second.
// Variants: what else a step does. Needs an H100 or H200 and a toolkit of CUDA 13.
#include "../kernels/attention/hopper/wgmma_f16.cuh"
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#ifndef CONSUMERS
#define CONSUMERS 3
#endif
constexpr i32 kGroups = CONSUMERS, kCtas = 132;
constexpr u32 kQ = 0, kK = 3 * 8192, kVt = kK + 4 * 16384, kAll = kVt + 4 * 17408;

enum Step { kAlone, kWait, kWaitFold, kFold };   // products; a wait between the slices of values; that, and each folded into f32 when it is there; both slices asked for, then folded

template <int N>
WS_DEV void issue(float (&t)[N], const u32 (&p)[16], u32 vt) {
#pragma unroll
    for (i32 k = 0; k < 4; ++k) {
        const u32 a[4] = {p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3]};
        wgmma(t, a, desc_at<128>(vt, k * 32), k != 0);
    }
    wgmma_commit();
}

template <Step kStep>
__global__ void __launch_bounds__(kGroups * 128, 1) products(const u32* data, const u32* weights, i32 tiles, float* out, u64* clocks) {
    extern __shared__ __align__(1024) u8 memory[];
    for (u32 i = threadIdx.x; i < kAll / 4; i += blockDim.x) reinterpret_cast<u32*>(memory)[i] = data[i];
    __syncthreads();
    fence_async_shared();
    const u32 base = smem_addr(memory), group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0), q = desc_low(base + kQ) + group * (8192 / 16);
    u32 p[16], s[32];
    for (u32 i = 0; i < 16; ++i) p[i] = weights[i * 128 + threadIdx.x % 128];
    float o[64] = {};
    u64 began, ended;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    const u64 first_cycle = clock64();
#pragma unroll 1
    for (i32 t = 0; t < tiles; ++t) {
        const u32 k = desc_low(base + kK) + (t & 3) * (16384 / 16), vt = desc_low(base + kVt) + (t & 3) * (17408 / 16);
        wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < 4; ++i) {
            if (i == 0) wgmma_pairs_first(s, desc_at<128>(q, 0), desc_at<128>(k, 0));
            else wgmma_pairs(s, desc_at<128>(q, i * 32), desc_at<128>(k, i * 32));
        }
        wgmma_commit();
        wgmma_wait<0>();
        pin(s);
        o[0] += __uint_as_float(s[0] & 1);
        float a[32], b[36];
        wgmma_fence();
        issue(a, p, vt);
        if (kStep == kWait || kStep == kWaitFold) {
            wgmma_wait<0>();
            pin(a);
            for (i32 i = 0; i < (kStep == kWait ? 1 : 32); ++i) o[i] += a[i];
            wgmma_fence();
        }
        issue(b, p, vt + 64 * 128 / 16);
        if (kStep == kFold) {
            wgmma_wait<1>();
            pin(a);
            for (i32 i = 0; i < 32; ++i) o[i] += a[i];
        }
        wgmma_wait<0>();
        if (kStep == kAlone) {
            pin(a);
            o[0] += a[0];
        }
        pin(b);
        for (i32 i = 0; i < (kStep == kWaitFold || kStep == kFold ? 32 : 1); ++i) o[32 + i] += b[i];
    }
    const u64 last_cycle = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ended));
    float x = 0.0f;
    for (i32 i = 0; i < 64; ++i) x += o[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
    if (blockIdx.x == 0 && threadIdx.x == 0) clocks[0] = last_cycle - first_cycle, clocks[1] = ended - began;
}

static float normal() {
    const double u = (std::rand() + 1.0) / (RAND_MAX + 2.0), v = std::rand() / static_cast<double>(RAND_MAX);
    return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307 * v));
}

static u8 nearest_code(float x) {
    u8 best = 0;
    float error = INFINITY;
    for (int c = 0; c < 256; ++c) {
        const int e = c >> 3 & 15, m = c & 7;
        if ((c & 127) == 127) continue;
        const float v = (c & 128 ? -1.0f : 1.0f) * (e ? std::ldexp(8.0f + m, e - 10) : std::ldexp(static_cast<float>(m), -9));
        if (std::fabs(v - x) < error) error = std::fabs(v - x), best = c;
    }
    return best;
}

template <typename Draw>
static std::vector<u32> codes(size_t words, Draw draw) {
    std::vector<u8> some(4096);
    for (u8& c : some) c = nearest_code(draw());
    std::vector<u32> all(words);
    for (u32& w : all)
        for (int i = 0; i < 4; ++i) w |= static_cast<u32>(some[std::rand() % some.size()]) << 8 * i;
    return all;
}

template <Step kStep>
static void run(const char* what, const u32* data, const u32* weights, float* out, u64* clocks, double seconds) {
    const i32 tiles = 20000, launches = 4;
    cudaFuncSetAttribute(products<kStep>, cudaFuncAttributeMaxDynamicSharedMemorySize, kAll);
    cudaEvent_t from, to;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    const auto start = std::chrono::steady_clock::now();
    double elapsed = 0;
    for (int n = 0; elapsed < seconds; ++n) {
        cudaEventRecord(from);
        for (int i = 0; i < launches; ++i) products<kStep><<<kCtas, kGroups * 128, kAll>>>(data, weights, tiles, out, clocks);
        cudaEventRecord(to);
        if (cudaEventSynchronize(to) != cudaSuccess) {
            std::printf("%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
            std::exit(1);
        }
        float ms = 0;
        cudaEventElapsedTime(&ms, from, to);
        u64 c[2];
        cudaMemcpy(c, clocks, sizeof c, cudaMemcpyDeviceToHost);
        elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (n % 16 == 0 || elapsed >= seconds)
            std::printf("%s, after %.2f s: %.0f TFLOP/s, %.3f GHz, %.0f cycles for 64 rows and 128 keys\n", what, elapsed,
                        4.0 * 64 * 128 * 128 * kCtas * kGroups * tiles * launches / (ms * 1e-3) / 1e12, c[0] / static_cast<double>(c[1]), c[0] / static_cast<double>(tiles) / kGroups);
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
}

int main() {
    const auto operands = codes(kAll / 4, [] { return 100 * normal(); });
    const auto some = codes(16 * 128, [] { return std::exp2(1.0f + 1.44f * normal()); });   // a row's reference is 2^6
    u32 *data, *weights;
    float* out;
    u64* clocks;
    if (cudaMalloc(&data, kAll) || cudaMalloc(&weights, some.size() * 4) || cudaMalloc(&out, kCtas * kGroups * 128 * 4) || cudaMalloc(&clocks, 16)) {
        std::printf("no device: %s\n", cudaGetErrorString(cudaGetLastError()));
        return 1;
    }
    cudaMemcpy(data, operands.data(), kAll, cudaMemcpyHostToDevice);
    cudaMemcpy(weights, some.data(), some.size() * 4, cudaMemcpyHostToDevice);
    std::printf("%d consumers\n", kGroups);
    run<kAlone>("products alone", data, weights, out, clocks, 3);
    run<kWait>("a wait between slices of values", data, weights, out, clocks, 1);
    run<kWaitFold>("that, and each folded", data, weights, out, clocks, 1);
    run<kFold>("both asked for, then folded", data, weights, out, clocks, 1);
}
