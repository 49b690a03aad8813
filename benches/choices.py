#!/usr/bin/env python3
"""The library's choice beside every kernel, number of consumers and layout of V that can run a call: where it is not the fastest.

    choices.py [--models | --shapes 1x32-8x4096x4096x128c,...] [--only qwen,prompt] [--kind plain|lse|blocks|fast|fast-blocks] [--seconds 60] [--seed 1] [--rounds 5] [--rows N] [--out FILE]
    choices.py --report FILE [--least 1.04]   # of a file: calls whose choice took so many times as long as the fastest, and by whom; wants no GPU
    choices.py --fit FILE             # how far off the times of _heuristic.py are, table by table, and what fits a journal of benches/results best: wants numpy and scipy, no GPU

Shapes are random ones (of many kinds), with --models the calls of models.py, or those that are named, BxHq-HkvxSqxSkxD with a c behind a causal one. Microseconds a call by CUDA-graph replay in random order, medians. Instances that the package does not carry are left out. Each candidate's output is
held against the choice's first (`off`, the norm of the difference over that of the latter).

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU but for --report and --fit.
"""
import argparse
import dataclasses
import functools
import json
import math
import os
import random
import re
import time
from pathlib import Path

import few_rows
import few_times
import models


def shapes(seed):
    """(B, Hq, Hkv, Sq, Sk, D, causal), without end: prompts, pieces of prompts, few queries, other lengths."""
    rng = random.Random(seed)
    while True:
        D, group, Hkv = rng.choice([64, 128, 128, 256]), rng.choice([1, 1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16]), rng.choice([1, 2, 4, 8, 8, 10, 16])
        kind, B = rng.random(), int(2 ** rng.uniform(0, 6))
        Sk = int(2 ** rng.uniform(5.5, 13.5))
        Sq = Sk if kind < 0.5 else max(1, int(2 ** rng.uniform(0, 5))) if kind < 0.75 else min(Sk, int(2 ** rng.uniform(5, 11))) if kind < 0.9 else int(2 ** rng.uniform(4, 12))
        if B * Hkv * group * Sq * Sk * D * 4 <= 3e11 and B * Hkv * Sk * D <= 3e8 and B * Hkv * group * Sq * D <= 2e8:
            yield B, Hkv * group, Hkv, Sq, Sk, D, Sq > 1 and rng.random() < (0.7 if kind < 0.5 else 0.5)


