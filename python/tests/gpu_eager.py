"""Eager calls, and the wheel's launcher of them: checks of gpu_attention.py, of which it tells. Needs torch and a Hopper GPU."""
import contextlib
import statistics
import time
import types

import torch
import torch.nn.functional as F

from gpu_judge import E4, as_bytes, dev, inputs
from warpsmith import attention as w


@contextlib.contextmanager
def alone():
    """Within it Python launches."""
    launcher, w._known.launcher = w._known.launcher, None
    try:
        yield
    finally:
        w._known.launcher = launcher
        vars(w._packed._local).pop("seen", None)   # which it would look at before it tells of a call


def alike(got, want):
    """Whether both are the same, bit for bit, of one kind and in one layout; also where they are several."""
    if isinstance(want, tuple):
        return isinstance(got, tuple) and len(got) == len(want) and all(map(alike, got, want))
    if want is None or got is None:
        return got is want
    facts = lambda x: (x.dtype, x.device, x.shape, x.stride(), x.requires_grad)
    return facts(got) == facts(want) and torch.equal(as_bytes(got), as_bytes(want))


def check_launcher():
    """The wheel's launcher gives what Python alone gives, and leaves calls to it that want a gradient."""
    known, t = w._known, inputs()
    if known.launcher is None:
        return print("no launcher here: not checked")
    call = lambda t, options: known.launcher.call(known.DENSE, tuple(t), (*options, "default"))
    for options in ((False, None, torch.bfloat16, None, False), (True, 0.1, torch.bfloat16, None, True), (False, None, torch.float16, None, True), (True, None, E4, 0.01, False)):
        assert alike(w._call._checked(*t, *options, "default", None), call(t, options)), options
        for i in (0, 2, 5):
            asks = [x.clone().requires_grad_() if j == i else x for j, x in enumerate(t)]
            assert call(asks, options) is None, i
            with torch.no_grad():
                assert call(asks, options) is not None, i
            try:
                w.sdpa_fp8(*asks)
                raise AssertionError(f"argument {i} wants a gradient and was taken")
            except ValueError:
                pass
    with torch.inference_mode():
        assert w.sdpa_fp8(*t).is_inference()


