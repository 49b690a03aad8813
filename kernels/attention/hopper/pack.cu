// attention_pack: queries, keys and values in bf16, f16 or f32 to e4m3 codes, in one launch and one reading.
//
//     scale = max |x - mean| / 448 of 128 tokens of a head (1 where that maximum is at most 1e-6)        code = e4m3((x - mean) / scale)
//
// even: the scale is even / 16 max |x - mean| / 448 of 16 of those tokens, one for all of its blocks, but where a block has larger values than that fits, or at most
// 1/256 as large ones: attention over what is packed takes two tiles of keys at a time where scales are one (forward_e4m3.cu: a fifth less time). e4m3 is floating point: of its 15 octaves 8 times unused cost three.
//
// mean is each channel's over n = min(S, 64) tokens of the head: all of them, or floor((i + 1/2) S / 64) for i < 64; or 0, unless (n + 9) mean^2 is more than 9 times their mean square: within three of its standard errors it is those tokens' chance.
// Any constant would do exactly (the softmax does not see what all keys have in common, and what is taken out of v is added to the output), so it need not cost a second reading. Of v none is best where there is no mean: kernels that give a log-sum-exp normalise
// by sums of weights before their rounding, and up to 2% of what was taken out is lost in peaked rows.
// Up to three tensors of a call go together, one for each blockIdx.z. x (B, H, S, D), any strides with a contiguous last dimension and rows on 16
// bytes; codes of the same kind, or null; scale (B, H, blocks); mean (B, H, D), written, or null: nothing is taken out; transposed
// (B, H, D, 128 * blocks), or null: the codes again as transpose.cuh lays a tile of 128 keys, zero behind S. Row n of 16 c + r holds
// dimension 16 c + 2 r (r < 8) or 16 c + 2 (r - 8) + 1; bytes 4 j + {0, 1, 2, 3} of 16 keys are keys 2 j + {0, 1, 8, 9}.
// Assumes: D 64, 128 or 256 (WS_D), one element type (WS_KIND: 0 bf16, 1 f16, 2 f32). Grid: (blocks of 128 tokens, B * H, tensors), 2 * D threads.
// A thread holds 8 values of each of 8 rows in registers, all loaded at once; every CTA of a head makes the mean itself, from the L2, meanwhile.
// For any card from Ampere on. Judged on the PTX machine, for sm_89, sm_80 and sm_120: gate_any_pack_keys.cu and gate_any_pack_all.cu. Bound by memory; measured: docs/ledger.md.
#include "e4m3.cuh"
#include "params.cuh"
#include "quotient.cuh"

static_assert(WS_D == 64 || WS_D == 128 || WS_D == 256, "head dimensions of attention");
static_assert(WS_KIND >= 0 && WS_KIND <= 2, "0 bf16, 1 f16, 2 f32");

struct Pack {
    const void* x;
    u8* codes;
    u8* transposed;
    float* scale;
    float* mean;
    i64 x_b, x_h, c_b, c_h;     // in elements
    i32 x_s, c_s, H, heads, S, even;   // heads: B * H; even: in sixteenths, or 0
};

struct Packs {
    Pack of[3];
};

constexpr i32 kTokens = 128, kThreads = 2 * WS_D, kAcross = WS_D / 8, kRows = kThreads / kAcross, kPieces = kTokens / kRows;
static_assert(kRows == 16, "the tile is padded after each 16 keys");
constexpr i32 kSamples = 64, kLoads = WS_KIND == 2 ? 2 : 1, kSize = WS_KIND == 2 ? 4 : 2;
constexpr i32 kThreadsOfSM = WS_KIND == 2 ? 512 : 1024;   // 128 KB on their way to an SM at a time

// Eight neighbours of a row, as they lie in memory.
struct Piece {
    uint4 part[kLoads];
    WS_DEV_MEMBER u32& word(i32 i) { return (&part[i / 4].x)[i % 4]; }
    WS_DEV_MEMBER u32 word(i32 i) const { return (&part[i / 4].x)[i % 4]; }
};

// Not kept in the L1. Volatile, so that all are asked for before the first is waited for.
WS_DEV void load(Piece& to, const u8* from) {
#pragma unroll
    for (i32 i = 0; i < kLoads; ++i) {
        uint4& y = to.part[i];
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w) : "l"(from + 16 * i));
    }
}

