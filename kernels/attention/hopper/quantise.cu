// attention_amax, attention_quantise, attention_quantise_head: f16, bf16 or f32 to e4m3 codes and their scales, as attention wants them.
//
//     scale = max |x - shift| / 448 (1 where that maximum is at most 1e-6)          code = e4m3((x - shift) / scale)
//
// Up to three tensors of a call (q, k and v) go together, one for each blockIdx.z. x (B, H, S, D), any strides with a contiguous last
// dimension and rows on 16 bytes; codes of the same kind; shift (B, H, D) in f32, or null. Scales: one for the tensor, one for each head, or one
// for each 128 tokens of a head. Those of a block need one launch; the others first attention_amax, into words that are zero between launches. Scales of
// heads of f16 or bf16 need one launch of attention_quantise_head instead: a head's CTAs keep their tokens in registers until all of its maxima
// are there, so x is read once. CTAs take their places in order, so it ends if a head's CTAs fit the device together.
// Assumes: D a multiple of 8, at most 256. Grid: (blocks of 128 tokens, B * H, tensors), 256 threads.
// Rounding: to nearest even, of the quotient.
// For any card from Ampere on. Judged on the PTX machine, for sm_89, sm_80 and sm_120: gate_any_pack.cu, and with attention behind it gate_any_pack_attend.cu.
// Measured: docs/ledger.md. Bound by memory: x is read once or twice (the second time mostly from the L2), codes written once.
#include "block_max.cuh"
#include "e4m3.cuh"
#include "params.cuh"
#include "quotient.cuh"

struct Quantise {
    const void* x;
    const float* shift;
    u8* codes;
    float* scale;     // contiguous: (), (B, H) or (B, H, blocks)
    u32* amax;        // tensor and head: bits of the maxima, same shape as scale, then as many counts: zero between launches
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

// Eight neighbours of a row in bf16 or f16, shifted.
WS_DEV void widen8(const Quantise& t, uint4 a, const float* shift, float (&y)[8]) {
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
    if (shift) {
#pragma unroll
        for (i32 i = 0; i < 8; ++i) y[i] -= shift[i];
    }
}

WS_DEV uint4 load8_raw(const Quantise& t, i64 at) { return *reinterpret_cast<const uint4*>(static_cast<const u16*>(t.x) + at); }

// The same from memory, of any kind.
WS_DEV void load8(const Quantise& t, i64 at, const float* shift, float (&y)[8]) {
    if (t.kind != 2) {
        widen8(t, load8_raw(t, at), shift, y);
        return;
    }
    const float4* src = reinterpret_cast<const float4*>(static_cast<const float*>(t.x) + at);
    const float4 a = src[0], b = src[1];
    y[0] = a.x, y[1] = a.y, y[2] = a.z, y[3] = a.w, y[4] = b.x, y[5] = b.y, y[6] = b.z, y[7] = b.w;
    if (shift) {
#pragma unroll
        for (i32 i = 0; i < 8; ++i) y[i] -= shift[i];
    }
}

WS_DEV void store8(const Quantise& t, i64 at, float (&y)[8], float scale, float inverse) {
#pragma unroll
    for (i32 e = 0; e < 8; ++e) y[e] = divided(y[e], scale, inverse);
    *reinterpret_cast<uint2*>(t.codes + at) = make_uint2(codes_of_four(y[0], y[1], y[2], y[3]), codes_of_four(y[4], y[5], y[6], y[7]));
}

// Of a tensor or head: the CTAs that have what they want of its maximum. The last of `ctas` leaves both words as it found them.
WS_DEV u32* count_of(const Quantise& t, u32 at) { return t.amax + (t.per == 1 ? t.heads : 1) + at; }
WS_DEV void leave_zeros(const Quantise& t, u32 at, u32 ctas) {
    u32* const count = count_of(t, at);
    __threadfence();   // the maximum was read before
    if (atomicAdd(count, 1u) == ctas - 1) {
        __threadfence();   // as all others did
        t.amax[at] = 0, *count = 0;
    }
}

WS_DEV float scale_of(float top) { return top > 1e-6f ? __fdiv_rn(top, 448.0f) : 1.0f; }

WS_DEV float largest8(float top, const float (&y)[8]) {
#pragma unroll
    for (i32 e = 0; e < 8; ++e) top = fmaxf(top, fabsf(y[e]));
    return top;
}

struct Place {
    i32 b, h, first, tokens;
    const float* shift;
};

WS_DEV Place place_of(const Quantise& t, u32 block, u32 head) {
    Place w;
    w.b = head / t.H;
    w.h = head % t.H;
    w.first = block * kBlockTokens;
    w.tokens = min(kBlockTokens, t.S - w.first);
    w.shift = t.shift ? t.shift + static_cast<i64>(head) * t.D : nullptr;
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
        top = largest8(top, y);
    }
    return block_max<kThreads>(top, shared);
}

extern "C" __global__ void __launch_bounds__(kThreads) attention_amax(const __grid_constant__ Quantises all) {
    __shared__ float shared[kThreads / 32];
    begin();
    const Quantise& t = all.of[blockIdx.z];
    const Place w = place_of(t, blockIdx.x, blockIdx.y);
    if (w.tokens <= 0 || static_cast<i32>(blockIdx.y) >= t.heads) return;
    const float top = block_amax(t, w, shared);
    // Bits of floats that are not negative are in the floats' order.
    if (threadIdx.x == 0) atomicMax(t.amax + (t.per == 1 ? blockIdx.y : 0), __float_as_uint(top));
}

