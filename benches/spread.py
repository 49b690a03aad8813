#!/usr/bin/env python3
"""Errors where scores spread: standard normal inputs, queries times a factor, beside FA3 FP8, against attention in f64.

    spread.py [--factors 1,2,2.8,4,6] [--lengths 4096,16384,65536] [--dims 64,128,256] [--out FILE]

Of each: relF against the same quantised inputs (what a kernel adds), and against the inputs before (what a user sees), ours and FA3 FP8's. One batch, four heads, 1,024 queries, without
a mask; scales of heads. `long`: by the kernel for many row tiles, whatever the library chooses for so few.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), fa3-fwd, and a Hopper GPU.
"""
import argparse
import json
import math
from pathlib import Path

import few_rows

H, SQ = 4, 1024


def attention(torch, q, k, v):
    out = torch.empty_like(q)
    for h in range(q.shape[1]):
        for i in range(0, q.shape[2], 256):   # rows at a time: f64 scores of 65,536 keys
            scores = q[0, h, i:i + 256].double() @ k[0, h].double().T / math.sqrt(q.shape[3])
            out[0, h, i:i + 256] = (torch.softmax(scores, -1) @ v[0, h].double()).float()
    return out


def run(factors, lengths, dims, out):
    import torch
    from fa3_fwd_interface import flash_attn_func
    from warpsmith.attention import sdpa_fp8
    h, _ = few_rows.heuristic()
    rows = []
    off = lambda y, want: round(float((y.float() - want).norm() / want.norm()), 5)
    for D in dims:
        for Sk in lengths:
            for factor in factors:
                torch.manual_seed(1)
                q, k, v = (torch.randn(1, H, n, D, device="cuda") for n in (SQ, Sk, Sk))
                q *= factor
                scales = [x.abs().amax(dim=(2, 3)) / 448 for x in (q, k, v)]
                codes = [(x / s[:, :, None, None]).to(torch.float8_e4m3fn) for x, s in zip((q, k, v), scales)]
                same, exact = attention(torch, *(c.float() * s[:, :, None, None] for c, s in zip(codes, scales))), attention(torch, q, k, v)
                many = h.choose_many(h.Shape(1, H, H, SQ, Sk, D, False))
                ys = {"ours": sdpa_fp8(*codes, *scales), "long": sdpa_fp8(*codes, *scales, _choice=lambda _: many),
                      "fa3": flash_attn_func(*(c.transpose(1, 2) for c in codes), causal=False, q_descale=scales[0], k_descale=scales[1], v_descale=scales[2]).transpose(1, 2)}
                rows.append({"D": D, "keys": Sk, "factor": factor, "kernel": h.choose(h.Shape(1, H, H, SQ, Sk, D, False)).name, "long": many.name,
                             "quantised": {n: off(y, same) for n, y in ys.items()}, "inputs": {n: off(y, exact) for n, y in ys.items()}})
                print(*(rows[-1][n] for n in ("D", "keys", "factor", "quantised", "inputs")), flush=True)
    if out:
        out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "rows": rows}, indent=None))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda of: lambda text: [of(x) for x in text.split(",")]
    parser.add_argument("--factors", type=numbers(float), default=[1, 2, 2.8, 4, 6])
    parser.add_argument("--lengths", type=numbers(int), default=[4096, 16384, 65536])
    parser.add_argument("--dims", type=numbers(int), default=[64, 128, 256])
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    run(a.factors, a.lengths, a.dims, a.out)
