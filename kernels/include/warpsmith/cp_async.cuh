// cp.async: 16 bytes from global to shared memory without registers. A thread's copies form groups; what it copied is its own
// to read after the wait, and the CTA's after a barrier that follows the wait. sm_80 and later.
#pragma once
#include <warpsmith/types.cuh>

namespace ptx {

// Both addresses are multiples of 16.
static __device__ __forceinline__ void cp_async_16(u32 smem_dst, const void* gmem_src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_dst), "l"(__cvta_generic_to_global(gmem_src)) : "memory");
}

static __device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of the thread's newest groups are still in flight.
template <int N>
static __device__ __forceinline__ void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace ptx
