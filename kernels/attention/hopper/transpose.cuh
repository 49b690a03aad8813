// V from rows of keys to rows of head dimension, in shared memory: wgmma's FP8 B operand must lie K-major.
//
// A unit is 16 keys by 32 dimensions: one ldmatrix.trans of four 8x8 blocks of 16-bit pairs, four byte permutations, one stmatrix.
// Out comes row n of V^T with 16 keys in a 16-byte chunk, in the order of softmax.cuh. Row n of 16 c + r holds dimension
// 16 c + 2 r (r < 8) or 16 c + 2 (r - 8) + 1: so no bank conflicts arise, and a thread of the output accumulator holds four
// neighbouring dimensions, 16 c + 4 (lane % 4) + {0, 2, 1, 3} in its columns of blocks 2 c and 2 c + 1.
// The idea of ldmatrix.trans with permutations is FlashAttention-3's; the layout is ours.
#pragma once
#include "wgmma.cuh"

// One warp transposes the units unit, unit + step, ... of a tile. kKeys keys; V's rows have pitch min(kDim, 128), a second half of the
// dimensions following the first; V^T has kDim rows of pitch kKeys (64 or 128).
template <int kDim, int kKeys>
WS_DEV void transpose_tile(u32 v, u32 vt, u32 unit, u32 step, u32 lane) {
    constexpr u32 kPitch = kDim < 128 ? kDim : 128;
    constexpr u32 kAcross = kDim / 32;
    constexpr u32 kUnits = (kKeys / 16) * kAcross;
#pragma unroll 2
    for (; unit < kUnits; unit += step) {
        const u32 key16 = unit / kAcross, dim32 = unit % kAcross;
        // Lanes 0-7 address block 0 (keys 0-7, first 16 dimensions), 8-15 block 1 (keys 8-15), then the same for the next 16 dimensions.
        const u32 key = key16 * 16 + (lane & 15), chunk = dim32 * 2 + (lane >> 4);
        const u32 half = kDim > 128 ? (chunk >> 3) * (kKeys * 128) : 0;
        u32 r[4];
        ldmatrix_x4_trans(r, v + half + swizzled<kPitch>(key, kDim > 128 ? (chunk & 7) : chunk));
        const u32 row = dim32 * 32 + lane;   // lanes 0-7: even dimensions of the first 16; 8-15: odd; 16-31: the next 16
        stmatrix_x4(vt + swizzled<kKeys>(row, key16), __byte_perm(r[0], r[1], 0x6420), __byte_perm(r[0], r[1], 0x7531),
                    __byte_perm(r[2], r[3], 0x6420), __byte_perm(r[2], r[3], 0x7531));
    }
}
