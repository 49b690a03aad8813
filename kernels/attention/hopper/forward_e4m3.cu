// attention_forward_e4m3: FP8 attention of many queries over many keys at head dimension 128, or 256 over V^T, with scores in f16 and weights made as e4m3 codes by fixed-point arithmetic.
//
//     o = softmax(softmax_scale * q_scale q (k_scale k)^T) v_scale v          q, k, v e4m3; o bf16, f16 or e4m3
//
// Shapes: params.cuh, with scales per tensor or per head (WS_BLOCKS: or per block of 128 tokens; WS_PACKED: and V^T as pack_kv or transpose.cu makes it). Any Sq and
// Sk; causal is aligned bottom-right; Hq a multiple of Hkv. No log-sum-exp: p.lse is not looked at, so the host gives calls that want it to forward.cu.
// Assumes: WS_D 128, or 256 with WS_PACKED (and WS_EVEN, if with WS_BLOCKS); 128 keys to a tile; tensor maps over (D, S, H, B) whose boxes are 64 (q) and 128 (k, v) rows of 128 bytes, swizzled to their width;
// strides in whole 16 bytes; scales of at least 0.
// Roles: group 0 loads and transposes, groups 1 to WGS each own 64 rows of queries.
//     warp 3:     q_empty -> TMA Q -> q_raw        k_empty -> TMA K -> k_full
//     warp 2:     v_empty -> TMA V -> v_full
//     warp 0:     q_empty -> what consumers have to know of the row tile (Told) -> q_full
//     warps 0, 1: v_full, vt_empty -> ldmatrix, permute, stmatrix -> vt_full (and v_empty)
//     WS_PACKED:  V^T is there (pack_kv, transpose.cu), and nobody transposes: warp 2: vt_empty -> TMA V^T -> vt_full. WS_WIDEQ: Q by the consumers, from bf16 or f16 (queries.cuh)
//     consumers:  q_full, q_raw -> rows of Q scaled | k_full -> S = Q K^T -> k_empty | codes of weights | vt_full -> T = P V -> vt_empty | O = O + T
//   Where rows cannot come far above their first step's largest score (a bound from the norm of Q's row and keys of 448), nor keys be hidden, steps go without the branches for that: a loop of their own (kLean).
//   A consumer's steps wait for one another; the other consumers fill the tensor core meanwhile. Keys run from last to first, but for one tile that all rows see, which comes
//   before all. Where V's scale is one, a step is two tiles: half of the folding and of the barriers; the second tile's scores are made while the largest of the first is looked for.
//   Packed values (WS_EVEN) have scales by block, of which pack_kv makes as many equal as it can (pack.cu, even): a row tile whose tiles all have those of its first one runs as without WS_BLOCKS; any other, by steps of one
//   tile, with scales relative to the first one's, from the first tile on that differs (Told::even; by three consumers behind the mask all; H100, 2026-11-27: 4x16x4096x128 477 us by two tiles whose scores may come far, 445 else, 547 by one; causal 257 to 265, 319 by one; D 256 455, 270, forward.cu 499, 293).
//   Behind the mask steps of one tile come first, where the tiles that a consumer sees are odd or some are hidden from it (4x16x4096x128 causal 338 to 353 us by one tile, 324 to 337 so).
//
// Arithmetic, and its error:
//   Scores   are f16 pairs (pairs.cuh): half the registers of f32, and beside wgmma with f32 accumulators every instruction at half rate takes 4.0 cycles, beside this 2.2.
//   Weights  t = sat(b - c s) is (32 - E) / 32 of a weight of 2^(E - 7), as a code of e4m3, in one of three ways by groups of 16 keys of a tile (WS_PARABOLA, WS_MUFU):
//     linear    between powers of two, 2^f as 1 + f: y = 1280 - 256 t is 1024 + 8 E, rounded to a whole number by the very FMA, and its lower byte is the code: two and a half instructions for two weights. 4% too large in the mean, 3% of which others
//               are made, too; 1.7% off beside that (RMS, where rounding to e4m3 takes 2.6%).
//     parabola  what is missing between powers of two is a parabola, to which 16 bits of the exact weight's logarithm are added (codes.cuh): rounded once, as FA3 rounds exact weights. Five and a half instructions.
//     MUFU      exponentials in f16 pairs, rounded to e4m3: five instructions, two of them on a pipe that has nothing else to do, and best at D 256, where there is time for them.
//   The range, 15.75 octaves and what e4m3 has below, ends in a true 0. WS_FAST: all linear (but one group at D 128 behind the mask, else ptxas 13.0 serialises some instances, C7511).
//   Sums     by the product of values: eight rows of ones behind V^T. So they are those of the rounded weights.
// The tensor core's narrow accumulator never sums over more than two tiles: then it is folded into f32, so the error does not grow with the number of keys.
// References are a step's own: each row's largest score of the step's one or two tiles weighs 2^8, exactly (as FA3 FP8's does: so exact weights are rounded as there), and what a step's products are worth beside the outputs, 2^(reference - r), goes into their folding, an FMA where an addition would be.
// A fifth of the weights' squared error is the largest weights' (4,096 normal keys): that pays for linear weights, of which there are as many as keep relF at 1.015 of FA3 FP8's. Of half of the weights 1.0261, 1.0205, 1.0141, 1.0109, 1.003 over 512, 1,024, 2,048, 4,096,
// 16,384 keys (means of 12 draws, each 0.002 off; an eighth more or less is 0.006): so none are where keys are few (WS_SHORT; D 256: a quarter), and behind the mask fewer in the first steps (kOfOne, kHiding). Where scores spread, references of each step's own keep small weights from 0 besides: errors are those of exact weights with a running maximum.
// Where scores hardly differ nothing pays (uniform or sparse inputs, queries half as wide: 1.03 to 1.08), and weights are exact but in the first step: each row tile's first step says so (even_rows), and the others run by a loop of their own. Two consumers, scales by block and few rows (but by three over V^T behind the mask)
// have exact weights always (WS_ALL_EXACT), as the second loop costs them as much as linear weights gain, 0 to 3%.
// Limits: scores are 2^-11 of themselves off: keys whose logits lie within 1/1,000 of the largest's magnitude of it count as equal to it or not by chance.
// Losers, 4x16x4096x128 on an H200, 2026-11-22, us, full and causal (forward.cu 600 to 614, 368 to 397): two consumers, the next tile's scores asked for under this one's softmax
//   565 to 572, 333 to 364; two whose values and next scores are asked for together 572 to 592, 340 to 366, in turns or not; the same, and this tile's values under the next one's
//   softmax 560 to 573, 318 to 354 (and best of all at 16x16x1024 full, 164); three consumers with exponentials linear between powers of two, of 6% more error, 499 to 510, 302;
//   weights by multiplication with a parabola and conversion 597 to 625; by an addition of bits and conversion, all 571, a quarter on the MUFU 566, three quarters 591; slices of 48
//   dimensions 546 to 556 where two of 64 have 526. On 2026-11-23, beside two tiles to a step (523 to 537 where one has 550): two consumers, each tile's scores asked for under the
//   weights of the one before 595 to 600; references made of each step's own maxima, outputs folded with a factor, so that the largest weight of every step is exact 559 to 564
//   (relF 0.985 instead of 1.013 of FA3's); causal by two tiles without steps of one before 339 to 347 (324), 2% faster at 16,384 keys alone. D 256 with two consumers,
//   4x8x4096: 516 to 583, 301 to 332 (forward.cu 497 to 524, 290 to 298): shared memory bounds both.
// Losers, H100, 2026-11-26, us (ledger-shapes.md): references that are past maxima, new ones by a vote, and another way for warps whose rows are peaked; all weights by the parabola but a quarter or an eighth: 4x16x4096 full, causal 535, 313 (here 490, 263 to 289),
//   16x16x1024 163, 114 (146, 105), 1x16x16384 2,035, 1,006 (1,780, 940); t from 0 to 1 and one more FMA that makes it a number of fixed point. |v| for v v, a triangle for the parabola and half an instruction less: 494, 287 where the parabola had 517, 292, but
//   two consumers over V^T 530 instead of 507 and 2.1% more squared error. Half of the weights' exponentials: 485 where the parabola has 484. Values accumulated in f16, which would leave 34 registers more: products take as much power (1,650 TFLOP/s, f32's 1,670), and folding more.
// Loops, three consumers over V^T, 4x16x4096, 8x16x2048, 16x16x1024, 1x16x16384, H100, 2026-11-26, us: one for all steps 500, 270, 172, 1,790; where no keys can be hidden 478 to 497, 263, 167, 1,690 to 1,790, by shares of linear weights or chance; without the branch for far logits, too, and nothing in its place
//   456 to 466, 254, 161, 1,666; two loops (here) 466 to 475, 259, 164, 1,719; two loops the first of which runs each row tile's first step 475, 266, 170 (with exact weights there 480, 269, 175): instructions of both are read anew for each row tile. Two consumers 2 to 5% slower so, but over 512 keys 2% faster; behind the
//   mask 1% faster over V^T, serialised (C7511) over rows of V. Five eighths linear 457 to 463, 255, 162, 1,699, but relF 1.017 of FA3 FP8's over 4,096 keys; six eighths alike.
//   Behind the mask over V^T, 4x16x4096, 16x16x1024, 1x16x16384: three eighths linear 290, 137, 927, a half (an eighth by the MUFU) 283 to 285, 133, 907, relF 1.009 instead of 1.004 of FA3 FP8's over 4,096 keys; without the MUFU 284 to 290, 134, 945; without the branch for far logits 280 to 283, 131, 915, not done.
// Losers, H100, 2026-11-26, us (ledger.md): consumers in turns, two tiles to a step, full 16x16x1024 173 instead of 168, 4x16x4096 539 instead of 532 (32x16x512 97 instead of 104); the last slice of values folded under the next scores,
//   causal 16x16x1024 121 instead of 112, full C7517; references without branches, five slots of K, row tiles drawn one ahead alike.
// Rows whose scores hardly differ, H100, 2026-11-27, times as long as with linear weights always (8 shapes each): asked within the loop (here) three consumers full 1.00, over V^T 1.00 (then 1.16), causal 1.00 (1.2), over V^T 1.014, D 256 over V^T 0.99 to 1.00; two consumers causal 1.00, over V^T 1.02, full 1.015, over V^T 1.04;
//   exact weights always two full 1.013, over V^T 1.013, causal 1.017, three causal 1.05 to 1.10; asked between two runs of the loop 1.00 to 1.05, three causal spill 150 bytes; by a bound of scores before the first step 1.04 to 1.05, serialised (C7511) behind the mask: it is the second loop that costs, not the question.
// Losers over V^T, 2026-11-23, us with the launch that makes it. D 128, 4x16x4096 and 1x16x16384 full (522 to 528, 1930 to 1940; rows of V 540 to 547, 2060): four tiles to a step 528 to 542, 1961 to
//   2033, though in 4% fewer cycles on a cool card; the first tile's values under the second's weights 526, 1932; three consumers 530, 1970; a quarter, three eighths, half of the weights
//   on the MUFU alike or slower. D 256, 4x8x4096 (471 to 473): one tile to a step 501 to 511; Q in registers 535 to 552; one slice of values at a time 502; one slot of Q and four of K
//   515; the first tile's values early 476 to 482. Both: clusters of two row tiles with K and V^T by multicast, 3 to 5% slower (557 instead of 536 at D 128, 523 instead of 502 with forward.cu
//   at D 256): the L2 does not bound it; V^T made by all CTAs together, in registers, by two warps beside the consumers, who wait for its tiles: 1 to 4% slower than a launch of its own,
//   15% at 1,024 keys, as it takes 110 us instead of 17.
// Which groups, H100, 2026-11-27, times as long as the first (7 to 12 shapes; 0.3% is chance): three consumers over V^T, four of eight exact, 0x33 1, 0x55 (here) 0.988, 0xA5 0.989, 0xC9 0.990, 0x95 0.992, 0xAA 0.999; rows of V, five of eight, 0x5D 1, 0xB5 (here) 0.991, 0x57 0.995, 0x75 1.003, 0xED 1.007;
//   behind the mask over V^T, a half linear 1, steps of one and such as hide keys exact besides 1.026, and five eighths of the others linear 1.002 (here: uniform inputs over 640 keys 1.046 to 1.008 of FA3 FP8's error, normal ones over 4,096 1.009 to 1.013), all of those that hide keys C7511; over rows of V, steps of one
//   exact but a quarter 1.005 (here), wholly 1.010; two behind the mask, linear with a loop for even rows 1, all exact, one group by the MUFU (here) 1.009, over V^T 0.984 (two by it 1.024, 1.001; none 1.011, 0.993); scales by block, all exact, two consumers 1.02 to 1.045 (few rows 1.025, D 256 1.00), over V^T 1.05, causal 1.025; three 1.02 to 1.03,
//   over V^T without the mask 1.015. Over few keys, three consumers, all exact 1.000, over V^T 1.018. D 256 over V^T: 0x88 and 0x20 1, 0xC0 and 0x10 0.995 (with one parabola more, 0x11, here: relF 1.016 to 1.010 of FA3 FP8's over 4,096 keys), 0x24 and 0x01 1.003; causal 0xAA and 0x11 1, 0x6A and 0x90 0.995, 0x8B and 0x14 0.997; one parabola less 0.995 (0x80: here since first_rows), two 0.99 (1.004 more of FA3 FP8's error each).
// Losers beside scales by block or behind the mask, 2026-11-23, us: two tiles to a step whose scales differ, D 128 4x16x4096 586 (562), causal 339 (336); the same at D 256, where forward.cu has
//   473, 518, as ptxas serialises its products; queries of 16 bits quantised ahead by the producers 598 (572); rows of Q scaled a row tile ahead by the producers, 4x8x4096x256 causal
//   293 (292), 16x16x1024x128 causal 11% slower, 8x16x2048 18% (2026-11-28, by two warps that have no V to transpose, by few registers: 1.03 to 1.28, as Q comes behind the row tile's last K); V prefetched into the L2 by the launch that makes V^T, alike.
// Sequences one behind another (few.cuh) over V^T that is made before, H200, 2026-11-28, times as long as the fastest over rows of V, calls of 100 us and more, its making included: D 256 behind the mask 0.97 in the mean, at best 0.78, D 128 by three 1.02 and 0.80, without the mask 0.99 and 0.84, by two 0.97 and 0.92
//   (few long row tiles gain, many short ones lose). Two consumers at D 256 with 232 registers for 240 spill 60 times in the loop, three behind the mask with all weights exact 58 times. The next row tile drawn a few tiles before this one's last is asked for: 0.98 to 1.09.
// V^T made beside attention (transpose.cu, kBeside), H100, 2026-11-27, us, made before and so, row tiles drawn: 4x16x4096x128 462, 446; 1x16x16384 1,728, 1,676; 1x24x4608 231, 226; 4x8x4096x256 416, 406; 1x5x8192x256 312, 304. Where SMs have no row tile less to do, slower (2x8x4096x256 242, 254).
// Row tiles drawn behind the mask, by sections of heads of a round or a few, H100, 2026-11-27, times as long as by the list that came before (docs/ledger-shapes.md): over V^T 4x8x4096x256 0.935, 2x16-4x4096x256 0.98, 4x16x4096x128 0.985, with V^T made beside 0.965, 1x32x8192x128 0.96; packed values at D 256 0.92 to 0.94, at D 128 0.98; 1x16x16384 1.00.
//   Losers: the next row tile's rows of Q scaled in the last step, while scores are awaited, 1.02 to 1.03 at D 256, 1.08 to 1.25 at D 128, where who tells of it transposes before (without scaling rows at all 0.97 to 0.985, 0.93 to 0.97); V^T beside at D 256 1.00 to 1.05 (looking ahead for tiles 0.975 to 0.99 up to 4,096 keys, here); rows of V by three consumers, drawn, 0.98 to 1.02; 8, 16, 64 CTAs that make V^T instead of 32 1.00, 1.00, 1.01 (D 256 1.07, 1.025, 1.025).
// Behind the mask a consumer without rows passes over its row tile's keys (kPasses), H100, 2026-11-27, times as long as multiplying zeros: 4x16x4096x128 0.965 to 0.98, 1x16x16384 0.98, 3x8x5000 0.975, 16x16x600 by three 0.93, by two 0.99, 8x16x2048 over V^T 0.98.
//   Losers: without the mask 1.00 to 1.02, as whoever has rows takes as long alone; meeting at its end by three over V^T, who spill more then, 1.01 (over more than 8,192 keys less, and 0.99: here), not meeting elsewhere 1.00 to 1.04; outputs made zero late by three (C7511).
//   Of a tile whose second half none of a consumer's rows sees, a diagonal's for every other 64 rows, the first half alone, in a step of its own with another tile (2026-11-28): right, and 1.01 to 1.08 (4x8x4096x256 1.03, 4x16x4096x128 1.07, 16x16x1024x128 1.01, 32x16x512 1.08, 1x16x16384 1.04):
//   1,000 instructions more that lie before the others' loop, and registers. (Consumers' warps wait 3% of their time for instructions at 16x16x1024x128 causal, by ncu; which of the two it is was not looked into.)
// A head's first rows behind the mask over V^T, which see one tile of keys at most, have weights in two codes each (first_rows). FA3 FP8's error was exceeded by up to 4% by chance, as few weights are rounded there, and half of all rows' squared outputs are theirs. relF of 512 random rows over
//   FA3 FP8's, mean and most of eight draws, H100, 2026-11-27, before and so: 4x16x4096x128 1.012, 1.043 and 0.980, 0.997; 1x16x16384x128 1.008, 1.022 and 0.967, 1.005; 4x8x4096x256 1.009, 1.039 and 0.967, 1.007; 1x8x16384x256 1.002, 1.014 and 0.970, 0.983. Times as long 1.000 to 1.005.
//   Losers: by rows of V, where few draws exceed 1.01, 16x16x1024 1.02 (0.999 to 0.959), 600 and 200 keys 1.05, three consumers 1.01; all steps of one tile so 1.05 to 1.08 by three consumers; a step of its own among the others 1.01 to 1.02 by two, C7511 by three.
// PERF: a release under a branch right before a loop's end makes descriptors ordinary registers (ptxas 13.0): each product then waits for R2UR.
// Measured: docs/ledger.md. Comes from: forward.cu, forward_f16.cu.
#include "params.cuh"
#include "transpose.cuh"

