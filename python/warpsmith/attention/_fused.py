"""One launch of pack.cu: scales for each 128 tokens, codes, means and V^T of up to three tensors, of which each is read once.

Hopper only, head dimensions of attention only. Knows tensors that were checked; what it does not take is _pack.py's to do otherwise.
"""
import ctypes
import functools
import struct
import threading
from typing import NamedTuple

import torch

from . import _arguments, _driver, _heuristic, _kernels, _memory
from ._arguments import E4M3
from ._params import Pack, Packs

KINDS = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
TOKENS = 128
_PLANS = 512
_SIZE = ctypes.sizeof(Pack)
_addresses = struct.Struct("5Q").pack_into   # the head of Pack
_local = threading.local()


class Part(NamedTuple):
    """A tensor (B, H, S, D) and what is wanted of it."""
    x: torch.Tensor
    centred: bool = False
    codes: bool = True
    transposed: bool = False
    even: int = 0   # scales are a head's as far as may be: pack.cu


class Packed(NamedTuple):
    """Codes of x's shape, scales (B, H, ceil(S / 128)), means (B, H, D) and V^T (B, H, D, 128 * ceil(S / 128)); None where not asked for."""
    codes: torch.Tensor
    scale: torch.Tensor
    mean: torch.Tensor
    transposed: torch.Tensor


def on_hopper(x):
    """Whether x lies on a card of that kind."""
    return x.is_cuda and _major(x.device.index) == 9


@functools.lru_cache(maxsize=64)
def _major(index):
    """Of a device's compute capability; 0 where there is no device, only tensors without data that say so."""
    return torch.cuda.get_device_properties(index).major if torch.cuda.is_available() else 0


def takes(x):
    """Whether the kernel can read a tensor of this kind, its address aside: tensors without data are asked too."""
    if x.dim() != 4 or x.shape[3] not in _arguments.HEAD_DIMS or x.dtype not in KINDS or not on_hopper(x):
        return False
    size = x.element_size()
    B, H, S, _ = x.shape
    return bool(B and H and S) and B * H <= 65535 and x.stride(3) == 1 and x.stride(2) * size < 1 << 31 and not any(s * size % 16 for s in x.stride()[:3])


def real(x):
    """Whether x has data that a kernel can be given."""
    return type(x) in (torch.Tensor, torch.nn.Parameter)


@torch.no_grad()
def pack(parts):
    """Packed of each part. Tensors of one dtype go together."""
    made = [None] * len(parts)
    for kind in dict.fromkeys(p.x.dtype for p in parts):
        which = [i for i, p in enumerate(parts) if p.x.dtype == kind]
        for i, result in zip(which, _launch([parts[i] for i in which], KINDS[kind])):
            made[i] = result
    return made


def _launch(parts, kind):
    parts = [p if p.x.data_ptr() % 16 == 0 else p._replace(x=p.x.detach().clone()) for p in parts]
    device = parts[0].x.device
    key = (tuple((p.x.shape, p.x.stride(), *p[1:]) for p in parts), kind, device)
    try:
        plans = _local.plans
    except AttributeError:
        plans = _local.plans = {}
    with torch.cuda.device(device):
        plan = plans.get(key)
        if plan is None:
            if len(plans) >= _PLANS:
                plans.clear()
            plan = plans[key] = _Plan(parts, kind)
        return plan([p.x for p in parts])


class _Plan:
    """All of a launch that stays the same while shapes, strides and what is wanted do. Belongs to one thread: its block of parameters is filled in anew."""

    def __init__(self, parts, kind):
        self.device = device = parts[0].x.device
        _driver.bind_context(device.index)
        self.packs, self.like, blocks, heads = Packs(), [], [], []
        for t, p in zip(self.packs.of, parts):
            x, (B, H, S, D) = p.x, p.x.shape
            n = _heuristic.ceil_div(S, TOKENS)
            one = lambda dtype, *shape: _memory.like_one(dtype, device, shape)
            codes = torch.empty_like(x, dtype=E4M3, requires_grad=False) if p.codes else None   # dense tensors keep their layout
            self.like.append(Packed(codes if codes is None else _same_strides(codes), one(torch.float32, B, H, n), one(torch.float32, B, H, D) if p.centred else None,
                                    one(E4M3, B, H, D, TOKENS * n) if p.transposed else None))
            t.x_b, t.x_h, t.x_s = x.stride()[:3]
            if codes is not None:
                t.c_b, t.c_h, t.c_s = codes.stride()[:3]
            t.H, t.heads, t.S, t.even = H, B * H, S, p.even
            blocks.append(n)
            heads.append(B * H)
        choice = _heuristic.Choice("pack", (("WS_D", D), ("WS_KIND", kind)), (), 2 * D, 0)
        grid = (max(blocks), max(heads), len(parts))
        self.launch = _driver.Launch(_kernels.kernel(choice, device.index), grid, 2 * D, [self.packs])

    def __call__(self, tensors):
        """Launches on the current stream, for tensors like those that it was made for. -> Packed of each"""
        made = [Packed(*(None if y is None else y() if callable(y) else torch.empty_like(y) for y in like)) for like in self.like]
        for i, (x, result) in enumerate(zip(tensors, made)):
            codes, scale, mean, transposed = (0 if y is None else y.data_ptr() for y in result)
            _addresses(self.packs, i * _SIZE, x.data_ptr(), codes, transposed, scale, mean)
        self.launch(torch._C._cuda_getCurrentRawStream(self.device.index))
        return made


def _same_strides(x):
    """A function that makes tensors like x, which is dense."""
    shape, stride, device = x.shape, x.stride(), x.device
    return lambda: torch.empty_strided(shape, stride, dtype=E4M3, device=device)
