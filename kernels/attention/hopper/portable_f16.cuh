// portable.cu's way over the keys where there are no products in e4m3: FP16 arithmetic on dequantised tiles, from sm_80 on.
//
// Wants D, Rows and Part of portable.cu. Knows nothing of where results go.
//     per tile of 64 (D 256: 32) keys:  wait for its copy | bar | widen it, start the next one's | bar | S = Q K^T | softmax in registers | O = O a + P V
// K and V come by cp.async as bytes; whoever copied sixteen of them widens them. An e4m3's bits at a half's place are its value times 2^-8, subnormals too: that goes into
// the scales. Up to D 128 two warps share 32 rows, each over half of a tile's keys with a softmax of its own, so that what ldmatrix loads is multiplied by both
// of a warp's halves of rows; they meet once, in shared memory. At D 256 a warp has 16 rows, as there are no registers for more.
// Shared memory: Q, K and V as rows of D + 8 halves, 64 and twice KEYS of them; then K and V as bytes. Comes from: ladder level 08.
#pragma once

constexpr i32 KEYS = D == 256 ? 32 : 64, PITCH = D + 8;   // halves; 16 bytes more than the row, so that eight rows lie in different banks
constexpr i32 kCtas = D == 64 ? 3 : 2;   // on an SM: what registers allow
constexpr u32 kQBytes = kCtaRows * PITCH * 2, kTile = KEYS * PITCH * 2, kBytesTile = KEYS * D;
constexpr u32 kRaw = kQBytes + 2 * kTile, kSharedBytes = kRaw + 2 * kBytesTile;
static_assert(kSharedBytes <= 101376, "shared memory of a CTA on sm_86");
constexpr i32 kKeyWarps = D == 256 ? 1 : 2, kHalves = kKeyWarps;   // warps that share rows; sixteens of rows that a warp has
constexpr i32 kWarpKeys = KEYS / kKeyWarps;
static_assert(kWarpKeys == 32);

WS_DEV u32 chunk_at(u32 row, u32 chunk) { return row * D + chunk * 16; }

#include "portable_copy.cuh"

// 2^-8 times four e4m3 bytes, as four halves: exact. `nan` collects the bits of bytes that are no numbers, which this takes for 480.
WS_DEV uint2 halves(u32 x, u32& nan) {
    nan |= (x & 0x7F7F7F7F) + 0x01010101;
    const u32 low = __byte_perm(x, 0, 0x1404), high = __byte_perm(x, 0, 0x3424);   // each byte as its half's upper one
    return make_uint2((low & 0x80008000) | (low >> 1 & 0x3F803F80), (high & 0x80008000) | (high >> 1 & 0x3F803F80));
}

// Sixteen bytes.
WS_DEV void widen(u8* to, uint4 x) {
    u32 nan = 0;
    uint2 y[4] = {halves(x.x, nan), halves(x.y, nan), halves(x.z, nan), halves(x.w, nan)};
    if (nan & 0x80808080) {
#pragma unroll
        for (i32 i = 0; i < 4; ++i) {
            if ((y[i].x & 0x3F80) == 0x3F80) y[i].x |= 0x7E00;
            if ((y[i].x & 0x3F800000) == 0x3F800000) y[i].x |= 0x7E000000;
            if ((y[i].y & 0x3F80) == 0x3F80) y[i].y |= 0x7E00;
            if ((y[i].y & 0x3F800000) == 0x3F800000) y[i].y |= 0x7E000000;
        }
    }
    reinterpret_cast<uint4*>(to)[0] = make_uint4(y[0].x, y[0].y, y[1].x, y[1].y);
    reinterpret_cast<uint4*>(to)[1] = make_uint4(y[2].x, y[2].y, y[3].x, y[3].y);
}

WS_DEV void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

