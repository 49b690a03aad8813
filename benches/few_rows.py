#!/usr/bin/env python3
"""Few rows of queries over many keys: few.cuh beside what the library would run without it, torch's SDPA in f16 and FA3 FP8; and which one it chooses.

    few_rows.py [--shapes 1x8-1x512x32768x128,...] [--splits 1,2,4] [--out FILE]
    few_rows.py --compile             # only compiles what the shapes need, into $WARPSMITH_CACHE: wants no GPU

A shape is BxHq-HkvxSqxSkxD; each runs with the causal mask and without. Microseconds a call by CUDA-graph replay in random order, medians; inputs rotate through 600 MB where they are
small. Before it is timed an output is held against the library's own: `off` is the norm of the difference over that of the latter. FA3 FP8 runs by flash_attn_with_kvcache, which shares
out keys as it thinks best, and is left out where fa3-fwd is not installed.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU but for --compile.
"""
import argparse
import importlib
import json
import random
import statistics
import sys
import types
from pathlib import Path

SHAPES = ("16x32-8x16x8192x128,16x32-8x8x8192x128,64x32-8x8x4096x128,8x32-8x16x4096x128,8x32-8x32x4096x128,8x32-8x64x4096x128,1x32-8x64x16384x128,1x32-8x128x16384x128,1x8-1x512x32768x128,"
          "1x8-1x128x32768x128,1x8-8x512x16384x128,1x16-16x256x16384x128,4x8-1x256x8192x128,2x4-4x512x8192x128,1x8-8x1024x8192x128,"
          "16x16-2x8x8192x256,1x8-1x256x16384x256,4x8-8x32x8192x256,8x64-8x8x8192x64,1x16-16x64x4096x64,8x16-16x20x4096x64,1x8-1x512x32768x64,1x8-8x512x16384x64")


def parse(text):
    B, heads, Sq, Sk, D = text.split("x")
    Hq, Hkv = heads.split("-")
    return int(B), int(Hq), int(Hkv), int(Sq), int(Sk), int(D)


def heuristic():
    """The library's; without a GPU its module alone, as the package wants torch's CUDA."""
    try:
        return importlib.import_module("warpsmith.attention._heuristic"), importlib.import_module("warpsmith.attention._kernels")
    except ImportError:
        folder = Path(__file__).resolve().parents[1] / "python" / "warpsmith" / "attention"
        package = types.ModuleType("few_rows_package")
        package.__path__ = [str(folder)]
        sys.modules["few_rows_package"] = package
        return importlib.import_module("few_rows_package._heuristic"), importlib.import_module("few_rows_package._kernels")


def without(h, s):
    """What the heuristic would give if there was no few.cuh."""
    fits, h.few_fits = h.few_fits, lambda _: False
    try:
        return h.choose(s)
    finally:
        h.few_fits = fits


def instances(h, shapes):
    for B, Hq, Hkv, Sq, Sk, D in shapes:
        for causal in (False, True):
            s = h.Shape(B, Hq, Hkv, Sq, Sk, D, causal, plain=True, packed=False, lse=False, wide=False)
            for n in h.FEW[D]:
                yield h.choose_few(s, n)[1]
            for c in (h.choose(s), without(h, s)):
                yield c
                if c.transposes:
                    yield h.transposition(s, c)


def compile_all(shapes):
    h, kernels = heuristic()
    seen = set()
    for c in instances(h, shapes):
        if c.file != "transpose":
            c = c.with_output(0)
        if c.name not in seen:
            seen.add(c.name)
            print(c.name, len(kernels.cubin(c)), flush=True)


def graph(torch, fns, reps):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for f in fns:
            f()
            f()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for i in range(reps):
            fns[i % len(fns)]()
    return g


def time_all(torch, graphs, reps, rounds):
    us = {n: [] for n in graphs}
    for _ in range(rounds):
        for n in random.sample(list(graphs), len(graphs)):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            graphs[n].replay()
            begin.record()
            graphs[n].replay()
            end.record()
            end.synchronize()
            us[n].append(begin.elapsed_time(end) * 1e3 / reps)
    return {n: round(statistics.median(t), 2) for n, t in us.items()}


