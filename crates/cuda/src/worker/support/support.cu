// The worker's own kernels: what is done to buffers between launches that are timed. support.ptx is made of it by toolkit 13.0:
//     nvcc -ptx -arch=compute_75 support.cu -o support.ptx
// with its `.version 9.0` lowered to 8.4, so that drivers from 12.4 on take it (nothing here is newer than 7.0); and, so that no time goes into
// compiling it on the devices that are meant first, for T in 89 90:
//     nvcc -cubin -arch=sm_T support.cu -o support.sm_T.cubin
// One launch does a whole table: blockIdx.y is the row. `Move`, `Check`, `Found` and the pattern are those of device.rs, byte by byte.
#include <stdint.h>

struct alignas(16) Move { uint64_t to, from, bytes, kind; };      // kind: 0 copy, 1 pattern (from is the seed), 2 zeros
struct alignas(16) Check { uint64_t at, with, bytes, kind; };     // kind: 0 equal to `with`, 1 pattern of the seed `with`
struct alignas(16) Found { unsigned long long first, last, count, pad; };

// What a pattern has in the eight bytes at 8 * index: a function of the address, so that any part of it can be checked by itself.
__device__ __forceinline__ uint64_t pattern(uint64_t seed, uint64_t index)
{
    uint64_t x = seed + index * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x = x ^ (x >> 31);
    return (x & 0x7f7f7f7f7f7f7f7full) | 0x0202020202020202ull;
}

__device__ __forceinline__ uint8_t pattern_byte(uint64_t seed, uint64_t at)
{
    return (uint8_t)(pattern(seed, at >> 3) >> (8 * (at & 7)));
}

// Calls bytes(address, count) for what lies before and behind whole 16-byte words, and words(address) for those, each once in the grid.
template <class Words, class Bytes>
__device__ __forceinline__ void over(uint64_t start, uint64_t count, Words words, Bytes bytes)
{
    uint64_t first = (start + 15) & ~15ull, end = start + count, last = end & ~15ull;
    uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, threads = (uint64_t)gridDim.x * blockDim.x;
    if (first >= last) {
        for (uint64_t at = start + thread; at < end; at += threads) bytes(at);
        return;
    }
    for (uint64_t at = first + 16 * thread; at < last; at += 16 * threads) words(at);
    if (start + thread < first) bytes(start + thread);
    if (last + thread < end) bytes(last + thread);
}

extern "C" __global__ void __launch_bounds__(256) ws_arrange(const Move* moves)
{
    Move m = moves[blockIdx.y];
    if (m.kind == 0) {
        uint64_t shift = m.from - m.to;   // both are multiples of 256
        over(m.to, m.bytes, [&](uint64_t at) { *(uint4*)at = *(const uint4*)(at + shift); },
             [&](uint64_t at) { *(uint8_t*)at = *(const uint8_t*)(at + shift); });
    } else if (m.kind == 1) {
        over(m.to, m.bytes,
             [&](uint64_t at) {
                 uint64_t a = pattern(m.from, at >> 3), b = pattern(m.from, (at >> 3) + 1);
                 *(uint4*)at = make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
             },
             [&](uint64_t at) { *(uint8_t*)at = pattern_byte(m.from, at); });
    } else {
        over(m.to, m.bytes, [&](uint64_t at) { *(uint4*)at = make_uint4(0, 0, 0, 0); },
             [&](uint64_t at) { *(uint8_t*)at = 0; });
    }
}

__device__ __forceinline__ void differs(Found* found, uint64_t offset)
{
    atomicMin(&found->first, (unsigned long long)offset);
    atomicMax(&found->last, (unsigned long long)offset);
    atomicAdd(&found->count, 1ull);
}

extern "C" __global__ void __launch_bounds__(256) ws_compare(const Check* checks, Found* found)
{
    Check c = checks[blockIdx.y];
    Found* f = found + blockIdx.y;
    uint64_t shift = c.with - c.at;
    auto want = [&](uint64_t at) { return c.kind == 0 ? *(const uint8_t*)(at + shift) : pattern_byte(c.with, at); };
    auto byte = [&](uint64_t at) {
        if (*(const uint8_t*)at != want(at)) differs(f, at - c.at);
    };
    over(c.at, c.bytes,
         [&](uint64_t at) {
             uint4 got = *(const uint4*)at, with;
             if (c.kind == 0) {
                 with = *(const uint4*)(at + shift);
             } else {
                 uint64_t a = pattern(c.with, at >> 3), b = pattern(c.with, (at >> 3) + 1);
                 with = make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
             }
             if (got.x != with.x || got.y != with.y || got.z != with.z || got.w != with.w)
#pragma unroll 1
                 for (int i = 0; i < 16; ++i) byte(at + i);
         },
         byte);
}

// Writes every line of memory larger than L2.
extern "C" __global__ void __launch_bounds__(256) ws_overwrite(uint4* at, uint64_t words, uint32_t value)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (uint64_t)gridDim.x * blockDim.x)
        at[i] = make_uint4(value, value, value, value);
}

// Reads every line of it, so that what L2 holds in the end need not be written back while something is timed. Never writes: no such value is there.
extern "C" __global__ void __launch_bounds__(256) ws_read(uint4* at, uint64_t words, uint32_t never)
{
    uint32_t seen = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (uint64_t)gridDim.x * blockDim.x) {
        uint4 v = at[i];
        seen |= v.x | v.y | v.z | v.w;
    }
    if (seen == never) at[0].x = never;
}
