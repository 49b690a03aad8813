// attention_transpose: V's e4m3 codes from rows of keys to rows of head dimension, once for a call, for kernels that take V^T in whole tiles (WS_PACKED).
//
// v (B, H, S, D), any strides with a contiguous last dimension and rows on 16 bytes; v_t (B, H, D, 128 * ceil(S / 128)) as transpose.cuh lays a tile of 128 keys (and pack.cu),
// zero behind S; both by tensor maps of boxes of a tile. A kernel that transposes in shared memory does so for each row tile again, which is a third of what a tile of D 256 moves there.
// Few CTAs, each a whole SM, make tile after tile in the order in which they are wanted (made.cuh), and say how far they are: the next kernel begins on the other SMs once all earlier ones have ended, and waits for each tile by itself.
// Assumes: WS_D 128 or 256. kGroups tiles at once; any number of CTAs where t.made is null, else a power of two.
// Roles: 8 warps of each group: in_full, out_empty -> ldmatrix, permute, stmatrix -> out_full, in_empty. Then a warp of each: in_empty -> TMA V -> in_full; and one of each: out_full -> TMA V^T -> out_empty, how many there are.
// WS_LENS: of sequences whose lengths only the device knows, in caches or pages (1), or one behind another (2); by all SMs before, never beside.
// Judged on the PTX machine: gate_any_forward_e4m3_transposed_plain.cu, gate_any_forward_e4m3_few_varlen_made_plain.cu.
// Measured, 33.5 MB of 4x16x4096x128 after other data, H100, 2026-11-27, us by 16, 32 and all SMs alone: 50 to 55, 28 to 30, 24 to 26. Losers: tiles through registers, 1,024 threads an SM, 71 to 94, 38 to 47, 26; the same by cp.async, 198 KB on their way: alike (the
// SM's own pipes bound it: a fifth of the instructions were divisions, without which it was no faster). V^T out by ordinary stores of four warps of a group, which leaves loads alone to the unit that copies boxes (2026-11-28, alone, by 16, 32 and all SMs, D 256: 54, 30 and 26 instead of 72, 43 and 26;
// D 128: 53, 29 and 26 instead of 56, 36 and 25): attention beside it took 0.98 to 1.01 of its time in eight calls, 0.999 in the mean.
#include "half.cuh"
#include "made.cuh"
#include "transpose.cuh"

static_assert(WS_D == 128 || WS_D == 256, "head dimensions whose V^T is made before");

#if WS_LENS == 2
// Of sequences one behind another: v (S, H, D), v_t (H, D, 128 * (S / 128 + B)), where sequence b's tiles begin with tile cu[b] / 128 + b, so that none are in each other's way.
struct Values {
    const i32* cu;   // (B + 1,) where sequences begin, and the last one ends
    i32 H, S, B;
};
#elif WS_LENS
// Of caches: v (B, H, S, D), or pages of as many keys as divide a tile or as tiles divide; v_t (B, H, D, 128 * ceil(S / 128)), of which each sequence's tiles with keys are made.
struct Values {
    const i32* used;    // (B,) keys of each
    const i32* pages;   // (B, S / page_size), or null; whatever page it names, one that is there is read
    i64 pages_b;
    i32 H, S, B, page_size, page_count;
};
#endif

#if WS_LENS
// A worker's tiles: sequences' one after the other, heads of a tile side by side. A tile's keys behind its sequence's last one become zeros. What lies in whose tiles, whatever lengths are, lies within v and v_t.
struct OwnTiles {
    const Values& t;
    i32 n, workers, b = 0, before = 0, first = 0, keys = 0, block = 0, head = 0;

