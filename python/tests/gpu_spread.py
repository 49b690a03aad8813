"""decode.cu by equal stretches of all sequences' tiles (WS_SPREAD): random cases of whole caches and of parts of them, where the choice, which wants large caches, is told. For gpu_attention.py."""
import random

import torch

from gpu_judge import E4, dev, draw, inputs, judge, layout, oracle, quantised
from gpu_lengths import in_pages, judge_each, spoil_behind
from warpsmith import attention as w

h = w._heuristic


def spread_case(r, g):
    """By as many CTAs a head as it may be, or fewer, so that one has many units; by tiles that a unit's end counts for, from none to more than units have."""
    D = r.choice((64, 128, 256))
    most_rows = 8 if D == 256 else 16
    while True:
        B, Hkv, group, Sq = r.choice((1, 2, 3, 5, 9, 40)), r.choice((1, 2, 3, 8)), r.choice((1, 1, 2, 4, 5, 8, 16)), r.choice((1, 1, 1, 2, 3, 4, 7))
        most = r.choice((r.randint(1, 200), r.randint(1, 900), r.randint(1, 4000)))
        if group * Sq <= most_rows and B * Hkv * most <= 60000:
            break
    sms, ends, lengths = r.choice((132, 132, r.randint(Hkv, 132), Hkv)), r.choice((None, None, 0, 8, 64)), r.random() < 0.6
    causal, kind, with_lse = r.random() < 0.5, r.choice(("tensor", "head", "head", "block")), r.random() < 0.5
    page = r.choice((None, None, 64, 128, 192)) if lengths else None
    case = [B, Hkv, group, Sq, most, D, sms, ends, causal, kind, with_lse, page]
    def choice(s, page=None):
        c = h.choose_spread(s, sms, page, lengths)
        assert c is not None, s
        return c if ends is None else h.replace(c, section=ends)
    if not lengths:
        dist, dtype, hows = r.choice(("normal", "outliers", "shifted")), r.choice((torch.bfloat16, torch.float16, E4)), [r.choice(("plain", "bshd", "sliced", "odd")) for _ in range(3)]
        (q8, qs, q), (k8, ks, k), (v8, vs, v) = (quantised(draw(s, dist, g), kind) for s in ((B, Hkv * group, Sq, D), (B, Hkv, most, D), (B, Hkv, most, D)))
        t, out_scale = [layout(x, how) for x, how in zip((q8, k8, v8), hows)], 0.02 if dtype == E4 else None
        call = lambda: w.sdpa_fp8(*t, qs, ks, vs, causal=causal, out_dtype=dtype, out_scale=out_scale, return_lse=with_lse, _choice=choice)
        out, lse = call() if with_lse else (call(), None)
        again = call()
        if not torch.equal((again[0] if with_lse else again).view(torch.uint8), out.view(torch.uint8)):
            return "the second call differs", (*case, dist, dtype, hows)
        return judge(out, lse, *oracle(q, k, v, causal, D ** -0.5), out_scale), (*case, dist, dtype, hows)
    kind = "head" if kind == "tensor" else kind
    used = [r.choice((0, most, r.randint(1, most), r.randint(1, most))) for _ in range(B)]
    per_seq = -(-most // (page or most))
    Sk = per_seq * (page or most)
    q8, qs, q = quantised(draw((B, Hkv * group, Sq, D), "normal", g), "head")
    (k8, ks, k), (v8, vs, v) = (quantised(draw((B, Hkv, Sk, D), "normal", g), kind) for _ in range(2))
    caches, table = [x.view(torch.uint8).transpose(1, 2).contiguous() for x in (k8, v8)], None
    spoil_behind(caches, used)
    if page:
        caches, table = in_pages(caches, page, g)
    lens, places = torch.tensor(used, dtype=torch.int32, device=dev), w._ragged
    def call():
        ours, kept = h.choose_lengths, getattr(places._local, "plans", {})
        h.choose_lengths, places._local.plans = lambda s, _, page=None: h.with_lengths(choice(s, page), 1), {}
        try:
            scales = [s if s.dim() else s.expand(B, Hkv) for s in (ks, vs)]
            return places.run_decode((q8, *(x.view(E4) for x in caches), qs, *scales, lens, table), causal, D ** -0.5, torch.bfloat16, None, with_lse)
        finally:
            h.choose_lengths, places._local.plans = ours, kept
    out, lse = call() if with_lse else (call(), None)
    again = call()
    why = None if torch.equal(again[0] if with_lse else again, out) else "the second call differs"
    return why or judge_each(out, lse, used, q, k, v, causal), (*case, used)


def repeated_stretches():
    """Calls of which one CTA begins units and another one ends them."""
    dice, found = random.Random(1), []
    for B, D, Hkv, group in ((9, 64, 4, 2), (9, 128, 4, 4), (9, 128, 4, 12), (9, 256, 2, 8), (40, 128, 4, 4), (3, 128, 4, 4), (3, 256, 2, 8)):   # 40: more than may have CTAs of their own
        t = inputs(B=B, Hq=Hkv * group, Hkv=Hkv, Sq=1, Sk=1500, D=D)
        found.append((("stretches", B, D, group), lambda causal, t=t: w.sdpa_fp8(*t, causal=causal, _choice=h.choose_spread)))
        q, k, v, qs, ks, vs = t
        caches = [x.view(torch.uint8).transpose(1, 2).contiguous().view(E4) for x in (k, v)]
        used = torch.tensor([dice.choice((0, 1500, dice.randint(1, 1500))) for _ in range(B)], dtype=torch.int32, device=dev)
        def call(causal, q=q, caches=caches, scales=(qs, ks, vs), used=used):
            ours = h.choose_lengths
            h.choose_lengths = lambda s, *_: h.with_lengths(h.choose_spread(s, lengths=True), 1)
            try:
                with w._chosen.by_python():
                    return w._ragged.run_decode((q, *caches, *scales, used, None), causal, q.shape[3] ** -0.5, torch.bfloat16, None, False)
            finally:
                h.choose_lengths = ours
        found.append((("stretches, lengths", B, D, group), call))
    return found
