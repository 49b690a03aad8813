//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_90"]
//! constraints = ["D == 64 || D == 128", "(BLOCK_M + 2 * STAGES * BLOCK_N) * D <= 101376", "STAGES * (BLOCK_M / 16 + 1) <= 15"]
//! formats = ["e4m3", "e5m2"]
//! scales = ["head", "tensor", "block"]
//! defines = ["D", "format", "scales"]
//! [levers]
//! BLOCK_M = [64, 32, 48]
//! BLOCK_N = [64, 32, 128]
//! STAGES = [3, 2, 4]
//! [[launch]]
//! entry = "fp8_sdpa_level_08"
//! grid = ["ceil_div(S, BLOCK_M)", "B * H"]
//! block = ["2 * BLOCK_M + 32"]
//! shared_bytes = "(BLOCK_M + 2 * STAGES * BLOCK_N) * D"
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]

// Level 08, warp specialisation for sm_89: one warp copies, the others compute, and nobody waits for everybody.
//
//   out = softmax(softmax_scale * (q q_scale) (k k_scale)^T) (v v_scale), row by row, keys in tiles with a running maximum.
//
// Shapes    q, k, v (B, H, S, D) codes of 8 bits, contiguous; scales f32; out f16 (B, H, S, D). causal: row i sees keys 0..i.
//           Scales (), (B, H) or (B, H, ceil(S / 128)): each tile of keys lies in one block of 128, and so do a warp's rows.
// Assumes   D 64 or 128; any S; positive scales; sm_89 or later (sm_90 has no FP8 form of mma.sync and widens to f16 inside).
// Roles     A CTA owns BLOCK_M queries of one head; BLOCK_M / 16 consumer warps own 16 of them each, one more warp is the producer.
//           Tiles of BLOCK_N keys go round a ring of STAGES places, each with named barriers: full, one for each consumer, and empty:
//             producer   wait empty -> copy K, V -> wait until all but its newest STAGES - 2 copies have landed -> arrive at each full
//             consumer   wait at its own full -> S = Q K^T -> softmax -> O = O rescale + P V -> arrive empty
//           "Wait" is bar.sync, "arrive" is bar.arrive. Had the consumers one full barrier together, its bar.sync would make them wait
//           for each other. The first STAGES places are empty to begin with, and the last ones are never waited for again, so nobody
//           arrives there. A consumer warp copies its own Q. 15 barriers: STAGES x (consumers + 1) of them, and no __syncthreads.
//           The arithmetic is level 07's: P is e4m3, 2^8 at the row's maximum. With g = lane / 4 and t = lane % 4, the codes of four
//           accumulators side by side are an A operand of m16n8k32 whose slots 4t .. 4t + 3 are keys 2t, 2t + 1, 8 + 2t, 9 + 2t. For
//           V as B operand, ldmatrix.trans of pairs of codes gives key 2t and 2t + 1 of columns 2g and 2g + 1; one prmt of two such
//           words picks the four codes of a column in that very order. A tile's P V starts from zero and is folded into O in f32.
// Changed   Against level 07: a producer warp issues all copies and named barriers replace __syncthreads, which no longer occurs.
//           Consumer warps may be up to STAGES tiles apart. Ada has neither mbarriers with transaction counts nor setmaxnreg, so the
//           producer keeps the registers it does not need. SWIZZLE and Q_REGISTERS are settled.
// Predicted Address arithmetic and copies (about 40 of 450 instructions a tile) leave the computing warps, and a slow warp delays no
//           other: 5 to 10% on long sequences. At 512 keys, eight tiles, the fifth warp's registers may cost as much as it wins.
// Resources Registers at D 64: 103 (sm_89), 128 (sm_90); at 128: 192, 168; spills in bytes: sm_90 D 64: 12, sm_90 D 128: 56. Shared memory 28,672 and 57,344 bytes.
//           (e4m3, first levers, NVRTC and ptxas 13.0.88.)
// Measured  12.0 us on an H200 at 1x8x512x64, no mask, e4m3, graph replay with cold inputs: 0.90 times level 07's speed.
// From      level_07.

#include <warpsmith/barrier.cuh>
#include <warpsmith/cp_async.cuh>
#include <warpsmith/fp8.cuh>
#include <warpsmith/ldmatrix.cuh>
#include <warpsmith/mma.cuh>
#include <warpsmith/scales.cuh>
#include <warpsmith/shfl.cuh>

#ifndef BLOCK_M
#define BLOCK_M 64
#define BLOCK_N 64
#define STAGES 3
#endif