extern "C" __global__ void __launch_bounds__(kThreads) attention_quantise(const __grid_constant__ Quantises all) {
    __shared__ float shared[kThreads / 32];
    __shared__ float of_all;
    begin();
    const Quantise& t = all.of[blockIdx.z];
    const Place w = place_of(t, blockIdx.x, blockIdx.y);
    if (w.tokens <= 0 || static_cast<i32>(blockIdx.y) >= t.heads) return;
    const i32 blocks = (t.S + kBlockTokens - 1) / kBlockTokens;
    const i64 at = t.per == 2 ? static_cast<i64>(blockIdx.y) * blocks + blockIdx.x : t.per == 1 ? blockIdx.y : 0;
    if (t.per != 2) {
        if (threadIdx.x == 0) {
            of_all = __uint_as_float(t.amax[at]);
            leave_zeros(t, static_cast<u32>(at), blocks * (t.per == 1 ? 1 : t.heads));
        }
        __syncthreads();
    }
    const float top = t.per == 2 ? block_amax(t, w, shared) : of_all;
    const float scale = scale_of(top);
    const float inverse = __fdiv_rn(1.0f, scale);
    const bool first = t.per == 2 || (blockIdx.x == 0 && (t.per == 1 || blockIdx.y == 0));
    if (first && threadIdx.x == 0) t.scale[at] = scale;
    Steps to(t.D);
#pragma unroll 4
    for (; to.row < w.tokens; to.next()) {
        const i32 row = to.row, d = to.column * 8;
        float y[8];
        load8(t, w.b * t.x_b + w.h * t.x_h + (w.first + row) * t.x_s + d, w.shift ? w.shift + d : nullptr, y);
        store8(t, w.b * t.c_b + w.h * t.c_h + (w.first + row) * t.c_s + d, y, scale, inverse);
    }
}

// One block of a head whose scale is that of all its blocks. kPieces: of eight elements, a thread's at most. kShifted is known to the compiler:
// with a pointer that may be null in every piece ptxas 13.0.88 made code for 16 pieces that read address 0.
template <i32 kPieces, bool kShifted>
WS_DEV void quantise_block_of_head(const Quantise& t, const Place& w, u32 head, u32 block) {
    __shared__ float shared[kThreads / 32];
    __shared__ float of_head;
    const i64 from = w.b * t.x_b + w.h * t.x_h + w.first * t.x_s, to = w.b * t.c_b + w.h * t.c_h + w.first * t.c_s;
    uint4 raw[kPieces];
    Steps at(t.D);
#pragma unroll
    for (i32 i = 0; i < kPieces; ++i, at.next()) raw[i] = at.row < w.tokens ? load8_raw(t, from + at.row * t.x_s + at.column * 8) : make_uint4(0, 0, 0, 0);
    float top = 0.0f;
    at = Steps(t.D);
#pragma unroll
    for (i32 i = 0; i < kPieces; ++i, at.next()) {
        float y[8];
        widen8(t, raw[i], kShifted ? w.shift + at.column * 8 : nullptr, y);
        if (at.row < w.tokens) top = largest8(top, y);
    }
    top = block_max<kThreads>(top, shared);
    if (threadIdx.x == 0) {
        atomicMax(t.amax + head, __float_as_uint(top));
        __threadfence();
        u32* const count = count_of(t, head);
        atomicAdd(count, 1u);
        const u32 blocks = (t.S + kBlockTokens - 1) / kBlockTokens;
        while (*static_cast<volatile u32*>(count) < blocks) __nanosleep(20);
        __threadfence();
        of_head = __uint_as_float(*static_cast<volatile u32*>(t.amax + head));
        leave_zeros(t, head, 2 * blocks);   // each comes twice
    }
    __syncthreads();
    const float scale = scale_of(of_head), inverse = __fdiv_rn(1.0f, scale);
    if (block == 0 && threadIdx.x == 0) t.scale[head] = scale;
    at = Steps(t.D);
#pragma unroll
    for (i32 i = 0; i < kPieces; ++i, at.next()) {
        if (at.row >= w.tokens) break;
        float y[8];
        widen8(t, raw[i], kShifted ? w.shift + at.column * 8 : nullptr, y);
        store8(t, to + at.row * t.c_s + at.column * 8, y, scale, inverse);
    }
}

// One scale for each head, x read once. `ticket`: the places taken, zero between launches.
template <i32 kPieces>
WS_DEV void quantise_head(const Quantises& all, u32* ticket) {
    __shared__ u32 place;
    begin();
    // Places are given in the order in which CTAs start, whatever their indices: who waits for a head's other CTAs waits for none that has not
    // its turn before any later head.
    if (threadIdx.x == 0) {
        place = atomicAdd(ticket, 1u);
        if (place == gridDim.x * gridDim.y * gridDim.z - 1) atomicExch(ticket, 0u);   // strong, as the additions before it, which nothing else orders
    }
    __syncthreads();
    const u32 block = place % gridDim.x, head = place / gridDim.x % gridDim.y, tensor = place / gridDim.x / gridDim.y;
    const Quantise& t = all.of[tensor];
    const Place w = place_of(t, block, head);
    if (w.tokens <= 0 || static_cast<i32>(head) >= t.heads) return;
    if (w.shift) {
        quantise_block_of_head<kPieces, true>(t, w, head, block);
    } else {
        quantise_block_of_head<kPieces, false>(t, w, head, block);
    }
}

#define WS_QUANTISE_HEAD(pieces)                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(kThreads) attention_quantise_head_##pieces(const __grid_constant__ Quantises all, u32* ticket) { \
        quantise_head<pieces>(all, ticket);                                                                                                       \
    }
WS_QUANTISE_HEAD(4)    // head dimensions up to 64
WS_QUANTISE_HEAD(8)    // 128
WS_QUANTISE_HEAD(16)   // 256
