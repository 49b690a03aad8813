// kFew: few rows of queries over many keys, for forward_f16.cu, forward_e4m3.cu and forward.cu. Row r of a key head is query r / group of query head r % group of its group: so a row tile has as many rows as there
// are, K and V are read once for all of them, and behind the mask they see nearly the same; p.tiles_per_worker CTAs (few_ways) share out a row tile's keys, and the last of them to come adds what they have. Sequences of lengths that only the device knows come this way too, however long: in caches or pages (WS_LENS 1), or one behind another (2).
//
// Where only the device knows lengths forward_e4m3.cu may take V^T, which transpose.cu makes before for all row tiles (WS_PACKED): then nobody shares keys, and three consumers and steps of two tiles of D 256 fit.
//
// Comes within forward_work.cuh. Wants p.row_tiles row tiles of a key head, scratch for each CTA of each row tile in p.partial (D / 4 + 4 floats for each thread of its consumers) and in p.arrived
// (WS_LENS: the counter that row tiles are drawn from; then one for each of their warps; zero between launches). Work::head is the key head's first query head.
// Losers (H200, 2026-11-25, varlen causal 4x8-8x4096x256, 8x16-16x2048x128, us): row tiles in a list that CTAs share out, as the host orders others', 452, 267: whoever has the longest of each sequence has
//   1.7 times the mean; decode.cu for the sequences of at most eight packed rows among those one behind another, and this for the others, two launches (2026-11-29) 1.24 to 1.55 times as long as one of the best number of CTAs; whole queries of groups that are no power of two by boxes, rows left empty: D 256 0.855 to 0.935 of the
//   time, all else 1.03 to 1.12; consumers load their own rows of Q at a row tile's start (D 64 63 at 32x16-16x512); Q by one cp.async.bulk for each row, 116 there: each takes the copy engine as long as a large one.
#pragma once
#include "half.cuh"
#include "ragged.cuh"
#include "scale.cuh"

#if WS_LENS == 2
constexpr bool kVarlen = true;   // sequences lie one behind another: p.Sq and p.Sk are the most that one has
#else
constexpr bool kVarlen = false;
#endif

// A packed row's query, by a product: over is 2^32 / group, rounded up, and exact as long as rows times group stay below 2^32; 0 where there is one head.
WS_DEV u32 few_over(const Params& p) { return p.group == 1 ? 0 : 0xFFFFFFFFu / p.group + 1; }
WS_DEV i32 few_query(const Work& w, i32 row) { return w.over == 0 ? row : static_cast<i32>(__umulhi(row, w.over)); }

#if WS_LENS
// What both kinds of entry take: with lengths of their own, and perhaps pages, of 8 to 64 keys or whole tiles, or places among all sequences' tokens.
struct FewParams : Params {
    Ragged x;
};
WS_DEV const Ragged& ragged(const Params& p) { return static_cast<const FewParams&>(p).x; }

// Of k and v. Where 64 rows are no whole groups of heads the host may have row tiles of one query head each at D 256: then key heads are query heads to all but K and V, and so many of them (x.splits) have one.
// (At D 64 and 128 nothing is gained, and instructions that are jumped over cost up to 2.6%; H200, 2026-11-29.)
WS_DEV i32 few_kv_head(const Params& p, i32 head) { return D == 256 && ragged(p).splits > 1 ? head / ragged(p).splits : head; }

// A tile of keys from first_key on: a box, or as many as pages make of it. Of pages behind the last key's it takes that one.
WS_DEV void few_load(const Params& p, const Work& w, u32 smem, const TensorMap* map, u32 bar, i32 first_key, i32 kv_head) {
    const Ragged& x = ragged(p);
    if (kVarlen) load_rows(smem, map, bar, KEYS, w.first_k + first_key, kv_head, 0);
    else if (!x.pages) load_rows(smem, map, bar, KEYS, first_key, kv_head, w.b);
    else {
        constexpr i32 kAtOnce = D == 256 ? 4 : 8;   // lookups: one after the other they take longer than a tile does
        const i32 box = min(KEYS, x.page_size), first = first_key / x.page_size, last = (w.keys - 1) / x.page_size, row = first_key - first * x.page_size;
        const i32* pages = x.pages + w.b * x.pages_b;
#pragma unroll 1
        for (i32 at = 0, n = first; at < KEYS; at += kAtOnce * box, n += kAtOnce) {
            i32 page[kAtOnce];
#pragma unroll
            for (i32 i = 0; i < kAtOnce; ++i) page[i] = __ldg(pages + min(n + i, last));
#pragma unroll
            for (i32 i = 0; i < kAtOnce; ++i) {
                if (at + i * box >= KEYS) break;
#pragma unroll
                for (i32 half = 0; half < (D + 127) / 128; ++half)
                    tma_load_4d(smem + (half * KEYS + at + i * box) * kPitch, map, bar, half * 128, row, kv_head, min(max(page[i], 0), x.page_count - 1));
            }
        }
    }
    copies_issued(bar);
}

