// Parts of a unit in p.partial: what a CTA of decode.cu leaves of one, and how the last one to come adds them.
#pragma once

// Four neighbouring outputs of a row (an item): a sum over some of the keys, relative to 2^top.
struct Piece {
    float top, sum;
    float4 acc;
};

// A CTA's part of a unit in p.partial: pairs of (maximum, sum), then the outputs of all rows. Its size is a constant, so that addresses are. A pair serves 32 items at most: the lanes of a warp.
constexpr i32 kPairs = D > 128 ? 2 : 1, kSegment = D / 4 / kPairs;   // of a row; items that share one
constexpr i32 kHeadFloats = 2 * kPairs * WS_ROWS, kPartFloats = kHeadFloats + WS_ROWS * D;

// kWaits: p.partial is written and read two words at a time, and the first says whether both are there: no arithmetic makes NaN of this kind, and `told` would change it.
constexpr u32 kEmpty = 0xFFFFFFFFu;
WS_DEV float told(float x) { return kWaits ? __uint_as_float(min(__float_as_uint(x), kEmpty - 1)) : x; }

WS_DEV void put(float* at, float2 x) {
    if (!kWaits) __stcg(reinterpret_cast<float2*>(at), x);
    else asm volatile("{.reg .b64 a;\nmov.b64 a, {%1, %2};\nst.relaxed.gpu.global.b64 [%0], a;}" ::"l"(at), "f"(x.x), "f"(x.y) : "memory");
}

WS_DEV void put(float* at, float4 x) {
    if (!kWaits) __stcg(reinterpret_cast<float4*>(at), x);
    else asm volatile("{.reg .b64 a, b;\nmov.b64 a, {%1, %2};\nmov.b64 b, {%3, %4};\nst.relaxed.gpu.global.v2.b64 [%0], {a, b};}" ::"l"(at), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
}

WS_DEV void get(float2& x, const float* at) {
    if (!kWaits) x = __ldcg(reinterpret_cast<const float2*>(at));
    else asm volatile("{.reg .b64 a;\nld.relaxed.gpu.global.b64 a, [%2];\nmov.b64 {%0, %1}, a;}" : "=f"(x.x), "=f"(x.y) : "l"(at) : "memory");
}

WS_DEV void get(float4& x, const float* at) {
    if (!kWaits) x = __ldcg(reinterpret_cast<const float4*>(at));
    else asm volatile("{.reg .b64 a, b;\nld.relaxed.gpu.global.v2.b64 {a, b}, [%4];\nmov.b64 {%0, %1}, a;\nmov.b64 {%2, %3}, b;}" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(at) : "memory");
}

// Eight pieces, those u = from, from + 2, ..., in their order.
WS_DEV void add_pieces(Piece& a, const float2 (&ms)[16], const float4 (&x)[16], i32 from) {
    float top = a.top;
#pragma unroll
    for (i32 u = 0; u < 16; u += 2) top = fmaxf(top, ms[u + from].x);
    const float zero_top = top == kNegInf ? 0.0f : top, f = ex2(a.top - zero_top);
    a.sum *= f, a.acc.x *= f, a.acc.y *= f, a.acc.z *= f, a.acc.w *= f;
#pragma unroll
    for (i32 u = 0; u < 16; u += 2) {
        const float g = ex2(ms[u + from].x - zero_top);
        const float4& y = x[u + from];
        a.sum = fmaf(ms[u + from].y, g, a.sum);
        a.acc.x = fmaf(y.x, g, a.acc.x), a.acc.y = fmaf(y.y, g, a.acc.y), a.acc.z = fmaf(y.z, g, a.acc.z), a.acc.w = fmaf(y.w, g, a.acc.w);
    }
    a.top = top;
}

// Adds item g of the n parts of a unit to `a`, the first of which may lie elsewhere, so many floats behind its place; with kBoth item g + THREADS of each to `b`, else every other part to it. Sixteen loads at once; kWaits: and again where one is not there.
template <bool kBoth>
WS_DEV void gather(Piece& a, Piece& b, const float* unit, i32 n, i32 g, i32 first = 0) {
    constexpr i32 kParts = kBoth ? 8 : 16;
    auto ms_at = [](i32 u) { return kBoth ? u / 2 * kPartFloats + u % 2 * (THREADS / kSegment * 2) : u * kPartFloats; };
    auto x_at = [](i32 u) { return kBoth ? u / 2 * kPartFloats + u % 2 * (THREADS * 4) : u * kPartFloats; };
    const float* m0 = unit + g / kSegment * 2;
    const float* x0 = unit + kHeadFloats + g * 4;
#pragma unroll 1
    for (i32 w = 0; w < n; w += kParts, m0 += kParts * kPartFloats, x0 += kParts * kPartFloats) {
        float2 ms[16];
        float4 x[16];
        const i32 left = n - w;
#pragma unroll
        for (i32 u = 0; u < 16; ++u) {
            ms[u] = make_float2(kNegInf, 0.0f), x[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            const i32 off = kSpread && (kBoth ? u / 2 : u) == 0 ? first : 0;
            if ((kBoth ? u / 2 : u) < left) get(ms[u], m0 + ms_at(u) + off), get(x[u], x0 + x_at(u) + off);
        }
        if (kWaits) {
            u32 most = 0;
#pragma unroll
            for (i32 u = 0; u < 16; ++u) most = max(most, max(__float_as_uint(ms[u].x), max(__float_as_uint(x[u].x), __float_as_uint(x[u].z))));
            if (most == kEmpty) {   // on its way. PERF: asking for what is not there alone is 2% slower where keys are few
                w -= kParts, m0 -= kParts * kPartFloats, x0 -= kParts * kPartFloats;
                continue;
            }
        }
        add_pieces(a, ms, x, 0);
        add_pieces(b, ms, x, 1);
        first = 0;
    }
}

WS_DEV void merge(Piece& a, const Piece& b) {
    const float top = fmaxf(a.top, b.top), zero_top = top == kNegInf ? 0.0f : top, f = ex2(a.top - zero_top), g = ex2(b.top - zero_top);
    a.sum = fmaf(b.sum, g, a.sum * f);
    a.acc.x = fmaf(b.acc.x, g, a.acc.x * f), a.acc.y = fmaf(b.acc.y, g, a.acc.y * f), a.acc.z = fmaf(b.acc.z, g, a.acc.z * f), a.acc.w = fmaf(b.acc.w, g, a.acc.w * f);
    a.top = top;
}