def check_launcher_of_lengths():
    """The same where only the device knows lengths: they are read at each call, and V^T, where it is made before, is those tensors'."""
    known, ragged = w._known, w._ragged
    if known.launcher is None:
        return print("no launcher here: not checked")
    for D, longest, over_v_t in ((64, 900, False), (128, 300, False), (256, 6000, True)):
        of = lambda *lengths: torch.tensor([sum(lengths[:i]) for i in range(len(lengths) + 1)], dtype=torch.int32, device=dev)
        few, more = of(longest, 17, 0, 150), of(longest - 150, 17, 150, 150)   # as many tokens
        draw = lambda *shape: torch.randn(*shape, D, device=dev).to(E4)
        scales = [torch.rand(4, H, device=dev) + 0.1 for H in (8, 2, 2)]
        for logs in (False, True):
            options = (True, 0.1, torch.bfloat16, None, logs)
            keywords = dict(causal=True, softmax_scale=0.1, return_lse=logs)
            for again in range(3):
                t, most = (*(draw(longest + 167, H) for H in (8, 2, 2)), *scales), (longest, longest)
                cu = (few, few) if again < 2 else (more, more)
                call = lambda longest_q, longest_k: known.launcher.call(known.VARLEN, (*t, *cu), (*options, "default", longest_q, longest_k))
                want = ragged.run_varlen((*t, *cu), *most, *options)
                assert (ragged._local.last.transposition is not None) == (over_v_t and not logs)
                got = w.sdpa_fp8_varlen(*t, *cu, *most, **keywords) if again == 0 else call(*most)
                assert alike(got, want), (D, logs, again)
            for other in (longest + 1, float(longest), None):
                assert call(longest, other) is None, "another longest, or none"
            try:
                w.sdpa_fp8_varlen(*t, *cu, longest, float(longest), **keywords)
                raise AssertionError("a longest sequence of a float was taken")
            except TypeError:
                pass
            t = (t[0].clone().requires_grad_(), *t[1:])
            assert call(*most) is None, "a gradient is wanted"
            q, keys = draw(4, 8, longest // 3), -(-longest // 64) * 64
            used = [torch.tensor(n, dtype=torch.int32, device=dev) for n in ((longest, 17, 0, 150), (longest - 1, 300, 100, 0))]
            for pages in (False, True):   # prompts over caches
                for again in range(3):
                    k, v, table = draw(4, keys, 2), draw(4, keys, 2), None
                    if pages:
                        k, v, table = k.view(-1, 64, 2, D), v.view(-1, 64, 2, D), torch.randperm(4 * keys // 64, device=dev).to(torch.int32).view(4, -1)
                    given = (q, k, v, *scales, used[again // 2], table)
                    want = ragged.run_decode(given, *options)
                    assert (ragged._local.last.transposition is not None) == (over_v_t and not logs)
                    got = w.decode_fp8(*given[:7], page_table=table, **keywords) if again == 0 else known.launcher.call(known.DECODE, given, (*options, "default"))
                    assert alike(got, want), (D, logs, pages, again)


def check_launcher_of_packing():
    """The same of packing, of attention over what was packed, and of the drop-in: results are those of other inputs in a second call, which the launcher makes."""
    known = w._known
    if known.launcher is None:
        return print("no launcher here: not checked")
    launcher, calls = known.launcher, []   # and which calls it made
    def call_of(kind, tensors, options):
        made = launcher.call(kind, tensors, options)
        calls.append((kind, made is not None))
        return made
    watched = types.SimpleNamespace(call=call_of, knows=launcher.knows, add=launcher.add)
    for dtype in (torch.bfloat16, torch.float16):
        for B, Hq, Hkv, Sq, Sk, D in ((1, 8, 8, 512, 512, 64), (2, 4, 2, 2300, 2300, 64), (2, 8, 2, 2500, 2500, 128), (1, 4, 4, 4100, 4100, 256), (2, 4, 4, 300, 700, 128), (1, 4, 2, 100, 300, 256)):
            draw = lambda H, S: torch.randn(B, S, H, D, device=dev).to(dtype).transpose(1, 2)
            for causal in (False, True):
                for name in ("quantise", "pack", "packed", "packed codes", "drop-in"):
                    for option in ("tensor", "head", "block"):
                        def call(q, k, v):
                            if name == "quantise":
                                return w.quantize_fp8(q, option)
                            if name == "drop-in":
                                return w.sdpa(q, k, v, is_causal=causal, scale=None if option == "head" else 0.1, enable_gqa=True)
                            kv = w.pack_kv(k, v, smooth_k=option != "head", center_v=option != "tensor")
                            if name == "pack":
                                return tuple(kv)
                            q, s = (q, None) if name == "packed" else w.quantize_fp8(q, "block")
                            return w.sdpa_fp8_packed(q, kv, s, causal=causal, softmax_scale=0.1, out_dtype=dtype)
                        for again in range(2):
                            t = draw(Hq, Sq), draw(Hkv, Sk), draw(Hkv, Sk)
                            with alone():
                                want = call(*t)
                            calls.clear()
                            known.launcher = watched
                            try:
                                got = call(*t)
                            finally:
                                known.launcher = launcher
                            assert alike(got, want), (dtype, B, Hq, Hkv, Sq, Sk, D, causal, name, option, again)
                        kind = {"quantise": known.QUANTISE, "pack": known.PACK, "drop-in": known.UNMASKED}.get(name, known.PACKED)
                        few = kind == known.PACKED and not w._call.packed_fits((B, Hq, Sq, D), Hkv, Sk, causal, t[0].device)   # several kernels and torch's
                        assert few or (kind, True) in calls, (dtype, B, Hq, Hkv, Sq, Sk, D, causal, name, option, calls)
    x = [torch.randn(2, 4, 2300, 128, device=dev, dtype=torch.bfloat16) for _ in range(3)]
    w.sdpa(*x, is_causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):   # by the launcher, which shares nothing with eager calls then
        out = w.sdpa(*x, is_causal=True)
    for y in x:
        y.neg_()
    want = w.sdpa(*x, is_causal=True)
    graph.replay()
    assert torch.equal(out, want)


def check_eager():
    """Host time of a call, as the scoreboard takes it."""
    q, k, v, *scales = inputs(Hq=32, Sq=1, Sk=8192, D=128)
    cache = [q] + [x.view(torch.uint8).transpose(1, 2).contiguous().view(E4) for x in (k, v)] + scales + [torch.full((1,), 8192, dtype=torch.int32, device=dev)]
    tokens = [torch.randn(512, 8, 64, device=dev).to(E4) for _ in range(3)] + [scales[0].reshape(-1)[0]] * 3 + [torch.tensor([0, 200, 512], dtype=torch.int32, device=dev)] * 2 + [312, 312]
    wide, long = ([torch.randn(1, H, S, D, device=dev, dtype=torch.bfloat16) for _ in range(3)] for H, S, D in ((8, 512, 64), (16, 1024, 128)))
    for name, t, f in (("sdpa_fp8_varlen 200 and 312 of 8x64", tokens, w.sdpa_fp8_varlen), ("decode_fp8 1x32-8x1x8192x128", cache, w.decode_fp8), ("sdpa_fp8", inputs(), w.sdpa_fp8), ("sdpa_fp8 1x32-8x1x8192x128", inputs(Hq=32, Sq=1, Sk=8192, D=128), w.sdpa_fp8),
                       ("quantize_fp8", wide[:1], w.quantize_fp8), ("pack_kv", wide[1:], w.pack_kv), ("sdpa_fp8_packed 16x1024", (long[0], w.pack_kv(*long[1:])), w.sdpa_fp8_packed), ("sdpa", wide, w.sdpa), ("sdpa 16x1024x128", long, w.sdpa),
                       ("torch's sdpa", [torch.randn(1, 8, 512, 64, device=dev, dtype=torch.float16) for _ in range(3)], F.scaled_dot_product_attention)):
        for _ in range(200):
            f(*t)
        host = []
        for _ in range(300):
            torch.cuda.synchronize()
            start = time.perf_counter()
            f(*t)
            host.append((time.perf_counter() - start) * 1e6)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(2000):
            f(*t)
        print(f"eager {name}: {statistics.median(host):.2f} us after a wait, {(time.perf_counter() - start) / 2000 * 1e6:.2f} us back to back", flush=True)