// Behind the last key lies anything, NaN too, which times 0 is NaN: V's rows there become zeros, before two warps rewrite the t-th tile.
WS_DEV void few_clear(const Work& w, i32 t, u32 v, u32 warp, u32 lane) {
    const i32 there = max(0, w.keys - w.keys_at(t) * KEYS);   // a step of two tiles may end behind all keys
    if (there >= KEYS) return;
    for (u32 i = there * (kPitch / 16) + warp * 32 + lane; i < KEYS * (kPitch / 16); i += 64)
#pragma unroll
        for (u32 half = 0; half < (D + 127) / 128; ++half) store_shared_16(v + half * KEYS * 128 + 16 * i, 0, 0, 0, 0);
    named_barrier_sync(7, 64);
}

// Where V^T, made before (transpose.cu), has the keys of a sequence's tile: of those one behind another each one's tiles begin behind those of the ones before it, whatever tokens of their last one these leave. A tile behind all keys is none of them: zeros, from behind all.
WS_DEV i32 few_made_key(const Params& p, const Work& w, i32 tile) {
    const bool seen = tile * KEYS < w.keys;
    if (kVarlen) return (seen ? w.first_k / KEYS + w.b + tile : ragged(p).total_k / KEYS + p.B) * KEYS;
    return (seen ? tile : (p.Sk + KEYS - 1) / KEYS) * KEYS;
}
#else
using FewParams = Params;
WS_DEV i32 few_made_key(const Params&, const Work&, i32) { return 0; }
WS_DEV void few_load(const Params&, const Work&, u32, const TensorMap*, u32, i32, i32) {}
WS_DEV void few_clear(const Work&, i32, u32, u32, u32) {}
#endif

// How many CTAs share a row tile's keys. In caches the device alone knows what for: it decides, up to p.tiles_per_worker, as the host does where it knows the longest and the sum (uneven_ns of _heuristic.py).
// Measured, H200, 2026-11-28, of caches of which an eighth at most is used: 0.84 to 0.86 of the time by a number that the host took from their size. Deciding takes 0.40 us, each producer's warp for itself, what lengths do not change before they are waited for; by one warp and a barrier 0.51, all of it after the wait 0.68.
// Where an estimate says that it gains more than it takes each sequence has its own number instead, of shares of so many tiles at most: with products for divisions (forward_work.cuh) 1,781 calls take 0.977 of the time, of one long sequence beside short ones 0.945 (0.51 to 1.25), of log-normal lengths 0.976, alike 0.998; FA3 FP8 is
// faster in 92 of them instead of 162. Losers: own numbers always, found by all roles' divisions, 1.03 to 1.05 where lengths are alike (0.3 to 1.7 us, and up to 4 of long calls).
constexpr bool kDecides = kLens && !kPacked;

WS_DEV i32 few_steps(i32 keys) { return max(1, (keys + KEYS * kWhole - 1) / (KEYS * kWhole)); }

#if WS_LENS == 1 && !WS_PACKED

// Shares of a sequence of so many steps, of at most so many each, whose inverse is `over`: a product, of whose rounding all that matters is that there is one and that roles agree.
WS_DEV i32 few_shares(const Params& p, i32 steps, u32 over) { return min(1 + static_cast<i32>(__umulhi(steps - 1, over)), p.tiles_per_worker); }

