#!/usr/bin/env python3
"""Tensors of two GPUs in one process: every function gives on the second one the bits that it gives on the first, whichever device is the current one, which stays so.

    PYTHONPATH=... python3 python/tests/gpu_two.py [--calls 400] [--seed 1]     # two Hopper GPUs of one kind; with a wheel its launcher makes the calls, too

Calls one after the other, in threads, on streams of their own, in graphs, and compiled; what lies on both GPUs is refused.
"""
import argparse
import ctypes
import hashlib
import json
import random
import subprocess
import sys
import threading
import time

import torch

from warpsmith import attention as w

E4 = torch.float8_e4m3fn


def of(g, *shape):
    return (torch.randn(*shape, generator=g) * 100).clamp(-448, 448).to(E4)


def begins(lengths):
    return torch.tensor([sum(lengths[:i]) for i in range(len(lengths) + 1)], dtype=torch.int32)


def calls(g):
    """Name, tensors (on the CPU), and what is made of them: kernels of each kind, with and without counters, scratch, V^T made before or beside."""
    scale = lambda *shape: torch.rand(*shape, generator=g) * 0.01 + 0.005

    def dense(B, Hq, Hkv, Sq, Sk, D, **options):
        given = of(g, B, Hq, Sq, D), of(g, B, Hkv, Sk, D), of(g, B, Hkv, Sk, D), scale(B, Hq), scale(B, Hkv), scale(B, Hkv)
        return f"dense {B}x{Hq}-{Hkv}x{Sq}x{Sk}x{D} {options}", given, lambda *t: w.sdpa_fp8(*t, **options)

    yield dense(1, 8, 8, 512, 512, 64)
    yield dense(2, 8, 8, 1000, 1000, 64, causal=True)
    yield dense(2, 8, 8, 700, 700, 64, return_lse=True)
    yield dense(8, 16, 16, 640, 640, 128)
    yield dense(4, 16, 16, 4096, 4096, 128, causal=True)
    yield dense(2, 8, 8, 4096, 4096, 256)
    yield dense(2, 16, 4, 900, 1300, 128, causal=True, out_dtype=torch.float16, mode="fast")
    yield dense(1, 32, 8, 1, 8192, 128)
    yield dense(2, 16, 2, 1, 5000, 256, return_lse=True)
    yield dense(3, 24, 8, 40, 3000, 128, causal=True)
    yield dense(1, 4, 4, 300, 300, 64, out_dtype=E4, out_scale=0.01)
    lengths = [300, 1, 0, 777, 64]
    tokens = lambda H, D: of(g, sum(lengths), H, D)
    cu = begins(lengths)
    yield "varlen", (tokens(8, 128), tokens(2, 128), tokens(2, 128), scale(5, 8), scale(5, 2), scale(5, 2), cu, cu), lambda *t: w.sdpa_fp8_varlen(*t, 777, 777, causal=True)
    cache = lambda pages, page, H, D: of(g, pages, page, H, D)
    used = torch.tensor([900, 33, 1024], dtype=torch.int32)
    yield "decode", (of(g, 3, 16, 1, 128), cache(3, 1024, 4, 128), cache(3, 1024, 4, 128), scale(3, 16), scale(3, 4), scale(3, 4), used), lambda *t: w.decode_fp8(*t)
    table = torch.randperm(48, generator=g).to(torch.int32).view(3, 16)
    yield "pages", (of(g, 3, 16, 2, 64), cache(48, 64, 4, 64), cache(48, 64, 4, 64), scale(3, 16), scale(3, 4), scale(3, 4), used, table), lambda *t: w.decode_fp8(*t[:7], page_table=t[7], causal=True)
    wide = lambda *shape: torch.randn(*shape, generator=g).to(torch.bfloat16)
    yield "quantise", (wide(2, 8, 500, 128),), lambda x: w.quantize_fp8(x, "head")
    yield "pack", (wide(2, 4, 1500, 128), wide(2, 4, 1500, 128)), w.pack_kv
    yield "packed", (wide(4, 8, 2048, 128), wide(4, 8, 2048, 128), wide(4, 8, 2048, 128)), lambda q, k, v: w.sdpa_fp8_packed(q, w.pack_kv(k, v), causal=True)
    yield "drop-in", (wide(2, 8, 1024, 128), wide(2, 8, 1024, 128), wide(2, 8, 1024, 128)), lambda *t: w.sdpa(*t, is_causal=True)


