// Packed rows of queries: row r of a key head is query r / group of query head kv_head * group + r % group. Knows nothing of tiles of keys in memory.
//
// Wants WS_D, WS_KEYS, WS_WGS, WS_CAUSAL and WS_GROUPED (0: as many key heads as query heads).
#pragma once
#include "params.cuh"
#include "transpose.cuh"

constexpr i32 D = WS_D, KEYS = WS_KEYS, WGS = WS_WGS;
static_assert(D == 64 || D == 128 || D == 256, "head dimensions are 64, 128 and 256");
constexpr u32 kPitch = D < 128 ? D : 128;
constexpr u32 kTileBytes = KEYS * D;

// Rows r0 and r0 + 8 of a thread, as queries.
struct Row {
    i32 head, query, limit;   // limit: keys before it are seen
    bool valid;
};

WS_DEV Row row_of(const Params& p, i32 r, i32 kv_head) {
    Row row;
    row.query = WS_GROUPED ? r / p.group : r;
    row.head = WS_GROUPED ? kv_head * p.group + r % p.group : kv_head;
    row.valid = row.query < p.Sq;
    row.limit = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + row.query + 1) : p.Sk;
    return row;
}

WS_DEV i64 out_row(const Params& p, i32 b, const Row& r) { return (static_cast<i64>(b) * p.Hq + r.head) * p.Sq + r.query; }

WS_DEV float q_scale_of(const Params& p, i32 b, const Row& r) {
    return r.valid ? load_f32(p.q_scale + b * p.qs_b + r.head * p.qs_h + (r.query >> 7) * p.qs_t) * p.softmax_scale_log2 : 0.0f;
}
