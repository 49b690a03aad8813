#!/usr/bin/env python3
"""Sequences of which only the device knows the lengths: what the library runs, ragged.cu, which it would run without few.cuh, and FA3 FP8.

    lengths.py [--only varlen,prompt] [--lse] [--blocks] [--out FILE]

`varlen`: prompts one behind another (sdpa_fp8_varlen, flash_attn_varlen_func), all alike or of lengths drawn evenly up to the longest. `prompt`: the last queries of a long prompt over a
paged cache (decode_fp8, flash_attn_with_kvcache), or one query, all pages in a random order. Each with the causal mask, `varlen` without it too. Microseconds a call by CUDA-graph replay in random order,
medians; a call's tensors are larger than the L2 or stay in it, as they would in a model. `off` is the norm of the difference to ragged.cu's output over that of the latter. --lse: with log-sum-exps (FA3 always
makes them); --blocks: with scales by block of 128 tokens (FA3 has them by head).

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU. FA3 FP8 is left out where fa3-fwd is not installed.
"""
import argparse
import json
import random
from pathlib import Path

import torch
from few_rows import graph, time_all
from warpsmith import attention as w

E4, dev = torch.float8_e4m3fn, "cuda"
# B, Hq, Hkv, longest, D
VARLEN = [(8, 16, 16, 2048, 128), (16, 32, 8, 1024, 128), (32, 16, 16, 512, 64), (8, 16, 16, 2048, 64), (8, 32, 8, 4096, 64), (4, 8, 8, 4096, 256), (64, 32, 8, 300, 128)]
# B, Hq, Hkv, Sq, Sk, D, page
PROMPT = [(1, 32, 8, 2048, 16384, 128, 64), (4, 32, 8, 512, 8192, 128, 64), (8, 32, 8, 512, 4096, 128, 256), (16, 32, 8, 128, 8192, 128, 16), (4, 16, 16, 1024, 8192, 64, 64), (4, 16, 4, 512, 8192, 256, 64),
          (8, 32, 8, 16, 16384, 128, 64), (1, 32, 8, 4096, 4096, 128, 64), (16, 32, 8, 1, 8192, 128, 16), (16, 32, 8, 1, 8192, 128, 32)]


def codes(*shape):
    return (torch.randn(*shape, device=dev) / 4.5 * 448 / 4).clamp(-448, 448).to(E4)


def scale(B, H, *blocks):
    return torch.full((B, H, *blocks), 4 * 4.5 / 448, device=dev)