WS_DEV void widen(const Piece& from, float (&y)[8]) {
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
        const u32 w = from.word(i);
        if (WS_KIND == 0) {
            y[2 * i] = __uint_as_float(w << 16);
            y[2 * i + 1] = __uint_as_float(w & 0xFFFF0000u);
        } else if (WS_KIND == 1) {
            f32_of_f16x2(w, y[2 * i], y[2 * i + 1]);
        } else {
            y[i] = __uint_as_float(w);
            y[4 + i] = __uint_as_float(from.word(4 * (kLoads - 1) + i));
        }
    }
}

// A thread's rows of a block: row, row + kRows and so on. Behind the last token that one again, which changes no maximum.
WS_DEV void load_block(Piece (&x)[kPieces], const Pack& t, const u8* mine, i32 block, i32 row) {
    const i32 last = t.S - 1 - block * kTokens;
    const i64 pitch = static_cast<i64>(t.x_s) * kSize;
    mine += block * kTokens * pitch;
#pragma unroll
    for (i32 i = 0; i < kPieces; ++i) load(x[i], mine + min(row + i * kRows, last) * pitch);
}

// The largest and the smallest of each channel: of pairs, where they come in pairs.
#define WS_EXTREME(name, op, of_floats)                                                                  \
    WS_DEV u32 name(u32 a, u32 b) {                                                                      \
        u32 y;                                                                                           \
        if (WS_KIND == 0) asm(op ".bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));                      \
        if (WS_KIND == 1) asm(op ".f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));                       \
        if (WS_KIND == 2) y = __float_as_uint(of_floats(__uint_as_float(a), __uint_as_float(b)));        \
        return y;                                                                                        \
    }
WS_EXTREME(larger, "max", fmaxf)
WS_EXTREME(smaller, "min", fminf)
#undef WS_EXTREME

// Of some pieces, each channel's largest and smallest value.
template <i32 N>
WS_DEV void find_ends(const Piece (&x)[N], Piece& high, Piece& low) {
    high = x[0], low = x[0];
#pragma unroll
    for (i32 i = 1; i < N; ++i) {
#pragma unroll
        for (i32 w = 0; w < 4 * kLoads; ++w) {
            high.word(w) = larger(high.word(w), x[i].word(w));
            low.word(w) = smaller(low.word(w), x[i].word(w));
        }
    }
}

// max |x - mean| of values: rounding keeps order, so that of each channel's ends is enough.
WS_DEV float farthest(const Piece& high, const Piece& low, const float (&mean)[8]) {
    float a[8], b[8], top = 0.0f;
    widen(high, a);
    widen(low, b);
#pragma unroll
    for (i32 e = 0; e < 8; ++e) top = fmaxf(top, fmaxf(fabsf(a[e] - mean[e]), fabsf(b[e] - mean[e])));
    return top;
}

// The token that the i-th sample is.
WS_DEV i32 sample(i32 i, i32 S) { return S <= kSamples ? i : (2 * i + 1) * (S / (2 * kSamples)) + (2 * i + 1) * (S % (2 * kSamples)) / (2 * kSamples); }

// A thread's j-th sample of four. Its first: of all rows 0 to 3, 20 to 23, 40 to 43 and 60 to 63. PERF: in an order where each row has four neighbours, or each fourth, all of it takes 3 to 7% longer (H100, 2026-11-27).
WS_DEV i32 sample_of(i32 row, i32 j) { return (row % 4 * 4 | row / 4) + (j + row) % 4 * kRows; }

