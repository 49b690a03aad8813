//! task = "fp8_pack"
//! targets = ["sm_89", "sm_80", "sm_120"]
//! constraints = ["D == 64 || D == 128 || D == 256"]
//! formats = ["bf16", "f16", "f32"]
//! scales = ["block"]
//! defines = ["D", "format"]
//! [budget]
//! registers = 128
//! spill_bytes = 64
//! [structs.pack]
//! bytes = 288
//! align = 8
//! fields = [
//!   { name = "x0", type = "ptr", offset = 0, value = "k" },
//!   { name = "codes0", type = "ptr", offset = 8, value = "k_codes" },
//!   { name = "transposed0", type = "ptr", offset = 16, value = 0 },
//!   { name = "scale0", type = "ptr", offset = 24, value = "k_scale" },
//!   { name = "mean0", type = "ptr", offset = 32, value = "k_sampled" },
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
//!   { name = "codes1", type = "ptr", offset = 104, value = "v_codes" },
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
//!   { name = "x2", type = "ptr", offset = 192, value = 0 },
//!   { name = "pad2", type = "i32", offset = 284, value = 0 },
//! ]
//! [[launch]]
//! entry = "attention_pack"
//! grid = ["ceil_div(S, 128)", "B * H", 2]
//! block = ["2 * D"]
//! args = ["pack"]

// pack.cu as pack_kv launches it, here for sm_89, sm_80 and sm_120, which the PTX machine executes: a CTA for each block of 128 tokens; v's codes both ways.
#if WS_FORMAT == WS_BF16
#define WS_KIND 0
#elif WS_FORMAT == WS_F16
#define WS_KIND 1
#else
#define WS_KIND 2
#endif
#include "pack.cu"
