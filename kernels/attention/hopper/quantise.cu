// attention_amax, attention_quantise: f16, bf16 or f32 to e4m3 codes and their scales, as attention wants them.
//
//     scale = max |x - shift| / 448 (1 where that maximum is at most 1e-6)          code = e4m3((x - shift) / scale)
//
// Up to three tensors of a call (q, k and v) go together, one for each blockIdx.z. x (B, H, S, D), any strides with a contiguous last
// dimension and rows on 16 bytes; codes of the same kind; shift (B, H, D) in f32, or null. Scales: one for the tensor, one for each head, or one
// for each 128 tokens of a head. Those of a block need one launch; the others first attention_amax, into words that were set to zero.
// Assumes: D a multiple of 8, at most 256. Grid: (blocks of 128 tokens, B * H, tensors), 256 threads.
// Rounding: to nearest even, of x times 1 / scale: a code next to a tie may be the other one of x / scale.
// Judged on the PTX machine, for sm_89: gate_any_pack.cu, and with attention behind it gate_any_pack_attend.cu.
// Measured: docs/ledger.md. Bound by memory: x is read twice (the second time mostly from the L2), codes written once.
#include "params.cuh"

struct Quantise {
    const void* x;
    const float* shift;
    u8* codes;
    float* scale;     // contiguous: (), (B, H) or (B, H, blocks)
    u32* amax;        // tensor and head: bits of the maxima, same shape as scale
    i64 x_b, x_h, x_s, c_b, c_h, c_s;
    i32 H, heads, S, D;   // heads: B * H
    i32 kind;         // of x: 0 bf16, 1 f16, 2 f32
    i32 per;          // scales per 0 tensor, 1 head, 2 block
};

struct Quantises {
    Quantise of[3];
};

constexpr i32 kBlockTokens = 128, kThreads = 256;

// Hopper places the next kernel early; older cards run one after another.
WS_DEV void begin() {
#if __CUDA_ARCH__ >= 900
    let_next_kernel_start();
    wait_for_earlier_kernels();
#endif
}

// Eight neighbours of a row, shifted.
WS_DEV void load8(const Quantise& t, i64 at, const float* shift, float (&y)[8]) {
    if (t.kind == 2) {
        const float4* src = reinterpret_cast<const float4*>(static_cast<const float*>(t.x) + at);
        const float4 a = src[0], b = src[1];
        y[0] = a.x, y[1] = a.y, y[2] = a.z, y[3] = a.w, y[4] = b.x, y[5] = b.y, y[6] = b.z, y[7] = b.w;
    } else {
        const uint4 a = *reinterpret_cast<const uint4*>(static_cast<const u16*>(t.x) + at);
        const u32 w[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (i32 i = 0; i < 4; ++i) {
            if (t.kind == 0) {
                y[2 * i] = __uint_as_float(w[i] << 16);
                y[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
            } else {
                f32_of_f16x2(w[i], y[2 * i], y[2 * i + 1]);
            }
        }
    }
    if (shift) {
#pragma unroll
        for (i32 i = 0; i < 8; ++i) y[i] -= shift[i];
    }
}

struct Place {
    i32 b, h, first, tokens;
    const float* shift;
};

WS_DEV Place place_of(const Quantise& t) {
    Place w;
    w.b = blockIdx.y / t.H;
    w.h = blockIdx.y % t.H;
    w.first = blockIdx.x * kBlockTokens;
    w.tokens = min(kBlockTokens, t.S - w.first);
    w.shift = t.shift ? t.shift + static_cast<i64>(blockIdx.y) * t.D : nullptr;
    return w;
}

// A thread's pieces of eight, row by row, without a division for each.
struct Steps {
    i32 wide, rows, rest, row, column;
    WS_DEV_MEMBER explicit Steps(i32 D) : wide(D / 8), rows(kThreads / wide), rest(kThreads % wide), row(threadIdx.x / wide), column(threadIdx.x % wide) {}
    WS_DEV_MEMBER void next() {
        row += rows;
        column += rest;
        if (column >= wide) column -= wide, ++row;
    }
};

// The largest magnitude of this CTA's block of tokens, in every thread.
WS_DEV float block_amax(const Quantise& t, const Place& w, float* shared) {
    float top = 0.0f;
    Steps at(t.D);
#pragma unroll 4
    for (; at.row < w.tokens; at.next()) {
        const i32 row = at.row, d = at.column * 8;
        float y[8];
        load8(t, w.b * t.x_b + w.h * t.x_h + (w.first + row) * t.x_s + d, w.shift ? w.shift + d : nullptr, y);
#pragma unroll
        for (i32 e = 0; e < 8; ++e) top = fmaxf(top, fabsf(y[e]));
    }
#pragma unroll
    for (i32 lane = 16; lane > 0; lane /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, lane));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = top;
    __syncthreads();
#pragma unroll
    for (i32 i = 0; i < kThreads / 32; ++i) top = fmaxf(top, shared[i]);
    return top;
}

extern "C" __global__ void __launch_bounds__(kThreads) attention_amax(const __grid_constant__ Quantises all) {
    __shared__ float shared[kThreads / 32];
    begin();
    const Quantise& t = all.of[blockIdx.z];
    const Place w = place_of(t);
    if (w.tokens <= 0 || static_cast<i32>(blockIdx.y) >= t.heads) return;
    const float top = block_amax(t, w, shared);
    // Bits of floats that are not negative are in the floats' order.
    if (threadIdx.x == 0) atomicMax(t.amax + (t.per == 1 ? blockIdx.y : 0), __float_as_uint(top));
}

extern "C" __global__ void __launch_bounds__(kThreads) attention_quantise(const __grid_constant__ Quantises all) {
    __shared__ float shared[kThreads / 32];
    begin();
    const Quantise& t = all.of[blockIdx.z];
    const Place w = place_of(t);
    if (w.tokens <= 0 || static_cast<i32>(blockIdx.y) >= t.heads) return;
    const i32 blocks = (t.S + kBlockTokens - 1) / kBlockTokens;
    const i64 at = t.per == 2 ? static_cast<i64>(blockIdx.y) * blocks + blockIdx.x : t.per == 1 ? blockIdx.y : 0;
    const float top = t.per == 2 ? block_amax(t, w, shared) : __uint_as_float(t.amax[at]);
    const float scale = top > 1e-6f ? __fdiv_rn(top, 448.0f) : 1.0f;
    const float inverse = __fdiv_rn(1.0f, scale);
    const bool first = t.per == 2 || (blockIdx.x == 0 && (t.per == 1 || blockIdx.y == 0));
    if (first && threadIdx.x == 0) t.scale[at] = scale;
    Steps to(t.D);
#pragma unroll 4
    for (; to.row < w.tokens; to.next()) {
        const i32 row = to.row, d = to.column * 8;
        float y[8];
        load8(t, w.b * t.x_b + w.h * t.x_h + (w.first + row) * t.x_s + d, w.shift ? w.shift + d : nullptr, y);
#pragma unroll
        for (i32 e = 0; e < 8; ++e) y[e] *= inverse;
        *reinterpret_cast<uint2*>(t.codes + w.b * t.c_b + w.h * t.c_h + (w.first + row) * t.c_s + d) =
            make_uint2(e4m3x4(y[0], y[1], y[2], y[3]), e4m3x4(y[4], y[5], y[6], y[7]));
    }
}
