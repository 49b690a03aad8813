// V^T in whole tiles from row-major codes, plainly, in the order that transpose.cuh states: what pack.cu does, for gates of kernels over packed values.
//
// Wants WS_D. Tokens behind the last one become zeros.
#pragma once
#include "ptx.cuh"

// A thread for each key of a tile. Key k of 16 lies at position 4 (k % 8 / 2) + 2 (k / 8) + k % 2, dimension d of 16 in row d / 2 + 8 (d % 2).
extern "C" __global__ void __launch_bounds__(128) transpose_values(const u8* v, u8* v_t, i32 Sk) {
    const i32 tile = blockIdx.x, key = tile * 128 + threadIdx.x, k = threadIdx.x % 16;
    const i64 head = static_cast<i64>(blockIdx.z) * gridDim.y + blockIdx.y, keys = static_cast<i64>(gridDim.x) * 128;
    const i32 at = tile * 128 + threadIdx.x / 16 * 16 + 4 * (k % 8 / 2) + 2 * (k / 8) + k % 2;
    for (i32 d = 0; d < WS_D; ++d) {
        const i32 row = d / 16 * 16 + d % 16 / 2 + 8 * (d % 2);
        v_t[(head * WS_D + row) * keys + at] = key < Sk ? v[(head * Sk + key) * WS_D + d] : 0;
    }
}
