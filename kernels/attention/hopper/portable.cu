// attention_portable: FP8 attention for every card from Ampere on: products in e4m3 on Ada and Blackwell, in FP16 on dequantised tiles elsewhere.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh. Rows are packed: row r of a key head is query r / group of query head r % group, 64 rows to a CTA, 16 to a warp.
// Any Sq, Sk, group; scales per tensor, head or block of 128 tokens; causal is aligned bottom-right. With WS_LENS sequences whose lengths, and the places
// of whose keys, only the device knows: one behind another, parts of caches, pages (ragged.cuh); wrong lengths give wrong values, never a fault.
// Assumes: WS_D 64, 128 or 256; rows on 16 bytes; nothing newer than its target, so sm_80's PTX runs wherever there are no kernels of a card's own.
// Roles: four warps, by portable_e4m3.cuh on sm_89, sm_100 and sm_120, by portable_f16.cuh elsewhere: e4m3 turned into f16 (exact), products by mma.sync with f32 accumulators;
// P is f16, so that this rounds less than the kernels with P in e4m3.
// Where row tiles are few, `tiles_per_worker` CTAs share a row tile's keys, whole blocks of 128 tokens each; the last one to come adds what they left in
// `partial`, in the order of keys, so that results do not depend on timing, and leaves its counter in `arrived` zero.
// O is kept in units of V's current scale: where scales differ by block, their ratio goes into the rescaling that is due anyway.
// Shared memory: as these two say; at most the 99 KB that sm_86, sm_89 and sm_120 give a CTA.
// Measured: on an H200 only, by the driver's own compilation; on Ada and Blackwell by issue slots and ptxas alone (docs/ledger.md). Comes from: ladder level 08.

#ifndef WS_D
#define WS_D 64
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif
#ifndef WS_LENS
#define WS_LENS 0
#endif
#ifndef WS_E4M3
#define WS_E4M3 (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1000)   // products in e4m3: of Ada and Blackwell; Hopper runs them too, as Blackwell of 10.x does, by widening
#endif

#include "e4m3.cuh"
#include "params.cuh"
#include "softmax.cuh"
#if WS_LENS
#include "sequence.cuh"
#endif

constexpr i32 D = WS_D;
static_assert(D == 64 || D == 128 || D == 256, "head dimensions are 64, 128 and 256");
constexpr i32 kCtaThreads = 128, kCtaRows = 64;

// A thread's two rows of queries.
struct Rows {
    i32 head[2], query[2], limit[2];   // limit: keys before it are seen
    bool valid[2];
    float scale[2];                    // of scores, but for the keys' own; 0 if not valid
};

// A CTA's sequence, and which of its keys are the CTA's: whole tiles, but where they end.
struct Part {
    i32 b, queries, keys, from_key, to_key;
    const u8* q;        // its first query's codes, of head 0
    const u8* k;        // its first key's, or those of page 0, of the CTA's head
    const u8* v;
#if WS_LENS
    const i32* pages;   // its own, or null
    i32 page_size, page_count;
    u32 inverse;        // of page_size, 2^32 - 1 divided by it

    // How far behind k, or v, the codes of a key in a page lie.
    WS_DEV_MEMBER i64 in_page(i32 key, i64 stride, i64 page_stride) const {
        i32 page = static_cast<i32>(__umulhi(key, inverse)), in = key - page * page_size;   // one too few at most
        if (in >= page_size) ++page, in -= page_size;
        return min(max(__ldg(pages + page), 0), page_count - 1) * page_stride + in * stride;
    }
#endif
    WS_DEV_MEMBER bool in_pages() const {
#if WS_LENS
        return pages != nullptr;
#else
        return false;
#endif
    }

    // Keys that all rows from this one on see end here.
    WS_DEV_MEMBER i32 clear(const Params& p, i32 row) const { return WS_CAUSAL ? min(keys, keys - queries + row / p.group + 1) : keys; }
};

WS_DEV void matrices(u32 (&r)[4], u32 addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}

WS_DEV Rows rows_of(const Params& p, const Part& part, i32 kv_head, i32 first) {
    Rows r;
#pragma unroll
    for (i32 h = 0; h < 2; ++h) {
        const i32 n = first + 8 * h;
        r.valid[h] = n < p.group * part.queries;
        r.query[h] = n / p.group;
        r.head[h] = kv_head * p.group + n % p.group;
        r.limit[h] = part.clear(p, n);
        r.scale[h] = r.valid[h] ? p.q_scale[part.b * p.qs_b + r.head[h] * p.qs_h + (r.query[h] >> 7) * p.qs_t] * p.softmax_scale_log2 : 0.0f;
    }
    return r;
}

