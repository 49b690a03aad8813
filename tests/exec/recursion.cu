#include <cstdio>
#include <cassert>
typedef int (*Cmp)(int, int);
__device__ int up(int a, int b) {
    return a < b;
}
__device__ int down(int a, int b) {
    return a > b;
}
__device__ Cmp table[2] = {up, down};
__device__ __noinline__ void quick(int *v, int lo, int hi, Cmp less) {
    if (lo >= hi)
        return;
    int p = v[(lo + hi) / 2], i = lo, j = hi;
    while (i <= j) {
        while (less(v[i], p))
            i++;
        while (less(p, v[j]))
            j--;
        if (i <= j) {
            int t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
    }
    quick(v, lo, j, less);
    quick(v, i, hi, less);
}
extern "C" __global__ void sort(int *x, int n) {
    int v[24];
    for (int i = 0; i < n; i++)
        v[i] = x[threadIdx.x * n + i];
    quick(v, 0, n - 1, table[threadIdx.x % 2]);
    for (int i = 0; i + 1 < n; i++)
        assert(threadIdx.x % 2 ? v[i] >= v[i + 1] : v[i] <= v[i + 1]);
    for (int i = 0; i < n; i++)
        x[threadIdx.x * n + i] = v[i];
    if (threadIdx.x == 3)
        printf("row %d: %d .. %d\n", threadIdx.x, v[0], v[n - 1]);
}