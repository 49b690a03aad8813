"""Other cards' kernel on a Hopper GPU, for gpu_attention.py: as PTX in f16, which the driver compiles for this one, or with Ada's products in e4m3, which it compiles as well as it can."""
import contextlib
import dataclasses

import torch

from gpu_eager import alone
from gpu_judge import as_bytes, dev, draw
from gpu_lengths import decode_case, varlen_case
from warpsmith import attention as w

E4M3 = (("WS_E4M3", 1),)


@contextlib.contextmanager
def other_card(ada):
    """Within it calls run as on a card that is no Hopper."""
    portable, plan, kernels, fused = w._portable, w._plan, w._kernels, w._fused
    real = plan.sms, portable.choose, portable.choose_lengths, w._known.launcher, kernels.torch_capability, fused.on_hopper
    in_e4m3 = lambda f: lambda *a, **_: dataclasses.replace(c := f(*a, ada=True), defines=c.defines + E4M3) if ada else f(*a)
    launcher = real[3] and w._known.new_launcher(type(real[3]))
    plan.sms, portable.choose, portable.choose_lengths, w._known.launcher, kernels.torch_capability, fused.on_hopper = lambda _: 0, in_e4m3(real[1]), in_e4m3(real[2]), launcher, lambda _: (11, 0), lambda _: False
    forget = lambda: [vars(module._local).clear() for module in (w._call, w._ragged, w._pack, fused)]
    forget()
    try:
        yield
    finally:
        plan.sms, portable.choose, portable.choose_lengths, w._known.launcher, kernels.torch_capability, fused.on_hopper = real
        forget()


def quantise_other_case(r, g):
    """Codes, scales and means by other cards' code have the bits of this card's own; scales of blocks that are one for all of a head are Hopper's alone, so that keys and values are compared with queries' ways there."""
    S, D, dtype = r.choice((r.randint(1, 700), 128 * r.randint(1, 20))), r.choice((64, 128, 256, 72)), r.choice((torch.bfloat16, torch.float16, torch.float32))
    kind, size = r.choice(("tensor", "head", "block")), r.choice((1e-9, 1.0, 100.0))
    B = r.randint(1, 3)
    x, y = ((draw((B, 3, S, D), "normal", g) * size).to(dtype) for _ in range(2))
    if r.random() < 0.3:
        x.view(-1)[:5] = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0], device=dev).to(dtype)
    real, w._pack.EVEN = w._pack.EVEN, {}
    try:
        calls = lambda: (*w.quantize_fp8(x, kind), *w.pack_kv(x, y, scales=kind)[:6])
        with alone():
            want = calls()
        with other_card(False):
            got = calls()
            assert w.pack_kv(x, y).v_t is None
    finally:
        w._pack.EVEN = real
    same = all(torch.equal(as_bytes(a), as_bytes(b)) for a, b in zip(got, want) if a is not None)
    return None if same and [a is None for a in got] == [a is None for a in want] else "other bits", (B, S, D, dtype, kind, size)


def of_lengths(ada):
    """A case of either function whose lengths only the device knows; beside what it asks, whether CTAs shared keys."""
    def case(r, g):
        with other_card(ada):
            why, case = r.choice((varlen_case, decode_case))(r, g)
            plan = w._ragged._local.last
            assert plan is None or plan.choice.file == "portable" and (E4M3[0] in plan.choice.defines) == ada
            return why, (*case, plan and plan.choice.tiles_per_worker)
    return case
