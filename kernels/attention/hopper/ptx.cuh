// The PTX that the Hopper attention kernels are made of: one thin wrapper for each instruction.
//
// Knows nothing of attention. Source: PTX ISA 9.0, the section named at each group. Limit: sm_90a only; the caller keeps the
// rules of convergence (`.aligned` instructions are executed by whole warps, `wgmma` and `setmaxnreg` by whole warpgroups).
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define WS_DEV static inline __device__ __attribute__((always_inline))
#define WS_DEV_MEMBER __device__ __forceinline__

// A tensor map as the driver encodes it (CUtensorMap): opaque, 128 bytes, passed by value in the kernel's parameters.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

WS_DEV u32 smem_addr(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// ---- mbarrier (9.7.13.15) ----

WS_DEV void mbarrier_init(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }

WS_DEV void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

WS_DEV void mbarrier_expect_tx(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

// Announces bytes without arriving.
WS_DEV void mbarrier_expect_only(u32 bar, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

WS_DEV void mbarrier_arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }

WS_DEV void mbarrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra DONE;\n"
        "bra WAIT;\n"
        "DONE:\n"
        "}\n" ::"r"(bar),
        "r"(parity)
        : "memory");
}

// Whether a phase has ended, without waiting for it.
WS_DEV bool mbarrier_test(u32 bar, u32 parity) {
    u32 there;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(there) : "r"(bar), "r"(parity) : "memory");
    return there;
}

// Waits unless that has been seen before. (A branch around the wait would differ between lanes for all that the compiler knows.)
WS_DEV void mbarrier_wait_unless(bool there, u32 bar, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %2, 0;\n"
        "@p bra DONE;\n"
        "WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra DONE;\n"
        "bra WAIT;\n"
        "DONE:\n"
        "}\n" ::"r"(bar),
        "r"(parity), "r"(static_cast<u32>(there))
        : "memory");
}

// ---- bulk tensor copies (9.7.9.27) ----

WS_DEV void prefetch_tensor_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

WS_DEV void tma_load_4d(u32 smem, const TensorMap* map, u32 bar, i32 c0, i32 c1, i32 c2, i32 c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// Of a thread's groups of copies to global memory all but the last N have been read from shared memory (bulk_wait_read), are there (bulk_wait).
WS_DEV void tma_store_4d(u32 smem, const TensorMap* map, i32 c0, i32 c1, i32 c2, i32 c3) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5}], [%0];" ::"r"(smem), "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
WS_DEV void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
WS_DEV void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
template <int N>
WS_DEV void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// Called where a thread has asked for all of a barrier's copies: plain.cuh arrives there, as its copies do not.
WS_DEV void copies_issued(u32) {}

// Brings a box into the L2: a hint, which orders nothing (9.7.9.27.1.4).
WS_DEV void tma_prefetch_4d(const TensorMap* map, i32 c0, i32 c1, i32 c2, i32 c3) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}

// ---- cp.async (9.7.9.25): 16 bytes; with 0 valid bytes it fills zeros ----

WS_DEV void cp_async_16(u32 smem, const void* gmem, u32 valid_bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem), "l"(gmem), "r"(valid_bytes) : "memory");
}

