#!/usr/bin/env python3
"""Which reference a row's weights should have, without a GPU: errors of e4m3 weights over those of FA3 FP8's way, how often a warp stops for new references, and how many warps have peaked rows.

    references.py [--keys 4096,16384] [--factors 1,1.6,2,2.8,4] [--policies 6,7,8,peaked,own]

Scores are normal (times a factor, in nats), V standard normal. FA3 FP8's way: the running maximum weighs 2^8, weights are rounded to e4m3, sums are those before rounding. Ours is forward_e4m3.cu's:
steps of two tiles, of which the first two always give references; a quarter of the weights rounded to nearest (MUFU), the rest fixed-point codes, which are linear below 2^-6 and 0 below 2^-7; sums of
the rounded weights. Policies: N: a reference weighs 2^N, and is made anew for a weight beyond 2^8.78. peaked (shipped for a day): 2^6, but a warp whose rows are peaked, by the rule of peaked.cuh after the first two steps and
at 16 tiles (a single row: later too), makes each step's largest weight its reference, 2^8. own (ships): each step's largest weight is its reference, 2^8, and half of the others are linear between powers of two. `stops`: of a warp's steps behind the first two, those in which some of its 16 rows got a new reference.

Measured on an H100 (docs/attention-accuracy.md), D 128, 4,096 keys, factors 1, 1.6, 2, 2.8, 4: policy 6 1.05, 1.20, 1.44, 1.81, 1.66; peaked 1.05, 0.81, 0.74, 0.70, 0.65 (64 rows here: single heavy ones show). Wants numpy.
"""
import argparse

import numpy as np

ROWS, D, TILE = 64, 64, 128


def e4m3(x):
    x = np.minimum(x, 448.0)
    ulp = 2.0 ** (np.maximum(np.floor(np.log2(np.maximum(x, 2.0 ** -30))), -6) - 3)
    return np.round(x / ulp) * ulp


def weights(log2, mufu=2):
    """Of eight groups of 16 keys, `mufu` rounded to nearest, the others by fixed-point codes."""
    group = np.arange(log2.shape[1]) // 16 % 8
    nearest = e4m3(2.0 ** log2)
    codes = np.where(log2 >= -6, nearest, np.clip(np.round(8 * (log2 + 7)), 0, 8) * 2.0 ** -9)
    return np.where((group + 1) * mufu // 8 != group * mufu // 8, nearest, codes)


def half_linear(log2):
    """Of eight groups of 16 keys four rounded to nearest, the others linear between powers of two, less what those are too large in the mean."""
    places = np.clip(8 * (log2 + 7 - 3 / 64), 0, 126)
    code = np.round(places).astype(int)
    linear = np.where(code < 8, code * 2.0 ** -9, (8 + code % 8) * 2.0 ** (code // 8 - 10))
    return np.where(0x4D >> np.arange(log2.shape[1]) // 16 % 8 & 1, weights(log2, 0), linear)


def fa3(scores, V):
    reference, o, s = np.full(ROWS, -np.inf), 0, 0
    for j in range(0, scores.shape[1], TILE):
        x = scores[:, j:j + TILE]
        new = np.maximum(reference, x.max(1))
        a = 2.0 ** (reference - new)
        reference, w = new, 2.0 ** (x - new[:, None] + 8)
        o, s = o * a[:, None] + e4m3(w) @ V[j:j + TILE], s * a + w.sum(1)
    return o / s[:, None]


def peaked(sums, keys):
    """Of each warp, for all of its rows: peaked.cuh, where 512 keys gave the reference. sums: in units of it. Asked at each step from 16 tiles on, as if there was always something to ask."""
    single = sums / keys < 0.1 / 64
    wide = np.log2(np.maximum(sums, 1e-9)).reshape(-1, 16).mean(1) < np.log2(keys) - 4.5
    return np.repeat(single.reshape(-1, 16).any(1) | (wide if keys <= 16 * TILE else False), 16)


def ours(scores, V, policy):
    """(output, share of a warp's steps that stop, share of warps that follow at the end)"""
    value = 6.0 if policy == "peaked" else 8.0 if policy == "own" else float(policy)
    one = np.full(ROWS, -np.inf)   # the score that weighs 1
    o, s, follow, stops, steps, ask = 0, np.zeros(ROWS), np.full(ROWS, policy == "own"), 0, 0, 4
    by_warp = lambda rows: np.repeat(rows.reshape(-1, 16).any(1), 16)
    for j in range(0, scores.shape[1], 2 * TILE):
        x = scores[:, j:j + 2 * TILE]
        if policy == "peaked" and j // TILE >= ask:
            follow |= peaked(s * 2.0 ** -value, j)
            ask = max(16, j // TILE)
        looks, top = j < 4 * TILE, x.max(1)
        stop = np.ones(ROWS, bool) if looks else by_warp(top - one > 8.78) | follow
        if not looks:
            steps, stops = steps + ROWS, stops + stop.sum()
        new = np.where(follow, top - 8, np.where(stop, np.maximum(one, top - value), one))
        a = np.zeros(ROWS) if j == 0 else 2.0 ** (one - new)
        one, w = new, (half_linear if policy == "own" else weights)(x - new[:, None])
        o, s = o * a[:, None] + w @ V[j:j + 2 * TILE], s * a + w.sum(1)
    return o / s[:, None], stops / max(1, steps), follow.mean()


def main(keys, factors, policies):
    for n in keys:
        for policy in policies:
            line = []
            for factor in factors:
                rng = np.random.default_rng(1)
                scores, V = factor * rng.standard_normal((ROWS, n)) * np.log2(np.e), rng.standard_normal((n, D))
                p = 2.0 ** (scores - scores.max(1, keepdims=True))
                exact = p @ V / p.sum(1, keepdims=True)
                out, stops, follow = ours(scores, V, policy)
                line.append(f"{factor:g}: {np.linalg.norm(out - exact) / np.linalg.norm(fa3(scores, V) - exact):.2f}, stops {stops:.2f}, peaked {follow:.2f}")
            print(n, policy, "|", " | ".join(line), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda of: lambda text: [of(x) for x in text.split(",")]
    parser.add_argument("--keys", type=numbers(int), default=[4096, 16384])
    parser.add_argument("--factors", type=numbers(float), default=[1, 1.6, 2, 2.8, 4])
    parser.add_argument("--policies", type=numbers(str), default=["6", "7", "8", "peaked", "own"])
    a = parser.parse_args()
    main(a.keys, a.factors, a.policies)
