#!/usr/bin/env python3
"""Random prompts over caches (`decode_fp8` of many queries) of which sequences use parts that only the device knows: as chosen, over rows of V, over V^T that is made before, and FA3 FP8. Or --few: calls of at most 16 packed rows.

    caches.py [--few] [--groups 1,2,4,4,8,8] [--dims 64,128,256] [--seconds 60] [--seed 1] [--times 1,8] [--pages] [--out FILE]

Lengths are drawn evenly, log-normally, one long beside short ones, or alike. Each call comes with caches as large as its longest sequence, and so many times as large (--times). --pages: by pages of 64 keys in a random order. Microseconds a call by
CUDA-graph replay in random order, medians of 3; with --few a graph's calls take up to six caches in turn, where one is less than the L2 holds. `off` is the norm of the difference to the first output (over rows of V, or as chosen, of the smallest
caches) over that of the latter. Ends with geometric means by head dimension.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU. FA3 FP8 is left out where fa3-fwd is not installed, and with --pages, which its wheel has no kernels for.
"""
import argparse
import contextlib
import json
import math
import random
import time
from pathlib import Path

from few_rows import graph, time_all
from tokens import rows_of


def draw(rng, times, groups, dims):
    """(query heads, key heads, head dimension, queries, lengths, causal, how lengths were drawn), or None where that is too small or too large."""
    D, group, Hkv = rng.choice(dims), rng.choice(groups), rng.choice([1, 2, 4, 8, 8, 16])
    B, most, how = int(2 ** rng.uniform(0, 5.5)), 64 * int(2 ** rng.uniform(2, 8)), rng.choice(["evenly", "log", "one long", "alike"])
    of = {"evenly": lambda: rng.randint(1, most), "log": lambda: int(most * 2 ** -rng.uniform(0, 5)), "one long": lambda: int(most * rng.uniform(0.03, 0.08)), "alike": lambda: most}[how]
    keys = [max(1, of()) for _ in range(B)]
    keys[rng.randrange(B)] = most
    queries, causal = min(most, rng.choice([16, 32, 64, 128, 256, 512, 1024, 2048, 4096])), rng.random() < 0.75
    flops = sum(4 * Hkv * group * D * queries * max(1, k - queries / 2 if causal else k) for k in keys)
    if not 2e8 < flops < 4e11 or queries * group <= 16 or B * most * max(times) * Hkv * D > 1e9 or B * queries * Hkv * group * D > 2e8:
        return None
    return Hkv * group, Hkv, D, queries, keys, causal, how


def draw_few(rng, times, groups, dims):
    """The same of at most 16 packed rows, mostly one token."""
    D, group, Hkv, queries = rng.choice(dims), rng.choice(groups), rng.choice([1, 2, 4, 8, 8, 16]), rng.choice([1, 1, 1, 1, 2, 4])
    B, most, how = int(2 ** rng.uniform(0, 7)), 64 * int(2 ** rng.uniform(1, 8)), rng.choice(["evenly", "log", "one long", "alike"])
    of = {"evenly": lambda: rng.randint(1, most), "log": lambda: int(most * 2 ** -rng.uniform(0, 4)), "one long": lambda: int(most * rng.uniform(0.03, 0.15)), "alike": lambda: most}[how]
    keys = [max(queries, of()) for _ in range(B)]
    keys[rng.randrange(B)] = most
    if queries * group > 16 or B * most * max(times) * Hkv * D > 3e9 or sum(keys) * Hkv * D > 1.5e8:
        return None
    return Hkv * group, Hkv, D, queries, keys, queries > 1, how


@contextlib.contextmanager
def over(w, made):
    """Within it calls run over V^T (True), over rows of V (False), or as chosen (None)."""
    h, ragged, real = w._heuristic, w._ragged, (w._heuristic.may_make, w._heuristic.made_ns)
    launcher, w._known.launcher, ragged._local.plans, ragged._local.recent = w._known.launcher, None, {}, {}
    if made:
        h.made_ns = lambda *_: 1
    elif made is False:
        h.may_make = lambda *_: False
    try:
        with w._chosen.by_python():
            yield
    finally:
        (h.may_make, h.made_ns), w._known.launcher, ragged._local.plans = real, launcher, {}


