//! task = "fp8_attention"
//! targets = ["sm_90a"]
//! constraints = ["D == 128 || D == 256", "Hq % Hkv == 0", "Hq / Hkv * Sq <= 8", "RING == 0 || D == 128 || B * Hkv * TEAM <= SM_COUNT"]
//! shapes = ["decode", "decode_two"]
//! scales = ["head", "tensor", "block"]
//! layouts = ["lengths"]
//! outs = ["bf16", "f16", "e4m3"]
//! defines = ["D", "causal", "out"]
//! [levers]
//! TEAM = [4, 1, 2, 16]
//! RING = [1, 0]
//! [budget]
//! registers = 255
//! spill_bytes = 64
//! [workspace.partial]
//! dtype = "f32"
//! shape = ["B * Hkv * TEAM", "8 * (D + 2 * (D / 128))"]
//! [workspace.arrived]
//! dtype = "i32"
//! shape = ["B * Hkv * 8"]
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
//!   { name = "tiles_per_unit", type = "i32", offset = 224, value = "ceil_div(Sk, 4096 / D)" },
//!   { name = "tiles_per_worker", type = "i32", offset = 228, value = "TEAM" },
//!   { name = "total_tiles", type = "i32", offset = 232, value = "B * Hkv" },
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
//! [tensor_maps.q_map]
//! tensor = "q"
//! box = ["min(D, 128)", 8, 1, 1]
//! swizzle = "128B"
//! l2_promotion = "L2_256B"
//! [tensor_maps.k_map]
//! tensor = "k"
//! box = ["min(D, 128)", "4096 / D", 1, 1]
//! dims = ["D", "Sk", "Hkv", "B"]
//! strides = ["Hkv * D", "D", "Sk * Hkv * D"]
//! swizzle = "128B"
//! l2_promotion = "L2_256B"
//! [tensor_maps.v_map]
//! tensor = "v"
//! box = ["min(D, 128)", "4096 / D", 1, 1]
//! dims = ["D", "Sk", "Hkv", "B"]
//! strides = ["Hkv * D", "D", "Sk * Hkv * D"]
//! swizzle = "128B"
//! l2_promotion = "L2_256B"
//! [[launch]]
//! entry = "attention_decode"
//! grid = ["TEAM * min(B * Hkv, SM_COUNT / TEAM)"]
//! block = ["256 + 32 * (2 - D / 128)"]
//! shared_bytes = "8 * 2 * 2 * 4096 + 8 * 64 + 8 * 2 * 8 * (D / 128) + 24 + (1 - RING * (D / 256)) * (8 * 8 * (D + 4) * 4)"
//! args = ["p", "q_map", "k_map", "v_map", "x"]

// decode.cu as it ships for caches of which each sequence uses a part.
// The struct is Params of params.cuh (ragged.cuh: Ragged), field by field; the entry and its code are those that ship.
#define WS_KEYS (4096 / WS_D)
#define WS_WARPS 8
#define WS_STAGES 2
#if WS_D == 256 && RING   // one unit to a CTA
#define WS_RING 1
#endif
#define WS_ROWS 8
#define WS_LENS 1
#include "decode.cu"
