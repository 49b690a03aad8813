"""What only a GPU can say: every function against f64, over random shapes, strides, layouts, masks, scales and distributions.

    PYTHONPATH=python python3 python/tests/gpu_attention.py [--cases N] [--seed N] [--seconds N] [--only NAME] [--launches N]

From an installed wheel: python3 python/tests/installed.py WHEEL --gpu [the same options].

Each as one command, prebuilt kernels in the cache beforehand:
    ... gpu_attention.py --cases 2000 --seconds 120                              the property test
    ... gpu_attention.py --only repeats --launches 100000                        bit-identical on two streams at once
    compute-sanitizer --tool memcheck python3 python/tests/gpu_attention.py --cases 4 --only dense,f16,portable,ada,portable_lengths,ada_lengths,varlen,decode,spread,packed,wide,pack,quantise
    (also --tool initcheck, synccheck, racecheck)

Needs torch and a Hopper GPU. Prints each failure with the case that makes it again, then counts; exit code 1 if any failed.
"""
import argparse
import random
import statistics
import sys
import threading
import time
import traceback

import torch
import torch.nn.functional as F

from gpu_eager import check_eager, check_launcher, check_launcher_of_lengths, check_launcher_of_packing
from gpu_far import check_far_logits, check_stairs, far_case, transposed
from gpu_judge import E4, dev, draw, inputs, judge, layout, oracle, quantised, twice, wide_scale
from gpu_lengths import decode_case, repeated_lengths, varlen_case
from gpu_others import of_lengths, other_card, quantise_other_case
from gpu_spread import repeated_stretches, spread_case
from warpsmith import attention as w

LAUNCHES = 2000   # of check_repeats; --launches


def dense_case(r, g, choice=None):
    D = r.choice((64, 128, 256))
    Hkv, group, B = r.choice((1, 2, 3)), r.choice((1, 1, 2, 4, 5)), r.choice((1, 2, 3))
    Sq, Sk = r.choice(((r.randint(1, 20), r.randint(1, 3000)), (r.randint(1, 700),) * 2, (r.randint(1, 900), r.randint(1, 900)), (r.randint(1, 300), r.randint(1000, 3000)), (r.randint(65, 700), r.randint(2049, 3000))))
    causal, dist = r.random() < 0.5, r.choice(("normal", "outliers", "shifted"))
    kinds = [r.choice(("tensor", "head", "head", "block")) for _ in range(3)]
    hows = [r.choice(("plain", "bshd", "sliced", "odd")) for _ in range(3)]
    dtype = r.choice((torch.bfloat16, torch.float16, E4)) if D == 64 else torch.bfloat16   # each is an instance of its own
    scale, out_scale, lse = r.choice((None, 0.05)), 0.02 if dtype == E4 else None, r.random() < 0.5
    (q8, qs, q), (k8, ks, k), (v8, vs, v) = (quantised(draw(s, dist, g), kind) for s, kind in zip(((B, Hkv * group, Sq, D), (B, Hkv, Sk, D), (B, Hkv, Sk, D)), kinds))
    got = w.sdpa_fp8(*(layout(x, how) for x, how in zip((q8, k8, v8), hows)), qs, ks, vs, causal=causal, softmax_scale=scale, out_dtype=dtype, out_scale=out_scale, return_lse=lse,
                     _choice=choice)
    out, l = got if lse else (got, None)
    return judge(out, l, *oracle(q, k, v, causal, scale or D ** -0.5), out_scale), (B, Hkv, group, Sq, Sk, D, causal, dist, kinds, hows, dtype, lse)


def of_other_card(ada):
    """The same by other cards' kernel; half of them with rows of NaN, values of one, or scores that rise."""
    def case(r, g):
        with other_card(ada):
            if r.random() < 0.5:
                return dense_case(r, g)
            B, Hkv, group, D = r.randint(1, 2), r.randint(1, 2), r.choice((1, 2, 3)), r.choice((64, 128, 256))
            kinds, (Sq, Sk) = [r.choice(("tensor", "head", "block")) for _ in range(3)], r.choice(((r.randint(1, 9), r.randint(1, 3000)), (r.randint(1, 600),) * 2, (r.randint(1, 500), r.randint(1, 900))))
            return of_chosen(r, g, B, Hkv, group, Sq, Sk, D, r.random() < 0.5, kinds, ("normal", "outliers", "shifted"))
    return case


def chosen(B, Hq, Hkv, Sq, Sk, D, causal, plain=True):
    """The kernel that runs this on this card without log-sum-exp, `few` behind it where row tiles are packed. plain: no scale differs between blocks of tokens."""
    c = w._heuristic.choose(w._heuristic.Shape(B, Hq, Hkv, Sq, Sk, D, causal, plain), w._plan.sms(torch.device(dev, torch.cuda.current_device())))
    return c.file + (" few" if ("WS_FEW", 1) in c.defines else "")


def rising(r, g, B, Hq, Hkv, Sq, Sk, D):
    """Queries and keys whose scores rise with the keys, or fall: maxima come late, whichever way a kernel runs."""
    u = F.normalize(torch.randn(D, device=dev, generator=g), dim=0)
    level = torch.rand(Sk, device=dev, generator=g).sort(descending=r.random() < 0.5)[0] * r.choice((5, 20, 60))
    noise = lambda *shape: 0.5 * torch.randn(*shape, device=dev, generator=g)
    return 8 * u + noise(B, Hq, Sq, D), level[:, None] * u + noise(B, Hkv, Sk, D)


def few_case(r, g):
    """The same kernels over packed row tiles whose keys are shared out among CTAs, in the order of choices that tells them from those for many queries; and forward.cu's, which the log-sum-exp is from."""
    D, kinds = r.choice((64, 128, 256)), [r.choice(("tensor", "head", "head", "block")) for _ in range(3)]
    while True:
        Hkv, group, B, causal = r.choice((1, 2, 3, 8)), r.choice((1, 1, 2, 3, 4, 8, 16)), r.choice((1, 1, 2, 3, 7)), r.random() < 0.5
        Sq, Sk = r.choice((r.randint(1, 40), r.randint(1, 300), r.randint(300, 1500))), r.choice((r.randint(20, 400), r.randint(100, 1500), r.randint(1000, 5000), r.randint(5000, 12000)))
        plain = not any(kind == "block" and S > 128 for kind, S in zip(kinds, (Sq, Sk, Sk)))
        if B * Hkv * group * Sq * Sk < 3e7 and B * Hkv * Sk < 60000:
            file = chosen(B, Hkv * group, Hkv, Sq, Sk, D, causal, plain)
            if file.endswith(" few"):
                break
    return of_chosen(r, g, B, Hkv, group, Sq, Sk, D, causal, kinds, ("normal", "outliers", "shifted") if D == 64 else ("normal", "outliers", "shifted", "wide", "uniform"))


