// pack_means: of two tensors (B, H, S, D), contiguous, each channel's mean over a head's tokens, (B, H, D) in f32. add_means: what was taken
// out of v goes back to every output, what was taken out of k to the log-sum-exp. Both do, plainly, what the library has torch do
// (_pack.py, _pack.sdpa_fp8_packed), so that the gates can judge packing from end to end; neither ships.
// Assumes: params.cuh before it; a thread for each channel. Limit: outputs in bf16 and f16.
#pragma once

struct Means {
    struct {
        const void* x;
        float* mean;     // null: nothing is to be taken out
    } of[2];
    i32 heads, S, D;
    i32 kind;            // of x: 0 bf16, 1 f16, 2 f32
};

// Grid: (heads, tensors). Partial sums of 16 and of 256: a single one would err by the number of tokens.
extern "C" __global__ void __launch_bounds__(256) pack_means(const __grid_constant__ Means m) {
    const auto& t = m.of[blockIdx.y];
    const i32 d = threadIdx.x;
    if (d >= m.D || t.mean == nullptr) return;
    i64 at = static_cast<i64>(blockIdx.x) * m.S * m.D + d;
    float few = 0.0f, more = 0.0f, all = 0.0f;
    for (i32 s = 0; s < m.S; ++s, at += m.D) {
        float y, none;
        if (m.kind == 2) {
            y = static_cast<const float*>(t.x)[at];
        } else if (m.kind == 1) {
            f32_of_f16x2(static_cast<const u16*>(t.x)[at], y, none);
        } else {
            y = __uint_as_float(static_cast<u32>(static_cast<const u16*>(t.x)[at]) << 16);
        }
        few += y;
        if ((s & 15) == 15) more += few, few = 0.0f;
        if ((s & 255) == 255) all += more, more = 0.0f;
    }
    t.mean[static_cast<i64>(blockIdx.x) * m.D + d] = __fdiv_rn(few + more + all, static_cast<float>(m.S));
}

struct AddMeans {
    const u8* q;
    const float* q_scale;
    void* out;             // (B, Hq, Sq, D)
    float* lse;            // (B, Hq, Sq), or null
    const float* k_mean;   // (B, Hkv, D)
    const float* v_mean;
    i32 qs_b, qs_h, qs_t, Hq, Sq, Sk, group;
    float softmax_scale;
};

#ifdef WS_D
// Grid: (Sq, Hq, B), D threads. q is contiguous.
extern "C" __global__ void __launch_bounds__(WS_D) add_means(const __grid_constant__ AddMeans m) {
    __shared__ float shared[WS_D / 32];
    const i32 query = blockIdx.x, head = blockIdx.y, b = blockIdx.z, d = threadIdx.x;
    if (WS_CAUSAL && query + m.Sk - m.Sq < 0) return;   // it sees no key, and stays 0
    const i64 row = (static_cast<i64>(b) * m.Hq + head) * m.Sq + query;
    const i64 mean = (static_cast<i64>(b) * (m.Hq / m.group) + head / m.group) * WS_D + d;
    u16* const out = static_cast<u16*>(m.out) + row * WS_D + d;
    float low, high;
    if (WS_OUT == kOutBf16) {
        *out = static_cast<u16>(bf16x2(__uint_as_float(static_cast<u32>(*out) << 16) + m.v_mean[mean], 0.0f));
    } else {
        f32_of_f16x2(*out, low, high);
        *out = static_cast<u16>(f16x2(low + m.v_mean[mean], 0.0f));
    }
    if (m.lse == nullptr) return;
    u32 pair, other;
    f16_of_e4m3(m.q[row * WS_D + d], pair, other);
    f32_of_f16x2(pair, low, high);
    float dot = low * m.k_mean[mean];
#pragma unroll
    for (i32 lane = 16; lane > 0; lane /= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, lane);
    if (d % 32 == 0) shared[d / 32] = dot;
    __syncthreads();
    if (d != 0) return;
    for (i32 i = 1; i < WS_D / 32; ++i) dot += shared[i];
    m.lse[row] += dot * m.q_scale[b * m.qs_b + head * m.qs_h + (query >> 7) * m.qs_t] * m.softmax_scale;
}
#endif
