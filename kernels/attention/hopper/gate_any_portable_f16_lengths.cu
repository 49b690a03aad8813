//! task = "fp8_attention"
//! targets = ["sm_80"]
//! constraints = ["D == 64 || D == 128 || D == 256", "Hq % Hkv == 0"]
//! scales = ["head", "tensor", "block"]
//! layouts = ["ragged", "lengths", "paged"]
//! outs = ["bf16", "f16", "e4m3"]
//! defines = ["D", "causal", "out"]
//! precision = "f16"
//! [levers]
//! SHARES = [1, 3, 20, 50]
//! [[config]]
//! name = "alone"
//! set = { SHARES = 1 }
//! [[config]]
//! name = "shared"
//! set = { SHARES = 3 }
//! [[config]]
//! name = "more"
//! set = { SHARES = 20 }
//! [[config]]
//! name = "most"
//! set = { SHARES = 50 }
//! [budget]
//! registers = 255
//! spill_bytes = 256
//! [workspace.partial]
//! dtype = "f32"
//! shape = ["B * Hkv * ceil_div(Hq / Hkv * Sq, 64)", "SHARES", "64", "D + 4"]
//! [workspace.arrived]
//! dtype = "i32"
//! shape = ["B * Hkv * ceil_div(Hq / Hkv * Sq, 64)"]
//! init = "zero"
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
//!   { name = "partial", type = "ptr", offset = 64, value = "partial" },
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
//!   { name = "tiles_per_worker", type = "i32", offset = 228, value = "SHARES" },
//!   { name = "total_tiles", type = "i32", offset = 232, value = 0 },
//!   { name = "row_tiles", type = "i32", offset = 236, value = 0 },
//!   { name = "section", type = "i32", offset = 240, value = 1 },
//!   { name = "v_mean", type = "ptr", offset = 248, value = 0 },
//! ]
//! [structs.x]
//! bytes = 112
//! align = 8
//! fields = [
//!   { name = "cu_q", type = "ptr", offset = 0, value = "cu_seqlens_q" },
//!   { name = "cu_k", type = "ptr", offset = 8, value = "cu_seqlens_k" },
//!   { name = "used", type = "ptr", offset = 16, value = "cache_seqlens" },
//!   { name = "pages", type = "ptr", offset = 24, value = "page_table" },
//!   { name = "pages_b", type = "i64", offset = 32, value = "ceil_div(Sk, 64)" },
//!   { name = "o_b", type = "i64", offset = 40, value = "out_stride_b" },
//!   { name = "o_h", type = "i64", offset = 48, value = "out_stride_h" },
//!   { name = "o_s", type = "i64", offset = 56, value = "out_stride_s" },
//!   { name = "l_b", type = "i64", offset = 64, value = "lse_stride_b" },
//!   { name = "l_h", type = "i64", offset = 72, value = "lse_stride_h" },
//!   { name = "l_s", type = "i64", offset = 80, value = 1 },
//!   { name = "total_q", type = "i32", offset = 88, value = "total_q" },
//!   { name = "total_k", type = "i32", offset = 92, value = "total_k" },
//!   { name = "page_size", type = "i32", offset = 96, value = "page_size" },
//!   { name = "page_count", type = "i32", offset = 100, value = "B * ceil_div(Sk, 64) + 1" },
//!   { name = "splits", type = "i32", offset = 104, value = 1 },
//! ]
//! [[launch]]
//! entry = "attention_portable"
//! grid = ["ceil_div(Hq / Hkv * Sq, 64)", "Hkv * SHARES", "B"]
//! block = [128]
//! shared_bytes = "(64 + 2 * (64 - 32 * (D / 256))) * (D + 8) * 2 + 2 * (64 - 32 * (D / 256)) * D"
//! args = ["p", "x"]

// portable.cu, as it ships for sm_80 and as PTX, products in FP16, where only the device knows the lengths: in caches, in pages, one sequence behind another; by one CTA to a row tile or
// three that share its keys. On the CPU too: the PTX machine executes all of its instructions. The structs are Params of params.cuh and Ragged of ragged.cuh, field by field.
#define WS_LENS 1
#include "portable.cu"