def f16_case(r, g):
    """The kernels whose scores are FP16 (forward_f16 at D 64, with scales of whole heads; forward_e4m3 at D 128, with any, and at D 256 where V is transposed before, with scales of whole heads), beside the one that runs where the log-sum-exp is wanted."""
    whole, wider = ("tensor", "head"), ("normal", "outliers", "shifted", "wide", "uniform")
    D, file, groups, scales, dists = r.choice(((64, "forward_f16", (1, 1, 2, 4), whole, ("normal", "outliers", "shifted")), (128, "forward_e4m3", (1, 1, 2, 4, 8), (*whole, "block"), wider),
                                               (256, "forward_e4m3", (4, 8, 12), whole, wider)))
    kinds = [r.choice(scales) for _ in range(3)]
    while True:
        Hkv, group, B, causal = r.choice((1, 2, 3)), r.choice(groups), r.choice((1, 2, 3)), r.random() < 0.5
        Sq, Sk = r.choice(((r.randint(1025, 2300),) * 2, (r.randint(65, 1500), r.randint(1025, 3000)), (r.randint(1500, 3000), r.randint(1025, 1500)), (r.randint(700, 1100), r.randint(300, 1024))))
        plain = not any(kind == "block" and S > 128 for kind, S in zip(kinds, (Sq, Sk, Sk)))
        if B * Hkv * group <= 20 and chosen(B, Hkv * group, Hkv, Sq, Sk, D, causal, plain) == file:
            break
    return of_chosen(r, g, B, Hkv, group, Sq, Sk, D, causal, kinds, dists)


def of_chosen(r, g, B, Hkv, group, Sq, Sk, D, causal, kinds, dists):
    """A case of the kernel that was chosen for outputs alone, beside the one that runs where the log-sum-exp is wanted, too."""
    what, dist = r.choice(("random", "random", "random", "rising", "ones", "nan in q", "nan in k")), r.choice(dists)
    hows = [r.choice(("plain", "bshd", "bshd", "sliced", "odd")) for _ in range(3)]
    dtype, scale, mode = r.choice((torch.bfloat16, torch.float16, E4)), r.choice((None, 0.05)) if what == "random" else None, r.choice(("default", "default", "fast"))
    out_scale = None if dtype != E4 else 0.5 if what == "ones" else 0.02
    case = (B, Hkv, group, Sq, Sk, D, causal, what, dist, kinds, hows, dtype, scale, mode)
    q, k, v = (draw(s, dist, g) for s in ((B, Hkv * group, Sq, D), (B, Hkv, Sk, D), (B, Hkv, Sk, D)))
    if dist == "wide":   # logits spread over more octaves than e4m3 has
        q = 4 * q
    if what == "rising":
        q, k = rising(r, g, B, Hkv * group, Hkv, Sq, Sk, D)
    elif what == "ones":
        k = k[:, :, :1].expand_as(k).contiguous()
    (q8, qs, q), (k8, ks, k), (v8, vs, v) = (quantised(x, kind) for x, kind in zip((q, k, v), kinds))
    if what == "ones":
        v8, vs, v = torch.ones_like(v).to(E4), torch.ones_like(vs), torch.ones_like(v)
    spoilt = torch.zeros(B, Hkv * group, Sq, dtype=torch.bool, device=dev)   # rows that are to be NaN
    b, code = r.randrange(B), r.choice((0x7F, 0xFF))
    if what == "nan in q":
        h, i = r.randrange(Hkv * group), r.randrange(max(0, Sq - Sk) if causal else 0, Sq)
        q8.view(torch.uint8)[b, h, i, r.randrange(D)] = code
        spoilt[b, h, i] = True
    elif what == "nan in k":
        h, j = r.randrange(Hkv), r.choice((Sk - 1, r.randrange(Sk), 0))
        k8.view(torch.uint8)[b, h, j, r.randrange(D)] = code
        spoilt[b, h * group:(h + 1) * group, max(0, j - (Sk - Sq)) if causal else 0:] = True
    t, options = [layout(x, how) for x, how in zip((q8, k8, v8), hows)] + [qs, ks, vs], dict(causal=causal, softmax_scale=scale, out_dtype=dtype, out_scale=out_scale, mode=mode)
    calls = [lambda: w.sdpa_fp8(*t, **options), lambda: w.sdpa_fp8(*t, **options, return_lse=True)]
    first = r.randrange(2)   # a plan of the one must not serve the other
    results = {n: calls[n]() for n in (first, 1 - first)}
    out, (beside, lse) = results[0], results[1]
    if not torch.equal(calls[0]().view(torch.uint8), out.view(torch.uint8)):
        return "the second call differs", case
    want, want_lse = oracle(q, k, v, causal, scale or D ** -0.5)
    if what.startswith("nan"):
        nan = torch.isnan(out.double())
        if not nan[spoilt].all():
            return f"{int((~nan[spoilt]).sum())} values of rows that see a NaN are none", case
        if nan[~spoilt].any():
            return f"{int(nan[~spoilt].any(-1).sum())} rows that see no NaN are NaN", case
        mend = lambda x: torch.where(spoilt[..., None], (want / (out_scale or 1.0)).clamp(-448, 448).to(x.dtype).double(), x.double()).to(x.dtype)
        return judge(mend(out), None, want, want_lse, out_scale), case
    if what == "ones" and float((out.double() * (out_scale or 1.0) - want).abs().max()) > 1e-3:
        return f"values of one are off by {float((out.double() * (out_scale or 1.0) - want).abs().max()):.5f}", case
    return (judge(out, None, want, want_lse, out_scale) or judge(beside, lse, want, want_lse, out_scale)
            or judge(out, None, beside.double() * (out_scale or 1.0), want_lse, out_scale)), case


def made_case(r, g):
    """Attention beside what makes its V^T, which is waited for tile by tile: other values each time, as what the call before left would be as good as those of the same values. The bits are those over V^T that is made before, but by three consumers without the mask (one query has none), which are another instance then."""
    D, wgs, causal = *r.choice(((128, 2), (128, 3), (256, 2))), r.random() < 0.5
    B, Hkv, group = r.randint(1, 3), r.randint(1, 4), r.choice((1, 1, 2, 3))
    Sq, Sk = r.choice(((r.randint(1, 1500), r.randint(1, 1500)), (r.randint(1000, 3000), r.randint(1500, 3000)), (r.randint(1, 200), r.randint(3000, 9000))))
    kinds, hows = [r.choice(("tensor", "head")) for _ in range(3)], [r.choice(("plain", "bshd", "sliced")) for _ in range(3)]
    dtype, mode = r.choice((torch.bfloat16, torch.float16, E4)), r.choice(("default", "default", "fast"))
    case, out_scale, h = (B, Hkv, group, Sq, Sk, D, wgs, causal, kinds, hows, dtype, mode), 0.02 if dtype == E4 else None, w._heuristic
    q, k, *values = (draw(s, "normal", g) for s in ((B, Hkv * group, Sq, D), (B, Hkv, Sk, D), (B, Hkv, Sk, D), (B, Hkv, Sk, D)))
    (q8, qs, q), (k8, ks, k) = (quantised(x, kind) for x, kind in zip((q, k), kinds))
    q8, k8 = layout(q8, hows[0]), layout(k8, hows[1])
    values = [(layout(v8, hows[2]), vs, v) for v8, vs, v in (quantised(v, kinds[2]) for v in values)]

    def choice(s, beside=True):
        ours, h.beside = h.beside, lambda *_: beside
        try:
            return h.choose_forward_e4m3(s, wgs, True)
        finally:
            h.beside = ours

    before = lambda s: choice(s, False)
    call = lambda v, c: w.sdpa_fp8(q8, k8, v[0], qs, ks, v[1], causal=causal, out_dtype=dtype, out_scale=out_scale, mode=mode, _choice=c)
    outs = [call(v, choice) for v in values * 3]
    for i, v in enumerate(values):
        if not all(torch.equal(x.view(torch.uint8), outs[i].view(torch.uint8)) for x in outs[i::2]):
            return "calls differ", case
        if (causal and Sq > 1 or D == 256 or wgs == 2) and not torch.equal(call(v, before).view(torch.uint8), outs[i].view(torch.uint8)):
            return "not the bits of V^T made before", case
        why = judge(outs[i], None, *oracle(q, k, v[2], causal, D ** -0.5), out_scale)
        if why:
            return why, case
    return None, case


