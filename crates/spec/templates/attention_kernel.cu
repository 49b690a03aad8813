//! task = "fp8_attention"
//! targets = ["sm_89", "sm_80", "sm_90"]
//! constraints = ["D == 64 || D == 128 || D == 256", "Hq % Hkv == 0", "Sk <= 12288"]
//! scales = ["head", "tensor", "block"]
//! outs = ["bf16", "f16", "e4m3"]
//! layouts = ["dense", "tokens", "lengths", "paged", "ragged"]
//! defines = ["D"]
//! [[launch]]
//! entry = "@NAME@"
//! grid = ["Sq", "Hq", "B"]
//! block = [32]
//! shared_bytes = "4 * Sk"
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "lse", "cache_seqlens", "page_table", "cu_seqlens_q", "cu_seqlens_k", "softmax_scale",
//!         "out_inverse_scale", "out_kind", "group", "page_size", "total_q", "Sq", "Sk", "causal", "q_stride_b", "q_stride_h", "q_stride_s", "k_stride_b", "k_stride_h",
//!         "k_stride_s", "out_stride_b", "out_stride_h", "out_stride_s", "q_scale_b", "q_scale_h", "q_scale_t", "k_scale_b", "k_scale_h", "k_scale_t"]

// @NAME@: attention over the layouts of the task fp8_attention that bring k and v as codes with scales, one warp for each query. Right and slow: change it, and run the gates after each step.
//
//   out = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v;  a query that sees no key gives 0, and -inf in lse.
//
// Where tokens lie comes as strides over (batch or page, head, token); tensors that a layout does not have are null. Take only the layouts that
// you want to judge, and drop the arguments of the others. Besides there are `packed` (with the means of k and v) and `wide` (k and v in bf16): `warpsmith list`.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

typedef long long i64;
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

extern "C" __global__ void __launch_bounds__(32)
    @NAME@(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, void* out, float* lse,
           const int* cache_seqlens, const int* page_table, const int* cu_q, const int* cu_k, float softmax_scale, float out_inverse_scale, int out_kind, int group,
           int page_size, int total_q, int Sq, int Sk, int causal, i64 q_b, i64 q_h, i64 q_s, i64 k_b, i64 k_h, i64 k_s, i64 o_b, i64 o_h, i64 o_s, int qs_b, int qs_h,
           int qs_t, int ks_b, int ks_h, int ks_t) {
    constexpr int kD = WS_D;
    extern __shared__ float score[];
    const int lane = threadIdx.x, row = blockIdx.x, head = blockIdx.y, b = blockIdx.z, heads = gridDim.y;
    const int kv = head / group;
    int queries = Sq, keys = Sk, first_q = 0, first_k = 0;
    if (cu_q) {
        first_q = cu_q[b], queries = cu_q[b + 1] - first_q;
        first_k = cu_k[b], keys = cu_k[b + 1] - first_k;
    }
    if (cache_seqlens) keys = cache_seqlens[b];
    if (row >= queries) return;
    const int seen = causal ? max(0, min(keys, keys - queries + row + 1)) : keys;
    const unsigned char* my_q = q + b * q_b + head * q_h + (first_q + row) * q_s;
    const float scale = softmax_scale * q_scale[b * qs_b + head * qs_h + (row >> 7) * qs_t];
    auto place = [&](int j) -> i64 {
        if (page_table) {
            const int* table = page_table + b * ((Sk + page_size - 1) / page_size);
            const int page = page_size;
            return table[min(j / page, (Sk - 1) / page_size)] * k_b + kv * k_h + j % page * k_s;
        }
        return b * k_b + kv * k_h + (first_k + j) * k_s;
    };
    auto block = [&](int j) { return b * ks_b + kv * ks_h + (j >> 7) * ks_t; };

    float query[kD];
#pragma unroll
    for (int i = 0; i < kD / 4; ++i) {
        const unsigned u = reinterpret_cast<const unsigned*>(my_q)[i];
#pragma unroll
        for (int e = 0; e < 4; ++e) query[4 * i + e] = dec(u >> 8 * e & 255);
    }
    float top = -INFINITY;
    for (int j = lane; j < seen; j += 32) {
        const unsigned* my_k = reinterpret_cast<const unsigned*>(k + place(j));
        float s = 0.f;
#pragma unroll
        for (int i = 0; i < kD / 4; ++i) {
            const unsigned u = my_k[i];
#pragma unroll
            for (int e = 0; e < 4; ++e) s += query[4 * i + e] * dec(u >> 8 * e & 255);
        }
        s *= scale * k_scale[block(j)];
        score[j] = s;
        top = fmaxf(top, s);
    }
    for (int m = 16; m; m /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
    float sum = 0.f;
    for (int j = lane; j < seen; j += 32) {
        const float p = exp2f((score[j] - top) * 1.4426950408889634f);
        sum += p;
        score[j] = p * v_scale[block(j)];
    }
    for (int m = 16; m; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
    __syncwarp();
    float o[kD / 32] = {};
    for (int j = 0; j < seen; ++j) {
        const unsigned short* my_v = reinterpret_cast<const unsigned short*>(v + place(j)) + lane;
#pragma unroll
        for (int i = 0; i < kD / 64; ++i) {
            const unsigned u = my_v[32 * i];
            o[2 * i] += score[j] * dec(u & 255), o[2 * i + 1] += score[j] * dec(u >> 8);
        }
    }
    const float over = seen ? 1.f / sum : 0.f;
#pragma unroll
    for (int i = 0; i < kD / 64; ++i) {
        const float a = o[2 * i] * over, c = o[2 * i + 1] * over;
        const i64 at = b * o_b + head * o_h + (first_q + row) * o_s + 2 * (lane + 32 * i);
        if (out_kind == 0) {
            *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(out) + at) = __floats2bfloat162_rn(a, c);
        } else if (out_kind == 1) {
            *reinterpret_cast<__half2*>(static_cast<__half*>(out) + at) = __floats2half2_rn(a, c);
        } else {
            const float2 x = make_float2(a * out_inverse_scale, c * out_inverse_scale);
            *reinterpret_cast<unsigned short*>(static_cast<unsigned char*>(out) + at) = __nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, __NV_E4M3);
        }
    }
    if (lse && lane == 0) {
        const i64 at_head = cu_q ? static_cast<i64>(head) * total_q + first_q : (static_cast<i64>(b) * heads + head) * Sq;
        lse[at_head + row] = seen ? top + logf(sum) : -INFINITY;
    }
}
