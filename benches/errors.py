#!/usr/bin/env python3
"""Errors of every kernel that can run a call, held against FA3 FP8's: the means and the largest of several draws, as a single one is 0.2% off.

    errors.py [--dims 64,128,256] [--keys 128,256,512,768,1024,2048,4096] [--queries 512] [--seeds 12] [--lse] [--inputs normal,...|all] [--chosen] [--least 1.01] [--out FILE]

Inputs of INPUTS (standard normal unless told), one batch of four heads, at most --queries queries, with the mask and without, scales of heads. relF is against attention in f64 of the inputs before they were quantised, each draw's divided by FA3 FP8's of the same codes.
--chosen: what the library chooses only, not every kernel. Prints the kernels whose mean is above --least, and what the library chooses.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), fa3-fwd, and a Hopper GPU.
"""
import argparse
import itertools
import json
import math
from pathlib import Path

import choices
import few_rows
import spread

H = spread.H


def rotated(torch, x, first):
    """Rotary positions, from `first` on, pairs of dimensions by 10,000^(-i / (D / 2))."""
    half = x.shape[3] // 2
    angle = torch.arange(first, first + x.shape[2], device=x.device)[:, None] * 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def along(torch, x):
    """From 0 to 1 along the sequence."""
    return torch.linspace(0, 1, x.shape[2], device=x.device)[:, None]


def sink(torch, q, k, v):
    """The first key takes a part of every query's weight that goes from little to nearly all; its value is small, as models make it."""
    u = torch.randn(1, H, 1, q.shape[3], device=q.device)
    u /= u.norm(dim=3, keepdim=True)
    k[:, :, :1] = u * math.sqrt(q.shape[3])
    v[:, :, :1] *= 0.05
    return q + u * (4 + 8 * torch.rand(1, H, q.shape[2], 1, device=q.device)), k, v


def local(torch, q, k, v):
    """Rotary positions with what all queries and all keys have in common: near keys weigh more."""
    u = torch.randn(1, H, 1, q.shape[3], device=q.device)
    return rotated(torch, q * 0.7 + u, k.shape[2] - q.shape[2]), rotated(torch, k * 0.7 + u, 0), v


def channels(torch, q, k, v):
    """A few channels are wider, of q twice, of k five times, and those of k away from 0."""
    wide = torch.zeros(1, 1, 1, q.shape[3], device=q.device)
    wide[..., ::29] = 1
    return q * (1 + wide), k * (1 + 4 * wide) + 8 * wide, v


# Of standard normal q, k and v, each (1, H, rows, D).
INPUTS = {
    "normal": lambda torch, q, k, v: (q, k, v),
    "uniform": lambda torch, q, k, v: tuple(2 * torch.rand_like(x) - 1 for x in (q, k, v)),
    "heavy": lambda torch, q, k, v: tuple(x * torch.exp(0.7 * torch.randn_like(x)) for x in (q, k, v)),
    "wide": lambda torch, q, k, v: (2.5 * q, k, v),
    "even": lambda torch, q, k, v: (0.6 * q, k, v),
    "narrow": lambda torch, q, k, v: (0.05 * q, k, v),
    "positive": lambda torch, q, k, v: (q.abs(), k.abs(), v.abs()),
    "sparse": lambda torch, q, k, v: tuple(x * (torch.rand_like(x) < 0.2) for x in (q, k, v)),
    "rising": lambda torch, q, k, v: (q, k * (0.3 + 2 * along(torch, k)), v),
    "falling": lambda torch, q, k, v: (q, k * (2.3 - 2 * along(torch, k)), v),
    "grown": lambda torch, q, k, v: (q, k, v * (0.1 + 2 * along(torch, v))),   # values, along the sequence
    "twins": lambda torch, q, k, v: (q, k[:, :, torch.arange(k.shape[2], device=k.device) // 16 * 16], v),   # sixteen equal keys each
    "sink": sink,
    "local": local,
    "channels": channels,
}


def draws(torch, seeds, queries, S, D, causal, inputs):
    """Codes, scales, and a function that gives an output's error over FA3 FP8's, of each draw."""
    from fa3_fwd_interface import flash_attn_func
    for seed in range(seeds):
        torch.manual_seed(100 + seed)
        x = INPUTS[inputs](torch, *(torch.randn(1, H, n, D, device="cuda") for n in (min(S, queries), S, S)))
        scales = [y.abs().amax(dim=(2, 3)) / 448 for y in x]
        codes = [(y / s[:, :, None, None]).to(torch.float8_e4m3fn) for y, s in zip(x, scales)]
        want = spread.attention(torch, *x, causal).double()
        off = lambda o: float((o.double() - want).norm() / want.norm())
        out = flash_attn_func(*[c.transpose(1, 2) for c in codes], causal=causal, q_descale=scales[0], k_descale=scales[1], v_descale=scales[2])
        peer = off((out[0] if isinstance(out, tuple) else out).transpose(1, 2))
        yield codes, scales, lambda o: off(o) / peer


def run(dims, lengths, queries, seeds, lse, kinds, chosen, least, out):
    import torch
    from warpsmith.attention import sdpa_fp8
    h, kernels = few_rows.heuristic()
    rows = []
    for D in dims:
        for S in lengths:
            for causal, inputs in itertools.product((False, True), kinds):
                every = {n: c for n, c in choices.candidates(h, h.Shape(1, H, H, min(S, queries), S, D, causal, lse=lse)).items() if choices.there(kernels, c) and (n == "chosen" or not chosen)}
                ratios = {n: [] for n in every}
                for codes, scales, over in draws(torch, seeds, queries, S, D, causal, inputs):
                    for n, c in every.items():
                        o = sdpa_fp8(*codes, *scales, causal=causal, return_lse=lse, _choice=lambda _: c)
                        ratios[n].append(over(o[0] if lse else o))
                for n, c in every.items():
                    rows.append({"D": D, "keys": S, "causal": causal, "inputs": inputs, "lse": lse, "name": n, "kernel": c.name, "mean": round(sum(ratios[n]) / seeds, 4), "most": round(max(ratios[n]), 4)})
                    if n == "chosen" or rows[-1]["mean"] >= least:
                        print(D, S, "causal" if causal else "full  ", inputs, rows[-1]["mean"], rows[-1]["most"], n, c.name, flush=True)
    if out:
        out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "queries": queries, "seeds": seeds, "rows": rows}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(x) for x in text.split(",") if x]
    parser.add_argument("--dims", type=numbers, default=[64, 128, 256])
    parser.add_argument("--keys", type=numbers, default=[128, 256, 512, 768, 1024, 2048, 4096])
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--lse", action="store_true")
    parser.add_argument("--inputs", type=lambda text: list(INPUTS) if text == "all" else text.split(","), default=["normal"], help="all, or some of " + ", ".join(INPUTS))
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("--least", type=float, default=1.01)
    parser.add_argument("--out", type=Path)
    o = parser.parse_args()
    if unknown := [n for n in o.inputs if n not in INPUTS]:
        parser.error(f"--inputs {','.join(unknown)}: not one of {', '.join(INPUTS)}")
    run(o.dims, o.keys, o.queries, o.seeds, o.lse, o.inputs, o.chosen, o.least, o.out)
