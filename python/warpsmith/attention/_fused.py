"""One launch of pack.cu: scales for each 128 tokens, codes, means and V^T of up to three tensors, of which each is read once.

Head dimensions of attention only. Knows tensors that were checked; what it does not take is _pack.py's to do otherwise.
"""
import ctypes
import functools
import struct
import threading
from typing import NamedTuple

import torch

from . import _arguments, _driver, _heuristic, _kernels, _known, _memory
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
    """Whether x lies on a card of that kind, whose attention may take V^T."""
    return x.is_cuda and _major(x.device.index) == 9


def has_kernels(x):
    """Whether x lies on a card for which there are kernels: Ampere or later."""
    return x.is_cuda and _major(x.device.index) >= 8


@functools.lru_cache(maxsize=64)
def _major(index):
    """Of a device's compute capability; 0 where there is no device, only tensors without data that say so."""
    return torch.cuda.get_device_properties(index).major if torch.cuda.is_available() else 0


def takes(x):
    """Whether the kernel can read a tensor of this kind, its address aside: tensors without data are asked too."""
    if x.dim() != 4 or x.shape[3] not in _arguments.HEAD_DIMS or x.dtype not in KINDS or not has_kernels(x):
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


def _key(parts, kind):
    return tuple((p.x.shape, p.x.stride(), *p[1:]) for p in parts), kind, parts[0].x.device


def _launch(parts, kind):
    parts = [p if p.x.data_ptr() % 16 == 0 else p._replace(x=p.x.detach().clone()) for p in parts]
    key = _key(parts, kind)
    try:
        plans = _local.plans
    except AttributeError:
        plans = _local.plans = {}
    with torch.cuda.device(parts[0].x.device):
        plan = plans.get(key)
        if plan is None:
            if len(plans) >= _PLANS:
                plans.clear()
            plan = plans[key] = _Plan(parts, kind)
        return plan([p.x for p in parts])


def known_plan(parts):
    """That of a launch that this thread has made, if one launch took these as they are."""
    kinds = {p.x.dtype for p in parts}
    if len(kinds) > 1 or any(p.x.data_ptr() % 16 for p in parts):
        return None
    return getattr(_local, "plans", {}).get(_key(parts, KINDS[kinds.pop()]))


class _Plan:
    """All of a launch that stays the same while shapes, strides and what is wanted do. Belongs to one thread: its block of parameters is filled in anew."""

    def __init__(self, parts, kind):
        self.device = device = parts[0].x.device
        _driver.bind_context(device.index)
        self.packs, self.kinds, blocks, heads = Packs(), [], [], []
        for t, p in zip(self.packs.of, parts):
            x, (B, H, S, D) = p.x, p.x.shape
            n = _heuristic.ceil_div(S, TOKENS)
            codes = torch.empty_like(x, dtype=E4M3, requires_grad=False, device="meta").stride() if p.codes else None   # dense tensors keep their layout
            self.kinds.append(Packed(codes and (E4M3, tuple(x.shape), codes), (torch.float32, (B, H, n), (H * n, n, 1)), (torch.float32, (B, H, D), (H * D, D, 1)) if p.centred else None,
                                     (E4M3, (B, H, D, TOKENS * n), (H * D * TOKENS * n, D * TOKENS * n, TOKENS * n, 1)) if p.transposed else None))
            t.x_b, t.x_h, t.x_s = x.stride()[:3]
            if codes is not None:
                t.c_b, t.c_h, t.c_s = codes[:3]
            t.H, t.heads, t.S, t.even = H, B * H, S, p.even
            blocks.append(n)
            heads.append(B * H)
        choice = _heuristic.Choice("pack", (("WS_D", D), ("WS_KIND", kind)), (), 2 * D, 0)
        self.kernel, self.grid, self.block = _kernels.kernel(choice, device.index), (max(blocks), max(heads), len(parts)), 2 * D
        self.launch = _driver.Launch(self.kernel, self.grid, self.block, [self.packs])
        self.makers = [Packed(*(kind and _memory.maker(kind[0], device, *kind[1:]) for kind in kinds)) for kinds in self.kinds]

    def __call__(self, tensors):
        """Launches on the current stream, for tensors like those that it was made for. -> Packed of each"""
        made = [Packed(*(maker and maker[0](*maker[1]) for maker in makers)) for makers in self.makers]
        for i, (x, result) in enumerate(zip(tensors, made)):
            codes, scale, mean, transposed = (0 if y is None else y.data_ptr() for y in result)
            _addresses(self.packs, i * _SIZE, x.data_ptr(), codes, transposed, scale, mean)
        self.launch(torch._C._cuda_getCurrentRawStream(self.device.index))
        return made

    def described(self, tensors, results):
        """The one launch, by where addresses come from: of the tensors, and Packed of what becomes of each."""
        words = {}
        for i, (x, r) in enumerate(zip(tensors, results)):
            words.update({i * _SIZE + getattr(Pack, name).offset: source for name, source in zip(("x", "codes", "transposed", "scale", "mean"), (x, r.codes, r.transposed, r.scale, r.mean))})
        return [_known.launch(self.kernel, self.grid, self.block, [_known.struct(self.packs, words)])]
