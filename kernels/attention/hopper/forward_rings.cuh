// What forward.cu's producers and consumers meet by: positions in rings of buffers, the addresses of barriers, and of scales beside them.
//
// Wants kStages and kVtStages, the slots of K and of V^T, and, of the map of shared memory, kBars, kBarsRoom, kScales and kScaleSlots.
#pragma once
#include "ptx.cuh"

// A position in a ring of kRing buffers.
template <i32 kRing>
struct Ring {
    u32 slot = 0, phase = 0;
    WS_DEV_MEMBER void next() {
        if (++slot == kRing) slot = 0, phase ^= 1;
    }
};

// A consumer's position in the rings of K and of V^T: the number of tiles of keys so far, from which the slots follow where both rings are powers of two
// long; else the slots are counted beside it.
struct Counted {
    u32 n = 0;
    Ring<kStages> k;
    Ring<kVtStages> vt;
    WS_DEV_MEMBER void operator++() { ++n, k.next(), vt.next(); }
    WS_DEV_MEMBER void operator+=(i32 by) {
        for (i32 i = 0; i < by; ++i) ++*this;
    }
    WS_DEV_MEMBER Counted operator+(i32 by) const {
        Counted x = *this;
        x += by;
        return x;
    }
};
template <bool kPowers>
struct PlaceOf { using Type = u32; };
template <>
struct PlaceOf<false> { using Type = Counted; };
using Place = PlaceOf<(kStages & (kStages - 1)) == 0 && (kVtStages & (kVtStages - 1)) == 0>::Type;

WS_DEV u32 number(u32 n) { return n; }
WS_DEV u32 number(const Counted& n) { return n.n; }
WS_DEV u32 k_slot(u32 n) { return n % kStages; }
WS_DEV u32 k_slot(const Counted& n) { return n.k.slot; }
WS_DEV u32 k_phase(u32 n) { return n / kStages & 1; }
WS_DEV u32 k_phase(const Counted& n) { return n.k.phase; }
WS_DEV u32 vt_slot(u32 n) { return n % kVtStages; }
WS_DEV u32 vt_slot(const Counted& n) { return n.vt.slot; }
WS_DEV u32 vt_phase(u32 n) { return n / kVtStages & 1; }
WS_DEV u32 vt_phase(const Counted& n) { return n.vt.phase; }

struct Bars {
    u32 at;
    WS_DEV_MEMBER u32 q_full(u32 i) const { return at + 8 * i; }
    WS_DEV_MEMBER u32 q_empty(u32 i) const { return at + 16 + 8 * i; }
    WS_DEV_MEMBER u32 k_full(u32 i) const { return at + 32 + 8 * i; }
    WS_DEV_MEMBER u32 k_empty(u32 i) const { return at + 32 + 8 * (kBarsRoom + i); }
    WS_DEV_MEMBER u32 v_full(u32 i) const { return at + 32 + 8 * (2 * kBarsRoom + i); }
    WS_DEV_MEMBER u32 v_empty(u32 i) const { return at + 32 + 8 * (3 * kBarsRoom + i); }
    WS_DEV_MEMBER u32 vt_full(u32 i) const { return at + 32 + 8 * (4 * kBarsRoom + i); }
    WS_DEV_MEMBER u32 vt_empty(u32 i) const { return at + 32 + 8 * (5 * kBarsRoom + i); }
    // Q, where q_full says that consumers were told of their row tile: behind the others, for rings of four.
    WS_DEV_MEMBER u32 q_raw(u32 i) const { return at + 32 + 8 * (6 * kBarsRoom + i); }
    // A number that the loader of K has drawn, for the other roles, in places of V's barriers that rings of two leave.
    WS_DEV_MEMBER u32 drawn_full(u32 i) const { return at + 32 + 8 * (2 * kBarsRoom + 2 + i); }
    WS_DEV_MEMBER u32 drawn_empty(u32 i) const { return at + 32 + 8 * (3 * kBarsRoom + 2 + i); }
    WS_DEV_MEMBER u32 drawn(u32 i) const { return at + 240 + 4 * i; }
    // Scales of the n-th tile of K and of V that this CTA works on.
    WS_DEV_MEMBER u32 k_scale(u32 n) const { return at + (kScales - kBars) + n % kScaleSlots * 4; }
    WS_DEV_MEMBER u32 v_scale(u32 n) const { return at + (kScales - kBars) + (kScaleSlots + n % kScaleSlots) * 4; }
};

WS_DEV float load_shared_f32(u32 addr) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(addr) : "memory");
    return x;
}

WS_DEV void store_shared_f32(u32 addr, float x) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(addr), "f"(x) : "memory"); }
