// Ends what as_function.cuh began; then Params for contiguous (B, H, S, D) tensors with a scale for each head and f16 out, the task fp8_sdpa.
#undef __global__
#define __global__ __attribute__((global))
#undef __launch_bounds__
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#undef __cluster_dims__
#define __cluster_dims__(...) __attribute__((cluster_dims(__VA_ARGS__)))
#undef __grid_constant__
#define __grid_constant__ __attribute__((grid_constant))

WS_DEV Params fp8_sdpa_params(const u8* q, const u8* k, const u8* v, const float* q_scale, const float* k_scale, const float* v_scale, void* out, float softmax_scale,
                              i32 B, i32 H, i32 S) {
    Params p{};
    p.q = q, p.k = k, p.v = v, p.q_scale = q_scale, p.k_scale = k_scale, p.v_scale = v_scale, p.out = out;
    p.q_s = p.k_s = p.v_s = WS_D;
    p.q_h = p.k_h = p.v_h = static_cast<i64>(S) * WS_D;
    p.q_b = p.k_b = p.v_b = p.q_h * H;
    p.qs_b = p.ks_b = p.vs_b = H;
    p.qs_h = p.ks_h = p.vs_h = 1;
    p.B = B, p.Hq = p.Hkv = H, p.Sq = p.Sk = S, p.group = 1;
    p.out_kind = kOutF16, p.out_inverse_scale = 1.0f, p.section = 1;
    p.softmax_scale_log2 = softmax_scale * 1.4426950408889634f;
    return p;
}