#ifndef WS_D
#define WS_D 128
#endif
#ifndef WS_WGS
#define WS_WGS 3
#endif
#ifndef WS_CAUSAL
#define WS_CAUSAL 0
#endif
#ifndef WS_TRACE
#define WS_TRACE 0
#endif
#ifndef WS_PACKED
#define WS_PACKED 0   // p.v is V^T as transpose.cuh would make it, (B, Hkv, D, keys in whole tiles); with WS_BLOCKS p.v_mean, if there, is added to the output
#endif
#ifndef WS_BLOCKS
#define WS_BLOCKS WS_PACKED   // scales may differ between blocks of 128 tokens
#endif
#ifndef WS_EVEN
#define WS_EVEN 0   // with WS_PACKED and WS_BLOCKS: most row tiles' tiles have one scale of K and one of V
#endif
#ifndef WS_WIDEQ
#define WS_WIDEQ 0   // with WS_PACKED: p.q is of 16 bits, bf16 or f16 as the output is, and each of its rows gets a power of two of its own beside q_scale, which may be null
#endif
#ifndef WS_FEW
#define WS_FEW 0   // row tiles are of packed rows of a key head, and CTAs share out their keys: few.cuh
#endif
#ifndef WS_LENS
#define WS_LENS 0   // with WS_FEW: sequences have lengths of their own, and perhaps pages; 2: or lie one behind another
#endif
#ifndef WS_FAST
#define WS_FAST 0   // 1: weights linear between powers of two
#endif
#ifndef WS_DRAWN
#define WS_DRAWN 0   // forward_work.cuh
#endif
#ifndef WS_LONG
#define WS_LONG 0    // behind the mask, three consumers over V^T: over so many keys that a group more has exact weights (H100, 2026-11-27: 1x16x16384 892.9 us instead of 892.5, 2x16x8192 498 instead of 493, 4x16x4096 286 instead of 280; squared error of weights 3.6% less)
#endif
#ifndef WS_SHORT
#define WS_SHORT 0   // without the mask, three consumers or D 256: over so few keys that fewer weights may be linear
#endif
// Of a tile's eight groups of 16 keys, a bit each: whose weights are exact, by the MUFU, and by a parabola. The others are linear between powers of two.
#define WS_ALL_EXACT (!WS_FAST && (WS_BLOCKS && !WS_EVEN || WS_FEW && !(WS_PACKED && WS_CAUSAL && WS_WGS == 3) || WS_D == 128 && (WS_WGS == 2 || WS_SHORT)))
#ifndef WS_MUFU
#if WS_FAST
#define WS_MUFU 0
#elif WS_BLOCKS && !WS_EVEN
#define WS_MUFU (WS_WGS == 3 ? (WS_PACKED && !WS_CAUSAL ? 0x88 : 0x80) : 0)
#elif WS_FEW
#define WS_MUFU (WS_D == 128 ? 0x80 : WS_CAUSAL ? 0xAA : 0x88)
#elif WS_D == 256
#define WS_MUFU (WS_CAUSAL ? 0x6A : WS_SHORT ? 0x88 : 0xC0)
#elif WS_WGS == 2
#define WS_MUFU (WS_CAUSAL ? 0x20 : 0x02)
#else
#define WS_MUFU (WS_EVEN && WS_WIDEQ && WS_OUT_F16 ? (WS_CAUSAL ? 0x04 : 0x01) : WS_CAUSAL ? 0x80 : 0)   // the first two: else ptxas 13.0 serialises the products (C7511)
#endif
#endif
#ifndef WS_PARABOLA
#if WS_FAST
#define WS_PARABOLA (WS_CAUSAL && WS_D == 128 ? 0x10 : 0)
#elif WS_ALL_EXACT
#define WS_PARABOLA (0xFF & ~WS_MUFU)
#elif WS_D == 256
#define WS_PARABOLA (WS_CAUSAL ? 0x80 : WS_SHORT ? 0x62 : 0x11)
#elif WS_CAUSAL
#define WS_PARABOLA (WS_LONG || WS_FEW ? 0x29 : WS_PACKED ? 0x03 : 0x55)
#else
#define WS_PARABOLA (!WS_PACKED ? 0xB5 : WS_DRAWN ? 0xC9 : 0x55)   // drawn, 0x55 spills 24 bytes in the loop: 3% slower
#endif
#endif
#define WS_EVENS (!WS_FAST && (WS_MUFU | WS_PARABOLA) != 0xFF)   // whether rows whose scores hardly differ have a loop of their own, where no weights are linear

