"""quantize_fp8 and pack_kv: f16, bf16 or f32 to e4m3 codes and scales.

Kernels do it, for up to three tensors at a time: pack.cu where each block of tokens has its scale (_fused.py), quantise.cu for others.
On the CPU, and for layouts that they do not take, torch's own operations do, and give the same codes.
"""
import ctypes
import threading
from typing import NamedTuple, Optional

import torch
from torch.compiler import is_compiling

from . import _arguments, _driver, _fused, _heuristic, _kernels, _known, _memory, _plan, _values
from ._arguments import E4M3
from ._params import Quantise, Quantises

_KINDS = _fused.KINDS
_PER = {"tensor": 0, "head": 1, "block": 2}
_SAMPLES = 64
# How many times as large as the head's samples' largest, in sixteenths, values of keys and of values may be before a block of them gets a scale of its own, by head dimension. Kernels know how far
# scores of keys can come by what codes could be (forward_e4m3.cu, kRise), so keys have no more room than they need: normal ones of 16,384 tokens come to 1.4 times their samples' largest.
EVEN = {("k", 128): 32, ("k", 256): 28, ("v", 128): 128, ("v", 256): 128}   # at D 64 forward_f16.cu gains nothing by it
_QUANTISE = _heuristic.Choice("quantise", (), (), 256, 0)
_PLANS = 512
_local = threading.local()


class PackedKV(NamedTuple):
    """Keys and values ready for sdpa_fp8_packed: codes (B, Hkv, Sk, D), scales, and what was taken out of them: f32 (B, Hkv, D), or None.

    v_t, where there is a kernel for it (Hopper, scales "block", D 64, 128 or 256): v's codes again, (B, Hkv, D, 128 * ceil(Sk / 128)), as the
    tensor core takes them: see pack.cu. Keys from Sk on are zeros.
    """
    k: torch.Tensor
    v: torch.Tensor
    k_scale: torch.Tensor
    v_scale: torch.Tensor
    k_mean: Optional[torch.Tensor] = None
    v_mean: Optional[torch.Tensor] = None
    v_t: Optional[torch.Tensor] = None


def quantize_fp8(x, scales="head"):
    """x (B, H, S, D), f16, bf16 or f32, to e4m3 codes of its shape and their f32 scales: "tensor" (), "head" (B, H) or "block" (B, H, ceil(S / 128)).

    x, finite, is about code * scale; a scale is the largest magnitude / 448, and 1 where that is at most 1e-6. Returns (codes, scale). Neither requires
    a gradient, whether x does or not: rounding has none.
    """
    if is_compiling():
        return torch.ops.warpsmith.quantize_fp8(x.detach(), scales, None)
    if _known.launcher is not None and not _values.looked_at:
        made = _known.launcher.call(_known.QUANTISE, (x,), (scales,))
        if made is not None:
            return made
    elif type(x) is torch.Tensor and not _values.looked_at and isinstance(scales, str):   # like an earlier one of this thread
        plan = _plans().get(_key([(x, None)], scales))
        if plan is not None and x.data_ptr() % 16 == 0:
            return plan([(x, None)])[0]
    made = quantise([(check_wide("x", x), None)], per(scales))[0]
    if _known.knows(_known.QUANTISE, (x,), (scales,)) is False:
        _tell_quantise(x, scales)
    return made


def _tell_quantise(x, scales):
    """Has `_native` make such calls, if one plan did."""
    if scales == "block":
        plan = _fused.known_plan([_fused.Part(x)])
        kinds, units = plan and [plan.kinds[0].codes, plan.kinds[0].scale], 0
        made = _fused.Packed(*map(_known.result, range(2)), None, None)
    else:
        plan = known_plan([x], scales)
        kinds, units = plan and plan.kinds[0], plan and plan.words
        made = list(map(_known.result, range(2)))
    if plan:
        _known.tell(_known.QUANTISE, (x,), (scales,), plan.described([_known.tensor(0)], [made]), kinds, (0,), x.device, units=units)


