#!/usr/bin/env python3
"""Attention of models that people run, in the calls they make of it: `sdpa_fp8` beside torch's SDPA in f16 and FA3 FP8, in one run.

    models.py [--only qwen,prefill] [--rounds 5] [--lse] [--fast] [--out FILE]

A model is its heads and head dimension; its calls are prompts, pieces of a prompt behind a cache, single tokens and a few drafted ones, or what encoders and diffusion models do. Microseconds a call by CUDA-graph replay in random
order, medians of a replay's; two sets of inputs. FA3 FP8 runs by flash_attn_func, or by flash_attn_with_kvcache where queries are at most 256 (keys shared out as it thinks best), and is left out where fa3-fwd is not installed.
Prints each call, then geometric means and the calls where a peer is faster.

Needs the package (`pip install` of the wheel, or PYTHONPATH=python), and a Hopper GPU.
"""
import argparse
import json
import math
from pathlib import Path

import few_rows

MODELS = {   # query heads, heads of K and V, head dimension
    "Llama 3.2 1B": (32, 8, 64), "Llama 3.2 3B": (24, 8, 128), "Llama 3 8B": (32, 8, 128), "Llama 3 70B, one of 8 GPUs": (8, 1, 128), "Qwen2.5 0.5B": (14, 2, 64), "Qwen2.5 7B": (28, 4, 128),
    "Qwen2.5 14B": (40, 8, 128), "Qwen2.5 32B, one of 4 GPUs": (10, 2, 128), "Qwen3 30B-A3B": (32, 4, 128), "Qwen3 235B": (64, 4, 128), "Mistral Large": (96, 8, 128), "gpt-oss 120B": (64, 8, 64), "Phi-3 medium": (40, 10, 128),
    "Gemma 2B": (8, 1, 256), "Gemma 2 9B": (16, 8, 256), "Gemma 3 4B": (8, 4, 256), "Gemma 3 27B": (32, 16, 128), "Falcon 7B": (71, 1, 64), "StarCoder": (48, 1, 128), "Qwen3-Next": (16, 2, 256),
}
CALLS = {   # sequences, queries, keys, causal
    "prompt 512": (1, 512, 512, True), "prompt 2k": (1, 2048, 2048, True), "prompt 8k": (1, 8192, 8192, True), "8 prompts 1k": (8, 1024, 1024, True), "32 prompts 300": (32, 300, 300, True), "piece 512 of 8k": (1, 512, 8192, True),
    "pieces 64 of 2k": (8, 64, 2048, True), "token 1k": (1, 1, 1024, False), "8 tokens 4k": (8, 1, 4096, False), "64 tokens 2k": (64, 1, 2048, False), "token 32k": (1, 1, 32768, False), "5 drafted, 8 of 4k": (8, 5, 4096, True),
}
OTHERS = {
    "ViT-L/14 336": (16, 16, 64, 16, 577, 577, False), "BERT large": (16, 16, 64, 32, 384, 384, False), "Whisper large encoder": (20, 20, 64, 8, 1500, 1500, False), "Whisper large, text to sound": (20, 20, 64, 8, 5, 1500, False),
    "SDXL, itself": (10, 10, 64, 2, 4096, 4096, False), "SDXL, text": (10, 10, 64, 2, 4096, 77, False), "FLUX": (24, 24, 128, 1, 4608, 4608, False), "Wan 2.1 1.3B": (12, 12, 128, 1, 32760, 32760, False), "Wan 2.1, text": (12, 12, 128, 1, 32760, 512, False),
    "HunyuanVideo, 4 of 24 heads": (4, 4, 128, 1, 29056, 29056, False), "SigLIP-like, 729": (16, 16, 64, 8, 729, 729, False), "SAM-like windows": (16, 16, 64, 25, 196, 196, False),
}


def calls():
    for model, heads in MODELS.items():
        for name, call in CALLS.items():
            yield f"{model}: {name}", (*heads, *call)
    yield from OTHERS.items()


