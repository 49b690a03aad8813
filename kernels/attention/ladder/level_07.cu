//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_90"]
//! constraints = ["D == 64 || D == 128", "(BLOCK_M + 2 * STAGES * BLOCK_N) * (D + 16 - 16 * SWIZZLE) <= 101376"]
//! formats = ["e4m3", "e5m2"]
//! scales = ["head", "tensor", "block"]
//! defines = ["D", "format", "scales"]
//! [levers]
//! BLOCK_M = [64, 32, 128]
//! BLOCK_N = [64, 32, 128]
//! STAGES = [2, 3, 4]
//! SWIZZLE = [1, 0]
//! Q_REGISTERS = [1, 0]
//! [[launch]]
//! entry = "fp8_sdpa_level_07"
//! grid = ["ceil_div(S, BLOCK_M)", "B * H"]
//! block = ["2 * BLOCK_M"]
//! shared_bytes = "(BLOCK_M + 2 * STAGES * BLOCK_N) * (D + 16 - 16 * SWIZZLE)"
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]

// Level 07, native FP8: the codes go to the tensor cores as they are.
//
//   out = softmax(softmax_scale * (q q_scale) (k k_scale)^T) (v v_scale), row by row, keys in tiles with a running maximum.
//
// Shapes    q, k, v (B, H, S, D) codes of 8 bits, contiguous; scales f32; out f16 (B, H, S, D). causal: row i sees keys 0..i.
//           Scales (), (B, H) or (B, H, ceil(S / 128)): each tile of keys lies in one block of 128, and so do a warp's rows.
// Assumes   D 64 or 128; any S; positive scales; sm_89 or later (sm_90 has no FP8 form of mma.sync and widens to f16 inside).
// Roles     A CTA of BLOCK_M / 16 warps owns BLOCK_M queries of one head, a warp 16 of them; keys come BLOCK_N at a time:
//             wait for this tile -> barrier -> start copying the tile STAGES - 1 ahead -> S = Q K^T -> softmax -> O = O rescale + P V
//           The barrier also says that all warps are done with the tile whose place the new copy takes: one a tile is enough.
//           P is e4m3, 2^8 at the row's maximum (448 is the largest code). With g = lane / 4 and t = lane % 4, the codes of four
//           accumulators side by side are an A operand of m16n8k32 whose slots 4t .. 4t + 3 are keys 2t, 2t + 1, 8 + 2t, 9 + 2t. For
//           V as B operand, ldmatrix.trans of pairs of codes gives key 2t and 2t + 1 of columns 2g and 2g + 1; one prmt of two such
//           words picks the four codes of a column in that very order. Even and odd columns go to two instructions, so that a lane
//           ends with four neighbouring columns of O.
//           A tile's P V starts from zero and is folded into O in f32: Ada's FP8 accumulator keeps 13 bits.
// Changed   Against level 06: mma.sync m16n8k32 on codes for both products; nothing is widened, the ring of copied codes is what
//           ldmatrix reads, and the second barrier of a tile is gone. P has 3 bits of mantissa instead of 10. Tile sizes, stages, swizzle
//           and where Q lives are levers.
// Predicted Twice the tensor-core rate on sm_89 and half the bytes to ldmatrix; no widening (an eighth of level 06's instructions):
//           1.6 to 2 times as fast there. On sm_90 about level 06's speed: the compiler widens each operand again for each warp.
// Resources Registers at D 64: 96 (sm_89), 128 (sm_90); at 128: 188, 255; no spills. Shared memory 20,480 and 40,960 bytes.
//           (e4m3, first levers, NVRTC and ptxas 13.0.88.)
// Measured  10.8 us on an H200 at 1x8x512x64, no mask, e4m3, graph replay with cold inputs: 0.91 times level 06's speed.
// From      level_06.

#include <warpsmith/cp_async.cuh>
#include <warpsmith/fp8.cuh>
#include <warpsmith/ldmatrix.cuh>
#include <warpsmith/mma.cuh>
#include <warpsmith/scales.cuh>
#include <warpsmith/shfl.cuh>

