//! task = "fp8_sdpa"
//! targets = ["sm_80", "sm_90"]
//! constraints = ["D == 64 || D == 128"]
//! defines = ["D", "causal"]
//! precision = "f16"
//! [budget]
//! registers = 255
//! spill_bytes = 256
//! [[launch]]
//! entry = "portable_fp8_sdpa"
//! grid = ["ceil_div(S, 64)", "H", "B"]
//! block = [128]
//! shared_bytes = "3 * 64 * (D + 8) * 2 + 128 * D"
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "B", "H", "S"]

// portable.cu, for the gates: on the CPU too, as the PTX machine executes all of its instructions.
#include "as_function.cuh"
#include "portable.cu"
#include "as_kernels.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    portable_fp8_sdpa(const u8* q, const u8* k, const u8* v, const float* q_scale, const float* k_scale, const float* v_scale, void* out, float softmax_scale, i32 B, i32 H,
                      i32 S) {
    Params p = fp8_sdpa_params(q, k, v, q_scale, k_scale, v_scale, out, softmax_scale, B, H, S);
    p.tiles_per_worker = 1;
    attention_portable(p);
}
