"""sdpa_fp8: arguments are checked once for each layout, then a call is one comparison and one launch.

In a wheel the comparison and the launch are `_native`'s (_known.py). In a checkout the comparison is torch's own guard of tensors (type, dtype, device, sizes, strides), made for compiled code: it takes a third of the time of
a key of our own. It is private to torch; where it is missing, or says no, the key decides.
"""
import functools
import math
import threading

import torch
from torch.compiler import is_compiling

from . import _arguments, _chosen, _heuristic, _known, _plan, _values

try:
    from torch._C._dynamo.guards import TensorGuards as _Guards
except ImportError:
    _Guards = None

_local = threading.local()
current_device = torch._C._cuda_getDevice if hasattr(torch._C, "_cuda_getDevice") else lambda: -1
_RECENT, _PLANS, MAX_GRID = 4, 512, 65535


def sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, *, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False, mode="default",
             _choice=None):
    """Attention of e4m3 tensors: softmax(softmax_scale * q k^T) v, of values that are code * scale.

    q (B, Hq, Sq, D), k and v (B, Hkv, Sk, D), float8_e4m3fn, D 64, 128 or 256, any strides with a contiguous last dimension; Hq is a
    multiple of Hkv. Scales are f32 of shape (), (B, H) or (B, H, ceil(S / 128)), H being Hq for q and Hkv for k and v;
    zero or positive, and finite: they stay on the device and are not looked at but within `checked()`; a negative one gives meaningless values
    in its head, and harms nothing else.
    causal is aligned bottom-right: query i sees keys up to Sk - Sq + i. softmax_scale, positive, defaults to 1 / sqrt(D).
    Returns out (B, Hq, Sq, D) of out_dtype: bfloat16, float16, or float8_e4m3fn, which is round(o / out_scale). With return_lse also f32
    (B, Hq, Sq): the natural logarithm of the sum of exponentials; at D 64, and where queries and keys are few, another, slower kernel may run then, whose outputs are rounded otherwise.
    Rows that see no key are 0 and -inf. Runs on the current stream, waits for nothing and can be captured in a graph.
    mode "fast" gives up accuracy where that makes a call faster: many queries over many keys on Hopper, without return_lse, at D 128, and at D 256 with
    scales per tensor or head (not where only the device knows lengths). All exponentials are then linear between powers of two, not up to half of them: relF of normal inputs is up to 1.05 times the default's
    (1.10 where scores hardly differ), of peaked ones, outliers and shifted ones at most 1.004, and calls take 0.97 of the time in the geometric mean (docs/attention-accuracy.md). Elsewhere both modes do the same.

    TypeError: a wrong kind or dtype. ValueError: shapes, strides or devices that do not fit, or a tensor that requires a gradient (there is no
    backward) outside of no_grad. NotImplementedError: a card before Ampere. All come before any launch.
    """
    if is_compiling():
        out, lse = torch.ops.warpsmith.sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, out_dtype, out_scale, return_lse, mode)
        return (out, lse) if return_lse else out
    if _known.launcher is not None and _choice is None and not _values.looked_at:
        result = _known.launcher.call(_known.DENSE, (q, k, v, q_scale, k_scale, v_scale), (causal, softmax_scale, out_dtype, out_scale, return_lse, mode))   # None, too, where a gradient is wanted
        if result is not None:
            return result
    if _values.looked_at or _arguments.wants_gradient(q, k, v, q_scale, k_scale, v_scale):
        return _checked(q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, out_dtype, out_scale, return_lse, mode, _choice)
    try:
        recent = _local.recent.get((causal, softmax_scale, out_dtype, out_scale, return_lse, mode, _choice), ())
    except (AttributeError, TypeError):
        recent = ()
    for check, plan in recent:
        if check(q, k, v, q_scale, k_scale, v_scale):
            if current_device() == plan.index:
                result = plan(q, k, v, q_scale, k_scale, v_scale)
                if result is not None:
                    return result
            break
    return _checked(q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, out_dtype, out_scale, return_lse, mode, _choice)


def _checked(q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, out_dtype, out_scale, return_lse, mode, choice):
    """The same for arguments that are new, or need preparation."""
    asked = (_arguments.flag("causal", causal), softmax_scale, out_dtype, out_scale, _arguments.flag("return_lse", return_lse), mode, choice)
    *tensors, softmax_scale, out_scale = _arguments.dense(q, k, v, q_scale, k_scale, v_scale, softmax_scale, out_dtype, out_scale, mode)
    if _arguments.is_fake(tensors):
        out, lse = torch.ops.warpsmith.sdpa_fp8(*tensors, asked[0], softmax_scale, out_dtype, out_scale, asked[4], mode)
        return (out, lse) if return_lse else out
    return run(tensors, asked[0], softmax_scale, out_dtype, out_scale, asked[4], choice, asked, mode == "fast")