WS_DEV void store_out2(const Params& p, i64 at, float a, float b) {
    if (WS_OUT == kOutBf16) {
        *reinterpret_cast<u32*>(reinterpret_cast<u16*>(p.out) + at) = bf16x2(a, b);
    } else if (WS_OUT == kOutF16) {
        *reinterpret_cast<u32*>(reinterpret_cast<u16*>(p.out) + at) = f16x2(a, b);
    } else {
        *reinterpret_cast<u16*>(reinterpret_cast<u8*>(p.out) + at) = static_cast<u16>(e4m3_of(a * p.out_inverse_scale) | e4m3_of(b * p.out_inverse_scale) << 8);
    }
}

// What is left of a thread's two rows when all keys are done: o[i] are columns 8 i + 2 (lane % 4) + {0, 1} of both rows, in units of unit[h]; top
// is the largest score in powers of two, sum of 2^(score - top).
struct Done {
    float o[D / 8][4], top[2], sum[2], unit[2];
    static constexpr float kShift = 0.0f;
};

WS_DEV void clear_row(Done& done, i32 h) {
#pragma unroll
    for (i32 i = 0; i < D / 8; ++i) done.o[i][2 * h] = done.o[i][2 * h + 1] = 0.0f;
}

// Four neighbouring columns of an output row.
WS_DEV void store_four(const Params& p, i64 at, float a, float b, float c, float d) {
    store_out2(p, at, a, b);
    store_out2(p, at + 2, c, d);
}

// Writes row h times f, from there on.
WS_DEV void store_row(const Params& p, const Done& done, i64 at, i32 h, float f) {
    const i32 column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (i32 i = 0; i < D / 8; ++i) store_out2(p, at + 8 * i + column, done.o[i][2 * h] * f, done.o[i][2 * h + 1] * f);
}

// The same in f32, for another CTA to read.
WS_DEV void leave_row(float* to, const Done& done, i32 h) {
    const float f = done.unit[h];
#pragma unroll
    for (i32 i = 0; i < D / 8; ++i) __stcg(reinterpret_cast<float2*>(to + 8 * i + 2 * (threadIdx.x % 4)), make_float2(done.o[i][2 * h] * f, done.o[i][2 * h + 1] * f));
}

// d = a b, from zero.
WS_DEV void multiply_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

// Scores of sixteen dimensions, of keys kKey on.
template <i32 kKey>
WS_DEV void scores(float (&s)[kHalves][kWarpKeys / 8][4], const u32 (&q)[kHalves][4], u32 at, bool begin) {
    if constexpr (kKey < kWarpKeys) {
        u32 x[4];   // keys 0-7 and 8-15 of the sixteen, each by two steps of eight dimensions
        matrices_at<kKey * PITCH * 2, false>(x, at);
#pragma unroll
        for (i32 m = 0; m < kHalves; ++m) {
            if (begin) {
                multiply_first(s[m][kKey / 8], q[m], x[0], x[1]);
                multiply_first(s[m][kKey / 8 + 1], q[m], x[2], x[3]);
            } else {
                multiply(s[m][kKey / 8], q[m], x[0], x[1]);
                multiply(s[m][kKey / 8 + 1], q[m], x[2], x[3]);
            }
        }
        scores<kKey + 16>(s, q, at, begin);
    }
}

// Sixteen columns of O from kColumn on, and all behind them: sixteen keys.
template <i32 kColumn>
WS_DEV void values(float (&o)[kHalves][D / 8][4], const u32 (&pr)[kHalves][4], u32 at) {
    if constexpr (kColumn < D) {
        u32 x[4];
        matrices_at<kColumn * 2, true>(x, at);
#pragma unroll
        for (i32 m = 0; m < kHalves; ++m) {
            multiply(o[m][kColumn / 8], pr[m], x[0], x[1]);
            multiply(o[m][kColumn / 8 + 1], pr[m], x[2], x[3]);
        }
        values<kColumn + 16>(o, pr, at);
    }
}

