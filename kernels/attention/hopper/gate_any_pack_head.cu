//! task = "fp8_pack"
//! targets = ["sm_89", "sm_80", "sm_120"]
//! constraints = ["D % 8 == 0", "D <= 256"]
//! formats = ["bf16", "f16"]
//! scales = ["head"]
//! [budget]
//! registers = 128
//! spill_bytes = 0
//! [workspace.k_amax]
//! dtype = "u32"
//! shape = ["2 * B * H"]
//! init = "zero"
//! [workspace.v_amax]
//! dtype = "u32"
//! shape = ["2 * B * H"]
//! init = "zero"
//! [workspace.ticket]
//! dtype = "u32"
//! shape = ["1"]
//! init = "zero"
//! [structs.means]
//! bytes = 48
//! align = 8
//! fields = [
//!   { name = "x0", type = "ptr", offset = 0, value = "k" },
//!   { name = "mean0", type = "ptr", offset = 8, value = "k_mean" },
//!   { name = "x1", type = "ptr", offset = 16, value = "v" },
//!   { name = "mean1", type = "ptr", offset = 24, value = "v_mean" },
//!   { name = "heads", type = "i32", offset = 32, value = "B * H" },
//!   { name = "S", type = "i32", offset = 36, value = "S" },
//!   { name = "D", type = "i32", offset = 40, value = "D" },
//!   { name = "kind", type = "i32", offset = 44, value = "format_kind" },
//! ]
//! [structs.pack]
//! bytes = 336
//! align = 8
//! fields = [
//!   { name = "x0", type = "ptr", offset = 0, value = "k" },
//!   { name = "shift0", type = "ptr", offset = 8, value = "k_mean" },
//!   { name = "codes0", type = "ptr", offset = 16, value = "k_codes" },
//!   { name = "scale0", type = "ptr", offset = 24, value = "k_scale" },
//!   { name = "amax0", type = "ptr", offset = 32, value = "k_amax" },
//!   { name = "x_b0", type = "i64", offset = 40, value = "H * S * D" },
//!   { name = "x_h0", type = "i64", offset = 48, value = "S * D" },
//!   { name = "x_s0", type = "i64", offset = 56, value = "D" },
//!   { name = "c_b0", type = "i64", offset = 64, value = "H * S * D" },
//!   { name = "c_h0", type = "i64", offset = 72, value = "S * D" },
//!   { name = "c_s0", type = "i64", offset = 80, value = "D" },
//!   { name = "H0", type = "i32", offset = 88, value = "H" },
//!   { name = "heads0", type = "i32", offset = 92, value = "B * H" },
//!   { name = "S0", type = "i32", offset = 96, value = "S" },
//!   { name = "D0", type = "i32", offset = 100, value = "D" },
//!   { name = "kind0", type = "i32", offset = 104, value = "format_kind" },
//!   { name = "per0", type = "i32", offset = 108, value = "scale_kind" },
//!   { name = "x1", type = "ptr", offset = 112, value = "v" },
//!   { name = "shift1", type = "ptr", offset = 120, value = "v_mean" },
//!   { name = "codes1", type = "ptr", offset = 128, value = "v_codes" },
//!   { name = "scale1", type = "ptr", offset = 136, value = "v_scale" },
//!   { name = "amax1", type = "ptr", offset = 144, value = "v_amax" },
//!   { name = "x_b1", type = "i64", offset = 152, value = "H * S * D" },
//!   { name = "x_h1", type = "i64", offset = 160, value = "S * D" },
//!   { name = "x_s1", type = "i64", offset = 168, value = "D" },
//!   { name = "c_b1", type = "i64", offset = 176, value = "H * S * D" },
//!   { name = "c_h1", type = "i64", offset = 184, value = "S * D" },
//!   { name = "c_s1", type = "i64", offset = 192, value = "D" },
//!   { name = "H1", type = "i32", offset = 200, value = "H" },
//!   { name = "heads1", type = "i32", offset = 204, value = "B * H" },
//!   { name = "S1", type = "i32", offset = 208, value = "S" },
//!   { name = "D1", type = "i32", offset = 212, value = "D" },
//!   { name = "kind1", type = "i32", offset = 216, value = "format_kind" },
//!   { name = "per1", type = "i32", offset = 220, value = "scale_kind" },
//!   { name = "x2", type = "ptr", offset = 224, value = 0 },
//!   { name = "per2", type = "i32", offset = 332, value = 0 },
//! ]
//! [[launch]]
//! entry = "pack_means"
//! grid = ["B * H", 2]
//! block = ["D"]
//! args = ["means"]
//! [[launch]]
//! entry = "attention_quantise_head_16"
//! grid = ["ceil_div(S, 128)", "B * H", 2]
//! block = [256]
//! args = ["pack", "ticket"]

// The one launch of quantise.cu for heads' scales, here for sm_89, sm_80 and sm_120, which the PTX machine executes: a head's CTAs wait for each other. Keys and
// values together, each channel's mean over the tokens taken out. The structs are Quantises of quantise.cu and Means of pack_means.cuh. The
// library has torch's mean in pack_means' place.
#include "quantise.cu"

#include "pack_means.cuh"
