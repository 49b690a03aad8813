// Queries in bf16 or f16 as a consumer takes them: a warp's own 16 rows of Q to e4m3 in shared memory, each row with a power of two of its own.
//
// Knows nothing of scores and weights. Wants D and kPitch. Queries are of the output's kind. A row that holds what is no number, or whose norm is beyond 1e19, gets a unit that is none.
#pragma once
#include "half.cuh"
#include "params.cuh"
#include "wgmma.cuh"

WS_DEV void floats_of(u32 pair, bool f16, float& low, float& high) {
    if (f16) f32_of_f16x2(pair, low, high);
    else low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xFFFF0000u);
}

// A head's first address of queries of 16 bits, head counted among all sequences'.
WS_DEV const u16* wide_head(const Params& p, i32 head) {
    const i32 b = head / p.Hq, h = head - b * p.Hq;
    return reinterpret_cast<const u16*>(p.q) + b * p.q_b + h * p.q_h;
}

// So many rows from first_row on of a head into the L2, by a warp: whoever wants them next reads each once, and waits less.
WS_DEV void prefetch_rows(const Params& p, i32 head, i32 first_row, i32 rows, u32 lane) {
    constexpr i32 kLines = D / 64;   // of 128 bytes, to a row
    const u16* from = wide_head(p, head) + lane % kLines * 64;
    const i32 end = min(p.Sq, first_row + rows);
    for (i32 row = first_row + static_cast<i32>(lane / kLines); row < end; row += 32 / kLines) prefetch_l2(from + row * p.q_s);
}

// 16 bytes, or zeros. PERF: volatile, so that all rows are asked for before the first is waited for: ptxas 13.0 waits for half of them else.
WS_DEV void load_if(bool there, uint4& to, const u16* from) {
    to = make_uint4(0, 0, 0, 0);
    asm volatile("{.reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];}" : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w) : "l"(from), "r"(static_cast<u32>(there)));
}

// Rows from first_row on of a head (of all sequences), of which those behind Sq are 0, to the warp's rows at `to` (at D 256 their second half lies 64 rows of 128 bytes on). Codes times
// unit0, unit1 are the values of this thread's two rows of scores, lane / 4 and 8 more. need: what a row's squared norm is multiplied by to be at most 1 where its codes need no scaling. most: the largest of such products of the lane's rows, as bits: what is no number is above all.
WS_DEV void quantise_rows(const Params& p, i32 head, i32 first_row, u32 to, u32 lane, float need, float& unit0, float& unit1, u32& most) {
    constexpr u32 kLanes = D / 16, kAtOnce = 32 / kLanes, kTimes = 16 / kAtOnce;   // lanes to a row, rows at a time
    const bool f16 = WS_OUT == kOutF16;
    const u32 chunk = lane % kLanes, among = lane / kLanes;
    const u16* from = wide_head(p, head) + (first_row + static_cast<i32>(among)) * p.q_s + chunk * 16;
    uint4 x[kTimes][2];
#pragma unroll
    for (u32 i = 0; i < kTimes; ++i) {
        const u16* at = from + static_cast<i64>(i * kAtOnce) * p.q_s;
        const bool there = first_row + static_cast<i32>(i * kAtOnce + among) < p.Sq;
        load_if(there, x[i][0], at);
        load_if(there, x[i][1], at + 8);
    }
    float unit[kTimes];
    most = 0;
#pragma unroll
    for (u32 i = 0; i < kTimes; ++i) {
        const u32 w[8] = {x[i][0].x, x[i][0].y, x[i][0].z, x[i][0].w, x[i][1].x, x[i][1].y, x[i][1].z, x[i][1].w};
        float norm2 = 0.0f, low, high;
#pragma unroll
        for (u32 e = 0; e < 8; ++e) {
            floats_of(w[e], f16, low, high);
            norm2 = fmaf(low, low, fmaf(high, high, norm2));
        }
#pragma unroll
        for (u32 n = 1; n < kLanes; n *= 2) norm2 += __shfl_xor_sync(0xFFFFFFFFu, norm2, n);
        most = max(most, __float_as_uint(norm2 * need));
        const i32 octaves = static_cast<i32>(__float_as_uint(norm2 * need) >> 23) - 127 + 1;   // of the product, which is less than 2^octaves
        const i32 k = (octaves + 1) >> 1;                                                       // -63 to 65
        const float by = __uint_as_float((127 - k) << 23);
        u32 codes[4];
#pragma unroll
        for (u32 e = 0; e < 4; ++e) {
            float c, d;
            floats_of(w[2 * e], f16, low, high);
            floats_of(w[2 * e + 1], f16, c, d);
            codes[e] = e4m3x4(low * by, high * by, c * by, d * by);
        }
        store_shared_16(to + chunk / 8 * (64 * 128) + swizzled<kPitch>(i * kAtOnce + among, chunk % 8), codes[0], codes[1], codes[2], codes[3]);
        unit[i] = __uint_as_float((127 + k) << 23) + (norm2 - norm2);
    }
    // Row lane / 4 was done by the lanes from (lane / 4 % kAtOnce) * kLanes on, in their turn lane / 4 / kAtOnce.
    const u32 source = lane / 4 % kAtOnce * kLanes, turn = lane / 4 / kAtOnce;
#pragma unroll
    for (u32 i = 0; i < kTimes / 2; ++i) {
        const float first = __shfl_sync(0xFFFFFFFFu, unit[i], source), second = __shfl_sync(0xFFFFFFFFu, unit[i + kTimes / 2], source);
        if (turn == i) unit0 = first, unit1 = second;
    }
}