// By a warp, whose lanes estimate one size each: row tiles are drawn, so a call takes what all work is over all SMs, and somewhat less than half of the longest share, but no less than that share. Cycles of a tile of keys are in p.tiles_per_unit, of a row tile in p.total_tiles
// (lower halves, and upper ones where a CTA has several row tiles whose keys nobody shares), of each time that parts are added in p.section. All that lengths do not change is known before they are waited for.
WS_DEV void few_decide(const Params& p, u32 lane, Work& w) {
    w.ways = 1, w.more = w.b = w.before = 0, w.over_share = w.over_ways = 0;
    if (p.tiles_per_worker == 1) return;
    const i32 ways = static_cast<i32>(lane) + 1, units = p.row_tiles * p.Hkv;
    const bool several = static_cast<i64>(units) * p.B * ways > gridDim.x, upper = several && ways == 1;
    const float of_step = static_cast<float>(kWhole * (upper ? p.tiles_per_unit >> 16 : p.tiles_per_unit & 0xFFFF));
    const float of_rows = static_cast<float>((upper ? p.total_tiles >> 16 : p.total_tiles & 0xFFFF) + ((ways > 1) + (ways > 4) + (ways > 16)) * p.section);
    const float of_sm = static_cast<float>(units) * rcp(static_cast<float>(gridDim.x)), of_all = of_sm * of_step, of_share = of_sm * of_rows, of_shares = static_cast<float>(p.B * ways) * of_share, part = rcp(static_cast<float>(ways));
    const i32* used = ragged(p).used;
    i32 longest = 0, all = 0, first = 0;
    wait_for_earlier_kernels();   // whose lengths no load that takes memory for constant (ld.global.nc) need see: CTAs that did not agree would leave counters as nobody expects them
    auto keys_of = [&](i32 b) { return min(max(used[b], 0), p.Sk); };
    for (i32 b = lane; b < p.B; b += 32) {
        const i32 keys = keys_of(b), steps = few_steps(keys);
        if (b < 32) first = steps;
        longest = max(longest, steps);
        all += WS_CAUSAL ? few_steps(keys - p.Sq / 2) : steps;
    }
    longest = __reduce_max_sync(0xFFFFFFFFu, longest), all = __reduce_add_sync(0xFFFFFFFFu, all);
    // The lane of the least of so many cycles, above it: CTAs must agree, and do.
    auto least = [&](float cycles) { return __reduce_min_sync(0xFFFFFFFFu, ways > p.tiles_per_worker ? 0xFFFFFFFFu : __float_as_uint(cycles) & ~31u | lane); };
    const float size = floorf(fmaf(static_cast<float>(longest + static_cast<i32>(lane)), part, 0.001f)), share = fmaf(size, of_step, of_rows), work = static_cast<float>(all) * of_all;
    auto drawn = [&](float shares) { return fmaxf(share, fmaf(shares, of_share, work) + 0.45f * share); };
    const u32 alike = least(several ? fmaxf(share, work + of_shares + 0.45f * share) : share);
    w.ways = static_cast<i32>(alike % 32) + 1, w.over_ways = inverse_of(w.ways);
    // Each sequence its own number, where that gains more than it takes: so many shares, about.
    const float about = fmaf(static_cast<float>(all) * rcp(static_cast<float>(longest)), static_cast<float>(ways), 0.5f * static_cast<float>(p.B));
    if (p.B == 1 || least(ways == 1 ? 1e30f : fmaf(drawn(about), 1.03f, static_cast<float>(900 + 30 * p.B))) > alike) return;
    const u32 over = static_cast<u32>(4294968320.0f * rcp(fmaxf(size, 1.0f)));
    i32 shares = 0;
#pragma unroll 1
    for (i32 b = 0; b < p.B; b += 32) {
        const i32 steps = b == 0 ? first : b + static_cast<i32>(lane) < p.B ? few_steps(keys_of(b + lane)) : 0;
#pragma unroll 4
        for (i32 i = 0; i < min(32, p.B - b); ++i) shares += few_shares(p, __shfl_sync(0xFFFFFFFFu, steps, i), over);
    }
    const u32 best = least(ways == 1 ? 1e30f : drawn(static_cast<float>(shares))) % 32;
    w.over_share = __shfl_sync(0xFFFFFFFFu, over, best);
    w.more = (__shfl_sync(0xFFFFFFFFu, shares, best) - p.B) * units;
    if (static_cast<i32>(blockIdx.x) >= w.more) return;
    // Where this CTA's first share is.
#pragma unroll 1
    for (i32 b = 0;; b += 32) {
        const i32 steps = b == 0 ? first : b + static_cast<i32>(lane) < p.B ? few_steps(keys_of(b + lane)) : 0, here = steps == 0 ? 0 : (few_shares(p, steps, w.over_share) - 1) * units;
        const i32 end = w.before + warp_sums(here, lane);
        const u32 behind = __ballot_sync(0xFFFFFFFFu, end > static_cast<i32>(blockIdx.x));
        if (behind != 0) {
            const i32 at = __ffs(static_cast<i32>(behind)) - 1;
            w.b = b + at, w.before = __shfl_sync(0xFFFFFFFFu, end - here, at);
            return;
        }
        w.before = __shfl_sync(0xFFFFFFFFu, end, 31);
    }
}
#elif WS_LENS == 2
WS_DEV i32 few_row_tiles(const Params& p, i32 queries) { return (p.group * queries + ROWS - 1) / ROWS; }