constexpr int kHeadDim = WS_D;
constexpr int kBlockM = BLOCK_M, kBlockN = BLOCK_N, kNumStages = STAGES;
constexpr int kConsumers = kBlockM / 16, kThreads = 32 * (kConsumers + 1);  // warps; threads
constexpr int kTileBytes = kBlockN * kHeadDim;
constexpr float kLogTopP = 8.f;                       // log2 of P at the row's maximum
static_assert(kHeadDim == 64 || kHeadDim == 128, "the swizzle knows rows of four and of eight chunks");
static_assert(kBlockM % 16 == 0 && kThreads <= 1024, "a warp owns 16 rows");
static_assert(kBlockN % 32 == 0, "P V takes 32 keys at a time");
static_assert(warpsmith::kScaleBlock % kBlockN == 0, "a tile has one scale");
static_assert(kNumStages >= 2, "a copy needs a place that nobody reads");
static_assert(kNumStages * (kConsumers + 1) <= 15, "a CTA has sixteen named barriers, of which 0 is __syncthreads");
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

// The barriers of a stage: consumer `warp` waits at its own for the tile, the producer for all consumers to be done with it.
static __device__ __forceinline__ u32 full_barrier(u32 stage, u32 warp) { return 1 + stage * (kConsumers + 1) + warp; }
static __device__ __forceinline__ u32 empty_barrier(u32 stage) { return full_barrier(stage, kConsumers); }

// Where sixteen codes of a tile lie. Eight rows at one chunk fall on eight different groups of four banks: with rows of 128
// bytes the row's lower three bits choose the group; with rows of 64 two rows share 128 bytes, and the next two bits do.
static __device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk)
{
    return row * kHeadDim + (chunk ^ (kHeadDim == 64 ? row / 2 % 4 : row % 8)) * 16;
}

// Starts the copy of `kRows` rows of codes by one warp. Rows past the last one repeat it: their weight is zero.
template <int kRows>
static __device__ __forceinline__ void copy_rows(u32 smem_tile, const u8* gmem_tile, int last_row, u32 lane)
{
    constexpr int kChunks = kHeadDim / 16;
#pragma unroll
    for (int j = 0; j < kRows * kChunks / 32; ++j) {
        const u32 i = j * 32 + lane, row = i / kChunks, chunk = i % kChunks;
        ptx::cp_async_16(smem_tile + tile_offset(row, chunk), gmem_tile + min(static_cast<int>(row), last_row) * kHeadDim + chunk * 16);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
fp8_sdpa_level_08(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v,
                  const float* __restrict__ q_scale, const float* __restrict__ k_scale, const float* __restrict__ v_scale,
                  u16* __restrict__ out, float softmax_scale, int seqlen, int causal)
{
    extern __shared__ __align__(128) u8 smem[];  // Q (kBlockM, D); kNumStages x { K, V } (kBlockN, D)
    const u32 smem_q = smem_address(smem), smem_ring = smem_q + kBlockM * kHeadDim;

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

    // phase: stage
    if (warp == kConsumers) {
        for (int tile = 0; tile < tiles + kNumStages - 2; ++tile) {
            if (tile < tiles) {
                const int n0 = tile * kBlockN;
                const u32 stage = tile % kNumStages, smem_k = smem_ring + stage * (2 * kTileBytes);
                const size_t first = head_offset + static_cast<size_t>(n0) * kHeadDim;
                if (tile >= kNumStages) ptx::bar_sync(empty_barrier(stage), kThreads);
                copy_rows<kBlockN>(smem_k, k + first, seqlen - 1 - n0, lane);
                copy_rows<kBlockN>(smem_k + kTileBytes, v + first, seqlen - 1 - n0, lane);
            }
            ptx::cp_async_commit_group();
            ptx::cp_async_wait_group<kNumStages - 2>();
            const int landed = tile - (kNumStages - 2);
            if (landed >= 0)
#pragma unroll
                for (u32 consumer = 0; consumer < kConsumers; ++consumer) ptx::bar_arrive(full_barrier(landed % kNumStages, consumer), 64);
        }
        return;
    }

    // phase: prologue
    copy_rows<16>(smem_q + warp * 16 * kHeadDim, q + head_offset + static_cast<size_t>(row0) * kHeadDim, seqlen - 1 - row0, lane);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncwarp();
    u32 reg_q[kHeadDim / 32][4];  // (16, D)
#pragma unroll
    for (int kk = 0; kk < kHeadDim / 32; ++kk)
        ptx::ldmatrix_x4(reg_q[kk], smem_q + tile_offset(warp * 16 + lane % 16, 2 * kk + lane / 16));

    float reg_o[kHeadDim / 16][2][4] = {};             // (16, D): rows g and g + 8, four columns of each sixteen
    float row_max[2] = {ninf, ninf}, row_sum[2] = {};  // of rows g and g + 8: of the scores before scaling; of the lane's keys

    for (int tile = 0; tile < tiles; ++tile) {
        const int n0 = tile * kBlockN;
        const float k_descale = warpsmith::tile_scale(k_scale, head, n0, seqlen), v_descale = warpsmith::tile_scale(v_scale, head, n0, seqlen);
        const u32 stage = tile % kNumStages, smem_k = smem_ring + stage * (2 * kTileBytes), smem_v = smem_k + kTileBytes;
        // phase: wait
        ptx::bar_sync(full_barrier(stage, warp), 64);

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
        if (tile + kNumStages < tiles) ptx::bar_arrive(empty_barrier(stage), kThreads);
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
