// attention_portable: FP8 attention for every card from Ampere on: products in e4m3 on Ada, in FP16 on dequantised tiles elsewhere.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh. Rows are packed: row r of a key head is query r / group of query head r % group, 64 rows to a CTA, 16 to a warp.
// Any Sq, Sk, group; scales per tensor, head or block of 128 tokens; causal is aligned bottom-right.
// Assumes: WS_D 64, 128 or 256; rows on 16 bytes; nothing newer than its target, so sm_80's PTX runs wherever there are no kernels of a card's own.
// Roles: on sm_89 portable_e4m3.cuh. Elsewhere four warps load a tile of 64 keys, turn e4m3 into f16 (exact) on its way to shared memory, and
// multiply by mma.sync with f32 accumulators; P is f16, so this rounds less than the kernels with P in e4m3.
//     per tile:  bar | load K, V | bar | S = Q K^T | softmax in registers | O = O a + P V
// O is kept in units of V's current scale: where scales differ by block, their ratio goes into the rescaling that is due anyway.
// Shared memory: Q, K and V, 64 rows of D + 8 halves each: at D 256 just the 99 KB that Ada gives. sm_89: Q's 64 rows and two stages of K and V, in bytes.
// Measured: on an H200 only, by the driver's own compilation; on Ada by issue slots and ptxas alone (docs/ledger.md). Comes from: ladder level 08.

#ifndef WS_D
#define WS_D 64
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif
#ifndef WS_E4M3
#define WS_E4M3 (__CUDA_ARCH__ == 890)   // products in e4m3; newer cards run them too, Hopper by widening
#endif

#include "params.cuh"
#include "softmax.cuh"

constexpr i32 D = WS_D;
static_assert(D == 64 || D == 128 || D == 256, "head dimensions are 64, 128 and 256");

// A thread's two rows of queries.
struct Rows {
    i32 head[2], query[2], limit[2];   // limit: keys before it are seen
    bool valid[2];
    float scale[2];                    // of scores, but for the keys' own; 0 if not valid
};

WS_DEV void matrices(u32 (&r)[4], u32 addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}

WS_DEV Rows rows_of(const Params& p, i32 b, i32 kv_head, i32 first) {
    Rows r;
#pragma unroll
    for (i32 h = 0; h < 2; ++h) {
        const i32 n = first + 8 * h;
        r.valid[h] = n < p.group * p.Sq;
        r.query[h] = n / p.group;
        r.head[h] = kv_head * p.group + n % p.group;
        r.limit[h] = WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + r.query[h] + 1) : p.Sk;
        r.scale[h] = r.valid[h] ? p.q_scale[b * p.qs_b + r.head[h] * p.qs_h + (r.query[h] >> 7) * p.qs_t] * p.softmax_scale_log2 : 0.0f;
    }
    return r;
}

#if WS_E4M3
#include "portable_e4m3.cuh"
#else
#include "portable_f16.cuh"
#endif

extern "C" __global__ void __launch_bounds__(128, kCtas) attention_portable(const __grid_constant__ Params p) {
    extern __shared__ __align__(256) u8 smem[];   // a row of bytes, at D 256: chunks of it differ by an exclusive or
    const i32 b = blockIdx.z, kv_head = blockIdx.y, row_base = blockIdx.x * 64;
    const Rows rows = rows_of(p, b, kv_head, row_base + static_cast<i32>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4));
    const i32 last_query = min(p.Sq, (row_base + 63) / p.group + 1);
    const i32 last = max(0, WS_CAUSAL ? min(p.Sk, p.Sk - p.Sq + last_query) : p.Sk), tiles = (last + KEYS - 1) / KEYS;
    Done done;
    attend(done, p, rows, smem, b, kv_head, row_base, tiles);

#pragma unroll
    for (i32 h = 0; h < 2; ++h) {
        const float all = quad_sum(done.sum[h]);   // before any choice: every lane of a quad takes part
        if (!rows.valid[h]) continue;
        const bool seen = done.top[h] != kNegInf;
        const i64 at = (static_cast<i64>(b) * p.Hq + rows.head[h]) * p.Sq + rows.query[h];
        if (!seen) clear_row(done, h);   // values that are no numbers leave their mark at a weight of zero, too
        store_row(p, done, at, h, seen ? done.unit[h] / all : 0.0f);
        if (p.lse && threadIdx.x % 4 == 0) p.lse[at] = seen ? (done.top[h] + lg2(all) - Done::kShift) * kLn2 : kNegInf;
    }
}
