"""Calls that the wheel's `_native` makes by itself: it is asked first, and told of them afterwards. Knows launches, and nothing of what they do.

`launcher.call(kind, tensors, options)` makes a call that is just like one that it was told of (tensors of the same layouts, options of the same values), or gives None. It is told of launches, and where each
address in them comes from: a source is `tensor(i)` of the call, `result(i)`, or so many bytes into its `scratch` or `counters`.
"""
import ctypes

import torch

from . import _memory

DENSE, VARLEN, DECODE, PACKED, QUANTISE, PACK, UNMASKED = range(7)   # whose call it is


def new_launcher(of):
    """One that knows no call yet; `of` is its type."""
    devices = [getattr(torch._C, name, None) for name in ("_cuda_getDevice", "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice")]
    return of(torch.Tensor, torch.dtype, torch.is_grad_enabled, _memory.counters, _memory.room, tuple(devices) if all(devices) else None)


try:
    from .._native import Launcher
    launcher = new_launcher(Launcher)
    _memory.forgetters.append(launcher.forget)
except (ImportError, AttributeError, RuntimeError):   # a checkout, or a torch without the interface that it wants
    launcher = None


def tensor(i):
    return "tensor", i


def result(i):
    return "result", i


def scratch(at):
    return "scratch", at


def counters(at):
    return "counters", 4 * at


def laid_out(kinds, at=0):
    """Places in scratch, from a byte on, for tensors of these (dtype, shape, strides), or None. -> their sources, and the end"""
    sources = []
    for kind in kinds:
        sources.append(kind and scratch(at))
        if kind:
            dtype, shape, stride = kind
            at += -(-dtype.itemsize * (1 + sum((n - 1) * s for n, s in zip(shape, stride))) // 256) * 256
    return sources, at


def struct(x, addresses):
    """An argument: a ctypes struct whose words at these bytes are addresses from there, or null."""
    words = bytearray(ctypes.string_at(ctypes.addressof(x), ctypes.sizeof(x)))
    for at in addresses:
        words[at:at + 8] = bytes(8)
    return "struct", bytes(words), [(at, source) for at, source in addresses.items() if source]


def tensor_map(shape, source):
    """An argument: a tensor map of that shape, or one that is not looked at."""
    return "map", shape, source


def launch(kernel, grid, block, arguments):
    """What Launcher takes for one."""
    return kernel.function, tuple(grid) + (1,) * (3 - len(grid)), block, kernel.shared_bytes, arguments, kernel.dependent


def knows(kind, tensors, options):
    """Whether the launcher was told of a call like this; None where it cannot be."""
    return None if launcher is None else launcher.knows(kind, tuple(tensors), tuple(options))


def tell(kind, tensors, options, launches, results, aligned, device, scratch_bytes=0, units=0):
    """results: (dtype, shape, strides or None) of each. aligned: which tensors lie on 16 bytes. -> whether the launcher will make such calls"""
    with torch.cuda.device(device):
        of_scratch = _memory.maker(torch.uint8, device, (scratch_bytes,)) if scratch_bytes else None
        return launcher.add(kind, tuple(tensors), tuple(options), launches, [_memory.maker(dtype, device, *shape) for dtype, *shape in results], sum(1 << i for i in aligned), device.index,
                            of_scratch, scratch_bytes, units)
