// Wrong: nothing orders the threads that write the tile before those that read it.
__global__ void reverse(const int* x, int* y) {
    __shared__ int tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[255 - threadIdx.x];
}
