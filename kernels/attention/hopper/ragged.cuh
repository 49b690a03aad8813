// Where sequences lie whose lengths only the device knows: what ragged.cu, and decode.cu with WS_LENS, are told beside Params.
#pragma once
#include "params.cuh"

// Sq and Sk of Params are the most that a sequence has. The host mirrors it: _params.py.
struct Ragged {
    const i32* cu_q;    // (B + 1,), or null: every sequence has Sq queries
    const i32* cu_k;    // (B + 1,), or null
    const i32* used;    // (B,) keys of each sequence, or null: Sk
    const i32* pages;   // (B, pages of a sequence), or null
    i64 pages_b;
    i64 o_b, o_h, o_s, l_b, l_h, l_s;   // strides of out and lse; the first is unused with cu_q
    i32 total_q, total_k;               // tokens of q and of k where they lie one behind another
    i32 page_size, page_count, splits;
};
