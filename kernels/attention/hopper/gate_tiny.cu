//! task = "fp8_sdpa"
//! targets = ["sm_90a"]
//! constraints = ["D == 64", "S <= 512"]
//! defines = ["D", "causal"]
//! [tensor_maps.q_map]
//! tensor = "q"
//! box = [64, 64, 1, 1]
//! swizzle = "64B"
//! l2_promotion = "L2_256B"
//! [tensor_maps.k_map]
//! tensor = "k"
//! box = [64, 128, 1, 1]
//! swizzle = "64B"
//! l2_promotion = "L2_256B"
//! [tensor_maps.v_map]
//! tensor = "v"
//! box = [64, 128, 1, 1]
//! swizzle = "64B"
//! l2_promotion = "L2_256B"
//! [[launch]]
//! entry = "tiny_fp8_sdpa"
//! grid = ["ceil_div(S, 64) * 4", "H", "B"]
//! block = [128]
//! cluster = [4]
//! shared_bytes = "64 * D + 3 * 128 * D + 8 * 128 + D / 16 * 2048 + 4 * 512 + 128"
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "B", "H", "S", "q_map", "k_map", "v_map"]

// tiny.cu at D 64 with clusters of four, for the gates.
#define WS_KEYS 128
#define WS_WGS 1
#define WS_CTAS 4
#define WS_POLY 3
#define WS_BLOCKS 4
#include "as_function.cuh"
#include "tiny.cu"
#include "as_kernels.cuh"

extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(128, 4)
    tiny_fp8_sdpa(const u8* q, const u8* k, const u8* v, const float* q_scale, const float* k_scale, const float* v_scale, void* out, float softmax_scale, i32 B, i32 H,
                  i32 S, const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map) {
    attention_tiny(fp8_sdpa_params(q, k, v, q_scale, k_scale, v_scale, out, softmax_scale, B, H, S), q_map, k_map, v_map);
}
