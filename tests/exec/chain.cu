extern "C" __global__ void chain(const float *x, float *y, int *ready, int n) {
    __shared__ float carry;
    int b = blockIdx.x, t = threadIdx.x;
    if (t == 0) {
        if (b == 0)
            carry = 0.f;
        else {
            volatile int *r = ready;
            while (r[b - 1] == 0) {
            }
            __threadfence();
            carry = y[b * n - 1];
        }
    }
    __syncthreads();
    if (t == 0) {
        float s = carry;
        for (int i = 0; i < n; i++) {
            s += x[b * n + i];
            y[b * n + i] = s;
        }
        __threadfence();
        ((volatile int *)ready)[b] = 1;
    }
}