#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void init(int* dist, int* queue, int* count, int* parent, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { dist[i] = i ? -1 : 0; parent[i] = i; }
    if (i == 0) { queue[0] = 0; count[0] = 1; count[1] = 0; count[2] = 0; }
}
__device__ int agg_inc(int* ctr) {
    auto g = cg::coalesced_threads(); int base;
    if (g.thread_rank() == 0) base = atomicAdd(ctr, g.size());
    return g.shfl(base, 0) + g.thread_rank();
}
__global__ void bfs(const int* row, const int* col, int* dist, int* queue, int* count, int n) {
    cg::grid_group grid = cg::this_grid();
    for (int level = 0;; ++level) {
        int* in = queue + (level & 1) * n; int* out = queue + ((level + 1) & 1) * n;
        int m = count[level % 3];
        if (m == 0) break;
        if (grid.thread_rank() == 0) count[(level + 2) % 3] = 0;
        for (int t = grid.thread_rank(); t < m; t += grid.size()) {
            int u = in[t];
            for (int e = row[u]; e < row[u + 1]; ++e) { int v = col[e]; if (atomicCAS(&dist[v], -1, level + 1) == -1) out[agg_inc(&count[(level + 1) % 3])] = v; }
        }
        grid.sync();
    }
}
__device__ int find(int* p, int x) { int r; while ((r = atomicAdd(&p[x], 0)) != x) { int g = atomicAdd(&p[r], 0); atomicCAS(&p[x], r, g); x = r; } return x; }
__global__ void unite(const int* s, const int* d, int* p, int m) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < m; i += gridDim.x * blockDim.x) {
        int a = find(p, s[i]), b = find(p, d[i]);
        while (a != b) { if (a < b) { int t = a; a = b; b = t; } int o = atomicCAS(&p[a], a, b); if (o == a) break; a = find(p, o); b = find(p, b); }
    }
}
__global__ void flatten(int* p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { int r = find(p, i); atomicExch(&p[i], r); } }
__global__ void persistent(const int* work, int* next, int* out, int n) {
    __shared__ int item;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) item = atomicAdd(next, 1);
        __syncthreads();
        if (item >= n) return;
        int s = 0; for (int i = threadIdx.x; i < work[item]; i += blockDim.x) s += i;
        s = __reduce_add_sync(~0u, s);
        if (threadIdx.x == 0) out[item] = s;
    }
}
