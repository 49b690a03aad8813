"""Logits far from each other: cases and checks of gpu_attention.py, of which it tells. Needs torch and a Hopper GPU."""
import itertools
import math

import torch
import torch.nn.functional as F

from gpu_judge import E4, dev, judge, oracle
from warpsmith import attention as w


def for_many(s):
    """Every kernel for many queries that the package carries for a call, whichever is thought to be the fastest."""
    h = w._heuristic
    for file, wgs, made, by_one in h.many_kernels(s):
        yield h.choose_forward_f16(s, wgs) if file == "forward_f16" else h.choose_forward_e4m3(s, wgs, made, by_one=by_one) if file == "forward_e4m3" else h.choose_forward(s, wgs, made)


def far_case(r, g):
    """Logits of up to 1,000,000 (100,000 but at D 64), which rise or fall with the keys, or of which a single one is far above the others: no row may be lost, by any kernel for many queries. Keys are levels of one direction, so that equal codes have equal scores and
    others are far apart, however coarse scores are."""
    D, causal = r.choice((64, 128, 128, 256)), r.random() < 0.4
    B, Hkv, group = r.choice((1, 2)), r.choice((1, 2)), r.choice((1, 2))
    Sq, Sk = r.randint(65, 500), r.choice((256 * r.randint(1, 8), r.randint(1, 2500)))
    what, spread = r.choice(("rising", "falling", "any", "needle")), 10 ** r.uniform(0.5, 6 if D == 64 else 5)
    level = torch.rand(B, Hkv, Sk, device=dev, generator=g) * 2 - 1
    if what in ("rising", "falling"):
        level = level.sort(descending=what == "falling")[0]
    elif what == "needle":
        level = level * 0.1
        level[..., r.choice((0, Sk - 1, r.randrange(Sk)))] = 1.0
    sign = torch.randn(D, device=dev, generator=g).sign()
    q = ((1 + torch.rand(B, Hkv * group, Sq, 1, device=dev, generator=g)) * sign).to(E4)
    k, v = (448 * level[..., None] * sign).to(E4), torch.randn(B, Hkv, Sk, D, device=dev, generator=g).to(E4)
    scale, one = spread / (448 * D), torch.ones((), device=dev)
    want, want_lse = oracle(*(x.double() for x in (q, k, v)), causal, scale)
    s = w._heuristic.Shape(B, Hkv * group, Hkv, Sq, Sk, D, causal)
    for c in (w._heuristic.choose(s), *for_many(s)):
        o = w.sdpa_fp8(q, k, v, one, one, one, causal=causal, softmax_scale=scale, _choice=lambda _: c)
        # forward.cu's scores of a new maximum come by other products: equal ones are 2^-13 (D 256: 2^-10) of themselves apart, and of several one may have all of the weight.
        why = judge(o, None, want, want_lse, limit=0.1 if c.file != "forward" else 0.8 if spread < 300 else 2.5)
        if not why and ((o == 0).all(3) & (want != 0).any(3)).any():
            why = "a row is 0"
        if why:
            return f"{c.name}: {why}", (B, Hkv, group, Sq, Sk, D, causal, what, round(spread, 1))
    return None, None