def per(scales):
    """A layout of scales, by name."""
    if not isinstance(scales, str):
        raise TypeError(f"scales must be a str, not {type(scales).__name__}")
    if scales not in _PER:
        raise ValueError(f"scales must be tensor, head or block, not {scales!r}")
    return scales


def check_wide(name, x):
    """x as (B, H, S, D) of f16, bf16 or f32."""
    x = _arguments.as_tensor(name, x, None)
    if x.dtype not in _KINDS:
        raise TypeError(f"{name} must be float16, bfloat16 or float32, not {x.dtype}")
    if x.dim() != 4:
        raise ValueError(f"{name} must be (B, H, S, D), not {tuple(x.shape)}")
    if _values.looked_at:
        _values.finite(name, x)
    return x


def quantise(pairs, scales):
    """(codes, scale) of each (x, shift), shift being f32 (B, H, D) or None. Together where one launch takes them all."""
    together = len({x.device for x, _ in pairs}) == 1 and len(pairs) <= 3
    if together and scales == "block" and all(shift is None and _packable(x) for x, shift in pairs) and len({x.shape[3] for x, _ in pairs}) == 1:
        return [(p.codes, p.scale) for p in _fused.pack([_fused.Part(x) for x, _ in pairs])]
    if together and all(_quantisable(x) for x, _ in pairs):
        return _fused_quantise(pairs, scales)
    return [_torch_quantise(x, shift, scales) for x, shift in pairs]


def _packable(x):
    """Whether pack.cu takes x."""
    return _fused.real(x) and _fused.takes(x)


def _quantisable(x):
    """Whether quantise.cu takes x."""
    p = _fused.real(x) and x.numel() and _fused.has_kernels(x)
    step = 16 // x.element_size()
    return (p and x.shape[3] % 8 == 0 and x.shape[3] <= 256 and x.stride(3) == 1 and x.data_ptr() % 16 == 0 and x.shape[0] * x.shape[1] <= 65535
            and not any(s % step for s in x.stride()[:3]))


def _plans():
    try:
        return _local.plans
    except AttributeError:
        _local.plans = {}
        return _local.plans


def _key(pairs, scales):
    return tuple((x.shape, x.stride(), x.dtype, shift is None) for x, shift in pairs), scales, pairs[0][0].device


def known_plan(tensors, scales):
    """quantise.cu's plan that this thread has used for them, if it took them as they are."""
    return _plans().get(_key([(x, None) for x in tensors], scales)) if all(_fused.real(x) and x.data_ptr() % 16 == 0 for x in tensors) else None


def _fused_quantise(pairs, scales):
    device, plans = pairs[0][0].device, _plans()
    key = _key(pairs, scales)
    plan = plans.get(key)
    if plan is None:
        with torch.cuda.device(device):
            plan = _QuantisePlan(pairs, scales)
        if len(plans) >= _PLANS:
            plans.clear()
        plans[key] = plan
    return plan(pairs)


