/* FP8 attention from C, by the shared library alone: keys and values of one give outputs of one.
 *
 *     cargo xtask attention-kernels && cargo build --release -p warpsmith-attention
 *     cc -std=c99 -I crates/attention/include crates/attention/examples/attention.c -o attention -L target/release -lwarpsmith_attention -ldl
 *     LD_LIBRARY_PATH=target/release ./attention
 *
 * The few calls of the CUDA driver are looked up at run time, so that this builds where no toolkit is installed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <warpsmith_attention.h>

enum { BATCH = 2, HEADS = 32, HEADS_KV = 8, QUERIES = 1, KEYS = 4096, DIM = 128 };

static int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*allocate)(uint64_t *, size_t), (*fill)(uint64_t, unsigned char, size_t);
static int (*write_words)(uint64_t, unsigned, size_t), (*read_back)(void *, uint64_t, size_t), (*wait)(void);

static int driver(void) {
    const char *names[] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemsetD8_v2", "cuMemsetD32_v2", "cuMemcpyDtoH_v2", "cuCtxSynchronize"};
    void *into[] = {&init, &retain, &set, &allocate, &fill, &write_words, &read_back, &wait};
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
    uint16_t out[4];

    /* Wrong arguments are found before anything is asked of a device. */
    ws_attention_dense(1, 8, 8, 512, 512, 96, &problem);
    if (ws_attention_plan(&problem, &plan) != WS_ATTENTION_WRONG_ARGUMENT) return 1;
    printf("a head dimension of 96: %s\n", ws_attention_message());

    if (!driver()) {
        ws_attention_dense(BATCH, HEADS, HEADS_KV, QUERIES, KEYS, DIM, &problem);
        if (ws_attention_plan(&problem, &plan) != WS_ATTENTION_DRIVER) return 1;
        printf("without a driver: %s\n", ws_attention_message());
        return 0;
    }
    ws_attention_dense(BATCH, HEADS, HEADS_KV, QUERIES, KEYS, DIM, &problem);
    problem.out_format = 1; /* f16 */
    if (ws_attention_plan(&problem, &plan) || ws_attention_workspace(plan, &scratch_bytes, &counters)) {
        printf("not planned: %s\n", ws_attention_message());
        return 1;
    }
    printf("planned: %llu bytes of scratch memory, %u counters\n", (unsigned long long)scratch_bytes, counters);
    at.q = memory((size_t)BATCH * HEADS * QUERIES * DIM, 0x38); /* 1 in e4m3 */
    at.k = memory((size_t)BATCH * HEADS_KV * KEYS * DIM, 0x38);
    at.v = memory((size_t)BATCH * HEADS_KV * KEYS * DIM, 0x38);
    at.q_scale = at.k_scale = at.v_scale = memory(4 * BATCH * HEADS, 0);
    if (write_words(at.q_scale, 0x3F800000, BATCH * HEADS)) return 1;
    at.out = memory((size_t)2 * BATCH * HEADS * QUERIES * DIM, 0xFF);
    at.scratch = memory(scratch_bytes + 16, 0);
    at.counters = memory(4 * (size_t)counters + 16, 0);
    if (ws_attention_launch(plan, &at, 0)) {
        printf("not launched: %s\n", ws_attention_message());
        return 1;
    }
    if (wait() || read_back(out, at.out, sizeof out)) return 1;
    printf("out: %04x %04x %04x %04x (one is 3c00)\n", out[0], out[1], out[2], out[3]);
    ws_attention_free(plan);
    return out[0] != 0x3C00;
}
