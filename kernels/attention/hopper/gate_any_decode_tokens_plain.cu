//! task = "fp8_attention"
//! targets = ["sm_90a"]
//! constraints = ["Hq % Hkv == 0", "Hq / Hkv * Sq <= ROWS", "ROWS == 8 || D < 256"]
//! shapes = ["5x4x2x4x300x128", "3x8x2x2x250x64", "4x2x1x3x200x256", "40x2x2x2x48x64"]
//! scales = ["head", "tensor", "block"]
//! layouts = ["ragged"]
//! outs = ["bf16", "f16", "e4m3"]
//! defines = ["D", "causal", "out"]
//! [levers]
//! TEAM = [3, 5, 9]
//! ROWS = [8, 16]
//! [[config]]
//! name = "stretches"
//! set = { TEAM = 3, ROWS = 8 }
//! [[config]]
//! name = "sixteen"
//! set = { TEAM = 5, ROWS = 16 }
//! [[config]]
//! name = "alone"
//! set = { TEAM = 9, ROWS = 8 }
//! [budget]
//! registers = 255
//! spill_bytes = 4096
//! [workspace.partial]
//! dtype = "f32"
//! shape = ["2 * Hkv * TEAM", "ROWS * (D + 2 * max(1, D / 128))"]
//! [workspace.arrived]
//! dtype = "i32"
//! shape = ["Hkv * TEAM * ROWS"]
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
//!   { name = "tiles_per_worker", type = "i32", offset = 228, value = 1 },
//!   { name = "total_tiles", type = "i32", offset = 232, value = "B * Hkv" },
//!   { name = "row_tiles", type = "i32", offset = 236, value = 1 },
//!   { name = "section", type = "i32", offset = 240, value = "8 * (TEAM / 5)" },
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
//! entry = "decode_plain"
//! grid = ["TEAM * Hkv"]
//! block = ["256 + 32 * (8 / ROWS) * min(1, 128 / D)"]
//! shared_bytes = "131072 + 1152 + 256 * (D + 4) + (ROWS / 16) * (256 * D + 1536)"
//! args = ["p", "x"]

// decode.cu as it ships for sequences of a few rows that lie one behind another, with copies by plain.cuh in the place of tensor copies: on the CPU the PTX machine executes all of its instructions, races included.
// A few CTAs do all of the work, so that rings and the room for outputs are taken again; its time is of no interest. The structs are Params of params.cuh and Ragged of ragged.cuh, field by field.
#define WS_KEYS (4096 / WS_D)
#define WS_WARPS 8
#define WS_STAGES 2
#define WS_ROWS ROWS
#define WS_SPREAD 1
#define WS_WGS 1   // plain.cuh wants one
#define WS_LENS 2
#include "plain.cuh"
#include "as_function.cuh"
#include "decode.cu"
#include "as_kernels.cuh"

extern "C" __global__ void __launch_bounds__(ALL_THREADS, 1) decode_plain(const __grid_constant__ Params p, const __grid_constant__ Ragged x) {
    const TensorMap k_map = plain_map(p.k, 0, p.k_h, p.k_s, x.total_k, KEYS, kPlainChunks, WS_APART ? kCounted : 0), v_map = plain_map(p.v, 0, p.v_h, p.v_s, x.total_k, KEYS);
    attention_decode(p, k_map, k_map, v_map, x);
}
