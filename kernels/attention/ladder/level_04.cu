//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_80", "sm_90"]
//! constraints = ["D == 64 || D == 128"]
//! formats = ["e4m3", "e5m2"]
//! scales = ["head", "tensor", "block"]
//! defines = ["D", "format", "scales"]
//! precision = "f16"
//! [[launch]]
//! entry = "fp8_sdpa_level_04"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [128]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]

// Level 04, fused softmax: scores become probabilities in the registers in which the next product wants them.
//
//   out = softmax(softmax_scale * (q q_scale) (k k_scale)^T) (v v_scale), row by row, keys in tiles with a running maximum.
//
// Shapes    q, k, v (B, H, S, D) codes of 8 bits, contiguous; scales f32; out f16 (B, H, S, D). causal: row i sees keys 0..i.
//           Scales (), (B, H) or (B, H, ceil(S / 128)): each tile of keys lies in one block of 128, and so do a warp's rows.
// Assumes   D 64 or 128; any S; positive scales. Both formats are exact in f16.
// Roles     A CTA of four warps owns 64 queries of one head, a warp 16 of them. Q stays in registers. A tile of 4096 / D keys at a
//           time:
//             wait for the codes of this tile -> barrier -> start copying those of the next -> widen K and V to f16 -> barrier
//             -> S = Q K^T -> softmax -> O = O rescale + P V, all three in registers
//           With g = lane / 4 and t = lane % 4 a lane holds rows g and g + 8, of each 8 keys the pair 2t, 2t + 1. Four lanes share a
//           row: two shuffles make its maximum. Two accumulators side by side, cast to f16, are the A operand of m16n8k16.
// Changed   Against level 03: mma.sync m16n8k16, whose register layout is documented, in place of WMMA, whose is not; so S, P and
//           what P V adds never touch shared memory. The room that leaves takes twice the keys a tile. Only tiles that reach past the
//           last key, or the diagonal, are masked.
// Predicted Shared memory traffic of a tile falls from 16 x (8 N + 4 N + 8 D) bytes a warp plus the operands to the operands alone:
//           1.5 to 2 times as fast. The exponentials and the two barriers a tile come to the front.
// Resources Registers at D 64: 128 (sm_89), 128 (sm_90); at 128: 190, 195; no spills. Shared memory 34,816 and 33,792 bytes.
//           (e4m3, NVRTC and ptxas 13.0.88.)
// Measured  10.1 us on an H200 at 1x8x512x64, no mask, e4m3, graph replay with cold inputs: 1.90 times level 03's speed.
// From      level_03.

#include <warpsmith/cp_async.cuh>
#include <warpsmith/fp8.cuh>
#include <warpsmith/ldmatrix.cuh>
#include <warpsmith/mma.cuh>
#include <warpsmith/scales.cuh>
#include <warpsmith/shfl.cuh>

constexpr int kHeadDim = WS_D;
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kBlockM = 16 * kWarps, kBlockN = 4096 / kHeadDim;
constexpr int kNumStages = 2, kTileBytes = kBlockN * kHeadDim;
constexpr int kRow = kHeadDim + 8;  // halves: 16 bytes of padding move each row by four banks
static_assert(kHeadDim == 64 || kHeadDim == 128, "a tile of 4096 codes is two 16-byte copies a thread");
static_assert(warpsmith::kScaleBlock % kBlockN == 0, "a tile has one scale");
static_assert(kBlockM <= 2 * kBlockN, "Q passes through the tiles of K and V");
static_assert(WS_FORMAT != WS_U8, "the simulated 8 bits end with level 03");

// Where eight halves of an f16 tile lie, in bytes.
static __device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk) { return row * kRow * 2 + chunk * 16; }

// Starts the copy of one tile of codes. Rows past the end repeat the last one: their weight is zero.
static __device__ __forceinline__ void copy_tile(u8* smem_codes, const u8* gmem_tile, int last_row)
{
    constexpr int kChunks = kHeadDim / 16;  // of sixteen codes, in a row
#pragma unroll
    for (int j = 0; j < kTileBytes / 16 / kThreads; ++j) {
        const u32 i = j * kThreads + threadIdx.x, column = i % kChunks * 16;
        const int row = i / kChunks;
        ptx::cp_async_16(smem_address(smem_codes + i * 16), gmem_tile + static_cast<u32>(min(row, last_row) * kHeadDim + column));
    }
}

// `kRows` rows of codes, widened to f16. Rows past the last one repeat it.
template <int kRows>
static __device__ __forceinline__ void widen(u8* smem_tile, const u8* codes, int last_row)
{
    constexpr int kChunks = kHeadDim / 16;
#pragma unroll
    for (int j = 0; j < kRows * kChunks / kThreads; ++j) {
        const u32 i = j * kThreads + threadIdx.x, row = i / kChunks, column = i % kChunks;
        const u8* src = codes + min(static_cast<int>(row), last_row) * kHeadDim + column * 16;
        uint4 lo, hi;
        warpsmith::decode_f16(lo, hi, *reinterpret_cast<const uint4*>(src));
        *reinterpret_cast<uint4*>(smem_tile + tile_offset(row, 2 * column)) = lo;
        *reinterpret_cast<uint4*>(smem_tile + tile_offset(row, 2 * column + 1)) = hi;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kHeadDim == 64 ? 4 : 2)
fp8_sdpa_level_04(const u8* __restrict__ q, const u8* __restrict__ k, const u8* __restrict__ v,
                  const float* __restrict__ q_scale, const float* __restrict__ k_scale, const float* __restrict__ v_scale,
                  u16* __restrict__ out, float softmax_scale, int seqlen, int causal)
{
    __shared__ __align__(128) u8 smem_kv[2 * kBlockN * kRow * 2];        // K, V in f16; before the first tile, Q
    __shared__ __align__(128) u8 smem_codes[kNumStages][2][kTileBytes];  // K, V as they come
    u8* const smem_k = smem_kv;
    u8* const smem_v = smem_kv + kBlockN * kRow * 2;

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
            const size_t first = head_offset + static_cast<size_t>(tile) * kTileBytes;
            copy_tile(smem_codes[tile % kNumStages][0], k + first, seqlen - 1 - tile * kBlockN);
            copy_tile(smem_codes[tile % kNumStages][1], v + first, seqlen - 1 - tile * kBlockN);
        }
        ptx::cp_async_commit_group();
    };
    // phase: prologue
    for (int tile = 0; tile < kNumStages - 1; ++tile) copy(tile);

    widen<kBlockM>(smem_kv, q + head_offset + static_cast<size_t>(m0) * kHeadDim, seqlen - 1 - m0);
    __syncthreads();
    u32 reg_q[kHeadDim / 16][4];  // (16, D)