// The same where sequences lie one behind another, of which the host knows the longest and the sum: it chooses where they are alike (p.tiles_per_unit is 0), else the device, one number for all, of at most p.row_tiles shares, for which there is scratch.
// Then, 32 sequences at a time, it looks for this CTA's first row tile. Measured: docs/ledger-lengths.md, "One behind another, some of one token".
WS_DEV void few_decide(const Params& p, u32 lane, Work& w) {
    const Ragged& x = ragged(p);
    const bool decides = kDecides && p.tiles_per_unit != 0;
    const i32 ways = static_cast<i32>(lane) + 1;
    const float part = rcp(static_cast<float>(ways)), of_sm = static_cast<float>(p.Hkv) * rcp(static_cast<float>(gridDim.x));
    w.ways = p.tiles_per_worker, w.over_ways = inverse_of(w.ways);
    if (!decides && p.B <= 64) return;   // PERF: looking for the place takes 0.2 to 0.5 us, walking there no longer
    if (!kPacked) wait_for_earlier_kernels();   // V^T is made when all others have ended. No load that takes memory for constant, as CTAs must agree
    auto queries_of = [&](i32 b) {
        const i32 q = x.cu_q[b], next = x.cu_q[b + 1], first_q = min(max(q, 0), x.total_q);
        return min(min(max(next - first_q, 0), x.total_q - first_q), p.Sq);
    };
    i32 first = 0;   // row tiles of the 32 first sequences
    if (decides) {
        i32 longest = 0, work = 0, row_tiles = 0;
#pragma unroll 1
        for (i32 b = lane; b < p.B; b += 32) {
            const i32 k = x.cu_k[b], next = x.cu_k[b + 1], queries = queries_of(b), here = few_row_tiles(p, queries), keys = max(0, min(next, x.total_k) - max(k, 0));
            if (b < 32) first = here;
            if (here == 0) continue;
            longest = max(longest, few_steps(keys)), row_tiles += here, work += here * few_steps(keys - (WS_CAUSAL ? queries / 2 : 0));
        }
        longest = __reduce_max_sync(0xFFFFFFFFu, longest), row_tiles = __reduce_add_sync(0xFFFFFFFFu, row_tiles), work = __reduce_add_sync(0xFFFFFFFFu, work);
        const i64 shares = static_cast<i64>(row_tiles) * p.Hkv * ways;
        const bool several = shares > gridDim.x, upper = several && ways == 1;
        const float of_step = static_cast<float>(kWhole * (upper ? p.tiles_per_unit >> 16 : p.tiles_per_unit & 0xFFFF));
        const float of_rows = static_cast<float>((upper ? p.total_tiles >> 16 : p.total_tiles & 0xFFFF) + ((ways > 1) + (ways > 4) + (ways > 16)) * p.section);
        const float size = floorf(fmaf(static_cast<float>(longest + static_cast<i32>(lane)), part, 0.001f)), share = fmaf(size, of_step, of_rows);
        const float all = of_sm * fmaf(static_cast<float>(work), of_step, static_cast<float>(row_tiles * ways) * of_rows), cycles = several ? fmaxf(share, all + 0.45f * share) : share;
        const bool fits = ways == 1 || ways <= p.tiles_per_worker && shares <= p.row_tiles;
        w.ways = static_cast<i32>(__reduce_min_sync(0xFFFFFFFFu, fits ? __float_as_uint(cycles) & ~31u | lane : 0xFFFFFFFFu) % 32) + 1;
        w.over_ways = inverse_of(w.ways);
    }
    const i32 wanted = blockIdx.x / (p.Hkv * w.ways);
#pragma unroll 1
    for (; w.b < p.B; w.b += 32) {
        const i32 b = w.b + static_cast<i32>(lane), here = decides && w.b == 0 ? first : b < p.B ? few_row_tiles(p, queries_of(b)) : 0, end = w.before + warp_sums(here, lane);
        const u32 behind = __ballot_sync(0xFFFFFFFFu, end > wanted);
        if (behind) {
            const i32 at = __ffs(static_cast<i32>(behind)) - 1;
            w.b += at, w.before = __shfl_sync(0xFFFFFFFFu, end - here, at);
            return;
        }
        w.before = __shfl_sync(0xFFFFFFFFu, end, 31);
    }
    w.b = p.B;
}
#else
WS_DEV void few_decide(const Params&, u32, Work&) {}
#endif

WS_DEV i32 few_ways(const Params& p, const Work& w) { return kDecides ? w.ways : p.tiles_per_worker; }

// Before all row tiles, for who looks for them.
WS_DEV void few_prepare(const Params& p, Work& w) {
    w.over = few_over(p);
    w.over_row_tiles = inverse_of(kVarlen ? p.Hkv : p.row_tiles);
    if (!kVarlen) w.over_units = inverse_of(p.row_tiles * p.Hkv);
    if (!kDecides) w.over_ways = inverse_of(p.tiles_per_worker);
}

// Of a row tile's sequence.
WS_DEV i32 few_keys(const Params& p, const Work& w) { return kLens ? w.keys : p.Sk; }
WS_DEV i32 few_queries(const Params& p, const Work& w) { return kVarlen || kLens && kPacked ? w.queries : p.Sq; }

