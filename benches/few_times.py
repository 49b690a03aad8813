#!/usr/bin/env python3
"""Times of few.cuh's kernels over random shapes, beside the library's choice, its kernel for many queries and FA3 FP8.

    few_times.py [--kind plain|lse|blocks] [--seconds 60] [--seed 1] [--out FILE]

Three of four shapes are those of grouped.py, the fourth has few rows over many keys. Each of few.cuh's kernels that can run it is timed for each number of consumers, with one CTA to a row
tile and with as many as it would choose; its output, and the log-sum-exp, are held against forward.cu's first. blocks: each block of 128 tokens has a scale of its own.
Microseconds a call by CUDA-graph replay in random order, medians. FA3 FP8 (plain, lse) is left out where fa3-fwd is not installed.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU.
"""
import argparse
import json
import math
import random
import time
from pathlib import Path

import few_rows
import grouped


def shapes(seed):
    rng, of_groups = random.Random(seed), grouped.shapes(seed)
    while True:
        if rng.random() < 0.75:
            shape = next(of_groups)
        else:
            D, g, Hkv = rng.choice([64, 128, 128, 256]), rng.choice([1, 4, 8, 16]), rng.choice([1, 2, 4, 8])
            shape = int(2 ** rng.uniform(0, 5)), Hkv * g, Hkv, max(1, int(2 ** rng.uniform(4.2, 8.5)) // g), int(2 ** rng.uniform(9, 15)), D, rng.random() < 0.4
        B, Hq, Hkv, Sq, Sk, D, _ = shape
        if B * Hkv * Sk * D < 2e8 and Hq // Hkv * Sq > 16:
            yield shape


def quantised(torch, h, x, blocks):
    """Codes and scales: of heads, or of blocks that differ by up to three."""
    if not blocks:
        scale = x.abs().amax(dim=(2, 3)) / 448
        return (x / scale[:, :, None, None]).to(torch.float8_e4m3fn), scale
    B, H, S, D = x.shape
    x = torch.nn.functional.pad(x, (0, 0, 0, -S % 128)).view(B, H, -1, 128, D)
    x = x * (0.5 + torch.rand(*x.shape[:3], 1, 1, device=x.device))
    scale = x.abs().amax(dim=(3, 4)) / 448
    return (x / scale[..., None, None]).view(B, H, -1, D)[:, :, :S].contiguous().to(torch.float8_e4m3fn), scale.contiguous()


def of_kernel(h, s, kernel, wgs, ways):
    """choose_few's, by this kernel."""
    every, h.few_kernels = h.few_kernels, lambda _: [kernel]
    try:
        return h.choose_few(s, wgs, ways)[1]
    finally:
        h.few_kernels = every


def run(kind, seconds, seed, out):
    import torch
    from warpsmith.attention import sdpa_fp8
    h, _ = few_rows.heuristic()
    try:
        from fa3_fwd_interface import flash_attn_func
    except ImportError:
        flash_attn_func = None
    blocks, lse = kind == "blocks", kind == "lse"
    rows, begin = [], time.time()
    for shape in shapes(seed):
        if time.time() - begin > seconds:
            break
        B, Hq, Hkv, Sq, Sk, D, causal = shape
        s = h.Shape(*shape, plain=not blocks, lse=lse)
        sets = [[quantised(torch, h, torch.randn(B, heads, n, D, device="cuda"), blocks) for heads, n in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk))] for _ in range(2)]
        call = lambda c: [lambda x=x: sdpa_fp8(*(t for t, _ in x), *(f for _, f in x), causal=causal, return_lse=lse, _choice=lambda _: c) for x in sets]
        chosen, many = h.choose(s), h.choose_many(s)
        impls = {"chosen": call(chosen), "many": call(many)}
        for kernel in h.few_kernels(s):
            for wgs in kernel[1][D]:
                for ways in sorted({1, of_kernel(h, s, kernel, wgs, None).tiles_per_worker}):
                    impls[f"{kernel[0]} {wgs} {ways}"] = call(of_kernel(h, s, kernel, wgs, ways))
        outputs = lambda f: f() if lse else (f(), None)
        want, want_lse = outputs(call(h.choose_forward(s))[0])   # whose weights are exact before they are rounded
        for name, (f, _) in impls.items():
            got, got_lse = outputs(f)
            off = float((got.float() - want.float()).norm() / want.float().norm())
            seen = torch.isfinite(want_lse) if lse else None
            if off > (0.1 if blocks else 0.06) or lse and (not torch.equal(torch.isfinite(got_lse), seen) or float((got_lse - want_lse)[seen].abs().amax()) > 0.02):
                raise SystemExit(f"{shape}: {name} is off by {off}, or its log-sum-exp is")
        if flash_attn_func and not blocks:
            impls["fa3"] = [lambda x=x: flash_attn_func(*(t.transpose(1, 2) for t, _ in x), causal=causal, q_descale=x[0][1].view(B, Hkv, -1)[:, :, 0].contiguous(), k_descale=x[1][1], v_descale=x[2][1])
                            for x in sets]
        rows.append({"shape": shape, "us": few_rows.time_all(torch, {n: few_rows.graph(torch, f, 4) for n, f in impls.items()}, 4, 5), "kernel": chosen.name})
        del sets, impls
        if len(rows) % 10 == 0:
            torch.cuda.empty_cache()
    if out:
        out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "kind": kind, "seed": seed, "rows": rows}))
    mean = lambda of: round(math.exp(sum(map(math.log, of)) / len(of)), 3) if of else None
    for D in (64, 128, 256):
        us = [r["us"] for r in rows if r["shape"][5] == D]
        best = lambda u: min(t for n, t in u.items() if n != "fa3")
        print(f"{kind} D {D}: {len(us)} shapes; many over chosen {mean([u['many'] / u['chosen'] for u in us])}, chosen over the fastest of all {mean([u['chosen'] / best(u) for u in us])}",
              *([f"FA3 FP8 over chosen {mean([u['fa3'] / u['chosen'] for u in us])}, least {min(u['fa3'] / u['chosen'] for u in us):.2f}, below 1 {sum(u['fa3'] < u['chosen'] for u in us)}"] if us and "fa3" in us[0] else []))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("plain", "lse", "blocks"), default="plain")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    run(a.kind, a.seconds, a.seed, a.out)