constexpr i32 D = WS_D, WGS = WS_WGS, KEYS = 128, ROWS = 64 * WGS;
constexpr bool kPacked = WS_PACKED, kBlocks = WS_BLOCKS, kAcross = false, kTold = true, kWideQ = WS_WIDEQ, kFew = WS_FEW, kOwnQ = kWideQ, kLens = WS_LENS, kLogs = false;
// Whether a consumer without rows, of a head's last row tile, passes over its keys instead of multiplying zeros. Not where ptxas 13.0 then serialises the products of three consumers (C7511).
constexpr bool kPasses = WS_CAUSAL && !kFew && !(WGS == 3 && (kWideQ || WS_FAST && !kPacked || WS_EVEN && WS_OUT_CODES));
constexpr bool kMeets = kPasses && !(WGS == 3 && kPacked && !kBlocks && !WS_LONG);   // and whether it waits for the others at the row tile's end
constexpr bool kRelative = WS_EVEN;   // scales of tiles are relative to those of the row tile's first one, of which pack_kv makes as many equal as it can (Told::even)
static_assert(D == 128 ? WGS == 2 || WGS == 3 && (!kFew || kPacked) : D == 256 && (WGS == 2 || kFew && WGS == 1), "two or three consumers at head dimension 128, two at 256: registers");
static_assert(!kRelative || kPacked && kBlocks, "scales by block of packed values");
static_assert(D == 128 || kFew || kPacked && (!kBlocks || kRelative), "256 is faster here only over V^T and by two tiles: else shared memory bounds it");
static_assert(kPacked || !kWideQ, "queries of 16 bits come with V^T");
static_assert(!kPacked || !kFew || kLens && !kBlocks, "few rows take V as it comes, but where only the device knows lengths, by scales of whole heads");
static_assert(!kLens || kFew, "lengths of their own: few rows");
constexpr u32 kPitch = 128;
constexpr u32 kTileBytes = KEYS * D, kQBytes = ROWS * D, kOnesBytes = 1024;
constexpr u32 kVtBytes = kTileBytes + kOnesBytes;   // V^T, and eight rows of ones behind it
constexpr bool kDeep = kFew && D == 256 && !kPacked;   // few rows are bound by memory, and their V is transposed here
constexpr i32 kQStages = kDeep ? 1 : 2, kStages = kDeep ? 2 : D == 256 ? 3 : 4, kVStages = kPacked ? 0 : kDeep && WGS == 2 ? 1 : 2, kVtStages = D == 256 ? 2 : 4;
constexpr i32 kTransposers = 2;   // warps
constexpr i32 kStep = kBlocks && !kRelative || kDeep ? 1 : 2;   // tiles of keys at a time: V's scale may differ between tiles
constexpr i32 kWhole = WS_CAUSAL ? 1 : kStep;   // of which a row tile has a multiple: behind the mask a step of one tile comes first where there is an odd one
// setmaxnreg can only share out what the launch allocated: threads times (65536 / threads, rounded down to a multiple of 8).
constexpr i32 kConsumerRegisters = WGS == 3 ? 160 : kDeep && WGS == 2 ? 232 : D == 256 ? 240 : 216, kProducerRegisters = WGS == 3 ? 32 : kDeep && WGS == 2 ? 40 : D == 256 && WGS == 2 ? 24 : 72;
static_assert(kConsumerRegisters * WGS + kProducerRegisters <= 65536 / ((WGS + 1) * 128) / 8 * 8 * (WGS + 1), "more registers than the launch allocates: setmaxnreg would wait for ever");