#ifndef BLOCK_M
#define BLOCK_M 64
#define BLOCK_N 64
#define STAGES 2
#define SWIZZLE 1
#define Q_REGISTERS 1
#endif

constexpr int kHeadDim = WS_D;
constexpr int kBlockM = BLOCK_M, kBlockN = BLOCK_N, kNumStages = STAGES;
constexpr int kThreads = 2 * kBlockM;                                // 16 rows a warp
constexpr int kRow = kHeadDim + (SWIZZLE ? 0 : 16);                  // bytes
constexpr int kTileBytes = kBlockN * kRow;
constexpr float kLogTopP = 8.f;                                      // log2 of P at the row's maximum
static_assert(kHeadDim == 64 || kHeadDim == 128, "the swizzle knows rows of four and of eight chunks");
static_assert(kBlockM % 16 == 0 && kThreads <= 1024, "a warp owns 16 rows");
static_assert(kBlockN % 32 == 0, "P V takes 32 keys at a time");
static_assert(warpsmith::kScaleBlock % kBlockN == 0, "a tile has one scale");
static_assert(kNumStages >= 2, "a copy needs a place that nobody reads");
static_assert(WS_FORMAT != WS_U8, "the simulated 8 bits end with level 03");

// S += Q K^T
static __device__ __forceinline__ void mma_qk(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
#if WS_FORMAT == WS_E5M2
    ptx::mma_m16n8k32_f32_e5m2_e5m2(d, a, b0, b1);
#else
    ptx::mma_m16n8k32_f32_e4m3_e4m3(d, a, b0, b1);
#endif
}

// O += P V, P in e4m3
static __device__ __forceinline__ void mma_pv(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
#if WS_FORMAT == WS_E5M2
    ptx::mma_m16n8k32_f32_e4m3_e5m2(d, a, b0, b1);
#else
    ptx::mma_m16n8k32_f32_e4m3_e4m3(d, a, b0, b1);
#endif
}

// Where sixteen codes of a tile lie. Swizzled, eight rows at one chunk fall on eight different groups of four banks: with rows
// of 128 bytes the row's lower three bits choose the group; with rows of 64 two rows share 128 bytes, and the next two bits do.
static __device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk)
{
#if SWIZZLE
    return row * kRow + (chunk ^ (kHeadDim == 64 ? row / 2 % 4 : row % 8)) * 16;
#else
    return row * kRow + chunk * 16;
#endif
}

