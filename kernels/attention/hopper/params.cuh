// What every Hopper attention kernel is told about its tensors. The host mirrors this struct: python/warpsmith/attention/_params.py.
//
// q (B, Hq, Sq, D), k and v (B, Hkv, Sk, D) in e4m3, any strides (in elements) with a contiguous last dimension and rows on 16 bytes;
// out (B, Hq, Sq, D) contiguous. Scales are f32; their strides are 0 where they are shared, and `_t` steps over blocks of 128 tokens.
#pragma once
#include "ptx.cuh"

constexpr i32 kOutBf16 = 0, kOutF16 = 1, kOutE4m3 = 2;

struct Params {
    const u8* q;
    const u8* k;
    const u8* v;
    const float* q_scale;
    const float* k_scale;
    const float* v_scale;
    void* out;
    float* lse;            // (B, Hq, Sq), or null
    float* partial;        // decode: unfinished outputs, by worker
    i32* arrived;          // decode: one counter for each unit, zero between launches
    i64 q_b, q_h, q_s, k_b, k_h, k_s, v_b, v_h, v_s;
    i32 qs_b, qs_h, qs_t, ks_b, ks_h, ks_t, vs_b, vs_h, vs_t;
    i32 B, Hq, Hkv, Sq, Sk, group;
    i32 out_kind;
    float out_inverse_scale;
    float softmax_scale_log2;   // softmax_scale * log2(e)
    i32 tiles_per_unit, tiles_per_worker, total_tiles;   // split and its like; decode: tiles of a unit, CTAs of a team, units
    i32 row_tiles, section;                              // forward: row tiles of a head; heads of a section (forward_work.cuh)
    const float* v_mean;                                 // forward with WS_PACKED and WS_BLOCKS: (B, Hkv, D), added to rows that see a key, or null
};

#ifdef WS_OUT   // the kind is compiled in
#define WS_OUT_CODES (WS_OUT == 2)   // whether outputs may be e4m3
#define WS_OUT_F16 (WS_OUT == 1)
#else
#define WS_OUT p.out_kind
#define WS_OUT_CODES 1
#define WS_OUT_F16 0
#endif

// Writes four neighbouring values of an output row.
WS_DEV void store_out4(const Params& p, i64 at, float a, float b, float c, float d) {
    if (WS_OUT == kOutBf16) {
        *reinterpret_cast<uint2*>(reinterpret_cast<u16*>(p.out) + at) = make_uint2(bf16x2(a, b), bf16x2(c, d));
    } else if (WS_OUT == kOutF16) {
        *reinterpret_cast<uint2*>(reinterpret_cast<u16*>(p.out) + at) = make_uint2(f16x2(a, b), f16x2(c, d));
    } else {
        const float s = p.out_inverse_scale;
        // PERF: an ordinary store is moved, and ptxas 13.0 then serialises the products of forward_e4m3.cu's three consumers behind the mask (C7511).
        asm volatile("st.global.b32 [%0], %1;" ::"l"(static_cast<u8*>(p.out) + at), "r"(e4m3x4(a * s, b * s, c * s, d * s)) : "memory");
    }
}
