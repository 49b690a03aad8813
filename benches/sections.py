#!/usr/bin/env python3
"""Causal attention by sections of heads: how many heads' row tiles come together, the longest first, as the library chooses it and otherwise, beside torch's SDPA in f16 and FA3 FP8.

    sections.py [--shapes 16x16x1024x128,...] [--sections 4,12,...] [--rounds 7] [--out FILE]

A shape is BxHxSxD or BxHq-HkvxSxD; a section is heads of K and V. Microseconds a call by CUDA-graph replay in random order, medians; inputs rotate. `busiest` is what the SM that has most to do has, over the mean (row
tiles that are drawn from a counter have no such list: 1). `same`: whether outputs have the bits of the chosen section's. FA3 FP8 is left out where fa3-fwd is not installed.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU.
"""
import argparse
import dataclasses
import json
from pathlib import Path

import few_rows

SHAPES = ("16x16x1024x128,32x16x512x128,16x32x1024x128,8x24x1400x128,16x16x1500x128,8x16x2048x128,8x32x2048x128,4x16x4096x128,4x32x4096x128,2x64x4096x128,4x40-8x3000x128,8x32-8x4096x128,"
          "32x8x512x256,16x16x700x256,32x8x777x256,16x8x1024x256,8x16x1245x256,8x16x2048x256,4x16x2048x256,8x16x3072x256,4x32x3500x256,4x8x4096x256,8x16x4096x256,2x32x8192x256,"
          "16x16x1024x64,8x32x2048x64,4x16x4096x64,4x32x4096x64")


def parse(text):
    B, heads, S, D = text.split("x")
    Hq, _, Hkv = heads.partition("-")
    return int(B), int(Hq), int(Hkv or Hq), int(S), int(D)


def run(shapes, sections, rounds, out):
    import torch
    import torch.nn.functional as F
    from warpsmith.attention import _heuristic as h, sdpa_fp8
    try:
        from fa3_fwd_interface import flash_attn_func
    except ImportError:
        flash_attn_func = None
    e4m3, rows = torch.float8_e4m3fn, []
    for B, Hq, Hkv, S, D in shapes:
        g = torch.Generator("cuda").manual_seed(5)
        sets = []
        for _ in range(max(1, min(3, int(3e8 / (3 * B * Hq * S * D))))):
            x = [torch.randn(B, n, S, D, device="cuda", generator=g) for n in (Hq, Hkv, Hkv)]
            scales = [t.abs().amax(dim=(2, 3)) / 448 for t in x]
            sets.append(([(t / s[:, :, None, None]).to(e4m3) for t, s in zip(x, scales)], scales, [t.half() for t in x]))
            del x
        chosen = h.choose(h.Shape(B, Hq, Hkv, S, S, D, True))
        ours = lambda c: [lambda t=t, s=s: sdpa_fp8(*t, *s, causal=True, _choice=lambda _: c) for t, s, _ in sets]
        choices = {"chosen": chosen}
        for n in sections + [B * Hkv]:
            if n <= B * Hkv and n * (Hq // Hkv) != chosen.section:
                choices[str(n)] = dataclasses.replace(chosen, section=n * (Hq // Hkv))
        wgs = dict(chosen.defines)["WS_WGS"]
        lengths = h.lengths_of(h.Shape(B, Hq, Hkv, S, S, D, True), wgs)
        even = sum(2 * n + 3 for n in lengths) * B * Hq / h.SMS
        drawn = ("WS_DRAWN", 1) in chosen.defines
        row = {"B": B, "Hq": Hq, "Hkv": Hkv, "S": S, "D": D, "kernel": chosen.name, "section": chosen.section // (Hq // Hkv), "us": {}, "same": {},
               "busiest": {n: 1 if drawn else round(h.shared_out(lengths, B * Hq, c.section, h.SMS, 2, 3) / even, 3) for n, c in choices.items()}}
        right = ours(chosen)[0]()
        row["same"] = {n: bool((ours(c)[0]() == right).all()) for n, c in choices.items()}
        impls = {n: ours(c) for n, c in choices.items()}
        impls["sdpa"] = [lambda x=x: F.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=Hq != Hkv) for _, _, x in sets]
        if flash_attn_func:
            laid = [([x.view(torch.uint8).transpose(1, 2).contiguous().view(e4m3) for x in t], s[0].view(B, Hkv, -1)[:, :, 0].contiguous(), s) for t, s, _ in sets]
            impls["fa3"] = [lambda t=t, d=d, s=s: flash_attn_func(*t, causal=True, q_descale=d, k_descale=s[1], v_descale=s[2]) for t, d, s in laid]
        reps = max(len(sets), 4)
        row["us"] = few_rows.time_all(torch, {n: few_rows.graph(torch, f, reps) for n, f in impls.items()}, reps, rounds)
        rows.append(row)
        print("%dx%d-%dx%dx%d section %d: %s | %s | busiest %s | same %s" % (B, Hq, Hkv, S, D, row["section"], row["us"], row["kernel"], row["busiest"], all(row["same"].values())), flush=True)
        if out:
            Path(out).write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "rows": rows}, indent=1))
        del sets, impls
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--sections", default="4,12,24,32,64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    args = parser.parse_args()
    run([parse(x) for x in args.shapes.split(",")], [int(x) for x in args.sections.split(",") if x], args.rounds, args.out)


if __name__ == "__main__":
    main()