    WS_DEV_MEMBER OwnTiles(const Values& t, i32 worker, i32 workers) : t(t), n(worker), workers(workers) { find(); }
    WS_DEV_MEMBER bool more() const { return b < t.B; }
    WS_DEV_MEMBER void find() {
        for (; b < t.B; ++b) {
#if WS_LENS == 2
            first = min(max(__ldg(t.cu + b), 0), t.S);
            keys = min(max(__ldg(t.cu + b + 1) - first, 0), t.S - first);
#else
            keys = min(max(__ldg(t.used + b), 0), t.S);
#endif
            const i32 units = (keys + 127) / 128 * t.H, i = n - before;
            if (i < units) {
                block = i / t.H, head = i - block * t.H;
                return;
            }
            before += units;
        }
    }
    WS_DEV_MEMBER void next() { n += workers, find(); }
    WS_DEV_MEMBER i32 there() const { return keys - block * 128; }
    WS_DEV_MEMBER void load(u32 to, const TensorMap* map, u32 full) const {
#if WS_LENS == 1
        if (t.pages) {
            const i32 key = block * 128, box = min(128, t.page_size), last = (keys - 1) / t.page_size;
            const i32* pages = t.pages + b * t.pages_b;
            for (i32 at = 0; at < 128; at += box) {   // of pages behind the last key's that one
                const i32 i = min((key + at) / t.page_size, last), page = min(max(__ldg(pages + i), 0), t.page_count - 1), row = (key + at) % t.page_size;
#pragma unroll
                for (i32 half = 0; half < WS_D / 128; ++half) tma_load_4d(to + (half * 128 + at) * 128, map, full, half * 128, row, head, page);
            }
            copies_issued(full);
            return;
        }
#endif
#pragma unroll
        for (i32 half = 0; half < WS_D / 128; ++half) tma_load_4d(to + half * (128 * 128), map, full, half * 128, first + block * 128, head, WS_LENS == 1 ? b : 0);
        copies_issued(full);
    }
    WS_DEV_MEMBER void store(u32 from, const TensorMap* map) const {
        if (WS_LENS == 1) tma_store_4d(from, map, block * 128, 0, head, b);
        else tma_store_4d(from, map, (first / 128 + b + block) * 128, 0, head, 0);
    }
};
#else
struct Values {
    i32* made;            // counters (made.cuh), or null
    i32 H, S;
    i32 heads, section;   // of all sequences; of which tiles are made one block of keys after the other
};
#endif

namespace transposing {
constexpr i32 kKeys = 128, kWarps = 8, kGroups = 256 / WS_D, kThreads = 32 * kGroups * (kWarps + 2), kIn = 4, kOut = 2;
constexpr u32 kBytes = kKeys * WS_D, kGroupBytes = (kIn + kOut) * kBytes, kBarriers = kGroups * kGroupBytes;
}