// Arrives at a barrier, which counts on it, once all of this thread's copies so far are there.
WS_DEV void cp_async_arrive(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory"); }

WS_DEV void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
WS_DEV void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Brings the line of 128 bytes that holds `gmem` into the L2: a hint, which orders nothing (9.7.9.15).
WS_DEV void prefetch_l2(const void* gmem) { asm volatile("prefetch.global.L2 [%0];" ::"l"(gmem)); }

// ---- barriers, fences and registers ----

WS_DEV void named_barrier_sync(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

WS_DEV void named_barrier_arrive(u32 id, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// Makes this thread's ordinary shared-memory writes visible to wgmma and TMA, once a barrier has ordered them.
WS_DEV void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// What this thread has acquired of ordinary writes to global memory is visible to its copies by TMA.
WS_DEV void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

template <int N>
WS_DEV void registers_raise() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
WS_DEV void registers_lower() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- wgmma's group control (9.7.15.7); the products themselves are in wgmma.cuh ----

WS_DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

WS_DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N>
WS_DEV void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Keeps the compiler from moving uses of accumulators over a wait that it cannot see through.
template <int N>
WS_DEV void pin(float (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

template <int N>
WS_DEV void pin(u32 (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// ---- ldmatrix, stmatrix (9.7.14.5) ----

WS_DEV void ldmatrix_x4_trans(u32 (&r)[4], u32 addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

WS_DEV void stmatrix_x4(u32 addr, u32 r0, u32 r1, u32 r2, u32 r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

// ---- arithmetic ----

WS_DEV float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

WS_DEV float lg2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

WS_DEV float fma_sat(float a, float b, float c) {
    float y;
    asm("fma.rn.ftz.sat.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(b), "f"(c));
    return y;
}

// Two floats to two e4m3 bytes, the first in the low byte; saturating, to nearest even.
WS_DEV u16 e4m3x2(float lo, float hi) {
    u16 y;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(hi), "f"(lo));
    return y;
}

WS_DEV u32 e4m3x4(float a, float b, float c, float d) {
    u32 y;
    asm("{.reg .b16 l, h;\n"
        "cvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 h, %4, %3;\n"
        "mov.b32 %0, {l, h};}"
        : "=r"(y)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return y;
}

WS_DEV u32 bf16x2(float lo, float hi) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}

WS_DEV u32 f16x2(float lo, float hi) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}

// 1 / x to about 23 bits, without the slow path of a division.
WS_DEV float rcp(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---- clusters (9.7.13.4, 9.7.9.21) ----

WS_DEV u32 cluster_rank() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

// Arrives without ordering memory: for telling the others only that this CTA runs and has initialised its barriers (after mbarrier_init_fence).
WS_DEV void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

WS_DEV void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The address, in CTA `rank` of the cluster, of what lies at `addr` here.
WS_DEV u32 cluster_addr(u32 addr, u32 rank) {
    u32 r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
    return r;
}

// Stores that count their bytes on a barrier of the CTA that they go to: no fence, and no barrier for the sender (9.7.9.12).
WS_DEV void cluster_send4(u32 addr, u32 bar, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(addr), "r"(a), "r"(b), "r"(c), "r"(d), "r"(bar)
                 : "memory");
}

WS_DEV void cluster_send2(u32 addr, u32 bar, float a, float b) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(addr), "f"(a), "f"(b), "r"(bar) : "memory");
}

WS_DEV void f32_of_f16x2(u32 x, float& low, float& high) {
    asm("{.reg .f16 l, h;\n"
        "mov.b32 {l, h}, %2;\n"
        "cvt.f32.f16 %0, l;\n"
        "cvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high)
        : "r"(x));
}

// ---- loads that stay above the barriers that they are written above: ptxas sinks ordinary ones to their first use ----

WS_DEV float load_f32(const float* p) {
    float x;
    asm volatile("ld.volatile.global.f32 %0, [%1];" : "=f"(x) : "l"(p));
    return x;
}

WS_DEV u32 load_u32(const void* p) {
    u32 x;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(x) : "l"(p));
    return x;
}

// Adds, after all that this thread knows to be written, and before all that it reads later: for the whole device (9.7.13.5).
WS_DEV i32 add_in_order(i32* p, i32 x) {
    i32 old;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(x) : "memory");
    return old;
}

// ---- arithmetic (9.7.3.12) ----

// The larger one; not a number where one of them is none, which maxima, codes and polynomials would hide.
WS_DEV float max_nan(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// ---- warp-level products of f16 (9.7.14.4), and e4m3 pairs as f16 pairs (exact) ----

WS_DEV void ldmatrix_x4(u32 (&r)[4], u32 addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

WS_DEV void mma_f16(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Eight rows of eight f16, a row's pair for each lane: transposed (9.7.14.5.18).
WS_DEV u32 transpose_8x8(u32 x) {
    u32 y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Four e4m3 bytes to two f16 pairs: bytes 0 and 1, bytes 2 and 3.
WS_DEV void f16_of_e4m3(u32 x, u32& low, u32& high) {
    asm("{.reg .b16 l, h;\n"
        "mov.b32 {l, h}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, l;\n"
        "cvt.rn.f16x2.e4m3x2 %1, h;}"
        : "=r"(low), "=r"(high)
        : "r"(x));
}

// The warp's own product of e4m3: m16n8k32, f32 accumulation.
WS_DEV void mma_e4m3(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- programmatic dependent launch (9.7.13.13) ----

// The next kernel of the stream may begin to be placed; what it does before its own wait_for_earlier_kernels is then hidden.
WS_DEV void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// No global memory is touched before this: it returns when the earlier kernels are done and their writes visible.
WS_DEV void wait_for_earlier_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
