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

// The same by kWarps warps that do nothing else: warp `part` takes a share of the keys, and every address is a register plus a constant.
template <int kDim, int kKeys, int kWarps>
WS_DEV void transpose_share(u32 v, u32 vt, u32 part, u32 lane) {
    constexpr u32 kPitch = kDim < 128 ? kDim : 128, kAcross = kDim / 32, kDeep = kKeys / 16 / kWarps;
    static_assert(kKeys / 16 % kWarps == 0, "warps share the keys evenly");
    asm volatile("" : "+r"(lane));   // PERF: addresses are made anew for each tile: kept through the caller's loop they would be spilled
    const u32 mix = kPitch == 128 ? lane & 7 : lane >> 1 & 3, mix_t = kKeys == 128 ? lane & 7 : lane >> 1 & 3;
    const u32 from = v + (part * kDeep * 16 + (lane & 15)) * kPitch, column = ((lane >> 4) ^ mix) << 4;
    const u32 to = vt + lane * kKeys;
#pragma unroll
    for (u32 k = 0; k < kDeep; ++k) {
        const u32 row = to + (((part * kDeep + k) ^ mix_t) << 4);
#pragma unroll
        for (u32 d = 0; d < kAcross; d += 2) {
            u32 r[2][4];
#pragma unroll
            for (u32 i = 0; i < 2; ++i) ldmatrix_x4_trans(r[i], from + (column ^ (((d + i) & 3) << 5)) + ((d + i) / 4) * (kKeys * 128) + k * 16 * kPitch);
#pragma unroll
            for (u32 i = 0; i < 2; ++i)
                stmatrix_x4(row + (d + i) * 32 * kKeys, __byte_perm(r[i][0], r[i][1], 0x6420), __byte_perm(r[i][0], r[i][1], 0x7531),
                            __byte_perm(r[i][2], r[i][3], 0x6420), __byte_perm(r[i][2], r[i][3], 0x7531));
        }
    }
}
