// V from rows of e4m3 to rows of f16, in shared memory: wgmma takes an f16 B operand as it lies, keys below each other, so nothing is transposed.
//
// A key's 64 bytes (swizzled to their width) become 128. Of 16 dimensions, columns 2 l and 2 l + 1 of the first eight and of the second eight hold dimensions
// 4 l to 4 l + 3: what a thread of the output accumulator has in two blocks of columns is four neighbours.
// widen_across: V^T (64 rows of 128 keys, in the order of transpose.cuh, swizzled) becomes two tiles of 64 rows of 64 keys, in their own order and with a factor: what a
// scale of the tile's own is relative to the head's largest.
// Limit: 64 dimensions.
#pragma once
#include "half.cuh"

// Warp `part` of kWarps that do nothing else takes a share of the keys, a lane a key; every address is a register plus a constant.
template <int kKeys, int kWarps>
WS_DEV void widen_share(u32 v, u32 to, u32 part, u32 lane) {
    constexpr u32 kDeep = kKeys / 32 / kWarps;
    static_assert(kKeys / 32 % kWarps == 0, "warps share the keys evenly");
    asm volatile("" : "+r"(lane));   // PERF: addresses are made anew for each tile: kept through the caller's loop they would be spilled
    const u32 row = part * kDeep * 32 + lane, mix = lane >> 1 & 3, mix_wide = lane & 7;
    const u32 from = v + row * 64, into = to + row * 128;
#pragma unroll
    for (u32 k = 0; k < kDeep; ++k) {
#pragma unroll
        for (u32 c = 0; c < 4; c += 2) {
            u32 r[2][4];
#pragma unroll
            for (u32 i = 0; i < 2; ++i) load_shared_16(r[i], from + k * 32 * 64 + (((c + i) ^ mix) << 4));
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                u32 low[4], high[4];
#pragma unroll
                for (u32 e = 0; e < 4; ++e) f16_of_e4m3(r[i][e], low[e], high[e]);
                const u32 at = into + k * 32 * 128, chunk = 2 * (c + i);
                store_shared_16(at + ((chunk ^ mix_wide) << 4), low[0], low[1], low[2], low[3]);
                store_shared_16(at + (((chunk + 1) ^ mix_wide) << 4), high[0], high[1], high[2], high[3]);
            }
        }
    }
}

// The same of V^T, a lane a row: 16 bytes hold 16 keys, words 2 j, 2 j + 1, 2 j + 8, 2 j + 9. The second half of the keys lies kHalf bytes on.
template <int kKeys, int kWarps, u32 kHalf>
WS_DEV void widen_across(u32 v, u32 to, u32 part, u32 lane, u32 factor) {
    static_assert(kKeys == 128 && kWarps == 2, "a warp takes 32 of 64 dimensions");
    asm volatile("" : "+r"(lane));   // PERF: as above
    const u32 row = part * 32 + lane, mix = lane & 7, from = v + row * 128, into = to + row * 128;
#pragma unroll
    for (u32 c = 0; c < 8; c += 2) {
        u32 r[2][4];
#pragma unroll
        for (u32 i = 0; i < 2; ++i) load_shared_16(r[i], from + (((c + i) ^ mix) << 4));
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            u32 low[4], high[4];
#pragma unroll
            for (u32 e = 0; e < 4; ++e) {
                f16_of_e4m3(r[i][e], low[e], high[e]);
                low[e] = mul_f16x2(low[e], factor);
                high[e] = mul_f16x2(high[e], factor);
            }
            const u32 at = into + (c + i) / 4 * kHalf, chunk = 2 * ((c + i) % 4);
            store_shared_16(at + ((chunk ^ mix) << 4), low[0], low[1], low[2], low[3]);
            store_shared_16(at + (((chunk + 1) ^ mix) << 4), high[0], high[1], high[2], high[3]);
        }
    }
}
