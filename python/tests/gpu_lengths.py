"""Sequences whose lengths only the device knows: random cases of sdpa_fp8_varlen and decode_fp8, and calls for the check of repeats. For gpu_attention.py."""
import contextlib
import math
import random

import torch

from gpu_judge import E4, as_bytes, dev, draw, inputs, judge, oracle, quantised
from warpsmith import attention as w


@contextlib.contextmanager
def forced(consumers, apart):
    """Within it calls run over V^T that is made before, by so many consumers, wherever they may, and few.cuh's row tiles are of one query head each; as chosen if None and False."""
    if not consumers and not apart:
        yield
        return
    h, t, ragged = w._heuristic, w._tokens, w._ragged
    real, ragged._local.plans = (h.made_ns, h.heads_apart, h.caches_of, t.of_rows, t.APART_FROM), {}
    if consumers:
        h.made_ns = lambda s, wgs, *_: -1 if wgs == consumers else real[0](s, wgs, *_)
    if apart:
        first = lambda f: lambda s, *a: (f(s, *a)[0] if s.shared == 1 else -2, f(s, *a)[1])
        h.heads_apart = lambda s: h.replace(s, Hkv=s.Hq, shared=s.group) if s.group > 1 and s.D == 256 else None
        h.caches_of, t.of_rows, t.APART_FROM = first(h.caches_of), first(t.of_rows), 0
    try:
        with w._chosen.by_python():
            yield
    finally:
        (h.made_ns, h.heads_apart, h.caches_of, t.of_rows, t.APART_FROM), ragged._local.plans = real, {}


