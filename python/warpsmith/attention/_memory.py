"""Counters of kernels that several CTAs finish together, and how memory for results and scratch is asked for.

A counter is zero between launches, as the last CTA of a unit puts it back; so launches that may run at once must not share any. Those of one
stream follow each other and share a slot: its eager ones, and its launches in one capture of a graph. Each capture keeps its own for ever, as
graphs may run beside each other. Where none is left, counters are zeroed on the stream instead: 2 us slower, always right.
"""
import functools
import math
import threading

import torch
import torch.utils.dlpack

from . import _driver

try:   # of torch's compiled code: (sizes, strides, dtype), on the current device, past the dispatcher
    from torch._C._dynamo.guards import _empty_strided_cuda as empty_strided
except ImportError:
    empty_strided = None

_UNITS, _SLOTS, _CAPTURED, _SCRATCH = 16384, 64, 1 << 20, 3 << 20   # counters of a slot, slots for streams, counters for captures at a time (a decode takes at most 15,840), bytes of a stream's scratch (it takes at most 2.2 MB)
_CAPTURES = 64   # captures whose slots are known: those that are under way
_pools, _ones = {}, {}
_lock = threading.Lock()
forgetters = []   # called where what `room` has said is to be asked for again


def _kept(n, device):
    """So many bytes of a device for the process's life: from the driver, as torch's allocator may be handing out a graph's pool (torch.compile's reduce-overhead),
    which may keep nothing that its outputs do not account for."""
    with _driver.relaxed_capture(), torch.cuda.device(device):
        _driver.bind_context(device.index)
        return torch.utils.dlpack.from_dlpack(_driver.kept_bytes(n, device.index))


def like_one(dtype, device, shape):
    """One element that looks like all of `shape`: empty_like of it is what torch.empty does, in half of the time."""
    one = _ones.get(device.index)
    if device.type != "cuda" or device.index is None:   # no card's own: a test's
        return torch.empty(1, dtype=dtype, device=device).expand(shape)
    if one is None:
        with _lock:
            one = _ones.get(device.index)
            if one is None:
                one = _ones[device.index] = _kept(16, device)
    return one.view(dtype)[:1].expand(shape)


@functools.lru_cache(64)
def _makes(dtype, device):
    """Whether `empty_strided` makes what is asked of it."""
    try:
        x = empty_strided((2, 3), (1, 2), dtype)
        return (type(x), x.dtype, x.device, tuple(x.shape), x.stride()) == (torch.Tensor, dtype, device, (2, 3), (1, 2))
    except (TypeError, RuntimeError):
        return False


def maker(dtype, device, shape, stride=None):
    """(function, arguments) that make a tensor of that kind, contiguous if no strides are given, where the device is the current one, as it is now."""
    shape, stride = tuple(shape), stride and tuple(stride)
    if stride is None:
        stride = tuple(math.prod(max(1, n) for n in shape[i + 1:]) for i in range(len(shape)))
    if _makes(dtype, device):
        return empty_strided, (shape, stride, dtype)
    return functools.partial(torch.empty_strided, shape, stride, dtype=dtype, device=device), ()


def _zeros(n, device):
    """Of an int32 tensor, for any stream; also while other streams are captured."""
    words = _kept(4 * n, device).view(torch.int32)
    with _driver.relaxed_capture():
        words.zero_()
        torch.cuda.current_stream(device).synchronize()
    return words


class _Pool:
    """A device's counters: made, and made anew for captures to come, by eager calls, as a capture cannot."""

    def __init__(self, device):
        self.memory, self.slots, self.scratch = _zeros(_SLOTS * _UNITS, device), {}, {}
        self.captures, self.kept = {}, []
        self.refill(device)

    def refill(self, device):
        self.fresh, self.used = _zeros(_CAPTURED, device), 0
        self.kept.append(self.fresh)   # graphs have its addresses

    def runs_low(self):
        return self.used * 2 > _CAPTURED

    def of_stream(self, units, stream):
        if stream not in self.slots and units <= _UNITS and len(self.slots) < _SLOTS:
            n = len(self.slots)
            self.slots[stream] = self.memory[n * _UNITS:(n + 1) * _UNITS]
        return self.slots.get(stream) if units <= _UNITS else None

    def of_capture(self, units, stream):
        key = _driver.capture_id(stream), stream
        slot = self.captures.get(key)
        if slot is not None and slot.numel() >= units:
            return slot
        wanted = max(units, 0 if slot is None else 2 * slot.numel())   # launches that want more and more take a slot each, but few
        if self.used + wanted > _CAPTURED:
            wanted = units
        if self.used + wanted > _CAPTURED:
            return None
        self.captures.pop(key, None)
        while len(self.captures) >= _CAPTURES:
            del self.captures[next(iter(self.captures))]
        self.captures[key] = self.fresh[self.used:self.used + wanted]
        self.used += wanted
        return self.captures[key]


def counters(units, device, stream):
    """An int32 tensor of at least `units` zeros for a launch on this stream."""
    pool = _pools.get(device.index)
    slot = pool.slots.get(stream) if pool is not None else None
    capturing = torch._C._cuda_isCurrentStreamCapturing()
    if slot is not None and not capturing and units <= _UNITS and not pool.runs_low():
        return slot
    with _lock:
        pool = _pools.get(device.index)
        if not capturing and pool is None:
            pool = _pools[device.index] = _Pool(device)
        elif not capturing and pool.runs_low():
            pool.refill(device)
        slot = None if pool is None else pool.of_capture(units, stream) if capturing else pool.of_stream(units, stream)
    if capturing and pool is not None and pool.runs_low():   # the next eager call shall come here
        for forget in forgetters:
            forget()
    return torch.zeros(units, dtype=torch.int32, device=device) if slot is None else slot


def room(device, stream):
    """What eager launches on this stream may share, as they follow each other, until `forgetters` are called: (address of zeros, how many, address of scratch, its bytes), or None where no slot is left."""
    counters(1, device, stream)
    with _lock:
        pool = _pools.get(device.index)
        slot = None if pool is None else pool.slots.get(stream)
        if slot is None:
            return None
        if stream not in pool.scratch:
            pool.scratch[stream] = _kept(_SCRATCH, device)
        return slot.data_ptr(), slot.numel(), pool.scratch[stream].data_ptr(), _SCRATCH