// All or none: what passes over more tiles than a ring has slots, with a product of values under way, waits for ever.
WS_DEV i32 few_tiles_seen(const Params& p, const Work& w, i32 group_row) { return group_row < p.group * few_queries(p, w) ? w.tiles : 0; }

// The key from which on 64 rows want a mask.
WS_DEV i32 few_clear_keys(const Params& p, const Work& w, i32 group_row) {
    const i32 keys = few_keys(p, w), n = few_queries(p, w);
    return WS_CAUSAL ? min(keys, keys - n + few_query(w, group_row) + 1) : keys;
}

// A packed row sees so many keys.
WS_DEV i32 few_seen(const Params& p, const Work& w, i32 row) {
    const i32 keys = few_keys(p, w);
    return WS_CAUSAL ? min(keys, keys - few_queries(p, w) + few_query(w, row) + 1) : keys;
}

// The t-th share of a row tile's keys of all: its sequence, key head and first row.
#if WS_LENS == 2
WS_DEV bool few_place_of(const Params& p, i32 t, Work& w) {
    const Ragged& x = ragged(p);
    // Shares come in the order of sequences, and a CTA's one after the other: w says where the last one was.
    for (i32 first_q = 0;; ++w.b) {
        if (w.b >= p.B) return false;
        first_q = min(max(__ldg(x.cu_q + w.b), 0), x.total_q);
        w.queries = min(min(max(__ldg(x.cu_q + w.b + 1) - first_q, 0), x.total_q - first_q), p.Sq);
        w.first_q = first_q;
        const i32 row_tiles = few_row_tiles(p, w.queries), ways = few_ways(p, w);
        if (t < (w.before + row_tiles) * p.Hkv * ways) {
            w.unit = divide(t, ways, w.over_ways, w.split);
            // The last rows, which may see most, first; heads side by side.
            const i32 from_last = divide(w.unit - w.before * p.Hkv, p.Hkv, w.over_row_tiles, w.kv_head);
            w.head = w.kv_head * p.group;
            w.kv_head = few_kv_head(p, w.kv_head);
            w.first_row = (row_tiles - 1 - from_last) * ROWS;
            w.first_k = min(max(__ldg(x.cu_k + w.b), 0), x.total_k);
            w.keys = min(max(__ldg(x.cu_k + w.b + 1) - w.first_k, 0), x.total_k - w.first_k);
            if (kBlocks) w.keys = min(w.keys, p.Sk);   // behind the most that a sequence has there are no scales
            return true;
        }
        w.before += row_tiles;
    }
}
#else
WS_DEV bool few_place_of(const Params& p, i32 t, Work& w) {
    const i32 units = p.row_tiles * p.Hkv;   // of a sequence
    i32 unit;
#if WS_LENS == 1 && !WS_PACKED
    if (__builtin_expect(w.over_share != 0, 0)) {
        // Each sequence has its own number. All shares of row tiles but their first come before, in the order of sequences: they are of the longest ones. w says where the last one was.
        const i32* used = ragged(p).used;
        auto look = [&] {
            w.keys = min(max(used[w.b], 0), p.Sk), w.ways = few_shares(p, few_steps(w.keys), w.over_share);
        };
        if (t < w.more) {
            for (look(); t >= w.before + (w.ways - 1) * units; look()) w.before += (w.ways - 1) * units, ++w.b;
            const i32 i = t - w.before;
            unit = i / (w.ways - 1);
            w.split = 1 + i - unit * (w.ways - 1);
        } else {
            t -= w.more;
            if (t >= units * p.B) return false;
            w.b = divide(t, units, w.over_units, unit);
            w.split = 0;
            look();
        }
        w.over_ways = inverse_of(w.ways);
    } else
#endif
    {
        const i32 ways = few_ways(p, w), of_all = divide(t, ways, w.over_ways, w.split);
        if (of_all >= units * p.B) return false;
        w.b = divide(of_all, units, w.over_units, unit);
#if WS_LENS
        w.keys = min(max(ragged(p).used[w.b], 0), p.Sk);
#else
        w.keys = p.Sk;
#endif
    }
#if WS_LENS
    w.queries = p.Sq;
#endif
    i32 from_first;
    w.kv_head = divide(unit, p.row_tiles, w.over_row_tiles, from_first);
    w.head = w.kv_head * p.group;
#if WS_LENS
    w.kv_head = few_kv_head(p, w.kv_head);
#endif
    w.first_row = (p.row_tiles - 1 - from_first) * ROWS;   // the last rows, which may see most, first
    return true;
}
#endif