WS_DEV void attend(Done& done, const Params& p, const Part& part, const Rows&, u8* smem, i32 kv_head, i32 row_base) {
    const u32 base = smem_addr(smem), warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_row = warp / kKeyWarps * 16 * kHalves, first_key = warp % kKeyWarps * kWarpKeys;
    Copier copier(p, part);
    copier.copy(p, part, base + kRaw, part.from_key);
    for (i32 i = threadIdx.x; i < kCtaRows * Copier::kChunks; i += kCtaThreads) {   // Q: rows that are none are zeros
        const i32 row = i / Copier::kChunks, chunk = i % Copier::kChunks, n = row_base + row;
        const bool inside = n < p.group * part.queries;
        const u8* from = part.q + (kv_head * p.group + n % p.group) * p.q_h + n / p.group * p.q_s + chunk * 16;
        widen(smem + (row * PITCH + 16 * chunk) * 2, inside ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0));
    }
    i32 limit[kHalves][2];
    float scale[kHalves][2], c[kHalves][2], step[kHalves][2], top[kHalves][2], sum[kHalves][2], o[kHalves][D / 8][4];   // step: what O is still to be multiplied by
#pragma unroll
    for (i32 m = 0; m < kHalves; ++m) {
        const Rows rows = rows_of(p, part, kv_head, row_base + static_cast<i32>(first_row + 16 * m + lane / 4));
#pragma unroll
        for (i32 h = 0; h < 2; ++h) {
            limit[m][h] = rows.limit[h] - static_cast<i32>(first_key + 2 * (lane % 4));
            scale[m][h] = rows.scale[h] * 65536.0f;   // queries and keys are 2^-8 times what they stand for
            c[m][h] = sum[m][h] = 0.0f;
            step[m][h] = 1.0f;
            top[m][h] = kNegInf;
        }
#pragma unroll
        for (i32 i = 0; i < D / 8; ++i)
#pragma unroll
            for (i32 e = 0; e < 4; ++e) o[m][i][e] = 0.0f;
    }
    const i32 clear = part.clear(p, row_base + static_cast<i32>(first_row));
    const float* ks = p.k_scale + part.b * p.ks_b + kv_head * p.ks_h;
    const float* vs = p.v_scale + part.b * p.vs_b + kv_head * p.vs_h;
    const u32 q_at = base + ((first_row + lane % 16) * PITCH + lane / 16 * 8) * 2;
    const u32 k_at = base + kQBytes + ((first_key + lane % 8 + lane / 16 * 8) * PITCH + (lane / 8 & 1) * 8) * 2;
    const u32 v_at = base + kQBytes + kTile + ((first_key + lane % 16) * PITCH + lane / 16 * 8) * 2;
    u8* const raw = smem + kRaw + copier.to;
    u8* const wide = smem + kQBytes + copier.row * PITCH * 2 + threadIdx.x % Copier::kChunks * 32;
    float v_scale = 1.0f, unit = 1.0f;
    const bool idle = row_base + static_cast<i32>(first_row) >= p.group * part.queries;   // its rows are none: it copies and widens alone
    i32 new_block = part.from_key;   // the tile with which another block of 128 tokens begins, if scales differ by block

