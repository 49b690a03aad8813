#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_store.cuh>
extern "C" __global__ void sort(const unsigned *k, const int *v, unsigned *ko, int *vo) {
    using Load = cub::BlockLoad<unsigned, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using LoadV = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<unsigned, 128, 4, int>;
    using Store = cub::BlockStore<unsigned, 128, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    using StoreV = cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_TRANSPOSE>;
    __shared__ union {
        typename Load::TempStorage l;
        typename LoadV::TempStorage lv;
        typename Sort::TempStorage s;
        typename Store::TempStorage st;
        typename StoreV::TempStorage sv;
    } t;
    unsigned a[4];
    int b[4];
    int o = blockIdx.x * 512;
    Load(t.l).Load(k + o, a);
    __syncthreads();
    LoadV(t.lv).Load(v + o, b);
    __syncthreads();
    Sort(t.s).Sort(a, b);
    __syncthreads();
    Store(t.st).Store(ko + o, a);
    __syncthreads();
    StoreV(t.sv).Store(vo + o, b);
}