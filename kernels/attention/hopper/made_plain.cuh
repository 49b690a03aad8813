// transpose.cu as a kernel of its own with plain.cuh's copies, for gates on the CPU: to be included after it and as_kernels.cuh, behind the kernel that reads V^T.
#pragma once

struct Rows {   // Values, and V as a tensor map would have it
    Values t;
    const u8* v;
    i64 v_b, v_h, v_s;
};

#if WS_LENS
// V^T where only the device knows lengths: of sequences one behind another, of so many tokens, or of so many keys each.
WS_DEV TensorMap made_map(const u8* v_t, i32 tokens, i32 sequences, i32 heads, u32 what) {
    const i64 keys = WS_LENS == 2 ? (tokens / 128 + sequences) * 128 : (tokens + 127) / 128 * 128;
    return plain_map(v_t, WS_LENS == 2 ? 0 : heads * D * keys, D * keys, keys, D, D, 8, what);
}

extern "C" __global__ void __launch_bounds__(transposing::kThreads, 1) transpose_plain(const __grid_constant__ Rows rows, const __grid_constant__ FewParams p) {
    const i32 there = WS_LENS == 1 && p.x.pages ? p.x.page_size : rows.t.S;   // of a page, of a sequence's cache, or of all
    const TensorMap v_map = plain_map(rows.v, rows.v_b, rows.v_h, rows.v_s, there, WS_LENS == 1 && p.x.pages ? min(128, there) : 128, 8, 0);
    attention_transpose(rows.t, v_map, made_map(p.v, rows.t.S, rows.t.B, rows.t.H, kCounted));
}
#else
extern "C" __global__ void __launch_bounds__(transposing::kThreads, 1) transpose_plain(const __grid_constant__ Rows rows, const __grid_constant__ Params p) {
    const i64 keys = (p.Sk + 127) / 128 * 128;
    const TensorMap v_map = plain_map(rows.v, rows.v_b, rows.v_h, rows.v_s, p.Sk, 128), vt_map = plain_map(p.v, p.Hkv * D * keys, D * keys, keys, D, D, 8);
    Rows x = rows;
    if (p.tiles_per_worker == 0) x.t.made = nullptr;
    attention_transpose(x.t, v_map, vt_map);
}
#endif