def transposed(v):
    """The bytes of V^T in whole tiles of 128 keys, in the order that transpose.cuh states, by torch."""
    keys = torch.tensor([2 * (p // 4) + (0, 1, 8, 9)[p % 4] for p in range(16)], device=v.device)   # the key at each position of 16
    dims = torch.tensor([2 * n if n < 8 else 2 * (n - 8) + 1 for n in range(16)], device=v.device)   # the dimension of each row of 16
    B, H, S, D = v.shape
    x = F.pad(v.contiguous().view(torch.uint8), (0, 0, 0, -S % 128))
    x = x.view(B, H, -1, 16, D // 16, 16)[:, :, :, keys][..., dims]
    return x.permute(0, 1, 4, 5, 2, 3).reshape(B, H, D, -1).contiguous()


def check_far_logits():
    """Codes of 448 with scales of 1: logits of up to millions, of one key above all others, beside rows of smaller ones. In every regime."""
    shapes = (dict(Sq=1, Sk=9000), dict(Sq=1, Sk=9000, D=256), dict(Sq=4, Sk=3000, Hkv=2, D=128), dict(Sq=5, Sk=9000, D=256), dict(Sq=1024, Sk=1024, Hq=4, Hkv=2), dict(Sq=1024, Sk=1024, Hq=4, Hkv=2, D=128), dict(Sq=40, Sk=5000, Hkv=2, D=256),
              dict(Sq=40, Sk=5000, Hkv=2, D=128), dict(Sq=40, Sk=5000, Hkv=2), dict(B=4, Sq=1000, Sk=1000, Hq=16, Hkv=16), dict(Sq=2000, Sk=2000, D=128), dict(Sq=2000, Sk=2000, D=256), dict(Sq=700, Sk=900, D=256), dict(Sq=100, Sk=300), dict(Sq=8, Sk=300, D=256))
    g = torch.Generator(dev).manual_seed(3)
    signs = lambda *shape: torch.randint(0, 2, shape, device=dev, generator=g) * 2.0 - 1
    for shape in shapes:
        B, Hq, Hkv, Sq, Sk, D = ({**dict(B=1, Hq=8, Hkv=8, Sq=512, Sk=512, D=64), **shape}[n] for n in ("B", "Hq", "Hkv", "Sq", "Sk", "D"))
        one = torch.ones((), device=dev)
        for needle in (0, Sk // 2, Sk - 1):
            u = signs(D)
            q = (448 * u * 2.0 ** -torch.randint(0, 16, (B, Hq, Sq, 1), device=dev, generator=g)).to(E4)
            k, v = 448 * signs(B, Hkv, Sk, D), torch.randn(B, Hkv, Sk, D, device=dev, generator=g).to(E4)
            k[:, :, needle] = 448 * u
            want = v[:, :, needle].double().repeat_interleave(Hq // Hkv, 1)[:, :, None].expand(B, Hq, Sq, D)
            for causal in (False, True):
                seen = max(0, needle - (Sk - Sq)) if causal else 0   # the first row that sees it
                for lse in (False, True):
                    out = w.sdpa_fp8(q, k.to(E4), v, one, one, one, causal=causal, return_lse=lse)
                    out = (out[0] if lse else out).double()
                    assert out.isfinite().all(), (shape, needle, causal, lse, float((~out.isfinite()).double().mean()))
                    off = float((out - want)[:, :, seen:].norm() / want[:, :, seen:].norm())
                    assert off < 0.05, (shape, needle, causal, lse, off)


def check_stairs():
    """Keys' logits rise by so much from the first 256 that are looked at to the next that outputs nearly leave their reference's range, and by a little more after: no weight may be lost between. By every kernel for many queries."""
    g, Sq, Sk = torch.Generator(dev).manual_seed(4), 300, 1024
    for D, octaves, packed in itertools.product((128, 256), (44, 62, 64, 90, 104, 150, 152, 180), (False, True)):
        sign, one = torch.randn(D, device=dev, generator=g).sign(), torch.ones((), device=dev)
        coarse, fine = (torch.tensor(x, device=dev).repeat_interleave(256)[:, None] for x in ((448.0, 448.0, 448.0, 0.0), (0.0, 448 * 0.3 / octaves, 0.0, 0.0)))   # the last keys come first
        k = (torch.cat((coarse.expand(Sk, D // 2), fine.expand(Sk, D // 2)), 1) * sign)[None, None].to(E4)
        q = (torch.linspace(0.8, 1.25, Sq, device=dev)[:, None] * 16 * sign)[None, None].to(E4)
        v = torch.randn(1, 1, Sk, D, device=dev, generator=g).to(E4)
        scale = octaves * math.log(2) / (448 * 16 * D / 2)
        want, _ = oracle(*(x.double() for x in (q, k, v)), False, scale)
        outs = {}
        if packed:   # with one scale for all, and with another one for the values that come last
            for uneven_, wgs in itertools.product((False, True), (2, 3) if D == 128 else (2,)):
                scales, codes = torch.ones(1, 1, Sk // 128, device=dev), v.clone()
                if uneven_:
                    scales[0, 0, 0] = 0.5
                    codes[:, :, :128] = (2 * v[:, :, :128].float()).to(E4)
                args = q, k, transposed(codes).view(E4), one, torch.ones_like(scales), scales
                plan = w._call.plan_for(list(args), False, scale, torch.bfloat16, None, False, choice=lambda s, wgs=wgs: w._heuristic.choose_forward_e4m3(s, wgs), packed=True)
                outs["packed", wgs, uneven_] = plan(*args)
        else:
            for c in for_many(w._heuristic.Shape(1, 1, 1, Sq, Sk, D, False)):
                outs[c.name] = w.sdpa_fp8(q, k, v, one, one, one, softmax_scale=scale, _choice=lambda _, c=c: c)
        for name, o in outs.items():
            off = ((o.double() - want).norm(dim=3) / want.norm(dim=3)).max()
            assert off < 0.3, (D, octaves, name, float(off))
