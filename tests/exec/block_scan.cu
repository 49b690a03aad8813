#include <cub/block/block_scan.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_load.cuh>
extern "C" __global__ void k(const int *x, int *y, int *tot) {
    using S = cub::BlockScan<int, 128>;
    using Rd = cub::BlockReduce<int, 128>;
    __shared__ union {
        typename S::TempStorage s;
        typename Rd::TempStorage r;
    } u;
    int v[4];
    for (int i = 0; i < 4; i++)
        v[i] = x[threadIdx.x * 4 + i];
    S(u.s).InclusiveSum(v, v);
    __syncthreads();
    for (int i = 0; i < 4; i++)
        y[threadIdx.x * 4 + i] = v[i];
    int m = v[0];
    for (int i = 1; i < 4; i++)
        m = max(m, v[i]);
    int r = Rd(u.r).Reduce(m, cuda::maximum<>{});
    if (threadIdx.x == 0)
        *tot = r;
}