def tensors(x):
    return [x] if isinstance(x, torch.Tensor) else [t for y in x for t in tensors(y)] if isinstance(x, (tuple, list)) else []


def same(got, want, device):
    got, want = tensors(got), tensors(want)
    return len(got) == len(want) > 0 and all(a.device.index == device and a.dtype == b.dtype and torch.equal(a.cpu().view(torch.uint8), b.cpu().view(torch.uint8)) for a, b in zip(got, want))


def check_launcher(t):
    """The launcher makes calls of a device that is not the current one."""
    launcher = w._known.launcher
    for current in (0, 1) if launcher else ():
        with torch.cuda.device(current):
            assert launcher.call(w._known.DENSE, t, (False, None, torch.bfloat16, None, False, "default")) is not None, current
            begin = time.perf_counter()
            for _ in range(300):
                w.sdpa_fp8(*t)
            us = (time.perf_counter() - begin) / 300 * 1e6
            assert torch.cuda.current_device() == current
        torch.cuda.synchronize(1)
        print(f"{us:.1f} us of the host for a call on cuda:1 where cuda:{current} is the current device")


def digest(out):
    return [hashlib.sha256(ctypes.string_at(x.data_ptr(), x.numel() * x.element_size())).hexdigest() for x in (y.cpu().contiguous() for y in tensors(out))]


def only_the_second(seed, by_launcher):
    """Of a process that leaves the first GPU, its current device, alone: the calls' digests. torch remembers then which device is the current one, and the driver's context is the other's."""
    if not by_launcher:
        w._known.launcher = None
    said = []
    for name, t, f in calls(torch.Generator().manual_seed(seed)):
        t = tuple(x.to("cuda:1") for x in t)
        outs = [digest(f(*t)) for _ in range(4)]
        assert outs.count(outs[0]) == 4, name
        assert torch.cuda.current_device() == 0 and not torch._C._cuda_hasPrimaryContext(0), f"{name}: the first GPU was used"
        said.append(outs[0])
    print(json.dumps(said))


