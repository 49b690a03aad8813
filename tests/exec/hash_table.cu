// A hash table with compare-and-swap, and a lock.
struct KeyValue { unsigned key, value; };
__device__ unsigned hash(unsigned k) { k ^= k >> 16; k *= 0x85ebca6b; k ^= k >> 13; k *= 0xc2b2ae35; k ^= k >> 16; return k & 511; }
__global__ void insert(KeyValue* table, const unsigned* keys, unsigned n) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; unsigned slot = hash(keys[i]); while (true) { unsigned prev = atomicCAS(&table[slot].key, 0xffffffffu, keys[i]); if (prev == 0xffffffffu || prev == keys[i]) { table[slot].value = keys[i] * 3; return; } slot = (slot + 1) & 511; } }
__global__ void lookup(const KeyValue* table, const unsigned* keys, unsigned* out, unsigned n) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; unsigned slot = hash(keys[i]); while (table[slot].key != keys[i]) slot = (slot + 1) & 511; out[i] = table[slot].value; }
__device__ int mutex = 0;
__global__ void locked(int* counter, unsigned* out) { if (threadIdx.x % 32 == 0) { while (atomicCAS(&mutex, 0, 1) != 0) ; __threadfence(); *((volatile int*)counter) = *((volatile int*)counter) + 1; __threadfence(); atomicExch(&mutex, 0); } __syncthreads(); if (threadIdx.x == 0) atomicMax(out, blockDim.x); }
__global__ void init(KeyValue* t) { t[blockIdx.x * blockDim.x + threadIdx.x] = {0xffffffffu, 0xffffffffu}; }
