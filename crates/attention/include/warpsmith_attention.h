/* FP8 (e4m3) attention over device pointers and a stream. The library is the crate warpsmith-attention, built as a shared one:
 * `cargo build --release -p warpsmith-attention` (after `cargo xtask attention-kernels`, which makes what it embeds).
 *
 *     ws_attention_problem p;
 *     ws_attention_dense(1, 8, 8, 512, 512, 64, &p);          contiguous tensors, a scale for each head; change what differs
 *     ws_attention_plan(&p, &plan);                           checks all, loads the kernel into the current context
 *     ws_attention_workspace(plan, &bytes, &counters);        allocate both; zero the counters once
 *     ws_attention_launch(plan, &pointers, stream);           as often as wanted, from any thread: no allocation, no waiting, capturable
 *
 * Sequences whose lengths only the device knows, in caches, in pages, or one behind another: ws_attention_cached, _paged and _varlen give the problem to change.
 * Launches that may overlap need scratch memory and counters of their own. Whole programs: examples/attention.c, and examples/paged.c.
 * Codes and scales of bf16, f16 or f32: ws_attention_quantise_dense, _plan, _launch; packed keys and values, over which long prompts are faster:
 * ws_attention_pack_keys and _pack_values in one plan, and then ws_attention_packed.
 * Made from src/capi.rs and src/capi_quantise.rs by `cargo xtask header`: do not edit. */
#ifndef WARPSMITH_ATTENTION_H
#define WARPSMITH_ATTENTION_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions give back: 0, or why not. */
enum {
    WS_ATTENTION_OK = 0,
    WS_ATTENTION_WRONG_ARGUMENT = 1,
    WS_ATTENTION_NO_KERNEL = 2,
    WS_ATTENTION_DRIVER = 3
};

/* Sizes, strides and options of one call; q (batch, heads_q, seqlen_q, head_dim), k and v (batch, heads_kv, seqlen_k, head_dim), all e4m3. */
typedef struct {
    uint32_t batch;
    uint32_t heads_q;
    uint32_t heads_kv;
    uint32_t seqlen_q;
    uint32_t seqlen_k;
    uint32_t head_dim;            /* 64, 128 or 256 */
    uint32_t causal;              /* 1: aligned bottom-right */
    uint32_t out_format;          /* 0 bf16, 1 f16, 2 e4m3: round(o / out_scale) */
    float out_scale;
    float softmax_scale;          /* 0: 1 / sqrt(head_dim) */
    int64_t strides[3][3];        /* of q, k and v over (batch, head, token), in elements, multiples of 16 */
    int32_t scale_strides[3][3];  /* of their f32 scales, which are finite and not negative, over (batch, head, block of 128 tokens); 0 where shared */
    uint32_t packed_values;       /* 1: v is transposed, (batch, heads_kv, head_dim, keys in whole tiles of 128), contiguous, as transpose.cuh orders it; Hopper only */
    uint32_t wide_queries;        /* 1, with packed_values: q is of 16 bits, bf16 or f16 as the output is; its strides are in elements too, and q_scale may be 0. No log-sum-exp */
    uint32_t fast;                /* 1: outputs may be rounded more where that is faster: many queries over many keys at head dimensions 128 and 256, no log-sum-exp */
    int64_t table_stride;         /* lengths 2: steps over sequences of the page table */
    uint32_t lengths;             /* 0: all sequences are alike; 1: each uses a part of its seqlen_k keys, as pointers.used says; 2: the same by pages; 3: one behind another. 1 to 3 are for v as it comes */
    uint32_t page_size;           /* lengths 2: k and v are pools (pages, page_size, heads_kv, head_dim), their strides' first over pages; seqlen_k is a multiple of page_size */
    uint32_t pages;
    uint32_t tokens_q;            /* lengths 3: tokens of all sequences: q (tokens_q, heads_q, head_dim), k and v (tokens_k, heads_kv, head_dim); seqlen_q and seqlen_k are the most that one has, strides' first is not looked at */
    uint32_t tokens_k;
} ws_attention_problem;

/* Addresses in the device's memory; tensors on 16 bytes. */
typedef struct {
    uint64_t q;
    uint64_t k;
    uint64_t v;
    uint64_t q_scale;
    uint64_t k_scale;
    uint64_t v_scale;
    uint64_t out;                 /* (batch, heads_q, seqlen_q, head_dim), contiguous */
    uint64_t lse;                 /* f32 (batch, heads_q, seqlen_q), natural logarithm, or 0; a launch with it may be another kernel's than one without, and take longer */
    uint64_t scratch;             /* what ws_attention_workspace says; may be 0 if that is 0 */
    uint64_t counters;            /* 32-bit words, zero before the first launch; every launch leaves them zero */
    uint64_t v_mean;              /* with packed_values: f32 (batch, heads_kv, head_dim), added to rows that see a key, or 0 */
    uint64_t used;                /* lengths 1 and 2: int32 (batch), keys of each sequence, new ones among them */
    uint64_t pages;               /* lengths 2: int32, the i-th page of sequence b at [b * table_stride + i] */
    uint64_t cu_seqlens_q;        /* lengths 3: int32 (batch + 1), where each sequence begins; out is (tokens_q, heads_q, head_dim), lse (heads_q, tokens_q) */
    uint64_t cu_seqlens_k;
} ws_attention_pointers;

