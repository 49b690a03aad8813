__device__ uint4 philox(uint4 c, uint2 k) {
    for (int i = 0; i < 10; i++) {
        unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x, h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k.x, l1, h0 ^ c.w ^ k.y, l0);
        k.x += 0x9E3779B9u;
        k.y += 0xBB67AE85u;
    }
    return c;
}
extern "C" __global__ void drop(const float4 *x, float4 *y, uint4 *r, unsigned thr, float sc) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 u = philox(make_uint4(i, 0, 0, 0), make_uint2(42, 1));
    r[i] = u;
    float4 v = x[i];
    y[i] = make_float4(u.x >= thr ? v.x * sc : 0, u.y >= thr ? v.y * sc : 0, u.z >= thr ? v.z * sc : 0, u.w >= thr ? v.w * sc : 0);
}