//! task = "fp8_attention"
//! targets = ["sm_89", "sm_100", "sm_120"]
//! constraints = ["D == 64 || D == 128 || D == 256", "Hq % Hkv == 0"]
//! scales = ["head", "tensor", "block"]
//! layouts = ["packed"]
//! outs = ["bf16", "f16"]
//! defines = ["D", "causal", "out"]
//! [budget]
//! registers = 255
//! spill_bytes = 640
//! [structs.p]
//! bytes = 256
//! align = 8
//! fields = [
//!   { name = "q", type = "ptr", offset = 0, value = "q" },
//!   { name = "k", type = "ptr", offset = 8, value = "k" },
//!   { name = "v", type = "ptr", offset = 16, value = "v" },
//!   { name = "q_scale", type = "ptr", offset = 24, value = "q_scale" },
//!   { name = "k_scale", type = "ptr", offset = 32, value = "k_scale" },
//!   { name = "v_scale", type = "ptr", offset = 40, value = "v_scale" },
//!   { name = "out", type = "ptr", offset = 48, value = "out" },
//!   { name = "lse", type = "ptr", offset = 56, value = "lse" },
//!   { name = "partial", type = "ptr", offset = 64, value = 0 },
//!   { name = "arrived", type = "ptr", offset = 72, value = 0 },
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
//!   { name = "tiles_per_worker", type = "i32", offset = 228, value = 1 },
//!   { name = "total_tiles", type = "i32", offset = 232, value = 0 },
//!   { name = "row_tiles", type = "i32", offset = 236, value = 0 },
//!   { name = "section", type = "i32", offset = 240, value = 1 },
//!   { name = "v_mean", type = "ptr", offset = 248, value = 0 },
//! ]
//! [structs.add]
//! bytes = 80
//! align = 8
//! fields = [
//!   { name = "q", type = "ptr", offset = 0, value = "q" },
//!   { name = "q_scale", type = "ptr", offset = 8, value = "q_scale" },
//!   { name = "out", type = "ptr", offset = 16, value = "out" },
//!   { name = "lse", type = "ptr", offset = 24, value = "lse" },
//!   { name = "k_mean", type = "ptr", offset = 32, value = "k_mean" },
//!   { name = "v_mean", type = "ptr", offset = 40, value = "v_mean" },
//!   { name = "qs_b", type = "i32", offset = 48, value = "q_scale_b" },
//!   { name = "qs_h", type = "i32", offset = 52, value = "q_scale_h" },
//!   { name = "qs_t", type = "i32", offset = 56, value = "q_scale_t" },
//!   { name = "Hq", type = "i32", offset = 60, value = "Hq" },
//!   { name = "Sq", type = "i32", offset = 64, value = "Sq" },
//!   { name = "Sk", type = "i32", offset = 68, value = "Sk" },
//!   { name = "group", type = "i32", offset = 72, value = "group" },
//!   { name = "softmax_scale", type = "f32", offset = 76, value = "softmax_scale" },
//! ]
//! [[launch]]
//! entry = "attention_portable"
//! grid = ["ceil_div(Hq / Hkv * Sq, 64)", "Hkv", "B"]
//! block = [128]
//! shared_bytes = "64 * D + 4 * D * (64 - 32 * (D / 256))"
//! args = ["p"]
//! [[launch]]
//! entry = "add_means"
//! grid = ["Sq", "Hq", "B"]
//! block = ["D"]
//! args = ["add"]

// portable.cu, as it ships for sm_89, over keys and values that were packed: codes, scales, and the means that were taken out of them. On the
// CPU too: the PTX machine executes all of its instructions. The means come back by add_means (pack_means.cuh), where the library has torch do it.
#include "portable.cu"

#include "pack_means.cuh"