def candidates(h, s):
    """Name and choice of all that can run it."""
    found, rows = {"chosen": h.choose(s)}, s.group * s.Sq

    def add(name, c):
        if c is not None and all(c != x for x in found.values()) and c.shared_bytes <= 232448:
            found[name] = c
    if s.plain:
        for c in h.tiny_choices(s):
            defines = dict(c.defines)
            add(f"tiny {defines['WS_KEYS']} keys {defines['WS_WGS']}", c)
    if rows <= 256:
        for n in (8, 16, 32):
            if (s.D, n) in h.DECODE_NS and (n > 8 or rows <= 8):
                add(f"decode {n}", h.choose_decode(s, of_rows=n))
                units, stretch = s.B * s.Hkv * h.ceil_div(rows, n), h.DECODE[s.D][0] * h.DECODE[s.D][1]   # a tile for each warp
                for team in sorted({1, 2, 3, 4, 6, 8, 12, 16, max(1, h.SMS // units), max(1, h.SMS // units // 2)}):
                    if team <= h.ceil_div(s.Sk, stretch):
                        add(f"decode {n} team {team}", h.choose_decode(s, of_rows=n, team=team))
    if rows <= 64:
        add("split", h.choose_split(s))
    if h.few_fits(s):
        for kernel in h.few_kernels(s):
            for wgs in kernel[1][s.D]:
                def few(ways=None, kernel=kernel, wgs=wgs):
                    every, h.few_kernels = h.few_kernels, lambda _: [kernel]
                    try:
                        return h.choose_few(s, wgs, ways)[1]
                    finally:
                        h.few_kernels = every
                best = few()
                add(f"few {kernel[0]} {wgs}", best)
                for ways in sorted({1, best.tiles_per_worker // 2, 2 * best.tiles_per_worker}):
                    if 0 < ways and 128 * ways <= s.Sk:
                        add(f"few {kernel[0]} {wgs} {ways} ways", few(ways))
    if rows > 16:
        for file, wgs, made, by_one in h.many_kernels(s):
            c = h.choose_forward_f16(s, wgs) if file == "forward_f16" else h.choose_forward_e4m3(s, wgs, made, by_one=by_one) if file == "forward_e4m3" else h.choose_forward(s, wgs, made)
            add(f"{file} {wgs}{' V^T' if made else ''}{' by one' if by_one else ''}", c)
    if s.fast:
        add("by default", h.choose(dataclasses.replace(s, fast=False)))
    return found


def there(kernels, c):
    c = c.with_output(0)
    folder = os.environ.get("WARPSMITH_CUBINS")
    return bool(folder and (Path(folder) / f"{c.name}.cubin").exists()) or kernels._embedded is None or kernels._embedded("sm_90a", c.name) is not None


def run(of_models, named, only, kind, seconds, seed, rounds, most_rows, out):
    import torch
    from warpsmith.attention import _heuristic as h, _kernels as kernels, sdpa_fp8
    rows, begin, lse = [], time.time(), kind == "lse"
    every = [(name, (B, Hq, Hkv, Sq, Sk, D, causal)) for name, (Hq, Hkv, D, B, Sq, Sk, causal) in models.calls()] if of_models else (("", shape) for shape in named or shapes(seed))
    for name, shape in every:
        if only and not any(x in name.lower() for x in only):
            continue
        if time.time() - begin > seconds:
            break
        B, Hq, Hkv, Sq, Sk, D, causal = shape
        if most_rows and Hq // Hkv * Sq > most_rows:
            continue
        s = h.Shape(*shape, plain=not kind.endswith("blocks"), lse=lse, fast=kind.startswith("fast"))
        found = {n: c for n, c in candidates(h, s).items() if there(kernels, c)}
        sets = []
        for _ in range(2):
            x = [few_times.quantised(torch, h, torch.randn(B, heads, n, D, device="cuda"), kind.endswith("blocks")) for heads, n in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk))]
            sets.append(([t for t, _ in x], [f for _, f in x]))
        call = lambda c: [lambda t=t, f=f: sdpa_fp8(*t, *f, causal=causal, return_lse=lse, _choice=lambda _: c) for t, f in sets]
        first = lambda x: (x[0] if lse else x).float()
        reps = 12 if B * Hkv * Sk * D < 1 << 24 else 4
        row = {"name": name, "shape": f"{B}x{Hq}-{Hkv}x{Sq}x{Sk}x{D}", "causal": causal, "kind": kind, "kernels": {n: [c.name, c.tiles_per_worker, c.total_tiles, c.grid, c.transposes] for n, c in found.items()}, "off": {}}
        graphs, right = {}, None
        for n, c in found.items():
            fns = call(c)
            try:
                given = first(fns[0]())
                right = given if right is None else right
                row["off"][n] = round(float((given - right).norm() / right.norm()), 4)
                graphs[n] = few_rows.graph(torch, fns, reps)
            except Exception as e:
                row["off"][n] = str(e).splitlines()[0][:100]
                torch.cuda.synchronize()
        row["us"] = few_rows.time_all(torch, graphs, reps, rounds)
        rows.append(row)
        del graphs, sets, right
        if len(rows) % 20 == 0:
            torch.cuda.empty_cache()
            if out:
                out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "seed": seed, "rows": rows}, indent=1))
    if out:
        out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "seed": seed, "rows": rows}, indent=1))
    report(rows, 1.06)


def report(rows, least):
    regret = lambda r: r["us"]["chosen"] / min(r["us"].values())
    for r in sorted(rows, key=regret):
        if regret(r) >= least:
            best = sorted((t, n) for n, t in r["us"].items() if n != "chosen")[:2]
            print(f"{regret(r):.2f} {r['name']:34} {r['shape']:24} {'causal' if r['causal'] else 'full  '} {r['us']['chosen']} {r['kernels']['chosen'][0]} | {', '.join(f'{n} {t}' for t, n in best)}")
        for n, off in r["off"].items():
            if not isinstance(off, float) or off > 0.05:
                print(f"off {off} {r['shape']} {r['causal']} {n}")
    logs = [math.log(regret(r)) for r in rows]
    print(f"{len(rows)} calls: the choice takes {math.exp(sum(logs) / len(logs)):.4f} of the fastest in the geometric mean")


def of_journal(h, path):
    """(shape, kernel's file, its defines, CTAs that share keys, us) of every launch of a journal."""
    data = json.loads(path.read_text())
    names = []
    for name in data["kernels"]:
        file = next(f for f in ("forward_e4m3", "forward_f16", "forward", "decode", "tiny", "split") if name.startswith(f + "_"))
        names.append((file, {k.upper(): int(v) for k, v in re.findall(r"_([a-z]+)(\d+)", name[len(file):])}))
    for shape, causal, kind, times in data["every"] + data["pairs"]:
        B, heads, Sq, Sk, D = shape.split("x")
        s = h.Shape(int(B), *map(int, heads.split("-")), int(Sq), int(Sk), int(D), bool(causal), plain=not kind.endswith("blocks"), lse=kind == "lse", fast=kind.startswith("fast"))
        for i, ways, us in times:
            yield s, *names[i], ways, us