// All channels' means, added up in one order by every CTA of a head. some: the thread's first sample. partial: kRows rows of WS_D sums, then of squares; means: WS_D.
WS_DEV void find_means(const Pack& t, const u8* mine, i32 row, i32 column, float* partial, float* means, Piece& some) {
    constexpr i32 kPerRow = kSamples / kRows, kSquares = kRows * WS_D;
    float sum[8] = {}, square[8] = {};
    Piece x[kPerRow];
#pragma unroll
    for (i32 j = 0; j < kPerRow; ++j) load(x[j], mine + static_cast<i64>(sample(min(sample_of(row, j), t.S - 1), t.S)) * t.x_s * kSize);
#pragma unroll
    for (i32 j = 0; j < kPerRow; ++j) {
        float y[8];
        widen(x[j], y);
#pragma unroll
        for (i32 e = 0; e < 8; ++e) {
            const float of = sample_of(row, j) < t.S ? y[e] : 0.0f;
            sum[e] += of;
            square[e] = fmaf(of, of, square[e]);
        }
    }
    some = x[0];
    float4* const to = reinterpret_cast<float4*>(partial + row * WS_D + column * 8);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    to[kSquares / 4] = make_float4(square[0], square[1], square[2], square[3]);
    to[kSquares / 4 + 1] = make_float4(square[4], square[5], square[6], square[7]);
    __syncthreads();
    if (threadIdx.x < WS_D) {
        float all = 0.0f, squares = 0.0f;
#pragma unroll
        for (i32 i = 0; i < kRows; ++i) all += partial[i * WS_D + threadIdx.x], squares += partial[kSquares + i * WS_D + threadIdx.x];
        const float n = static_cast<float>(min(t.S, kSamples));
        all = t.mean && (n + 9.0f) * all * all > 9.0f * n * squares ? __fdiv_rn(all, n) : 0.0f;
        means[threadIdx.x] = all;
        if (t.mean && blockIdx.x == 0) t.mean[static_cast<i64>(blockIdx.y) * WS_D + threadIdx.x] = all;
    }
}

// The largest of a value of every thread, neither negative nor no number: in two steps, a barrier between them. shared: a float for each warp.
WS_DEV void leave_max(float top, float* shared) {
    u32 y;
    asm volatile("redux.sync.max.u32 %0, %1, 0xFFFFFFFF;" : "=r"(y) : "r"(__float_as_uint(top)) : "memory");
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = __uint_as_float(y);
}

WS_DEV float max_left(const float* shared) {
    float top = shared[0];
#pragma unroll
    for (i32 i = 1; i < kThreads / 32; ++i) top = fmaxf(top, shared[i]);
    return top;
}

// A block's scale by its largest value and that of some of the head's tokens: the head's, by which these take 16 / even of the codes' range, where that fits the block; else its own.
WS_DEV float even_scale(i32 even, float top, float of_samples) {
    const float of_head = of_samples > 1e-6f ? __fdiv_rn(static_cast<float>(even) * of_samples, 16.0f * 448.0f) : 1.0f;
    if (top <= 1e-6f || (top <= 448.0f * of_head && top >= 448.0f / 256.0f * of_head)) return of_head;
    return __fdiv_rn(top, 448.0f);
}

// Codes of 16 keys by 4 dimensions, from the tile to V^T: a warp writes 128 neighbouring bytes of four rows at a time.
WS_DEV void transpose(const Pack& t, const u32* tile, i32 block, i32 blocks) {
    const i32 keys16 = threadIdx.x % 8, word = threadIdx.x / 8;
    const u32* const from = tile + keys16 * (16 * (WS_D / 4) + 4) + word;   // 16 bytes more for each 16 keys: no bank conflicts
    uint4 row[4];
#pragma unroll
    for (i32 j = 0; j < 4; ++j) {
        const u32 a = from[2 * j * (WS_D / 4)], b = from[(2 * j + 1) * (WS_D / 4)], c = from[(2 * j + 8) * (WS_D / 4)], d = from[(2 * j + 9) * (WS_D / 4)];
        const u32 low = __byte_perm(a, b, 0x5140), high = __byte_perm(a, b, 0x7362), low8 = __byte_perm(c, d, 0x5140), high8 = __byte_perm(c, d, 0x7362);
        (&row[0].x)[j] = __byte_perm(low, low8, 0x5410);
        (&row[1].x)[j] = __byte_perm(low, low8, 0x7632);
        (&row[2].x)[j] = __byte_perm(high, high8, 0x5410);
        (&row[3].x)[j] = __byte_perm(high, high8, 0x7632);
    }
    const i64 pitch = static_cast<i64>(blocks) * kTokens;
    const i32 first = word / 4 * 16 + word % 4 * 2;   // of dimension 4 * word; the next one is 8 rows below, then the row after this
    u8* const to = t.transposed + (static_cast<i64>(blockIdx.y) * WS_D + first) * pitch + block * kTokens + keys16 * 16;
    *reinterpret_cast<uint4*>(to) = row[0];
    *reinterpret_cast<uint4*>(to + 8 * pitch) = row[1];
    *reinterpret_cast<uint4*>(to + pitch) = row[2];
    *reinterpret_cast<uint4*>(to + 9 * pitch) = row[3];
}

