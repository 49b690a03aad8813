// The products and copies of forward_f16.cu and forward_e4m3.cu made of instructions that the PTX machine executes, for gates on the CPU. To be included before one of
// them: from here on the names of wgmma's and the tensor copies' wrappers are those of the functions below, which do the same to the same shared memory and registers, at
// once.
//
// What it judges is all else: the consumers' code and arithmetic, the widening or transposition, the rings and their barriers, races included. What it cannot: what is left
// undone while a product or a copy is under way, and the descriptors' bits that it does not read; nor the narrow accumulator of wgmma's FP8 products.
// Wants WS_D and WS_WGS. Operands of scores are rows of WS_D bytes, or of 128 and, from 256 on, more of them behind; of values rows of 128.
#pragma once
#include "half.cuh"
#include "wgmma_f16.cuh"

constexpr u32 kPlainPitch = WS_D < 128 ? WS_D : 128, kPlainMask = kPlainPitch == 128 ? 7 : 3, kPlainChunks = kPlainPitch / 16;
constexpr u32 kCounted = 1, kColumns = 2, kQueries = 4;   // of a map

// A tensor map as plain_tma_load reads it: address, strides over (batch, head, row), rows, those of a box, 16-byte chunks of each, and what it is: kCounted where copies arrive
// themselves, kColumns where columns are keys, of which a row has as many as its stride says, kQueries where a box is of all heads of a group, the ninth word, and of as many queries as that makes 64 rows.
WS_DEV TensorMap plain_map(const u8* p, i64 b, i64 h, i64 s, i32 rows, u32 box, u32 chunks = kPlainChunks, u32 what = kCounted) {
    return TensorMap{{reinterpret_cast<u64>(p), static_cast<u64>(b), static_cast<u64>(h), static_cast<u64>(s), static_cast<u64>(rows), box, chunks, what}};
}

// That of queries, of which a head has so many.
template <typename P>
WS_DEV TensorMap plain_queries(const P& p, i32 queries, i64 b) {
    TensorMap map = plain_map(p.q, b, p.q_h, p.q_s, queries, 64, kPlainChunks, kQueries);
    map.opaque[8] = p.group;
    return map;
}

// Copies arrive themselves, or whoever has issued them all does, unless there is none, or unless their bytes were announced without an arrival: then one follows.
// WS_LENS with WS_BLOCKS: only queries' are announced with one, and another one follows; keys' and values' copies, of which there may be several, must not arrive.
#if defined(WS_LENS) && defined(WS_BLOCKS) && WS_LENS && WS_BLOCKS
WS_DEV void plain_expect_tx(u32 bar, u32) { mbarrier_arrive(bar); }
WS_DEV void plain_copies_issued(u32) {}
#else
WS_DEV void plain_expect_tx(u32 bar, u32 bytes) {
    if (bytes == 0) mbarrier_arrive(bar);
}
WS_DEV void plain_copies_issued(u32 bar) { mbarrier_arrive(bar); }
#endif
WS_DEV void plain_expect_only(u32, u32) {}

// One thread copies rows of 64 or 128 bytes, swizzled, zeros beyond the last, and arrives: of several boxes of one tile, or of one row tile's queries, only the last one does.
WS_DEV void plain_tma_load(u32 smem, const TensorMap* map, u32 bar, i32 column, i32 first, i32 head, i32 b) {
    const u64(&m)[16] = map->opaque;
    if (m[7] & kQueries) {   // first is a head, and head the first query
        const i32 group = static_cast<i32>(m[8]);
#pragma unroll 1
        for (i32 i = 0; i < 64 * static_cast<i32>(m[6]); ++i) {
            const i32 row = i / static_cast<i32>(m[6]), chunk = i % static_cast<i32>(m[6]), query = head + row / group;
            const u8* at = reinterpret_cast<const u8*>(m[0]) + b * static_cast<i64>(m[1]) + (first + row % group) * static_cast<i64>(m[2]) + query * static_cast<i64>(m[3]) + column;
            uint4 x = make_uint4(0, 0, 0, 0);
            if (query < static_cast<i32>(m[4])) x = reinterpret_cast<const uint4*>(at)[chunk];
            store_shared_16(smem + (m[6] == 8 ? swizzled<128>(row, chunk) : swizzled<64>(row, chunk)), x.x, x.y, x.z, x.w);
        }
        return;
    }
    const u8* from = reinterpret_cast<const u8*>(m[0]) + b * static_cast<i64>(m[1]) + head * static_cast<i64>(m[2]) + column;
    const i32 rows = static_cast<i32>(m[4]), box = static_cast<i32>(m[5]), chunks = static_cast<i32>(m[6]);
#pragma unroll 1
    for (i32 i = 0; i < chunks * box; ++i) {
        const i32 row = i / chunks, chunk = i % chunks;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (first + row < rows && (!(m[7] & kColumns) || column < static_cast<i32>(m[3]))) x = reinterpret_cast<const uint4*>(from + (first + row) * static_cast<i64>(m[3]))[chunk];
        store_shared_16(smem + (chunks == 8 ? swizzled<128>(row, chunk) : swizzled<64>(row, chunk)), x.x, x.y, x.z, x.w);
    }
    const bool last = (m[7] & kColumns) || (column + 128 >= WS_D && (box != 64 || first / 64 % WS_WGS == WS_WGS - 1));
    if ((m[7] & kCounted) && last) mbarrier_arrive(bar);
}

