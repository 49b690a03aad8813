// portable.cu's way over the keys on Ada and Blackwell: both products in e4m3, as the codes lie in memory.
//
// Wants D, Rows and Part of portable.cu. Knows nothing of where results go.
//     per tile of 64 (D 256: 32) keys:  wait for its copy | bar | start the next one's | S = Q K^T | softmax in registers | T = P V | O = O a + T
// K and V come by cp.async as bytes into two stages: the barrier also says that all are done with the tile whose place the next copy takes.
// P is e4m3, 2^8 at the row's maximum. Ada's FP8 accumulator keeps 13 bits, so a tile's T begins at zero and is folded into O in f32.
// With g = lane / 4 and t = lane % 4: an A operand's slots 4 t .. 4 t + 3 are keys 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t, so that accumulators of scores
// are operands as they lie; one prmt of two words of ldmatrix.trans picks a column's four codes of V in that order. Even and odd columns go to two
// products, so that a lane ends with four neighbouring columns of O.
// Shared memory: Q (64, D), then two stages of K and V each, chunks of 16 bytes swizzled. Comes from: ladder level 07.
#pragma once

constexpr i32 KEYS = D == 256 ? 32 : 64;   // 64 spill at D 256, and take the room of a second CTA
constexpr i32 kCtas = D == 64 ? 4 : 2;   // on an SM: what registers and 100 KB of shared memory allow
constexpr u32 kBytesTile = KEYS * D, kBytesQ = 64 * D;
constexpr bool kQInRegisters = D <= 128;

// Where sixteen codes of a tile lie: eight rows at one chunk fall on eight different groups of four banks.
WS_DEV u32 chunk_at(u32 row, u32 chunk) { return row * D + ((chunk ^ (D == 64 ? row / 2 % 4 : row % 8)) << 4); }

#include "portable_copy.cuh"

// d = a b, from zero.
WS_DEV void multiply_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

// What is left of a thread's two rows when all keys are done: o[c][h] are columns 16 c + 4 t .. + 3 of row h, in units of unit[h]; top
// is the largest score in powers of two, sum of 2^(score - top + 8).
struct Done {
    float o[D / 16][2][4], top[2], sum[2], unit[2];
    static constexpr float kShift = kPShift;
};

WS_DEV void clear_row(Done& done, i32 h) {
#pragma unroll
    for (i32 c = 0; c < D / 16; ++c) done.o[c][h][0] = done.o[c][h][1] = done.o[c][h][2] = done.o[c][h][3] = 0.0f;
}

// Four neighbouring columns of an output row.
WS_DEV void store_four(const Params& p, i64 at, float a, float b, float c, float d) { store_out4(p, at, a, b, c, d); }

// Writes row h times f, from there on.
WS_DEV void store_row(const Params& p, const Done& done, i64 at, i32 h, float f) {
    const i32 column = 4 * (threadIdx.x % 4);
#pragma unroll
    for (i32 c = 0; c < D / 16; ++c) {
        const float(&o)[4] = done.o[c][h];
        store_out4(p, at + 16 * c + column, o[0] * f, o[1] * f, o[2] * f, o[3] * f);
    }
}

// The same in f32, for another CTA to read.
WS_DEV void leave_row(float* to, const Done& done, i32 h) {
    const float f = done.unit[h];
#pragma unroll
    for (i32 c = 0; c < D / 16; ++c) {
        const float(&o)[4] = done.o[c][h];
        __stcg(reinterpret_cast<float4*>(to + 16 * c + 4 * (threadIdx.x % 4)), make_float4(o[0] * f, o[1] * f, o[2] * f, o[3] * f));
    }
}

// Scores of 64 of the head's dimensions, from the tile's block of eight keys kBlock on: operands q0 and q1 of Q's.
template <i32 kBlock>
WS_DEV void scores(float (&s)[KEYS / 8][4], const u32 (&q0)[4], const u32 (&q1)[4], u32 at, bool begin) {
    if constexpr (kBlock < KEYS / 8) {
        u32 x[4];
        matrices_at<kBlock * 8 * D, false>(x, at);
        if (begin) multiply_first(s[kBlock], q0, x[0], x[1]);
        else mma_e4m3(s[kBlock], q0, x[0], x[1]);
        mma_e4m3(s[kBlock], q1, x[2], x[3]);
        scores<kBlock + 1>(s, q0, q1, at, begin);
    }
}