// Shared memory: Q | K | V | V^T | barriers | scales | two of Told | factors of each slot of Q.
constexpr u32 kK = kQStages * kQBytes, kV = kK + kStages * kTileBytes, kVt = kV + kVStages * kTileBytes, kBars = kVt + kVtStages * kVtBytes;
constexpr i32 kFactorRows = D == 256 && kPacked ? 64 : ROWS;   // of each slot of Q: where there is no room for more, of 64 rows, as heads of a group that divides 64 recur, and rows that are none are not stored
constexpr u32 kBarsRoom = 4, kScales = kBars + 256, kScaleSlots = 8;
constexpr u32 kRecords = kScales + (kBlocks ? 2 * 4 * kScaleSlots : 0), kRecordBytes = kLens ? 48 : 32;
constexpr u32 kFactors = kRecords + 2 * kRecordBytes, kFactorBytes = kFew ? 4 * kFactorRows : 0, kSharedBytes = kFactors + kQStages * kFactorBytes;   // of rows of Q
static_assert(kVStages + kVtStages <= static_cast<i32>(kScaleSlots) && kStages <= static_cast<i32>(kScaleSlots), "a scale is not overwritten before it was read");
static_assert(kSharedBytes <= 232448, "shared memory of a CTA");

constexpr bool kAgain = WS_CAUSAL && WGS == 3 && WS_DRAWN && kPacked && !kBlocks && !WS_FAST;   // whether rows of Q are read again when they are scaled: kept in registers meanwhile, products are serialised there (ptxas 13.0, C7511); as they are elsewhere when read again
constexpr bool kExactly = WS_CAUSAL && !kFew && kPacked && !kBlocks && WGS == (D == 128 ? 3 : 2) && !WS_FAST && !WS_OUT_CODES;   // first_rows
constexpr bool kClearsLate = WGS != 3;   // outputs are made zero once rows of Q are scaled, which wants registers, too (H100, 2026-11-27: two consumers 0.99 of the time, D 256 0.99; three are serialised so behind the mask, C7511)
// Whether they are made so once: else ptxas 13.0 does it on each way that leads to the first step, and where a row tile sees no key by a choice for each of them. H100, 2026-11-28: two consumers behind the mask 0.99 to 0.997 of the time, D 256 0.994 to 1.00; without the mask 1.005 to 1.025, three consumers 0.995 to 1.003.
constexpr bool kClearsOnce = WS_CAUSAL && kClearsLate && kStep == 2 && !kFew && !kBlocks;
constexpr float kNone = -1.0e30f;   // r of a row that has seen no key
constexpr float kFar = 64.0f;       // octaves by which a step's reference may be above r
constexpr float kSteep = 32.0f;     // of b: beyond, f16 has steps of more than half an octave
constexpr bool kLean = kStep == 2 && !WS_CAUSAL && !kFew && (WGS == 3 || D == 256);   // whether rows whose scores cannot come far have a loop of their own
constexpr float kAbove = kLean ? 88.0f : 0.0f;   // octaves that r is above the reference of a row tile's first step: steps more than 38 below that one are lost, as ex2 has no smaller numbers
constexpr float kReach = 900.0f;    // of scores, octaves: b is not too steep
constexpr float kRise = 88.0f;      // of references above r, octaves: by so many outputs over a million keys are within f32

#include "codes.cuh"
#include "pairs.cuh"

// Whether all threads at a barrier say so, which the compiler knows to be the same in a warp.
WS_DEV bool all_say(u32 id, u32 threads, bool say) {
    u32 y;
    asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; bar.red.and.pred p, %1, %2, p; selp.u32 %0, 1, 0, p;}" : "=r"(y) : "r"(id), "r"(threads), "r"(static_cast<u32>(say)) : "memory");
    return __shfl_sync(0xFFFFFFFFu, y, 0) != 0;
}

// Of how many threads at a barrier say so.
WS_DEV u32 count_say(u32 id, u32 threads, bool say) {
    u32 y;
    asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; bar.red.popc.u32 %0, %1, %2, p;}" : "=r"(y) : "r"(id), "r"(threads), "r"(static_cast<u32>(say)) : "memory");
    return __shfl_sync(0xFFFFFFFFu, y, 0);
}

constexpr bool kEvens = WS_EVENS;

// Groups of 16 keys whose weights are exact by a parabola: of most steps; where no weights are linear; behind the mask of steps of one, which come first, and of such as hide keys, where few keys are seen. Three consumers are serialised (C7511) or spill with all of them exact there.
constexpr u32 kSome = WS_PARABOLA, kEvery = WS_FAST ? kSome : 0xFF, kOfOne = !WS_CAUSAL || WS_FAST ? kSome : WGS == 3 && !kPacked ? kSome | 0x3F : kEvery, kHiding = !WS_CAUSAL || WS_FAST ? kSome : kSome | 0x1F;

// Whether steps of two tiles that hide keys have a loop of their own, so that the others do not jump over 136 instructions (16x16x1024x128 146 us instead of 152; causal 4x16x4096x128 263 instead of 289; without the mask three consumers spill 316 bytes so, at D 256 660, and behind the mask ptxas 13.0 serialises products of e4m3 outputs but of few rows, C7511).
constexpr bool kApart = D == 128 && kStep == 2 && (WS_CAUSAL ? WGS == 3 && kPacked && (!WS_OUT_CODES || kFew) : WGS == 2);
constexpr bool kSinglyLast = kRelative && !(WS_CAUSAL && WGS == 3);   // whether tiles of other scales come behind those of the first one's; there it spills 116 bytes, and is serialised with linear weights (C7511)
constexpr bool kBothAtOnce = kStep == 1 || WGS == 2;   // products of values
constexpr i32 kSlices = D / 64, kWays = kSlices > 2 ? 2 : 1;   // of dimensions; accumulators for all but the last
constexpr i32 kSums = D / 2, kOutputs = kSums + 2;   // a thread's dimensions of two rows, then each row's sum

