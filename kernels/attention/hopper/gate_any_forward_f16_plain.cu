//! task = "fp8_attention"
//! targets = ["sm_90a"]
//! constraints = ["D == 64", "Hq % Hkv == 0"]
//! scales = ["head", "tensor"]
//! outs = ["bf16", "f16", "e4m3"]
//! defines = ["D", "causal", "out"]
//! [levers]
//! GROUPS = [4, 2]
//! DRAWN = [0, 1]
//! EXACT_FROM = [2048, 1]
//! [[config]]
//! name = "four"
//! set = { GROUPS = 4, DRAWN = 0, EXACT_FROM = 2048 }
//! [[config]]
//! name = "two"
//! set = { GROUPS = 2, DRAWN = 0, EXACT_FROM = 1 }
//! [[config]]
//! name = "drawn"
//! set = { GROUPS = 4, DRAWN = 1, EXACT_FROM = 1 }
//! [budget]
//! registers = 255
//! spill_bytes = 2048
//! [workspace.arrived]
//! dtype = "i32"
//! shape = ["1"]
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
//! [[launch]]
//! entry = "forward_f16_plain"
//! grid = ["min(ceil_div(Sq, 64 * GROUPS) * Hq * B, 2)"]
//! block = ["128 * GROUPS + 128"]
//! shared_bytes = "8192 * GROUPS + 117760"
//! args = ["p"]

// forward_f16.cu with the products and copies of plain.cuh in the place of wgmma and tensor copies: on the CPU the PTX machine executes all of its instructions.
// Two CTAs do all of the work, so that rings of buffers come round; its time is of no interest. Its cases have few keys, so two configurations have exact weights of first rows over any number of them. The struct is Params of params.cuh, field by field.
#define WS_WGS GROUPS
#define WS_DRAWN DRAWN
#define WS_EXACT_FROM EXACT_FROM
#include "plain.cuh"
#include "as_function.cuh"
#include "forward_f16.cu"
#include "as_kernels.cuh"

extern "C" __global__ void __launch_bounds__((WGS + 1) * 128, 1) forward_f16_plain(const __grid_constant__ Params p) {
    const TensorMap q_map = plain_map(p.q, p.q_b, p.q_h, p.q_s, p.Sq, 64), k_map = plain_map(p.k, p.k_b, p.k_h, p.k_s, p.Sk, 128),
                    v_map = plain_map(p.v, p.v_b, p.v_h, p.v_s, p.Sk, 128);
    attention_forward_f16(p, q_map, k_map, v_map);
}
