// portable.cu's way over the keys where there are no products in e4m3: FP16 arithmetic on dequantised tiles, from sm_80 on.
//
// Wants D and Rows of portable.cu. Knows nothing of where results go.
//     per tile of 64 keys:  bar | load K, V and widen them | bar | S = Q K^T | softmax in registers | O = O a + P V
// Shared memory: Q, K and V, 64 rows of D + 8 halves each. Comes from: ladder level 08.
#pragma once

constexpr i32 KEYS = 64, PITCH = D + 8;   // halves; 16 bytes more than the row, so that eight rows lie in different banks
constexpr i32 kCtas = 1;   // on an SM, at least
constexpr u32 kTile = 64 * PITCH * 2;
static_assert(3 * kTile <= 101376, "shared memory of a CTA on sm_86");

WS_DEV u32 mul_f16x2(u32 a, u32 b) {
    u32 y;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// Four e4m3 bytes to four halves. An e4m3's bits at a half's place are its value times 2^-8, subnormals too.
WS_DEV uint2 halves(u32 x) {
#if __CUDA_ARCH__ >= 890
    uint2 y;   // Ada has the conversion: two instructions instead of some sixteen
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}" : "=r"(y.x), "=r"(y.y) : "r"(x));
    return y;
#else
    constexpr u32 k256 = 0x5C005C00;
    const u32 low = __byte_perm(x, 0, 0x4140), high = __byte_perm(x, 0, 0x4342);   // one byte in each half
    u32 a = ((low & 0x007F007F) << 7) | ((low & 0x00800080) << 8), b = ((high & 0x007F007F) << 7) | ((high & 0x00800080) << 8);
    a = mul_f16x2(a, k256);
    b = mul_f16x2(b, k256);
    const u32 m = x & 0x7F7F7F7F;
    if (((m + 0x01010101) & 0x80808080) != 0) {   // a NaN among them
        if ((m & 0xFF) == 0x7F) a = (a & 0xFFFF0000) | 0x7E00;
        if ((m >> 8 & 0xFF) == 0x7F) a = (a & 0xFFFF) | 0x7E000000;
        if ((m >> 16 & 0xFF) == 0x7F) b = (b & 0xFFFF0000) | 0x7E00;
        if ((m >> 24) == 0x7F) b = (b & 0xFFFF) | 0x7E000000;
    }
    return make_uint2(a, b);
#endif
}

WS_DEV void matrices_transposed(u32 (&r)[4], u32 addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}

