#!/usr/bin/env python3
"""Errors and times where scores spread: standard normal inputs, queries times a factor, beside FA3 FP8; errors against attention in f64.

    spread.py [--factors 1,1.3,1.6,2,2.8,4] [--lengths 1024,4096,16384,65536] [--dims 64,128,256] [--times 16x16x1024x128,...] [--out FILE]

Errors: relF against the same quantised inputs (what a kernel adds), and against the inputs before (what a user sees). One batch, four heads, at most 1,024 queries, with and without the mask; scales of
heads. `ours`: what the library chooses; `long`: the kernel for many row tiles; `lse`: that with a log-sum-exp. Times: BxHxSxD, microseconds a call by CUDA-graph replay in random order, medians of
`long`, `lse` and FA3 FP8, for factors 1 and 2.8.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), fa3-fwd, and a Hopper GPU.
"""
import argparse
import json
import math
from pathlib import Path

import few_rows

H, SQ = 4, 1024


def attention(torch, q, k, v, causal):
    out = torch.empty_like(q)
    Sq, Sk = q.shape[2], k.shape[2]
    keys = torch.arange(Sk, device=q.device)
    for h in range(q.shape[1]):
        for i in range(0, Sq, 256):   # rows at a time: f64 scores of 65,536 keys
            scores = q[0, h, i:i + 256].double() @ k[0, h].double().T / math.sqrt(q.shape[3])
            if causal:
                scores.masked_fill_(keys > Sk - Sq + torch.arange(i, i + scores.shape[0], device=q.device)[:, None], -math.inf)
            out[0, h, i:i + 256] = (torch.softmax(scores, -1) @ v[0, h].double()).float()
    return out


def quantised(torch, B, H, Sq, Sk, D, factor):
    torch.manual_seed(1)
    x = [torch.randn(B, H, n, D, device="cuda") for n in (Sq, Sk, Sk)]
    x[0] *= factor
    scales = [y.abs().amax(dim=(2, 3)) / 448 for y in x]
    return x, scales, [(y / s[:, :, None, None]).to(torch.float8_e4m3fn) for y, s in zip(x, scales)]


def calls(h, shape, codes, scales, causal):
    from fa3_fwd_interface import flash_attn_func
    from warpsmith.attention import sdpa_fp8
    B, H, Sq, Sk, D = shape
    many, lse = (h.choose_many(h.Shape(B, H, H, Sq, Sk, D, causal, lse=lse)) for lse in (False, True))
    rows = [c.transpose(1, 2) for c in codes]
    names = {"ours": h.choose(h.Shape(B, H, H, Sq, Sk, D, causal)).name, "long": many.name, "lse": lse.name}
    return names, {"ours": lambda: sdpa_fp8(*codes, *scales, causal=causal), "long": lambda: sdpa_fp8(*codes, *scales, causal=causal, _choice=lambda _: many),
                   "lse": lambda: sdpa_fp8(*codes, *scales, causal=causal, return_lse=True, _choice=lambda _: lse)[0],
                   "fa3": lambda: flash_attn_func(*rows, causal=causal, q_descale=scales[0], k_descale=scales[1], v_descale=scales[2]).transpose(1, 2)}


def run(factors, lengths, dims, times, out):
    import torch
    h, _ = few_rows.heuristic()
    errors, us = [], []
    off = lambda y, want: round(float((y.float() - want).norm() / want.norm()), 5)
    for D in dims:
        for Sk in lengths:
            for causal in (False, True):
                for factor in factors:
                    shape = 1, H, min(SQ, Sk), Sk, D
                    x, scales, codes = quantised(torch, *shape, factor)
                    same, exact = attention(torch, *(c.float() * s[:, :, None, None] for c, s in zip(codes, scales)), causal), attention(torch, *x, causal)
                    names, impls = calls(h, shape, codes, scales, causal)
                    ys = {n: f() for n, f in impls.items()}
                    errors.append({"D": D, "keys": Sk, "causal": causal, "factor": factor, "kernels": names, "quantised": {n: off(y, same) for n, y in ys.items()}, "inputs": {n: off(y, exact) for n, y in ys.items()}})
                    print(*(errors[-1][n] for n in ("D", "keys", "causal", "factor")), *({k: round(v[k] / v["fa3"], 3) for k in v} for v in (errors[-1]["quantised"], errors[-1]["inputs"])), flush=True)
    for B, heads, S, D in times:
        for causal in (False, True):
            for factor in (1, 2.8):
                _, scales, codes = quantised(torch, B, heads, S, S, D, factor)
                names, impls = calls(h, (B, heads, S, S, D), codes, scales, causal)
                del impls["ours"]
                us.append({"shape": [B, heads, S, D], "causal": causal, "factor": factor, "kernels": names, "us": few_rows.time_all(torch, {n: few_rows.graph(torch, [f], 8) for n, f in impls.items()}, 8, 15)})
                print(*(us[-1][n] for n in ("shape", "causal", "factor", "us")), flush=True)
    if out:
        out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "errors": errors, "times": us}, indent=None))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda of: lambda text: [of(x) for x in text.split(",") if x]
    parser.add_argument("--factors", type=numbers(float), default=[1, 1.3, 1.6, 2, 2.8, 4])
    parser.add_argument("--lengths", type=numbers(int), default=[1024, 4096, 16384, 65536])
    parser.add_argument("--dims", type=numbers(int), default=[64, 128, 256])
    parser.add_argument("--times", type=numbers(lambda s: [int(x) for x in s.split("x")]), default=[])
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    run(a.factors, a.lengths, a.dims, a.times, a.out)
