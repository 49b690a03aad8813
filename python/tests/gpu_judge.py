"""What tests on a GPU judge by: inputs, their layouts, f64 attention, and what may differ from it. Needs torch and a GPU."""
import math

import torch

from warpsmith import attention as w

E4, dev = torch.float8_e4m3fn, "cuda"


def draw(shape, dist, g):
    x = torch.randn(shape, device=dev, generator=g)
    if dist == "uniform":   # scores hardly differ
        return x.uniform_(-1, 1, generator=g)
    if dist == "outliers":
        x += torch.where(torch.rand(shape, device=dev, generator=g) < 1e-3, 50 * torch.randn(shape, device=dev, generator=g), torch.zeros((), device=dev))
    elif dist == "shifted":
        x += 3 * torch.randn(shape[0], shape[1], 1, shape[3], device=dev, generator=g)
    return x


def layout(x, how):
    """The same values with other strides."""
    b = x.view(torch.uint8)
    B, H, S, D = b.shape
    if how == "bshd":
        b = b.transpose(1, 2).contiguous().transpose(1, 2)
    elif how == "sliced":
        wide = torch.zeros(B, H + 1, S + 3, 2 * D, dtype=torch.uint8, device=dev)
        wide[:, 1:, 2:S + 2, D:] = b
        b = wide[:, 1:, 2:S + 2, D:]
    elif how == "odd":   # an address and strides that are no multiples of 16
        wide = torch.zeros(B * H * S * (D + 1) + 1, dtype=torch.uint8, device=dev)
        y = wide.as_strided((B, H, S, D), (H * S * (D + 1), S * (D + 1), D + 1, 1), 1)
        y.copy_(b)
        b = y
    return b.view(E4)


def wide_scale(s, S):
    return s[..., None, None].expand(1, 1, 1, 1) if s.dim() == 0 else s[:, :, None, None] if s.dim() == 2 else s.repeat_interleave(128, 2)[:, :, :S, None]


def oracle(q, k, v, causal, scale):
    """f64 (B, H, S, D) and lse, bottom-right."""
    g = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    s = q @ k.transpose(2, 3) * scale
    if causal:
        i, j = torch.arange(q.shape[2], device=dev)[:, None], torch.arange(k.shape[2], device=dev)
        s = s.masked_fill(j > i + k.shape[2] - q.shape[2], -math.inf)
    lse = torch.logsumexp(s, -1)
    return torch.nan_to_num(torch.softmax(s, -1)) @ v, lse


def judge(out, lse, want, want_lse, out_scale=None, limit=0.075):
    """None, or what is wrong."""
    o = out.double() * (out_scale or 1.0)
    if not torch.isfinite(o).all():
        return "not finite"
    blind = torch.isinf(want_lse)
    if (o[blind] != 0).any():
        return "a row that sees no key is not 0"
    if out_scale:
        want = want.clamp(-448 * out_scale, 448 * out_scale)
    rel = float((o - want).norm() / want.norm().clamp_min(1e-30))
    if not rel < limit + (0.03 if out.dtype == E4 else 0):
        return f"relF {rel:.4f}"
    if lse is not None:
        if (torch.isinf(lse) != blind).any():
            return "lse: infinite elsewhere"
        # The tensor core keeps 13 bits of a sum: large scores are off in proportion.
        d = (lse.double() - want_lse)[~blind].abs().max() - 2e-3 * want_lse[~blind].abs().max() if (~blind).any() else 0.0
        if d > 0.02:
            return f"lse off by {float(d):.4f}"
    return None


def quantised(x, kind):
    codes, s = w.quantize_fp8(x, kind)
    return codes, s, codes.double() * wide_scale(s, x.shape[2]).double()


def twice(call):
    """What a call gives, and whether a second one, which a wheel's launcher makes by what it was told of the first, gives something else."""
    first, second = call(), call()
    pairs = zip(*((x if isinstance(x, tuple) else (x,)) for x in (first, second)))
    return first, None if all(a is b is None or a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(*map(as_bytes, (a, b))) for a, b in pairs) else "the second call differs"


def as_bytes(x):
    return x.contiguous().reshape(-1).view(torch.uint8)


def inputs(B=1, Hq=8, Hkv=8, Sq=512, Sk=512, D=64):
    return [x for pair in zip(*(w.quantize_fp8(torch.randn(B, h, s, D, device=dev)) for h, s in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk)))) for x in pair]