def check_only_the_second(seed, right):
    for way in ("launcher", "python"):
        run = subprocess.run([sys.executable, __file__, "--second", way, "--seed", str(seed)], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr[-2000:]
        assert json.loads(run.stdout) == [digest(x) for x in right], way


def check_refusals(found):
    (_, t, f), = [c for c in found if c[0].startswith("dense 1x8-8x512")]
    for i in range(6):
        mixed = [x.to(f"cuda:{int(j == i)}") for j, x in enumerate(t)]
        try:
            f(*mixed)
            raise AssertionError(f"argument {i} on another GPU was taken")
        except ValueError as e:
            assert "cuda:" in str(e) or "device" in str(e), e


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--second", choices=("launcher", "python"), help="only the second GPU, of which it writes what comes out: for this test itself")
    a = parser.parse_args()
    if a.second:
        return only_the_second(a.seed, a.second == "launcher")
    assert torch.cuda.device_count() > 1, "two GPUs are wanted"
    g, dice, began = torch.Generator().manual_seed(a.seed), random.Random(a.seed), time.time()
    found = list(calls(g))
    on = [[tuple(x.to(f"cuda:{d}") for x in t) for _, t, _ in found] for d in (0, 1)]
    say = lambda *x: print(f"{time.time() - began:.0f} s:", *x, flush=True)
    # Whichever device is the current one. The second GPU is the first to be used in this process.
    right = [None] * len(found)
    for current in (0, 1, 0):
        torch.cuda.set_device(current)
        for i, (name, _, f) in enumerate(found):
            for d in (1, 0):
                for _ in range(3):
                    out = f(*on[d][i])
                    assert torch.cuda.current_device() == current, name
                    right[i] = tensors(out) if right[i] is None else right[i]
                    assert same(out, right[i], d), (name, d, current)
    say(len(found), "kinds of calls are alike on both, whichever is the current one; launcher:", w._known.launcher is not None)
    check_only_the_second(a.seed, right)
    say("and so they are in a process that uses the second one alone")
    check_launcher(on[1][0])
    check_refusals(found)
    # In turn, nobody waits.
    torch.cuda.set_device(0)
    picks = [(dice.randrange(2), dice.randrange(len(found))) for _ in range(a.calls)]
    outs = []
    for n, (d, i) in enumerate(picks):
        outs.append(found[i][2](*on[d][i]))
        if len(outs) == 40 or n == len(picks) - 1:
            first = n + 1 - len(outs)
            assert all(same(out, right[i], d) for out, (d, i) in zip(outs, picks[first:])), "one after the other"
            outs = []
    say(a.calls, "calls in turn")

    # Threads, each of which goes from one to the other, on streams of its own.
    wrong = []

    def work(seed):
        mine = random.Random(seed)
        streams = [torch.cuda.Stream(d) for d in (0, 1)]
        try:
            for _ in range(a.calls // 8):
                d, i, current = mine.randrange(2), mine.randrange(len(found)), mine.randrange(2)
                with torch.cuda.stream(streams[0]), torch.cuda.stream(streams[1]), torch.cuda.device(current):
                    out = found[i][2](*on[d][i])
                streams[d].synchronize()
                if not same(out, right[i], d):
                    wrong.append((found[i][0], d, current))
        except Exception as e:   # noqa: BLE001
            wrong.append(repr(e))
    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong, wrong[:5]
    say("four threads, streams of their own")

    # The stream of the tensors' device is the one that counts: inputs come late on it.
    for i, (name, _, f) in enumerate(found):
        s = torch.cuda.Stream(1)
        late = [torch.empty_like(x) for x in on[1][i]]
        big = torch.randn(4096, 4096, device="cuda:1")
        torch.cuda.synchronize(1)
        with torch.cuda.stream(s), torch.cuda.device(0):
            with torch.cuda.device(1):
                for _ in range(8):
                    big = big @ big * 1e-3
                [x.copy_(y) for x, y in zip(late, on[1][i])]
            out = f(*late)
        s.synchronize()
        assert same(out, right[i], 1), (name, "on a stream")
    say("on the current stream of the tensors' device")

    # Graphs on either, captured while the other one is used.
    for i, (name, _, f) in enumerate(found):
        graphs = []
        for d in (0, 1):
            with torch.cuda.device(d):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=torch.cuda.Stream(d)):
                    out = f(*on[d][i])
                graphs.append((d, graph, out))
        for _ in range(2):
            for d, graph, out in graphs:
                with torch.cuda.device(d):
                    graph.replay()
        torch.cuda.synchronize(0), torch.cuda.synchronize(1)
        assert all(same(out, right[i], d) for d, _, out in graphs), (name, "in a graph")
    say("graphs")

    compiled = torch.compile(lambda *t: w.sdpa_fp8(*t[:6]) + w.sdpa_fp8(*t[:6]), fullgraph=True)
    i = next(i for i, c in enumerate(found) if c[0].startswith("dense 8x16"))
    for d in (1, 0):
        want = (lambda x: x + x)(found[i][2](*on[d][i]))
        assert same(compiled(*on[d][i]), want, d), "compiled"
    say("compiled: all are right")


if __name__ == "__main__":
    main()