// One thread copies a box of rows of 128 bytes back, all of which lie within the tensor.
WS_DEV void plain_tma_store(u32 smem, const TensorMap* map, i32 column, i32 first, i32 head, i32 b) {
    const u64(&m)[16] = map->opaque;
    u8* const to = reinterpret_cast<u8*>(m[0]) + b * static_cast<i64>(m[1]) + head * static_cast<i64>(m[2]) + column;
#pragma unroll 1
    for (i32 i = 0; i < 8 * static_cast<i32>(m[5]); ++i) {
        uint4 x;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(smem + swizzled<128>(i / 8, i % 8)) : "memory");
        reinterpret_cast<uint4*>(to + (first + i / 8) * static_cast<i64>(m[3]))[i % 8] = x;
    }
}

// The address behind a descriptor's low word, its leading offset, its rows' pitch, and the address of a byte, swizzled.
WS_DEV u32 plain_pitch(u64 desc) { return (static_cast<u32>(desc >> 32) & 0x3FFF) * 16 / 8; }
WS_DEV u32 plain_start(u64 desc) { return (static_cast<u32>(desc) & 0x3FFF) << 4; }
WS_DEV u32 plain_leading(u64 desc) { return (static_cast<u32>(desc) >> 16 & 0x3FFF) << 4; }
template <u32 kMask>
WS_DEV u32 plain_swizzled(u32 addr) {
    return addr ^ (addr >> 7 & kMask) << 4;
}

