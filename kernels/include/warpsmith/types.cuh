// Fixed-width names for NVRTC, which has no <stdint.h>. It knows no instruction and no kernel.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The address of a shared object inside its 32-bit window, which is what ldmatrix and cp.async take.
static __device__ __forceinline__ u32 smem_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