class _QuantisePlan:
    """All of quantise.cu's launches that stays the same while shapes, strides and dtypes do. Belongs to one thread: its block of parameters is filled in anew."""

    def __init__(self, pairs, scales):
        self.device = device = pairs[0][0].device
        _driver.bind_context(device.index)
        self.q, self.made = Quantises(), []
        grid = (max(-(-x.shape[2] // 128) for x, _ in pairs), max(x.shape[0] * x.shape[1] for x, _ in pairs), len(pairs))
        width = max(x.shape[3] for x, _ in pairs)
        # A head's CTAs wait for each other: only where so many launches at once as nobody makes would leave them without places (two to three CTAs fit an SM).
        once = scales == "head" and all(x.element_size() == 2 for x, _ in pairs) and grid[0] <= _plan.sms(device) // 4
        self.kinds, self.amax, self.words = [], [], 0   # of each tensor: its codes and scales, and its words among all: maxima and counts, zero between launches
        for t, (x, _) in zip(self.q.of, pairs):
            B, H, S, D = x.shape
            stride = torch.empty_like(x, dtype=E4M3, device="meta").stride()   # dense tensors keep their layout
            if stride[3] != 1 or any(s % 8 for s in stride[:3]):
                stride = H * S * D, S * D, D, 1
            shape, steps = {"tensor": ((), ()), "head": ((B, H), (H, 1)), "block": ((B, H, -(-S // 128)), (H * -(-S // 128), -(-S // 128), 1))}[scales]
            t.x_b, t.x_h, t.x_s = x.stride()[:3]
            t.c_b, t.c_h, t.c_s = stride[:3]
            t.H, t.heads, t.S, t.D, t.kind, t.per = H, B * H, S, D, _KINDS[x.dtype], _PER[scales]
            self.kinds.append(((E4M3, tuple(x.shape), stride), (torch.float32, shape, steps)))
            self.amax.append(self.words)
            self.words += {"tensor": 2, "head": 2 * B * H, "block": 0}[scales]
        self.ticket = ctypes.c_uint64() if once else None
        self.ticket_at = self.words
        self.words += once
        self.grid, self.makers = grid, [[_memory.maker(kind[0], device, *kind[1:]) for kind in kinds] for kinds in self.kinds]
        entries = [f"attention_quantise_head_{4 if width <= 64 else 8 if width <= 128 else 16}"] if once else ["attention_amax", "attention_quantise"][not self.words:]
        self.kernels = [_kernels.kernel(_QUANTISE, device.index, e) for e in entries]
        self.launches = [_driver.Launch(k, grid, 256, [self.q, self.ticket] if once else [self.q]) for k in self.kernels]

    def __call__(self, pairs):
        """Launches on the current stream. -> (codes, scale) of each"""
        if torch._C._cuda_getDevice() != self.device.index:
            with torch.cuda.device(self.device):
                return self(pairs)
        stream = torch._C._cuda_getCurrentRawStream(self.device.index)
        words = _memory.counters(self.words, self.device, stream) if self.words else None
        at = words.data_ptr() if self.words else 0
        if self.ticket is not None:   # a ctypes number of 0 is no truth
            self.ticket.value = at + 4 * self.ticket_at
        made = []
        for t, (x, shift), makers, of_words in zip(self.q.of, pairs, self.makers, self.amax):
            codes, scale = (make(*arguments) for make, arguments in makers)
            t.x, t.codes, t.scale, t.shift, t.amax = x.data_ptr(), codes.data_ptr(), scale.data_ptr(), 0 if shift is None else shift.data_ptr(), at + 4 * of_words
            made.append((codes, scale))
        for launch in self.launches:
            launch(stream)
        return made

    def described(self, tensors, results):
        """The launches without shifts, by where addresses come from: of the tensors, and of each one's codes and scales."""
        addresses, size = {}, ctypes.sizeof(Quantise)
        for i, (x, (codes, scale), at) in enumerate(zip(tensors, results, self.amax)):
            sources = dict(x=x, shift=None, codes=codes, scale=scale, amax=_known.counters(at) if self.words else None)
            addresses.update({i * size + getattr(Quantise, name).offset: source for name, source in sources.items()})
        ticket = [_known.struct(self.ticket, {0: _known.counters(self.ticket_at)})] if self.ticket is not None else []
        return [_known.launch(k, self.grid, 256, [_known.struct(self.q, addresses), *ticket]) for k in self.kernels]


@torch.no_grad()
def _torch_quantise(x, shift, scales):
    f = x.float() if shift is None else x.float() - shift[:, :, None]
    B, H, S, D = x.shape
    if not x.numel():
        a = torch.zeros({"tensor": (), "head": (B, H), "block": (B, H, -(-S // 128))}[scales], device=x.device)
    elif scales == "block":
        n = -(-S // 128)
        a = torch.nn.functional.pad(f.abs().amax(3), (0, n * 128 - S)).view(B, H, n, 128).amax(3)
    else:
        a = f.abs().amax(dim=(2, 3)) if scales == "head" else f.abs().amax()
    s = torch.where(a > 1e-6, a / 448, torch.ones_like(a))
    wide = s.repeat_interleave(128, 2)[:, :, :S, None] if scales == "block" else s[:, :, None, None] if scales == "head" else s
    return (f / wide).clamp(-448, 448).to(E4M3), s


def mean_of_some(x):
    """Each channel's mean over n = min(S, 64) tokens, evenly spaced: all of them, or floor((i + 1/2) S / 64); 0 where it is within three of its standard errors, (n + 9) mean^2 at most 9 times their mean square. f32 (B, H, D) of x (B, H, S, D)."""
    S, x = x.shape[2], x.detach()
    if S > _SAMPLES:
        x = x.index_select(2, torch.arange(1, 2 * _SAMPLES, 2, device=x.device) * S // (2 * _SAMPLES))
    x = x.float()
    mean, squares = x.mean(dim=2), (x * x).mean(dim=2)
    return torch.where((x.shape[2] + 9) * mean * mean > 9 * squares, mean, torch.zeros_like(mean))


def pack_kv(k, v, *, scales="block", smooth_k=True, center_v=True):
    """Quantises keys and values, (B, Hkv, Sk, D), for sdpa_fp8_packed. -> PackedKV

    k and v are f16, bf16 or f32, or each a pair (codes, scale), which is taken as it is. smooth_k takes a constant of each channel out of k first:
    no output changes, as softmax does not see what all keys have in common, and the codes gain what the offset would have cost. center_v takes one
    out of v, and sdpa_fp8_packed adds it back. The constant is each channel's mean over up to 64 evenly spaced keys, where these show one (beyond three
    of its standard errors; else 0): any would do exactly; this one costs no second reading. With scales "block", where v_t is made and D is 128 or 256, a block's scale is one for all of its head, made from 16 of these keys with room
    above (EVEN), unless the block's values are larger than that or 256 times smaller: sdpa_fp8_packed is faster where scales of a head are equal.
    Nothing of it requires a gradient. ValueError: shapes that do not fit, or a scale on the CPU that is negative or not
    finite.
    """
    if _known.launcher is not None and not (is_compiling() or _values.looked_at):
        made = _known.launcher.call(_known.PACK, (k, v), (scales, smooth_k, center_v))
        if made is not None:
            k8, v8, ks, vs, v_t, *means = made
            return PackedKV(k8, v8, ks, vs, means.pop(0) if smooth_k else None, means.pop(0) if center_v else None, v_t)
    options = scales, smooth_k, center_v
    per(scales)
    smooth_k, center_v = _arguments.flag("smooth_k", smooth_k), _arguments.flag("center_v", center_v)
    if isinstance(k, (tuple, list)) or isinstance(v, (tuple, list)):
        (k8, ks, km, _), (v8, vs, vm, v_t) = _one("k", k, scales, smooth_k), _one("v", v, scales, center_v)
        if k8.shape != v8.shape:
            raise ValueError(f"k {tuple(k8.shape)} and v {tuple(v8.shape)} must have one shape")
        return PackedKV(k8, v8, ks, vs, km, vm, v_t)
    k, v = check_wide("k", k), check_wide("v", v)
    if k.shape != v.shape or k.device != v.device:
        raise ValueError(f"k {tuple(k.shape)} and v {tuple(v.shape)} must have one shape, on one device")
    if is_compiling() or _arguments.is_fake((k, v)):
        k8, v8, ks, vs, *rest = torch.ops.warpsmith.pack_kv(k.detach(), v.detach(), scales, smooth_k, center_v)
        return PackedKV(k8, v8, ks, vs, *(x if x.dim() > 1 else None for x in rest))   # ops have no None
    (k8, ks, km, _), (v8, vs, vm, v_t) = _wide([(k, smooth_k), (v, center_v)], scales, "kv")
    if v_t is not None and _known.knows(_known.PACK, (k, v), options) is False:
        _tell_pack(k, v, options)
    return PackedKV(k8, v8, ks, vs, km, vm, v_t)


def _parts(tensors, names):
    """What pack.cu makes of each (x, whether its mean is to be taken out)."""
    return [_fused.Part(x, centred, transposed=name == "v" and _fused.on_hopper(x), even=_even(name, x)) for name, (x, centred) in zip(names, tensors)]


def _tell_pack(k, v, options):
    """Has `_native` make such calls, if one launch did."""
    _, smooth_k, center_v = options
    plan = _fused.known_plan(_parts([(k, bool(smooth_k)), (v, bool(center_v))], "kv"))
    if plan:
        of_k, of_v = plan.kinds
        kinds, places = [of_k.codes, of_v.codes, of_k.scale, of_v.scale, of_v.transposed], list(map(_known.result, range(7)))
        means = [kind for kind in (of_k.mean, of_v.mean) if kind]
        k_mean, v_mean = places[5] if of_k.mean else None, places[5 + bool(of_k.mean)] if of_v.mean else None
        made = _fused.Packed(places[0], places[2], k_mean, None), _fused.Packed(places[1], places[3], v_mean, places[4])
        _known.tell(_known.PACK, (k, v), options, plan.described([_known.tensor(0), _known.tensor(1)], made), kinds + means, (0, 1), k.device)


def _even(name, x):
    return EVEN.get((name, x.shape[3]), 0) if _fused.on_hopper(x) else 0


def parts_for_one(k, v):
    """What pack.cu makes of both for them."""
    return [_fused.Part(k, centred=True, even=_even("k", k)), _fused.Part(v, centred=True, codes=False, transposed=True, even=_even("v", v))]


def pack_for_one(k, v):
    """pack_kv for kernels that read v by v_t alone: its row-major codes are not made, and k's stand in their place. None where the launch does not take them."""
    if not all(map(_packable, (k, v))) or k.dtype != v.dtype or k.device != v.device:
        return None
    k, v = _fused.pack(parts_for_one(k, v))
    return PackedKV(k.codes, k.codes, k.scale, v.scale, k.mean, v.mean, v.transposed)


def _wide(tensors, scales, names):
    """(codes, scale, mean or None, V^T or None) of each (x, whether its mean is to be taken out), which were checked. names: k or v, for each."""
    if scales == "block" and all(_packable(x) for x, _ in tensors):
        return _fused.pack(_parts(tensors, names))
    means = [mean_of_some(x) if centred and x.shape[2] else None for x, centred in tensors]
    made = quantise([(x, mean) for (x, _), mean in zip(tensors, means)], scales)
    return [(*pair, mean, None) for pair, mean in zip(made, means)]


def _one(name, x, scales, centred):
    """The same of k or v alone, which may be a pair (codes, scale)."""
    if isinstance(x, (tuple, list)):
        if len(x) != 2 or not all(isinstance(t, torch.Tensor) for t in x):
            raise TypeError(f"{name} must be a tensor or a pair (codes, scale) of tensors")
        if x[0].dtype != E4M3 or x[1].dtype != torch.float32:
            raise TypeError(f"{name} must be codes in float8_e4m3fn and their scale in float32, not {x[0].dtype} and {x[1].dtype}")
        if x[0].dim() != 4:
            raise ValueError(f"{name}'s codes must be (B, H, S, D), not {tuple(x[0].shape)}")
        shapes = _arguments.scale_shapes(*x[0].shape[:3])
        if tuple(x[1].shape) not in shapes or x[1].device != x[0].device:
            raise ValueError(f"{name}'s scale must have the shape {shapes[0]}, {shapes[1]} or {shapes[2]} and be on {x[0].device}, not {tuple(x[1].shape)} on {x[1].device}")
        if not x[1].is_cuda or _values.looked_at:   # on the CPU looking costs no waiting
            _values.scales(f"{name}'s scale", x[1])
        return x[0], x[1], None, None
    x = check_wide(name, x)
    if is_compiling():
        mean = mean_of_some(x) if centred and x.shape[2] else None
        return (*torch.ops.warpsmith.quantize_fp8(x.detach(), scales, mean), mean, None)
    return _wide([(x, centred)], scales, name)[0]
