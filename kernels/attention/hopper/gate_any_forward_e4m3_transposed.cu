//! task = "fp8_attention"
//! targets = ["sm_90a"]
//! constraints = ["D == 128 || D == 256 && GROUPS == 2", "Hq % Hkv == 0"]
//! shapes = ["1x4x2x300x700x256", "2x16x16x1000x1100x256", "1x4x2x300x700x128", "2x16x16x1000x1100x128"]
//! scales = ["head", "tensor"]
//! outs = ["bf16", "f16", "e4m3"]
//! defines = ["D", "causal", "out"]
//! [levers]
//! GROUPS = [2, 3]
//! [[config]]
//! name = "two"
//! set = { GROUPS = 2 }
//! [[config]]
//! name = "three"
//! set = { GROUPS = 3 }
//! [budget]
//! registers = 255
//! spill_bytes = 96
//! [workspace.v_t]
//! dtype = "u8"
//! shape = ["B", "Hkv", "D", "128 * ceil_div(Sk, 128)"]
//! [workspace.arrived]
//! dtype = "i32"
//! shape = ["1"]
//! init = "zero"
//! [structs.values]
//! bytes = 24
//! align = 8
//! fields = [
//!   { name = "made", type = "ptr", offset = 0, value = 0 },
//!   { name = "H", type = "i32", offset = 8, value = "Hkv" },
//!   { name = "S", type = "i32", offset = 12, value = "Sk" },
//!   { name = "heads", type = "i32", offset = 16, value = "B * Hkv" },
//!   { name = "section", type = "i32", offset = 20, value = 1 },
//! ]
//! [structs.p]
//! bytes = 256
//! align = 8
//! fields = [
//!   { name = "q", type = "ptr", offset = 0, value = "q" },
//!   { name = "k", type = "ptr", offset = 8, value = "k" },
//!   { name = "v", type = "ptr", offset = 16, value = "v_t" },
//!   { name = "q_scale", type = "ptr", offset = 24, value = "q_scale" },
//!   { name = "k_scale", type = "ptr", offset = 32, value = "k_scale" },
//!   { name = "v_scale", type = "ptr", offset = 40, value = "v_scale" },
//!   { name = "out", type = "ptr", offset = 48, value = "out" },
//!   { name = "lse", type = "ptr", offset = 56, value = 0 },
//!   { name = "partial", type = "ptr", offset = 64, value = 0 },
//!   { name = "arrived", type = "ptr", offset = 72, value = "arrived" },
//!   { name = "q_b", type = "i64", offset = 80, value = "q_stride_b" },
//!   { name = "q_h", type = "i64", offset = 88, value = "q_stride_h" },
//!   { name = "q_s", type = "i64", offset = 96, value = "q_stride_s" },
//!   { name = "k_b", type = "i64", offset = 104, value = "k_stride_b" },
//!   { name = "k_h", type = "i64", offset = 112, value = "k_stride_h" },
//!   { name = "k_s", type = "i64", offset = 120, value = "k_stride_s" },
//!   { name = "v_b", type = "i64", offset = 128, value = "k_stride_b" },
//!   { name = "v_h", type = "i64", offset = 136, value = "k_stride_h" },
//!   { name = "v_s", type = "i64", offset = 144, value = "k_stride_s" },
//!   { name = "qs_b", type = "i32", offset = 152, value = "q_scale_b" },
//!   { name = "qs_h", type = "i32", offset = 156, value = "q_scale_h" },
//!   { name = "qs_t", type = "i32", offset = 160, value = "q_scale_t" },
//!   { name = "ks_b", type = "i32", offset = 164, value = "k_scale_b" },
//!   { name = "ks_h", type = "i32", offset = 168, value = "k_scale_h" },
//!   { name = "ks_t", type = "i32", offset = 172, value = "k_scale_t" },
//!   { name = "vs_b", type = "i32", offset = 176, value = "k_scale_b" },
//!   { name = "vs_h", type = "i32", offset = 180, value = "k_scale_h" },
//!   { name = "vs_t", type = "i32", offset = 184, value = "k_scale_t" },
//!   { name = "B", type = "i32", offset = 188, value = "B" },
//!   { name = "Hq", type = "i32", offset = 192, value = "Hq" },
//!   { name = "Hkv", type = "i32", offset = 196, value = "Hkv" },
//!   { name = "Sq", type = "i32", offset = 200, value = "Sq" },
//!   { name = "Sk", type = "i32", offset = 204, value = "Sk" },
//!   { name = "group", type = "i32", offset = 208, value = "group" },
//!   { name = "out_kind", type = "i32", offset = 212, value = "out_kind" },
//!   { name = "out_inverse_scale", type = "f32", offset = 216, value = "out_inverse_scale" },
//!   { name = "softmax_scale_log2", type = "f32", offset = 220, value = "softmax_scale_log2" },
//!   { name = "tiles_per_unit", type = "i32", offset = 224, value = 0 },
//!   { name = "tiles_per_worker", type = "i32", offset = 228, value = 0 },
//!   { name = "total_tiles", type = "i32", offset = 232, value = 0 },
//!   { name = "row_tiles", type = "i32", offset = 236, value = "ceil_div(Sq, 64 * GROUPS)" },
//!   { name = "section", type = "i32", offset = 240, value = "max(1, causal * Hq * B)" },
//!   { name = "v_mean", type = "ptr", offset = 248, value = 0 },
//! ]
//! [tensor_maps.q_map]
//! tensor = "q"
//! box = [128, 64, 1, 1]
//! swizzle = "128B"
//! l2_promotion = "L2_128B"
//! [tensor_maps.k_map]
//! tensor = "k"
//! box = [128, 128, 1, 1]
//! swizzle = "128B"
//! l2_promotion = "L2_128B"
//! [tensor_maps.rows_map]
//! tensor = "v"
//! box = [128, 128, 1, 1]
//! swizzle = "128B"
//! l2_promotion = "L2_128B"
//! [tensor_maps.v_map]
//! tensor = "v_t"
//! box = [128, "D", 1, 1]
//! swizzle = "128B"
//! l2_promotion = "L2_128B"
//! [[launch]]
//! entry = "attention_transpose"
//! grid = ["min(SM_COUNT, ceil_div(Sk, 128) * B * Hkv)"]
//! block = ["320 * ceil_div(256, D)"]
//! shared_bytes = "ceil_div(256, D) * (768 * D + 96)"
//! args = ["values", "rows_map", "v_map"]
//! [[launch]]
//! entry = "attention_forward_e4m3"
//! grid = ["min(ceil_div(Sq, 64 * GROUPS) * Hq * B, SM_COUNT)"]
//! block = ["128 * GROUPS + 128"]
//! shared_bytes = "(D / 256) * 231744 + (1 - D / 256) * (16384 * GROUPS + 135488)"
//! args = ["p", "q_map", "k_map", "v_map"]

// transpose.cu, and forward_e4m3.cu over the V^T that it makes, as they ship where many queries read V and no log-sum-exp is asked for. The structs are Params of params.cuh and
// Values of transpose.cu, field by field; the entries and their code are those that ship.
#define WS_WGS GROUPS
#define WS_DRAWN WS_CAUSAL
#define WS_PACKED 1
#define WS_BLOCKS 0
#include "forward_e4m3.cu"
#include "transpose.cu"
