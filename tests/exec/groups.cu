#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(int *y, int *z, int *w) {
    auto b = cg::this_thread_block();
    auto t = cg::tiled_partition<8>(b);
    int i = threadIdx.x;
    y[i] = t.shfl_xor(i, 3) + t.any(i == 5) * 100 + t.ballot(i & 1);
    if (i % 3 == 0) {
        auto a = cg::coalesced_threads();
        z[i] = a.size() * 100 + a.thread_rank();
        a.sync();
    } else
        z[i] = -1;
    auto p = cg::binary_partition(cg::tiled_partition<32>(b), (i & 4) != 0);
    w[i] = cg::inclusive_scan(cg::tiled_partition<16>(b), i) + p.size() * 1000;
}