// Which scale belongs to a token's codes; -DWS_SCALES=WS_TENSOR | WS_HEAD | WS_BLOCK says how they are laid out, head if it does
// not say.
//
//   tensor   ()                     one for all
//   head     (B, H)                 one for each head of each batch
//   block    (B, H, ceil(S / 128))  one for 128 tokens of a head
#pragma once
#include <warpsmith/types.cuh>

#ifndef WS_HEAD
#define WS_TENSOR 1
#define WS_HEAD 2
#define WS_BLOCK 3
#endif
#ifndef WS_SCALES
#define WS_SCALES WS_HEAD
#endif
static_assert(WS_SCALES == WS_TENSOR || WS_SCALES == WS_HEAD || WS_SCALES == WS_BLOCK, "a layout of scales that is none of the three");

namespace warpsmith {

constexpr int kScaleBlock = 128;  // tokens
constexpr bool kBlockScales = WS_SCALES == WS_BLOCK;

// The scale of `token` of the head, `head` counting through batches.
static __device__ __forceinline__ float scale_of(const float* __restrict__ scales, u32 head, int token, int seqlen)
{
#if WS_SCALES == WS_TENSOR
    return scales[0];
#elif WS_SCALES == WS_HEAD
    return scales[head];
#else
    return scales[head * ((seqlen + kScaleBlock - 1) / kScaleBlock) + token / kScaleBlock];
#endif
}

// What does not change from tile to tile: the scale where there is one a head or one in all, 1 where `tile_scale` has it.
static __device__ __forceinline__ float head_scale(const float* __restrict__ scales, u32 head)
{
    return kBlockScales ? 1.f : scale_of(scales, head, 0, 0);
}

// The scale of the tile that begins at `token` and lies in one block of 128; 1 where `head_scale` has it.
static __device__ __forceinline__ float tile_scale(const float* __restrict__ scales, u32 head, int token, int seqlen)
{
    return kBlockScales ? scale_of(scales, head, token, seqlen) : 1.f;
}

}  // namespace warpsmith