#pragma unroll
    for (int kk = 0; kk < kHeadDim / 16; ++kk)
        ptx::ldmatrix_x4(reg_q[kk], smem_address(smem_kv) + tile_offset(warp * 16 + lane % 16, 2 * kk + lane / 16));

    float reg_o[kHeadDim / 8][4] = {};                    // (16, D)
    float row_max[2] = {ninf, ninf}, row_sum[2] = {};  // of rows g and g + 8: of the scores before scaling; of the lane's keys
    float v_unit = 1.f;                                // the scale in whose units O is

    for (int tile = 0; tile < tiles; ++tile) {
        const int n0 = tile * kBlockN, stage = tile % kNumStages;
        const float k_descale = warpsmith::tile_scale(k_scale, head, n0, seqlen), v_descale = warpsmith::tile_scale(v_scale, head, n0, seqlen);
        // phase: stage
        ptx::cp_async_wait_group<kNumStages - 2>();
        __syncthreads();
        copy(tile + kNumStages - 1);
        widen<kBlockN>(smem_k, smem_codes[stage][0], kBlockN);
        widen<kBlockN>(smem_v, smem_codes[stage][1], kBlockN);
        __syncthreads();

        // phase: scores
        float s[kBlockN / 8][4] = {};  // (16, kBlockN)
#pragma unroll
        for (int nb = 0; nb < kBlockN / 8; ++nb)
#pragma unroll
            for (int kk = 0; kk < kHeadDim / 16; kk += 2) {
                u32 b[4];  // (32, 8)
                ptx::ldmatrix_x4(b, smem_address(smem_k) + tile_offset(8 * nb + lane % 8, 2 * kk + lane / 8));
                ptx::mma_m16n8k16_f32_f16(s[nb], reg_q[kk], b[0], b[1]);
                ptx::mma_m16n8k16_f32_f16(s[nb], reg_q[kk + 1], b[2], b[3]);
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

        // O is kept in units of the values' scale: where that changes from tile to tile, so does O.
        const float unit = warpsmith::kBlockScales ? v_unit / v_descale : 1.f;
        v_unit = v_descale;
        float rescale[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float tile_max = row_max[h];
#pragma unroll
            for (int nb = 0; nb < kBlockN / 8; ++nb) tile_max = fmaxf(tile_max, fmaxf(s[nb][2 * h], s[nb][2 * h + 1]));
            tile_max = fmaxf(tile_max, ptx::shfl_sync_bfly(tile_max, 1));
            tile_max = fmaxf(tile_max, ptx::shfl_sync_bfly(tile_max, 2));
            const float offset = -tile_max * scale;
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
#pragma unroll
        for (int db = 0; db < kHeadDim / 8; ++db) {
            reg_o[db][0] *= rescale[0] * unit;
            reg_o[db][1] *= rescale[0] * unit;
            reg_o[db][2] *= rescale[1] * unit;
            reg_o[db][3] *= rescale[1] * unit;
        }
#pragma unroll
        for (int kk = 0; kk < kBlockN / 16; ++kk) {
            const float(&lo)[4] = s[2 * kk], (&hi)[4] = s[2 * kk + 1];
            const u32 p[4] = {ptx::cvt_rn_f16x2_f32(lo[0], lo[1]), ptx::cvt_rn_f16x2_f32(lo[2], lo[3]),
                              ptx::cvt_rn_f16x2_f32(hi[0], hi[1]), ptx::cvt_rn_f16x2_f32(hi[2], hi[3])};  // (16, 16)
#pragma unroll
            for (int db = 0; db < kHeadDim / 8; db += 2) {
                u32 b[4];  // (16, 16)
                ptx::ldmatrix_x4_trans(b, smem_address(smem_v) + tile_offset(16 * kk + lane % 16, db + lane / 16));
                ptx::mma_m16n8k16_f32_f16(reg_o[db], p, b[0], b[1]);
                ptx::mma_m16n8k16_f32_f16(reg_o[db + 1], p, b[2], b[3]);
            }
        }
    }

    // phase: store
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        row_sum[h] += ptx::shfl_sync_bfly(row_sum[h], 1);
        row_sum[h] += ptx::shfl_sync_bfly(row_sum[h], 2);
        const float descale = warpsmith::head_scale(v_scale, head) * v_unit / row_sum[h];
        const int row = row0 + g + 8 * h;
        if (row < seqlen) {
            u32* gmem_o = reinterpret_cast<u32*>(out + head_offset + static_cast<size_t>(row) * kHeadDim) + t;
#pragma unroll
            for (int db = 0; db < kHeadDim / 8; ++db)
                gmem_o[4 * db] = ptx::cvt_rn_f16x2_f32(reg_o[db][2 * h] * descale, reg_o[db][2 * h + 1] * descale);
        }
    }
}
