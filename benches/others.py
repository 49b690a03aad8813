#!/usr/bin/env python3
"""Other cards' kernel (portable.cu) on a Hopper GPU, for which the driver compiles its PTX: in f16, and with Ada's products in e4m3, beside torch's SDPA in f16. us by graph replay in random order.

    PYTHONPATH=python:python/tests python3 benches/others.py [--random N] [--seed N] [--out FILE]

Prompts by `sdpa_fp8`; tokens over caches by as many CTAs to a row tile as `_portable.shares` says, by one alone, and by other numbers: of the cases below, and of random ones.
"""
import argparse
import json
import random

import torch
import torch.nn.functional as F

import few_rows
from gpu_others import other_card
from warpsmith import attention as w

DEV, E4 = "cuda", torch.float8_e4m3fn
PROMPTS = [(1, 8, 512, 64), (4, 16, 4096, 64), (1, 8, 512, 128), (16, 16, 1024, 128), (4, 16, 4096, 128), (1, 8, 512, 256), (4, 8, 4096, 256)]
CACHES = [(1, 32, 8, 1, 8192, 128), (1, 32, 8, 1, 131072, 128), (8, 32, 8, 1, 16384, 128), (64, 32, 8, 1, 4096, 128), (1, 8, 8, 1, 512, 64), (1, 8, 8, 1, 4096, 64), (4, 16, 16, 1, 4096, 64), (2, 16, 2, 1, 16384, 256),
          (1, 32, 8, 16, 8192, 128), (1, 1, 1, 64, 8192, 128), (1, 8, 8, 100, 4096, 128), (1, 8, 8, 128, 32768, 64), (2, 4, 4, 64, 2048, 256), (1, 8, 1, 4, 3000, 128)]
SHARES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96)
MOST_CTAS = 800   # by whatever number


def replayed_us(calls):
    """Of each, by name."""
    return few_rows.time_all(torch, {name: few_rows.graph(torch, [call], 4) for name, call in calls.items()}, 4, 11)


def as_other(call, ada, shares=None):
    """The call, as on another card, by that many CTAs to a row tile if it is said."""
    def run():
        with other_card(ada):
            real = w._portable.shares
            w._portable.shares = real if shares is None else lambda *_: shares
            try:
                return call()
            finally:
                w._portable.shares = real
    return run


def tensors(B, Hq, Hkv, Sq, Sk, D):
    x = [torch.randn(B, H, S, D, device=DEV, dtype=torch.float16) for H, S in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk))]
    return x, (*(y.to(E4) for y in x), *3 * (torch.ones((), device=DEV),))


def prompts():
    for B, H, S, D in PROMPTS:
        half, t = tensors(B, H, H, S, S, D)
        for causal in (False, True):
            call = lambda: w.sdpa_fp8(*t, causal=causal)
            yield dict(case=f"{B}x{H}x{S}x{D}", causal=causal,
                       us=replayed_us({"f16": as_other(call, False), "e4m3": as_other(call, True), "sdpa": lambda: F.scaled_dot_product_attention(*half, is_causal=causal)}))


def some(count, seed):
    """Random calls of 1 to 64 queries whose row tiles leave SMs without work, or nearly."""
    r, found = random.Random(seed), []
    while len(found) < count:
        D, Hkv, group, Sq, B = r.choice((64, 128, 128, 256)), r.choice((1, 2, 4, 8, 8)), r.choice((1, 2, 4, 4, 8)), r.choice((1, 1, 2, 4, 8, 16, 32, 64)), r.choice((1, 1, 2, 4, 8))
        Sk = int(2 ** r.uniform(9, 16))
        if B * Hkv * -(-group * Sq // 64) <= 160 and B * Hkv * Sk * D < 2e8:
            found.append((B, Hkv * group, Hkv, Sq, Sk, D))
    return found


def caches(more):
    for B, Hq, Hkv, Sq, Sk, D in CACHES + more:
        half, t = tensors(B, Hq, Hkv, Sq, Sk, D)
        shape = w._heuristic.Shape(B, Hq, Hkv, Sq, Sk, D, False)
        call = lambda: w.sdpa_fp8(*t)
        for ada in (False, True):
            chosen = w._portable.choose(shape, torch.cuda.get_device_properties(DEV).multi_processor_count, ada).tiles_per_worker
            numbers = sorted({*(n for n in SHARES if n <= -(-Sk // 128) and (n == 1 or n * B * Hkv * -(-Hq // Hkv * Sq // 64) <= MOST_CTAS)), chosen})
            us = replayed_us({**{n: as_other(call, ada, n) for n in numbers}, "sdpa": lambda: F.scaled_dot_product_attention(*half, enable_gqa=True)})
            yield dict(case=f"{B}x{Hq}-{Hkv}x{Sq}x{Sk}x{D}", products="e4m3" if ada else "f16", chosen=chosen, us=us)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--random", type=int, default=0, help="so many random caches more")
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--out", help="a journal")
    a = ap.parse_args()
    rows = [dict(gpu=torch.cuda.get_device_name(), torch=torch.__version__)]
    for name, part in (("prompts", prompts()), ("caches", caches(some(a.random, a.seed)))):
        for row in part:
            rows.append(dict(part=name, **row))
            print(json.dumps(rows[-1]), flush=True)
    if a.out:
        with open(a.out, "w") as f:
            f.write("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
