"""The functions that users call: arguments are checked, a plan is made once for each shape and layout, then every call is a launch.

A plan belongs to one thread, as its parameter block is filled in anew for each call; the driver copies it at the launch. Nothing here
waits for the device. Limits: Hopper; strides of whole 16 bytes are taken as they are, others are copied first.
"""
import ctypes
import dataclasses
import math
import threading

import torch

from . import _driver, _heuristic, _kernels
from ._params import Params, aligned_tensor_maps

E4M3 = torch.float8_e4m3fn
_OUT = {torch.bfloat16: 0, torch.float16: 1, E4M3: 2}
_LOG2E = math.log2(math.e)
_current_stream = torch._C._cuda_getCurrentRawStream
_local = threading.local()
_counters = {}
_counters_lock = threading.Lock()
_COUNTERS, _SLOTS = 16384, 64


def quantize_fp8(x, scales="head"):
    """x (B, H, S, D) to e4m3 codes and their f32 scales: "tensor" (), "head" (B, H) or "block" (B, H, ceil(S / 128)). A maximum of at most 1e-6 has scale 1."""
    if scales not in ("tensor", "head", "block"):
        raise ValueError(f"scales must be tensor, head or block, not {scales!r}")
    if x.dim() != 4:
        raise ValueError(f"x must be (B, H, S, D), not {tuple(x.shape)}")
    f = x.float()
    B, H, S, D = x.shape
    if scales == "block":
        n = -(-S // 128)
        a = torch.nn.functional.pad(f.abs().amax(3), (0, n * 128 - S)).view(B, H, n, 128).amax(3)
    else:
        a = f.abs().amax(dim=(2, 3)) if scales == "head" else f.abs().amax()
    s = torch.where(a > 1e-6, a / 448, torch.ones_like(a))
    wide = s.repeat_interleave(128, 2)[:, :, :S, None] if scales == "block" else s[:, :, None, None] if scales == "head" else s
    return (f / wide).clamp(-448, 448).to(E4M3), s


def _scale_strides(name, s, B, H, S, blocks):
    """Strides over (B, H, block) of a scale, 0 where it is shared."""
    if s.dtype != torch.float32:
        raise TypeError(f"{name} must be float32, not {s.dtype}")
    shape = tuple(s.shape)
    if shape == ():
        return 0, 0, 0
    if shape == (B, H):
        return (*s.stride(), 0)
    if shape == (B, H, blocks):
        return s.stride()
    raise ValueError(f"{name} must have the shape (), {(B, H)} or {(B, H, blocks)}, not {shape}")


class _Plan:
    """All of a call that does not change while shapes, strides and options stay the same."""

    def __init__(self, q, k, v, scales, causal, softmax_scale, out_dtype, out_scale, return_lse, choice):
        B, Hq, Sq, D = q.shape
        Hkv, Sk = k.shape[1], k.shape[2]
        strides = [_scale_strides(n, s, B, h, t, -(-t // 128)) for n, s, h, t in zip(("q_scale", "k_scale", "v_scale"), scales, (Hq, Hkv, Hkv), (Sq, Sk, Sk))]
        shape = _heuristic.Shape(B, Hq, Hkv, Sq, Sk, D, causal, plain=all(x[2] == 0 for x in strides))
        c = choice(shape) if choice else _heuristic.choose(shape)
        self.choice = c = dataclasses.replace(c, defines=c.defines + (("WS_OUT", _OUT[out_dtype]),))
        self.kernel = _kernels.kernel(c, q.device.index)
        self.out_shape, self.lse_shape = (B, Hq, Sq, D), (B, Hq, Sq)
        self.out_dtype, self.return_lse, self.device = out_dtype, return_lse, q.device
        p = self.params = Params()
        for name, x in zip("qkv", (q, k, v)):
            for d, st in zip("bhs", x.stride()):
                setattr(p, f"{name}_{d}", st)
        for name, st in zip("qkv", strides):
            for d, x in zip("bht", st):
                setattr(p, f"{name}s_{d}", x)
        p.B, p.Hq, p.Hkv, p.Sq, p.Sk, p.group = B, Hq, Hkv, Sq, Sk, Hq // Hkv
        p.out_kind = _OUT[out_dtype]
        p.out_inverse_scale = 1.0 / out_scale if out_scale else 1.0
        p.softmax_scale_log2 = softmax_scale * _LOG2E
        p.tiles_per_unit, p.tiles_per_worker, p.total_tiles = c.tiles_per_unit, c.tiles_per_worker, c.total_tiles
        p.row_tiles, p.section = c.row_tiles, c.section
        self.maps = None
        if c.file == "forward":
            self.raw, self.maps = aligned_tensor_maps(3)
            width = min(D, 128)
            rows = (64, 128, 128)
            self.map_shapes = [((D, x.shape[2], x.shape[1], B), [x.stride(2), x.stride(1), x.stride(0)], (width, r, 1, 1)) for x, r in zip((q, k, v), rows)]
            self.map_shapes = [(d, [max(s, 16) if n == 1 else s for s, n in zip(st, d[1:])], b) for d, st, b in self.map_shapes]
            self.encoded = [None] * 3
        self.index = q.device.index
        self.launch = _driver.Launch(self.kernel, c.grid, c.block, [p] + (self.maps or []))

    def counters(self, stream):
        if self.choice.units > _COUNTERS or (self.device.index not in _counters and torch.cuda.is_current_stream_capturing()):
            return torch.zeros(self.choice.units, dtype=torch.int32, device=self.device)
        with _counters_lock:
            pool, slots = _counters.get(self.device.index) or _counters.setdefault(
                self.device.index, (torch.zeros(_SLOTS, _COUNTERS, dtype=torch.int32, device=self.device), {}))
            if not slots:
                torch.cuda.current_stream().synchronize()
            slot = slots.setdefault(stream, len(slots) % _SLOTS)
        return pool[slot]

    def __call__(self, q, k, v, qs, ks, vs):
        p, c = self.params, self.choice
        a, b, d = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if (a | b | d) & 15:
            return None
        out = torch.empty(self.out_shape, dtype=self.out_dtype, device=self.device)
        p.q, p.k, p.v, p.q_scale, p.k_scale, p.v_scale, p.out = a, b, d, qs.data_ptr(), ks.data_ptr(), vs.data_ptr(), out.data_ptr()
        lse = None
        if self.return_lse:
            lse = torch.empty(self.lse_shape, dtype=torch.float32, device=self.device)
            p.lse = lse.data_ptr()
        stream = _current_stream(self.index)
        if c.partial_floats:
            self.partial = partial = torch.empty(c.partial_floats, dtype=torch.float32, device=self.device)
            p.partial = partial.data_ptr()
            if c.units:
                p.arrived = self.counters(stream).data_ptr()
        if self.maps:
            for i, at in enumerate((p.q, p.k, p.v)):
                if self.encoded[i] != at:
                    _driver.encode_tensor_map(ctypes.byref(self.maps[i]), at, *self.map_shapes[i])
                    self.encoded[i] = at
        self.launch(stream)
        return (out, lse) if lse is not None else out


def _checked(q, k, v, scales, softmax_scale, out_dtype, out_scale, mode):
    for name, x in zip("qkv", (q, k, v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(x).__name__}")
        if x.dtype != E4M3:
            raise TypeError(f"{name} must be float8_e4m3fn, not {x.dtype}")
        if x.dim() != 4:
            raise ValueError(f"{name} must be (B, H, S, D), not {tuple(x.shape)}")
        if not x.is_cuda or x.device != q.device:
            raise ValueError(f"{name} must be on q's CUDA device, not on {x.device}")
    for name, s in zip(("q_scale", "k_scale", "v_scale"), scales):
        if not isinstance(s, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(s).__name__}")
        if s.device != q.device:
            raise ValueError(f"{name} must be on q's device, not on {s.device}")
    B, Hq, _, D = q.shape
    if D not in (64, 128, 256):
        raise ValueError(f"the head dimension must be 64, 128 or 256, not {D}")
    if k.shape != v.shape:
        raise ValueError(f"k and v must have one shape, not {tuple(k.shape)} and {tuple(v.shape)}")
    if k.shape[0] != B or k.shape[3] != D:
        raise ValueError(f"k {tuple(k.shape)} does not fit q {tuple(q.shape)}: batch and head dimension must agree")
    if k.shape[1] == 0 or Hq % k.shape[1]:
        raise ValueError(f"q's {Hq} heads must be a multiple of k's {k.shape[1]}")
    if out_dtype not in _OUT:
        raise TypeError(f"out_dtype must be bfloat16, float16 or float8_e4m3fn, not {out_dtype}")
    if out_scale is not None and not out_scale > 0:
        raise ValueError(f"out_scale must be positive, not {out_scale}")
    if not (softmax_scale > 0 and math.isfinite(softmax_scale)):
        raise ValueError(f"softmax_scale must be positive and finite, not {softmax_scale}")
    if mode not in ("default", "fast"):
        raise ValueError(f"mode must be default or fast, not {mode!r}")


def _loadable(x):
    """x itself if the kernels can read it in 16-byte pieces, else a contiguous copy."""
    if x.stride(3) == 1 and not any(s % 16 for s, n in zip(x.stride()[:3], x.shape) if n > 1) and x.data_ptr() % 16 == 0:
        return x
    if x.stride(3) != 1:
        raise ValueError(f"the last dimension must be contiguous, not of stride {x.stride(3)}")
    return x.view(torch.uint8).clone(memory_format=torch.contiguous_format).view(E4M3)


def sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, *, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False, mode="default",
             _choice=None):
    """softmax(softmax_scale * q k^T) v of e4m3 tensors whose values are code * scale.

    q (B, Hq, Sq, D), k and v (B, Hkv, Sk, D); scales f32 of shape (), (B, H) or (B, H, ceil(S / 128)). causal is aligned bottom-right.
    Returns (B, Hq, Sq, D) of out_dtype (for float8_e4m3fn: o / out_scale), with return_lse also f32 (B, Hq, Sq). Rows that see no key are 0 and -inf.
    """
    try:
        plans = _local.plans
    except AttributeError:
        plans = _local.plans = {}
    try:
        key = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q_scale.stride(), k_scale.stride(), v_scale.stride(), q_scale.shape, k_scale.shape,
               v_scale.shape, q.dtype, k.dtype, v.dtype, q_scale.dtype, k_scale.dtype, v_scale.dtype, q.device, k.device, v.device, causal, softmax_scale, out_dtype,
               out_scale, return_lse, mode, _choice)
        plan = plans.get(key)
    except (AttributeError, TypeError):
        key = plan = None
    if plan is None:
        scale = 1.0 / math.sqrt(q.shape[-1]) if softmax_scale is None and isinstance(q, torch.Tensor) and q.dim() == 4 and q.shape[-1] else softmax_scale
        _checked(q, k, v, (q_scale, k_scale, v_scale), 1.0 if scale is None else scale, out_dtype, out_scale, mode)
        if 0 in q.shape or k.shape[2] == 0:
            out = torch.zeros(q.shape, dtype=torch.uint8, device=q.device).to(out_dtype)
            return (out, torch.full(q.shape[:3], -math.inf, device=q.device)) if return_lse else out
        loadable = [_loadable(x) for x in (q, k, v)]
        if any(x is not y for x, y in zip(loadable, (q, k, v))):
            return sdpa_fp8(*loadable, q_scale, k_scale, v_scale, causal=causal, softmax_scale=softmax_scale, out_dtype=out_dtype, out_scale=out_scale,
                            return_lse=return_lse, mode=mode, _choice=_choice)
        with torch.cuda.device(q.device):
            plan = _Plan(q, k, v, (q_scale, k_scale, v_scale), causal, scale, out_dtype, out_scale, return_lse, _choice)
        if len(plans) > 512:
            plans.clear()
        plans[key] = plan
    result = plan(q, k, v, q_scale, k_scale, v_scale)
    if result is None:   # an address that is not on 16 bytes
        return sdpa_fp8(*[_loadable(x) for x in (q, k, v)], q_scale, k_scale, v_scale, causal=causal, softmax_scale=softmax_scale, out_dtype=out_dtype,
                        out_scale=out_scale, return_lse=return_lse, mode=mode, _choice=_choice)
    return result
