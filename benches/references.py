#!/usr/bin/env python3
"""Which reference a row's weights should have, without a GPU: errors of e4m3 weights over those of FA3 FP8's way, and how often a warp stops for new references.

    references.py [--keys 4096,16384] [--factors 1,1.6,2,2.8,4] [--policies 6,7,8,modes:14,modes:8]

Scores are normal (times a factor, in nats), V standard normal. FA3 FP8's way: the running maximum weighs 2^8, weights are rounded to e4m3, sums are those before rounding. Ours is forward_e4m3.cu's:
steps of two tiles, of which the first two always give references; a quarter of the weights rounded to nearest (MUFU), the rest fixed-point codes, which are linear below 2^-6 and 0 below 2^-7; sums of
the rounded weights. Policies: N: a reference weighs 2^N, and is made anew for a weight beyond 2^8.78 (6 ships). modes:P: 2^6, but 2^8 for a row whose largest weight is more than 1/P of its sum, and a
warp that has such a row makes new references for whatever weighs more than 2^8.06. `stops`: of a warp's steps behind the first two, those in which some of its 16 rows got a new reference.

Measured on an H100 (docs/attention-accuracy.md), D 128, 4,096 keys, factors 1, 2, 2.8, 4: 1.05, 1.36, 1.81, 1.66; 16,384: 1.03, 3.12, 2.77, 2.18. This says of policy 6: 1.07, 1.34, 1.63, 1.66; 1.03, 1.55, 3.06, 1.87
(64 rows: single heavy ones show). Wants numpy.
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


def fa3(scores, V):
    reference, o, s = np.full(ROWS, -np.inf), 0, 0
    for j in range(0, scores.shape[1], TILE):
        x = scores[:, j:j + TILE]
        new = np.maximum(reference, x.max(1))
        a = 2.0 ** (reference - new)
        reference, w = new, 2.0 ** (x - new[:, None] + 8)
        o, s = o * a[:, None] + e4m3(w) @ V[j:j + TILE], s * a + w.sum(1)
    return o / s[:, None]


def ours(scores, V, policy):
    """(output, share of a warp's steps that stop)"""
    modes, value = ":" in policy, float(policy.split(":")[-1])
    one = np.full(ROWS, -np.inf)   # the score that weighs 1
    o, s, mode, stops, steps = 0, np.zeros(ROWS), np.zeros(ROWS, bool), 0, 0
    by_warp = lambda rows: np.repeat(rows.reshape(-1, 16).any(1), 16)
    for j in range(0, scores.shape[1], 2 * TILE):
        x = scores[:, j:j + 2 * TILE]
        first, looks = j == 0, j < 4 * TILE
        top = x.max(1)
        weight = np.full(ROWS, 99.0) if first else top - one
        stop = np.ones(ROWS, bool) if looks else by_warp(weight > np.where(mode, 8.06, 8.78))
        if not looks:
            steps, stops = steps + ROWS, stops + stop.sum()
        if not modes:
            new = np.maximum(one, top - value)
        else:
            with np.errstate(divide="ignore"):
                peaked = np.maximum(np.full(ROWS, 6.0) if first else weight, 6 if looks else -99) > np.log2(s) - np.log2(value)
            to_8 = peaked & (not first)
            newest = weight > (6 if looks else 8.03)
            new = np.where(newest, top - np.where(to_8, 8, 6), np.where(to_8 & looks, one - 2, one))
            mode |= by_warp(stop & to_8 & (newest | looks))
        new = np.where(stop, new, one)
        a = np.zeros(ROWS) if first else 2.0 ** (one - new)
        one, w = new, weights(x - new[:, None])
        o, s = o * a[:, None] + w @ V[j:j + 2 * TILE], s * a + w.sum(1)
    return o / s[:, None], stops / max(1, steps)


def main(keys, factors, policies):
    for n in keys:
        for policy in policies:
            line = []
            for factor in factors:
                rng = np.random.default_rng(1)
                scores, V = factor * rng.standard_normal((ROWS, n)) * np.log2(np.e), rng.standard_normal((n, D))
                p = 2.0 ** (scores - scores.max(1, keepdims=True))
                exact = p @ V / p.sum(1, keepdims=True)
                out, stops = ours(scores, V, policy)
                line.append(f"{factor:g}: {np.linalg.norm(out - exact) / np.linalg.norm(fa3(scores, V) - exact):.2f}, stops {stops:.2f}")
            print(n, policy, "|", " | ".join(line), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda of: lambda text: [of(x) for x in text.split(",")]
    parser.add_argument("--keys", type=numbers(int), default=[4096, 16384])
    parser.add_argument("--factors", type=numbers(float), default=[1, 1.6, 2, 2.8, 4])
    parser.add_argument("--policies", type=numbers(str), default=["6", "7", "8", "modes:14", "modes:8"])
    a = parser.parse_args()
    main(a.keys, a.factors, a.policies)
