// How portable.cu's tiles of K and V come to shared memory: by cp.async as bytes, and the lanes' loads of matrices from there.
//
// Wants D, kCtaThreads and Part of portable.cu, KEYS, kBytesTile (how far V's tile lies behind K's), and chunk_at(row, chunk): where sixteen codes of a tile lie. Knows nothing of products.
#pragma once

// Keeps a number in its register: the compiler would rather compute it again in every tile.
WS_DEV void hold(u32& x) { asm volatile("" : "+r"(x)); }
WS_DEV void hold(i64& x) { asm volatile("" : "+l"(x)); }

// Four matrices of eight rows of 16 bytes, `kBytes` behind what the lanes' addresses say; transposed in pairs of bytes.
template <u32 kBytes, bool kTransposed>
WS_DEV void matrices_at(u32 (&r)[4], u32 addr) {
    if (kTransposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(addr), "n"(kBytes)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(addr), "n"(kBytes)
                     : "memory");
}

template <u32 kBytes>
WS_DEV void copy_16_to(u32 smem, const u8* gmem, u32 valid_bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0 + %3], [%1], 16, %2;" ::"r"(smem), "l"(gmem), "r"(valid_bytes), "n"(kBytes) : "memory");
}

// This thread's part of copying tiles of keys: a chunk of every kRows-th row.
struct Copier {
    static constexpr i32 kChunks = D / 16, kRows = kCtaThreads / kChunks, kPasses = KEYS / kRows;
    static_assert(kRows % 8 == 0, "a pass keeps chunk_at's order");
    const u8* k;
    const u8* v;
    i64 k_pass, v_pass;
    u32 to, row;   // in a tile

    WS_DEV_MEMBER Copier(const Params& p, const Part& part) {
        const u32 chunk = threadIdx.x % kChunks;
        row = threadIdx.x / kChunks;
        k = part.k + chunk * 16;
        v = part.v + chunk * 16;
        if (!part.in_pages()) {
            k += (part.from_key + static_cast<i32>(row)) * p.k_s;
            v += (part.from_key + static_cast<i32>(row)) * p.v_s;
        }
        k_pass = kRows * p.k_s, v_pass = kRows * p.v_s;
        to = chunk_at(row, chunk);
        hold(to);
        hold(k_pass);
        hold(v_pass);
    }

    // Passes from kPass on, of whole tiles.
    template <i32 kPass>
    WS_DEV_MEMBER void passes(u32 stage) {
        if constexpr (kPass < kPasses) {
            copy_16_to<kPass * kRows * D>(stage, k, 16);
            copy_16_to<kPass * kRows * D + kBytesTile>(stage, v, 16);
            k += k_pass;
            v += v_pass;
            passes<kPass + 1>(stage);
        }
    }

    // The copy of the tile from key `first` on, and a group of it; keys behind the part's are zeros. Tiles are asked for in order.
    WS_DEV_MEMBER void copy(const Params& p, const Part& part, u32 stage, i32 first) {
        stage += to;
        const i32 left = part.to_key - first - static_cast<i32>(row);
        if (part.in_pages()) {
#if WS_LENS
            if (first < part.to_key) {
#pragma unroll
                for (i32 i = 0; i < kPasses; ++i) {
                    const bool inside = i * kRows < left;
                    const i32 key = inside ? first + static_cast<i32>(row) + i * kRows : 0;
                    cp_async_16(stage + i * kRows * D, k + part.in_page(key, p.k_s, p.k_b), inside ? 16 : 0);
                    cp_async_16(stage + i * kRows * D + kBytesTile, v + part.in_page(key, p.v_s, p.v_b), inside ? 16 : 0);
                }
            }
#endif
        } else if (first + KEYS <= part.to_key) {
            passes<0>(stage);
        } else if (first < part.to_key) {
#pragma unroll
            for (i32 i = 0; i < kPasses; ++i) {
                const bool inside = i * kRows < left;   // nothing is read of what is not: any address will do
                cp_async_16(stage + i * kRows * D, inside ? k : p.k, inside ? 16 : 0);
                cp_async_16(stage + i * kRows * D + kBytesTile, inside ? v : p.v, inside ? 16 : 0);
                k += k_pass;
                v += v_pass;
            }
        }
        cp_async_commit();
    }
};