WS_DEV void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// To nearest even, saturating at 448, as the cvt that sm_80 does not have.
WS_DEV u32 e4m3_of(float x) {
    const u32 sign = __float_as_uint(x) >> 24 & 0x80;
    const float m = fminf(fabsf(x), 448.0f);
    if (!(fabsf(x) >= 0.0f)) return 0x7F;
    if (m < 0.015625f) return sign | static_cast<u32>(__float2int_rn(m * 512.0f));   // subnormals; 8 of them is the first normal number
    const u32 bits = __float_as_uint(m), rounded = bits + 0x7FFFF + (bits >> 20 & 1);
    return sign | ((rounded >> 20) - (120 << 3));
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

// 64 rows of bytes to rows of halves; `row` says where one begins, or null for a row of zeros.
template <typename Row>
WS_DEV void load_rows(u8* smem, Row row) {
    constexpr i32 kChunks = D / 16;
#pragma unroll 4
    for (i32 i = threadIdx.x; i < 64 * kChunks; i += 128) {
        const i32 r = i / kChunks, c = i % kChunks;
        const u8* src = row(r);
        const uint4 x = src ? *reinterpret_cast<const uint4*>(src + 16 * c) : make_uint4(0, 0, 0, 0);
        const uint2 a = halves(x.x), b = halves(x.y), y = halves(x.z), z = halves(x.w);
        uint4* to = reinterpret_cast<uint4*>(smem + (r * PITCH + 16 * c) * 2);
        to[0] = make_uint4(a.x, a.y, b.x, b.y);
        to[1] = make_uint4(y.x, y.y, z.x, z.y);
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

// Writes row h times f.
WS_DEV void store_row(const Params& p, const Done& done, i64 at, i32 h, float f) {
    const i32 column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (i32 i = 0; i < D / 8; ++i) store_out2(p, at * D + 8 * i + column, done.o[i][2 * h] * f, done.o[i][2 * h + 1] * f);
}

WS_DEV void attend(Done& done, const Params& p, const Rows& rows, u8* smem, i32 b, i32 kv_head, i32 row_base, i32 tiles) {
    const u32 base = smem_addr(smem), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u8* k_smem = smem + kTile;
    u8* v_smem = smem + 2 * kTile;
    const u32 k_at = base + kTile, v_at = base + 2 * kTile;
    load_rows(smem, [&](i32 r) -> const u8* {
        const i32 n = row_base + r;
        return n < p.group * p.Sq ? p.q + b * p.q_b + (kv_head * p.group + n % p.group) * p.q_h + n / p.group * p.q_s : nullptr;
    });
    // Keys that every row of the warp sees end here.
    const i32 clear = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + (row_base + static_cast<i32>(warp) * 16) / p.group + 1) : p.Sk;
    const float* ks = p.k_scale + b * p.ks_b + kv_head * p.ks_h;
    const float* vs = p.v_scale + b * p.vs_b + kv_head * p.vs_h;
    auto& o = done.o;
    float unit = 1.0f;
#pragma unroll
    for (i32 i = 0; i < D / 8; ++i)
#pragma unroll
        for (i32 e = 0; e < 4; ++e) o[i][e] = 0.0f;
    done.top[0] = done.top[1] = kNegInf;
    done.sum[0] = done.sum[1] = 0.0f;

    for (i32 t = 0; t < tiles; ++t) {
        const i32 first = t * KEYS;
        __syncthreads();
        load_rows(k_smem, [&](i32 r) -> const u8* { return first + r < p.Sk ? p.k + b * p.k_b + kv_head * p.k_h + (first + r) * p.k_s : nullptr; });
        load_rows(v_smem, [&](i32 r) -> const u8* { return first + r < p.Sk ? p.v + b * p.v_b + kv_head * p.v_h + (first + r) * p.v_s : nullptr; });
        __syncthreads();

        float s[KEYS / 8][4];
#pragma unroll
        for (i32 n = 0; n < KEYS / 8; ++n)
#pragma unroll
            for (i32 e = 0; e < 4; ++e) s[n][e] = 0.0f;
#pragma unroll 4
        for (i32 d = 0; d < D / 16; ++d) {
            u32 a[4];
            matrices(a, base + ((warp * 16 + lane % 16) * PITCH + 16 * d + lane / 16 * 8) * 2);
#pragma unroll
            for (i32 n = 0; n < KEYS / 16; ++n) {
                u32 r[4];   // keys 0-7 and 8-15 of the sixteen, each by two steps of eight dimensions
                matrices(r, k_at + ((16 * n + lane % 8 + lane / 16 * 8) * PITCH + 16 * d + (lane / 8 & 1) * 8) * 2);
                multiply(s[2 * n], a, r[0], r[1]);
                multiply(s[2 * n + 1], a, r[2], r[3]);
            }
        }

        const float k_scale = ks[(first >> 7) * p.ks_t], v_scale = vs[(first >> 7) * p.vs_t];
        const float next = v_scale != 0.0f ? v_scale : unit, there = v_scale != 0.0f ? 1.0f : 0.0f;
        const bool whole = first + KEYS <= clear;
        u32 pr[KEYS / 8][2];
        float a[2];
#pragma unroll
        for (i32 h = 0; h < 2; ++h) {
            const float c = rows.scale[h] * k_scale;
            float m = kNegInf;
#pragma unroll
            for (i32 n = 0; n < KEYS / 8; ++n) {
                s[n][2 * h] *= c;
                s[n][2 * h + 1] *= c;
            }
            if (!whole) {
                const i32 left = rows.limit[h] - first - 2 * static_cast<i32>(lane % 4);
#pragma unroll
                for (i32 n = 0; n < KEYS / 8; ++n) {
                    s[n][2 * h] = left > 8 * n ? s[n][2 * h] : kNegInf;
                    s[n][2 * h + 1] = left > 8 * n + 1 ? s[n][2 * h + 1] : kNegInf;
                }
            }
#pragma unroll
            for (i32 n = 0; n < KEYS / 8; ++n) m = fmaxf(m, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
            m = fmaxf(done.top[h], quad_max(m));
            const float zero_top = m == kNegInf ? 0.0f : m;
            a[h] = ex2(done.top[h] - zero_top);
            done.top[h] = m;
            done.sum[h] *= a[h];
            a[h] *= unit / next;
#pragma unroll
            for (i32 n = 0; n < KEYS / 8; ++n) {
                const float x = ex2(s[n][2 * h] - zero_top), y = ex2(s[n][2 * h + 1] - zero_top);
                done.sum[h] += x + y;
                pr[n][h] = f16x2(x * there, y * there);
            }
        }
        unit = next;
#pragma unroll
        for (i32 i = 0; i < D / 8; ++i) o[i][0] *= a[0], o[i][1] *= a[0], o[i][2] *= a[1], o[i][3] *= a[1];
#pragma unroll
        for (i32 n = 0; n < KEYS / 16; ++n) {
            const u32 probabilities[4] = {pr[2 * n][0], pr[2 * n][1], pr[2 * n + 1][0], pr[2 * n + 1][1]};
#pragma unroll
            for (i32 d = 0; d < D / 16; ++d) {
                u32 r[4];
                matrices_transposed(r, v_at + ((16 * n + lane % 16) * PITCH + 16 * d + lane / 16 * 8) * 2);
                multiply(o[2 * d], probabilities, r[0], r[1]);
                multiply(o[2 * d + 1], probabilities, r[2], r[3]);
            }
        }
    }
    done.unit[0] = done.unit[1] = unit;
}
