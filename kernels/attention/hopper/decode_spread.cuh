// WS_SPREAD of decode.cu: a sequence's units (of a key head each) are side by side, each by CTAs of its own, which take equal stretches of all sequences' tiles, one sequence behind another. So all have as much
// to do, whatever lengths are, and CTAs that are side by side read neighbouring heads of the same keys. A unit may be begun by one CTA and ended by another: then each leaves its part, and the last one to come
// adds them, as a team's does. A sequence without keys has one tile, all of which is hidden. p.section: tiles that the end of a unit takes as long as, which count as such where stretches are cut: a multiple of WARPS.
// Where only the device knows lengths (WS_LENS) and there are no more sequences than CTAs, each may have part of one unit alone instead, and a sequence gets as many CTAs as its tiles want (`alone`): where that takes no CTA much longer than an equal stretch.
// H200, 2026-11-28, 1,652 random calls of at most 16 rows over caches of which an eighth at most is used (docs/ledger-lengths.md): 0.923 of the time of stretches alone (0.65 to 1.09), 0.998 of what caches as large as the longest sequence took. Of the better of both 1.009 (1,135 calls, each by both).
// Lengths of the first 32 sequences are loaded once for all of that: of calls below 10 us 0.50 us less than each loop's own loads (median, D 256, where nothing else changed; 0.40 and 0.45 at D 64 and 128, whose hints come from the warp without tiles now).
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
    i32 ends;            // tiles that the end of a unit counts as
    bool alone;          // each CTA has part of one unit at most

    WS_DEV_MEMBER void place_in(i32 units) { beside = units, place = blockIdx.x % units, count = gridDim.x / units, nth = blockIdx.x / units; }
    // Of that many tiles.
    WS_DEV_MEMBER void cut(i32 all, i32 end_tiles) {
        alone = false, ends = end_tiles, share = (all + count - 1) / count;
        from = min(all, nth * share), to = min(all, from + share);
        sequence = 0, begin = to, tiles = 1;   // if there is none
    }
    // A unit of at most so many tiles as its end takes is not cut: it is wholly of the CTA in whose stretch it begins, so that the next one's begins behind it.
    WS_DEV_MEMBER void skip_short() {
        if (from > begin && tiles <= ends) from = max(from, begin + tiles);
    }
    // Where what this CTA has of a unit ends.
    WS_DEV_MEMBER i32 stop_in(i32 unit, i32 of_unit) const { return of_unit <= ends && unit >= from && unit < to ? unit + of_unit : min(to, unit + of_unit); }
};

#if WS_LENS
// Where every CTA has part of one unit alone (`alone`): what a round of its warps costs, and each sixteen parts that are added; and how many tiles more than an equal stretch it may have.
constexpr i32 kOfRound = 5, kOfParts = 2, kMoreAlone = 12;

// Of sequences of their own lengths, keys(b), each of which has so many units: by a warp, from what place_in has found. CTAs must agree.
template <class Keys>
WS_DEV Stretch stretch_of(const Params& p, Stretch s, Keys keys, u32 lane) {
    const i32 first = static_cast<i32>(lane) < p.B ? tiles_in(keys(lane)) : 0;   // the 32 first sequences'
    i32 all = first;
#pragma unroll 1
    for (i32 b = 32 + lane; b < p.B; b += 32) all += tiles_in(keys(b));
    all = __reduce_add_sync(0xFFFFFFFFu, all);
    if (p.B <= min(s.count, 32)) {
        // A number of rounds for each lane. Parts of a sequence are a product: all that matters of its rounding is that a sequence has one, and that CTAs agree.
        const i32 longest = __reduce_max_sync(0xFFFFFFFFu, first), least = 1 + static_cast<i32>(static_cast<float>(all - 1) * rcp(static_cast<float>(s.count * WARPS))), step = 1 + least / 16;
        auto over = [](i32 part) { return static_cast<u32>(4294968320.0f * rcp(static_cast<float>(part))); };
        const i32 rounds = least + static_cast<i32>(lane) * step, part = rounds * WARPS;
        const u32 over_part = over(part);
        auto parts_of = [](i32 tiles, i32 part, u32 over) { return static_cast<i32>(__umulhi(tiles + part - 1, over)); };
        i32 parts = 0;
#pragma unroll 4
        for (i32 b = 0; b < p.B; ++b) parts += parts_of(__shfl_sync(0xFFFFFFFFu, first, b), part, over_part);
        const i32 most = parts_of(longest, part, over_part), cost = rounds * kOfRound + (most > 1 ? (most + 15) / 16 : 0) * kOfParts;
        const u32 best = __reduce_min_sync(0xFFFFFFFFu, parts > s.count ? 0xFFFFFFFFu : static_cast<u32>(cost) << 5 | lane);
        const i32 tiles_each = (least + static_cast<i32>(best % 32) * step) * WARPS;
        if (best != 0xFFFFFFFFu && (tiles_each - kMoreAlone) * s.count <= all + p.B * p.section) {
            const i32 length = first == 0 ? 0 : parts_of(first, tiles_each, over(tiles_each)), share = (first + length - 1) / max(length, 1);
            i32 end = length;
#pragma unroll
            for (u32 i = 1; i < 32; i *= 2) {
                const i32 x = __shfl_up_sync(0xFFFFFFFFu, end, i);
                if (lane >= i) end += x;
            }
            const u32 behind = __ballot_sync(0xFFFFFFFFu, end > s.nth);
            const i32 at = behind ? __ffs(static_cast<i32>(behind)) - 1 : 0, tiles = __shfl_sync(0xFFFFFFFFu, first, at);
            s.alone = true, s.ends = 0, s.share = __shfl_sync(0xFFFFFFFFu, share, at), s.sequence = at, s.tiles = tiles;
            s.begin = __shfl_sync(0xFFFFFFFFu, end - length, at) * s.share, s.from = min(s.nth * s.share, s.begin + tiles), s.to = behind ? min(s.from + s.share, s.begin + tiles) : s.from;
            return s;
        }
    }
    s.cut(all + p.B * p.section, p.section);
    i32 before = 0;   // tiles of the sequences before these 32
#pragma unroll 1
    for (i32 b = 0; b < p.B; b += 32) {
        const i32 tiles = b + static_cast<i32>(lane) >= p.B ? 0 : (b == 0 ? first : tiles_in(keys(b + lane))) + p.section;
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
            s.tiles -= p.section;
            s.skip_short();
            break;
        }
        before = __shfl_sync(0xFFFFFFFFu, end, 31);
    }
    return s;
}
#else
// Of sequences of so many tiles, each of which has so many units.
WS_DEV Stretch stretch_of(const Params& p) {
    const i32 tiles = p.tiles_per_unit, of_unit = tiles + p.section;
    Stretch s;
    s.place_in(p.total_tiles / p.B);
    s.cut(p.B * of_unit, p.section);
    if (s.from < s.to) s.sequence = s.from / of_unit, s.begin = s.sequence * of_unit, s.tiles = tiles, s.skip_short();
    return s;
}
#endif
