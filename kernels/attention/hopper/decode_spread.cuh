// WS_SPREAD of decode.cu: a sequence's units (of a key head each) are side by side, each by CTAs of its own, which take equal stretches of all sequences' tiles, one sequence behind another. So all have as much
// to do, whatever lengths are, and CTAs that are side by side read neighbouring heads of the same keys. A unit may be begun by one CTA and ended by another: then each leaves its part, and the last one to come
// adds them, as a team's does. A sequence without keys has one tile, all of which is hidden. p.section: tiles that the end of a unit takes as long as, which count as such where stretches are cut: a multiple of WARPS.
// H200, 2026-11-28, us by teams and so, and so without counting ends: 64 sequences of up to 8,192 keys in pages of 64 (32-8 heads, D 128) 168, 141, 142; one of 32,768 beside seven of at most 2,048 78, 25.8, 29.5;
// 32 of up to 8,192, four tokens each 103, 74, 82; whole caches, 34x2-2x3152 (D 256) 40.9, 30.2, 31.3; 28x120-10x3848 89, 72, 73; 13x16-16x3675 54.5, 49.1, 49.4.
// Losers, the same day: stretches over heads and sequences in their order, where neighbouring heads are read at other times: 32x16-16x4096 of D 64, token by token, 126 us instead of 69, as half of each line that
// comes is another head's; D 128 5 to 7% slower. Units that are not ended yet added up by the last warp to come, without a barrier, and counted where the CTA ends: 16 rows 72 to 76, 35 to 38.5, D 256 39.8 to 43.8
// (too much for one warp, and two units to add at the end). The next sequence's queries brought to the L2, or asked for a tile ahead in registers: 0.98 to 1.02. Two tiles of a warp under way 1.00 to 1.09 (three stages), half ones, three under way, 0.96 to 1.2. No hints 0.5 to 1 us slower. More than
// 16 rows by several units side by side: mostly slower than few.cuh. Short units are not cut: 150x8-8x500 (D 64) 27.8 instead of 29.7, 90x32-8x4x400 36.1 (38.9), 64 sequences of at most 204 keys 16.3 (17.5).
#pragma once

// The tiles of a sequence of so many keys.
WS_DEV i32 tiles_in(i32 keys) { return max(1, (keys + KEYS - 1) / KEYS); }

// A CTA's stretch of tiles, [from, to), and its first sequence, of `tiles` tiles from `begin` on.
struct Stretch {
    i32 beside, place;   // units of a sequence, and which of them is this CTA's
    i32 count, nth;      // CTAs that have this one, and which of them this is
    i32 share, from, to;
    i32 sequence, begin, tiles;

    // Of that many tiles.
    WS_DEV_MEMBER void cut(i32 units, i32 all) {
        beside = units, place = blockIdx.x % units, count = gridDim.x / units, nth = blockIdx.x / units;
        share = (all + count - 1) / count;
        from = min(all, nth * share), to = min(all, from + share);
        sequence = 0, begin = to, tiles = 1;   // if there is none
    }
    // A unit of at most so many tiles as its end takes is not cut: it is wholly of the CTA in whose stretch it begins, so that the next one's begins behind it.
    WS_DEV_MEMBER void skip_short(i32 end_tiles) {
        if (from > begin && tiles <= end_tiles) from = max(from, begin + tiles);
    }
    // Where what this CTA has of a unit ends.
    WS_DEV_MEMBER i32 stop_in(i32 unit, i32 of_unit, i32 end_tiles) const { return of_unit <= end_tiles && unit >= from && unit < to ? unit + of_unit : min(to, unit + of_unit); }
};

#if WS_LENS
// Of sequences of their own lengths, keys(b), each of which has so many units: by a warp.
template <class Keys>
WS_DEV Stretch stretch_of(i32 sequences, i32 units, i32 end_tiles, Keys keys, u32 lane) {
    i32 all = 0;
#pragma unroll 4
    for (i32 b = lane; b < sequences; b += 32) all += tiles_in(keys(b)) + end_tiles;
#pragma unroll
    for (u32 i = 16; i > 0; i /= 2) all += __shfl_xor_sync(0xFFFFFFFFu, all, i);
    Stretch s;
    s.cut(units, all);
    i32 before = 0;   // tiles of the sequences before these 32
#pragma unroll 1
    for (i32 b = 0; b < sequences; b += 32) {
        const i32 tiles = b + static_cast<i32>(lane) < sequences ? tiles_in(keys(b + lane)) + end_tiles : 0;
        i32 end = before + tiles;
#pragma unroll
        for (u32 i = 1; i < 32; i *= 2) {
            const i32 x = __shfl_up_sync(0xFFFFFFFFu, end, i);
            if (lane >= i) end += x - before;
        }
        const u32 behind = __ballot_sync(0xFFFFFFFFu, end > s.from);
        if (behind != 0) {
            const i32 at = __ffs(static_cast<i32>(behind)) - 1;
            s.sequence = b + at;
            s.tiles = __shfl_sync(0xFFFFFFFFu, tiles, at);
            s.begin = __shfl_sync(0xFFFFFFFFu, end, at) - s.tiles;
            s.tiles -= end_tiles;
            s.skip_short(end_tiles);
            break;
        }
        before = __shfl_sync(0xFFFFFFFFu, end, 31);
    }
    return s;
}
#else
// Of sequences of so many tiles, each of which has so many units.
WS_DEV Stretch stretch_of(i32 sequences, i32 units, i32 end_tiles, i32 tiles) {
    Stretch s;
    s.cut(units, sequences * (tiles + end_tiles));
    if (s.from < s.to) s.sequence = s.from / (tiles + end_tiles), s.begin = s.sequence * (tiles + end_tiles), s.tiles = tiles, s.skip_short(end_tiles);
    return s;
}
#endif
