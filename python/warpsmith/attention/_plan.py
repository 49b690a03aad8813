"""A plan: all of a call that does not change while shapes, strides and options stay the same, and the launch that it makes.

A plan belongs to one thread, as its parameter block is filled in anew for each call; the driver copies it at the launch. Nothing here
waits for the device. Strides of whole 16 bytes are taken as they are; `loadable` copies what has others.
"""
import ctypes
import math
import struct

import torch

from . import _arguments, _chosen, _driver, _heuristic, _kernels, _known, _memory, _portable
from ._params import Params, Values, aligned_tensor_maps
from ._transpose import Transposition

_LOG2E = math.log2(math.e)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)   # a torch without CUDA can still be imported
pack_addresses = struct.Struct("10Q").pack_into   # the head of Params
ADDRESSES = ("q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "lse", "partial", "arrived", "v_mean")   # of Params
_sms = {}


def sms(device):
    """The number of SMs of a Hopper device, 0 of another one from Ampere on. NotImplementedError for older ones."""
    found = _sms.get(device.index)
    if found is None:
        p = torch.cuda.get_device_properties(device)
        if p.major < 8:
            raise NotImplementedError(f"{p.name} has compute capability {p.major}.{p.minor}; these kernels need 8.0 or later")
        found = _sms[device.index] = p.multi_processor_count if (p.major, p.minor) == (9, 0) else 0
    return found


def portable(shape, device, lengths=False, tokens_q=None):
    """The portable kernel on this device; where only it knows lengths, of so many tokens one behind another, or of caches."""
    processors, ada = torch.cuda.get_device_properties(device).multi_processor_count, _kernels.portable_target(_kernels.torch_capability(device)) in _kernels.IN_E4M3
    return _portable.choose_lengths(shape, processors, tokens_q, ada=ada) if lengths else _portable.choose(shape, processors, ada=ada)


def is_loadable(x, dims=3):
    """Whether the kernels can read x in pieces of 16 bytes, by bulk copies too (which take no stride of zero)."""
    size = x.element_size()
    return x.data_ptr() % 16 == 0 and not any(s * size % 16 or not s for s, n in zip(x.stride()[:dims], x.shape) if n > 1)


def loadable(x):
    """x itself if the kernels can read it, else a contiguous copy."""
    return x if is_loadable(x, x.dim() - 1) else x.view(torch.uint8 if x.element_size() == 1 else x.dtype).clone(memory_format=torch.contiguous_format).view(x.dtype)


def fill_common(p, q, k, v, scales, group, softmax_scale, out_dtype, out_scale):
    """What every kernel of Params needs: strides of (B, H, S, D) tensors and of scales, options."""
    for name, x in zip("qkv", (q, k, v)):
        for d, st in zip("bhs", x):
            setattr(p, f"{name}_{d}", st)
    for name, s in zip("qkv", scales):
        for d, st in zip("bht", _arguments.scale_strides(s)):
            setattr(p, f"{name}s_{d}", st)
    p.group, p.out_kind = group, _arguments.OUT_KINDS[out_dtype]
    p.out_inverse_scale = 1.0 / out_scale if out_scale else 1.0
    p.softmax_scale_log2 = softmax_scale * _LOG2E


class DensePlan:
    """sdpa_fp8 for one set of shapes, strides and options. `choice` replaces the heuristic's, for measurements. Packed: v is V^T as pack_kv makes
    it, and q may be of 16 bits, without a scale. Fast: weights may be linear between powers of two."""

    def __init__(self, q, k, v, scales, causal, softmax_scale, out_dtype, out_scale, return_lse, choice=None, packed=False, fast=False):
        B, Hq, Sq, D = q.shape
        Hkv, Sk = k.shape[1], k.shape[2]
        processors = sms(q.device)
        shape = _heuristic.Shape(B, Hq, Hkv, Sq, Sk, D, bool(causal) and Sq > 1, plain=not any(map(_arguments.blocks, scales)), packed=packed, lse=bool(return_lse),
                                 wide=q.dtype != _arguments.E4M3, fast=fast)
        c = choice(shape) if choice else _chosen.choose(shape, processors) if processors else portable(shape, q.device)
        self.choice = c = c.with_output(_arguments.OUT_KINDS[out_dtype])
        self.index, self.device = q.device.index, q.device
        _driver.bind_context(self.index)
        self.kernel = _kernels.kernel(c, self.index)
        self.out = _memory.like_one(out_dtype, q.device, (B, Hq, Sq, D))
        self.lse = _memory.like_one(torch.float32, q.device, (B, Hq, Sq)) if return_lse else None
        p = self.params = Params()
        fill_common(p, q.stride(), k.stride(), v.stride(), scales, Hq // Hkv, softmax_scale, out_dtype, out_scale)
        p.B, p.Hq, p.Hkv, p.Sq, p.Sk = B, Hq, Hkv, Sq, Sk
        p.tiles_per_unit, p.tiles_per_worker, p.total_tiles = c.tiles_per_unit, c.tiles_per_worker, c.total_tiles
        p.row_tiles, p.section = c.row_tiles, c.section
        self.traced = ("WS_TRACE", 1) in c.defines
        self.transposition = _transposition(shape, c, v, self.index, processors) if c.transposes else None
        self.beside = c.transposes and c.tiles_per_worker > 0   # attention waits for V^T tile by tile
        if c.transposes:
            v = torch.empty((B, Hkv, D, 128 * _heuristic.ceil_div(Sk, 128)), dtype=torch.uint8, device="meta")   # as it comes to the kernel
        self.maps = None
        if c.boxes:
            self.raw, self.maps = aligned_tensor_maps(3)
            self.mapped = 1 if shape.wide else 0   # queries of 16 bits are not loaded by boxes: the map of keys takes their place
            self.map_shapes = [_map_shape(x, rows) for x, rows in zip((k if shape.wide else q, k, v), (c.boxes[self.mapped], c.boxes[1], D if packed or c.transposes else c.boxes[1]))]
            if ("WS_FEW", 1) in c.defines and _heuristic.few_boxes(shape.group):
                self.map_shapes[0] = few_map_shape((D, Hq, Sq, B), (q.stride(1), q.stride(2), q.stride(0)), shape.group)
            self.encoded = [None] * 3
        self.launch = _driver.Launch(self.kernel, c.grid, c.block, [p] + (self.maps or []))

    def __call__(self, q, k, v, qs, ks, vs, v_mean=None):
        """Launches on the current stream; None if an address is not on 16 bytes. The plan's device is the current one."""
        c = self.choice
        a, b, d = q.data_ptr(), k.data_ptr(), v.data_ptr()
        mean = 0 if v_mean is None else v_mean.data_ptr()
        if (a | b | d | mean) & 15:
            return None
        out = torch.empty_like(self.out)
        lse = torch.empty_like(self.lse) if self.lse is not None else None
        stream = _current_stream(self.index)
        scratch, arrived = 0, None
        if c.partial_floats:
            partial = torch.empty(c.partial_floats, dtype=torch.float32, device=self.device)
            scratch = partial.data_ptr()
            if self.traced:
                self.partial = partial
        if c.units:
            arrived = _memory.counters(c.units, self.device, stream)
        if self.transposition:
            self.transposition(d, scratch, stream, made=arrived.data_ptr() if self.beside else 0)
            d, scratch = scratch, scratch + self.transposition.bytes
        pack_addresses(self.params, 0, a, b, d, 0 if qs is None else qs.data_ptr(), ks.data_ptr(), vs.data_ptr(), out.data_ptr(), 0 if lse is None else lse.data_ptr(),
                        scratch, 0 if arrived is None else arrived.data_ptr())
        self.params.v_mean = mean
        if self.maps:
            for i, at in enumerate((b if self.mapped else a, b, d)):
                if self.encoded[i] != at:
                    _driver.encode_tensor_map(ctypes.byref(self.maps[i]), at, *self.map_shapes[i])
                    self.encoded[i] = at
        self.launch(stream)
        return out if lse is None else (out, lse)

    def described(self, at, scratch=0):
        """Its launches, by where addresses come from: `at` has a source for each of Params' that is not null, scratch is from so many bytes on."""
        c = self.choice
        at, launches = dict(at), []
        if c.units:
            at["arrived"] = _known.counters(0)
        if self.transposition:
            v_t = _known.scratch(scratch)
            launches.append(self.transposition.described(at["v"], v_t, made=at["arrived"] if self.beside else None))
            at["v"], scratch = v_t, scratch + self.transposition.bytes
        if c.partial_floats:
            at["partial"] = _known.scratch(scratch)
        words = {getattr(Params, name).offset: at.get(name) for name in ADDRESSES}
        maps = map(_known.tensor_map, self.map_shapes, (at["k" if self.mapped else "q"], at["k"], at["v"])) if self.maps else ()
        return [*launches, _known.launch(self.kernel, c.grid, c.block, [_known.struct(self.params, words), *maps])]

    def results(self):
        """What it makes, for `_known.tell`."""
        return [(x.dtype, x.shape) for x in (self.out, self.lse) if x is not None]

    def tell(self, kind, tensors, options, at):
        """Has `_native` make this plan's calls. -> whether it will"""
        known = _known.knows(kind, tensors, options)
        if known is not False:
            return bool(known)
        at = dict(at, out=_known.result(0), lse=_known.result(1) if self.lse is not None else None)
        aligned = [i for i, x in enumerate(tensors) if _known.tensor(i) in [at.get(name) for name in ("q", "k", "v", "v_mean")]]
        return _known.tell(kind, tensors, options, self.described(at), self.results(), aligned, self.device, 4 * self.choice.partial_floats, self.choice.units)


def _transposition(shape, attention, v, index, processors):
    """That of V for attention by this choice."""
    heads = shape.B * shape.Hkv
    values = Values(H=shape.Hkv, S=shape.Sk, heads=heads, section=attention.tiles_per_unit or heads)
    v_t = torch.empty((shape.B, shape.Hkv, shape.D, 128 * _heuristic.ceil_div(shape.Sk, 128)), dtype=torch.uint8, device="meta")
    return Transposition(_heuristic.transposition(shape, attention, processors), values, (_map_shape(v, 128), _map_shape(v_t, shape.D)), index, _heuristic.transposed_bytes(shape))


def map_strides(strides, sizes):
    """Strides in bytes as a tensor map takes them: whole 16 bytes, and that of a dimension of one, which nobody looks at, whatever it was."""
    return [(max(s, 16) + 15) // 16 * 16 if n == 1 else s for s, n in zip(strides, sizes)]


def few_map_shape(dims, strides, group):
    """That of queries (D, heads, queries, sequences): a box is 64 packed rows."""
    return dims, map_strides(strides, dims[1:]), (min(dims[0], 128), group, 64 // group, 1)


def made_map_shape(D, heads, tiles, sequences=1):
    """That of V^T where only the device knows lengths: a box is a tile. Those one behind another are one sequence."""
    return (128 * tiles, D, heads, sequences), (128 * tiles, 128 * tiles * D, 128 * tiles * D * heads), (128, D, 1, 1)


def _map_shape(x, rows):
    """A tensor map's dimensions, strides and box over the dimensions of x, the last one first."""
    dims = tuple(x.shape[::-1])
    return dims, map_strides((x.stride(2), x.stride(1), x.stride(0)), dims[1:]), (min(dims[0], 128), rows, 1, 1)
