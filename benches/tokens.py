#!/usr/bin/env python3
"""Random calls of sequences one behind another (`sdpa_fp8_varlen`): as chosen, over rows of V, over V^T that is made before, and FA3 FP8.

    tokens.py [--only KIND] [--groups 1,2,4,4,8,8,5,7] [--dims 64,128,128,256] [--lse] [--blocks] [--seconds 60] [--seed 1] [--out FILE]

Lengths are drawn evenly, log-normally, one long beside short ones, or alike; queries are as many as keys (`self`), the last up to 64 to 1,024 of each sequence (`chunk`), or of one or two sequences,
and one of each other (`mixed`). Microseconds a call by
CUDA-graph replay in random order, medians of 3. `off` is the norm of the difference to the output over rows of V over that of the latter. At D 256 groups of heads that are no power of two also by whole groups and by heads apart. --lse: with log-sum-exps (FA3 always makes them); --blocks: scales by block of 128 tokens (FA3 has them by head). Ends with geometric means by head dimension and kind.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU. FA3 FP8 is left out where fa3-fwd is not installed.
"""
import argparse
import contextlib
import json
import math
import random
import time
from pathlib import Path

from few_rows import graph, time_all


KINDS = "self", "chunk", "mixed"


def draw(rng, groups, dims):
    """(kind, query heads, key heads, head dimension, lengths of keys, of queries, causal, how lengths were drawn), or None where that is too small or too large."""
    D, group, Hkv = rng.choice(dims), rng.choice(groups), rng.choice([1, 2, 4, 8, 8, 16])
    B, most, how = int(2 ** rng.uniform(0, 6)), int(2 ** rng.uniform(8, 14)), rng.choice(["evenly", "log", "one long", "alike"])
    of = {"evenly": lambda: rng.randint(1, most), "log": lambda: int(most * 2 ** -rng.uniform(0, 5)), "one long": lambda: int(most * rng.uniform(0.03, 0.08)), "alike": lambda: most}[how]
    keys = [max(1, of()) for _ in range(B)]
    keys[rng.randrange(B)] = most
    kind = rng.choice(KINDS)
    queries = keys if kind == "self" else [min(n, rng.choice([64, 128, 256, 512, 1024])) for n in keys]
    if kind == "mixed":
        prompts = rng.sample(range(B), min(B, rng.choice([1, 1, 2])))
        queries = [n if b in prompts else 1 for b, n in enumerate(queries)]
    causal = rng.random() < 0.75 or kind == "mixed"
    flops = sum(4 * Hkv * group * D * q * (k - (q - 1) / 2 if causal else k) for q, k in zip(queries, keys))
    if not (1e8 if kind == "mixed" else 2e9) < flops < 6e11 or sum(keys) * Hkv * D > 3e8 or sum(queries) * Hkv * group * D > 2e8:
        return None
    return kind, Hkv * group, Hkv, D, keys, queries, causal, how


@contextlib.contextmanager
def over(w, made):
    """Within it calls run over V^T by so many consumers, over rows of V (0), or as chosen (None)."""
    h, ragged, real = w._heuristic, w._ragged, (w._heuristic.may_make, w._heuristic.made_ns)
    launcher, w._known.launcher, ragged._local.plans = w._known.launcher, None, {}
    if made == 0:
        h.may_make = lambda *_: False
    elif made:
        h.made_ns = lambda s, wgs, *_: -1 if wgs == made else 1 << 60
    try:
        with w._chosen.by_python():
            yield
    finally:
        (h.may_make, h.made_ns), w._known.launcher, ragged._local.plans = real, launcher, {}


@contextlib.contextmanager
def rows_of(w, apart, made=None):
    """Within it row tiles are of one query head each (True), over V^T or rows of V as in `over`, or of whole groups (False)."""
    h, t, ragged = w._heuristic, w._tokens, w._ragged
    real, ragged._local.recent = (h.heads_apart, h.caches_of, t.of_rows, t.APART_FROM), {}
    least = lambda f: lambda s, *a: (f(s, *a)[0] if s.shared == 1 else -2, f(s, *a)[1])
    if apart:
        h.heads_apart, t.APART_FROM = lambda s: h.replace(s, Hkv=s.Hq, shared=s.group), 0
        h.caches_of, t.of_rows = least(h.caches_of), least(t.of_rows)
    else:
        h.heads_apart = lambda _: None
    try:
        with over(w, made):
            yield
    finally:
        (h.heads_apart, h.caches_of, t.of_rows, t.APART_FROM), ragged._local.recent = real, {}


