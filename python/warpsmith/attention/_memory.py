"""Counters of kernels that several CTAs finish together, and how memory for results and scratch is asked for.

A counter is zero between launches, as the last CTA of a unit puts it back; so launches that may run at once must not share any. Eager
launches of one stream follow each other and share a slot; a launch that a graph captures keeps its own for ever, as graphs may run beside
each other. Where the pool is used up, counters are zeroed on the stream instead: slower, always right.
"""
import threading

import torch

_UNITS, _SLOTS, _CAPTURED = 16384, 64, 1 << 22   # counters of a slot, slots for streams, counters for graphs (16 MB; a decode takes at most 15,840)
_pools = {}
_lock = threading.Lock()


def like_one(dtype, device, shape):
    """One element that looks like all of `shape`: empty_like of it is what torch.empty does, in half of the time."""
    return torch.empty(1, dtype=dtype, device=device).expand(shape)


class _Pool:
    def __init__(self, device):
        self.memory = torch.zeros(_SLOTS * _UNITS + _CAPTURED, dtype=torch.int32, device=device)
        torch.cuda.current_stream(device).synchronize()   # once: other streams use it from now on
        self.slots, self.captured = {}, _SLOTS * _UNITS


def counters(units, device, stream):
    """An int32 tensor of at least `units` zeros for a launch on this stream."""
    pool = _pools.get(device.index)
    slot = pool.slots.get(stream) if pool is not None else None
    capturing = torch._C._cuda_isCurrentStreamCapturing()
    if slot is not None and not capturing and units <= _UNITS:
        return slot
    with _lock:
        pool = _pools.get(device.index)
        if pool is None and not capturing:
            pool = _pools[device.index] = _Pool(device)
        if pool is not None and capturing:
            first, pool.captured = pool.captured, pool.captured + units
            if pool.captured <= pool.memory.numel():
                return pool.memory[first:pool.captured]
            pool.captured = first
        elif pool is not None and units <= _UNITS and len(pool.slots) < _SLOTS:
            n = len(pool.slots)
            return pool.slots.setdefault(stream, pool.memory[n * _UNITS:(n + 1) * _UNITS])
    return torch.zeros(units, dtype=torch.int32, device=device)