def time_of(h, s, file, defines, ways):
    """The table that a launch's time is of, its key, and a function that gives it, ns."""
    if file == "tiny":
        c = h.choose_tiny(s, defines["KEYS"], defines["WGS"])
        return "TINY", (s.D, defines["KEYS"], defines["WGS"]), lambda: h.tiny_ns(s, c)
    if file == "decode":
        c = h.choose_decode(s, of_rows=defines["ROWS"], team=ways)
        return "DECODE_NS", (s.D, defines["ROWS"]), lambda: h.decode_ns(s, c)
    if "FEW" in defines:
        table = "FEW_BLOCKS" if not s.plain else "FEW_EXACT" if file == "forward" else "FEW"
        if "FAST" in defines:
            table += "_FAST"
        elif s.fast:
            return None
        return table, (s.D, defines["WGS"]), lambda: h.few_ns(s, defines["WGS"], ways, h.SMS, (file, getattr(h, table)))
    made = "PACKED" in defines
    by_one = file == "forward_e4m3" and bool(defines.get("BLOCKS", made)) or file == "forward" and s.D != 128 and not s.plain
    if s.fast:   # others are as they are without
        return ("MANY_FAST", (s.D, defines["WGS"], made, by_one, s.causal), lambda: h.many_ns(s, file, defines["WGS"], made, by_one)) if "FAST" in defines else None
    if file == "split" or (file, s.D, defines["WGS"], made, by_one) not in h.MANY:
        return None
    return "MANY", (file, s.D, defines["WGS"], made, by_one, s.causal), lambda: h.many_ns(s, file, defines["WGS"], made, by_one)


def fit(path):
    import numpy
    from scipy.optimize import least_squares
    h, _ = few_rows.heuristic()
    h.busiest, h.few_busiest = functools.cache(h.busiest), functools.cache(h.few_busiest)
    launches = {}
    for s, file, defines, ways, us in of_journal(h, path):
        found = us < 400 and time_of(h, s, file, defines, ways)
        if found:
            launches.setdefault(found[:2], []).append((found[2], us))

    def entry(table, key, new=None):
        """A table's entry as numbers one behind another; new: put in its place."""
        at = getattr(h, table)
        at, key = (at[key[0]], key[1]) if table.startswith("FEW") else (at, key)
        if table.startswith("MANY"):
            both, causal = list(at[key[:-1]]), key[-1]
            if new is not None:
                both[causal] = tuple(new)
                at[key[:-1]] = tuple(both)
            return list(both[causal])
        flat = [x for part in at[key] for x in (part if isinstance(part, tuple) else (part,))]
        if new is not None:
            values = iter(new)
            at[key] = tuple(tuple(next(values) for _ in part) if isinstance(part, tuple) else next(values) for part in at[key])
        return flat
    for (table, key), times in sorted(launches.items(), key=str):
        us = numpy.array([t for _, t in times])
        off = lambda: numpy.log(numpy.maximum(1, [ns() for ns, _ in times]) / us / 1e3)
        begin = numpy.array(entry(table, key), dtype=float)
        scale = numpy.maximum(numpy.abs(begin), 20)

        def at(x):
            entry(table, key, [int(v) for v in numpy.round(x * scale)])
            return off()
        before = math.sqrt((off() ** 2).mean())
        best = least_squares(at, begin / scale, loss="soft_l1", f_scale=0.07, diff_step=0.02, max_nfev=12)
        print(table, key, f"{len(us)} launches, off {before:.3f}, as fitted {math.sqrt((best.fun ** 2).mean()):.3f}:", begin.astype(int).tolist(), numpy.round(best.x * scale).astype(int).tolist(), flush=True)
        entry(table, key, begin.astype(int).tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--shapes", default="", help="these alone, whatever --seconds says")
    parser.add_argument("--only", default="", help="calls of --models whose names hold one of these")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("plain", "lse", "blocks", "fast", "fast-blocks"), default="plain")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=0, help="only calls of at most so many packed rows")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--least", type=float, default=1.04)
    parser.add_argument("--fit", type=Path)
    parser.add_argument("--out", type=Path)
    o = parser.parse_args()
    if o.fit:
        fit(o.fit)
    elif o.report:
        report(json.loads(o.report.read_text())["rows"], o.least)
    else:
        named = [(*few_rows.parse(x.rstrip("c")), x.endswith("c")) for x in o.shapes.split(",") if x]
        run(o.models, named, [x for x in o.only.lower().split(",") if x], o.kind, math.inf if named else o.seconds, o.seed, o.rounds, o.rows, o.out)
