// attention_transpose: V's e4m3 codes from rows of keys to rows of head dimension, once for a call, for kernels that take V^T in whole tiles (WS_PACKED).
//
// v (B, H, S, D), any strides with a contiguous last dimension and rows on 16 bytes; v_t (B, H, D, 128 * ceil(S / 128)) as transpose.cuh lays a tile of 128 keys (and pack.cu),
// zero behind S. A kernel that transposes in shared memory does so for each row tile again, which is a third of what a tile of D 256 moves there.
// The next kernel begins to be placed when all earlier ones have ended, and waits for this one only where it loads V^T.
// Assumes: WS_D 64, 128 or 256. Grid: (blocks of 128 keys, B * H), 2 * D threads.
// Judged on the PTX machine: gate_any_forward_e4m3_transposed_plain.cu. Bound by memory: 33.5 MB of 4x8x4096x256 after other data 24.4 us, where a copy takes 22.8 (H200, 2026-11-23).
// Losers: 64 keys to a CTA 23.4 to 23.6, 32 keys 25.9; V marked to leave the L2 first, the same.
#include "params.cuh"

static_assert(WS_D == 64 || WS_D == 128 || WS_D == 256, "head dimensions of attention");

struct Values {
    const u8* v;
    u8* v_t;
    i64 v_b, v_h, v_s;
    i32 H, S;
};

namespace transposing {
constexpr i32 kKeys = 128, kThreads = 2 * WS_D, kChunks = WS_D / 16, kRows = kThreads / kChunks, kPieces = kKeys / kRows;
constexpr i32 kWords = WS_D / 4;   // of a key, in words; each 16 keys end with four more, so that no bank conflicts arise
}

extern "C" __global__ void __launch_bounds__(transposing::kThreads, 2048 / transposing::kThreads) attention_transpose(const __grid_constant__ Values t) {
    using namespace transposing;
    __shared__ __align__(16) u32 tile[kKeys * kWords + kKeys / 16 * 4];
    const i32 row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks, b = blockIdx.y / t.H, h = blockIdx.y % t.H, first = blockIdx.x * kKeys;
    wait_for_earlier_kernels();
    let_next_kernel_start();   // and not before: the next kernel's queries and keys may be theirs
    const u8* const from = t.v + b * t.v_b + h * t.v_h + static_cast<i64>(first + row) * t.v_s + chunk * 16;
    uint4 x[kPieces];
#pragma unroll
    for (i32 i = 0; i < kPieces; ++i) {   // volatile, so that all are asked for before the first is waited for
        uint4& y = x[i] = make_uint4(0, 0, 0, 0);
        if (first + row + i * kRows < t.S)
            asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w) : "l"(from + i * kRows * t.v_s));
    }
#pragma unroll
    for (i32 i = 0; i < kPieces; ++i) {
        const i32 key = row + i * kRows;
        *reinterpret_cast<uint4*>(tile + key * kWords + key / 16 * 4 + chunk * 4) = x[i];
    }
    __syncthreads();

    // 16 keys by 4 dimensions: a warp writes 128 neighbouring bytes of four rows at a time.
    const i32 keys16 = threadIdx.x % 8, word = threadIdx.x / 8;
    const u32* const mine = tile + keys16 * (16 * kWords + 4) + word;
    uint4 y[4];
#pragma unroll
    for (i32 j = 0; j < 4; ++j) {
        const u32 a = mine[2 * j * kWords], c = mine[(2 * j + 1) * kWords], a8 = mine[(2 * j + 8) * kWords], c8 = mine[(2 * j + 9) * kWords];
        const u32 low = __byte_perm(a, c, 0x5140), high = __byte_perm(a, c, 0x7362), low8 = __byte_perm(a8, c8, 0x5140), high8 = __byte_perm(a8, c8, 0x7362);
        (&y[0].x)[j] = __byte_perm(low, low8, 0x5410);
        (&y[1].x)[j] = __byte_perm(low, low8, 0x7632);
        (&y[2].x)[j] = __byte_perm(high, high8, 0x5410);
        (&y[3].x)[j] = __byte_perm(high, high8, 0x7632);
    }
    const i64 pitch = static_cast<i64>(gridDim.x) * kKeys;
    const i32 to_row = word / 4 * 16 + word % 4 * 2;   // of dimension 4 * word; the next one is 8 rows below, then the row after this
    u8* const to = t.v_t + (static_cast<i64>(blockIdx.y) * WS_D + to_row) * pitch + first + keys16 * 16;
    *reinterpret_cast<uint4*>(to) = y[0];
    *reinterpret_cast<uint4*>(to + 8 * pitch) = y[1];
    *reinterpret_cast<uint4*>(to + pitch) = y[2];
    *reinterpret_cast<uint4*>(to + 9 * pitch) = y[3];
}