WS_DEV bool few_work_at(const Params& p, i32 t, Work& w) {
    if (!few_place_of(p, t, w)) return false;
    if (!kQuick) w.over = few_over(p);
    const i32 n = few_queries(p, w), first_query = few_query(w, w.first_row), last_query = min(n - 1, few_query(w, w.first_row + ROWS - 1));
    const i32 last = WS_CAUSAL ? min(w.keys, w.keys - n + last_query + 1) : w.keys;
    const i32 steps = last > 0 ? (last + KEYS * kWhole - 1) / (KEYS * kWhole) : 0, ways = few_ways(p, w);
    i32 rest;
    const i32 share = divide(steps + ways - 1, ways, w.over_ways, rest);
    w.base = min(steps, w.split * share) * kWhole;
    w.tiles = min(steps, (w.split + 1) * share) * kWhole - w.base;
    w.first_tile = max(0, min(w.tiles - 1, min(w.keys, w.keys - n + first_query + 1) / KEYS - 1 - w.base));
    return true;
}

// How many there are, once few_place_of has found no more.
WS_DEV i32 few_all(const Params& p, const Work& w) { return kDecides && !kVarlen && w.over_share != 0 ? p.row_tiles * p.Hkv * p.B + w.more : (kVarlen ? w.before * p.Hkv : p.row_tiles * p.Hkv * p.B) * few_ways(p, w); }

// Which query of which head of a group a packed row is; less than 0 where it is none. n: a head's queries.
struct FewRow {
    i32 of_group, query;
};
WS_DEV FewRow few_row_of(const Params& p, const Work& w, i32 n, i32 row) {
    const i32 query = few_query(w, row);
    return {row - query * p.group, query < n ? query : -1};
}

// Whether 64 rows are whole groups of heads: then a box of (D, heads of a group, queries) has them as they are packed. (Row by row D 256 over few keys takes up to 1.6 times as long, D 128 1.1, D 64 by four consumers 1.25.)
WS_DEV bool few_boxes(const Params& p) { return p.group <= 64 && (p.group & (p.group - 1)) == 0; }

// Arrivals at the barrier of a row tile's Q: each lane's copies, or one for all boxes, and then one for the factors.
WS_DEV u32 few_arrivals(const Params& p) { return few_boxes(p) ? 2 : 33; }

// A row tile's rows of Q by boxes, by one thread: zeros behind the last query of all, and whatever lies there behind a sequence's.
WS_DEV void few_load_queries(const Params& p, const Work& w, const TensorMap* qm, u32 q, u32 bar) {
    const i32 first = few_query(w, w.first_row) + (kVarlen ? w.first_q : 0), each = 64 / p.group;
    mbarrier_expect_tx(bar, kQBytes);
#pragma unroll
    for (i32 g = 0; g < WGS; ++g)
#pragma unroll
        for (i32 half = 0; half < (D + 127) / 128; ++half) tma_load_4d(q + g * (64 * D) + half * (64 * 128), qm, bar, half * 128, w.head, first + g * each, kVarlen ? 0 : w.b);
    copies_issued(bar);
}

// Brings a row tile's rows of Q, zeros for what is no row, and leaves each one's factor, 0 for what is none: by the warp that loads K, a row tile ahead of who reads them.
WS_DEV void few_bring_rows(const Params& p, const Work& w, const TensorMap* qm, u32 q, u32 factors, u32 bar, u32 lane) {
    constexpr i32 kEach = ROWS / 32, kLanes = D / 16, kAtOnce = 32 / kLanes;   // a lane's rows; lanes that copy a row; rows at once
    const bool boxes = few_boxes(p);
    if (boxes && lane == 0) few_load_queries(p, w, qm, q, bar);
    constexpr i32 kUnroll = D == 256 ? 1 : 4;   // two consumers of D 256 leave 40 registers
    const float* scales = p.q_scale + w.b * p.qs_b + w.head * p.qs_h;
    const u8* from = p.q + (kVarlen ? w.first_q * p.q_s : w.b * p.q_b) + w.head * p.q_h;
    const i32 n = few_queries(p, w);
    const float c = (kBlocks ? 1.0f : load_f32(p.k_scale + w.b * p.ks_b + kv_head_of(p, w) * p.ks_h)) * p.softmax_scale_log2;   // kBlocks: K's scale is a tile's
    const u32 chunk = lane % kLanes, among = lane / kLanes;
    float scale[kEach];   // asked for all at once
#pragma unroll
    for (i32 i = 0; i < kEach; ++i) {
        const FewRow at = few_row_of(p, w, n, w.first_row + static_cast<i32>(lane) + 32 * i);
        i32 place = -1;   // in 16 bytes
        scale[i] = 0.0f;
        if (at.query >= 0) {
            place = static_cast<i32>((at.of_group * p.q_h + at.query * p.q_s) / 16);
            scale[i] = load_f32(scales + at.of_group * p.qs_h + (at.query >> 7) * p.qs_t);
        }
        if (boxes) continue;
#pragma unroll(kUnroll)
        for (i32 j = 0; j < 32; j += kAtOnce) {
            const i32 source = __shfl_sync(0xFFFFFFFFu, place, j + among);
            const u32 row = i % 2 * 32 + j + among;   // of a consumer's 64
            cp_async_16(q + i / 2 * (64 * D) + chunk / 8 * (64 * 128) + swizzled<kPitch>(row, chunk % 8), from + static_cast<i64>(max(source, 0)) * 16 + chunk * 16, source < 0 ? 0 : 16);
        }
    }
    if (!boxes) cp_async_arrive(bar);
#pragma unroll
    for (i32 i = 0; i < min(kEach, static_cast<i32>(kFactorBytes) / 128); ++i) store_shared_f32(factors + 4 * (lane + 32 * i), kBlocks ? c * scale[i] : score_factor(c * scale[i]));
}

