//! task = "fp8_attention"
//! targets = ["sm_89"]
//! constraints = ["D == 64"]
//! scales = ["head", "tensor", "block"]
//! outs = ["bf16", "f16", "e4m3"]
//! layouts = ["dense", "tokens", "lengths", "paged", "ragged", "packed"]
//! [levers]
//! BUG = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]
//! [[config]]
//! name = "right"
//! set = { BUG = 0 }
//! [[config]]
//! name = "group_index"
//! set = { BUG = 1 }
//! [[config]]
//! name = "top_left"
//! set = { BUG = 2 }
//! [[config]]
//! name = "lse_log2"
//! set = { BUG = 3 }
//! [[config]]
//! name = "lse_no_maximum"
//! set = { BUG = 4 }
//! [[config]]
//! name = "first_table"
//! set = { BUG = 5 }
//! [[config]]
//! name = "whole_cache"
//! set = { BUG = 6 }
//! [[config]]
//! name = "scale_block"
//! set = { BUG = 7 }
//! [[config]]
//! name = "out_scale"
//! set = { BUG = 8 }
//! [[config]]
//! name = "blind_nan"
//! set = { BUG = 9 }
//! [[config]]
//! name = "blind_lse"
//! set = { BUG = 10 }
//! [[config]]
//! name = "keys_of_queries"
//! set = { BUG = 11 }
//! [[config]]
//! name = "page_of_32"
//! set = { BUG = 12 }
//! [[config]]
//! name = "scale_of_query_head"
//! set = { BUG = 13 }
//! [[config]]
//! name = "last_key_of_cache"
//! set = { BUG = 14 }
//! [[config]]
//! name = "dense_strides"
//! set = { BUG = 15 }
//! [[config]]
//! name = "lse_of_scores"
//! set = { BUG = 16 }
//! [[config]]
//! name = "head_of_lse"
//! set = { BUG = 17 }
//! [[config]]
//! name = "mean_forgotten"
//! set = { BUG = 18 }
//! [[config]]
//! name = "mean_of_query_head"
//! set = { BUG = 19 }
//! [[config]]
//! name = "mean_scaled"
//! set = { BUG = 20 }
//! [[config]]
//! name = "mean_before_division"
//! set = { BUG = 21 }
//! [[config]]
//! name = "mean_in_blind_rows"
//! set = { BUG = 22 }
//! [[config]]
//! name = "lse_without_mean"
//! set = { BUG = 23 }
//! [[launch]]
//! entry = "attend"
//! grid = ["Sq", "Hq", "B"]
//! block = [32]
//! shared_bytes = "4 * Sk"
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "lse", "cache_seqlens", "page_table", "cu_seqlens_q", "cu_seqlens_k", "softmax_scale",
//!         "out_inverse_scale", "out_kind", "group", "page_size", "total_q", "Sq", "Sk", "causal", "q_stride_b", "q_stride_h", "q_stride_s", "k_stride_b", "k_stride_h",
//!         "k_stride_s", "out_stride_b", "out_stride_h", "out_stride_s", "q_scale_b", "q_scale_h", "q_scale_t", "k_scale_b", "k_scale_h", "k_scale_t", "k_mean", "v_mean"]

// Attention over every layout of the task, one warp for each query, plain on purpose. BUG 0 is right; each other value makes one mistake that
// people make, and has to be found.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

typedef long long i64;
static __device__ __forceinline__ float dec(unsigned char c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); }