def run(shapes, splits, rounds, out):
    import torch
    import torch.nn.functional as F
    from torch.nn.attention.bias import causal_lower_right
    from warpsmith.attention import sdpa_fp8
    h, _ = heuristic()
    try:
        from fa3_fwd_interface import flash_attn_with_kvcache
    except ImportError:
        flash_attn_with_kvcache = None
    e4m3, rows = torch.float8_e4m3fn, []
    for B, Hq, Hkv, Sq, Sk, D in shapes:
        for causal in (False, True):
            g = torch.Generator("cuda").manual_seed(5)
            draw = lambda H, S: torch.randn(B, H, S, D, device="cuda", generator=g)
            size = 2 * B * Hkv * Sk * D
            sets = []
            for _ in range(max(1, min(6, int(6e8 / (3 * size))))):
                x = draw(Hq, Sq), draw(Hkv, Sk), draw(Hkv, Sk)
                scales = [t.abs().amax(dim=(2, 3)) / 448 for t in x]
                scales[0] = scales[0].view(B, Hkv, -1).amax(2, keepdim=True).expand(B, Hkv, Hq // Hkv).reshape(B, Hq).contiguous()   # FA3 has one for a group
                sets.append(([(t / s[:, :, None, None]).to(e4m3) for t, s in zip(x, scales)], scales, [t.half() for t in x]))
            ours = lambda choice: [lambda t=t, s=s: sdpa_fp8(*t, *s, causal=causal, _choice=choice) for t, s, _ in sets]
            x = h.Shape(B, Hq, Hkv, Sq, Sk, D, causal)
            choices = {"chosen": h.choose(x), "few": h.choose_few(x)[1], "without": without(h, x)}
            distinct = [n for i, n in enumerate(choices) if choices[n] not in list(choices.values())[:i]]
            impls = {n: ours(None if n == "chosen" else lambda _, c=choices[n]: c) for n in distinct}
            for n in h.FEW[D]:
                for w in splits:
                    impls["few %d consumers, %d ways" % (n, w)] = ours(lambda x, n=n, w=w: h.choose_few(x, n, w)[1])
            mask = causal_lower_right(Sq, Sk) if causal else None
            impls["sdpa"] = [lambda x=x: F.scaled_dot_product_attention(*x, attn_mask=mask, enable_gqa=Hq != Hkv) for _, _, x in sets]
            if flash_attn_with_kvcache:
                laid = [([x.view(torch.uint8).transpose(1, 2).contiguous().view(e4m3) for x in t], s[0].view(B, Hkv, -1)[:, :, 0].contiguous(), s) for t, s, _ in sets]
                impls["fa3"] = [lambda t=t, d=d, s=s: flash_attn_with_kvcache(*t, causal=causal, q_descale=d, k_descale=s[1], v_descale=s[2], num_splits=0) for t, d, s in laid]
            right = impls["without" if "without" in impls else "chosen"][0]().float()
            row = {"B": B, "Hq": Hq, "Hkv": Hkv, "Sq": Sq, "Sk": Sk, "D": D, "mask": "causal" if causal else "full", "off": {}, "us": {}}
            graphs, reps = {}, max(len(sets), 12)
            for name, fns in impls.items():
                try:
                    if name.startswith("few"):
                        row["off"][name] = float((fns[0]().float() - right).norm() / right.norm())
                    graphs[name] = graph(torch, fns, reps)
                except Exception as e:   # a peer that refuses a shape is no reason to end
                    row["off"][name] = str(e).splitlines()[0][:120]
                    torch.cuda.synchronize()
            row["us"] = time_all(torch, graphs, reps, rounds)
            ns, one = h.choose_few(x)
            row["few"] = "%s, %d ways, %.1f us expected" % (one.name, one.tiles_per_worker, ns / 1e3)
            row["chosen"], row["without"] = choices["chosen"].name, choices["without"].name
            rows.append(row)
            print("%dx%d-%dx%dx%dx%d %s: %s | %s | %s | %s" % (B, Hq, Hkv, Sq, Sk, D, row["mask"], row["us"], row["chosen"], row["few"], row["off"]), flush=True)
            if out:
                Path(out).write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "rows": rows}, indent=1))
            del graphs, sets, impls
            torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--splits", default="", help="also these numbers of CTAs to a row tile")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    shapes = [parse(x) for x in args.shapes.split(",")]
    if args.compile:
        compile_all(shapes)
    else:
        run(shapes, [int(x) for x in args.splits.split(",") if x], args.rounds, args.out)


if __name__ == "__main__":
    main()