def varlen_case(r, g):
    D, Hkv, group, B = r.choice((64, 128, 256)), r.choice((1, 2)), r.choice((1, 3, 4, 5, 7)), r.choice((1, 2, 3, 4, 5, 40))
    most = r.choice((300, 300, 1200)) if B < 10 else 60
    rows = r.choice((most, most, most, 1, 4))
    nq, nk = [r.choice((0, 1, r.randint(1, rows), 1 if r.random() < 0.9 else r.randint(1, most))) for _ in range(B)], [r.choice((0, r.randint(1, 400), r.randint(1, 1500))) for _ in range(B)]
    causal, dtype = r.random() < 0.5, r.choice((torch.bfloat16, torch.float16, E4))
    out_scale = 0.02 if dtype == E4 else None
    kind, with_lse = r.choice(("tensor", "head", "head", "block")), r.random() < 0.4
    before, behind, beside_k, made = r.choice((0, 0, 3)), r.choice((0, 0, 5, 100)), r.choice((0, 0, 7, 130)), r.choice((None, None, 2, 3))   # rows and, on both sides, keys of no sequence
    cu = lambda n, first=0: torch.tensor([first + sum(n[:i]) for i in range(len(n) + 1)], dtype=torch.int32, device=dev)
    mq, mk = max(nq), max(nk)
    parts = [[quantised(draw((1, h, max(n, 1), D), "normal", g), "head" if kind == "tensor" else kind) for n in ns] for h, ns in ((Hkv * group, nq), (Hkv, nk), (Hkv, nk))]
    def joined(ps, ns):
        rows = [p[0][0, :, :n].view(torch.uint8).transpose(0, 1) for p, n in zip(ps, ns)]
        return torch.cat(rows).contiguous().view(E4)
    def scales(ps, ns, most, H):
        if kind != "block":
            return torch.cat([p[1] for p in ps])
        s = torch.ones(B, H, -(-most // 128), device=dev)
        for i, p in enumerate(ps):
            m = min(s.shape[2], p[1].shape[2])
            s[i, :, :m] = p[1][0, :, :m]
        return s
    q8, k8, v8 = (joined(p, n) for p, n in zip(parts, (nq, nk, nk)))
    nothing = lambda n, H: torch.full((n, H, D), 0x7F, dtype=torch.uint8, device=dev)
    q8 = torch.cat([nothing(before, Hkv * group), q8.view(torch.uint8), nothing(behind, Hkv * group)]).view(E4)
    k8, v8 = (torch.cat([nothing(beside_k, Hkv), x.view(torch.uint8), nothing(beside_k, Hkv)]).view(E4) for x in (k8, v8))
    qs, ks, vs = (scales(p, n, m, h) for p, n, m, h in zip(parts, (nq, nk, nk), (mq, mk, mk), (Hkv * group, Hkv, Hkv)))
    mode, apart = r.choice(("default", "fast")), r.random() < 0.3
    call = lambda: w.sdpa_fp8_varlen(q8, k8, v8, qs, ks, vs, cu(nq, before), cu(nk, beside_k), mq, mk, causal=causal, out_dtype=dtype, out_scale=out_scale, return_lse=with_lse, mode=mode)
    with forced(made, apart):
        out, lse = call() if with_lse else (call(), None)
        why = None if torch.equal(as_bytes(out), as_bytes((call() if with_lse else (call(),))[0])) else "the second call differs"
    for rows in (slice(0, before), slice(before + sum(nq), None)):
        if (out[rows].float() != 0).any() or lse is not None and not (lse[:, rows] == -math.inf).all():
            why = why or "a row of no sequence is not 0"
    at = before
    for i in range(B):
        if nq[i]:
            o, l = out[at:at + nq[i]].transpose(0, 1)[None], None if lse is None else lse[:, at:at + nq[i]][None]
            if nk[i]:
                want = oracle(parts[0][i][2][:, :, :nq[i]], parts[1][i][2][:, :, :nk[i]], parts[2][i][2][:, :, :nk[i]], causal, D ** -0.5)
                why = why or judge(o, l, *want, out_scale)
            elif (o.float() != 0).any() or l is not None and not torch.isinf(l).all():
                why = why or "a sequence without keys is not 0"
        at += nq[i]
    return why, (nq, nk, Hkv, group, D, causal, dtype, kind, with_lse, before, behind, beside_k, made, apart, mode)


def judge_each(out, lse, used, q, k, v, causal, out_scale=None):
    """None, or what is wrong with the outputs of sequences, each with as many keys as `used` says; of such as have none, they are 0 and -inf."""
    for b, n in enumerate(used):
        o, l = out[b:b + 1], None if lse is None else lse[b:b + 1]
        if n:
            why = judge(o, l, *oracle(q[b:b + 1], k[b:b + 1, :, :n], v[b:b + 1, :, :n], causal, q.shape[3] ** -0.5), out_scale)
        else:
            why = "a sequence without keys is not 0" if (o.float() != 0).any() or l is not None and not torch.isinf(l).all() else None
        if why:
            return why
    return None


def spoil_behind(caches, used):
    """Caches (B, Sk, Hkv, D) as bytes: NaN behind each sequence's keys."""
    for x in caches:
        for b, n in enumerate(used):
            x[b, n:] = 0x7F


def in_pages(caches, page, g):
    """The same by pages in a random order, NaN where nothing was stored, with the table of pages."""
    B, Sk, Hkv, D = caches[0].shape
    pages = B * (Sk // page)
    order, pools = torch.randperm(pages + 3, device=dev, generator=g)[:pages], []
    for x in caches:
        pools.append(torch.full((pages + 3, page, Hkv, D), 0x7F, dtype=torch.uint8, device=dev))
        pools[-1][order] = x.view(pages, page, Hkv, D)
    return pools, order.view(B, Sk // page).to(torch.int32)


def decode_case(r, g):
    D, Hkv, group, B, Sq = r.choice((64, 128, 256)), r.choice((1, 2, 4)), r.choice((1, 3, 4, 5, 6, 7, 8)), r.randint(1, 4), r.choice((1, 1, 2, 5, 9, 30, 70, 200, 500))
    page = r.choice((None, None, 8, 16, 32, 64, 128, 256, 48))
    most = r.choice((200, 1000, 5000))
    used = [r.choice((0, r.randint(1, most), most)) for _ in range(B)]
    causal, kind, with_lse = r.random() < 0.5, r.choice(("head", "head", "block")), r.random() < 0.5
    per_seq = -(-most // (page or most))
    Sk = per_seq * (page or most)
    q8, qs, q = quantised(draw((B, Hkv * group, Sq, D), "normal", g), "head")
    (k8, ks, k), (v8, vs, v) = (quantised(draw((B, Hkv, Sk, D), "normal", g), kind) for _ in range(2))
    caches, table = [x.view(torch.uint8).transpose(1, 2).contiguous() for x in (k8, v8)], None
    if page:
        caches, table = in_pages(caches, page, g)
    else:
        spoil_behind(caches, used)
    kc, vc = caches
    lens, mode, made, apart = torch.tensor(used, dtype=torch.int32, device=dev), r.choice(("default", "fast")), r.choice((None, None, 2, 3)), r.random() < 0.3
    dtype = r.choice((torch.bfloat16, torch.float16, E4))
    out_scale = 0.02 if dtype == E4 else None
    call = lambda: w.decode_fp8(q8, kc.view(E4), vc.view(E4), qs, ks, vs, lens, page_table=table, causal=causal, out_dtype=dtype, out_scale=out_scale, return_lse=with_lse, mode=mode)
    with forced(made, apart):
        out, lse = call() if with_lse else (call(), None)
        again = call() if with_lse else (call(), None)   # by the plan that the first one left
    why = None if torch.equal(as_bytes(out), as_bytes(again[0])) and (lse is None or torch.equal(lse, again[1])) else "the second call differs"
    return why or judge_each(out, lse, used, q, k, v, causal, out_scale), (used, Sq, Sk, Hkv, group, D, page, causal, dtype, kind, with_lse, made, apart, mode)


def repeated_lengths(D):
    """Calls whose row tiles are drawn by whichever CTA is free: sequences of many lengths one behind another, few with long keys, and a prompt's last part over pages."""
    dice, found = random.Random(D), []
    for name, lengths_q, lengths_k in (("varlen", [dice.randint(0, 700) for _ in range(24)], None), ("varlen, long ones", [8000, 300, 4100], None), ("varlen, few rows", [20, 0, 7], [9000, 500, 4000]), ("varlen, a prompt", [64] + [1] * 30, [3000] + [dice.randint(1, 900) for _ in range(30)]),
                                      ("varlen, tokens", [dice.randint(0, 2) for _ in range(40)], [dice.randint(0, 1500) for _ in range(40)]), ("varlen, few tokens", [1, 2, 4], [9000, 1, 4000])):
        lengths_k = lengths_k or lengths_q
        cu = [torch.tensor([sum(n[:i]) for i in range(len(n) + 1)], dtype=torch.int32, device=dev) for n in (lengths_q, lengths_k)]
        t = [w.quantize_fp8(torch.randn(1, H, sum(n), D, device=dev), "tensor") for H, n in ((8, lengths_q), (2, lengths_k), (2, lengths_k))]
        t = [x[0].transpose(0, 1) for x, _ in t] + [s for _, s in t]
        found.append((name, lambda causal, t=t, cu=cu, most=(max(lengths_q), max(lengths_k)): w.sdpa_fp8_varlen(*t, *cu, *most, causal=causal)))
    long = inputs(B=2, Sq=2000, Sk=9000, Hkv=2, D=D)
    caches = [x.view(torch.uint8).transpose(1, 2).contiguous().view(E4) for x in long[1:3]]
    parts = torch.tensor([9000, 7001], dtype=torch.int32, device=dev)
    found.append(("long prompt", lambda causal: w.decode_fp8(long[0], *caches, *long[3:], parts, causal=causal)))
    q, k, v, qs, ks, vs = inputs(B=5, Sq=600, Sk=1536, Hkv=2, D=D)
    pool = [x.view(torch.uint8).transpose(1, 2).contiguous().view(-1, 64, 2, D).view(E4) for x in (k, v)]
    used = torch.tensor([1536, 700, 0, 1111, 64], dtype=torch.int32, device=dev)
    table = torch.randperm(5 * 24, device=dev).to(torch.int32).view(5, 24)
    return found + [("prompt", lambda causal: w.decode_fp8(q, *pool, qs, ks, vs, used, page_table=table, causal=causal))]