def measure(w, torch, fa3, call_of, times, pages):
    Hq, Hkv, D, queries, keys, causal, how = call_of
    dev, E4, B, most = "cuda", torch.float8_e4m3fn, len(keys), max(keys)
    codes = lambda *shape: (torch.randn(*shape, D, device=dev, dtype=torch.float16) / 4.5 * 448 / 4).clamp(-448, 448).to(E4)
    q, k, v = codes(B, Hq, queries), *(codes(B, most * max(times), Hkv) for _ in "kv")
    few = queries * Hq // Hkv <= 16
    sets = [(k, v)] + [(torch.empty_like(k).copy_(k), torch.empty_like(v).copy_(v)) for _ in range(1, max(1, min(6, int(75e6 / (sum(keys) * Hkv * D)), int(4e9 / k.numel()))) if few else 1)]
    scales = [torch.rand(B, H, device=dev) * 0.01 + 0.01 for H in (Hq, Hkv, Hkv)]
    used = torch.tensor(keys, dtype=torch.int32, device=dev)
    table = torch.randperm(B * most * max(times) // 64, device=dev).to(torch.int32).view(B, -1) if pages else None
    tables = {n: table[:, :n * most // 64].contiguous() if pages else None for n in times}
    pool = lambda x: x.view(-1, 64, Hkv, D)
    right, off, graphs, chosen = None, {}, {}, {}
    for n in times:
        within = {} if few else {"rows of V": over(w, False), "V^T": over(w, True)}
        if not few and D == 256 and not w._heuristic.few_boxes(Hq // Hkv):
            within |= {"whole groups": rows_of(w, False), "heads apart": rows_of(w, True, 0), "heads apart over V^T": rows_of(w, True, 2)}
        for name, way in (within | {"chosen": over(w, None)}).items():
            ours = [lambda k=k, v=v: w.decode_fp8(q, *((pool(k), pool(v)) if pages else (k[:, :n * most], v[:, :n * most])), *scales, used, page_table=tables[n], causal=causal) for k, v in sets]
            with way:
                out = ours[0]().float()
                c = w._ragged._local.last.choice
                if name == "V^T" and not c.transposes:
                    continue
                right = out if right is None else right
                off[f"{name} {n}"] = round(float((out - right).norm() / right.norm()), 4)
                graphs[f"{name} {n}"] = graph(torch, ours, max(4, len(sets)))
                chosen[f"{name} {n}"] = c.name, c.tiles_per_worker, c.splits
    if fa3:
        of_heads, rows = torch.full((B, Hkv), 0.015, device=dev), q.view(torch.uint8).transpose(1, 2).contiguous().view(E4)
        graphs["fa3"] = graph(torch, [lambda k=k, v=v: fa3.flash_attn_with_kvcache(rows, k, v, cache_seqlens=used, causal=causal, q_descale=of_heads, k_descale=of_heads, v_descale=of_heads, num_splits=0) for k, v in sets], max(4, len(sets)))
    return dict(B=B, Hq=Hq, Hkv=Hkv, D=D, queries=queries, longest=most, keys=sum(keys), causal=causal, lengths=how, pages=pages, kernels=chosen, off=off, us=time_all(torch, graphs, max(4, len(sets)), 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", default="1,8", type=lambda x: [int(n) for n in x.split(",")])
    parser.add_argument("--pages", action="store_true")
    parser.add_argument("--groups", default="1,2,4,4,8,8", type=lambda x: [int(n) for n in x.split(",")])
    parser.add_argument("--dims", default="64,128,256", type=lambda x: [int(n) for n in x.split(",")])
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    import torch
    from warpsmith import attention as w
    try:
        import fa3_fwd_interface as fa3
    except ImportError:
        fa3 = None
    fa3 = None if args.pages else fa3
    rng, rows, began = random.Random(args.seed), [], time.time()
    while time.time() - began < args.seconds:
        call = (draw_few if args.few else draw)(rng, args.times, args.groups, args.dims)
        if call:
            rows.append(measure(w, torch, fa3, call, args.times, args.pages))
    if args.out:
        Path(args.out).write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "rows": rows}))
    mean = lambda x: math.exp(sum(map(math.log, x)) / len(x))
    first = args.times[0]
    for D in (64, 128, 256):
        us = [r["us"] for r in rows if r["D"] == D]
        for n in args.times:
            if us:
                line = f"D {D}, caches {n} times the longest: {len(us)} calls; of the time with {first} {mean([x[f'chosen {n}'] / x[f'chosen {first}'] for x in us]):.3f}"
                if not args.few:
                    line += f", of that over rows of V {mean([x[f'chosen {n}'] / x[f'rows of V {n}'] for x in us]):.3f}"
                print(line + (f"; FA3 FP8 {mean([x['fa3'] / x[f'chosen {n}'] for x in us]):.2f} times as long, faster in {sum(x['fa3'] < x[f'chosen {n}'] for x in us)}" if fa3 else ""), flush=True)


if __name__ == "__main__":
    main()