// The same in the output: which of its rows, or less than 0.
WS_DEV i64 few_out_row(const Params& p, const Work& w, i32 head, i32 row) {
    const FewRow at = few_row_of(p, w, few_queries(p, w), row);
    if (at.query < 0) return -1;
    if (kVarlen) return static_cast<i64>(w.first_q + at.query) * p.Hq + head + at.of_group;   // head: of the sequence
    return static_cast<i64>(head + at.of_group) * p.Sq + at.query;
}

// The same in log-sum-exps, whose rows are outputs' (out_row), or, where sequences lie one behind another, those of each head one behind another.
WS_DEV i64 few_lse_row(const Params& p, const Work& w, i32 head, i32 row, i64 out_row) {
#if WS_LENS == 2
    const FewRow at = few_row_of(p, w, w.queries, row);
    return static_cast<i64>(head + at.of_group) * ragged(p).total_q + w.first_q + at.query;
#else
    return out_row;
#endif
}

// What a thread leaves of its part of a row tile for whoever adds: kOut outputs in f16, divided by their row's sum (a rounding finer than the output's own), then each row's reference and sum. In words of 16
// bytes, one behind another by threads. N: a thread's outputs, two and two of its two rows, then each row's sum, once or twice.
template <i32 N>
struct FewPart {
    static constexpr i32 kOut = N % 4 == 0 ? N - 4 : N - 2, kSum0 = kOut, kSum1 = N % 4 == 0 ? N - 2 : N - 1, kQuads = kOut / 8 + 1, kThreads = 128 * WGS;
    static_assert(kOut % 8 == 0, "whole words of 16 bytes");
};

WS_DEV float over(float x, float sum) { return sum == 0.0f ? 0.0f : x * rcp(sum); }

constexpr i32 kFan = 4;   // parts that one warp adds

// Whether none of a consumer's rows are there: then it has nothing to add, and what it would leave and read takes as long as what is. (H100, us: 1x64-8x5x8192x128 12.8 instead of 14.5, 4x28-4x9x4096 12.6 instead of 13.3. By warps, not consumers, slower:
// 1x32-8x64x16384x128 27.9 instead of 26.8, D 256 4 to 6%.)
WS_DEV bool few_without_rows(const Params& p, const Work& w, u32 group) { return WGS > 1 && w.first_row + static_cast<i32>(64 * group) >= p.group * few_queries(p, w); }

// Outputs of a part: of V's codes, at most 448, as f16; with kBlocks of V itself, whose scales may be any, as bf16.
WS_DEV u32 narrow(float a, float b) { return kBlocks ? bf16x2(a, b) : f16x2(a, b); }
WS_DEV void widen(u32 pair, float& a, float& b) {
    if (kBlocks) a = __uint_as_float(pair << 16), b = __uint_as_float(pair & 0xFFFF0000u);
    else f32_of_f16x2(pair, a, b);
}

