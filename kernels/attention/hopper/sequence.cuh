// One sequence of those whose lengths only the device knows: ragged.cu's, and portable.cu's with WS_LENS. Knows nothing of tiles.
#pragma once
#include "ragged.cuh"

// Where it lies.
struct Sequence {
    i32 first_q, queries, first_k, keys;
};

// Held within the tensors: wrong lengths give wrong values, never a fault.
WS_DEV Sequence sequence_of(const Params& p, const Ragged& x, i32 b) {
    Sequence s{0, p.Sq, 0, p.Sk};
    if (x.cu_q) {
        s.first_q = min(max(x.cu_q[b], 0), x.total_q);
        s.queries = min(min(max(x.cu_q[b + 1] - s.first_q, 0), x.total_q - s.first_q), p.Sq);
    }
    if (x.cu_k) {
        s.first_k = min(max(x.cu_k[b], 0), x.total_k);
        s.keys = min(max(x.cu_k[b + 1] - s.first_k, 0), x.total_k - s.first_k);
    }
    if (x.used) s.keys = min(max(x.used[b], 0), s.keys);
    if (p.ks_t | p.vs_t) s.keys = min(s.keys, p.Sk);   // there are scales of no more blocks
    return s;
}
