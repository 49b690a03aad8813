// Copies of cuda::pipeline and of a cooperative group.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/pipeline>
#include <cuda/barrier>
namespace cg = cooperative_groups;
template <int STAGES> __global__ void staged(const float* in, float* out, int per_block, int batch) {
    auto block = cg::this_thread_block(); extern __shared__ __align__(16) float sm[];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> st;
    auto pipe = cuda::make_pipeline(block, &st); const float* src = in + blockIdx.x * per_block; int n = per_block / batch;
    for (int c = 0, f = 0; c < n; ++c) {
        for (; f < n && f < c + STAGES; ++f) { pipe.producer_acquire(); cuda::memcpy_async(block, sm + (f % STAGES) * batch, src + f * batch, sizeof(float) * batch, pipe); pipe.producer_commit(); }
        pipe.consumer_wait();
        for (int i = block.thread_rank(); i < batch; i += block.size()) out[blockIdx.x * per_block + c * batch + i] = sm[(c % STAGES) * batch + (batch - 1 - i)] * 2.f;
        pipe.consumer_release();
    }
}
__global__ void group_copy(const float* in, float* out) {
    __shared__ float tile[128]; auto b = cg::this_thread_block();
    cg::memcpy_async(b, tile, in + blockIdx.x * 128, sizeof(tile)); cg::wait(b);
    out[blockIdx.x * 128 + threadIdx.x] = tile[127 - threadIdx.x];
}
