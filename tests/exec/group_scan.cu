// Cooperative groups: a reduction of a block, tiles that reduce and scan, groups by a predicate.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
__device__ int reduce_sum(cg::thread_group g, int *temp, int val) {
    int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) { temp[lane] = val; g.sync(); if (lane < i) val += temp[lane + i]; g.sync(); }
    return val;
}
__device__ int thread_sum(int *input, int n) { int sum = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += blockDim.x * gridDim.x) { int4 in = ((int4*)input)[i]; sum += in.x + in.y + in.z + in.w; } return sum; }
__global__ void sum_kernel_block(int *sum, int *input, int n) {
    int my_sum = thread_sum(input, n);
    extern __shared__ int temp[];
    auto g = cg::this_thread_block();
    int block_sum = reduce_sum(g, temp, my_sum);
    if (g.thread_rank() == 0) atomicAdd(sum, block_sum);
}
__global__ void tiles(int* out, const int* in, int n) {
    auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<8>(block);
    int i = blockIdx.x * blockDim.x + threadIdx.x; int v = i < n ? in[i] : 0;
    int m = cg::reduce(tile, v, cg::greater<int>()); int s = cg::inclusive_scan(tile, v);
    bool odd = v & 1; auto sub = cg::binary_partition(tile, odd);
    int cnt = sub.size(); int r = cg::reduce(sub, v, cg::plus<int>());
    auto active = cg::coalesced_threads();
    if (i < n) { out[4 * i] = m; out[4 * i + 1] = s; out[4 * i + 2] = cnt; out[4 * i + 3] = r; }
    if (odd && i < n) { auto a = cg::coalesced_threads(); if (a.thread_rank() == 0) atomicAdd(out + 4 * n, (int)a.size()); }
}