def packed_fits(q_shape, Hkv, Sk, causal, device):
    """Whether sdpa_fp8_packed would take V^T, were it there, for queries of this shape, (B, Hq, Sq, D): on Hopper, where queries and keys are many."""
    return _packed_fits(tuple(q_shape), Hkv, Sk, bool(causal), device)


@functools.lru_cache(_PLANS)
def _packed_fits(q_shape, Hkv, Sk, causal, device):
    B, Hq, Sq, D = q_shape
    if device.type != "cuda" or D not in _arguments.HEAD_DIMS or not 0 < B <= MAX_GRID or not (Hq and Sq and Sk and Hkv) or Hq % Hkv:
        return False
    try:
        processors = _plan.sms(device)
    except NotImplementedError:
        return False
    return bool(processors) and _chosen.packed_fits(_heuristic.Shape(B, Hq, Hkv, Sq, Sk, D, causal), processors)


def run(tensors, causal, softmax_scale, out_dtype, out_scale, return_lse, choice=None, asked=None, fast=False):
    """Launches for tensors that were checked. `asked` is what to remember the layout under."""
    q, k, v, *scales = tensors
    if 0 in q.shape or 0 in k.shape:
        return empty(q.shape, q.shape[:3], q.device, out_dtype, return_lse)
    if q.shape[0] > MAX_GRID:
        parts = [run([x[i:i + MAX_GRID] if x.dim() else x for x in tensors], causal, softmax_scale, out_dtype, out_scale, return_lse, choice, fast=fast) for i in range(0, q.shape[0], MAX_GRID)]
        return tuple(map(_cat, zip(*parts))) if return_lse else _cat(parts)
    tensors = (*map(_plan.loadable, (q, k, v)), *scales)
    with torch.cuda.device(q.device):
        plan = plan_for(tensors, causal, softmax_scale, out_dtype, out_scale, return_lse, choice, fast=fast)
        if asked is not None:
            _remember(_local.recent, asked, tensors, plan)
        return plan(*tensors)


def plan_for(tensors, causal, softmax_scale, out_dtype, out_scale, return_lse, choice=None, packed=False, fast=False):
    """This thread's plan for tensors of this layout, on their device, which is the current one. Packed: the third one is V^T."""
    q, k, v, *scales = tensors
    try:
        plans, recent = _local.plans, _local.recent
    except AttributeError:
        plans, recent = _local.plans, _local.recent = {}, {}
    key = (tuple(x is not None and (x.shape, x.stride(), x.dtype) for x in tensors), q.device, causal, softmax_scale, out_dtype, out_scale, return_lse, choice, packed, fast)
    plan = plans.get(key)
    if plan is None:
        plan = _plan.DensePlan(q, k, v, scales, causal, softmax_scale, out_dtype, out_scale, return_lse, choice, packed, fast)
        if len(plans) >= _PLANS:
            plans.clear()
            recent.clear()
        plans[key] = plan
    _local.last = plan
    return plan


def last_plan():
    """This thread's latest."""
    return _local.last


def _remember(recent, asked, tensors, plan):
    """Puts a guard of these tensors first among those of the same options."""
    if asked[-1] is None and plan.tell(_known.DENSE, tensors, asked[:-1], dict(zip(_plan.ADDRESSES, map(_known.tensor, range(6))))):
        return
    if any(isinstance(x, torch.Tensor) for x in asked):
        return
    check = guard(tensors)
    if check is not None:
        recent[asked] = ((check, plan), *recent.get(asked, ())[:_RECENT - 1])


def guard(tensors):
    """A function that says whether tensors are of the same kind, dtype, device, sizes and strides as these; or None."""
    if _Guards is None:
        return None
    try:
        guards = _Guards(*tensors, dynamic_dims_sizes=[list(x.shape) for x in tensors], dynamic_dims_strides=[list(x.stride()) for x in tensors])
        return guards.check if guards.check(*tensors) else None
    except Exception:   # of a private interface: the key still serves
        return None


def _cat(parts):
    """Along the batch; bytes, as not every torch joins e4m3."""
    return torch.cat([x.view(torch.uint8) if x.dtype == _arguments.E4M3 else x for x in parts]).view(parts[0].dtype)


def empty(shape, lse_shape, device, out_dtype, return_lse):
    """The answer where there are no queries or no keys: zeros and minus infinity."""
    out = torch.zeros(shape, dtype=torch.uint8, device=device).to(out_dtype)
    return (out, torch.full(lse_shape, -math.inf, dtype=torch.float32, device=device)) if return_lse else out