def uneven(r, x, most=60):
    """x (B, H, S, D), or, of some heads, with some blocks of 128 tokens far larger (none where most is 1) or smaller than the others: pack_kv gives these scales of their own."""
    if r.random() < 0.6 or most == 1:
        return x
    B, H, S, _ = x.shape
    factors = torch.tensor([[[r.choice((1, 1, 1, 1, most, 0.001, 0)) if r.random() < 0.7 else 1 for _ in range(-(-S // 128))]] * H if b or r.random() < 0.5 else [[1] * -(-S // 128)] * H for b in range(B)], device=dev)
    return (x * factors.repeat_interleave(128, 2)[:, :, :S, None]).clamp(-6e4, 6e4).to(x.dtype)


def packed_case(r, g):
    D, Hkv, group, B = r.choice((64, 128, 256)), r.choice((1, 2)), r.choice((1, 4)), r.choice((1, 2))
    Sq, Sk = r.choice(((r.randint(1, 400), r.randint(1, 900)), (r.randint(65, 700), r.randint(2049, 3000))))   # the latter by V^T
    causal, dist, kind = r.random() < 0.5, r.choice(("normal", "shifted")), r.choice(("tensor", "head", "block"))
    dtype, on = r.choice((torch.bfloat16, torch.float16, E4)), (r.random() < 0.7, r.random() < 0.7)
    x = [draw(s, dist, g).to(torch.bfloat16) for s in ((B, Hkv * group, Sq, D), (B, Hkv, Sk, D), (B, Hkv, Sk, D))]
    q8, qs, q = quantised(x[0], "head")
    # Weights far below a row's largest count by values 20 times as large, and are few bits, or none with a log-sum-exp (below 2^-12, forward.cu's kShift); offsets of keys are logits of hundreds where a block has others.
    kv = w.pack_kv(uneven(r, x[1], 4 if dist == "normal" else 1), uneven(r, x[2], 1 if dtype == E4 else 4), scales=kind, smooth_k=on[0], center_v=on[1])
    if getattr(kv, "v_t", None) is not None and not torch.equal(kv.v_t.view(torch.uint8), transposed(kv.v)):
        return "v_t is not V^T", (B, Hkv, group, Sq, Sk, D, kind)
    if "v_t" in kv._fields and kv.v_t is None:
        kv = kv._replace(v_t=transposed(kv.v).view(E4))
    k, v = (c.double() * wide_scale(s, Sk).double() + (0 if m is None else m.double()[:, :, None]) for c, s, m in ((kv.k, kv.k_scale, kv.k_mean), (kv.v, kv.v_scale, kv.v_mean)))
    out_scale, first, want, mode = 0.02 if dtype == E4 else None, r.random() < 0.5, oracle(q, k, v, causal, D ** -0.5), r.choice(("default", "default", "fast"))
    results = {lse: w.sdpa_fp8_packed(q8, kv, qs, causal=causal, out_dtype=dtype, out_scale=out_scale, return_lse=lse, mode=mode) for lse in (first, not first)}   # may be two kernels
    return judge(results[False], None, *want, out_scale) or judge(*results[True], *want, out_scale), (B, Hkv, group, Sq, Sk, D, causal, dist, kind, dtype, on, mode)


def wide_case(r, g):
    """Queries of 16 bits that are e4m3 codes, so that making codes of them rounds nothing, over packed values."""
    D, Hkv, group, B = r.choice((64, 128, 256)), r.choice((1, 2)), r.choice((1, 4)), r.choice((1, 2))
    Sq, Sk = r.choice(((r.randint(1, 400), r.randint(1, 900)), (r.randint(65, 700), r.randint(2049, 3000)), (r.randint(65, 700), r.randint(2049, 3000))))   # the latter by V^T
    causal, dist, how = r.random() < 0.5, r.choice(("normal", "shifted")), r.choice(("plain", "bshd", "sliced"))
    dtype, out = r.choice((torch.bfloat16, torch.float16)), r.choice((None, None, None, torch.bfloat16, E4))
    x = [draw(s, dist, g).to(torch.bfloat16) for s in ((B, Hkv * group, Sq, D), (B, Hkv, Sk, D), (B, Hkv, Sk, D))]
    codes, scale, _ = quantised(x[0] * torch.rand(Sq, 1, device=dev, generator=g), "tensor")
    q, kv, s = codes.to(dtype), w.pack_kv(uneven(r, x[1], 4 if dist == "normal" else 1), uneven(r, x[2], 1 if out == E4 else 4)), D ** -0.5 * float(scale)
    if how == "bshd":
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
    elif how == "sliced":
        q = F.pad(q, (0, 8, 0, 1))[:, :, :Sq, :D]
    k, v = (c.double() * wide_scale(s, Sk).double() + (0 if m is None else m.double()[:, :, None]) for c, s, m in ((kv.k, kv.k_scale, kv.k_mean), (kv.v, kv.v_scale, kv.v_mean)))
    want, lse, first, mode = oracle(codes.double(), k, v, causal, s), r.random() < 0.3, out or dtype, r.choice(("default", "fast"))
    result, why = twice(lambda: w.sdpa_fp8_packed(q, kv, causal=causal, softmax_scale=s, out_dtype=first, out_scale=0.02 if first == E4 else None, return_lse=lse, mode=mode))
    return why or judge(result[0] if lse else result, None, *want, 0.02 if first == E4 else None), (B, Hkv, group, Sq, Sk, D, causal, dist, how, dtype, out, lse, mode)


def even_scales(f, even):
    """pack_kv's scales by block of f, from which means were taken out, as pack.cu says."""
    B, H, S, _ = f.shape
    n = -(-S // 128)
    a = F.pad(f.abs().amax(3), (0, n * 128 - S)).view(B, H, n, 128).amax(3)
    tokens = torch.tensor([20 * b + a for b in range(4) for a in range(4)], device=f.device)
    some = f[:, :, tokens.clamp(max=S - 1) if S <= 64 else (2 * tokens + 1) * S // 128].abs().amax(dim=(2, 3))[:, :, None]
    head = torch.where(some > 1e-6, some * even / (16 * 448), torch.ones_like(some))
    return torch.where((a <= 1e-6) | (a <= 448 * head) & (a >= 448 / 256 * head), head.expand_as(a), a / 448)


def rounds_otherwise(f, codes, scale):
    """None, or how many codes are not those of f divided by the scale."""
    wrong = int((codes.float() != (f / wide_scale(scale, f.shape[2])).clamp(-448, 448).to(E4).float()).sum())
    return f"{wrong} codes differ from torch's operations" if wrong else None


def differs(x, centred, codes, scale, mean, kind, even=0):
    """Codes, scales and means of x against torch's operations: None, or what is wrong. Only the mean's and the scale's last bits may differ."""
    if (mean is None) == bool(centred and x.shape[2]):
        return "there is a mean, or none"
    if mean is not None:   # of those samples, where they show one; next to three of its standard errors it may be either way
        n, S = min(x.shape[2], 64), x.shape[2]
        some = x.float()[:, :, [i if S <= 64 else (2 * i + 1) * S // 128 for i in range(n)]]
        of, shown, least = some.mean(2), (n + 9) * some.mean(2) ** 2, 9 * (some * some).mean(2)
        close = lambda a: (mean - a).abs() <= 1e-5 * (a.abs() + x.float().abs().max())
        if not bool((close(of) & (shown > 0.9999 * least) | (mean == 0) & (shown <= 1.0001 * least)).all()):
            return "the mean differs"
    f = x.float() if mean is None else x.float() - mean[:, :, None]
    # A power of two next to which a largest value lies may be the other one, as means' last bits differ.
    # Whether a block has the head's may go either way where its largest value is just what fits.
    if even and not bool(torch.stack([((even_scales(f * (1 + d), even) - scale).abs() <= 3e-6 * scale) for d in (-1e-5, 0, 1e-5)]).any(0).all()):
        return "scales are not the head's where they could be"
    if not even and not torch.allclose(scale, w._pack._torch_quantise(x, mean, kind)[1], rtol=1e-6, atol=0):
        return "scales differ from torch's operations"
    return rounds_otherwise(f, codes, scale)


def pack_case(r, g):
    B, H, group, S, Sq, D = r.randint(1, 3), r.randint(1, 3), r.choice((1, 2)), r.choice((r.randint(1, 70), r.randint(1, 700), 128 * r.randint(1, 20))), r.randint(1, 400), r.choice((64, 128, 256, 64, 128, 72))
    dtypes, kind = [r.choice((torch.bfloat16, torch.float16, torch.float32)) for _ in range(2)], r.choice(("block", "block", "head", "tensor"))
    hows, dist, size, on = [r.choice(("plain", "bshd", "sliced", "shifted")) for _ in range(2)], r.choice(("normal", "outliers", "shifted")), r.choice((0.0, 1e-9, 1.0, 100.0)), (r.random() < 0.7, r.random() < 0.7)
    if r.random() < 0.7:
        dtypes[1] = dtypes[0]
    def made(S, H, dtype, how):
        x = uneven(r, (draw((B, H, S, D), dist, g) * size).to(dtype))
        if how == "bshd":
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        elif how == "sliced":
            x = F.pad(x, (0, 8, 0, 1))[:, :, :S, :D]
        elif how == "shifted":   # an address that is no multiple of 16
            x = torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)
        return x
    case = (B, H, group, S, Sq, D, dtypes, kind, hows, dist, size, on)
    k, v = made(S, H, dtypes[0], hows[0]), made(S, H, dtypes[1], hows[1])
    kv, why = twice(lambda: w.pack_kv(k, v, scales=kind, smooth_k=on[0], center_v=on[1]))
    even = {name: w._pack.EVEN.get((name, D), 0) for name in "kv"}
    of = even if kv.v_t is not None else dict.fromkeys("kv", 0)
    why = why or differs(k, on[0], kv.k, kv.k_scale, kv.k_mean, kind, of["k"]) or differs(v, on[1], kv.v, kv.v_scale, kv.v_mean, kind, of["v"])
    if not why and (kv.v_t is None) == (kind == "block" and D != 72):
        why = f"v_t is {kv.v_t}"
    if not why and kv.v_t is not None and not torch.equal(kv.v_t.view(torch.uint8), transposed(kv.v)):
        why = "v_t is not v's codes"
    q = made(Sq, H * group, dtypes[0], hows[0])
    if not why and dtypes[0] == dtypes[1] and D != 72:   # as `sdpa` does it, and with queries
        if (kv := w._pack.pack_for_one(k, v)) is not None:
            why = differs(k, True, kv.k, kv.k_scale, kv.k_mean, "block", even["k"])
            if not why and w._pack._packable(q):
                a, b = w._fused.pack([w._fused.Part(q), w._fused.Part(k, True)])
                why = differs(q, False, a.codes, a.scale, None, "block") or differs(k, True, b.codes, b.scale, b.mean, "block")
            if not why:
                a, = w._fused.pack([w._fused.Part(v, True, transposed=True, even=even["v"])])
                same = torch.equal(kv.v_t.view(torch.uint8), a.transposed.view(torch.uint8)) and torch.equal(kv.v_scale, a.scale) and torch.equal(kv.v_mean, a.mean)
                why = differs(v, True, a.codes, a.scale, a.mean, "block", even["v"]) or (None if same else "v_t without v's codes differs")
    return why, case


def quantise_case(r, g):
    S = r.randint(1, 700) if r.random() < 0.9 else r.randint(9000, 18000)   # a head's CTAs wait for each other, or are too many
    shape = (r.randint(1, 3), r.randint(1, 4), S, r.choice((64, 128, 256, 72, 8)))
    dtype, kind, how = r.choice((torch.bfloat16, torch.float16, torch.float32)), r.choice(("tensor", "head", "block")), r.choice(("plain", "bshd", "sliced"))
    x = (draw(shape, "normal", g) * r.choice((1e-9, 1.0, 100.0))).to(dtype)
    if how == "bshd":
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    elif how == "sliced":
        x = F.pad(x, (0, 8, 0, 1))[:, :, :shape[2], :shape[3]]
    (codes, s), why = twice(lambda: w.quantize_fp8(x, kind))
    _, ws = w._pack._torch_quantise(x, None, kind)
    why = why or rounds_otherwise(x.float(), codes, s) if torch.allclose(s, ws, rtol=3e-7, atol=0) else "scales differ from torch's operations"   # torch multiplies by 1 / 448
    return why, (shape, dtype, kind, how)


def dropin_case(r, g):
    D, H, group = r.choice((64, 128, 256)), 4, r.choice((1, 2))
    Sq, Sk = r.choice(((300, 300), (100, 300), (300, 100), (1, 500), (2200, 2200), (700, 2100), (3001, 2100)))   # the last three are packed, if not causal the third
    causal, dtype = r.random() < 0.5, r.choice((torch.float16, torch.bfloat16))
    q, k, v = (draw(s, "normal", g).to(dtype) for s in ((2, H, Sq, D), (2, H // group, Sk, D), (2, H // group, Sk, D)))
    if r.random() < 0.3 and group == 1:
        q, k, v = q[0], k[0], v[0]
    if r.random() < 0.15:   # a last dimension that is not contiguous
        q, k, v = (x.transpose(-2, -1).contiguous().transpose(-2, -1) if r.random() < 0.6 else x for x in (q, k, v))
    out, why = twice(lambda: w.sdpa(q, k, v, is_causal=causal, enable_gqa=group > 1))
    want = F.scaled_dot_product_attention(q.double() if q.dim() == 4 else q.double(), k.double(), v.double(), is_causal=causal, enable_gqa=group > 1)
    rel = float((out.double() - want).norm() / want.norm())   # of few rows now and then one has the quantiser's error twice: 0.0987, by exact attention on the same codes 0.0988 (seed 30201024)
    return why if out.dtype == dtype and out.shape == want.shape and rel < (0.08 if Sq > 1 else 0.13) else f"{out.dtype}, relF {rel:.4f}", (D, group, Sq, Sk, causal, dtype)


CASES = dict(dense=dense_case, f16=f16_case, made=made_case, few=few_case, far=far_case, portable=of_other_card(False), ada=of_other_card(True), portable_lengths=of_lengths(False), ada_lengths=of_lengths(True), quantise_other=quantise_other_case, varlen=varlen_case, decode=decode_case, spread=spread_case, packed=packed_case, wide=wide_case, pack=pack_case, quantise=quantise_case, dropin=dropin_case)


def check_graph():
    """Captured, replayed on new values; decoding follows the lengths of each replay; a first call may come inside of a capture."""
    for shape in (dict(), dict(Sq=1, Sk=9000, Hq=32), dict(B=2, Sq=40, Sk=3000, Hkv=2), dict(Sq=3000, Sk=3000, D=128), dict(Sq=3000, Sk=3000)):
        t = inputs(**shape)
        w.sdpa_fp8(*t)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = w.sdpa_fp8(*t)
            again = w.sdpa_fp8(*t)
            both = w.sdpa_fp8(*t, return_lse=True)   # may be another kernel
        t[0].view(torch.uint8).copy_(inputs(**shape)[0].view(torch.uint8))
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        want = w.sdpa_fp8(*t)
        assert torch.equal(out, want) and torch.equal(again, want), shape
        assert all(map(torch.equal, both, w.sdpa_fp8(*t, return_lse=True))), shape
    x = [torch.randn(1, 4, 2304, 64, device=dev, dtype=torch.bfloat16) for _ in range(3)]
    w.sdpa(*x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):   # packing and attention over what was packed
        out = [w.sdpa(*x) for _ in range(2)]
    for y in x:
        y.normal_()
    for _ in range(3):
        graph.replay()
    want = w.sdpa(*x)
    assert all(torch.equal(y, want) for y in out), "sdpa by packed values"
    q, k, v, qs, ks, vs = inputs(B=2, Sq=1, Sk=4096, Hkv=2)
    k, v = (x.view(torch.uint8).transpose(1, 2).contiguous().view(E4) for x in (k, v))
    lens = torch.tensor([4096, 10], dtype=torch.int32, device=dev)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = w.decode_fp8(q, k, v, qs, ks, vs, lens, softmax_scale=0.1)
    for n in ([7, 4000], [0, 1]):
        lens.copy_(torch.tensor(n, dtype=torch.int32))
        graph.replay()
        assert torch.equal(out, w.decode_fp8(q, k, v, qs, ks, vs, lens, softmax_scale=0.1)), n
    # Calls of a stream share counters in a capture, so that no graph is too long for them; those of streams that run beside each other in one do not.
    from warpsmith.attention import _memory
    t = inputs(Sq=1, Sk=9000, Hq=32)
    want, pool = w.sdpa_fp8(*t), _memory._pools[torch.cuda.current_device()]
    used, graph, side = pool.used, torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        out = [w.sdpa_fp8(*t) for _ in range(100)]
        with torch.cuda.stream(side):
            out += [w.sdpa_fp8(*t) for _ in range(100)]
        main.wait_stream(side)
        out.append(w.sdpa_fp8(*t))
    assert len(pool.captures) >= 2 and 0 < pool.used - used <= 4096, pool.used - used
    for _ in range(10):
        for y in out:
            y.zero_()
        graph.replay()
        assert all(torch.equal(y, want) for y in out), "calls of one capture"
    # An eager call makes a new pool for captures to come, also while a stream is captured: which goes on.
    with torch.cuda.stream(side):
        held = w.sdpa_fp8(*t)   # so that torch has room for the next result there: its own allocator may ask for none during a capture
    torch.cuda.synchronize()
    pools, graph = len(pool.kept), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pool.used = _memory._CAPTURED // 2
        out = [w.sdpa_fp8(*t)]   # with which more than half are used
        with torch.cuda.stream(side):
            eager = w.sdpa_fp8(*t)
        out.append(w.sdpa_fp8(*t))
    graph.replay()
    torch.cuda.synchronize()
    assert len(pool.kept) == pools + 1 and all(torch.equal(y, want) for y in (*out, eager, held)), "a pool made during a capture"


def check_streams():
    """Two streams at once, then threads of their own: the same bits every time."""
    shapes = (dict(), dict(Sq=1, Sk=9000, Hq=32, Hkv=8, D=128), dict(Sq=1, Sk=3000, Hq=32, Hkv=8, D=128), dict(Sq=700, Sk=900, D=128), dict(Sq=8, Sk=5000, Hkv=2), dict(Sq=700, Sk=1300))
    sets = [inputs(**s) for s in shapes]
    want = [w.sdpa_fp8(*t) for t in sets]
    torch.cuda.synchronize()
    wrong = []
    def work():
        stream = torch.cuda.Stream()
        bad = torch.zeros((), dtype=torch.int64, device=dev)
        with torch.cuda.stream(stream):
            for i in range(1000):
                n = i % len(sets)
                bad += (w.sdpa_fp8(*sets[n]) != want[n]).sum()
        stream.synchronize()
        if int(bad):
            wrong.append(int(bad))
    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong


def check_chain():
    """Kernels that begin before the one before them has ended: quantisation, attention, and the next call's over what that wrote, without a pause, give what they give with one."""
    for Hq, Hkv, Sq, Sk, D, causal in ((16, 2, 1025, 900, 256, False), (16, 2, 1025, 900, 256, True), (16, 2, 1025, 900, 128, False), (16, 2, 1025, 900, 128, True), (8, 8, 4096, 4096, 256, False),
                                       (8, 8, 4096, 4096, 128, True), (8, 8, 700, 900, 128, False), (8, 8, 700, 900, 64, True)):
        def step(q, k, v, pause):
            t = [w.quantize_fp8(x) for x in (q, k, v)]
            pause()
            t = [x for x, _ in t] + [s for _, s in t]
            out, beside = w.sdpa_fp8(*t, causal=causal), w.sdpa_fp8(*t, causal=causal, return_lse=True)[0]
            pause()
            return out + beside / 8
        q, k, v = (torch.randn(1, H, n, D, device=dev, dtype=torch.bfloat16) for H, n in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk)))
        results = []
        for pause in (torch.cuda.synchronize, lambda: None):
            x, outs = q, []
            for i in range(20):
                x = step(x * 1.5, k + i / 16, v, pause)
                outs.append(x)
            torch.cuda.synchronize()
            results.append(outs)
        bad = [i for i, (x, y) in enumerate(zip(*results)) if not torch.equal(x, y)]
        assert not bad, (Hq, Sq, D, causal, bad)


def check_repeats():
    """LAUNCHES launches of each regime, half on each of two streams at once, by graphs of 50: the same bits every time."""
    shapes = (dict(), dict(Sq=1, Sk=9000, Hq=32, Hkv=8, D=128), dict(Sq=1, Sk=3000, Hq=32, Hkv=8, D=128), dict(Sq=700, Sk=900, D=128), dict(Sq=8, Sk=5000, Hkv=2), dict(Sq=300, Sk=600, D=256), dict(Sq=1300, Sk=1500), dict(Sq=1025, Sk=900, Hq=16, Hkv=2, D=256), dict(Sq=1025, Sk=900, Hq=16, Hkv=2, D=128),
              dict(Sq=1300, Sk=1500, D=256), dict(Sq=4096, Sk=4096, Hq=16, Hkv=16, D=128), dict(Sq=100, Sk=9000, Hkv=2, D=128), dict(Sq=100, Sk=3000, Hkv=2, D=256), dict(Sq=300, Sk=9000),
              dict(B=4, Sq=3100, Sk=3100, Hq=16, Hkv=16, D=128), dict(B=4, Sq=2100, Sk=2100, D=256))   # rounds of row tiles that are drawn behind the mask, V^T made beside them and before
    calls = [(s, lambda causal, t=inputs(**s): w.sdpa_fp8(*t, causal=causal)) for s in shapes]
    for D in (64, 128, 256):   # scales by block, and V^T
        x = [torch.randn(1, 8, n, D, device=dev, dtype=torch.bfloat16) for n in (700, 2100, 2100)]
        (q, qs), (k, ks), (v, vs) = (w.quantize_fp8(y, "block") for y in x)
        kv = w.pack_kv(*x[1:])
        calls.append((("block", D), lambda causal, t=(q, k, v, qs, ks, vs): w.sdpa_fp8(*t, causal=causal)))
        calls.append((("packed", D), lambda causal, t=(q, kv, qs): w.sdpa_fp8_packed(*t, causal=causal)))
        if D > 64:   # the same of several rounds
            many, of = [y.expand(6, -1, -1, -1).contiguous() for y in x], w.quantize_fp8(x[1].expand(6, -1, -1, -1), "block")
            calls.append((("packed, drawn", D), lambda causal, t=(of[0], w.pack_kv(*many[1:]), of[1]): w.sdpa_fp8_packed(*t, causal=causal)))
        calls.append((("wide", D), lambda causal, t=(x[0], kv): w.sdpa_fp8_packed(*t, causal=causal)))
        calls += [((name, D), call) for name, call in repeated_lengths(D)]
    calls += repeated_stretches()
    for causal in (False, True):
        for name, call in calls:
            want = call(causal)
            torch.cuda.synchronize()
            graphs = []
            for _ in range(2):
                stream, bad = torch.cuda.Stream(), torch.zeros((), dtype=torch.int64, device=dev)
                with torch.cuda.stream(stream):
                    call(causal)   # everything is loaded before the capture
                stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    for _ in range(50):
                        bad += (call(causal) != want).sum()
                graphs.append((graph, stream, bad))
            for _ in range(-(-LAUNCHES // 100)):
                for graph, stream, _ in graphs:
                    with torch.cuda.stream(stream):
                        graph.replay()
            torch.cuda.synchronize()
            wrong = [int(bad) for _, _, bad in graphs]
            assert not any(wrong), (name, causal, wrong)


def check_first_rows():
    """Rows that see one tile of keys at most, of long causal calls with one scale a head: their weights have eight bits, at D 64 f16's (by e4m3 they are 0.025 off, linear between powers of two 0.012). Also where the first 40 see no key."""
    for D, H, Sk in ((64, 16, 4096), (64, 16, 4056), (128, 16, 4096), (128, 16, 4056), (256, 8, 4096), (256, 8, 4056)):
        g, rows, keys = torch.Generator(dev).manual_seed(D + Sk), 128, 128 + Sk - 4096
        (q8, qs, q), (k8, ks, k), (v8, vs, v) = (quantised(torch.randn(4, H, n, D, device=dev, generator=g), "head") for n in (4096, Sk, Sk))
        got, (want, _) = w.sdpa_fp8(q8, k8, v8, qs, ks, vs, causal=True)[:, :, :rows].double(), oracle(q[:, :, :rows], k[:, :, :keys], v[:, :, :keys], True, D ** -0.5)
        off = float((got - want).norm() / want.norm())
        assert off < 0.006 and not bool(got[:, :, :rows - keys].any()), (D, Sk, off)


def check_far_scales():
    """Scales of V by block that differ by ten orders of magnitude, or are all large or small: nothing is infinite and nothing is lost, where parts of sums are exchanged in 16 bits and where weights are, too. In every regime."""
    shapes = (dict(Sq=1, Sk=9000), dict(Sq=4, Sk=3000, Hkv=2, D=128), dict(Sq=5, Sk=9000, D=256), dict(Sq=1024, Sk=1024, Hq=4, Hkv=2), dict(Sq=1024, Sk=1024, Hq=4, Hkv=2, D=128), dict(Sq=40, Sk=5000, Hkv=2, D=256), dict(Sq=40, Sk=5000, Hkv=2), dict(B=4, Sq=1000, Sk=1000, Hq=16, Hkv=16),
              dict(Sq=2000, Sk=2000, D=128), dict(Sq=700, Sk=900, D=256), dict(Sq=100, Sk=300))
    for shape in shapes:
        B, Hq, Hkv, Sq, Sk, D = ({**dict(B=1, Hq=8, Hkv=8, Sq=512, Sk=512, D=64), **shape}[n] for n in ("B", "Hq", "Hkv", "Sq", "Sk", "D"))
        (q8, qs, q), (k8, ks, k), (v8, vs, _) = (quantised(torch.randn(B, H, S, D, device=dev), "block") for H, S in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk)))
        for even, odd in ((1e4, 1e-6), (1e-6, 1e4), (1e5, 3e5), (1e-9, 1e-9)):
            s = torch.full_like(vs, even)
            s[:, :, 1::2] = odd
            v = v8.double() * wide_scale(s, Sk).double()
            for causal in (False, True):
                want = oracle(q, k, v, causal, D ** -0.5)
                for out, lse in (w.sdpa_fp8(q8, k8, v8, qs, ks, s, causal=causal, return_lse=True), (w.sdpa_fp8(q8, k8, v8, qs, ks, s, causal=causal), None)):
                    why = judge(out, lse, *want)
                    assert not why, (shape, even, odd, causal, lse is None, why)


def check_zero_scales():
    """A scale of exactly 0, beside masked keys: all keys that a row sees weigh the same, or what is seen is 0. In every regime."""
    shapes = (dict(Sq=100, Sk=90), dict(B=2), dict(Sq=1, Sk=9000, Hq=32), dict(Sq=4, Sk=3000, Hq=32, D=128), dict(Sq=40, Sk=3000, Hkv=2), dict(Sq=40, Sk=3000, Hkv=2, D=128), dict(Sq=40, Sk=3000, Hkv=2, D=256), dict(Sq=700, Sk=900, D=128),
              dict(B=4, Hq=16, Hkv=16, Sq=1024, Sk=1000), dict(B=2, Hq=16, Hkv=16, Sq=2048, Sk=2048), dict(Sq=300, Sk=600, D=256),
              dict(Sq=1030, Sk=700, Hq=16, Hkv=2, D=256), dict(Sq=1030, Sk=700, Hq=16, Hkv=2, D=128))
    for kind in ("head", "block"):
        for shape in shapes:
            B, Hq, Hkv, Sq, Sk, D = ({**dict(B=1, Hq=8, Hkv=8, Sq=512, Sk=512, D=64), **shape}[n] for n in ("B", "Hq", "Hkv", "Sq", "Sk", "D"))
            for zero in range(3):
                codes, scales, values = [], [], []
                for i, (H, S) in enumerate(((Hq, Sq), (Hkv, Sk), (Hkv, Sk))):
                    c, s, _ = quantised(torch.randn(B, H, S, D, device=dev), kind)
                    if i == zero:
                        s[:, 0] = 0
                    codes.append(c), scales.append(s), values.append(c.double() * wide_scale(s, S).double())
                for causal in (False, True):
                    want = oracle(*values, causal, D ** -0.5)
                    for out, lse in (w.sdpa_fp8(*codes, *scales, causal=causal, return_lse=True), (w.sdpa_fp8(*codes, *scales, causal=causal), None)):
                        why = judge(out, lse, *want)
                        assert not why, (shape, kind, "qkv"[zero], causal, lse is None, why)
                        if zero == 2:
                            assert (out[:, 0] == 0).all(), (shape, kind, causal, lse is None, "values of scale 0")


def check_graph_trees():
    """torch.compile's own graphs, whose pool may keep nothing but outputs: neither templates of results nor counters, made there for the first time."""
    from warpsmith.attention import _memory
    _memory._pools.clear()
    _memory._ones.clear()
    for Sq, Sk in ((300, 300), (1, 9000), (1200, 1200)):
        f = lambda *a: w.sdpa_fp8(*a, causal=True).float() * 2
        g = torch.compile(f, mode="reduce-overhead")
        for _ in range(4):
            t = inputs(Sq=Sq, Sk=Sk)
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(g(*t).clone(), f(*t)), (Sq, Sk)


def check_compile():
    t = inputs(Sq=300, Sk=300)
    for f in (lambda *a: w.sdpa_fp8(*a, causal=True) * 2, lambda *a: w.sdpa_fp8(*a, return_lse=True)[1] + 1,
              lambda q, k, v, qs, ks, vs: w.sdpa_fp8_packed(q, w.pack_kv(k.to(torch.bfloat16), v.to(torch.bfloat16)), qs),
              lambda q, k, v, qs, ks, vs: w.sdpa_fp8_packed(q.to(torch.float16), w.pack_kv(k.to(torch.float16), v.to(torch.float16)), softmax_scale=1e-4, out_dtype=torch.float16)):
        assert torch.allclose(torch.compile(f, fullgraph=True, backend="aot_eager")(*t), f(*t), atol=1e-3, rtol=1e-2)
    long = inputs(Sq=1200, Sk=1200)   # one kernel with the log-sum-exp, another one without
    f = lambda *a: (w.sdpa_fp8(*a), *w.sdpa_fp8(*a, return_lse=True), w.sdpa_fp8(*a))
    assert all(map(torch.equal, torch.compile(f, fullgraph=True, backend="aot_eager")(*long), f(*long)))
    for S in (2304, 256):   # packed, and by heads' scales
        x = [torch.randn(1, 4, S, 64, device=dev, dtype=torch.float16) for _ in range(3)]
        assert torch.allclose(torch.compile(lambda *a: w.sdpa(*a), fullgraph=True, backend="aot_eager")(*x), w.sdpa(*x), atol=1e-3)
        torch.library.opcheck(torch.ops.warpsmith.sdpa_unmasked, (*x, True), test_utils="test_faketensor")
    assert torch.allclose(torch.compile(lambda *a: w.sdpa(*a, is_causal=True), fullgraph=True, backend="aot_eager")(*x), w.sdpa(*x, is_causal=True), atol=1e-3)
    torch.library.opcheck(torch.ops.warpsmith.sdpa_fp8, tuple(t), test_utils="test_faketensor")
    wide = torch.randn(2, 2, 301, 160, device=dev, dtype=torch.bfloat16)
    for y in (x[0], x[0].transpose(1, 2).contiguous().transpose(1, 2), wide[:, :, 1:, :64], wide[:, :, 1:, 1:65], wide[..., :72].float(), x[0].transpose(2, 3)):   # with V^T and without
        for kind in ("block", "head"):
            torch.library.opcheck(torch.ops.warpsmith.pack_kv, (y, y, kind), test_utils="test_faketensor")


def check_errors():
    """Wrong arguments raise, and the context lives."""
    t = inputs()
    for i, x in ((0, t[0].to(torch.bfloat16)), (1, t[1][:, :3]), (3, t[3].cpu()), (2, None), (3, None), (5, t[5].double())):
        bad = list(t)
        bad[i] = x
        try:
            w.sdpa_fp8(*bad)
            raise AssertionError(f"argument {i} was taken")
        except (TypeError, ValueError):
            pass
    # Lengths, pages and offsets out of range give wrong values at worst.
    q, k, v, qs, ks, vs = inputs(B=2, Sq=1, Sk=4096, Hkv=2)
    k, v = (x.view(torch.uint8).transpose(1, 2).contiguous().view(E4) for x in (k, v))
    wild = torch.tensor([1 << 30, -5], dtype=torch.int32, device=dev)
    w.decode_fp8(q, k, v, qs, ks, vs, wild)
    pool = k.view(torch.uint8).reshape(-1, 64, 2, 64).view(E4)
    w.decode_fp8(q, pool, pool, qs, ks, vs, wild.abs(), page_table=torch.full((2, 64), -(1 << 30), dtype=torch.int32, device=dev))
    flat = [x[0].transpose(0, 1) for x in inputs()[:3]]
    w.sdpa_fp8_varlen(*flat, *(torch.ones((), device=dev),) * 3, *(torch.tensor([-4, 1 << 30], dtype=torch.int32, device=dev),) * 2, 512, 512)
    torch.cuda.synchronize()
    import numpy as np   # noqa: F401  an array that is on no device
    try:
        w.sdpa_fp8(np.zeros((1, 1, 1, 64), np.uint8), *t[1:])
        raise AssertionError("a NumPy array was taken")
    except (TypeError, ValueError):
        pass
    try:
        import cupy
        as_bytes = [cupy.from_dlpack(x.view(torch.uint8)) for x in t[:3]]
        assert torch.equal(w.sdpa_fp8(*as_bytes, *(cupy.from_dlpack(x) for x in t[3:])), w.sdpa_fp8(*t))
    except ImportError:
        print("cupy is not installed: not checked")


PACKING = [(2, 8, 2048, 64), (4, 16, 4096, 64), (4, 16, 4096, 128), (1, 16, 16384, 128), (4, 8, 4096, 256)]


def replayed_us(functions, calls=10, rounds=25):
    """The median time of a call of each, by graphs of several calls that are replayed in random order: the card's clock falls while heavy kernels run."""
    graphs = {}
    for name, f in functions.items():
        f()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(calls):
                f()
    times, order = {name: [] for name in graphs}, list(graphs)
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(rounds + 2):
        random.shuffle(order)
        for name in order:
            a.record()
            graphs[name].replay()
            b.record()
            b.synchronize()
            times[name].append(a.elapsed_time(b) * 1000 / calls)
    return {name: statistics.median(t[2:]) for name, t in times.items()}


def packing_case(r, g, n=None):
    """What check_packing will launch, for `prebuild`."""
    B, H, S, D = PACKING[r.randrange(len(PACKING)) if n is None else n // 2 % len(PACKING)]
    x = torch.randn(B, H, S, D, device=dev, dtype=torch.bfloat16)
    causal, wide = (bool(n % 2), n >= 2 * len(PACKING)) if n is not None else (r.random() < 0.5, r.random() < 0.5)
    w.sdpa_fp8_packed(x if wide else w.quantize_fp8(x, "block")[0], w.pack_kv(x, x), None if wide else torch.ones((), device=dev), causal=causal)


def check_packing():
    """From bf16 to the output, beside torch's: attention alone, of codes and of queries in bf16 (wide); all with queries quantised apart; the whole with queries as they are; and
    packing alone, in bytes per second."""
    for B, H, S, D in PACKING:
        q, k, v = (torch.randn(B, H, S, D, device=dev, dtype=torch.bfloat16) for _ in range(3))
        n, name = q.numel(), f"{B}x{H}x{S}x{D}"
        rate = lambda us, bytes: f"{us:.1f} us ({bytes / us / 1e6:.2f} TB/s)"
        parts = [w._fused.Part(k, True), w._fused.Part(v, True, False, True)]
        alone = replayed_us(dict(pack_kv=lambda: w.pack_kv(k, v), quantize_fp8=lambda: w.quantize_fp8(q, "block"), parts=lambda: w._fused.pack(parts)))
        print(f"packing {name}: pack_kv {rate(alone['pack_kv'], 7 * n)}, quantize_fp8 {rate(alone['quantize_fp8'], 3 * n)}, k and v as sdpa wants them {rate(alone['parts'], 6 * n)}", flush=True)
        (q8, qs), kv = w.quantize_fp8(q, "block"), w.pack_kv(k, v)
        for causal in (False, True):
            def apart():
                codes, scale = w.quantize_fp8(q, "block")
                return w.sdpa_fp8_packed(codes, w.pack_kv(k, v), scale, causal=causal)
            rows = dict(torch=lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal), attention=lambda: w.sdpa_fp8_packed(q8, kv, qs, causal=causal), wide=lambda: w.sdpa_fp8_packed(q, kv, causal=causal), apart=apart,
                        whole=lambda: w.sdpa_fp8_packed(q, w.pack_kv(k, v), causal=causal), sdpa=lambda: w.sdpa(q, k, v, is_causal=causal))
            us = replayed_us(rows)
            print(f"    {'causal' if causal else 'full'}: " + ", ".join(f"{what} {t:.1f} us ({us['torch'] / t:.2f}x)" for what, t in us.items()), flush=True)


CHECKS = dict(packing=check_packing, graph=check_graph, streams=check_streams, chain=check_chain, repeats=check_repeats, first_rows=check_first_rows, compile=check_compile, graph_trees=check_graph_trees, errors=check_errors, zeros=check_zero_scales, far_scales=check_far_scales, far_logits=check_far_logits, stairs=check_stairs, eager=check_eager, launcher=check_launcher, launcher_of_lengths=check_launcher_of_lengths, launcher_of_packing=check_launcher_of_packing)


class _Recorded(Exception):
    pass


def prebuild(cases, count, seed, jobs):
    """Compiles what the cases will ask for, all at once: each is run up to its first launch of attention."""
    import prebuild as builder
    wanted, real = {}, w._kernels.kernel
    def record(choice, device, entry=None):
        if choice.file in ("quantise", "pack", "transpose"):   # of several launches of a call, attention is the last
            return real(choice, device, entry)
        if w._kernels._embedded is None or w._kernels._embedded(w._kernels.target(choice), choice.name) is None:   # a wheel carries most
            wanted[choice.file, choice.defines] = None
        raise _Recorded
    if w._kernels._embedded is None:   # each case packs
        builder.compile_all([("pack", (("WS_D", D), ("WS_KIND", kind))) for D in (64, 128, 256) for kind in range(3)] + [("transpose", (("WS_D", D),)) for D in (128, 256)], jobs)
    w._kernels.kernel = record
    try:
        for f in cases:
            for n in range(4 * len(PACKING) if f is packing_case else count):
                try:
                    f(random.Random(seed * 100000 + n), torch.Generator(dev).manual_seed(seed * 100000 + n), **({"n": n} if f is packing_case else {}))
                except _Recorded:
                    pass
                except Exception:   # the real run reports it
                    pass
    finally:
        w._kernels.kernel = real
    start = time.time()
    size = builder.compile_all(list(wanted), jobs) if wanted else 0
    print(f"{len(wanted)} instances, {size >> 10} KiB, {time.time() - start:.1f} s", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cases", type=int, default=60)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--seconds", type=float, default=30, help="for each kind of case")
    ap.add_argument("--only", default="")
    ap.add_argument("--jobs", type=int, default=8, help="compilers at a time")
    ap.add_argument("--launches", type=int, default=LAUNCHES, help="of each regime, by the check `repeats`")
    a = ap.parse_args()
    globals()["LAUNCHES"] = a.launches
    failed = 0
    wanted = lambda name: not a.only or name in a.only.split(",")
    if w._kernels._embedded is None:   # else there is little to build, and asking all cases takes a minute
        prebuild([f for n, f in CASES.items() if wanted(n)] + [packing_case] * wanted("packing"), a.cases, a.seed, a.jobs)
    for name, f in CASES.items():
        if a.only and name not in a.only.split(","):
            continue
        start, n, bad = time.time(), 0, 0
        while n < a.cases and time.time() - start < a.seconds and bad < 8:
            seed = a.seed * 100000 + n
            n += 1
            try:
                why, case = f(random.Random(seed), torch.Generator(dev).manual_seed(seed))
                torch.cuda.synchronize()
            except Exception as e:
                why, case = f"{type(e).__name__}: {e}", traceback.format_exc(limit=-3)
            if why:
                bad += 1
                print(f"FAILED {name} seed {seed}: {why}: {case}", flush=True)
        failed += bad
        print(f"{name}: {n - bad} of {n} right, {time.time() - start:.1f} s", flush=True)
    for name, f in CHECKS.items():
        if a.only and name not in a.only.split(","):
            continue
        start = time.time()
        try:
            f()
            print(f"{name}: right, {time.time() - start:.1f} s", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {name}:", traceback.format_exc(limit=-4), flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
