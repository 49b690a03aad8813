#!/usr/bin/env python3
"""Few rows of queries over many keys: few.cuh beside what the library runs today, torch's SDPA in f16 and FA3 FP8.

    few_rows.py [--shapes 1x8-1x512x32768x128,...] [--splits 1,2,4] [--out FILE]
    few_rows.py --compile             # only compiles what the shapes need, into $WARPSMITH_CACHE: wants no GPU

A shape is BxHq-HkvxSqxSkxD; each runs with the causal mask and without. Microseconds a call by CUDA-graph replay in random order, medians; inputs rotate through 600 MB where they are
small. Before it is timed an output is held against the library's own: `off` is the norm of the difference over that of the latter. FA3 FP8 runs by flash_attn_with_kvcache, which shares
out keys as it thinks best, and is left out where fa3-fwd is not installed.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU but for --compile.
"""
import argparse
import dataclasses
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


# Of a kernel's consumers: cycles of a tile of 128 keys and of a row tile's start and end, as many_ns of _heuristic.py has them; and of adding: fixed, and for each CTA of a row tile.
CYCLES = {256: {1: (1800, 3000), 2: (3110, 4000)}, 128: {2: (1600, 2600), 3: (2230, 3260)}, 64: {2: (1342, 0), 4: (2055, 0)}}
ADDING = (3000, 600)
BYTES = 18.0   # of K and V in a cycle that an SM gets from memory, where all ask


def few(h, s, wgs=None, splits=None, sms=132):
    """A Choice with WS_FEW, by estimated cycles, whose estimate nothing has measured yet."""
    rows, tiles = s.group * s.Sq, h.ceil_div(s.Sk, 128)
    step = 2 if s.D == 128 and s.plain and not s.causal else 1

    def cycles(n, ways):
        units = s.B * s.Hkv * h.ceil_div(rows, 64 * n)
        of_keys, of_rows = CYCLES[s.D][n]
        of_keys = max(of_keys if rows > 64 * (n - 1) else of_keys * 3 // 4, 2 * 128 * s.D / BYTES)
        share = h.ceil_div(h.ceil_div(tiles, step), ways) * step
        return h.ceil_div(units * ways, sms) * (of_keys * share + of_rows) + (ADDING[0] + ADDING[1] * ways if ways > 1 else 0)

    found = [(cycles(n, w), w, n) for n in ([wgs] if wgs else CYCLES[s.D]) for w in ([splits] if splits else range(1, min(33, tiles // 4 + 2)))]
    _, ways, n = min(found)
    row_tiles = h.ceil_div(rows, 64 * n)
    units = s.B * s.Hkv * row_tiles
    defines = [("WS_D", s.D), ("WS_WGS", n), ("WS_CAUSAL", int(s.causal))] + ([] if s.plain else [("WS_BLOCKS", 1)]) + [("WS_FEW", 1)]
    file, shared = ("forward_f16", h.forward_f16_shared(n)) if s.D == 64 else ("forward_e4m3", h.forward_e4m3_shared(n, not s.plain))
    if s.D == 256:   # one slot of Q, two of K, three of V less a consumer's, two of V^T with ones
        shared = 64 * n * 256 + (5 - n) * 128 * 256 + 2 * (128 * 256 + 1024) + 256 + 32
    words = s.D // 2 + (6 if s.D == 64 else 4)
    return h.Choice(file, tuple(defines), (min(units * ways, sms), 1, 1), (n + 1) * 128, shared, tiles_per_worker=ways, row_tiles=row_tiles, boxes=(64, 128),
                    partial_floats=units * ways * words * 128 * n if ways > 1 else 0, units=units * 4 * n if ways > 1 else 0)


def instances(h, shapes):
    for B, Hq, Hkv, Sq, Sk, D in shapes:
        for causal in (False, True):
            s = h.Shape(B, Hq, Hkv, Sq, Sk, D, causal, plain=True, packed=False, lse=False, wide=False)
            for n in CYCLES[D]:
                yield few(h, s, n)
            yield h.choose(s)
            if h.choose(s).transposes:
                made = h.transposition(s)
                yield made[0] if isinstance(made, tuple) else made


def compile_all(shapes):
    h, kernels = heuristic()
    seen = set()
    for c in instances(h, shapes):
        if c.file != "transpose":
            c = dataclasses.replace(c, defines=c.defines + (("WS_OUT", 0),)) if dataclasses.is_dataclass(c) else c._replace(defines=c.defines + (("WS_OUT", 0),))
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
            shape = lambda x: few(h, x)
            impls = {"ships": ours(None), "few": ours(shape)}
            for n in CYCLES[D]:
                for w in splits:
                    impls["few %d consumers, %d ways" % (n, w)] = ours(lambda x, n=n, w=w: few(h, x, n, w))
            mask = causal_lower_right(Sq, Sk) if causal else None
            impls["sdpa"] = [lambda x=x: F.scaled_dot_product_attention(*x, attn_mask=mask, enable_gqa=Hq != Hkv) for _, _, x in sets]
            if flash_attn_with_kvcache:
                laid = [([x.view(torch.uint8).transpose(1, 2).contiguous().view(e4m3) for x in t], s[0].view(B, Hkv, -1)[:, :, 0].contiguous(), s) for t, s, _ in sets]
                impls["fa3"] = [lambda t=t, d=d, s=s: flash_attn_with_kvcache(*t, causal=causal, q_descale=d, k_descale=s[1], v_descale=s[2], num_splits=0) for t, d, s in laid]
            right = impls["ships"][0]().float()
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
            one = few(h, h.Shape(B, Hq, Hkv, Sq, Sk, D, causal, plain=True, packed=False, lse=False, wide=False))
            row["few"] = "%s, %d ways" % (one.name, one.tiles_per_worker)
            rows.append(row)
            print("%dx%d-%dx%dx%dx%d %s: %s | %s | %s" % (B, Hq, Hkv, Sq, Sk, D, row["mask"], row["us"], row["few"], row["off"]), flush=True)
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