#pragma unroll 1
    for (i32 first = part.from_key; first < part.to_key; first += KEYS) {
        cp_async_wait<0>();
        __syncthreads();   // all are done with the tile before
#pragma unroll
        for (i32 i = 0; i < Copier::kPasses; ++i) {
            widen(wide + i * Copier::kRows * PITCH * 2, *reinterpret_cast<const uint4*>(raw + i * Copier::kRows * D));
            widen(wide + i * Copier::kRows * PITCH * 2 + kTile, *reinterpret_cast<const uint4*>(raw + i * Copier::kRows * D + kBytesTile));
        }
        copier.copy(p, part, base + kRaw, first + KEYS);   // past the last tile it is an empty group
        __syncthreads();
        if (idle) continue;
        if (first == new_block) {
            const float k_scale = ks[(first >> 7) * p.ks_t];
            v_scale = vs[(first >> 7) * p.vs_t];
#pragma unroll
            for (i32 m = 0; m < kHalves; ++m)
#pragma unroll
                for (i32 h = 0; h < 2; ++h) {
                    c[m][h] = scale[m][h] * k_scale;
                    c[m][h] = c[m][h] == 0.0f ? 1.17549435e-38f : c[m][h];   // a scale of zero must not meet a masked key's infinity
                    if (v_scale != 0.0f) step[m][h] *= unit / v_scale;
                }
            if (v_scale != 0.0f) unit = v_scale;
            new_block = (p.ks_t | p.vs_t) != 0 ? first + 128 : -1;
        }

        // phase: scores
        float s[kHalves][kWarpKeys / 8][4];
#pragma unroll
        for (i32 d = 0; d < D / 16; ++d) {
            u32 q[kHalves][4];
            matrices(q[0], q_at + 32 * d);
            if constexpr (kHalves > 1) matrices(q[kHalves - 1], q_at + 32 * d + 16 * PITCH * 2);
            scores<0>(s, q, k_at + 32 * d, d == 0);
        }

        // phase: softmax
        if (first + KEYS > clear) {
#pragma unroll
            for (i32 m = 0; m < kHalves; ++m)
#pragma unroll
                for (i32 h = 0; h < 2; ++h) {
                    const i32 left = limit[m][h] - first;
#pragma unroll
                    for (i32 n = 0; n < kWarpKeys / 8; ++n) {
                        s[m][n][2 * h] = left > 8 * n ? s[m][n][2 * h] : kNegInf;
                        s[m][n][2 * h + 1] = left > 8 * n + 1 ? s[m][n][2 * h + 1] : kNegInf;
                    }
                }
        }
        float a[kHalves][2];
        bool same = true;
#pragma unroll
        for (i32 m = 0; m < kHalves; ++m)
#pragma unroll
            for (i32 h = 0; h < 2; ++h) {
                float x = s[m][0][2 * h];
#pragma unroll
                for (i32 n = 0; n < kWarpKeys / 8; ++n) x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
                x = fmaxf(top[m][h], quad_max(x) * c[m][h]);
                const float reference = x == kNegInf ? 0.0f : x;
                a[m][h] = ex2(top[m][h] - reference);
                top[m][h] = x;
                float all = 0.0f;
#pragma unroll
                for (i32 n = 0; n < kWarpKeys / 8; ++n) {
                    s[m][n][2 * h] = ex2(fmaf(s[m][n][2 * h], c[m][h], -reference));
                    s[m][n][2 * h + 1] = ex2(fmaf(s[m][n][2 * h + 1], c[m][h], -reference));
                    all += s[m][n][2 * h];
                    all += s[m][n][2 * h + 1];
                }
                sum[m][h] = fmaf(sum[m][h], a[m][h], all);
                a[m][h] *= step[m][h];
                same = same && a[m][h] == 1.0f;
                step[m][h] = v_scale == 0.0f ? a[m][h] : 1.0f;
            }

        // phase: values
        if (v_scale == 0.0f) continue;
        if (!__all_sync(0xFFFFFFFFu, same)) {
#pragma unroll
            for (i32 m = 0; m < kHalves; ++m)
#pragma unroll
                for (i32 i = 0; i < D / 8; ++i) o[m][i][0] *= a[m][0], o[m][i][1] *= a[m][0], o[m][i][2] *= a[m][1], o[m][i][3] *= a[m][1];
        }
#pragma unroll
        for (i32 n = 0; n < kWarpKeys / 16; ++n) {
            u32 pr[kHalves][4];
#pragma unroll
            for (i32 m = 0; m < kHalves; ++m)
#pragma unroll
                for (i32 i = 0; i < 4; ++i) pr[m][i] = f16x2(s[m][2 * n + i / 2][2 * (i % 2)], s[m][2 * n + i / 2][2 * (i % 2) + 1]);
            values<0>(o, pr, v_at + n * 16 * PITCH * 2);
        }
    }

    if (v_scale == 0.0f) {   // nobody has multiplied by what is left to
#pragma unroll
        for (i32 m = 0; m < kHalves; ++m)
#pragma unroll
            for (i32 i = 0; i < D / 8; ++i) o[m][i][0] *= step[m][0], o[m][i][1] *= step[m][0], o[m][i][2] *= step[m][1], o[m][i][3] *= step[m][1];
    }
    done.unit[0] = done.unit[1] = unit * 256.0f;   // values are 2^-8 times what they stand for

    // phase: those who share rows meet; each keeps sixteen of them
    if constexpr (kHalves == 1) {
#pragma unroll
        for (i32 h = 0; h < 2; ++h) done.top[h] = top[0][h], done.sum[h] = sum[0][h];
#pragma unroll
        for (i32 i = 0; i < D / 8; ++i)
#pragma unroll
            for (i32 e = 0; e < 4; ++e) done.o[i][e] = o[0][i][e];
    } else {
        const bool second = warp % 2 != 0;
        float4* const swap = reinterpret_cast<float4*>(smem);   // [warp][D / 8 + 1][32]
        static_assert(kHalves == 1 || kCtaThreads / 32 * (D / 8 + 1) * 512 <= kSharedBytes);
        __syncthreads();
        float4* const mine = swap + warp * (D / 8 + 1) * 32 + lane;
        const float4* const other = swap + (warp ^ 1) * (D / 8 + 1) * 32 + lane;
        const i32 last = kHalves - 1;
#pragma unroll
        for (i32 i = 0; i < D / 8; ++i) {
            const float4 x = make_float4(o[0][i][0], o[0][i][1], o[0][i][2], o[0][i][3]), y = make_float4(o[last][i][0], o[last][i][1], o[last][i][2], o[last][i][3]);
            mine[i * 32] = second ? x : y;
            const float4 z = second ? y : x;
            done.o[i][0] = z.x, done.o[i][1] = z.y, done.o[i][2] = z.z, done.o[i][3] = z.w;
        }
        mine[D / 8 * 32] = second ? make_float4(top[0][0], top[0][1], sum[0][0], sum[0][1]) : make_float4(top[last][0], top[last][1], sum[last][0], sum[last][1]);
        __syncthreads();
        const float4 its = other[D / 8 * 32];
        const float its_top[2] = {its.x, its.y}, its_sum[2] = {its.z, its.w};
        float f[2], g[2];
        bool ours[2], theirs[2];   // of rows that see none of the keys values of infinity or NaN leave their mark at a weight of zero, too
#pragma unroll
        for (i32 h = 0; h < 2; ++h) {
            const float own = second ? top[last][h] : top[0][h], own_sum = second ? sum[last][h] : sum[0][h];
            done.top[h] = fmaxf(own, its_top[h]);
            const float reference = done.top[h] == kNegInf ? 0.0f : done.top[h];
            f[h] = ex2(own - reference);
            g[h] = ex2(its_top[h] - reference);
            done.sum[h] = own_sum * f[h] + its_sum[h] * g[h];
            ours[h] = own != kNegInf || own_sum != own_sum;
            theirs[h] = its_top[h] != kNegInf || its_sum[h] != its_sum[h];
        }
#pragma unroll
        for (i32 i = 0; i < D / 8; ++i) {
            const float4 x = other[i * 32];
            const float its_o[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (i32 e = 0; e < 4; ++e) done.o[i][e] = (ours[e / 2] ? done.o[i][e] * f[e / 2] : 0.0f) + (theirs[e / 2] ? its_o[e] * g[e / 2] : 0.0f);
        }
    }
}