WS_DEV void plain_mma_pairs(u32* d, const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A's operand of a warp: 16 of the warpgroup's 64 rows, 32 bytes of each.
WS_DEV void plain_rows(u32 (&a)[4], u64 a_desc) {
    const u32 lane = threadIdx.x % 32;
    ldmatrix_x4(a, plain_swizzled<kPlainMask>(plain_start(a_desc) + (threadIdx.x % 128 / 32 * 16 + lane % 16) * kPlainPitch + lane / 16 * 16));
}

WS_DEV void plain_wgmma_pairs(u32 (&d)[32], u64 a_desc, u64 b_desc) {
    const u32 lane = threadIdx.x % 32, row = lane % 16, right = lane / 16 * 16;
    u32 a[4];
    plain_rows(a, a_desc);
#pragma unroll
    for (u32 n = 0; n < 8; ++n) {
        u32 b[4];   // keys 0-7, keys 8-15, then their next 16 bytes
        ldmatrix_x4(b, plain_swizzled<kPlainMask>(plain_start(b_desc) + (16 * n + row) * kPlainPitch + right));
        plain_mma_pairs(d + 4 * n, a, b[0], b[2]);
        plain_mma_pairs(d + 4 * n + 2, a, b[1], b[3]);
    }
}

WS_DEV void plain_wgmma_pairs_first(u32 (&d)[32], u64 a_desc, u64 b_desc) {
#pragma unroll
    for (u32 i = 0; i < 32; ++i) d[i] = 0;
    plain_wgmma_pairs(d, a_desc, b_desc);
}

template <bool kRows>
WS_DEV void plain_wgmma_f16(float (&d)[36], const u32 (&a)[4], u64 b_desc) {
    const u32 lane = threadIdx.x % 32, start = plain_start(b_desc), right = lane / 16 * 16;
    u32 b[4];
    if (kRows) {   // eight columns of keys 0-7, of keys 8-15, then the next eight
        const u32 key = lane % 16 * 128;
#pragma unroll
        for (u32 n = 0; n < 8; n += 2) {
            ldmatrix_x4_trans(b, plain_swizzled<7>(start + key + n * 16 + right));
            mma_f16(d + 4 * n, a[0], a[1], a[2], a[3], b[0], b[1]);
            mma_f16(d + 4 * n + 4, a[0], a[1], a[2], a[3], b[2], b[3]);
        }
        ldmatrix_x4_trans(b, plain_swizzled<7>(start + plain_leading(b_desc) + key + right));
        mma_f16(d + 32, a[0], a[1], a[2], a[3], b[0], b[1]);
    } else {   // eight rows of keys 0-7, the next eight, then both of keys 8-15
#pragma unroll
        for (u32 n = 0; n < 8; n += 2) {
            ldmatrix_x4(b, plain_swizzled<7>(start + (8 * n + lane % 16) * 128 + right));
            mma_f16(d + 4 * n, a[0], a[1], a[2], a[3], b[0], b[2]);
            mma_f16(d + 4 * n + 4, a[0], a[1], a[2], a[3], b[1], b[3]);
        }
        ldmatrix_x4(b, plain_swizzled<7>(start + (64 + lane % 8) * 128 + right));
        mma_f16(d + 32, a[0], a[1], a[2], a[3], b[0], b[2]);
    }
}

// A row of B for each column of D, 64 or 128 bytes of codes: eight rows by 16 bytes of k, the next eight, then both of the next 16 bytes.
template <i32 N>
WS_DEV void plain_wgmma(float (&d)[N], const u32 (&a)[4], u64 b_desc, i32 accumulate) {
    constexpr u32 kBlocksOf8 = N / 4;
    const u32 lane = threadIdx.x % 32, start = plain_start(b_desc), right = lane / 16 * 16, pitch = plain_pitch(b_desc);
    if (!accumulate) {
#pragma unroll
        for (i32 i = 0; i < N; ++i) d[i] = 0.0f;
    }
#pragma unroll
    for (u32 n = 0; n < kBlocksOf8; n += 2) {
        const bool two = n + 1 < kBlocksOf8;
        const u32 at = start + (8 * n + (two ? lane % 16 : lane % 8)) * pitch + right;
        u32 b[4];
        ldmatrix_x4(b, pitch == 128 ? plain_swizzled<7>(at) : plain_swizzled<3>(at));
        mma_e4m3(d + 4 * n, a, b[0], b[2]);
        if (two) mma_e4m3(d + 4 * n + 4, a, b[1], b[3]);
    }
}

template <i32 N>
WS_DEV void plain_wgmma(float (&d)[N], u64 a_desc, u64 b_desc, i32 accumulate) {
    u32 a[4];
    plain_rows(a, a_desc);
    plain_wgmma(d, a, b_desc, accumulate);
}

WS_DEV void plain_prefetch(const TensorMap*) {}
WS_DEV void plain_prefetch_4d(const TensorMap*, i32, i32, i32, i32) {}

WS_DEV void plain_nothing() {}

template <int N>
WS_DEV void plain_bulk_wait() {}

// wgmma's wait is for all of a warp's reads.
template <int N>
WS_DEV void plain_wait() {
    __syncwarp();
}

#define tma_load_4d plain_tma_load
#define tma_store_4d plain_tma_store
#define bulk_commit plain_nothing
#define bulk_wait plain_bulk_wait
#define bulk_wait_read plain_bulk_wait
#define tma_prefetch_4d plain_prefetch_4d
#define copies_issued plain_copies_issued
#define mbarrier_expect_tx plain_expect_tx
#define mbarrier_expect_only plain_expect_only
#define prefetch_tensor_map plain_prefetch
#define wgmma plain_wgmma
#define wgmma_pairs plain_wgmma_pairs
#define wgmma_pairs_first plain_wgmma_pairs_first
#define wgmma_f16 plain_wgmma_f16
#define wgmma_fence plain_nothing
#define wgmma_commit plain_nothing
#define wgmma_wait plain_wait
