#!/usr/bin/env python3
"""Both modes of `sdpa_fp8` and of `sdpa_fp8_packed` beside torch's SDPA in f16 and FA3 FP8, at head dimensions 128 and 256: times, and errors against attention in f64.

    modes.py [--times 4x16x4096x128,...] [--lengths 512,4096,16384,65536] [--rounds 7] [--out FILE]

Times: BxHxSxD, with and without the mask, microseconds a call by CUDA-graph replay in random order, medians, two sets of inputs; `packed` has K and V from pack_kv (scales by block), which is not timed. Errors: relF against the inputs before
they were quantised, one batch, four heads, at most 1,024 queries, scales of heads, by the kernels for many row tiles; normal inputs, queries six times as large (peaked), keys and values with an offset for each channel (shifted), one number in a thousand a hundred times as
large (outliers).

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU; FA3 FP8 is left out where fa3-fwd is not installed.
"""
import argparse
import dataclasses
import json
import math
from pathlib import Path

import few_rows
import spread

TIMES = "1x8x512x128,32x16x512x128,16x16x1024x128,8x16x2048x128,4x16x4096x128,1x16x16384x128,1x24x4608x128,1x12x32760x128,16x8x1024x256,8x8x2048x256,4x8x4096x256,1x8x16384x256"


def drawn(torch, dist, *shape):
    x = torch.randn(*shape, device="cuda")
    if dist == "outliers":
        x *= torch.where(torch.rand_like(x) < 1e-3, 100.0, 1.0)
    return x


def inputs(torch, dist, B, H, Sq, Sk, D):
    """q, k and v, their codes, and their scales."""
    q, k, v = (drawn(torch, dist, B, H, n, D) for n in (Sq, Sk, Sk))
    if dist == "peaked":
        q *= 6
    if dist == "shifted":
        k, v = (x + 4 * torch.randn(1, 1, 1, D, device="cuda") for x in (k, v))
    scales = [x.abs().amax(dim=(2, 3)) / 448 for x in (q, k, v)]
    return (q, k, v), [(x / s[:, :, None, None]).to(torch.float8_e4m3fn) for x, s in zip((q, k, v), scales)], scales


def fa3(torch):
    try:
        from fa3_fwd_interface import flash_attn_func
    except ImportError:
        return None

    def prepared(codes, scales, causal):
        t = [x.view(torch.uint8).transpose(1, 2).contiguous().view(torch.float8_e4m3fn) for x in codes]
        return lambda: flash_attn_func(*t, causal=causal, q_descale=scales[0], k_descale=scales[1], v_descale=scales[2])
    return prepared


def errors(torch, lengths):
    from warpsmith.attention import _heuristic as h, sdpa_fp8
    peer, of_mode = fa3(torch), {"default": False, "fast": True}
    for D in (128, 256):
        for dist in ("normal", "peaked", "shifted", "outliers"):
            for S in lengths:
                for causal in (False, True):
                    torch.manual_seed(1)
                    x, codes, scales = inputs(torch, dist, 1, spread.H, min(S, spread.SQ), S, D)
                    want = spread.attention(torch, *x, causal).double()
                    outs = {mode: sdpa_fp8(*codes, *scales, causal=causal, _choice=lambda s, fast=fast: h.choose_many(dataclasses.replace(s, fast=fast))) for mode, fast in of_mode.items()}
                    if peer:
                        out = peer(codes, scales, causal)()
                        outs["fa3"] = (out[0] if isinstance(out, tuple) else out).transpose(1, 2)
                    row = {"dist": dist, "keys": S, "D": D, "causal": causal, "relF": {n: round(float((o.double() - want).norm() / want.norm()), 5) for n, o in outs.items()}}
                    print(row, flush=True)
                    yield row


def times(torch, shapes, rounds):
    import torch.nn.functional as F
    from warpsmith.attention import pack_kv, sdpa_fp8, sdpa_fp8_packed
    peer = fa3(torch)
    for B, H, S, D in shapes:
        for causal in (False, True):
            sets = [inputs(torch, "normal", B, H, S, S, D) for _ in range(2)]
            halves = [[t.half() for t in x] for x, _, _ in sets]
            packed = [pack_kv(x[1].bfloat16(), x[2].bfloat16()) for x, _, _ in sets]
            impls = {mode: [lambda c=c, s=s, mode=mode: sdpa_fp8(*c, *s, causal=causal, mode=mode) for _, c, s in sets] for mode in ("default", "fast")}
            impls |= {f"packed {mode}": [lambda c=c, s=s, kv=kv, mode=mode: sdpa_fp8_packed(c[0], kv, s[0], causal=causal, mode=mode) for (_, c, s), kv in zip(sets, packed)] for mode in ("default", "fast")}
            impls["sdpa"] = [lambda x=x: F.scaled_dot_product_attention(*x, is_causal=causal) for x in halves]
            if peer:
                impls["fa3"] = [peer(c, s, causal) for _, c, s in sets]
            del sets
            reps = max(2, min(20, int(3e12 / (4 * B * H * S * S * D))))
            us = few_rows.time_all(torch, {n: few_rows.graph(torch, fns, reps) for n, fns in impls.items()}, reps, rounds)
            row = {"shape": f"{B}x{H}x{S}x{D}", "causal": causal, "us": us}
            print(row["shape"], "causal" if causal else "full  ", us, ", ".join(f"{n} / {mode} {us[n] / us[mode]:.2f}" for n in ("sdpa", "fa3") if n in us for mode in ("default", "fast")), flush=True)
            yield row


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def run(shapes, lengths, rounds, out):
    import torch
    found = {"gpu": torch.cuda.get_device_name(), "times": [], "errors": []}
    for part, rows in (("times", times(torch, shapes, rounds)), ("errors", errors(torch, lengths))):
        for row in rows:
            found[part].append(row)
            if out:
                out.write_text(json.dumps(found, indent=1))
    if found["times"]:
        print("of the default's time, geometric means:", {D: round(mean([r["us"]["fast"] / r["us"]["default"] for r in found["times"] if r["shape"].endswith(f"x{D}")]), 3) for D in (128, 256) if any(r["shape"].endswith(f"x{D}") for r in found["times"])})
    for dist in ("normal", "peaked", "shifted", "outliers"):
        rows = [r["relF"] for r in found["errors"] if r["dist"] == dist]
        if rows:
            x = [r["fast"] / r["default"] for r in rows]
            print(f"{dist}: relF of fast over default's {min(x):.3f} to {max(x):.3f}, {mean(x):.3f} in the geometric mean")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", default=TIMES)
    parser.add_argument("--lengths", default="512,4096,16384,65536")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    o = parser.parse_args()
    numbers = lambda text, by: [int(x) for x in text.split(by) if x]
    run([numbers(x, "x") for x in o.times.split(",") if x], numbers(o.lengths, ","), o.rounds, o.out)