// T = P V over kTiles tiles for 64 of the head's dimensions, from `first` on (N 36: and P 1), issued, not waited for. vt: low words of descriptors.
template <int N, i32 kTiles>
WS_DEV void issue_values(float (&t)[N], const u32 (&p)[kTiles][KEYS / 8], const u32 (&vt)[kTiles], u32 first) {
    wgmma_fence();
#pragma unroll
    for (i32 i = 0; i < kTiles * KEYS / 32; ++i) {
        const i32 h = i / (KEYS / 32), k = i % (KEYS / 32);
        const u32 a[4] = {p[h][4 * k], p[h][4 * k + 1], p[h][4 * k + 2], p[h][4 * k + 3]};
        wgmma(t, a, desc_at<128>(vt[h], first * 128 + k * 32), i != 0);
    }
    wgmma_commit();
}

// Weights from scores, by the negative of c and b in pairs, as operands of the product: p[4 k .. 4 k + 3] is that over keys 32 k to 32 k + 31. kParabola: of which groups by a parabola.
template <u32 kParabola>
WS_DEV void weigh(const Pairs& s, u32 (&p)[KEYS / 8], u32 c0, u32 c1, u32 b0, u32 b1) {
    constexpr u32 kMinus256 = 0xDC00DC00u, k1280 = 0x65006500u;
    constexpr u32 kMinus32 = 0xD000D000u, k25 = 0x4E434E43u;   // log2 of a weight is 25.046875 - 32 t
    auto exact = [](u32 x, u32 c, u32 b, u32 one) { return codes_of(fma_sat_f16x2(x, c, b), one); };
    auto linear = [](u32 x, u32 c, u32 b) { return fma_f16x2(fma_sat_f16x2(x, c, b), kMinus256, k1280); };
    u32 one = 0x3C003C00u;
    asm("" : "+r"(one));
    const u32 m0 = mul_f16x2(c0, kMinus32), m1 = mul_f16x2(c1, kMinus32), n0 = fma_f16x2(b0, kMinus32, k25), n1 = fma_f16x2(b1, kMinus32, k25);
#pragma unroll
    for (i32 g = 0; g < KEYS / 16; ++g) {
        u32& row0 = p[4 * (g / 2) + 2 * (g % 2)];
        u32& row1 = p[4 * (g / 2) + 2 * (g % 2) + 1];
        if (WS_MUFU >> g & 1) {
            row0 = e4m3x4_of_f16x2(ex2_f16x2(fma_f16x2(s[4 * g], m0, n0)), ex2_f16x2(fma_f16x2(s[4 * g + 2], m0, n0)));
            row1 = e4m3x4_of_f16x2(ex2_f16x2(fma_f16x2(s[4 * g + 1], m1, n1)), ex2_f16x2(fma_f16x2(s[4 * g + 3], m1, n1)));
        } else if (kParabola >> g & 1) {
            row0 = __byte_perm(exact(s[4 * g], c0, b0, one), exact(s[4 * g + 2], c0, b0, one), 0x7531);
            row1 = __byte_perm(exact(s[4 * g + 1], c1, b1, one), exact(s[4 * g + 3], c1, b1, one), 0x7531);
        } else {
            row0 = __byte_perm(linear(s[4 * g], c0, b0), linear(s[4 * g + 2], c0, b0), 0x6420);
            row1 = __byte_perm(linear(s[4 * g + 1], c1, b1), linear(s[4 * g + 3], c1, b1), 0x6420);
        }
    }
}

// The same twice: rounded, and what is left of them, so that their sum has eight bits.
WS_DEV void weigh_twice(const Pairs& s, u32 (&p)[2][KEYS / 8], u32 c0, u32 c1, u32 b0, u32 b1) {
    constexpr u32 kMinus32 = 0xD000D000u, k25 = 0x4E434E43u;
    const u32 m[2] = {mul_f16x2(c0, kMinus32), mul_f16x2(c1, kMinus32)}, n[2] = {fma_f16x2(b0, kMinus32, k25), fma_f16x2(b1, kMinus32, k25)};
#pragma unroll
    for (i32 g = 0; g < KEYS / 16; ++g) {
#pragma unroll
        for (i32 row = 0; row < 2; ++row) {
            const i32 at = 4 * (g / 2) + 2 * (g % 2) + row;
            const u32 x = ex2_f16x2(fma_f16x2(s[4 * g + row], m[row], n[row])), y = ex2_f16x2(fma_f16x2(s[4 * g + 2 + row], m[row], n[row]));
            u32 of_x, of_y;
            p[0][at] = e4m3x4_of_f16x2(x, y);
            f16_of_e4m3(p[0][at], of_x, of_y);
            p[1][at] = e4m3x4_of_f16x2(sub_f16x2(x, of_x), sub_f16x2(y, of_y));
        }
    }
}

// Behind the mask, two tiles to a step and one: 160 registers are few, so what is seldom wanted is made anew where it is.
constexpr bool kAnew = WS_CAUSAL && kStep == 2;

// A consumer's thread of 128. kAnew, and at D 256: read anew each time (H100, 2026-11-27: over V^T without the mask 16 bytes less are spilled, 0.975 to 1.00 of the time).
WS_DEV u32 anew(u32 thread) {
    if (kAnew || D == 256) {
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        thread %= 128;
    }
    return thread;
}

// Consumer::marks of a row tile's tiles, of which a few are not wholly seen.
WS_DEV u32 marks_of(i32 tiles, i32 clear) {
    const i32 above = max(0, clear) / KEYS, whole = kFew ? min(tiles, above) : above, masked = tiles - whole;   // behind the first one the masked ones come, which is one itself if none is whole
    return ((2u << masked) - 2) | (whole == 0);
}

// The first of its two rows.
WS_DEV i32 own_row(const Work& w, u32 group, u32 thread) { return w.first_row + static_cast<i32>(64 * group + thread / 32 * 16 + thread % 32 / 4); }

// What a thread keeps of its two rows, and where its group is among the row tile's tiles of keys.
struct Consumer {
    float o[kOutputs], r0, r1;   // relative to 2^r, a step's reference, in octaves
    u32 c0, c1;                  // negative factors of scores
    float step0, step1;          // kBlocks: c without K's scale
    bool k_there;                // the next tile was seen earlier: a wait costs 80 cycles where there is nothing to wait for
    u32 record, group, q_desc;
    i32 j;       // tiles so far
    i32 left;    // kAnew: instead of j, those that are left
    u32 marks;   // kAnew: a bit of each of the next tiles, the next one's lowest: whether it is not wholly seen

    WS_DEV_MEMBER void clear() {
#pragma unroll
        for (i32 i = 0; i < kOutputs; ++i) o[i] = 0.0f;
        if (kClearsOnce) pin(o);
    }

    WS_DEV_MEMBER void scale_output(float a0, float a1) {
#pragma unroll
        for (i32 i = 0; i < kSums; i += 4) o[i] *= a0, o[i + 1] *= a0, o[i + 2] *= a1, o[i + 3] *= a1;
        o[kSums] *= a0;
        o[kSums + 1] *= a1;
    }

    WS_DEV_MEMBER void skip(i32 tiles) { j += tiles, left -= tiles, marks >>= tiles; }