// Sixteen columns' even and odd ones, from the tile's keys 32 kHalf on.
template <i32 kHalf>
WS_DEV void values(float (&even)[4], float (&odd)[4], const u32 (&pr)[KEYS / 32][4], u32 at) {
    if constexpr (kHalf < KEYS / 32) {
        u32 x[4];
        matrices_at<kHalf * 32 * D + kBytesTile, true>(x, at);
        const u32 e0 = __byte_perm(x[0], x[1], 0x6420), e1 = __byte_perm(x[2], x[3], 0x6420);
        const u32 o0 = __byte_perm(x[0], x[1], 0x7531), o1 = __byte_perm(x[2], x[3], 0x7531);
        if constexpr (kHalf == 0) {
            multiply_first(even, pr[kHalf], e0, e1);
            multiply_first(odd, pr[kHalf], o0, o1);
        } else {
            mma_e4m3(even, pr[kHalf], e0, e1);
            mma_e4m3(odd, pr[kHalf], o0, o1);
        }
        values<kHalf + 1>(even, odd, pr, at);
    }
}

WS_DEV void attend(Done& r, const Params& p, const Part& part, const Rows& rows, u8* smem, i32 kv_head, i32 row_base) {
    const u32 base = smem_addr(smem);
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, ring = base + kBytesQ;
    Copier copier(p, part);
    for (i32 i = threadIdx.x; i < 64 * Copier::kChunks; i += kCtaThreads) {   // Q: rows that are none are zeros
        const i32 row = i / Copier::kChunks, chunk = i % Copier::kChunks, n = row_base + row;
        const bool inside = n < p.group * part.queries;
        const i32 head = kv_head * p.group + n % p.group, query = n / p.group;
        cp_async_16(base + chunk_at(row, chunk), inside ? part.q + head * p.q_h + query * p.q_s + chunk * 16 : p.q, inside ? 16 : 0);
    }
    copier.copy(p, part, ring, part.from_key);
    const float* ks = p.k_scale + part.b * p.ks_b + kv_head * p.ks_h;
    const float* vs = p.v_scale + part.b * p.vs_b + kv_head * p.vs_h;
    const i32 clear = part.clear(p, row_base + static_cast<i32>(warp) * 16);
    // Other chunks of a row differ by an exclusive or.
    u32 q_lane = chunk_at(warp * 16 + lane % 16, lane / 16);
    u32 k_lane = chunk_at(lane % 8, lane / 8), v_lane = chunk_at(lane, 0), now = ring, next = ring + 2 * kBytesTile;
    hold(k_lane);
    hold(v_lane);
    u32 q[D / 32][4];
#pragma unroll
    for (i32 c = 0; c < D / 16; ++c)
#pragma unroll
        for (i32 h = 0; h < 2; ++h)
#pragma unroll
            for (i32 e = 0; e < 4; ++e) r.o[c][h][e] = 0.0f;
    r.top[0] = r.top[1] = kNegInf;
    r.sum[0] = r.sum[1] = 0.0f;
    float c0 = 0.0f, c1 = 0.0f, v_scale = 1.0f, unit = 1.0f, step[2] = {1.0f, 1.0f};   // step: what O is still to be multiplied by
    const bool idle = row_base + static_cast<i32>(warp) * 16 >= p.group * part.queries;   // its rows are none: it copies alone
    i32 new_block = part.from_key;   // the tile with which another block of 128 tokens begins, if scales differ by block
    if (kQInRegisters) {
        cp_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (i32 kk = 0; kk < D / 32; ++kk) matrices(q[kk], base + (q_lane ^ (kk * 32)));
    }

#pragma unroll 1
    for (i32 first = part.from_key; first < part.to_key; first += KEYS) {
        cp_async_wait<0>();
        __syncthreads();
        copier.copy(p, part, next, first + KEYS);   // past the last tile it is an empty group
        if (idle) {
            now = next;
            next = next == ring ? ring + 2 * kBytesTile : ring;
            continue;
        }
        if (first == new_block) {
            const float k_scale = ks[(first >> 7) * p.ks_t];
            v_scale = vs[(first >> 7) * p.vs_t];
            c0 = rows.scale[0] * k_scale;
            c1 = rows.scale[1] * k_scale;
            // A scale of zero must not meet a masked key's infinity.
            c0 = c0 == 0.0f ? 1.17549435e-38f : c0;
            c1 = c1 == 0.0f ? 1.17549435e-38f : c1;
            if (v_scale != 0.0f) {
                step[0] *= unit / v_scale;
                step[1] *= unit / v_scale;
                unit = v_scale;
            }
            new_block = (p.ks_t | p.vs_t) != 0 ? first + 128 : -1;
        }

        // phase: scores
        if (!kQInRegisters) {   // twelve addresses kept from tile to tile would spill
            hold(q_lane);
            hold(k_lane);
        }
        float s[KEYS / 8][4];
#pragma unroll
        for (i32 kk = 0; kk < D / 32; kk += 2) {
            if (!kQInRegisters) {
                matrices(q[kk], base + (q_lane ^ (kk * 32)));
                matrices(q[kk + 1], base + (q_lane ^ (kk * 32 + 32)));
            }
            scores<0>(s, q[kk], q[kk + 1], now + (k_lane ^ (kk * 32)), kk == 0);
        }

        // phase: softmax
        if (first + KEYS > clear) {
#pragma unroll
            for (i32 h = 0; h < 2; ++h) {
                const i32 left = rows.limit[h] - first - 2 * static_cast<i32>(lane % 4);
#pragma unroll
                for (i32 n = 0; n < KEYS / 8; ++n) {
                    s[n][2 * h] = left > 8 * n ? s[n][2 * h] : kNegInf;
                    s[n][2 * h + 1] = left > 8 * n + 1 ? s[n][2 * h + 1] : kNegInf;
                }
            }
        }
        float a[2];
#pragma unroll
        for (i32 h = 0; h < 2; ++h) {
            const float c = h ? c1 : c0;
            float m = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
            for (i32 n = 1; n < KEYS / 8; ++n) m = fmaxf(m, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
            m = fmaxf(r.top[h], quad_max(m) * c);
            const float reference = m == kNegInf ? 0.0f : m, bias = kPShift - reference;
            a[h] = ex2(r.top[h] - reference);
            r.top[h] = m;
            float x = 0.0f;
#pragma unroll
            for (i32 n = 0; n < KEYS / 8; ++n) {
                s[n][2 * h] = ex2(fmaf(s[n][2 * h], c, bias));
                s[n][2 * h + 1] = ex2(fmaf(s[n][2 * h + 1], c, bias));
                x = n ? x + s[n][2 * h] : s[n][2 * h];
                x += s[n][2 * h + 1];
            }
            r.sum[h] = fmaf(r.sum[h], a[h], x);
            a[h] *= step[h];
        }

        // phase: values
        const u32 v_at = now + v_lane;
        now = next;
        next = next == ring ? ring + 2 * kBytesTile : ring;
        const bool nothing = v_scale == 0.0f;
        step[0] = nothing ? a[0] : 1.0f;
        step[1] = nothing ? a[1] : 1.0f;
        if (nothing) continue;
        u32 pr[KEYS / 32][4];
#pragma unroll
        for (i32 kk = 0; kk < KEYS / 32; ++kk)
#pragma unroll
            for (i32 i = 0; i < 4; ++i) {
                const i32 n = 4 * kk + i / 2 * 2, h = i % 2;
                pr[kk][i] = e4m3x4(s[n][2 * h], s[n][2 * h + 1], s[n + 1][2 * h], s[n + 1][2 * h + 1]);
            }
#pragma unroll
        for (i32 c = 0; c < D / 16; ++c) {
            float even[4], odd[4];   // columns 16 c + 2 n and 16 c + 2 n + 1
            values<0>(even, odd, pr, v_at ^ (c * 16));
#pragma unroll
            for (i32 h = 0; h < 2; ++h) {
                float(&o)[4] = r.o[c][h];
                o[0] = fmaf(o[0], a[h], even[2 * h]);
                o[1] = fmaf(o[1], a[h], odd[2 * h]);
                o[2] = fmaf(o[2], a[h], even[2 * h + 1]);
                o[3] = fmaf(o[3], a[h], odd[2 * h + 1]);
            }
        }
    }
    r.unit[0] = unit * step[0];
    r.unit[1] = unit * step[1];
}
