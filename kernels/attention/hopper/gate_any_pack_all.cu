//! task = "fp8_pack"
//! targets = ["sm_89", "sm_80", "sm_120"]
//! constraints = ["D == 64 || D == 128 || D == 256"]
//! formats = ["bf16", "f16", "f32"]
//! scales = ["block"]
//! defines = ["D", "format"]
//! [budget]
//! registers = 128
//! spill_bytes = 64
//! [workspace.v_again]
//! dtype = "f32"
//! shape = ["B", "H", "ceil_div(S, 128)"]
//! [workspace.v_taken]
//! dtype = "f32"
//! shape = ["B", "H", "D"]
//! [structs.pack]
//! bytes = 288
//! align = 8
//! fields = [
//!   { name = "x0", type = "ptr", offset = 0, value = "k" },
//!   { name = "codes0", type = "ptr", offset = 8, value = "k_codes" },
//!   { name = "transposed0", type = "ptr", offset = 16, value = 0 },
//!   { name = "scale0", type = "ptr", offset = 24, value = "k_scale" },
//!   { name = "mean0", type = "ptr", offset = 32, value = 0 },
//!   { name = "x_b0", type = "i64", offset = 40, value = "H * S * D" },
//!   { name = "x_h0", type = "i64", offset = 48, value = "S * D" },
//!   { name = "c_b0", type = "i64", offset = 56, value = "H * S * D" },
//!   { name = "c_h0", type = "i64", offset = 64, value = "S * D" },
//!   { name = "x_s0", type = "i32", offset = 72, value = "D" },
//!   { name = "c_s0", type = "i32", offset = 76, value = "D" },
//!   { name = "H0", type = "i32", offset = 80, value = "H" },
//!   { name = "heads0", type = "i32", offset = 84, value = "B * H" },
//!   { name = "S0", type = "i32", offset = 88, value = "S" },
//!   { name = "pad0", type = "i32", offset = 92, value = 0 },
//!   { name = "x1", type = "ptr", offset = 96, value = "v" },
//!   { name = "codes1", type = "ptr", offset = 104, value = 0 },
//!   { name = "transposed1", type = "ptr", offset = 112, value = "v_t" },
//!   { name = "scale1", type = "ptr", offset = 120, value = "v_scale" },
//!   { name = "mean1", type = "ptr", offset = 128, value = "v_sampled" },
//!   { name = "x_b1", type = "i64", offset = 136, value = "H * S * D" },
//!   { name = "x_h1", type = "i64", offset = 144, value = "S * D" },
//!   { name = "c_b1", type = "i64", offset = 152, value = "H * S * D" },
//!   { name = "c_h1", type = "i64", offset = 160, value = "S * D" },
//!   { name = "x_s1", type = "i32", offset = 168, value = "D" },
//!   { name = "c_s1", type = "i32", offset = 172, value = "D" },
//!   { name = "H1", type = "i32", offset = 176, value = "H" },
//!   { name = "heads1", type = "i32", offset = 180, value = "B * H" },
//!   { name = "S1", type = "i32", offset = 184, value = "S" },
//!   { name = "pad1", type = "i32", offset = 188, value = 0 },
//!   { name = "x2", type = "ptr", offset = 192, value = "v" },
//!   { name = "codes2", type = "ptr", offset = 200, value = "v_codes" },
//!   { name = "transposed2", type = "ptr", offset = 208, value = 0 },
//!   { name = "scale2", type = "ptr", offset = 216, value = "v_again" },
//!   { name = "mean2", type = "ptr", offset = 224, value = "v_taken" },
//!   { name = "x_b2", type = "i64", offset = 232, value = "H * S * D" },
//!   { name = "x_h2", type = "i64", offset = 240, value = "S * D" },
//!   { name = "c_b2", type = "i64", offset = 248, value = "H * S * D" },
//!   { name = "c_h2", type = "i64", offset = 256, value = "S * D" },
//!   { name = "x_s2", type = "i32", offset = 264, value = "D" },
//!   { name = "c_s2", type = "i32", offset = 268, value = "D" },
//!   { name = "H2", type = "i32", offset = 272, value = "H" },
//!   { name = "heads2", type = "i32", offset = 276, value = "B * H" },
//!   { name = "S2", type = "i32", offset = 280, value = "S" },
//!   { name = "pad2", type = "i32", offset = 284, value = 0 },
//! ]
//! [[launch]]
//! entry = "attention_pack"
//! grid = ["ceil_div(S, 128)", "B * H", 3]
//! block = ["2 * D"]
//! args = ["pack"]

// pack.cu as `sdpa` launches it, here for sm_89, sm_80 and sm_120, which the PTX machine executes: three tensors together. k is here as queries
// are, with nothing taken out; v's codes by dimensions alone come from one part of the launch, those by keys from another.
#if WS_FORMAT == WS_BF16
#define WS_KIND 0
#elif WS_FORMAT == WS_F16
#define WS_KIND 1
#else
#define WS_KIND 2
#endif
#include "pack.cu"