extern "C" __global__ void __launch_bounds__(transposing::kThreads, 1)
    attention_transpose(const __grid_constant__ Values t, const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap vt_map) {
    using namespace transposing;
    extern __shared__ __align__(1024) u8 smem_of_tiles[];
    const u32 base = smem_addr(smem_of_tiles), warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const i32 workers = gridDim.x * kGroups;
    const u32 group = warp < kWarps * kGroups ? warp / kWarps : warp % kGroups, role = warp < kWarps * kGroups ? 0 : (warp - kWarps * kGroups) / kGroups + 1;
    const i32 worker = group * gridDim.x + blockIdx.x;
    const u32 in = base + group * kGroupBytes, out = in + kIn * kBytes, bars = base + kBarriers + group * (16 * (kIn + kOut));
    auto in_full = [&](u32 i) { return bars + 16 * i; };
    auto in_empty = [&](u32 i) { return bars + 16 * i + 8; };
    auto out_full = [&](u32 i) { return bars + 16 * (kIn + i); };
    auto out_empty = [&](u32 i) { return bars + 16 * (kIn + i) + 8; };
    if (role == 1 && lane == 0) {
        for (u32 i = 0; i < kIn; ++i) mbarrier_init(in_full(i), 1), mbarrier_init(in_empty(i), kWarps);
        for (u32 i = 0; i < kOut; ++i) mbarrier_init(out_full(i), kWarps), mbarrier_init(out_empty(i), 1);
        mbarrier_init_fence();
        prefetch_tensor_map(&v_map);
        prefetch_tensor_map(&vt_map);
    }
    __syncthreads();
    wait_for_earlier_kernels();
    let_next_kernel_start();   // and not before: the next kernel's queries and keys may be theirs

#if WS_LENS
    if (role == 0) {
        u32 n = 0;
        for (OwnTiles walk(t, worker, workers); walk.more(); walk.next(), ++n) {
            const u32 own = warp % kWarps * (kKeys / kWarps), from = in + n % kIn * kBytes;   // the warp's first key, of a share that it alone transposes
            mbarrier_wait(in_full(n % kIn), n / kIn & 1);
            mbarrier_wait(out_empty(n % kOut), n / kOut & 1 ^ 1);
            for (i32 i = max(walk.there(), static_cast<i32>(own)) * 8 + lane; i < static_cast<i32>(own + kKeys / kWarps) * 8; i += 32)
#pragma unroll
                for (i32 half = 0; half < WS_D / 128; ++half) store_shared_16(from + half * (kKeys * 128) + 16 * i, 0, 0, 0, 0);
            __syncwarp();
            transpose_share<WS_D, kKeys, kWarps>(from, out + n % kOut * kBytes, warp % kWarps, lane);
            fence_async_shared();
            __syncwarp();
            if (lane == 0) mbarrier_arrive(in_empty(n % kIn)), mbarrier_arrive(out_full(n % kOut));
        }
    } else if (lane == 0) {
        u32 n = 0;
        if (role == 1) {
            for (OwnTiles walk(t, worker, workers); walk.more(); walk.next(), ++n) {
                const u32 full = in_full(n % kIn), to = in + n % kIn * kBytes;
                mbarrier_wait(in_empty(n % kIn), n / kIn & 1 ^ 1);
                mbarrier_expect_tx(full, kBytes);
                walk.load(to, &v_map, full);
            }
        } else {
            for (OwnTiles walk(t, worker, workers); walk.more(); walk.next(), ++n) {
                mbarrier_wait(out_full(n % kOut), n / kOut & 1);
                walk.store(out + n % kOut * kBytes, &vt_map);
                bulk_commit();
                bulk_wait_read<1>();
                if (n > 0) mbarrier_arrive(out_empty((n - 1) % kOut));
            }
            bulk_wait<0>();
        }
    }
}
#else
    const i32 blocks = (t.S + kKeys - 1) / kKeys, total = blocks * t.heads;
    if (role == 0) {
        u32 n = 0;
        for (i32 at = worker; at < total; at += workers, ++n) {
            mbarrier_wait(in_full(n % kIn), n / kIn & 1);
            mbarrier_wait(out_empty(n % kOut), n / kOut & 1 ^ 1);
            transpose_share<WS_D, kKeys, kWarps>(in + n % kIn * kBytes, out + n % kOut * kBytes, warp % kWarps, lane);
            fence_async_shared();
            __syncwarp();
            if (lane == 0) mbarrier_arrive(in_empty(n % kIn)), mbarrier_arrive(out_full(n % kOut));
        }
    } else if (lane == 0) {
        MadeWalk walk({t.heads, t.section, blocks}, worker, workers);
        if (role == 1) {
            for (u32 n = 0; walk.more(); walk.next(), ++n) {
                const u32 full = in_full(n % kIn), to = in + n % kIn * kBytes;
                mbarrier_wait(in_empty(n % kIn), n / kIn & 1 ^ 1);
                mbarrier_expect_tx(full, kBytes);
#pragma unroll
                for (i32 half = 0; half < WS_D / 128; ++half) tma_load_4d(to + half * (kKeys * 128), &v_map, full, half * 128, walk.block * kKeys, walk.head % t.H, walk.head / t.H);
            }
        } else {
            i32 n = 0;
            for (; walk.more(); walk.next(), ++n) {
                mbarrier_wait(out_full(n % kOut), n / kOut & 1);
                tma_store_4d(out + n % kOut * kBytes, &vt_map, walk.block * kKeys, 0, walk.head % t.H, walk.head / t.H);
                bulk_commit();
                bulk_wait_read<1>();
                if (n > 0) mbarrier_arrive(out_empty((n - 1) % kOut));
                if (n % 2 == 1 && n > 1 && t.made) {
                    bulk_wait<2>();
                    made_say(t.made, worker, n - 1);
                }
            }
            bulk_wait<0>();
            if (t.made) {
                if (n > 0) made_say(t.made, worker, n);
                made_end(t.made);
            }
        }
    }
}
#endif