#if WS_E4M3
#include "portable_e4m3.cuh"
#else
#include "portable_f16.cuh"
#endif

constexpr i32 kPairs = 2048;   // no fewer than shares may be: of rows and shares whose largest scores and sums are in shared memory at a time

// Values of n rows by all shares' parts, each times its factor; a thread has four neighbouring dimensions of kRows rows at a time, of kShares shares each: so many loads are under way.
template <i32 kRows, i32 kShares, typename Store>
WS_DEV void add_parts(const float* parts, i32 part_floats, i32 shares, i32 n, const float2* factors, Store store) {
    const i32 items = n * (D / 4);
    for (i32 i = threadIdx.x; i < items; i += kRows * kCtaThreads) {
        float4 o[kRows];
#pragma unroll
        for (i32 u = 0; u < kRows; ++u) o[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (i32 first = 0; first < shares; first += kShares) {
            float4 y[kRows][kShares];
#pragma unroll
            for (i32 u = 0; u < kRows; ++u) {
                const i32 at = i + u * kCtaThreads;
                const float* from = parts + at / (D / 4) * (D + 4) + at % (D / 4) * 4;
#pragma unroll
                for (i32 j = 0; j < kShares; ++j)
                    if (at < items && first + j < shares) y[u][j] = __ldcg(reinterpret_cast<const float4*>(from + (first + j) * part_floats));
            }
#pragma unroll
            for (i32 u = 0; u < kRows; ++u) {
                const i32 at = i + u * kCtaThreads;
#pragma unroll
                for (i32 j = 0; j < kShares; ++j) {
                    if (at >= items || first + j >= shares) continue;
                    const float f = factors[at / (D / 4) * shares + first + j].x;
                    o[u].x = fmaf(y[u][j].x, f, o[u].x), o[u].y = fmaf(y[u][j].y, f, o[u].y), o[u].z = fmaf(y[u][j].z, f, o[u].z), o[u].w = fmaf(y[u][j].w, f, o[u].w);
                }
            }
        }
#pragma unroll
        for (i32 u = 0; u < kRows; ++u) {
            const i32 at = i + u * kCtaThreads;
            if (at < items) store(at / (D / 4), at % (D / 4) * 4, o[u]);
        }
    }
}

constexpr i32 kRowLanes = D / 4 < 32 ? D / 4 : 32;   // of a warp, side by side

template <typename T, typename Combine>
WS_DEV T over_row(T x, Combine combine) {
#pragma unroll
    for (i32 by = kRowLanes / 2; by > 0; by /= 2) x = combine(x, __shfl_xor_sync(0xFFFFFFFFu, x, by));
    return x;
}

// The same of so few rows that each thread has one item, and of no more shares than a row has lanes: a lane has a share's largest score and sum, and nothing goes through shared memory.
template <typename Inverse, typename Store>
WS_DEV void add_few(const float* parts, i32 part_floats, i32 shares, i32 n, Inverse inverse_of, Store store) {
    const i32 row = static_cast<i32>(threadIdx.x) / (D / 4), d = threadIdx.x % (D / 4) * 4, lane = threadIdx.x % kRowLanes;
    const bool there = row < n;
    const float* from = parts + (there ? row : 0) * (D + 4);
    const float2 it = there && lane < shares ? __ldcg(reinterpret_cast<const float2*>(from + lane * part_floats + D)) : make_float2(kNegInf, 0.0f);
    float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float top = kNegInf, sum = 0.0f, factor = 0.0f;
    for (i32 first = 0; first < shares; first += 8) {
        float4 y[8];
#pragma unroll
        for (i32 j = 0; j < 8; ++j)
            if (there && first + j < shares) y[j] = __ldcg(reinterpret_cast<const float4*>(from + (first + j) * part_floats + d));
        if (first == 0) {   // while these are under way
            top = over_row(it.x, [](float a, float b) { return fmaxf(a, b); });
            factor = ex2(it.x - (top == kNegInf ? 0.0f : top));
            sum = over_row(it.y * factor, [](float a, float b) { return a + b; });
        }
#pragma unroll
        for (i32 j = 0; j < 8; ++j) {
            const float f = __shfl_sync(0xFFFFFFFFu, factor, first + j, kRowLanes);
            if (there && first + j < shares) o.x = fmaf(y[j].x, f, o.x), o.y = fmaf(y[j].y, f, o.y), o.z = fmaf(y[j].z, f, o.z), o.w = fmaf(y[j].w, f, o.w);
        }
    }
    if (there) store(row, d, o, inverse_of(row, top, sum, d == 0));
}

#if WS_LENS
#define WS_TAKES const __grid_constant__ Params p, const __grid_constant__ Ragged x
#else
#define WS_TAKES const __grid_constant__ Params p
#endif

extern "C" __global__ void __launch_bounds__(kCtaThreads, kCtas) attention_portable(WS_TAKES) {
    extern __shared__ __align__(256) u8 smem[];   // a row of bytes, at D 256: chunks of it differ by an exclusive or
    const i32 shares = p.tiles_per_worker;
    const i32 b = blockIdx.z, kv_head = blockIdx.y / shares, share = blockIdx.y % shares, row_base = blockIdx.x * kCtaRows;
    Part part;
    part.b = b;
#if WS_LENS
    const Sequence s = sequence_of(p, x, b);
    if (row_base >= p.group * s.queries) return;   // all CTAs that share it: nobody asks for their counter
    part.queries = s.queries, part.keys = s.keys;
    part.q = p.q + (x.cu_q ? s.first_q * p.q_s : b * p.q_b);
    part.pages = x.pages ? x.pages + b * x.pages_b : nullptr;
    part.page_size = x.page_size, part.page_count = x.page_count;
    part.inverse = x.pages ? 0xFFFFFFFFu / static_cast<u32>(x.page_size) : 0;
    part.k = p.k + kv_head * p.k_h + (x.pages ? 0 : x.cu_k ? s.first_k * p.k_s : b * p.k_b);
    part.v = p.v + kv_head * p.v_h + (x.pages ? 0 : x.cu_k ? s.first_k * p.v_s : b * p.v_b);
    const i64 out = x.cu_q ? s.first_q * x.o_s : b * x.o_b, lse = x.cu_q ? s.first_q * x.l_s : b * x.l_b;
    auto out_at = [&](i32 head, i32 query) { return out + head * x.o_h + query * x.o_s; };
    auto lse_at = [&](i32 head, i32 query) { return lse + head * x.l_h + query * x.l_s; };
#else
    part.queries = p.Sq, part.keys = p.Sk;
    part.q = p.q + b * p.q_b;
    part.k = p.k + b * p.k_b + kv_head * p.k_h;
    part.v = p.v + b * p.v_b + kv_head * p.v_h;
    auto lse_at = [&](i32 head, i32 query) { return (static_cast<i64>(b) * p.Hq + head) * p.Sq + query; };
    auto out_at = [&](i32 head, i32 query) { return lse_at(head, query) * D; };
#endif
    // Keys that any row sees, and of their tiles the share of this CTA.
    const i32 seen_keys = max(0, part.clear(p, min(row_base + kCtaRows - 1, p.group * part.queries - 1)));
    const i32 of_share = ((seen_keys + 127) / 128 + shares - 1) / shares * 128, whole_tiles = (seen_keys + KEYS - 1) / KEYS * KEYS;
    part.from_key = min(whole_tiles, share * of_share);
    part.to_key = min(part.keys, min(whole_tiles, part.from_key + of_share));
    const i32 row = static_cast<i32>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
    const Rows rows = rows_of(p, part, kv_head, row_base + row);
    Done done;
    attend(done, p, part, rows, smem, kv_head, row_base);

    const i32 most_rows = min(kCtaRows, p.group * p.Sq), part_floats = most_rows * (D + 4);   // each row's values, its largest score and sum
    const i64 unit = (static_cast<i64>(b) * p.Hkv + kv_head) * gridDim.x + blockIdx.x;
    float* parts = p.partial + unit * shares * part_floats;
#pragma unroll
    for (i32 h = 0; h < 2; ++h) {
        const float all = quad_sum(done.sum[h]);   // before any choice: every lane of a quad takes part
        if (!rows.valid[h]) continue;
        const bool seen = done.top[h] != kNegInf || all != all;   // maxima pass over what is no number
        if (!seen) clear_row(done, h);   // values that are no numbers leave their mark at a weight of zero, too
        if (shares > 1) {
            float* to = parts + share * part_floats + (row + 8 * h) * (D + 4);
            leave_row(to, done, h);
            if (threadIdx.x % 4 == 0) __stcg(reinterpret_cast<float2*>(to + D), make_float2(done.top[h], all));
            continue;
        }
        store_row(p, done, out_at(rows.head[h], rows.query[h]), h, seen ? done.unit[h] / all : 0.0f);
        if (p.lse && threadIdx.x % 4 == 0) p.lse[lse_at(rows.head[h], rows.query[h])] = seen ? (done.top[h] + lg2(all) - Done::kShift) * kLn2 : kNegInf;
    }
    if (shares == 1) return;

    // phase: adding, by the last CTA to come
    i32* last = reinterpret_cast<i32*>(smem);
    cp_async_wait<0>();   // a part without tiles has not waited for its queries
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *last = add_in_order(p.arrived + unit, 1) == shares - 1;
        if (*last) atomicExch(p.arrived + unit, 0);
    }
    __syncthreads();
    if (!*last) return;
    __threadfence();
    const i32 count = min(kCtaRows, p.group * part.queries - row_base);
    // Of a row's sum and largest score what its values are to be multiplied by. log_sum: they are to be written, too.
    auto inverse_of = [&](i32 row, float top, float sum, bool log_sum) {
        const i32 n = row_base + row;
        const bool seen = top != kNegInf || sum != sum;
        if (log_sum && p.lse) p.lse[lse_at(kv_head * p.group + n % p.group, n / p.group)] = seen ? (top + lg2(sum) - Done::kShift) * kLn2 : kNegInf;
        return seen ? 1.0f / sum : 0.0f;
    };
    auto store = [&](i32 row, i32 d, const float4& o, float f) {
        const i32 n = row_base + row;
        store_four(p, out_at(kv_head * p.group + n % p.group, n / p.group) + d, o.x * f, o.y * f, o.z * f, o.w * f);
    };
    if (count * (D / 4) <= kCtaThreads && shares <= kRowLanes) {
        add_few(parts, part_floats, shares, count, inverse_of, store);
        return;
    }
    float2* const pairs = reinterpret_cast<float2*>(smem + 16);   // of a row and a share: its largest score, then its factor; and its sum
    float* const inverses = reinterpret_cast<float*>(pairs + kPairs);
    const i32 at_once = max(1, min(count, kPairs / shares));
    for (i32 first = 0; first < count; first += at_once) {
        const i32 n = min(at_once, count - first);
        const float* from = parts + first * (D + 4);
        for (i32 i = threadIdx.x; i < n * shares; i += 8 * kCtaThreads) {
            float2 x[8];
#pragma unroll
            for (i32 u = 0; u < 8; ++u) {
                const i32 at = i + u * kCtaThreads, r = at / shares;
                if (at < n * shares) x[u] = __ldcg(reinterpret_cast<const float2*>(from + (at - r * shares) * part_floats + r * (D + 4) + D));
            }
#pragma unroll
            for (i32 u = 0; u < 8; ++u)
                if (i + u * kCtaThreads < n * shares) pairs[i + u * kCtaThreads] = x[u];
        }
        __syncthreads();
        const i32 lanes = n <= 4 ? 32 : n <= 8 ? 16 : n <= 16 ? 8 : n <= 32 ? 4 : 2;   // of a row
        const i32 r = static_cast<i32>(threadIdx.x) / lanes, lane = threadIdx.x % lanes, end = r < n ? shares : 0;
        float2* const mine = pairs + r * shares;
        float top = kNegInf, sum = 0.0f;
        for (i32 j = lane; j < end; j += lanes) top = fmaxf(top, mine[j].x);
        for (i32 by = lanes / 2; by > 0; by /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, by));
        const float reference = top == kNegInf ? 0.0f : top;
        for (i32 j = lane; j < end; j += lanes) {
            const float f = ex2(mine[j].x - reference);
            sum = fmaf(mine[j].y, f, sum);
            mine[j].x = f;
        }
        for (i32 by = lanes / 2; by > 0; by /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, by);
        if (r < n && lane == 0) inverses[r] = inverse_of(first + r, top, sum, true);
        __syncthreads();
        auto store_next = [&](i32 row, i32 d, const float4& o) { store(first + row, d, o, inverses[row]); };
        constexpr i32 kLoads = D == 64 ? 8 : 16;   // under way: at D 64 a thread has fewer registers
        if (n * (D / 4) <= kCtaThreads) add_parts<1, kLoads>(from, part_floats, shares, n, pairs, store_next);
        else add_parts<4, kLoads / 4>(from, part_floats, shares, n, pairs, store_next);
        __syncthreads();
    }
}
