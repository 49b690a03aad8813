//! task = "fp8_sdpa"
//! targets = ["sm_90a"]
//! constraints = ["D == 128"]
//! defines = ["D", "causal"]
//! [budget]
//! registers = 168
//! [tensor_maps.q_map]
//! tensor = "q"
//! box = [128, 64, 1, 1]
//! swizzle = "128B"
//! l2_promotion = "L2_256B"
//! [tensor_maps.k_map]
//! tensor = "k"
//! box = [128, 128, 1, 1]
//! swizzle = "128B"
//! l2_promotion = "L2_256B"
//! [tensor_maps.v_map]
//! tensor = "v"
//! box = [128, 128, 1, 1]
//! swizzle = "128B"
//! l2_promotion = "L2_256B"
//! [[launch]]
//! entry = "forward_fp8_sdpa"
//! grid = ["min(ceil_div(S, 192) * H * B, SM_COUNT)"]
//! block = [512]
//! shared_bytes = "2 * 192 * D + 10 * 128 * D + 256"
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "B", "H", "S", "q_map", "k_map", "v_map"]

// forward.cu at D 128, for the gates.
#define WS_WGS 3
#include "as_function.cuh"
#include "forward.cu"
#include "as_kernels.cuh"

extern "C" __global__ void __launch_bounds__(512, 1)
    forward_fp8_sdpa(const u8* q, const u8* k, const u8* v, const float* q_scale, const float* k_scale, const float* v_scale, void* out, float softmax_scale, i32 B, i32 H,
                     i32 S, const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map) {
    Params p = fp8_sdpa_params(q, k, v, q_scale, k_scale, v_scale, out, softmax_scale, B, H, S);
    p.row_tiles = (S + 191) / 192;
    attention_forward(p, q_map, k_map, v_map);
}
