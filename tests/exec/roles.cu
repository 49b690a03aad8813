#include <cuda/pipeline>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void roles(const float *x, float *y, int tiles) {
    constexpr int S = 2, T = 64;
    __shared__ alignas(16) float buf[S][T];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, S> state;
    auto block = cg::this_thread_block();
    auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    if (role == cuda::pipeline_role::producer) {
        for (int k = 0; k < tiles; k++) {
            pipe.producer_acquire();
            for (int i = threadIdx.x * 4; i < T; i += 128)
                cuda::memcpy_async(&buf[k % S][i], x + k * T + i, cuda::aligned_size_t<16>(16), pipe);
            pipe.producer_commit();
        }
    } else {
        int t = threadIdx.x - 32;
        for (int k = 0; k < tiles; k++) {
            pipe.consumer_wait();
            y[k * T + t] = buf[k % S][t] + buf[k % S][t ^ 1];
            pipe.consumer_release();
        }
    }
}