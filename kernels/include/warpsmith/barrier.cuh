// bar.sync and bar.arrive on named barriers. Barrier 0 is __syncthreads(); a CTA has sixteen. `threads` counts those that wait
// and those that only arrive, and is a multiple of 32. What a thread wrote before it arrives is seen by those who waited
// (PTX ISA, "bar", the producer and consumer of its example). compute-sanitizer's racecheck knows no order from bar.arrive
// and reports a hazard on this pair where there is none.
#pragma once
#include <warpsmith/types.cuh>

namespace ptx {

static __device__ __forceinline__ void bar_sync(u32 barrier, u32 threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

static __device__ __forceinline__ void bar_arrive(u32 barrier, u32 threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace ptx
