extern "C" __global__ void k(const int *x, int *o, unsigned long long *q, double *d, float *f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = x[i];
    atomicAdd(o, v);
    atomicMin(o + 1, v);
    atomicMax(o + 2, v);
    atomicAnd(o + 3, v | 1);
    atomicOr(o + 4, v);
    atomicXor(o + 5, v);
    atomicInc((unsigned *)o + 6, 99u);
    atomicDec((unsigned *)o + 7, 99u);
    atomicSub(o + 8, v);
    atomicAdd(q, (unsigned long long)(long long)v);
    atomicMax((long long *)q + 1, (long long)v << 33);
    atomicAdd(d, (double)v);
    float old = *(volatile float *)f, as;
    int *fi = (int *)f;
    int a = __float_as_int(old);
    do {
        as = __int_as_float(a);
        int b = atomicCAS(fi, a, __float_as_int(fmaxf(as, (float)v)));
        if (b == a)
            break;
        a = b;
    } while (1);
    __shared__ int s;
    if (threadIdx.x == 0)
        s = 0;
    __syncthreads();
    atomicAdd_block(&s, 1);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd_system(o + 9, s);
}