// Leaves a thread's outputs, relative to 2^top (which become those of all), for whoever comes last of the warps that share the row tile's keys, kFan by kFan and then what those have added, always in the order of keys: true for the warp
// that has all of them. p.arrived: a counter for each part, by warps. One CTA's reading bounds this (64 bytes a cycle from the L2), which is why few are added at a time and outputs are narrow.
template <i32 N>
WS_DEV bool few_add(const Params& p, const Work& w, i32 head, u32 group, u32 thread, float (&o)[N], float& top0, float& top1) {
    if (kPacked) return true;   // over V^T that is made before nobody shares keys
    using Part = FewPart<N>;
    const i32 split = kDecides ? w.split & 0xFFFF : w.split, splits = kDecides ? w.split >> 16 : p.tiles_per_worker, unit = kVarlen ? w.unit : head / p.group * p.row_tiles + w.first_row / ROWS;
    const i64 place = static_cast<i64>(unit) * (kVarlen ? splits : p.tiles_per_worker);
    uint4* parts = reinterpret_cast<uint4*>(p.partial) + place * (Part::kQuads * Part::kThreads) + group * 128 + thread;
    i32 level = 0;
#pragma unroll 1
    for (i32 stride = 1; stride < splits; stride *= kFan, ++level) {
        const i32 first = split / (stride * kFan) * (stride * kFan), count = min(kFan, (splits - first + stride - 1) / stride);
        if (count == 1) continue;
        uint4* mine = parts + static_cast<i64>(split / stride * stride) * (Part::kQuads * Part::kThreads);
        const float f0 = over(1.0f, o[Part::kSum0]), f1 = over(1.0f, o[Part::kSum1]);
#pragma unroll
        for (i32 i = 0; i < Part::kOut; i += 8)
            __stcg(mine + i / 8 * Part::kThreads, make_uint4(narrow(o[i] * f0, o[i + 1] * f0), narrow(o[i + 2] * f1, o[i + 3] * f1), narrow(o[i + 4] * f0, o[i + 5] * f0), narrow(o[i + 6] * f1, o[i + 7] * f1)));
        __stcg(mine + Part::kOut / 8 * Part::kThreads, make_uint4(__float_as_uint(top0), __float_as_uint(top1), __float_as_uint(o[Part::kSum0]), __float_as_uint(o[Part::kSum1])));
        i32* counter = p.arrived + kDrawn + ((place + first + level) * WGS + group) * 4 + thread / 32;
        i32 before = 0;
        __syncwarp();
        if (thread % 32 == 0) before = add_in_order(counter, 1);
        if (__shfl_sync(0xFFFFFFFFu, before, 0) != count - 1) return false;
        __syncwarp();   // what lane 0 has acquired all may read
        if (thread % 32 == 0) *counter = 0;
        const uint4* x = parts + static_cast<i64>(first) * (Part::kQuads * Part::kThreads);
        const i64 next = static_cast<i64>(stride) * (Part::kQuads * Part::kThreads);
        float most0 = top0, most1 = top1;
        uint4 rows[kFan];
#pragma unroll
        for (i32 s = 0; s < kFan; ++s) {
            rows[s] = __ldcg(x + min(s, count - 1) * next + Part::kOut / 8 * Part::kThreads);
            most0 = fmaxf(most0, __uint_as_float(rows[s].x)), most1 = fmaxf(most1, __uint_as_float(rows[s].y));
        }
        float sum0 = 0.0f, sum1 = 0.0f, g0[kFan], g1[kFan];   // a part that is not there weighs nothing
#pragma unroll
        for (i32 s = 0; s < kFan; ++s) {
            g0[s] = s < count ? ex2(__uint_as_float(rows[s].x) - most0) * __uint_as_float(rows[s].z) : 0.0f;
            g1[s] = s < count ? ex2(__uint_as_float(rows[s].y) - most1) * __uint_as_float(rows[s].w) : 0.0f;
            sum0 += g0[s], sum1 += g1[s];
        }
#pragma unroll
        for (i32 i = 0; i < Part::kOut; ++i) o[i] = 0.0f;
        auto word = [&](i32 s, i32 i) { return __ldcg(x + s * next + i * Part::kThreads); };
        auto add = [&](i32 s, i32 i, uint4 y) {
            const u32 pairs[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (i32 j = 0; j < 4; ++j) {
                float low, high;
                widen(pairs[j], low, high);
                float& o0 = o[8 * i + 2 * j];
                float& o1 = o[8 * i + 2 * j + 1];
                o0 = fmaf(low, j % 2 ? g1[s] : g0[s], o0), o1 = fmaf(high, j % 2 ? g1[s] : g0[s], o1);
            }
        };
        if (D == 256) {
#pragma unroll
            for (i32 s = 0; s < kFan; ++s) {
                if (s >= count) break;
#pragma unroll
                for (i32 i = 0; i < Part::kOut / 8; ++i) add(s, i, word(s, i));
            }
        } else {
            // By words, not by parts: all parts' are under way at once. D 64 2 to 9% faster over shares of keys (1x16x64x4096 8.8 us instead of 9.3), D 128 3% with few rows, 1% slower with many; at D 256 slower (1x16-8x64x8192 26.8 us instead of 25.4): it has no registers for it.
#pragma unroll
            for (i32 i = 0; i < Part::kOut / 8; ++i) {
                uint4 y[kFan];
#pragma unroll
                for (i32 s = 0; s < kFan; ++s) y[s] = word(min(s, count - 1), i);
#pragma unroll
                for (i32 s = 0; s < kFan; ++s) add(s, i, y[s]);
            }
        }
        o[Part::kSum0] = sum0, o[Part::kSum1] = sum1, top0 = most0, top1 = most1;
    }
    return true;
}
