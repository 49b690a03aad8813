//! task = "fp16_sdpa"
//! targets = ["sm_89", "sm_80", "sm_90"]
//! constraints = ["D == 64 || D == 128"]
//! defines = ["D"]
//! [[config]]
//! name = "16x64x4x2"
//! set = { BLOCK_M = 16, BLOCK_N = 64, WARPS = 4, STAGES = 2 }
//! [[config]]
//! name = "32x64x4x1"
//! set = { BLOCK_M = 32, BLOCK_N = 64, WARPS = 4, STAGES = 1 }
//! [[config]]
//! name = "32x64x4x2"
//! set = { BLOCK_M = 32, BLOCK_N = 64, WARPS = 4, STAGES = 2 }
//! [[config]]
//! name = "32x32x4x2"
//! set = { BLOCK_M = 32, BLOCK_N = 32, WARPS = 4, STAGES = 2 }
//! [[config]]
//! name = "48x64x8x2"
//! set = { BLOCK_M = 48, BLOCK_N = 64, WARPS = 8, STAGES = 2 }
//! [[launch]]
//! entry = "sdpa_fp16"
//! grid = ["ceil_div(S, BLOCK_M)", "B * H"]
//! block = ["32 * WARPS"]
//! shared_bytes = "(BLOCK_M + 2 * STAGES * BLOCK_N) * D * 2"
//! args = ["q", "k", "v", "out", "softmax_scale", "S", "causal"]

// The f16 family for short sequences: small blocks of queries, so that 8 heads of 512 rows give every SM something to do, and
// the keys of a tile split between the warps that share those queries.
//
//   out = softmax(softmax_scale * q k^T) v, row by row, keys in tiles with a running maximum.
//
// Shapes    q, k, v, out (B, H, S, D) f16, contiguous. causal: row i sees keys 0..i.
// Assumes   D 64 or 128; any S; a positive softmax_scale.
// Roles     A CTA owns BLOCK_M queries of one head: BLOCK_M / 16 groups of 16 rows. SPLIT = WARPS / groups warps share a group, each
//           takes BLOCK_N / SPLIT keys of a tile and keeps its own maximum, sum and output; they are merged once, at the end:
//             wait for this tile -> barrier -> start copying the tile STAGES - 1 ahead -> S = Q K^T -> softmax -> O = O rescale + P V
//             ... -> barrier -> splits 1 and up write m, l, O over the ring -> barrier -> split 0 merges and stores
//           With one stage the copy of the next tile waits for a second barrier. Warps that no group needs (two of the eight in
//           48x64x8x2) only help to copy.
//           Tiles are f16 rows, 16-byte chunk c of row r at c ^ (r & 7). S and P stay in registers (mma.sync m16n8k16): two
//           accumulators side by side, cast to f16, are an A operand.
// Resources Registers (sm_89) and bytes of shared memory at D 64: 16x64x4x2 80, 34,816; 32x64x4x1 96, 20,480; 32x64x4x2 96, 36,864;
//           32x32x4x2 94, 20,480; 48x64x8x2 103, 38,912. No spills (NVRTC and ptxas 13.0.88).
// Measured  Not yet.
// From      level_06 of the FP8 ladder, less the widening.

#include <warpsmith/cp_async.cuh>
#include <warpsmith/cvt.cuh>
#include <warpsmith/ldmatrix.cuh>
#include <warpsmith/math.cuh>
#include <warpsmith/mma.cuh>
#include <warpsmith/shfl.cuh>

constexpr int kHeadDim = WS_D;
constexpr int kBlockM = BLOCK_M, kBlockN = BLOCK_N, kWarps = WARPS, kNumStages = STAGES, kThreads = 32 * kWarps;
constexpr int kGroups = kBlockM / 16, kSplit = kWarps / kGroups, kSplitKeys = kBlockN / kSplit;
constexpr int kTileBytes = kBlockN * kHeadDim * 2;
constexpr int kPartialFloats = (kHeadDim / 2 + 4) * 32;  // what a warp hands over: O, then m and l of rows g and g + 8
static_assert(kHeadDim == 64 || kHeadDim == 128, "a row is 8 or 16 chunks");
static_assert(kBlockM % 16 == 0, "a warp owns 16 rows");
static_assert(kSplit >= 1 && kSplitKeys % 16 == 0, "P V takes 16 keys at a time");
static_assert(kNumStages >= 1, "a tile needs a place");
static_assert((kSplit - 1) * kGroups * kPartialFloats * 4 <= 2 * kNumStages * kTileBytes, "partial results pass through the ring");

// Where eight halves of a tile lie, in bytes.
static __device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk) { return row * kHeadDim * 2 + (chunk ^ (row % 8)) * 16; }