def scales(args, B, heads, longest):
    return [scale(B, H, *([-(-n // 128)] if args.blocks else [])) for H, n in zip(heads, longest)]


def without_few(call):
    """The same call by ragged.cu."""
    h, t, ragged = w._heuristic, w._tokens, w._ragged
    def run():
        real = t.choose_varlen, h.choose_lengths
        t.choose_varlen, h.choose_lengths = lambda s, *_: h.choose_ragged(s), lambda s, *_: h.choose_ragged(s)
        launcher, w._known.launcher = w._known.launcher, None
        kept = getattr(ragged._local, "plans", {})
        ragged._local.plans, ragged._local.recent = {}, {}
        try:
            with w._chosen.by_python():
                return call()
        finally:
            t.choose_varlen, h.choose_lengths = real
            w._known.launcher, ragged._local.plans, ragged._local.recent = launcher, kept, {}
    return run


def output(call):
    """In f32; by what gives log-sum-exps too, without them."""
    result = call()
    return (result[0] if isinstance(result, tuple) else result).float()


def measure(name, impls, right, rounds, rows, out):
    row, graphs = {"what": name, "off": {}}, {}
    for n, f in impls.items():
        try:
            o = output(f)
            row["off"][n] = round(float((o - right).norm() / right.norm()), 4)
            graphs[n] = graph(torch, [f], 6)
        except Exception as e:
            row["off"][n] = str(e).splitlines()[0][:160]
            torch.cuda.synchronize()
    row["us"] = time_all(torch, graphs, 6, rounds)
    rows.append(row)
    print("%s: %s | %s" % (name, row["us"], row["off"]), flush=True)
    if out:
        Path(out).write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "rows": rows}, indent=1))


def varlen(fa3, args, rows):
    dice = random.Random(7)
    for B, Hq, Hkv, most, D in VARLEN:
        for alike in (True, False):
            lengths = [most if alike else dice.randint(1, most) for _ in range(B)]
            lengths[0] = most
            cu = torch.tensor([sum(lengths[:i]) for i in range(B + 1)], dtype=torch.int32, device=dev)
            q, k, v = (codes(sum(lengths), H, D) for H in (Hq, Hkv, Hkv))
            (qs, ks, vs), of_heads = scales(args, B, (Hq, Hkv, Hkv), (most,) * 3), scale(B, Hkv)
            for causal in (True, False):
                ours = lambda: w.sdpa_fp8_varlen(q, k, v, qs, ks, vs, cu, cu, most, most, causal=causal, return_lse=args.lse)
                impls = {"ours": ours, "fast": lambda: w.sdpa_fp8_varlen(q, k, v, qs, ks, vs, cu, cu, most, most, causal=causal, return_lse=args.lse, mode="fast"), "ragged": without_few(ours)}
                if fa3:
                    impls["fa3"] = lambda: fa3.flash_attn_varlen_func(q, k, v, cu, cu, most, most, causal=causal, q_descale=of_heads, k_descale=of_heads, v_descale=of_heads)
                c = w._tokens.choose_varlen(w._heuristic.Shape(B, Hq, Hkv, most, most, D, causal, not args.blocks, lse=args.lse), q.shape[0], k.shape[0])
                measure("varlen %dx%d-%dx%s%dx%d %s by %s, %d ways" % (B, Hq, Hkv, "" if alike else "up to ", most, D, "causal" if causal else "full", c.name, c.tiles_per_worker), impls, output(impls["ragged"]), args.rounds, rows, args.out)


def prompt(fa3, args, rows):
    for B, Hq, Hkv, Sq, Sk, D, page in PROMPT:
        pages = Sk // page
        q, (k, v) = codes(B, Hq, Sq, D), (codes(B * pages, page, Hkv, D) for _ in range(2))
        (qs, ks, vs), of_heads = scales(args, B, (Hq, Hkv, Hkv), (Sq, Sk, Sk)), scale(B, Hkv)
        table = torch.randperm(B * pages, device=dev).to(torch.int32).view(B, pages)
        used = torch.full((B,), Sk, dtype=torch.int32, device=dev)
        ours = lambda: w.decode_fp8(q, k, v, qs, ks, vs, used, page_table=table, causal=True, return_lse=args.lse)
        impls = {"ours": ours, "fast": lambda: w.decode_fp8(q, k, v, qs, ks, vs, used, page_table=table, causal=True, return_lse=args.lse, mode="fast"), "ragged": without_few(ours)}
        if fa3:
            rows_first = q.view(torch.uint8).transpose(1, 2).contiguous().view(E4)
            impls["fa3"] = lambda: fa3.flash_attn_with_kvcache(rows_first, k, v, cache_seqlens=used, page_table=table, causal=True, q_descale=of_heads, k_descale=of_heads, v_descale=of_heads, num_splits=0).transpose(1, 2)
        c = w._heuristic.choose_lengths(w._heuristic.Shape(B, Hq, Hkv, Sq, Sk, D, True, not args.blocks, lse=args.lse), page=page)
        measure("prompt %dx%d-%dx%dx%dx%d, pages of %d, by %s, %d ways" % (B, Hq, Hkv, Sq, Sk, D, page, c.name, c.tiles_per_worker), impls, output(impls["ragged"]), args.rounds, rows, args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="varlen,prompt")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lse", action="store_true")
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    try:
        import fa3_fwd_interface as fa3
    except ImportError:
        fa3 = None
    rows = []
    for name, run in (("varlen", varlen), ("prompt", prompt)):
        if name in args.only.split(","):
            run(fa3, args, rows)


if __name__ == "__main__":
    main()
