#!/usr/bin/env python3
"""Errors of every kernel that can run a call, held against FA3 FP8's: the means and the largest of several draws, as a single one is 0.2% off.

    errors.py [--dims 64,128,256] [--keys 128,256,512,768,1024,2048,4096] [--queries 512] [--seeds 12] [--lse] [--least 1.01] [--out FILE]

Standard normal inputs, one batch of four heads, at most --queries queries, with the mask and without, scales of heads. relF is against attention in f64 of the inputs before they were quantised, each draw's divided by FA3 FP8's of the same codes.
Prints the kernels whose mean is above --least, and what the library chooses.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), fa3-fwd, and a Hopper GPU.
"""
import argparse
import json
from pathlib import Path

import choices
import few_rows
import spread

H = spread.H


def draws(torch, seeds, queries, S, D, causal):
    """Codes, scales, and a function that gives an output's error over FA3 FP8's, of each draw."""
    from fa3_fwd_interface import flash_attn_func
    for seed in range(seeds):
        torch.manual_seed(100 + seed)
        x = [torch.randn(1, H, n, D, device="cuda") for n in (min(S, queries), S, S)]
        scales = [y.abs().amax(dim=(2, 3)) / 448 for y in x]
        codes = [(y / s[:, :, None, None]).to(torch.float8_e4m3fn) for y, s in zip(x, scales)]
        want = spread.attention(torch, *x, causal).double()
        off = lambda o: float((o.double() - want).norm() / want.norm())
        out = flash_attn_func(*[c.transpose(1, 2) for c in codes], causal=causal, q_descale=scales[0], k_descale=scales[1], v_descale=scales[2])
        peer = off((out[0] if isinstance(out, tuple) else out).transpose(1, 2))
        yield codes, scales, lambda o: off(o) / peer


def run(dims, lengths, queries, seeds, lse, least, out):
    import torch
    from warpsmith.attention import sdpa_fp8
    h, kernels = few_rows.heuristic()
    rows = []
    for D in dims:
        for S in lengths:
            for causal in (False, True):
                every = {n: c for n, c in choices.candidates(h, h.Shape(1, H, H, min(S, queries), S, D, causal, lse=lse)).items() if choices.there(kernels, c)}
                ratios = {n: [] for n in every}
                for codes, scales, over in draws(torch, seeds, queries, S, D, causal):
                    for n, c in every.items():
                        o = sdpa_fp8(*codes, *scales, causal=causal, return_lse=lse, _choice=lambda _: c)
                        ratios[n].append(over(o[0] if lse else o))
                for n, c in every.items():
                    rows.append({"D": D, "keys": S, "causal": causal, "lse": lse, "name": n, "kernel": c.name, "mean": round(sum(ratios[n]) / seeds, 4), "most": round(max(ratios[n]), 4)})
                    if n == "chosen" or rows[-1]["mean"] >= least:
                        print(D, S, "causal" if causal else "full  ", rows[-1]["mean"], rows[-1]["most"], n, c.name, flush=True)
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
    parser.add_argument("--least", type=float, default=1.01)
    parser.add_argument("--out", type=Path)
    o = parser.parse_args()
    run(o.dims, o.keys, o.queries, o.seeds, o.lse, o.least, o.out)