    // A step's references, by which each row's largest score has t kReference / kOctaves, and what its products are worth beside the outputs so far. The branch is taken where logits are beyond 700, rise by 44 after a row tile's first step (kLean: 105), or
    // a row sees no key: then scores less their largest are what weights are made of, as b would have no place for their differences. kNear: nothing of that can be. kFirst: it may be the row tile's first step, which takes no branch for it; else one that is does. kOnly: it is its only one.
    // (H100, 2026-11-27, times as long as with it in every first step: two consumers behind the mask 0.955 to 0.98, three over rows of V 0.97 to 0.98, over V^T 0.985 to 0.99, D 256 0.99 to 1.00, over packed values 0.955 to 0.99; without the mask 1.00. In the loop that is never first three over V^T spill 32 bytes more, 1.07.)
    template <bool kNear, bool kFirst, bool kOnly = false, i32 kTiles>
    WS_DEV_MEMBER void refer_rows(Pairs (&s)[kTiles], u32 top0, u32 top1, u32& b0, u32& b1, float& f0, float& f1) {
        constexpr u32 kReferences = 0x38433843u, kLowest = 0xFBFFFBFFu;   // kReference / kOctaves; -65504
        u32 top = max_nan_f16x2(__byte_perm(top0, top1, 0x5410), __byte_perm(top0, top1, 0x7632));   // of both rows
        top = max_nan_f16x2(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
        top = max_nan_f16x2(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
        const u32 b = fma_f16x2(top, neg_f16x2(__byte_perm(c0, c1, 0x5410)), kReferences);
        b0 = __byte_perm(b, b, 0x1010), b1 = __byte_perm(b, b, 0x3232);
        float x0, x1;
        f32_of_f16x2(b, x0, x1);
        if (kNear && r0 == kNone) r0 = fmaf(x0, kOctaves, kAbove), r1 = fmaf(x1, kOctaves, kAbove);
        if (!kNear && kFirst) {
            if (r0 == kNone && fabsf(x0) <= kSteep) r0 = fmaf(x0, kOctaves, kAbove);
            if (r1 == kNone && fabsf(x1) <= kSteep) r1 = fmaf(x1, kOctaves, kAbove);
        }
        float d0 = fmaf(x0, kOctaves, -r0), d1 = fmaf(x1, kOctaves, -r1);
        if (!kNear && __any_sync(0xFFFFFFFFu, fmaxf(d0, d1) > kFar || fmaxf(fabsf(x0), fabsf(x1)) > kSteep)) {
            top = max_nan_f16x2(top, kLowest);
            const u32 t0 = __byte_perm(top, top, 0x1010), t1 = __byte_perm(top, top, 0x3232);
#pragma unroll
            for (i32 h = 0; h < kTiles; ++h) {
#pragma unroll
                for (i32 e = 0; e < KEYS / 4; e += 2) s[h][e] = sub_f16x2(s[h][e], t0), s[h][e + 1] = sub_f16x2(s[h][e + 1], t1);
            }
            b0 = b1 = kReferences;
            f32_of_f16x2(top, x0, x1);
            x0 = fmaf(x0 * first_of(c0), -kOctaves, kReference), x1 = fmaf(x1 * first_of(c1), -kOctaves, kReference);
            const bool far0 = x0 - r0 > kFar, far1 = x1 - r1 > kFar;
            // Of the first step far above it; of later ones no more than they are, as outputs so far may be worth 2^kFar, and what they are multiplied by has no numbers below 2^-126.
            const float n0 = kLean && r0 == kNone ? x0 + kAbove : x0, n1 = kLean && r1 == kNone ? x1 + kAbove : x1;
            if (!kOnly) scale_output(far0 ? ex2(r0 - n0) : 1.0f, far1 ? ex2(r1 - n1) : 1.0f);
            if (far0) r0 = n0;
            if (far1) r1 = n1;
            d0 = x0 - r0, d1 = x1 - r1;
        }
        f0 = ex2(d0), f1 = ex2(d1);
    }

    // Whether the scores of most of the group's rows are even, after its first keys: whether these weigh an eighth of the largest in the mean (of normal inputs a tenth; of queries half as wide a third).
    // Where few keys weigh much, a step's largest being exact makes up for linear weights. Where all weigh alike it does not: relF was 1.03 to 1.08 of FA3 FP8's.
    // rows: how many of the group's 64 there are (others have no scores but 0).
    WS_DEV_MEMBER bool even_rows(i32 keys, i32 rows) {
        const float least = static_cast<float>(25 * keys + 1900) * (kLean ? 0x1p-88f : 1.0f);   // by kAbove
        return static_cast<i32>(count_say(8 + group, 128, fminf(o[kSums], o[kSums + 1]) > least)) > 128 - min(64, rows);
    }

    // So many tiles, not looked at.
    WS_DEV_MEMBER void pass_over(const Rings& io, Place& n, i32 tiles) {
#pragma unroll 1
        for (; tiles > 0; --tiles, ++n) {
            io.pass_over(n);
            skip(1);
            k_there = false;
        }
    }

    // 64 dimensions.
    template <i32 N>
    WS_DEV_MEMBER void fold(const float (&x)[N], i32 first, float f0, float f1) {
#pragma unroll
        for (i32 i = 0; i < 32; ++i) o[first + i] = fmaf(x[i], i & 2 ? f1 : f0, o[first + i]);
    }

    // The next kTiles tiles. clear: the key from which on a mask is wanted. row0: the first of the thread's rows. (kAnew: none is wanted, nor w.) kParabola: weigh. kNear: refer_rows.
    template <i32 kTiles, bool kHides, u32 kParabola = kSome, bool kNear = false>
    WS_DEV_MEMBER void step(const Params& p, const Rings& io, Place& n, const Work& w, i32 clear, i32 row0, u32 lane4 LAPS_PARAMETERS) {
        constexpr bool kSingle = kTiles < kStep;
        const Bars& bars = io.bars;
        const Place now = n;
        mbarrier_wait_unless(k_there, bars.k_full(k_slot(n)), k_phase(n));
        LAP(0);
        Pairs s[kTiles];
        u32 pr[kTiles][KEYS / 8];
        issue_scores(s[0], q_desc, io.k_desc(n));
        if (kTiles == 2) {
            io.wait_k(n + 1);
            issue_scores(s[kTiles - 1], q_desc, io.k_desc(n + 1));
        }
        constexpr bool kScaled = kBlocks && (!kRelative || kSingle);   // by scales of the tile's own
        if (kScaled) {   // while the scores are made
            const float k_scale = load_shared_f32(bars.k_scale(number(n)));
            c0 = factor_pair(step0 * k_scale);
            c1 = factor_pair(step1 * k_scale);
        }
        const bool v_there = !kSingle && mbarrier_test(bars.vt_full(vt_slot(n)), vt_phase(n));
        u32 top0, top1;
#pragma unroll
        for (i32 h = 0; h < kTiles; ++h) {   // the second tile's scores are made meanwhile
            if (h + 1 < kTiles) wgmma_wait<1>();
            else wgmma_wait<0>();
            pin(s[h]);
            if (kDeep && j + 1 == w.tiles) io.release(bars.q_empty(0));   // the next row tile's Q comes while this one ends
            if (h == 0) LAP(1);
            io.release_k(n + h);
            if (kAnew) {
                if (kHides && marks & 1u << h) {
                    const Work x = told(record).w;
                    const u32 thread = anew(0);
                    if (kFew) hide_few(s[h], p, x, x.keys_at(x.tiles - left + h), own_row(x, group, thread), thread % 4);
                    else hide_unseen(s[h], p, x.keys_at(x.tiles - left + h), own_row(x, group, thread), thread % 4);
                }
            } else {
                const i32 t = w.keys_at(j + h);
                if (kHides && (WS_CAUSAL || kSingle || j == 0) && (t + 1) * KEYS > clear) kFew ? hide_few(s[h], p, w, t, row0, lane4) : hide_unseen(s[h], p, t, row0, lane4);   // without the mask only the first step has a tail
            }
            largest_scores(s[h], h > 0, top0, top1);
        }
        u32 b0, b1;
        float f0, f1;
        refer_rows<kNear, kHides>(s, top0, top1, b0, b1, f0, f1);
#pragma unroll
        for (i32 h = 0; h < kTiles; ++h) {
            weigh<kParabola>(s[h], pr[h], c0, c1, b0, b1);
            pin(pr[h]);
        }
        LAP(2);
        mbarrier_wait_unless(v_there, bars.vt_full(vt_slot(n)), vt_phase(n));
        LAP(3);
        if (kTiles == 2) io.wait_vt(n + 1);
        u32 vt[kTiles];
#pragma unroll
        for (i32 h = 0; h < kTiles; ++h) vt[h] = io.vt_desc(n + h);
        const float v_scale = kScaled ? load_shared_f32(bars.v_scale(number(n))) : 1.0f, g0 = kScaled ? f0 * v_scale : f0, g1 = kScaled ? f1 * v_scale : f1;
        // By 64 dimensions: each is folded while the next runs, with the last of which the sums come; or, where that takes too many registers, before.
        // PERF: a step of one where others are of two has fewer accumulators: with as many ptxas 13.0 spills 30 to 90 registers in the loop of two.
        constexpr bool kBoth = kBothAtOnce && !kSingle;
        constexpr i32 kOthers = kSingle ? 1 : kWays;
        float some[kOthers][32], last[36];
        float(&first)[32] = kSingle && WGS == 3 ? *reinterpret_cast<float(*)[32]>(last) : some[0];
        issue_values(first, pr, vt, 0);
#pragma unroll
        for (i32 i = 0; i < kSlices - 1; ++i) {
            float(&done)[32] = i % kOthers ? some[i % kOthers] : first;
            if (!kBoth) {
                wgmma_wait<0>();
                pin(done);
                fold(done, 32 * i, g0, g1);
            }
            if (i + 2 < kSlices) {
                float(&next)[32] = (i + 1) % kOthers ? some[(i + 1) % kOthers] : first;
                issue_values(next, pr, vt, 64 * (i + 1));
            } else {
                issue_values(last, pr, vt, D - 64);
                n += kTiles;
                skip(kTiles);
                k_there = !kSingle && mbarrier_test(bars.k_full(k_slot(n)), k_phase(n));
            }
            if (kBoth) {
                wgmma_wait<1>();
                pin(done);
                fold(done, 32 * i, g0, g1);
            }
        }
        wgmma_wait<0>();
        pin(last);
#pragma unroll
        for (i32 h = 0; h < kTiles; ++h) io.release_vt(now + h);
        fold(last, D / 2 - 32, g0, g1);
        o[kSums] = fmaf(last[32], f0, o[kSums]);
        o[kSums + 1] = fmaf(last[34], f1, o[kSums + 1]);
        LAP(4);
    }
};

// kFew: where a row tile's last consumer has no rows all of them end it together. One that only passes over its tiles would be a row tile ahead from then on: then the room of the next Q is given back late, and who is ahead waits for that
// Q each time. H100, 2026-11-26, causal, us, before and so: 32x64-4x300x300x128 236, 198; 24x16-8x280x280 52.5, 42.9; 49x48-8x392x392 416, 360; full 32x64-4x300 247, 231. (forward_f16.cu, D 64: 0 to 2% slower so. forward.cu's take turns.)
WS_DEV void end_together(const Params& p, const Work& w) {
    if (kFew ? WGS > 1 && w.first_row + 64 * (WGS - 1) >= p.group * few_queries(p, w) : kMeets && w.first_row + 64 * (WGS - 1) >= p.Sq) named_barrier_sync(12, 128 * WGS);
}

// Rows that see one tile of keys at most, a head's first ones: by weights of eight bits (weigh_twice), as each of their few weights' rounding shows, and half of all rows' squared outputs are theirs.
WS_DEV void first_rows(const Params& p, const Rings& io, Place& n, const Told& x, u32 base, const Ring<kQStages>& q, u32 group, u32 own) {
    const Work& w = x.w;
    const u32 thread = anew(own), warp = thread / 32, lane4 = thread % 4;
    const i32 group_row = w.first_row + 64 * group, row0 = own_row(w, group, thread);
    Consumer me;
    me.r0 = me.r1 = kNone;
    if (!kOwnQ) mbarrier_wait(io.bars.q_raw(q.slot), q.phase);
    prepare_rows(p, x, group_row + 16 * warp, base + q.slot * kQBytes + group * (64 * D) + 16 * warp * kPitch, 0, thread % 32, x.c, me.step0, me.step1);
    me.c0 = factor_pair(me.step0), me.c1 = factor_pair(me.step1);
    fence_async_shared();
    named_barrier_sync(8 + group, 128);
    io.wait_k(n);
    Pairs s[1];
    issue_scores(s[0], desc_low(base) + q.slot * (kQBytes / 16) + group * (64 * D / 16), io.k_desc(n));
    wgmma_wait<0>();
    pin(s[0]);
    io.release_k(n);
    hide_unseen(s[0], p, w.keys_at(0), row0, lane4);
    u32 top0, top1, b0, b1, pr[2][KEYS / 8];
    float f0, f1;
    largest_scores(s[0], false, top0, top1);
    me.refer_rows<false, true, true>(s, top0, top1, b0, b1, f0, f1);
    weigh_twice(s[0], pr, me.c0, me.c1, b0, b1);
    pin(pr[0]);
    pin(pr[1]);
    io.wait_vt(n);
    const u32 vt[2] = {io.vt_desc(n), io.vt_desc(n)};
    const i64 at = static_cast<i64>(x.head) * p.Sq;
    float last[36], other[32];
    issue_values(last, pr, vt, D - 64);
    wgmma_wait<0>();
    pin(last);
    f0 = last[32] == 0.0f ? 0.0f : x.v_scale * rcp(last[32]), f1 = last[34] == 0.0f ? 0.0f : x.v_scale * rcp(last[34]);
    store_rows<4>(p, last, at, row0, lane4, f0, f1, D - 64);
#pragma unroll
    for (i32 i = 0; i < kSlices - 1; ++i) {
        issue_values(other, pr, vt, 64 * i);
        wgmma_wait<0>();
        pin(other);
        store_rows<4>(p, other, at, row0, lane4, f0, f1, 64 * i);
    }
    io.release_vt(n);
    ++n;
#pragma unroll 1
    for (i32 t = w.tiles - 1; t > 0; --t, ++n) io.pass_over(n);   // PERF: counted up, ptxas 13.0 serialises three consumers' products (C7511)
}

WS_DEV void consume(const Params& p, u32 base, const Bars& bars, u32 group, u32 own) {
    const Rings io{bars, base, anew(own) % 32 == 0};
    Ring<kQStages> q;
    Place n{};
#if WS_TRACE
    u32 laps[6] = {}, lap = clock();
    const u64 began = nanoseconds();
#endif
#pragma unroll 1
    for (;;) {
        Consumer me;
        me.record = record_at(base, q), me.group = group;
        mbarrier_wait(bars.q_full(q.slot), q.phase);
        const Told x = told(me.record);
        const Work& w = x.w;
        if (w.tiles < 0) break;
        if (kExactly && w.tiles > 0 && tiles_seen(p, w, w.first_row + 64 * group) == 1) {
            first_rows(p, io, n, x, base, q, group, own);
            end_together(p, w);
            __syncwarp();
            io.release(bars.q_empty(q.slot));
            q.next();
            continue;
        }
        me.r0 = me.r1 = kNone;
        if (!kClearsLate || !kClearsOnce && w.tiles == 0) me.clear();
        bool given = false;   // Q's only room, already
        if (w.tiles > 0) {
            const u32 thread = anew(own), warp = thread / 32, lane4 = thread % 4;
            const i32 group_row = w.first_row + 64 * group, row0 = own_row(w, group, thread);
            const i32 mine = tiles_seen(p, w, group_row), clear = kFew ? few_clear_keys(p, w, group_row) : clear_keys(p, group_row);
            const u32 q_at = base + q.slot * kQBytes + group * (64 * D) + 16 * warp * kPitch;
            if (!kOwnQ) mbarrier_wait(bars.q_raw(q.slot), q.phase);
            const u32 factors = base + kFactors + q.slot * kFactorBytes + 4 * (group * 64 % kFactorRows + 16 * warp);
            const float reach = prepare_rows(p, x, group_row + 16 * warp, q_at, factors, thread % 32, later_block(w, group) ? x.c_later : x.c, me.step0, me.step1);
            me.c0 = factor_pair(me.step0), me.c1 = factor_pair(me.step1);
            const u32 reaches = kLean ? __reduce_max_sync(0xFFFFFFFFu, __float_as_uint(reach)) : 0;   // of the warp's rows; what is no number is above all
            if (kClearsLate) me.clear();
            fence_async_shared();
            bool near = false;
            if (kLean) near = all_say(8 + group, 128, __uint_as_float(reaches) <= kReach);
            else named_barrier_sync(8 + group, 128);
            // Two at a time: tiles of the first one's scales, until one differs; the others, of which there are `singly`, come one by one (all of them where that cannot be last).
            const i32 even = kRelative ? __shfl_sync(0xFFFFFFFFu, x.even, 0) : 0, singly = kRelative && even < w.tiles ? w.tiles - (kSinglyLast ? even / 2 * 2 : 0) : 0, before = kRelative ? w.tiles - singly : w.tiles;
            me.q_desc = desc_low(base) + q.slot * (kQBytes / 16) + group * (64 * D / 16);
            me.j = 0, me.left = w.tiles, me.marks = marks_of(w.tiles, kFew ? clear - w.base * KEYS : clear);
            me.k_there = false;
            LAP(5);
            given = kDeep && mine > 0;
            if (mine > 0) {
                i32 hidden = w.tiles - mine;   // tiles that the group's rows do not see come behind the first one
                // By one first: of two at a time, an odd one, and one before hidden ones.
                i32 singles = kStep == 1 || kRelative && !kSinglyLast && singly > 0 ? mine : !WS_CAUSAL ? 0 : hidden > 0 ? 2 - (mine & 1) : mine & 1;
                const i32 last = kRelative && singly > 0 ? singly + 1 : 0;   // by two while more are left
#pragma unroll 1
                do {
                    if (kStep == 1 || WS_CAUSAL || kRelative) {
#pragma unroll 1
                        for (; singles > 0; --singles) {
                            me.step<1, true, WS_CAUSAL || !kRelative ? kOfOne : kEvery>(p, io, n, w, clear, row0, lane4 LAPS);
                            if (WS_CAUSAL) me.pass_over(io, n, hidden), hidden = 0;
                        }
                    }
                    if (kStep == 2) {
                        if (kApart && WS_CAUSAL) {
#pragma unroll 1
                            while (me.left > last && me.marks != 0) me.step<2, true, kHiding>(p, io, n, w, clear, row0, lane4 LAPS);
                        } else if (kApart && (!kRelative || me.left > last)) me.step<2, true>(p, io, n, w, clear, row0, lane4 LAPS);   // the tile where keys end is of the first step; and of few keys it is a large part
                        if (kLean) {
                            // Three loops: of any steps, of such as cannot hide keys nor come far, and of these without linear weights. The first step's references say whether the others' can rise too far.
                            // PERF: a step before the loops, instead of a loop that may end after it, makes ptxas 13.0 spill 470 bytes in them; and what both loops run for each row tile should be little: 1,750 cycles more otherwise.
                            i32 until = !near ? before : p.Sk % (2 * KEYS) == 0 ? 0 : kRelative ? min(2, before) : 2;
                            bool even_rows = false;
#pragma unroll 1
                            for (;;) {
#pragma unroll 1
                                while (me.j < until) me.step<2, true>(p, io, n, w, clear, row0, lane4 LAPS);
#pragma unroll 1
                                while (me.j < before) {
                                    if (me.j == 2) {
                                        if (!all_say(8 + group, 128, __uint_as_float(reaches) + kReference - fminf(me.r0, me.r1) <= kRise)) break;
                                        if (kEvens && me.even_rows(2 * KEYS - keys_behind(p, w), p.Sq - group_row)) {
                                            even_rows = true;
                                            break;
                                        }
                                    }
                                    me.step<2, false, kSome, true>(p, io, n, w, clear, row0, lane4 LAPS);
                                }
                                if (kEvens && even_rows) {
#pragma unroll 1
                                    while (me.j < before) me.step<2, false, kEvery, true>(p, io, n, w, clear, row0, lane4 LAPS);
                                }
                                if (me.j >= before) break;
                                until = before;
                            }
                        } else {
                            // Asked after the first step, which is this loop's where there was none before.
                            const i32 done = mine - me.left, asked = kApart || done > 0 ? me.left : me.left - 2;
                            bool even_rows = false;
#pragma unroll 1
                            while (kAnew ? me.left > last : me.j < before) {
                                if (kEvens && me.left == asked && me.even_rows((done > 0 ? done : 2) * KEYS, (kFew ? p.group * few_queries(p, w) : p.Sq) - group_row)) {
                                    even_rows = true;
                                    break;
                                }
                                me.step<2, !kApart>(p, io, n, w, clear, row0, lane4 LAPS);
                            }
                            if (kEvens && even_rows) {
#pragma unroll 1
                                while (me.left > last) me.step<2, !kApart, kEvery>(p, io, n, w, clear, row0, lane4 LAPS);
                            }
                        }
                    }
                    singles = me.left;
                } while (kSinglyLast && singles > 0);
            } else me.pass_over(io, n, w.tiles);
            end_together(p, w);
        } else if (kClearsOnce) me.clear();
        const Told done = told(me.record);   // again: that costs less than its registers in the loop
        __syncwarp();
        if (!given) io.release(bars.q_empty(q.slot));
        q.next();

        const u32 thread = anew(own), lane4 = thread % 4;
        if (kFew && (few_without_rows(p, done.w, group) || !few_add(p, done.w, done.head, group, thread, me.o, me.r0, me.r1))) continue;
        const float sum0 = me.o[kSums], sum1 = me.o[kSums + 1];   // 0 for a row that saw no key
        float f0 = sum0 == 0.0f ? 0.0f : done.v_scale * rcp(sum0), f1 = sum1 == 0.0f ? 0.0f : done.v_scale * rcp(sum1);
        if (kPacked && kBlocks) {   // V's mean
            add_mean(p, me.o, done.head / p.group, lane4, f0, f1, sum0 != 0.0f, sum1 != 0.0f);
            f0 = f1 = 1.0f;
        }
        const i32 row0 = own_row(done.w, group, thread);
        if (kFew) store_few<4>(p, me.o, few_out_row(p, done.w, done.head, row0), few_out_row(p, done.w, done.head, row0 + 8), lane4, f0, f1);
        else store_rows<4>(p, me.o, static_cast<i64>(done.head) * p.Sq, row0, lane4, f0, f1);
    }
#if WS_TRACE
    const u64 ended = nanoseconds();
    if (anew(own) == 0) write_laps(p, group, laps, ended - began, number(n));
#endif
}

extern "C" __global__ void __launch_bounds__((WGS + 1) * 128, 1)
    attention_forward_e4m3(const __grid_constant__ FewParams p, const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                           const __grid_constant__ TensorMap v_map) {
    extern __shared__ __align__(1024) u8 memory[];
    constexpr u32 kWords = kOnesBytes / 4;
    for (u32 i = threadIdx.x; i < kWords * kVtStages; i += blockDim.x) reinterpret_cast<u32*>(memory + (kVt + i / kWords * kVtBytes + kTileBytes))[i % kWords] = 0x38383838u;
    fence_async_shared();
    if (threadIdx.x == 0) {
        prefetch_tensor_map(&q_map);
        prefetch_tensor_map(&k_map);
        prefetch_tensor_map(&v_map);
    }
    auto transpose = [](u32 from, u32 to, u32 warp, u32 lane, u32) { transpose_share<D, KEYS, kTransposers>(from, to, warp, lane); };
    auto begin_rows = [&](u32 base, const Bars& bars, const Ring<kQStages>& q, const Work* w, u32 warp, u32 lane) {
        if (warp == 0) tell_rows(p, base, bars, q, w, lane, 1.0f);
    };
    auto consumer = [&](u32 base, const Bars& bars, u32 group, u32 thread) { consume(p, base, bars, group, thread); };
    forward_roles(p, &q_map, &k_map, &v_map, transpose, begin_rows, consumer);
}
