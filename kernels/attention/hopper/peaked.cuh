// Whether rows are peaked: few keys have most of a row's weight. Then it matters that the largest weights are exact and that the many small ones are not lost, and kernels take another way for
// the warp's rows. A row's sum says so, in units of its reference, which is the largest weight of the row tile's first keys.
// Wants nothing; forward.cu has it.
#pragma once
#include "ptx.cuh"

// Of a single row: a key weighs less than this, in units of the reference, in the mean. Of normal scores it is 0.08 to 0.14.
constexpr float kLittle = 0.1f / 64.0f;

struct Peaked {
    bool rows;   // a warp's rows are
    i32 again;   // if not, the number of tiles at which to ask again: when a single row may be if nothing is added to it, and at first not after more than four times as many
};

// After `tiles` tiles of kKeys keys, of which so many keys may have been hidden, or lie behind all (counted as seen, a last tile of few keys makes all rows look peaked: 16x16-8x1814x64 with a log-sum-exp 454 us instead of 393). sums: of a thread's two rows, not above 0 where no key was seen. looks: half of log2 of how many 256 keys give the reference.
template <i32 kKeys>
WS_DEV Peaked peaked(float sum0, float sum1, i32 tiles, i32 hidden, float looks) {
    constexpr float kOfTile = 1.0f / (kLittle * kKeys), kNone = 1.0e7f / kOfTile;   // a row without a key, or one that is no number, is never peaked
    sum0 = sum0 > 0.0f ? sum0 : kNone, sum1 = sum1 > 0.0f ? sum1 : kNone;
    const i32 single = __reduce_min_sync(0xFFFFFFFFu, static_cast<i32>(fminf(sum0, sum1) * kOfTile));
    // All 16: the mean of their logarithms. A key weighs 2^-2.9, 2^-3.3, 2^-3.7 of the largest of 128, 256, 512 in the mean where scores are standard normal, give or take 0.2 octaves for 16 rows; and 2^-3.5, 2^-4.0, 2^-4.5
    // where they are 1.3 times as wide: here 2^-3.5, 2^-4, 2^-4.5 divides. (Not after more tiles than that: by then one in some hundred warps has had enough new references that it would follow too, and holds its CTA back, which
    // holds all back: 1x16x16384x128 2,050 us instead of 1,880.)
    constexpr i32 kFirst = 16;
    const i32 octaves = __reduce_add_sync(0xFFFFFFFFu, static_cast<i32>(16.0f * lg2(sum0 * sum1)));   // 16ths, each row's four times
    const float wide = lg2(static_cast<float>(max(0, tiles * kKeys - hidden))) - 4.0f - looks;
    return {single <= tiles || (tiles <= kFirst && static_cast<float>(octaves) < 16.0f * 64.0f * wide), min(single, tiles < kFirst ? 4 * tiles : 0x7FFFFF)};
}