extern "C" __global__ void __launch_bounds__(kThreads, kThreadsOfSM / kThreads) attention_pack(const __grid_constant__ Packs all) {
    __shared__ __align__(16) u8 tile[kTokens * WS_D + 8 * 16];   // codes by keys; before, partial sums of the mean
    __shared__ __align__(16) float means[WS_D];
    __shared__ float tops[2 * kThreads / 32];
    static_assert(sizeof(tile) >= 2 * kRows * WS_D * sizeof(float), "partial sums lie in the tile");
    const Pack& t = all.of[blockIdx.z];
    const i32 block = blockIdx.x, blocks = (t.S + kTokens - 1) / kTokens, tokens = t.S - block * kTokens;
    if (static_cast<i32>(blockIdx.y) >= t.heads || tokens <= 0) return;
    const i32 row = threadIdx.x / kAcross, column = threadIdx.x % kAcross, b = blockIdx.y / t.H, h = blockIdx.y % t.H;
    const u8* const mine = static_cast<const u8*>(t.x) + (b * t.x_b + h * t.x_h + column * 8) * kSize;
#if __CUDA_ARCH__ >= 900   // Hopper places the next kernel early; older cards run one after another
    let_next_kernel_start();
    wait_for_earlier_kernels();
#endif
    Piece x[kPieces];
    load_block(x, t, mine, block, row);
    Piece some{};   // one of its samples
    if (t.mean || t.even) {
        find_means(t, mine, row, column, reinterpret_cast<float*>(tile), means, some);
    } else if (threadIdx.x < WS_D) {
        means[threadIdx.x] = 0.0f;
    }
    __syncthreads();   // also: partial sums are no longer read
    float mean[8];
#pragma unroll
    for (i32 e = 0; e < 8; ++e) mean[e] = means[column * 8 + e];
    leave_max(farthest(some, some, mean), tops);
    Piece high, low;
    find_ends(x, high, low);
    leave_max(farthest(high, low, mean), tops + kThreads / 32);
    __syncthreads();
    const float of_samples = max_left(tops), top = max_left(tops + kThreads / 32);
    const float scale = t.even ? even_scale(t.even, top, of_samples) : top > 1e-6f ? __fdiv_rn(top, 448.0f) : 1.0f;
    const float inverse = __fdiv_rn(1.0f, scale);
    if (threadIdx.x == 0) t.scale[static_cast<i64>(blockIdx.y) * blocks + block] = scale;
    const i32 stored = t.codes ? tokens : 0;
    u8* const into = tile + row * WS_D + column * 8;
    u8* const to = t.codes + b * t.c_b + h * t.c_h + column * 8 + static_cast<i64>(block * kTokens + row) * t.c_s;
#pragma unroll
    for (i32 i = 0; i < kPieces; ++i) {
        const i32 at = row + i * kRows;
        float y[8];
        widen(x[i], y);
#pragma unroll
        for (i32 e = 0; e < 8; ++e) y[e] = divided(y[e] - mean[e], scale, inverse);
        uint2 made = make_uint2(codes_of_four(y[0], y[1], y[2], y[3]), codes_of_four(y[4], y[5], y[6], y[7]));
        if (at < stored) *reinterpret_cast<uint2*>(to + i * kRows * static_cast<i64>(t.c_s)) = made;
        if (at >= tokens) made = make_uint2(0u, 0u);
        if (t.transposed) *reinterpret_cast<uint2*>(into + i * (kRows * WS_D + 16)) = made;
    }
    if (t.transposed) {
        __syncthreads();
        transpose(t, reinterpret_cast<const u32*>(tile), block, blocks);
    }
}