// Starts the copy of `kRows` rows of codes. Rows past the last one repeat it: their weight is zero.
template <int kRows>
static __device__ __forceinline__ void copy_rows(u32 smem_tile, const u8* gmem_tile, int last_row)
{
    constexpr int kChunks = kHeadDim / 16, kCopies = kRows * kChunks;
#pragma unroll
    for (int first = 0; first < kCopies; first += kThreads) {
        const u32 i = first + threadIdx.x, row = i / kChunks, chunk = i % kChunks;
        if (kCopies % kThreads == 0 || i < kCopies)
            ptx::cp_async_16(smem_tile + tile_offset(row, chunk), gmem_tile + min(static_cast<int>(row), last_row) * kHeadDim + chunk * 16);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
fp8_sdpa_level_07(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v,
                  const float* __restrict__ q_scale, const float* __restrict__ k_scale, const float* __restrict__ v_scale,
                  u16* __restrict__ out, float softmax_scale, int seqlen, int causal)
{
    extern __shared__ __align__(128) u8 smem[];  // Q (kBlockM, kRow); kNumStages x { K, V } (kBlockN, kRow)
    const u32 smem_q = smem_address(smem), smem_ring = smem_q + kBlockM * kRow;

    // phase: prologue
    const u32 head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int m0 = blockIdx.x * kBlockM, row0 = m0 + warp * 16;  // of the CTA, of the warp
    const size_t head_offset = static_cast<size_t>(head) * seqlen * kHeadDim;
    const float q_descale = warpsmith::scale_of(q_scale, head, min(row0, seqlen - 1), seqlen);
    const float scale = q_descale * warpsmith::head_scale(k_scale, head) * softmax_scale * 1.4426950408889634f;  // exp(x) = 2^(x log2 e)
    const float ninf = __int_as_float(0xff800000);
    const int cta_end = causal ? min(seqlen, m0 + kBlockM) : seqlen;  // keys that any row of the CTA sees
    const int warp_end = causal ? min(seqlen, row0 + 1) : seqlen;     // keys that every row of the warp sees
    const int tiles = (cta_end + kBlockN - 1) / kBlockN;

    const auto copy = [&](int tile) {
        // phase: stage
        if (tile < tiles) {
            const int n0 = tile * kBlockN;
            const size_t first = head_offset + static_cast<size_t>(n0) * kHeadDim;
            const u32 smem_k = smem_ring + tile % kNumStages * (2 * kTileBytes);
            copy_rows<kBlockN>(smem_k, k + first, seqlen - 1 - n0);
            copy_rows<kBlockN>(smem_k + kTileBytes, v + first, seqlen - 1 - n0);
        }
        ptx::cp_async_commit_group();
    };
    // phase: prologue
    copy_rows<kBlockM>(smem_q, q + head_offset + static_cast<size_t>(m0) * kHeadDim, seqlen - 1 - m0);
    ptx::cp_async_commit_group();
    for (int tile = 0; tile < kNumStages - 1; ++tile) copy(tile);

    u32 reg_q[kHeadDim / 32][4];  // (16, D)
    const auto load_q = [&] {
#pragma unroll
        for (int kk = 0; kk < kHeadDim / 32; ++kk)
            ptx::ldmatrix_x4(reg_q[kk], smem_q + tile_offset(warp * 16 + lane % 16, 2 * kk + lane / 16));
    };
    if constexpr (Q_REGISTERS) {
        ptx::cp_async_wait_group<kNumStages - 1>();
        __syncthreads();
        load_q();
    }

    float reg_o[kHeadDim / 16][2][4] = {};             // (16, D): rows g and g + 8, four columns of each sixteen
    float row_max[2] = {ninf, ninf}, row_sum[2] = {};  // of rows g and g + 8: of the scores before scaling; of the lane's keys

    for (int tile = 0; tile < tiles; ++tile) {
        const int n0 = tile * kBlockN;
        const float k_descale = warpsmith::tile_scale(k_scale, head, n0, seqlen), v_descale = warpsmith::tile_scale(v_scale, head, n0, seqlen);
        const u32 smem_k = smem_ring + tile % kNumStages * (2 * kTileBytes), smem_v = smem_k + kTileBytes;
        // phase: stage
        ptx::cp_async_wait_group<kNumStages - 2>();
        __syncthreads();
        copy(tile + kNumStages - 1);
        if constexpr (!Q_REGISTERS) load_q();

        // phase: scores
        float s[kBlockN / 8][4] = {};  // (16, kBlockN)
#pragma unroll
        for (int nb = 0; nb < kBlockN / 8; ++nb)
#pragma unroll
            for (int kk = 0; kk < kHeadDim / 32; kk += 2) {
                u32 b[4];  // (64, 8)
                ptx::ldmatrix_x4(b, smem_k + tile_offset(8 * nb + lane % 8, 2 * kk + lane / 8));
                mma_qk(s[nb], reg_q[kk], b[0], b[1]);
                mma_qk(s[nb], reg_q[kk + 1], b[2], b[3]);
            }

        // phase: softmax
#pragma unroll
        for (float(&x)[4] : s) x[0] *= k_descale, x[1] *= k_descale, x[2] *= k_descale, x[3] *= k_descale;
        if (n0 + kBlockN > warp_end) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int seen = (causal ? min(seqlen, row0 + static_cast<int>(g) + 8 * h + 1) : seqlen) - n0 - 2 * static_cast<int>(t);
#pragma unroll
                for (int nb = 0; nb < kBlockN / 8; ++nb) {
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
            for (int nb = 0; nb < kBlockN / 8; ++nb) tile_max = fmaxf(tile_max, fmaxf(s[nb][2 * h], s[nb][2 * h + 1]));
            tile_max = fmaxf(tile_max, ptx::shfl_sync_bfly(tile_max, 1));
            tile_max = fmaxf(tile_max, ptx::shfl_sync_bfly(tile_max, 2));
            const float offset = fmaf(-tile_max, scale, kLogTopP);
            rescale[h] = ptx::ex2_approx_ftz((row_max[h] - tile_max) * scale);
            row_max[h] = tile_max;
            row_sum[h] *= rescale[h];
#pragma unroll
            for (int nb = 0; nb < kBlockN / 8; ++nb) {
                s[nb][2 * h] = ptx::ex2_approx_ftz(fmaf(s[nb][2 * h], scale, offset));
                s[nb][2 * h + 1] = ptx::ex2_approx_ftz(fmaf(s[nb][2 * h + 1], scale, offset));
                row_sum[h] += s[nb][2 * h] + s[nb][2 * h + 1];
            }
        }

        // phase: values
        u32 p[kBlockN / 32][4];  // (16, kBlockN)
#pragma unroll
        for (int kk = 0; kk < kBlockN / 32; ++kk)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int nb = 4 * kk + i / 2 * 2, h = i % 2;
                p[kk][i] = ptx::cvt_rn_satfinite_e4m3x2_f32(s[nb][2 * h], s[nb][2 * h + 1], s[nb + 1][2 * h], s[nb + 1][2 * h + 1]);
            }

#pragma unroll
        for (int c = 0; c < kHeadDim / 16; ++c) {
            float even[4] = {}, odd[4] = {};  // (16, 8) each: columns 16 c + 2 n and 16 c + 2 n + 1
#pragma unroll
            for (int kk = 0; kk < kBlockN / 32; ++kk) {
                u32 r[4];  // (32, 16), in pairs of columns
                ptx::ldmatrix_x4_trans(r, smem_v + tile_offset(32 * kk + lane, c));
                mma_pv(even, p[kk], ptx::prmt(r[0], r[1], 0x6420), ptx::prmt(r[2], r[3], 0x6420));
                mma_pv(odd, p[kk], ptx::prmt(r[0], r[1], 0x7531), ptx::prmt(r[2], r[3], 0x7531));
            }
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                reg_o[c][h][0] = fmaf(reg_o[c][h][0], rescale[h], even[2 * h] * v_descale);
                reg_o[c][h][1] = fmaf(reg_o[c][h][1], rescale[h], odd[2 * h] * v_descale);
                reg_o[c][h][2] = fmaf(reg_o[c][h][2], rescale[h], even[2 * h + 1] * v_descale);
                reg_o[c][h][3] = fmaf(reg_o[c][h][3], rescale[h], odd[2 * h + 1] * v_descale);
            }
        }
    }

    // phase: store
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        row_sum[h] += ptx::shfl_sync_bfly(row_sum[h], 1);
        row_sum[h] += ptx::shfl_sync_bfly(row_sum[h], 2);
        const float descale = warpsmith::head_scale(v_scale, head) / row_sum[h];
        const int row = row0 + g + 8 * h;
        if (row < seqlen) {
            uint2* gmem_o = reinterpret_cast<uint2*>(out + head_offset + static_cast<size_t>(row) * kHeadDim) + t;
#pragma unroll
            for (int c = 0; c < kHeadDim / 16; ++c) {
                const float(&o)[4] = reg_o[c][h];
                gmem_o[4 * c] = {ptx::cvt_rn_f16x2_f32(o[0] * descale, o[1] * descale), ptx::cvt_rn_f16x2_f32(o[2] * descale, o[3] * descale)};
            }
        }
    }
}