/* What becomes of one tensor x (batch, heads, tokens, head_dim): e4m3 codes and f32 scales, each the largest magnitude / 448, and 1 where that is at most 1e-6. What is transposed is Hopper's alone. */
typedef struct {
    uint32_t batch;
    uint32_t heads;
    uint32_t tokens;
    uint32_t head_dim;            /* a multiple of 8, at most 256; 64, 128 or 256 with centred, transposed, even, or without codes */
    uint32_t from;                /* 0 bf16, 1 f16, 2 f32 */
    uint32_t scales;              /* 0: one; 1: (batch, heads); 2: (batch, heads, blocks of 128 tokens); contiguous */
    int64_t strides[3];           /* of x over (batch, head, token), in elements: whole 16 bytes */
    int64_t code_strides[3];      /* of codes, multiples of 8, of 16 for attention */
    uint32_t codes;               /* 0, with scales 2 and transposed: no codes of x's layout are wanted */
    uint32_t centred;             /* 1, with scales 2: each channel's mean over up to 64 tokens is taken out, where these show one, and written. With keys of which one was taken out outputs are the same, and log-sum-exps less by softmax_scale q mean */
    uint32_t transposed;          /* 1, with scales 2: codes (batch, heads, head_dim, tokens in whole tiles of 128) as packed_values takes v are written */
    uint32_t even;                /* with scales 2: 0, or a block's scale is its head's, with so many sixteenths of room, where its values fit */
} ws_attention_quantisation;

/* Addresses of one tensor and of what becomes of it, on 16 bytes, scales on 4. */
typedef struct {
    uint64_t x;
    uint64_t codes;               /* with codes */
    uint64_t scale;
    uint64_t mean;                /* with centred: f32 (batch, heads, head_dim) */
    uint64_t transposed;          /* with transposed */
} ws_attention_quantised;

/* Contiguous tensors, a scale for each head, no mask, bf16 out: a problem to change. */
int ws_attention_dense(uint32_t batch, uint32_t heads_q, uint32_t heads_kv, uint32_t seqlen_q, uint32_t seqlen_k, uint32_t head_dim, ws_attention_problem *into);

/* The same over packed keys and values, as ws_attention_pack_keys and ws_attention_pack_values say: scales of k and v of blocks. */
int ws_attention_packed(uint32_t batch, uint32_t heads_q, uint32_t heads_kv, uint32_t seqlen_q, uint32_t seqlen_k, uint32_t head_dim, ws_attention_problem *into);

/* Queries q (batch, heads_q, seqlen_q, head_dim) over caches (batch, seqlen_k, heads_kv, head_dim) of which each sequence uses a part, a scale for each head, causal: to change. */
int ws_attention_cached(uint32_t batch, uint32_t heads_q, uint32_t heads_kv, uint32_t seqlen_q, uint32_t seqlen_k, uint32_t head_dim, ws_attention_problem *into);

/* The same by pages, pools (pages, page_size, heads_kv, head_dim), with a contiguous table (batch, pages_of_sequence). */
int ws_attention_paged(uint32_t batch, uint32_t heads_q, uint32_t heads_kv, uint32_t seqlen_q, uint32_t pages_of_sequence, uint32_t page_size, uint32_t pages, uint32_t head_dim, ws_attention_problem *into);

/* Sequences one behind another, contiguous (tokens, heads, head_dim), of at most seqlen_q and seqlen_k tokens each, a scale for each head of each, causal: to change. */
int ws_attention_varlen(uint32_t batch, uint32_t heads_q, uint32_t heads_kv, uint32_t tokens_q, uint32_t tokens_k, uint32_t seqlen_q, uint32_t seqlen_k, uint32_t head_dim, ws_attention_problem *into);

/* Checks the problem, chooses and loads the kernel in the current context. */
int ws_attention_plan(const ws_attention_problem *problem, void **into);

/* Bytes of scratch memory and the number of counters of a plan. */
int ws_attention_workspace(const void *plan, uint64_t *scratch_bytes, uint32_t *counters);

/* One launch on the stream. */
int ws_attention_launch(const void *plan, const ws_attention_pointers *pointers, void *stream);

/* Whether scales in the host's memory are finite and not negative; calls do not look at those on the device. */
int ws_attention_check_scales(const float *scales, uint64_t count);

/* Gives a plan back; its kernel stays loaded. */
void ws_attention_free(void *plan);

/* What the last call of this thread that failed has to say; valid until its next one. */
const char *ws_attention_message(void);

/* Codes and scales of a contiguous tensor: to change. */
int ws_attention_quantise_dense(uint32_t batch, uint32_t heads, uint32_t tokens, uint32_t head_dim, uint32_t from, uint32_t scales, ws_attention_quantisation *into);

/* What packs contiguous keys for attention over packed values: codes, scales of blocks, centred, and even where kernels gain by it. */
int ws_attention_pack_keys(uint32_t batch, uint32_t heads, uint32_t tokens, uint32_t head_dim, uint32_t from, ws_attention_quantisation *into);

/* The same of values: transposed codes alone, whose mean goes to v_mean of ws_attention_pointers. */
int ws_attention_pack_values(uint32_t batch, uint32_t heads, uint32_t tokens, uint32_t head_dim, uint32_t from, ws_attention_quantisation *into);

/* Checks one to three quantisations that go together, with one kind of scales, and loads their kernels in the current context. */
int ws_attention_quantise_plan(const ws_attention_quantisation *parts, uint32_t count, void **into);

/* The number of 32-bit counters of such a plan, zero before the first launch; every launch leaves them zero. Launches that may overlap need their own. */
int ws_attention_quantise_counters(const void *plan, uint32_t *counters);

/* One launch on the stream, or two; at has an element for each of the plan's quantisations. */
int ws_attention_quantise_launch(const void *plan, const ws_attention_quantised *at, uint64_t counters, void *stream);

/* Gives such a plan back; its kernels stay loaded. */
void ws_attention_quantise_free(void *plan);

#ifdef __cplusplus
}
#endif
#endif
