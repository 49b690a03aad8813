//! task = "fp8_attention"
//! targets = ["sm_90a"]
//! constraints = ["GROUPS == 2 || D == 256 * GROUPS || 3 * D == 64 * GROUPS", "Hq % Hkv == 0", "APART == 0 || D == 256"]
//! shapes = ["3x8x2x12x600x64", "3x8x2x12x600x128", "2x4x1x12x600x256"]
//! scales = ["block", "head"]
//! layouts = ["lengths", "paged"]
//! outs = ["bf16", "f16", "e4m3"]
//! defines = ["D", "causal", "out"]
//! [levers]
//! GROUPS = [2, 1, 3]
//! SPLITS = [6, 1]
//! APART = [0, 1]
//! [[config]]
//! name = "two_shared"
//! set = { GROUPS = 2, SPLITS = 6, APART = 0 }
//! [[config]]
//! name = "two_alone"
//! set = { GROUPS = 2, SPLITS = 1, APART = 0 }
//! [[config]]
//! name = "one_shared"
//! set = { GROUPS = 1, SPLITS = 6, APART = 0 }
//! [[config]]
//! name = "three_shared"
//! set = { GROUPS = 3, SPLITS = 6, APART = 0 }
//! [[config]]
//! name = "heads_apart"
//! set = { GROUPS = 2, SPLITS = 6, APART = 1 }
//! [budget]
//! registers = 255
//! spill_bytes = 4096
//! [workspace.partial]
//! dtype = "f32"
//! shape = ["B * (Hkv + APART * Hq) * ceil_div(Hq / Hkv * Sq, 64 * GROUPS) * SPLITS", "(D / 4 + 4) * 128 * GROUPS"]
//! [workspace.arrived]
//! dtype = "i32"
//! shape = ["1 + B * (Hkv + APART * Hq) * ceil_div(Hq / Hkv * Sq, 64 * GROUPS) * SPLITS * 4 * GROUPS"]
//! init = "zero"
//! [structs.p]
//! bytes = 368
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
//!   { name = "Hkv", type = "i32", offset = 196, value = "Hkv + APART * (Hq - Hkv)" },
//!   { name = "Sq", type = "i32", offset = 200, value = "Sq" },
//!   { name = "Sk", type = "i32", offset = 204, value = "Sk" },
//!   { name = "group", type = "i32", offset = 208, value = "Hq / (Hkv + APART * (Hq - Hkv))" },
//!   { name = "out_kind", type = "i32", offset = 212, value = "out_kind" },
//!   { name = "out_inverse_scale", type = "f32", offset = 216, value = "out_inverse_scale" },
//!   { name = "softmax_scale_log2", type = "f32", offset = 220, value = "softmax_scale_log2" },
//!   { name = "tiles_per_unit", type = "i32", offset = 224, value = 65537000 },
//!   { name = "tiles_per_worker", type = "i32", offset = 228, value = "SPLITS" },
//!   { name = "total_tiles", type = "i32", offset = 232, value = 6553700 },
//!   { name = "row_tiles", type = "i32", offset = 236, value = "ceil_div(Hq / (Hkv + APART * (Hq - Hkv)) * Sq, 64 * GROUPS)" },
//!   { name = "section", type = "i32", offset = 240, value = 10 },
//!   { name = "v_mean", type = "ptr", offset = 248, value = 0 },
//!   { name = "cu_q", type = "ptr", offset = 256, value = "cu_seqlens_q" },
//!   { name = "cu_k", type = "ptr", offset = 264, value = "cu_seqlens_k" },
//!   { name = "used", type = "ptr", offset = 272, value = "cache_seqlens" },
//!   { name = "pages", type = "ptr", offset = 280, value = "page_table" },
//!   { name = "pages_b", type = "i64", offset = 288, value = "ceil_div(Sk, 64)" },
//!   { name = "o_b", type = "i64", offset = 296, value = "out_stride_b" },
//!   { name = "o_h", type = "i64", offset = 304, value = "out_stride_h" },
//!   { name = "o_s", type = "i64", offset = 312, value = "out_stride_s" },
//!   { name = "l_b", type = "i64", offset = 320, value = "lse_stride_b" },
//!   { name = "l_h", type = "i64", offset = 328, value = "lse_stride_h" },
//!   { name = "l_s", type = "i64", offset = 336, value = 1 },
//!   { name = "total_q", type = "i32", offset = 344, value = "total_q" },
//!   { name = "total_k", type = "i32", offset = 348, value = "total_k" },
//!   { name = "page_size", type = "i32", offset = 352, value = "page_size" },
//!   { name = "page_count", type = "i32", offset = 356, value = "B * ceil_div(Sk, 64) + 1" },
//!   { name = "splits", type = "i32", offset = 360, value = "1 + APART * (Hq / Hkv - 1)" },
//! ]
//! [[launch]]
//! entry = "forward_few_lengths"
//! grid = ["min(B * Hkv * ceil_div(Hq / Hkv * Sq, 64 * GROUPS) * SPLITS, 4)"]
//! block = ["128 * GROUPS + 128"]
//! shared_bytes = "(D / 256) * (197024 + 16640 * GROUPS) + (1 - D / 256) * ((D / 128) * 198048 + (1 - D / 128) * (82336 + 8704 * GROUPS))"
//! args = ["p"]

// forward.cu over few rows of queries (few.cuh), with a log-sum-exp and scales by block, where sequences use parts of their caches, or pages, with the products and copies of plain.cuh in the place of wgmma and tensor copies: on the CPU
// the PTX machine executes all of its instructions. Four CTAs do all of the work, so that rings of buffers come round; its time is of no interest. The struct is FewParams, field by field.
#define WS_WGS GROUPS
#define WS_POLY 0
#define WS_TURNS (GROUPS > 1)
#define WS_LOOKS (2 + WS_CAUSAL)
#define WS_FEW 1
#define WS_BLOCKS 1
#define WS_LENS 1
#include "plain.cuh"
#include "as_function.cuh"
#include "forward.cu"
#include "as_kernels.cuh"

extern "C" __global__ void __launch_bounds__((WGS + 1) * 128, 1) forward_few_lengths(const __grid_constant__ FewParams p) {
    const i32 rows = p.x.pages ? p.x.page_size : p.Sk;   // of a page, or of a sequence's cache
    const u32 box = min(KEYS, rows);
    const TensorMap k_map = plain_map(p.k, p.k_b, p.k_h, p.k_s, rows, p.x.pages ? box : KEYS, kPlainChunks, 0), v_map = plain_map(p.v, p.v_b, p.v_h, p.v_s, rows, p.x.pages ? box : KEYS, kPlainChunks, 0);
    attention_forward(p, plain_queries(p, p.Sq, p.q_b), k_map, v_map);
}
