#!/usr/bin/env python3
"""Random shapes, most of them with heads in groups and queries that do not fill row tiles: the library's choice beside its kernel for many queries of one head, and FA3 FP8.

    grouped.py [--count 150] [--seed 1] [--rounds 7] [--all] [--out FILE]

Only shapes where the library chooses another kernel than that one are timed (--all: every shape, with log-sum-exps and with scales by block beside it). Microseconds a call by CUDA-graph
replay in random order, medians. `off` is the norm of the difference of the two outputs over that of one. FA3 FP8 runs by flash_attn_func, and is left out where fa3-fwd is not installed.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU.
"""
import argparse
import json
import math
import random
from pathlib import Path

import few_rows


def shapes(seed):
    """(B, Hq, Hkv, Sq, Sk, D, causal), without end."""
    rng = random.Random(seed)
    while True:
        D, group, Hkv = rng.choice([64, 128, 128, 256]), rng.choice([1, 2, 4, 4, 5, 8, 8, 16]), rng.choice([1, 2, 4, 8, 8, 16])
        Sq = int(2 ** rng.uniform(4.1, 11))
        Sk = Sq if rng.random() < 0.4 else int(2 ** rng.uniform(6, 13))
        B = int(2 ** rng.uniform(0, 6.5))
        if B * Hkv * group * Sq * Sk * D * 4 <= 3e11 and B * Hkv * Sk * D <= 3e8 and B * Hkv * group * Sq * D <= 2e8:
            yield B, Hkv * group, Hkv, Sq, Sk, D, rng.random() < 0.5


def run(count, seed, rounds, every, out):
    import torch
    from warpsmith.attention import _heuristic as h, sdpa_fp8
    try:
        from fa3_fwd_interface import flash_attn_func
    except ImportError:
        flash_attn_func = None
    rows = []
    for shape in shapes(seed):
        if len(rows) >= count:
            break
        B, Hq, Hkv, Sq, Sk, D, causal = shape
        s = h.Shape(*shape)
        chosen, many = h.choose(s), h.choose_many(s)
        if chosen == many and not every:
            continue
        sets = []
        for _ in range(2):
            x = [torch.randn(B, heads, n, D, device="cuda") for heads, n in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk))]
            scales = [t.abs().amax(dim=(2, 3)) / 448 for t in x]
            sets.append(([(t / c[:, :, None, None]).to(torch.float8_e4m3fn) for t, c in zip(x, scales)], scales))
            del x
        ours = lambda **more: [lambda t=t, c=c: sdpa_fp8(*t, *c, causal=causal, **more) for t, c in sets]
        impls = {"ours": ours(_choice=lambda _: chosen), "many": ours(_choice=lambda _: many)}
        right, other = impls["ours"][0]().float(), impls["many"][0]().float()
        row = {"shape": f"{B}x{Hq}-{Hkv}x{Sq}x{Sk}x{D}", "mask": "causal" if causal else "full", "kernel": chosen.name, "many": many.name, "off": round(float((right - other).norm() / other.norm()), 4)}
        del right, other
        if every:
            by_block = lambda t, c: [f[:, :, None].expand(-1, -1, h.ceil_div(x.shape[2], 128)).contiguous() for x, f in zip(t, c)]
            impls["lse"] = ours(return_lse=True)
            impls["by block"] = [lambda t=t, c=by_block(t, c): sdpa_fp8(*t, *c, causal=causal) for t, c in sets]
        if flash_attn_func:
            impls["fa3"] = [lambda t=t, c=c: flash_attn_func(*[x.transpose(1, 2) for x in t], causal=causal, q_descale=c[0].view(B, Hkv, -1)[:, :, 0].contiguous(), k_descale=c[1], v_descale=c[2])
                            for t, c in sets]
        row["us"] = few_rows.time_all(torch, {n: few_rows.graph(torch, f, 4) for n, f in impls.items()}, 4, rounds)
        rows.append(row)
        print(row["shape"], row["mask"], row["us"], row["kernel"], f"off {row['off']}", flush=True)
        if out:
            out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "seed": seed, "rows": rows}, indent=1))
        del sets, impls
        if len(rows) % 20 == 0:
            torch.cuda.empty_cache()
    mean = lambda name: math.exp(sum(math.log(r["us"][name] / r["us"]["ours"]) for r in rows) / len(rows))
    others = [n for n in rows[0]["us"] if n != "ours"]
    print(f"{len(rows)} shapes; geometric means over ours:", {n: round(mean(n), 3) for n in others}, "least:", {n: round(min(r["us"][n] / r["us"]["ours"] for r in rows), 2) for n in others})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    run(options.count, options.seed, options.rounds, options.all, options.out)