extern "C" __global__ void __launch_bounds__(32)
    attend(const unsigned char* q, const unsigned char* k, const unsigned char* v, const float* q_scale, const float* k_scale, const float* v_scale, void* out, float* lse,
           const int* cache_seqlens, const int* page_table, const int* cu_q, const int* cu_k, float softmax_scale, float out_inverse_scale, int out_kind, int group,
           int page_size, int total_q, int Sq, int Sk, int causal, i64 q_b, i64 q_h, i64 q_s, i64 k_b, i64 k_h, i64 k_s, i64 o_b, i64 o_h, i64 o_s, int qs_b, int qs_h,
           int qs_t, int ks_b, int ks_h, int ks_t, const float* k_mean, const float* v_mean) {
    constexpr int kD = 64;
    extern __shared__ float score[];
    const int lane = threadIdx.x, row = blockIdx.x, head = blockIdx.y, b = blockIdx.z, heads = gridDim.y;
#if BUG == 1
    const int kv = head % (heads / group);
#else
    const int kv = head / group;
#endif
    int queries = Sq, keys = Sk, first_q = 0, first_k = 0;
    if (cu_q) {
        first_q = cu_q[b], queries = cu_q[b + 1] - first_q;
#if BUG == 11
        first_k = cu_q[b], keys = queries;
#else
        first_k = cu_k[b], keys = cu_k[b + 1] - first_k;
#endif
    }
#if BUG != 6
    if (cache_seqlens) keys = cache_seqlens[b];
#endif
#if BUG == 14
    if (cache_seqlens && keys > 0) keys -= 1;
#endif
    if (row >= queries) return;
#if BUG == 2
    const int seen = causal ? min(keys, row + 1) : keys;
#else
    const int seen = causal ? max(0, min(keys, keys - queries + row + 1)) : keys;
#endif
#if BUG == 15
    q_h = static_cast<i64>(Sq) * kD, q_s = kD;
#endif
    const unsigned char* my_q = q + b * q_b + head * q_h + (first_q + row) * q_s;
#if BUG == 13
    const float scale = softmax_scale * q_scale[b * qs_b + kv * qs_h + (row >> 7) * qs_t];
#else
    const float scale = softmax_scale * q_scale[b * qs_b + head * qs_h + (row >> 7) * qs_t];
#endif
    auto place = [&](int j) -> i64 {
        if (page_table) {
#if BUG == 5
            const int* table = page_table;
#else
            const int* table = page_table + b * ((Sk + page_size - 1) / page_size);
#endif
#if BUG == 12
            const int page = 32;
#else
            const int page = page_size;
#endif
            return table[min(j / page, (Sk - 1) / page_size)] * k_b + kv * k_h + j % page * k_s;
        }
        return b * k_b + kv * k_h + (first_k + j) * k_s;
    };
#if BUG == 7
    auto block = [&](int j) { return b * ks_b + kv * ks_h + min((j + 64) >> 7, (Sk - 1) >> 7) * ks_t; };
#else
    auto block = [&](int j) { return b * ks_b + kv * ks_h + (j >> 7) * ks_t; };
#endif

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
    float o[2] = {0.f, 0.f};
    for (int j = 0; j < seen; ++j) {
        const unsigned u = *reinterpret_cast<const unsigned short*>(v + place(j) + 2 * lane);
        o[0] += score[j] * dec(u & 255), o[1] += score[j] * dec(u >> 8);
    }
    // What was taken out of keys and values: v's goes to every output, k's to the logarithm of the sum alone.
#if BUG == 19
    const int taken = (b * (heads / group) + head % (heads / group)) * kD;
#else
    const int taken = (b * (heads / group) + kv) * kD;
#endif
#if BUG == 21
    if (v_mean && seen) o[0] += v_mean[taken + 2 * lane], o[1] += v_mean[taken + 2 * lane + 1];
#endif
#if BUG == 9
    const float over = 1.f / sum;
#else
    const float over = seen ? 1.f / sum : 0.f;
#endif
    o[0] *= over, o[1] *= over;
#if BUG == 20
    const float unit = seen ? v_scale[block(0)] : 1.f;
#else
    const float unit = 1.f;
#endif
#if BUG == 22
    const bool sees = true;
#else
    const bool sees = seen > 0;
#endif
#if BUG != 18 && BUG != 21
    if (v_mean && sees) o[0] += unit * v_mean[taken + 2 * lane], o[1] += unit * v_mean[taken + 2 * lane + 1];
#endif
    const i64 at = b * o_b + head * o_h + (first_q + row) * o_s + 2 * lane;
    if (out_kind == 0) {
        *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(out) + at) = __floats2bfloat162_rn(o[0], o[1]);
    } else if (out_kind == 1) {
        *reinterpret_cast<__half2*>(static_cast<__half*>(out) + at) = __floats2half2_rn(o[0], o[1]);
    } else {
#if BUG == 8
        out_inverse_scale = 1.f;
#endif
        const float2 x = make_float2(o[0] * out_inverse_scale, o[1] * out_inverse_scale);
        *reinterpret_cast<unsigned short*>(static_cast<unsigned char*>(out) + at) = __nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, __NV_E4M3);
    }
    if (lse && lane == 0) {
        float l = top + logf(sum);
#if BUG != 23
        if (k_mean && seen) {
            float dot = 0.f;
#pragma unroll
            for (int i = 0; i < kD; ++i) dot += query[i] * k_mean[taken + i];
            l += dot * scale;
        }
#endif
#if BUG == 3
        l = top * 1.4426950408889634f + log2f(sum);
#elif BUG == 4
        l = logf(sum);
#elif BUG == 16
        l = top / softmax_scale + logf(sum);
#endif
#if BUG == 10
        const float none = 0.f;
#else
        const float none = -INFINITY;
#endif
        const i64 at_head = cu_q ? static_cast<i64>(head) * total_q + first_q : (static_cast<i64>(b) * heads + head) * Sq;
#if BUG == 17
        lse[at_head + row] = seen ? (head == 1 ? 0.f : l) : none;
#else
        lse[at_head + row] = seen ? l : none;
#endif
    }
}