def run(only, rounds, lse, fast, out):
    import torch
    import torch.nn.functional as F
    from torch.nn.attention.bias import causal_lower_right
    from warpsmith.attention import _heuristic as h, sdpa_fp8
    try:
        from fa3_fwd_interface import flash_attn_func, flash_attn_with_kvcache
    except ImportError:
        flash_attn_func = None
    rows = []
    for name, (Hq, Hkv, D, B, Sq, Sk, causal) in calls():
        if only and not any(x in name.lower() for x in only):
            continue
        chosen, sets = h.choose(h.Shape(B, Hq, Hkv, Sq, Sk, D, causal, lse=lse, fast=fast)), []
        for _ in range(2):
            x = [torch.randn(B, heads, n, D, device="cuda") for heads, n in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk))]
            scales = [t.abs().amax(dim=(2, 3)) / 448 for t in x]
            sets.append(([(t / c[:, :, None, None]).to(torch.float8_e4m3fn) for t, c in zip(x, scales)], scales, [t.half() for t in x]))
            del x
        mask = causal_lower_right(Sq, Sk) if causal else None
        impls = {"ours": [lambda t=t, c=c: sdpa_fp8(*t, *c, causal=causal, return_lse=lse, mode="fast" if fast else "default") for t, c, _ in sets],
                 "sdpa": [lambda x=x: F.scaled_dot_product_attention(*x, attn_mask=mask, enable_gqa=Hq != Hkv) for _, _, x in sets]}
        if flash_attn_func:
            laid = [([x.view(torch.uint8).transpose(1, 2).contiguous().view(torch.float8_e4m3fn) for x in t], dict(q_descale=c[0].view(B, Hkv, -1)[:, :, 0].contiguous(), k_descale=c[1], v_descale=c[2])) for t, c, _ in sets]
            impls["fa3"] = [lambda t=t, d=d: flash_attn_with_kvcache(*t, causal=causal, num_splits=0, **d) if Sq <= 256 else flash_attn_func(*t, causal=causal, **d) for t, d in laid]
        reps = 12 if B * Hkv * Sk * D < 1 << 24 else 4
        graphs = {}
        for n, fns in impls.items():
            try:
                graphs[n] = few_rows.graph(torch, fns, reps)
            except Exception as e:   # a peer that refuses a shape is no reason to end
                print(name, n, str(e).splitlines()[0][:120], flush=True)
                torch.cuda.synchronize()
        us = few_rows.time_all(torch, graphs, reps, rounds)
        rows.append({"call": name, "shape": f"{B}x{Hq}-{Hkv}x{Sq}x{Sk}x{D}", "causal": causal, "kernel": chosen.name, "us": us})
        ratios = ", ".join(f"{n} {t / us['ours']:.2f}" for n, t in us.items() if n != "ours")
        print(f"{name:36} {rows[-1]['shape']:26} {'causal' if causal else 'full  '} {us} {ratios} {chosen.name}", flush=True)
        if out:
            out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "lse": lse, "fast": fast, "rows": rows}, indent=1))
        del sets, impls, graphs
        if len(rows) % 20 == 0:
            torch.cuda.empty_cache()
    for peer in ("sdpa", "fa3"):
        x = sorted((r["us"][peer] / r["us"]["ours"], r["call"]) for r in rows if peer in r["us"])
        if x:
            print(f"{peer}: {len(x)} calls, over ours {math.exp(sum(math.log(r) for r, _ in x) / len(x)):.3f} in the geometric mean; faster than ours in {[(n, round(r, 2)) for r, n in x if r < 1]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="calls whose names hold one of these")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lse", action="store_true", help="ours with log-sum-exps, which FA3 FP8's call then does not return")
    parser.add_argument("--fast", action="store_true", help='ours with mode="fast"')
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    run([x for x in options.only.lower().split(",") if x], options.rounds, options.lse, options.fast, options.out)
