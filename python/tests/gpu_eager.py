"""Eager calls, and the wheel's launcher of them: checks of gpu_attention.py, of which it tells. Needs torch and a Hopper GPU."""
import statistics
import time

import torch
import torch.nn.functional as F

from gpu_judge import E4, dev, inputs
from warpsmith import attention as w


def check_launcher():
    """The wheel's launcher gives what Python alone gives, and leaves calls to it that want a gradient."""
    call, t = w._call, inputs()
    if call.launcher is None:
        return print("no launcher here: not checked")
    for options in ((False, None, torch.bfloat16, None, False), (True, 0.1, torch.bfloat16, None, True), (False, None, torch.float16, None, True), (True, None, E4, 0.01, False)):
        want = call._checked(*t, *options, "default", None)
        got = call._launch(*t, *options, "default")
        for a, b in zip((want,) if options[4] is False else want, (got,) if options[4] is False else got):
            assert (a.dtype, a.device, a.shape, a.stride(), a.requires_grad) == (b.dtype, b.device, b.shape, b.stride(), b.requires_grad), options
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), options
        for i in (0, 2, 5):
            asks = [x.clone().requires_grad_() if j == i else x for j, x in enumerate(t)]
            assert call._launch(*asks, *options, "default") is None, i
            with torch.no_grad():
                assert call._launch(*asks, *options, "default") is not None, i
            try:
                w.sdpa_fp8(*asks)
                raise AssertionError(f"argument {i} wants a gradient and was taken")
            except ValueError:
                pass
    with torch.inference_mode():
        assert w.sdpa_fp8(*t).is_inference()


def check_launcher_of_lengths():
    """The same for sequences one behind another: lengths are read on the device at each call, and V^T, where it is made before, is those tensors'."""
    launcher, ragged = w._call.launcher, w._ragged
    if launcher is None:
        return print("no launcher here: not checked")
    for D, longest, over_v_t in ((64, 900, False), (128, 300, False), (256, 6000, True)):
        of = lambda *lengths: torch.tensor([sum(lengths[:i]) for i in range(len(lengths) + 1)], dtype=torch.int32, device=dev)
        few, more = of(longest, 17, 0, 150), of(longest - 150, 17, 150, 150)   # as many tokens
        draw = lambda H: torch.randn(longest + 167, H, D, device=dev).to(E4)
        scales = [torch.rand(4, H, device=dev) + 0.1 for H in (8, 2, 2)]
        for logs in (False, True):
            options = (True, 0.1, torch.bfloat16, None, logs)
            for again in range(3):
                t, most = (draw(8), draw(2), draw(2), *scales), (longest, longest)
                cu = (few, few) if again < 2 else (more, more)
                want = ragged.run_varlen((*t, *cu), *most, *options)
                got = launcher.varlen(*t, *cu, *most, *options, "default")
                if again == 0:
                    assert got is None, "not taught yet"
                    got = w.sdpa_fp8_varlen(*t, *cu, *most, causal=True, softmax_scale=0.1, return_lse=logs)
                    assert (ragged._local.last.transposition is not None) == (over_v_t and not logs)
                for a, b in zip(want if logs else (want,), got if logs else (got,)):
                    assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()) and torch.equal(a, b), (D, logs, again)
            for other in (longest + 1, float(longest), None):
                assert launcher.varlen(*t, *cu, longest, other, *options, "default") is None, "another longest, or none"
            assert launcher.varlen(t[0].clone().requires_grad_(), *t[1:], *cu, *most, *options, "default") is None, "a gradient is wanted"


def check_eager():
    """Host time of a call, as the scoreboard takes it."""
    q, k, v, *scales = inputs(Hq=32, Sq=1, Sk=8192, D=128)
    cache = [q] + [x.view(torch.uint8).transpose(1, 2).contiguous().view(E4) for x in (k, v)] + scales + [torch.full((1,), 8192, dtype=torch.int32, device=dev)]
    tokens = [torch.randn(512, 8, 64, device=dev).to(E4) for _ in range(3)] + [scales[0].reshape(-1)[0]] * 3 + [torch.tensor([0, 200, 512], dtype=torch.int32, device=dev)] * 2 + [312, 312]
    for name, t, f in (("sdpa_fp8_varlen 200 and 312 of 8x64", tokens, w.sdpa_fp8_varlen), ("decode_fp8 1x32-8x1x8192x128", cache, w.decode_fp8), ("sdpa_fp8", inputs(), w.sdpa_fp8), ("sdpa_fp8 1x32-8x1x8192x128", inputs(Hq=32, Sq=1, Sk=8192, D=128), w.sdpa_fp8),
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