def measure(w, torch, fa3, call_of, lse=False, blocks=False):
    kind, Hq, Hkv, D, keys, queries, causal, how = call_of
    dev, E4, B = "cuda", torch.float8_e4m3fn, len(keys)
    codes = lambda n, H: (torch.randn(n, H, D, device=dev) / 4.5 * 448 / 4).clamp(-448, 448).to(E4)
    q, k, v = codes(sum(queries), Hq), codes(sum(keys), Hkv), codes(sum(keys), Hkv)
    scales = [torch.rand(B, H, *([-(-n // 128)] if blocks else []), device=dev) * 0.01 + 0.01 for H, n in zip((Hq, Hkv, Hkv), (max(queries), max(keys), max(keys)))]
    cu = [torch.tensor([sum(n[:i]) for i in range(B + 1)], dtype=torch.int32, device=dev) for n in (queries, keys)]
    most = max(queries), max(keys)
    ours = lambda: w.sdpa_fp8_varlen(q, k, v, *scales, *cu, *most, causal=causal, return_lse=lse)
    s = w._heuristic.Shape(B, Hq, Hkv, *most, D, causal, not blocks, lse=lse)
    ways = {"rows of V": 0, "chosen": None}
    if w._heuristic.may_make(s, w._heuristic.made_bytes(s, sum(keys))):
        ways |= {f"V^T by {n}": n for n in w._heuristic.FEW_MADE[D] if n == 3 or D == 256 or not causal}
    right, off, graphs, chosen = None, {}, {}, None
    within = {name: over(w, made) for name, made in ways.items()}
    if D == 256 and not w._heuristic.few_boxes(Hq // Hkv):
        within |= {"whole groups": rows_of(w, False), "heads apart": rows_of(w, True, 0)} | ({} if lse or blocks else {"heads apart over V^T": rows_of(w, True, 2)})
    for name, way in within.items():
        with way:
            out = ours()
            out = (out[0] if lse else out).float()
            right = out if right is None else right
            off[name] = round(float((out - right).norm() / right.norm()), 4)
            graphs[name] = graph(torch, [ours], 4)
            if name == "chosen":
                chosen = w._ragged._local.last.choice.name, w._ragged._local.last.choice.splits
    if fa3:
        of_heads = torch.full((B, Hkv), 0.015, device=dev)
        graphs["fa3"] = graph(torch, [lambda: fa3.flash_attn_varlen_func(q, k, v, *cu, *most, causal=causal, q_descale=of_heads, k_descale=of_heads, v_descale=of_heads)], 4)
    return dict(kind=kind, B=B, Hq=Hq, Hkv=Hkv, D=D, longest=most, tokens=(sum(queries), sum(keys)), causal=causal, lengths=how, kernel=chosen, off=off, us=time_all(torch, graphs, 4, 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--lse", action="store_true")
    parser.add_argument("--blocks", action="store_true")
    numbers = lambda x: [int(n) for n in x.split(",")]
    parser.add_argument("--groups", default="1,2,4,4,8,8,5,7", type=numbers)
    parser.add_argument("--dims", default="64,128,128,256", type=numbers)
    parser.add_argument("--out")
    args = parser.parse_args()
    import torch
    from warpsmith import attention as w
    try:
        import fa3_fwd_interface as fa3
    except ImportError:
        fa3 = None
    rng, rows, began = random.Random(args.seed), [], time.time()
    while time.time() - began < args.seconds:
        call = draw(rng, args.groups, args.dims)
        if call and args.only in (None, call[0]):
            rows.append(measure(w, torch, fa3, call, args.lse, args.blocks))
    if args.out:
        Path(args.out).write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "rows": rows}))
    mean = lambda x: math.exp(sum(map(math.log, x)) / len(x))
    for D in (64, 128, 256):
        for kind in KINDS:
            us = [r["us"] for r in rows if (r["D"], r["kind"]) == (D, kind)]
            if us:
                fastest = [min(t for n, t in x.items() if n not in ("fa3", "chosen")) for x in us]
                groups = [x for x in us if "whole groups" in x]
                line = f"D {D}, {kind}: {len(us)} calls; of the time over rows of V {mean([x['chosen'] / x['rows of V'] for x in us]):.3f}, of the fastest's {mean([x['chosen'] / f for x, f in zip(us, fastest)]):.3f}"
                if groups:
                    line += f"; {len(groups)} of groups that are no power of two: of whole groups' time {mean([x['chosen'] / x['whole groups'] for x in groups]):.3f}, of the fastest's {mean([x['chosen'] / min(t for n, t in x.items() if 'groups' in n or 'apart' in n) for x in groups]):.3f}"
                print(line + (f"; FA3 FP8 {mean([x['fa3'] / x['chosen'] for x in us]):.2f} times as long, faster in {sum(x['fa3'] < x['chosen'] for x in us)}" if fa3 else ""), flush=True)


if __name__ == "__main__":
    main()