// Starts the copy of `kRows` rows. Rows past the last one repeat it: their weight is zero.
template <int kRows>
static __device__ __forceinline__ void copy_rows(u32 smem_tile, const u16* gmem_tile, int last_row)
{
    constexpr int kChunks = kHeadDim / 8, kCopies = kRows * kChunks;
#pragma unroll
    for (int first = 0; first < kCopies; first += kThreads) {
        const u32 i = first + threadIdx.x, row = i / kChunks, chunk = i % kChunks;
        if (kCopies % kThreads == 0 || i < kCopies)
            ptx::cp_async_16(smem_tile + tile_offset(row, chunk), gmem_tile + min(static_cast<int>(row), last_row) * kHeadDim + chunk * 8);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
sdpa_fp16(const u16* __restrict__ q, const u16* __restrict__ k, const u16* __restrict__ v, u16* __restrict__ out,
          float softmax_scale, int seqlen, int causal)
{
    extern __shared__ __align__(128) u8 smem[];  // Q (kBlockM, D); kNumStages x { K, V } (kBlockN, D)
    const u32 smem_q = smem_address(smem), smem_ring = smem_q + kBlockM * kHeadDim * 2;

    const u32 head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const u32 group = warp % kGroups, split = warp / kGroups;
    const bool computes = split < kSplit;
    const int m0 = blockIdx.x * kBlockM, row0 = m0 + group * 16;  // of the CTA, of the warp
    const size_t head_offset = static_cast<size_t>(head) * seqlen * kHeadDim;
    const float scale = softmax_scale * 1.4426950408889634f;  // exp(x) = 2^(x log2 e)
    const float ninf = __int_as_float(0xff800000);
    const int cta_end = causal ? min(seqlen, m0 + kBlockM) : seqlen;  // keys that any row of the CTA sees
    const int warp_end = causal ? min(seqlen, row0 + 1) : seqlen;     // keys that every row of the warp sees
    const int tiles = (cta_end + kBlockN - 1) / kBlockN;

    const auto copy = [&](int tile) {
        if (tile < tiles) {
            const int n0 = tile * kBlockN;
            const size_t first = head_offset + static_cast<size_t>(n0) * kHeadDim;
            const u32 smem_k = smem_ring + tile % kNumStages * (2 * kTileBytes);
            copy_rows<kBlockN>(smem_k, k + first, seqlen - 1 - n0);
            copy_rows<kBlockN>(smem_k + kTileBytes, v + first, seqlen - 1 - n0);
        }
        ptx::cp_async_commit_group();
    };
    copy_rows<kBlockM>(smem_q, q + head_offset + static_cast<size_t>(m0) * kHeadDim, seqlen - 1 - m0);
    ptx::cp_async_commit_group();
    constexpr int kAhead = kNumStages > 1 ? kNumStages - 1 : 1;  // tiles asked for before the first is worked on
    for (int tile = 0; tile < kAhead; ++tile) copy(tile);

    ptx::cp_async_wait_group<kAhead>();
    __syncthreads();
    u32 reg_q[kHeadDim / 16][4];  // (16, D)
#pragma unroll
    for (int kk = 0; kk < kHeadDim / 16; ++kk)
        ptx::ldmatrix_x4(reg_q[kk], smem_q + tile_offset(group * 16 + lane % 16, 2 * kk + lane / 16));

    float reg_o[kHeadDim / 8][4] = {};                 // (16, D)
    float row_max[2] = {ninf, ninf}, row_sum[2] = {};  // of rows g and g + 8: of the scores before scaling; of the lane's keys

    for (int tile = 0; tile < tiles; ++tile) {
        const int n0 = tile * kBlockN + split * kSplitKeys;  // the warp's first key
        const u32 smem_k = smem_ring + tile % kNumStages * (2 * kTileBytes), smem_v = smem_k + kTileBytes;
        ptx::cp_async_wait_group<kAhead - 1>();
        __syncthreads();
        if constexpr (kNumStages > 1) copy(tile + kAhead);

        if (computes) {
            float s[kSplitKeys / 8][4] = {};  // (16, kSplitKeys)
#pragma unroll
            for (int nb = 0; nb < kSplitKeys / 8; ++nb)
#pragma unroll
                for (int kk = 0; kk < kHeadDim / 16; kk += 2) {
                    u32 b[4];  // (32, 8)
                    ptx::ldmatrix_x4(b, smem_k + tile_offset(split * kSplitKeys + 8 * nb + lane % 8, 2 * kk + lane / 8));
                    ptx::mma_m16n8k16_f32_f16(s[nb], reg_q[kk], b[0], b[1]);
                    ptx::mma_m16n8k16_f32_f16(s[nb], reg_q[kk + 1], b[2], b[3]);
                }

            if (n0 + kSplitKeys > warp_end) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int seen = (causal ? min(seqlen, row0 + static_cast<int>(g) + 8 * h + 1) : seqlen) - n0 - 2 * static_cast<int>(t);
#pragma unroll
                    for (int nb = 0; nb < kSplitKeys / 8; ++nb) {
                        if (8 * nb >= seen) s[nb][2 * h] = ninf;
                        if (8 * nb + 1 >= seen) s[nb][2 * h + 1] = ninf;
                    }
                }
            }

            float rescale[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float tile_max = row_max[h];
#pragma unroll
                for (int nb = 0; nb < kSplitKeys / 8; ++nb) tile_max = fmaxf(tile_max, fmaxf(s[nb][2 * h], s[nb][2 * h + 1]));
                tile_max = fmaxf(tile_max, ptx::shfl_sync_bfly(tile_max, 1));
                tile_max = fmaxf(tile_max, ptx::shfl_sync_bfly(tile_max, 2));
                const float top = tile_max == ninf ? 0.f : tile_max;  // a split may have seen no key of this row yet
                const float offset = -top * scale;
                rescale[h] = ptx::ex2_approx_ftz((row_max[h] - top) * scale);
                row_max[h] = tile_max;
                row_sum[h] *= rescale[h];
#pragma unroll
                for (int nb = 0; nb < kSplitKeys / 8; ++nb) {
                    s[nb][2 * h] = ptx::ex2_approx_ftz(fmaf(s[nb][2 * h], scale, offset));
                    s[nb][2 * h + 1] = ptx::ex2_approx_ftz(fmaf(s[nb][2 * h + 1], scale, offset));
                    row_sum[h] += s[nb][2 * h] + s[nb][2 * h + 1];
                }
            }

#pragma unroll
            for (int db = 0; db < kHeadDim / 8; ++db) {
                reg_o[db][0] *= rescale[0];
                reg_o[db][1] *= rescale[0];
                reg_o[db][2] *= rescale[1];
                reg_o[db][3] *= rescale[1];
            }
#pragma unroll
            for (int kk = 0; kk < kSplitKeys / 16; ++kk) {
                const float(&lo)[4] = s[2 * kk], (&hi)[4] = s[2 * kk + 1];
                const u32 p[4] = {ptx::cvt_rn_f16x2_f32(lo[0], lo[1]), ptx::cvt_rn_f16x2_f32(lo[2], lo[3]),
                                  ptx::cvt_rn_f16x2_f32(hi[0], hi[1]), ptx::cvt_rn_f16x2_f32(hi[2], hi[3])};  // (16, 16)
#pragma unroll
                for (int db = 0; db < kHeadDim / 8; db += 2) {
                    u32 b[4];  // (16, 16)
                    ptx::ldmatrix_x4_trans(b, smem_v + tile_offset(split * kSplitKeys + 16 * kk + lane % 16, db + lane / 16));
                    ptx::mma_m16n8k16_f32_f16(reg_o[db], p, b[0], b[1]);
                    ptx::mma_m16n8k16_f32_f16(reg_o[db + 1], p, b[2], b[3]);
                }
            }
        }
        if constexpr (kNumStages == 1) {
            __syncthreads();
            copy(tile + 1);
        }
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
        row_sum[h] += ptx::shfl_sync_bfly(row_sum[h], 1);
        row_sum[h] += ptx::shfl_sync_bfly(row_sum[h], 2);
    }
    if constexpr (kSplit > 1) {
        // Word i of a warp's part lies at 32 i + lane, so that neither side has bank conflicts.
        float* const smem_part = reinterpret_cast<float*>(smem + kBlockM * kHeadDim * 2) + lane;
        __syncthreads();
        if (computes && split > 0) {
            float* part = smem_part + ((split - 1) * kGroups + group) * kPartialFloats;
#pragma unroll
            for (int i = 0; i < kHeadDim / 2; ++i) part[32 * i] = reg_o[i / 4][i % 4];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                part[32 * (kHeadDim / 2 + h)] = row_max[h];
                part[32 * (kHeadDim / 2 + 2 + h)] = row_sum[h];
            }
        }
        __syncthreads();
        if (split == 0) {
#pragma unroll
            for (int other = 0; other < kSplit - 1; ++other) {
                const float* part = smem_part + (other * kGroups + group) * kPartialFloats;
                float mine[2], theirs[2];
#pragma unroll
                for (int h = 0; h < 2; ++h) {  // split 0 has seen key 0, so its maximum is finite
                    const float their_max = part[32 * (kHeadDim / 2 + h)], top = fmaxf(row_max[h], their_max);
                    mine[h] = ptx::ex2_approx_ftz((row_max[h] - top) * scale);
                    theirs[h] = ptx::ex2_approx_ftz((their_max - top) * scale);
                    row_max[h] = top;
                    row_sum[h] = row_sum[h] * mine[h] + part[32 * (kHeadDim / 2 + 2 + h)] * theirs[h];
                }
#pragma unroll
                for (int i = 0; i < kHeadDim / 2; ++i)
                    reg_o[i / 4][i % 4] = reg_o[i / 4][i % 4] * mine[i % 4 / 2] + part[32 * i] * theirs[i % 4 / 2];
            }
        }
    }
    if (split == 0) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float norm = 1.f / row_sum[h];
            const int row = row0 + g + 8 * h;
            if (row < seqlen) {
                u32* gmem_o = reinterpret_cast<u32*>(out + head_offset + static_cast<size_t>(row) * kHeadDim) + t;
#pragma unroll
                for (int db = 0; db < kHeadDim / 8; ++db)
                    gmem_o[4 * db] = ptx::cvt_rn_f16x2_f32(reg_o[db][2 * h] * norm, reg_o[db][2 * h + 1] * norm);
            }
        }
    }
}
