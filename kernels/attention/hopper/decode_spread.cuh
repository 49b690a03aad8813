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

#if WS_LENS == 2
// A sequence of those one behind another: where its queries and keys begin, and how many there are; `tiled` is less than 0 where it has no queries, and so no tiles.
struct Tokens {
    i32 first_q, queries, first_k, tiled;
};
// kEarly: while earlier kernels may still write them.
template <bool kEarly = false>
WS_DEV Tokens tokens_of(const Params& p, const Ragged& x, i32 b) {
    auto load = [](const i32* at) { return kEarly ? static_cast<i32>(load_u32(at)) : *at; };   // not as constant: CTAs must agree
    const i32 q = load(x.cu_q + b), next_q = load(x.cu_q + b + 1), k = load(x.cu_k + b), next_k = load(x.cu_k + b + 1);
    Tokens t;
    t.first_q = min(max(q, 0), x.total_q), t.first_k = min(max(k, 0), x.total_k);
    t.queries = min(min(max(next_q - t.first_q, 0), x.total_q - t.first_q), p.Sq);
    t.tiled = min(max(next_k - t.first_k, 0), x.total_k - t.first_k);
    if (p.ks_t != 0 || p.vs_t != 0) t.tiled = min(t.tiled, p.Sk);   // behind the most that a sequence has there are no scales
    if (t.queries == 0) t.tiled = -1;
    return t;
}
#endif

// The tiles of a sequence of so many keys.
WS_DEV i32 tiles_in(i32 keys) { return kTokens && keys < 0 ? 0 : max(1, (keys + KEYS - 1) / KEYS); }

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
        if (kTokens) share = max(1, share);   // there may be no tiles
        from = min(all, nth * share), to = min(all, from + share);
        sequence = 0, begin = to, tiles = 1;   // if there is none
    }
    // What a unit of so many tiles counts as, its end among it.
    WS_DEV_MEMBER i32 with_end(i32 of_unit) const { return kTokens && of_unit == 0 ? 0 : of_unit + ends; }
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

// Whether a stretch's first sequence is looked for in the part of all that one lane has, not in all, where there are more than 32. H200, 2026-11-29, times as long, 256, 512, 1,024 sequences of up to 300 keys, one token: D 64 0.96, 0.93, 0.93, D 128 (8-1 heads) 0.94, 0.865, 0.835; but 16 rows 1.06, 1.03, 1.05, D 256 1.02, 1.015, 1.03.
constexpr bool kParts = HALVES == 1 && D <= 128;

// Of sequences of their own lengths, keys(b), each of which has so many units: by a warp, from what place_in has found. CTAs must agree.
template <class Keys>
WS_DEV Stretch stretch_of(const Params& p, Stretch s, Keys keys, u32 lane) {
    const i32 each = kParts ? (p.B + 31) / 32 : 1, first = each == 1 && static_cast<i32>(lane) < p.B ? tiles_in(keys(lane)) : 0;   // of the first 32 sequences each lane's
    i32 own = first, units = first != 0;
    if (kParts && each > 1) {
#pragma unroll 4
        for (i32 i = 0; i < each; ++i) {
            const i32 b = static_cast<i32>(lane) * each + i, tiles = b < p.B ? tiles_in(keys(b)) : 0;
            own += tiles, units += kTokens ? tiles != 0 : b < p.B;
        }
    } else {
#pragma unroll 1
        for (i32 b = 32 + lane; b < p.B; b += 32) {
            const i32 tiles = tiles_in(keys(b));
            own += tiles, units += tiles != 0;
        }
    }
    const i32 all = __reduce_add_sync(0xFFFFFFFFu, own), all_ends = (kTokens ? __reduce_add_sync(0xFFFFFFFFu, units) : p.B) * p.section;
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
        if (best != 0xFFFFFFFFu && (tiles_each - kMoreAlone) * s.count <= all + all_ends) {
            const i32 length = first == 0 ? 0 : parts_of(first, tiles_each, over(tiles_each)), share = (first + length - 1) / max(length, 1);
            const i32 end = warp_sums(length, lane);
            const u32 behind = __ballot_sync(0xFFFFFFFFu, end > s.nth);
            const i32 at = behind ? __ffs(static_cast<i32>(behind)) - 1 : 0, tiles = __shfl_sync(0xFFFFFFFFu, first, at);
            s.alone = true, s.ends = 0, s.share = __shfl_sync(0xFFFFFFFFu, share, at), s.sequence = at, s.tiles = tiles;
            s.begin = __shfl_sync(0xFFFFFFFFu, end - length, at) * s.share, s.from = min(s.nth * s.share, s.begin + tiles), s.to = behind ? min(s.from + s.share, s.begin + tiles) : s.from;
            return s;
        }
    }
    s.cut(all + all_ends, p.section);
    if (kParts && each > 1) {
        own += units * p.section;
        const i32 until = warp_sums(own, lane);
        const u32 found = __ballot_sync(0xFFFFFFFFu, until > s.from);
        if (found == 0) return s;
        s.sequence = (__ffs(static_cast<i32>(found)) - 1) * each, s.begin = __shfl_sync(0xFFFFFFFFu, until - own, __ffs(static_cast<i32>(found)) - 1);
    } else s.sequence = s.begin = 0;
    // 32 sequences at a time.
#pragma unroll 1
    for (i32 b = s.sequence; b < p.B; b += 32) {
        const i32 mine = b + static_cast<i32>(lane), tiles = mine >= p.B ? 0 : s.with_end(b == 0 && each == 1 ? first : tiles_in(keys(mine))), end = s.begin + warp_sums(tiles, lane);
        const u32 behind = __ballot_sync(0xFFFFFFFFu, end > s.from);
        if (behind != 0) {
            const i32 at = __ffs(static_cast<i32>(behind)) - 1;
            s.sequence = b + at, s.begin = __shfl_sync(0xFFFFFFFFu, end - tiles, at), s.tiles = __shfl_sync(0xFFFFFFFFu, tiles, at) - p.section;
            s.skip_short();
            return s;
        }
        s.begin = __shfl_sync(0xFFFFFFFFu, end, 31);
    }
    s.sequence = 0, s.begin = s.to, s.tiles = 1;   // there is none
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
