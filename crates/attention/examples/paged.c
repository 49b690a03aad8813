/* Decoding over a paged cache from C: two sequences of different lengths, which only the device knows, in pages of 64 tokens that lie in any order.
 *
 *     cargo xtask attention-kernels && cargo build --release -p warpsmith-attention
 *     cc -std=c99 -I crates/attention/include crates/attention/examples/paged.c -o paged -L target/release -lwarpsmith_attention -ldl
 *     LD_LIBRARY_PATH=target/release ./paged
 *
 * Values of one in the pages that a sequence uses, 448 in all others: outputs of one. Then both sequences grow by a token, and the same plan is launched again. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <warpsmith_attention.h>

enum { BATCH = 2, HEADS = 32, HEADS_KV = 8, PAGE = 64, OF_SEQUENCE = 16, PAGES = 40, DIM = 128 };

static int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*allocate)(uint64_t *, size_t), (*fill)(uint64_t, unsigned char, size_t);
static int (*write_words)(uint64_t, unsigned, size_t), (*write_all)(uint64_t, const void *, size_t), (*read_back)(void *, uint64_t, size_t), (*wait)(void);

static int driver(void) {
    const char *names[] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemsetD8_v2", "cuMemsetD32_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuCtxSynchronize"};
    void *into[] = {&init, &retain, &set, &allocate, &fill, &write_words, &write_all, &read_back, &wait};
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    size_t i;
    for (i = 0; library && i < sizeof names / sizeof *names; ++i)
        if (!(*(void **)into[i] = dlsym(library, names[i]))) return 0;
    return library && !init(0) && !retain(&context, 0) && !set(context);
}

static uint64_t memory(size_t bytes, unsigned char value) {
    uint64_t at = 0;
    if (allocate(&at, bytes) || fill(at, value, bytes)) exit(1);
    return at;
}

int main(void) {
    ws_attention_problem problem;
    ws_attention_pointers at = {0};
    void *plan = 0;
    uint64_t scratch_bytes;
    uint32_t counters;
    int32_t used[BATCH] = {900, 65}, table[BATCH][OF_SEQUENCE];
    uint16_t out[BATCH][HEADS][DIM];
    int b, i, round;

    ws_attention_paged(BATCH, HEADS, HEADS_KV, 1, OF_SEQUENCE, PAGE, PAGES, DIM, &problem);
    problem.out_format = 1; /* f16 */
    /* The cache's layout may be another one: of (pages, heads_kv, page_size, head_dim) these would be the steps over pages, heads and tokens.
     *     problem.strides[1][1] = problem.strides[2][1] = PAGE * DIM, problem.strides[1][2] = problem.strides[2][2] = DIM; */
    problem.page_size = 60;
    if (ws_attention_plan(&problem, &plan) != WS_ATTENTION_WRONG_ARGUMENT) return 1;
    printf("pages of 60: %s\n", ws_attention_message());
    problem.page_size = PAGE;
    if (!driver()) {
        if (ws_attention_plan(&problem, &plan) != WS_ATTENTION_DRIVER) return 1;
        printf("without a driver: %s\n", ws_attention_message());
        return 0;
    }
    if (ws_attention_plan(&problem, &plan) || ws_attention_workspace(plan, &scratch_bytes, &counters)) {
        printf("not planned: %s\n", ws_attention_message());
        return 1;
    }
    printf("planned: %llu bytes of scratch memory, %u counters\n", (unsigned long long)scratch_bytes, counters);
    at.q = memory(BATCH * HEADS * DIM, 0x38); /* 1 in e4m3 */
    at.k = memory((size_t)PAGES * PAGE * HEADS_KV * DIM, 0x38);
    at.v = memory((size_t)PAGES * PAGE * HEADS_KV * DIM, 0x7E); /* 448 */
    at.q_scale = at.k_scale = at.v_scale = memory(4 * BATCH * HEADS, 0);
    if (write_words(at.q_scale, 0x3F800000, BATCH * HEADS)) return 1;
    at.out = memory(sizeof out, 0xFF);
    at.scratch = memory(scratch_bytes + 16, 0);
    at.counters = memory(4 * (size_t)counters + 16, 0);
    at.used = memory(sizeof used, 0);
    at.pages = memory(sizeof table, 0);
    for (round = 0; round < 2; ++round) {
        for (b = 0; b < BATCH; ++b)
            for (i = 0; i < OF_SEQUENCE; ++i) {
                const int rest = used[b] + round - i * PAGE, tokens = rest > PAGE ? PAGE : rest;
                table[b][i] = (7 * (b * OF_SEQUENCE + i) + 3) % PAGES;
                if (tokens > 0 && fill(at.v + (uint64_t)table[b][i] * PAGE * HEADS_KV * DIM, 0x38, (size_t)tokens * HEADS_KV * DIM)) return 1;
            }
        for (b = 0; b < BATCH; ++b) used[b] += round;
        if (write_all(at.used, used, sizeof used) || write_all(at.pages, table, sizeof table)) return 1;
        if (ws_attention_launch(plan, &at, 0)) {
            printf("not launched: %s\n", ws_attention_message());
            return 1;
        }
        if (wait() || read_back(out, at.out, sizeof out)) return 1;
        printf("%d and %d keys: %04x %04x (one is 3c00)\n", (int)used[0], (int)used[1], out[0][0][0], out[BATCH - 1][HEADS - 1][DIM - 1]);
        for (b = 0; b < BATCH; ++b)
            for (i = 0; i < HEADS * DIM; ++i)
                if (out[b][i / DIM][i % DIM] != 0x3C00) return 1;
    }
    ws_attention_free(plan);
    return 0;
}
