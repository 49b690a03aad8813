//! task = "fp8_attention"
//! targets = ["sm_89", "sm_120"]
//! constraints = ["D == 64 || D == 128 || D == 256", "Hq % Hkv == 0"]
//! scales = ["head", "tensor", "block"]
//! layouts = ["wide"]
//! outs = ["bf16", "f16"]
//! defines = ["D", "causal", "out"]
//! [budget]
//! registers = 255
//! spill_bytes = 512
//! [workspace.k_codes]
//! dtype = "u8"
//! shape = ["B", "Hkv", "Sk", "D"]
//! [workspace.v_codes]
//! dtype = "u8"
//! shape = ["B", "Hkv", "Sk", "D"]
//! [workspace.k_made]
//! dtype = "f32"
//! shape = ["B", "Hkv", "ceil_div(Sk, 128)"]
//! [workspace.v_made]
//! dtype = "f32"
//! shape = ["B", "Hkv", "ceil_div(Sk, 128)"]
//! [workspace.k_taken]
//! dtype = "f32"
//! shape = ["B", "Hkv", "D"]
//! [workspace.v_taken]
//! dtype = "f32"
//! shape = ["B", "Hkv", "D"]
//! [workspace.k_amax]
//! dtype = "u32"
//! shape = ["2 * B * Hkv"]
//! init = "zero"
//! [workspace.v_amax]
//! dtype = "u32"
//! shape = ["2 * B * Hkv"]
//! init = "zero"
//! [structs.p]
//! bytes = 256
//! align = 8
//! fields = [
//!   { name = "q", type = "ptr", offset = 0, value = "q" },
//!   { name = "k", type = "ptr", offset = 8, value = "k_codes" },
//!   { name = "v", type = "ptr", offset = 16, value = "v_codes" },
//!   { name = "q_scale", type = "ptr", offset = 24, value = "q_scale" },
//!   { name = "k_scale", type = "ptr", offset = 32, value = "k_made" },
//!   { name = "v_scale", type = "ptr", offset = 40, value = "v_made" },
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
//! [structs.pack]
//! bytes = 336
//! align = 8
//! fields = [
//!   { name = "x0", type = "ptr", offset = 0, value = "k_wide" },
//!   { name = "shift0", type = "ptr", offset = 8, value = "k_taken" },
//!   { name = "codes0", type = "ptr", offset = 16, value = "k_codes" },
//!   { name = "scale0", type = "ptr", offset = 24, value = "k_made" },
//!   { name = "amax0", type = "ptr", offset = 32, value = "k_amax" },
//!   { name = "x_b0", type = "i64", offset = 40, value = "Hkv * Sk * D" },
//!   { name = "x_h0", type = "i64", offset = 48, value = "Sk * D" },
//!   { name = "x_s0", type = "i64", offset = 56, value = "D" },
//!   { name = "c_b0", type = "i64", offset = 64, value = "Hkv * Sk * D" },
//!   { name = "c_h0", type = "i64", offset = 72, value = "Sk * D" },
//!   { name = "c_s0", type = "i64", offset = 80, value = "D" },
//!   { name = "H0", type = "i32", offset = 88, value = "Hkv" },
//!   { name = "heads0", type = "i32", offset = 92, value = "B * Hkv" },
//!   { name = "S0", type = "i32", offset = 96, value = "Sk" },
//!   { name = "D0", type = "i32", offset = 100, value = "D" },
//!   { name = "kind0", type = "i32", offset = 104, value = 0 },
//!   { name = "per0", type = "i32", offset = 108, value = "scale_kind" },
//!   { name = "x1", type = "ptr", offset = 112, value = "v_wide" },
//!   { name = "shift1", type = "ptr", offset = 120, value = "v_taken" },
//!   { name = "codes1", type = "ptr", offset = 128, value = "v_codes" },
//!   { name = "scale1", type = "ptr", offset = 136, value = "v_made" },
//!   { name = "amax1", type = "ptr", offset = 144, value = "v_amax" },
//!   { name = "x_b1", type = "i64", offset = 152, value = "Hkv * Sk * D" },
//!   { name = "x_h1", type = "i64", offset = 160, value = "Sk * D" },
//!   { name = "x_s1", type = "i64", offset = 168, value = "D" },
//!   { name = "c_b1", type = "i64", offset = 176, value = "Hkv * Sk * D" },
//!   { name = "c_h1", type = "i64", offset = 184, value = "Sk * D" },
//!   { name = "c_s1", type = "i64", offset = 192, value = "D" },
//!   { name = "H1", type = "i32", offset = 200, value = "Hkv" },
//!   { name = "heads1", type = "i32", offset = 204, value = "B * Hkv" },
//!   { name = "S1", type = "i32", offset = 208, value = "Sk" },
//!   { name = "D1", type = "i32", offset = 212, value = "D" },
//!   { name = "kind1", type = "i32", offset = 216, value = 0 },
//!   { name = "per1", type = "i32", offset = 220, value = "scale_kind" },
//!   { name = "x2", type = "ptr", offset = 224, value = 0 },
//!   { name = "per2", type = "i32", offset = 332, value = 0 },
//! ]
//! [structs.means]
//! bytes = 48
//! align = 8
//! fields = [
//!   { name = "x0", type = "ptr", offset = 0, value = "k_wide" },
//!   { name = "mean0", type = "ptr", offset = 8, value = "k_taken" },
//!   { name = "x1", type = "ptr", offset = 16, value = "v_wide" },
//!   { name = "mean1", type = "ptr", offset = 24, value = "v_taken" },
//!   { name = "heads", type = "i32", offset = 32, value = "B * Hkv" },
//!   { name = "S", type = "i32", offset = 36, value = "Sk" },
//!   { name = "D", type = "i32", offset = 40, value = "D" },
//!   { name = "kind", type = "i32", offset = 44, value = 0 },
//! ]
//! [structs.add]
//! bytes = 80
//! align = 8
//! fields = [
//!   { name = "q", type = "ptr", offset = 0, value = "q" },
//!   { name = "q_scale", type = "ptr", offset = 8, value = "q_scale" },
//!   { name = "out", type = "ptr", offset = 16, value = "out" },
//!   { name = "lse", type = "ptr", offset = 24, value = "lse" },
//!   { name = "k_mean", type = "ptr", offset = 32, value = "k_taken" },
//!   { name = "v_mean", type = "ptr", offset = 40, value = "v_taken" },
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
//! entry = "pack_means"
//! grid = ["B * Hkv", 2]
//! block = ["D"]
//! args = ["means"]
//! [[launch]]
//! entry = "attention_amax"
//! grid = ["ceil_div(Sk, 128)", "B * Hkv", 2]
//! block = [256]
//! args = ["pack"]
//! [[launch]]
//! entry = "attention_quantise"
//! grid = ["ceil_div(Sk, 128)", "B * Hkv", 2]
//! block = [256]
//! args = ["pack"]
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

// From keys and values in bf16 to outputs: quantise.cu packs them, portable.cu attends over what it made, both as they ship, here for sm_89, which
// the PTX machine executes; the means by pack_means and add_means (pack_means.cuh), where the library has torch's operations.
#include "portable.cu"

#include "quantise.cu"

#include "pack_means.cuh"
